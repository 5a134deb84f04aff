/*
 * tier.h - the contract of a tier below L1: local files, Redis, a node's storage daemon.
 *
 * A tier stores whole chunks under their keys and returns them verified, or reports that it cannot.
 * It works by requests: the caller fills a request, submits it, and gets it back through the
 * request's `done`. A tier has one thread of its own (or none: KVT_THREADS_CALLER) that calls
 * step() in a loop; done() is called from inside step(). Between submit and done the request and
 * the memory that its segments name belong to the tier, also after its deadline has passed: at the
 * deadline the caller stops waiting, but the buffer stays in use.
 *
 * A local tier knows all its chunks. A remote tier (`unsure` is not NULL) shares its chunks with
 * other machines and knows only those that it has seen lately: match and known answer from that
 * memory, and a PROBE asks the server, in one round trip for a whole chain, and remembers the
 * answer for a short time. A chunk that known reports may be gone when it is read; that is a miss
 * like any other.
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
	/* only for remote tiers with `has_table`. KVT_ENOTSUP: the server answers, but does not
	 * know the request */
	KVT_TIER_TABLE,
};

#define KVT_TIER_NEVER INT64_MAX

/* A request to a tier. The caller fills all members except `status` and the results. */
struct kvt_tier_request {
	enum kvt_tier_verb verb;
	/* enum kvt_status, set before done. WRITE: KVT_ECORRUPT if the bytes do not match
	 * `checksum` any more. */
	uint32_t status;
	const struct kvt_key *keys; /* READ, WRITE: one key; ERASE, PROBE: key_count keys */
	size_t key_count;
	/* READ: room for the chunk; WRITE: its bytes. Borrowed until done. */
	const struct kvt_segment *segments;
	uint32_t segment_count;
	uint64_t bytes; /* READ: expected length, or the result is KVT_MISS; WRITE: length */
	/* PROBE: result, the number of keys, from the first on, that the tier has; also KVT_OK if
	 * that is 0. */
	size_t found;
	struct kvt_table_ask *table; /* TABLE: the question and its answer; borrowed until done */
	/* WRITE: given; READ: result, already verified against the bytes */
	struct kvt_checksum checksum;
	/* WRITE: checksums of the chunk's pieces, of the tier's piece_bytes each, computed in the
	 * same pass as `checksum`; borrowed until done. NULL: not known. */
	const struct kvt_checksum *pieces;
	const struct kvt_item
		*item; /* WRITE: has parent, tenant, ttl and blocks; borrowed until done */
	/* WRITE: if the chunk has a parent, store the chunk only if the tier has the parent or is
	 * writing it, else KVT_MISS. A remote tier cannot know that, and stores the chunk. */
	bool chained;
	/* WRITE: done only when the chunk's record is durable, since an event will announce the
	 * chunk */
	bool announce;
	int64_t wanted_ns; /* WRITE: when the chunk was put */
	int64_t begun_ns;
	/* When the caller stops waiting; KVT_TIER_NEVER: never. A remote tier ends the request by
	 * then or a moment later (a read with KVT_MISS), so that its buffers are released. */
	int64_t deadline_ns;
	void (*done)(struct kvt_tier_request *request);
	void *user;
	struct kvt_tier_request *next; /* its present owner's */
	/* READ: result, the engine's names as the put gave them, or NULL; borrowed during done. */
	const struct kvt_blocks *names;
};

/* A tier's own record of a chunk, readable without I/O. */
struct kvt_tier_known {
	uint64_t bytes;
	struct kvt_checksum checksum; /* zero: the tier does not keep it in memory */
	uint32_t tokens;
	uint32_t extra; /* reserved */
	struct kvt_tenant tenant;
	bool has_parent;
	struct kvt_key parent;
	uint64_t
		/* time to live as the put gave it, so that a copy in L1 lives no longer; 0: the
		 * configured time */
		ttl_ns;
};

/* Callbacks for events. stored: a chunk was written whose request had `announce`, and its record is
 * durable; or it was found when the tier was opened. removed: such a chunk left (evicted, expired,
 * erased, failed its check). Called on the tier's thread, which holds none of the caller's locks.
 * names: as the put gave them (removed: only the hashes); borrowed during the call. has_room:
 * returns whether the queue of events can take one more `stored` of a found chunk before its
 * readers come; NULL: always. */
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
	void *arena; /* memory in which all segments lie, for registered buffers */
	uint64_t arena_bytes;
	bool again; /* create was refused before: this time it does not wait for the lock */
};

struct kvt_tier_ops {
	const char *name;
	/* enum kvt_tier_id; several kinds of tiers may share an id, but a cache has one tier of
	 * each id */
	uint32_t id;
	/* Remote tiers: the server keeps a table of generations, by which a tenant, or everything,
	 * is erased; then erase_tenant and erase_all are NULL. */
	bool has_table;

	/* Makes a tier. KVT_MISS: not configured. KVT_EFORMAT, KVT_ELOCKED, KVT_EIO: not usable;
	 * `why` has room for KVT_REASON_BYTES. */
	enum kvt_status (*create)(
		const struct kvt_tier_options *options, char *why, struct kvt_tier **out);

	/* --- from any thread; these never wait --- */
	/* Returns how many keys, from the first on, the tier is known to have. */
	size_t (*match)(struct kvt_tier *t, const struct kvt_key *keys, size_t n);
	enum kvt_status (*known)(
		struct kvt_tier *t, const struct kvt_key *key, struct kvt_tier_known *out);
	/* Submits a request. It comes back through done exactly once, also after stop
	 * (KVT_ECANCELED). */
	void (*submit)(struct kvt_tier *t, struct kvt_tier_request *request);
	/* Remote tiers: returns whether a PROBE might find a key of which known says KVT_MISS.
	 * False for a key that a PROBE just failed to find. NULL: a local tier. */
	bool (*unsure)(struct kvt_tier *t, const struct kvt_key *key);
	size_t (*pin)(struct kvt_tier *t, const struct kvt_key *keys, size_t n, bool pin);
	/* Erases a tenant's chunks, or all: unreadable on return; a FLUSH afterwards makes that
	 * durable. *erased counts the chunks. */
	enum kvt_status (*erase_tenant)(
		struct kvt_tier *t, const struct kvt_tenant *tenant, size_t *erased);
	enum kvt_status (*erase_all)(struct kvt_tier *t, size_t *erased);
	/* Frees the chunks of tenants in these slots, whose names no request will use again; a
	 * remote tier forgets what it knows of them. Returns the number of chunks. NULL: the tier
	 * has nothing to do. */
	size_t (*drop_slots)(struct kvt_tier *t, const struct kvt_slot_set *slots);
	/* Counts chunks of a tenant, or (NULL) all, and their bytes. NULL: the tier cannot count
	 * them, since other processes store there, too. */
	void (*tally)(struct kvt_tier *t, const struct kvt_tenant *tenant, uint64_t *chunks,
		uint64_t *bytes);
	/* Lists tenants and what each holds, like kvt_index_tenants. NULL: the tier cannot count
	 * that. */
	void (*tenants)(struct kvt_tier *t, size_t most, struct kvt_tenant_list *out);
	/* Limits the bytes that a tenant occupies in this tier, like kvt_limit_tenant. NULL: the
	 * tier has no such limits. */
	enum kvt_status (*limit_tenant)(
		struct kvt_tier *t, const struct kvt_tenant *tenant, uint64_t bytes);
	/* Counts chunks evicted because of their tenant's limit, and chunks refused because of it.
	 * NULL: not counted. */
	void (*limited)(struct kvt_tier *t, uint64_t *evictions, uint64_t *refusals);
	void (*stats)(struct kvt_tier *t, struct kvt_tier_stats *out); /* adds the tier's numbers */
	void (*wake)(struct kvt_tier *t);

	/* --- from the tier's thread --- */
	/* Does the work that is due, waiting up to wait_ns for some; returns the number of actions.
	 * *next_ns: the latest time of the next call. */
	size_t (*step)(struct kvt_tier *t, int64_t wait_ns, int64_t *next_ns);

	/* Returns whether the tier has lost its store, which was taken away, and has closed it:
	 * requests end without it, reads and writes with KVT_MISS, flushes with KVT_ECANCELED. The
	 * caller then makes another tier in its place. NULL: never. */
	bool (*lost)(struct kvt_tier *t);

	/* Syncs and frees the tier. All requests must have come back. NULL is allowed. */
	void (*destroy)(struct kvt_tier *t);
};

struct kvt_tier {
	const struct kvt_tier_ops *ops;
	/* belongs to the core: the tier that this one replaced; create sets NULL */
	struct kvt_tier *retired;
	/* size of the pieces whose checksums a WRITE can use; 0: none. Constant */
	uint64_t piece_bytes;
};

/* An implementation of `pin` for a tier whose server decides what is evicted. */
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
