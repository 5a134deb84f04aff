/*
 * fake_tier.h - a tier in memory whose speed, faults and stalls a test decides.
 *
 * One at a time: the one that was created last is fake_tier(). A remote one knows of what lies there
 * only what it was asked for, by a probe, or what was written through it.
 */
#ifndef FAKE_TIER_H
#define FAKE_TIER_H

#include <pthread.h>
#include <stdbool.h>

#include "tiers/tier.h"

#define FAKE_VERBS   6
#define FAKE_MISSING 64

#define FAKE_PIECE 50000u /* of whose checksums it can use some */

struct fake_chunk;

struct fake_tier {
	struct kvt_tier base; /* first */
	pthread_mutex_t lock; /* guards all that follows */
	pthread_cond_t wake;
	struct kvt_tier_request *inbox, *inbox_last;
	struct fake_chunk *chunks;
	size_t with_pieces; /* writes that came with checksums of pieces */
	struct kvt_tier_watch watch;
	bool woken, remote;
	struct kvt_key missing[FAKE_MISSING]; /* asked for, and not there */
	size_t missing_count;
	/* what tests set */
	bool hold[FAKE_VERBS];       /* requests of this verb stay where they are */
	uint32_t answer[FAKE_VERBS]; /* not KVT_OK: instead of doing it */
	uint32_t answer_times;       /* how many more get that answer; UINT32_MAX: all */
	bool write_then_hold;        /* a held write is visible already */
	/* what tests look at */
	size_t begun[FAKE_VERBS], ended[FAKE_VERBS];
	size_t steps;
	size_t limits; /* of tenants; the last one: */
	struct kvt_tenant limited;
	uint64_t limit;
};

/* A local one, a shared one, and a shared one with a table of generations. */
extern const struct kvt_tier_ops fake_tier_ops, fake_remote_ops, fake_table_ops;

void fake_table_begin(void); /* the table is lost: the next question begins another one */
void fake_table_fails(bool on);
void fake_table_page(size_t changes); /* so many in one answer */
void fake_table_raise(uint32_t slot); /* another process erased */
/* A failover: the last change, of a slot that had none before, is lost. */
void fake_table_forget_last(void);

struct fake_tier *fake_tier(void);
struct fake_tier *fake_remote(void); /* likewise, of the shared ones */

/* What the next one's create answers; KVT_OK after each. */
void fake_tier_refuse(enum kvt_status status);
/* The next so many times that all of one is to be erased fail. */
void fake_tier_refuse_erase_all(uint32_t times);
/* The next one begins with this chunk, too. */
void fake_tier_begin_with(const struct kvt_key *key, const struct kvt_tenant *tenant,
	const void *data, uint64_t bytes);

void fake_hold(struct fake_tier *t, enum kvt_tier_verb verb, bool on);
void fake_answer(
	struct fake_tier *t, enum kvt_tier_verb verb, enum kvt_status status, uint32_t times);
size_t fake_begun(struct fake_tier *t, enum kvt_tier_verb verb);
size_t fake_chunks(struct fake_tier *t);
bool fake_has(struct fake_tier *t, const struct kvt_key *key);
/* Another process stores a chunk there, or all of its chunks go: a remote tier does not notice. */
void fake_plant(struct fake_tier *t, const struct kvt_key *key, const void *data, uint64_t bytes);
void fake_vanish(struct fake_tier *t);
/* Forgets what it was asked for. */
void fake_forget(struct fake_tier *t);
/* Changes a byte of a chunk that lies there. */
void fake_damage(struct fake_tier *t, const struct kvt_key *key);

#endif
