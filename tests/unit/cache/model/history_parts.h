/*
 * history_parts.h - what the parts of a history share: its state, chance, judgement, operations.
 */
#ifndef MODEL_HISTORY_PARTS_H
#define MODEL_HISTORY_PARTS_H

#include <inttypes.h>

#include "files.h"
#include "history.h"

#define LEASES       6
#define RESERVATIONS 3
#define RESERVED_MAX 4
#define EVENTS       64
#define SECOND       INT64_C(1000000000)

struct held {
	struct kvt_lease *lease; /* NULL: free */
	uint32_t first;          /* id of its first chunk */
	uint8_t *bytes;          /* owned: what was seen when it was got */
};

struct filling {
	struct kvt_reservation *reservation; /* NULL: free */
	uint32_t ids[RESERVED_MAX], generations[RESERVED_MAX], status[RESERVED_MAX];
	struct kvt_checksum sums[RESERVED_MAX];
	size_t count;
	int64_t reserved_ns; /* a TTL counts from then */
};

struct history {
	const struct profile *p;
	struct files *files;
	uint64_t seed, random;
	uint32_t operation; /* number of the present one */
	const char *doing;
	struct kvt *k;
	struct kvt_clock clock;
	struct oracle oracle;
	struct held held[LEASES];
	struct filling filling[RESERVATIONS];
	int *told[KVT_TIER_COUNT]; /* owned: by events, how many copies of a chunk a tier has */
	uint64_t sequence;
	bool faulty;   /* the disk fails at present */
	uint64_t user; /* of asynchronous operations */
};

/* --- judge.c: complaints, chance, time --- */
/* Ends the test, naming profile, seed and operation. */
void model_wrong(const struct history *h, const char *format, ...)
	__attribute__((format(printf, 2, 3), noreturn));
/* What happens, to find a fault: MODEL_TRACE=1. */
void model_trace(const struct history *h, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
uint64_t model_chance(struct history *h);
uint32_t model_random_below(struct history *h, uint64_t n);
int64_t model_now(const struct history *h);
uint32_t model_pick(struct history *h);
/* First chunk of a chunk's chain. */
uint32_t model_head_of(const struct history *h, uint32_t id);
struct entry *model_entry(struct history *h, uint32_t id);
void model_step_until_idle(struct history *h);
/* Time passes as it does between steps. */
void model_pass_time(struct history *h, int64_t ns);

/* --- judge.c: events --- */
void model_make_blocks(uint32_t id, uint8_t hashes[16], struct kvt_blocks *blocks);
void model_hear(struct history *h);

/* --- judge.c: what a get gave --- */
/* Copies what a lease shows of chunk i; to be freed. */
uint8_t *model_copy_of(struct history *h, const struct kvt_lease *lease, size_t i);
/* Is there a reason to demand it? */
bool model_demanded(struct history *h, uint32_t id);
/* Does a reservation fill it, that no erase has come after? */
bool model_is_filled(const struct history *h, uint32_t id);
void model_judge_lease(
	struct history *h, uint32_t first, size_t asked, const struct kvt_lease *lease);
/* Keeps a lease for a while, or lets it go. Takes it. */
void model_keep_or_release(struct history *h, uint32_t first, struct kvt_lease *lease);
void model_let_go(struct history *h, struct held *held);
/* Keys of up to n chunks of a chain from `first` on; returns how many. */
size_t model_keys_of(const struct history *h, uint32_t first, size_t n, struct kvt_key *keys);
/* Something happened that may count as a use. */
void model_use_all(struct history *h, uint32_t first, size_t n);

/* --- puts.c --- */
void model_do_put(struct history *h);
void model_do_reserve(struct history *h);
void model_do_finish(struct history *h);
void model_abort_filling(struct history *h, struct filling *f);

/* --- verbs.c --- */
void model_do_get(struct history *h);
void model_do_async(struct history *h);
void model_do_release(struct history *h);
void model_do_lookup(struct history *h);
void model_do_survey(struct history *h);
void model_do_prefetch(struct history *h);
void model_do_pin(struct history *h);
void model_unpin_all(struct history *h);
void model_do_erase(struct history *h);
void model_do_erase_tenant(struct history *h);
void model_do_reset(struct history *h);
void model_do_time(struct history *h);
void model_do_steps(struct history *h);
void model_drain(struct history *h);
void model_do_drain(struct history *h);
void model_do_stats(struct history *h);

#endif
