/*
 * tier.h - the contract of a tier below L1: local files, Redis, a node's storage daemon.
 *
 * A tier stores whole chunks under their keys and gives them back checked, or says that it cannot.
 * It works by requests: the caller fills one, submits it, and gets it back through its `done`.
 * A tier has one thread of its own (or none: KVT_THREADS_CALLER) that calls step() in a loop;
 * done() is called from inside step(). Between submit and done the request and the memory that its
 * segments name belong to the tier, also after its deadline has passed: a deadline makes the caller
 * stop waiting, never the buffer free.
 *
 * A local tier knows what it holds. A remote one (`unsure` is not NULL) shares its chunks with other
 * machines and knows only what it has seen lately: match and known answer from that memory, and a
 * PROBE asks, in one round trip for a whole chain, and remembers the answer for a short time. What
 * known promises may be gone when it is read; that is a miss like any other.
 *
 * One tier = one file here (or a folder) and one line in tiers.def.
 */
#ifndef KVT_TIER_H
#define KVT_TIER_H

#include <stdatomic.h>

#include "chunk/checksum.h"
#include "chunk/note.h"
#include "chunk/slots.h"
#include "chunk/tenants.h"

struct kvt_tier;

enum kvt_tier_verb {
	KVT_TIER_READ,
	KVT_TIER_WRITE,
	KVT_TIER_ERASE,
	KVT_TIER_FLUSH,
	KVT_TIER_PROBE, /* remote tiers only */
	/* Remote tiers with `has_table` only. KVT_ENOTSUP: the server answers, but not this. */
	KVT_TIER_TABLE,
};

#define KVT_TIER_NEVER INT64_MAX

/* What to do. Filled by the caller; `status` by the tier. */
struct kvt_tier_request {
	enum kvt_tier_verb verb;
	/* enum kvt_status, set before done. WRITE: KVT_ECORRUPT if the bytes do not have `checksum` any more. */
	uint32_t status;
	const struct kvt_key *keys; /* READ, WRITE: one; ERASE, PROBE: key_count */
	size_t key_count;
	/* READ: room for the chunk; WRITE: its bytes. Borrowed until done. */
	const struct kvt_segment *segments;
	uint32_t segment_count;
	uint64_t bytes; /* READ: what the caller expects, else KVT_MISS; WRITE: length */
	/* PROBE: result, how many keys from the first on are there; KVT_OK also for none of them. */
	size_t found;
	struct kvt_table_ask *table; /* TABLE: the question and its answer; borrowed until done */
	struct kvt_checksum checksum; /* WRITE: given; READ: result, already verified */
	/* WRITE: those of the chunk's pieces, piece_bytes of the tier each, of the same reading of memory
	 * as `checksum`; borrowed until done. NULL: not known. */
	const struct kvt_checksum *pieces;
	const struct kvt_item
		*item; /* WRITE: parent, tenant, ttl, blocks; borrowed until done */
	/* WRITE: only where the chunk's parent, if it has one, is here or being written; else
	 * KVT_MISS. A remote tier cannot know that, and stores it. */
	bool chained;
	bool announce; /* WRITE: the chunk's record must be durable before done (event follows) */
	int64_t wanted_ns; /* WRITE: when it was put */
	int64_t begun_ns;
	/* When its caller stops waiting; KVT_TIER_NEVER: never. A remote tier ends the request by
	 * then or a moment later (a read: KVT_MISS), so that its buffers come back. */
	int64_t deadline_ns;
	void (*done)(struct kvt_tier_request *request);
	void *user;
	struct kvt_tier_request *next; /* its present owner's */
	/* READ: result, the engine's names as put gave them or NULL; borrowed during done. */
	const struct kvt_blocks *names;
};

/* What a tier knows of a chunk without I/O. */
struct kvt_tier_known {
	uint64_t bytes;
	struct kvt_checksum checksum; /* zero: not kept in memory */
	uint32_t tokens;
	uint32_t extra; /* reserved */
	struct kvt_tenant tenant;
	bool has_parent;
	struct kvt_key parent;
	uint64_t
		ttl_ns; /* as put gave it, so that a copy in L1 lives no longer; 0: the configuration's */
};

/* stored: an entry came whose request asked for it, and its record is durable; or it was found when
 * the tier was opened. removed: one of these went (evicted, expired, erased, failed its check). For
 * events. Called on the tier's thread; holds none of the caller's locks. names: as put gave them
 * (removed: the hashes alone); borrowed during the call. has_room: does the queue of events keep one more
 * `stored` of a found chunk until its readers come? NULL: always. */
struct kvt_tier_watch {
	void (*stored)(void *self, uint32_t tier, const struct kvt_key *key,
		const struct kvt_blocks *names);
	void (*removed)(void *self, uint32_t tier, const struct kvt_key *key,
		const struct kvt_blocks *names);
	bool (*has_room)(void *self);
	void *self;
};

struct kvt_tier_options {
	const struct kvt_config *config;             /* borrowed during create */
	const struct kvt_surroundings *surroundings; /* borrowed until destroy */
	struct kvt_tier_watch watch;
	void *arena; /* where segments lie, for registered buffers */
	uint64_t arena_bytes;
	bool again; /* create was refused before: it is not to wait for the lock */
};

struct kvt_tier_ops {
	const char *name;
	uint32_t id; /* enum kvt_tier_id; several tiers may share one, a cache has one of each */
	/* Remote tiers: it keeps a table of generations, and what is erased by tenant, or all, is erased by that; then
	 * erase_tenant and erase_all are NULL. */
	bool has_table;

	/* KVT_MISS: not configured. KVT_EFORMAT, KVT_ELOCKED, KVT_EIO: not usable; `why` has room for
	 * KVT_REASON_BYTES. */
	enum kvt_status (*create)(
		const struct kvt_tier_options *options, char *why, struct kvt_tier **out);

	/* --- from any thread, never waits --- */
	/* How many keys from the first on are there. */
	size_t (*match)(struct kvt_tier *t, const struct kvt_key *keys, size_t n);
	enum kvt_status (*known)(
		struct kvt_tier *t, const struct kvt_key *key, struct kvt_tier_known *out);
	/* Each comes back through done, exactly once, also after stop (KVT_ECANCELED). */
	void (*submit)(struct kvt_tier *t, struct kvt_tier_request *request);
	/* Remote tiers: may a PROBE find this key, of which known says KVT_MISS? False for what was
	 * asked for a moment ago and was not there. NULL: a local tier. */
	bool (*unsure)(struct kvt_tier *t, const struct kvt_key *key);
	size_t (*pin)(struct kvt_tier *t, const struct kvt_key *keys, size_t n, bool pin);
	/* Unreadable when this returns; a FLUSH afterwards makes it durable. *erased counts. */
	enum kvt_status (*erase_tenant)(
		struct kvt_tier *t, const struct kvt_tenant *tenant, size_t *erased);
	enum kvt_status (*erase_all)(struct kvt_tier *t, size_t *erased);
	/* What tenants of these slots have here is not asked for by its name any more: its room is free at once, and a
	 * remote tier forgets what it knows of them. Returns how many chunks went. NULL: nothing to do. */
	size_t (*drop_slots)(struct kvt_tier *t, const struct kvt_slot_set *slots);
	/* Chunks of a tenant, or (NULL) all, and their payload. NULL: a tier that cannot count them,
	 * since others store there, too. */
	void (*tally)(struct kvt_tier *t, const struct kvt_tenant *tenant, uint64_t *chunks,
		uint64_t *bytes);
	/* Which tenants have how much, as kvt_index_tenants. NULL: a tier that cannot count it. */
	void (*tenants)(struct kvt_tier *t, size_t most, struct kvt_tenant_list *out);
	/* As kvt_limit_tenant, of what is occupied here. NULL: a tier without such limits. */
	enum kvt_status (*limit_tenant)(
		struct kvt_tier *t, const struct kvt_tenant *tenant, uint64_t bytes);
	/* Chunks that left for the limit of their tenant, and chunks that it kept out. NULL: not counted. */
	void (*limited)(struct kvt_tier *t, uint64_t *evictions, uint64_t *refusals);
	void (*stats)(struct kvt_tier *t, struct kvt_tier_stats *out); /* adds what it knows */
	void (*wake)(struct kvt_tier *t);

	/* --- from the tier's thread --- */
	/* Does what is due, waiting up to wait_ns for something; returns what was done, 0: nothing.
	 * *next_ns: when it wants to be called again at the latest. */
	size_t (*step)(struct kvt_tier *t, int64_t wait_ns, int64_t *next_ns);

	/* Its store was taken away, and it has let go of it: requests end without it, reads and
	 * writes with KVT_MISS, flushes with KVT_ECANCELED. Another tier is to be made in its place.
	 * NULL: never. */
	bool (*lost)(struct kvt_tier *t);

	/* All requests have come back. Syncs and ends. NULL is allowed. */
	void (*destroy)(struct kvt_tier *t);
};

struct kvt_tier {
	const struct kvt_tier_ops *ops;
	struct kvt_tier *retired; /* the core's: the one whose place it took; 0 from create */
	uint64_t piece_bytes; /* it can use checksums of such pieces with a WRITE; 0: it cannot. Constant */
};

/* `pin` of a tier whose server decides what is evicted. */
static inline size_t kvt_tier_pin_nothing(
	struct kvt_tier *t, const struct kvt_key *keys, size_t n, bool pin)
{
	(void)t;
	(void)keys;
	(void)n;
	(void)pin;
	return 0;
}

#endif
