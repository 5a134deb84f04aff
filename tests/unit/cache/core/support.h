/*
 * support.h - caches for tests: small, with a clock of the test's own, and chunks whose bytes are a
 * function of their key.
 */
#ifndef CORE_SUPPORT_H
#define CORE_SUPPORT_H

#include <check.h>
#include <stdatomic.h>

#include "fake_tier.h"
#include "core/kvt_open.h"

#define SECOND 1000000000ll
#define CHUNK  (192u * 1024) /* bytes of a test's chunk: three units of the arena */

/* A cache under test. */
struct rig {
	struct kvt_config config; /* to be changed between rig_init and rig_open */
	struct kvt_clock clock;
	_Atomic int64_t now_ns, wall_ns;
	bool with_tier; /* the fake one */
	bool remote;    /* which is a shared one */
	struct kvt *k;
	_Atomic size_t lines; /* of the log */
	uint32_t pushed;      /* chunks that rig_push_out made */
};

/* Without threads, with a clock that stands; L1 of 64 chunks, "lru". */
void rig_init(struct rig *r);
void rig_open(struct rig *r);
void rig_close(struct rig *r);

/* Steps until there is nothing left to do now. */
void rig_settle(struct rig *r);
void rig_advance(struct rig *r, int64_t ns);

struct kvt_key key_of(uint32_t chain, uint32_t index);
/* Bytes of a chunk. */
void bytes_of(const struct kvt_key *key, uint8_t *out, uint64_t bytes);

/* Puts chunk `index` of a chain, whose parent is the one before. */
enum kvt_status rig_put(struct rig *r, uint32_t chain, uint32_t index);
enum kvt_status rig_put_bytes(struct rig *r, uint32_t chain, uint32_t index, uint64_t bytes);
/* The first n chunks of a chain; all must succeed. */
void rig_put_chain(struct rig *r, uint32_t chain, uint32_t n);
void keys_of(uint32_t chain, uint32_t n, struct kvt_key *out);

/* Every byte of a lease's chunks is what it has to be. */
void check_lease(const struct kvt_lease *lease, const struct kvt_key *keys, size_t n);
/* Gets the first n chunks and checks them; returns how many there were. */
size_t rig_get(struct rig *r, uint32_t chain, uint32_t n, uint64_t timeout_ns);
/* Makes L1 forget a chain; tiers below keep it. */
void rig_push_out(struct rig *r);
size_t rig_lookup(struct rig *r, uint32_t chain, uint32_t n, uint8_t *tiers);
struct kvt_stats rig_stats(struct rig *r);

#endif
