/*
 * registry.h - the LMCache instances, their contents, and their workers.
 *
 *	instance (lmcache_instance_id) -- belongs to --> worker of the fleet, or to none yet
 *	  rank (worker_id)             -- is --> a source of the index
 *	    place (location)           -- is --> a tier of the index
 *	      keys, the next sequence number
 *
 * A pure state machine: messages and time go in, answers and changes of the exact index come out.
 * No socket, no clock, no thread.
 *
 * A rank is *whole* when all its reports were heard: from its registration or its first sequence
 * number on, or by a full sync. A gap in the numbers ends that, and the location's contents are
 * forgotten, since a lost eviction would predict a wrong hit. Contents of a rank that is not whole
 * stay in the index, since they are correct, but the worker's coverage is BLIND: they may be
 * incomplete.
 *
 * A rank that fell silent while others of its instance live is kept without contents: a chunk
 * counts only if all ranks hold it, so that the instance holds nothing until the rank is back. An
 * instance without a living rank is forgotten.
 *
 * Messages are not authenticated. They create instances here, within bounds, and never workers.
 *
 * Threads: belongs to the feed's.
 */
#ifndef KVW_LMCACHE_REGISTRY_H
#define KVW_LMCACHE_REGISTRY_H

#include "routing/kvindex.h"
#include "kvway/exact.h"
#include "kvway/keep.h"
#include "feeds/lmcache/keyset.h"
#include "feeds/lmcache/lmcache_stats.h"
#include "wire/lmcache_wire.h"

#define KVW_LMREG_INSTANCES 2048  /* limit of instances, mapped or not */
#define KVW_LMREG_RANKS     64    /* most ranks of an instance */
#define KVW_LMREG_PLACES    8     /* locations of a rank */
#define KVW_LMREG_BATCHES   65536 /* most batches of a full sync */
#define KVW_LMREG_MISSING   4096  /* limit of batches that one answer requests again */
#define KVW_LMREG_EVICTED   65536 /* limit of evictions remembered during a full sync */
/* limit of admitted keys remembered with their time, for each instance */
#define KVW_LMREG_RECENT    1024
#define KVW_LMREG_NONE      UINT32_MAX
#define KVW_LMREG_REPLY_MAX (32u << 10) /* size of the largest answer */

/* least time between two full syncs, since they freeze stores */
#define KVW_LMREG_SYNC_AGAIN_NS   (INT64_C(60) * 1000000000)
#define KVW_LMREG_SYNC_SILENCE_NS (INT64_C(60) * 1000000000)
/* When a handed-over instance was not heard for this long, a sync is requested. */
#define KVW_LMREG_PROVE_NS        (INT64_C(120) * 1000000000)

struct kvw_kvspaces; /* feeds/kvspace.h */

/* The contents of one rank in one location. */
struct kvw_lmreg_place {
	char *name; /* owned */
	enum kvw_tier tier;
	struct kvw_keyset keys;
	bool expects;  /* `next` is known */
	bool heard;    /* a report named it */
	/* handed over by the former process, and not confirmed by a sequence number since */
	bool unproved;
	uint64_t next; /* sequence number */
};

/* The last full sync of a rank. */
struct kvw_lmreg_sync {
	char *id; /* the sync's id, owned; NULL: there was none */
	bool active;
	uint32_t place; /* in places */
	uint32_t batch_count, received;
	uint64_t *seen;            /* bitmap of the batches that came, owned */
	/* keys evicted during the sync, which older batches must not add again */
	struct kvw_keyset evicted;
	bool dirty; /* a report was lost meanwhile, so that the sync must be repeated */
	int64_t heard_ns;
};

struct kvw_lmreg_rank {
	uint32_t id;     /* worker_id */
	uint32_t source; /* its source in the index; NONE: there are more ranks than sources */
	char *ip, *p2p;  /* owned; NULL: not given */
	uint16_t port;
	bool announced; /* it has registered, perhaps by a heartbeat */
	bool beats;     /* it has sent a heartbeat */
	bool answers;   /* ... on a socket with answers, by which a full sync can be requested */
	bool whole;
	bool gone;
	int64_t registered_ns, heard_ns, beat_ns;
	int64_t asked_ns; /* when a full sync was last requested; 0: never */
	/* When it was handed over by the former process; 0: it was not, or a sync was requested
	 * since. */
	int64_t recalled_ns;
	bool recalled;       /* its records are being read; afterwards `whole` becomes was_whole */
	bool was_whole;
	const char *want; /* why a full sync is needed, static text; NULL: it is not */
	struct kvw_lmreg_place places[KVW_LMREG_PLACES];
	uint32_t place_count;
	struct kvw_lmreg_sync sync;
};

enum kvw_lmreg_how {
	KVW_LMREG_UNMAPPED,
	KVW_LMREG_BY_CONFIG,
	KVW_LMREG_BY_ADDRESS,
	KVW_LMREG_LEARNED
};

struct kvw_lmreg_recent {
	uint64_t key;
	int64_t ns;
};

struct kvw_lmreg_instance {
	char *id; /* owned */
	uint64_t hash;
	uint32_t worker; /* id in the fleet, or NONE */
	enum kvw_lmreg_how how;
	uint32_t space;               /* space in the index */
	struct kvw_lmreg_rank *ranks; /* owned */
	uint32_t rank_count;
	enum kvw_coverage coverage; /* the coverage that the strategy was given */
	/* the reason that was reported with it; static text, NULL: not reported yet */
	const char *wrong;
	bool recalled;        /* its records of the former process are being read */
	int64_t heard_ns;
	uint64_t gaps, restarts; /* gaps and restarts of its sequences */

	/* ring of keys that the first rank admitted lately, owned; NULL: none yet */
	struct kvw_lmreg_recent *recent;
	uint64_t recent_count;           /* ever */

	/* results of the diagnosis: are routed prompts found here? */
	bool doubted; /* its keys are not understood, so that coverage is at most BLIND */
	bool warned;
	uint32_t matched, missed; /* prompts found and missed since its space last changed */
	uint32_t hint_worker, hint_count;
};

/* Properties of a worker that matter to the registry. Texts are borrowed. */
struct kvw_lmreg_worker {
	const char *instance; /* its workers[].lmcache_instance, or "" */
	const char *ip;       /* numeric address of its URL */
};

/* Reports a worker's coverage. sources: number of reporting ranks; wrong: why the coverage is not
 * FULL, static text, "" if it is. */
typedef void kvw_lmreg_coverage_fn(void *ctx, uint32_t worker, enum kvw_coverage coverage,
	uint32_t sources, const char *wrong);

/* All borrowed until destroy. */
struct kvw_lmreg_options {
	/* where recipes are found and added for a handover; NULL: there is none */
	struct kvw_kvspaces *spaces;
	/* Returns the URL by which the next process finds a worker; NULL: it cannot. */
	const char *(*worker_url)(void *ctx, uint32_t worker);
	struct kvw_kvindex *index;
	kvw_lmreg_coverage_fn *coverage;
	void *ctx;
	const struct kvw_lmreg_worker *workers;
	size_t worker_count;
	uint32_t space;     /* space of all instances until diagnosis finds another */
	/* Longest allowed time between two heartbeats; any thread may change it in the registry's
	 * copy. */
	_Atomic int64_t timeout_ns;
	uint64_t key_limit; /* limit of keys in all locations together */
	uint64_t seed;
};

/* State of reading handed-over records. */
struct kvw_lmreg_recalled {
	/* instance of the last record; NULL: none, or it was forgotten */
	struct kvw_lmreg_instance *instance;
	uint32_t rank, place; /* owner of the keys that follow; NONE: they are skipped */
	uint64_t refused;                    /* invalid records */
};

struct kvw_lmreg {
	struct kvw_lmreg_options options;
	struct kvw_lmreg_recalled recalled;
	struct kvw_lmreg_instance **instances; /* owned, [count] */
	size_t count, room;
	/* instance of each worker, owned, [worker_count]; NULL: none */
	struct kvw_lmreg_instance **by_worker;
	struct kvw_lmcache_stats stats;
	int64_t ticked_ns;
	uint32_t *missing; /* owned, [KVW_LMREG_MISSING] */
};

/* A message and where it came from. Borrowed during the call. */
struct kvw_lmreg_request {
	const struct kvw_lmc_message *message;
	bool answered;                  /* it came on a socket with answers */
	struct kvw_slice heartbeat_url; /* sent in the answer to a registration; len 0: none */
	int64_t now_ns;
};

enum kvw_err kvw_lmreg_create(
	const struct kvw_lmreg_options *options, struct kvw_lmreg **out) KVW_MUST_CHECK;
void kvw_lmreg_destroy(struct kvw_lmreg *reg); /* NULL is allowed */

/* Handles a message. If an answer is expected, writes it to `reply` (room for KVW_LMREG_REPLY_MAX);
 * the answer may be an error. */
void kvw_lmreg_message(
	struct kvw_lmreg *reg, const struct kvw_lmreg_request *request, struct kvw_mp_out *reply);

/* Handles silent ranks, failed syncs, and instances that can be mapped now. Called about every
 * second. */
void kvw_lmreg_tick(struct kvw_lmreg *reg, int64_t now_ns);

/* Called for a worker that began to refuse connections after up_ns: forgets its ranks that were not
 * heard since. */
void kvw_lmreg_worker_down(struct kvw_lmreg *reg, uint32_t worker, int64_t up_ns);

/* Called after a purge of the worker from the index: writes the worker's contents in the registry
 * into the index again. */
void kvw_lmreg_worker_purged(struct kvw_lmreg *reg, uint32_t worker);

/* --- the handover to another process (registry_keep.c) --- */

/* Writes the whole registry to out. Errors are those of out->put. */
enum kvw_err kvw_lmreg_keep(
	const struct kvw_lmreg *reg, const struct kvw_keep_out *out) KVW_MUST_CHECK;

/* Reads one record of kvw_lmreg_keep; records of other modules are skipped. Until
 * kvw_lmreg_recall_end no message may come and no instance counts as whole. The calls may be spread
 * over time. */
void kvw_lmreg_recall(struct kvw_lmreg *reg, enum kvw_keep_kind kind, const uint8_t *record,
	size_t len, int64_t now_ns);
void kvw_lmreg_recall_end(struct kvw_lmreg *reg, bool all_came, int64_t now_ns);

/* --- read-only functions (registry_find.c) --- */

struct kvw_lmreg_instance *kvw_lmreg_find(const struct kvw_lmreg *reg, struct kvw_slice id);

/* Returns whether the instance's first rank holds the key in any location. */
bool kvw_lmreg_has(const struct kvw_lmreg_instance *instance, uint64_t key);

/* Returns whether the instance admitted the key at ns or later, by its recent admits. */
bool kvw_lmreg_admitted_since(const struct kvw_lmreg_instance *instance, uint64_t key, int64_t ns);

/* Returns whether the instance admitted any key at ns or later. */
bool kvw_lmreg_active_since(const struct kvw_lmreg_instance *instance, int64_t ns);

uint64_t kvw_lmreg_key_count(const struct kvw_lmreg_rank *rank);

/* Answers LMCache's P2P lookup with another instance, the one that holds the longest beginning.
 * False: there is none. */
bool kvw_lmreg_p2p(const struct kvw_lmreg *reg, const struct kvw_lmc_message *message,
	struct kvw_lmc_holder *holder);

/* Computes the gauges of reg->stats. */
void kvw_lmreg_count(struct kvw_lmreg *reg);

/* --- instances' workers (registry_map.c) --- */

/* Looks again for the workers of instances that have none, after a worker has joined or its entry
 * in options.workers has changed. */
void kvw_lmreg_worker_came(struct kvw_lmreg *reg);
/* Unmaps the instance of a worker that has left. */
void kvw_lmreg_worker_left(struct kvw_lmreg *reg, uint32_t worker);

/* Handles a worker with new addresses: only an instance that is configured stays mapped. The
 * worker's entry in options.workers has the new address already; the caller calls
 * kvw_lmreg_worker_came afterwards. */
void kvw_lmreg_worker_moved(struct kvw_lmreg *reg, uint32_t worker);

/* Maps the instance to a worker by configuration or address, if one matches. */
void kvw_lmreg_try_map(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance);

/* Maps the instance to the worker. */
void kvw_lmreg_map(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance, uint32_t worker,
	enum kvw_lmreg_how how);
void kvw_lmreg_unmap(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance);

/* Changes the space of the instance's keys. */
void kvw_lmreg_set_space(
	struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance, uint32_t space);

/* Reports a changed coverage of the instance to the strategy. */
void kvw_lmreg_update_coverage(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance);

/* --- private to the registry's files --- */

/* Sets in the index that a chunk counts only if the sources of all ranks hold it
 * (registry_map.c). */
void kvw_lmreg_require(struct kvw_lmreg *reg, const struct kvw_lmreg_instance *instance);

/* Adds an instance (registry.c). NULL: no room. */
struct kvw_lmreg_instance *kvw_lmreg_add_instance(struct kvw_lmreg *reg, struct kvw_slice id);
struct kvw_lmreg_rank *kvw_lmreg_add_rank(
	struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance, uint32_t id);
void kvw_lmreg_forget_instance(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance);

/* Forgets the contents of a place, or of all places of a rank (registry_keys.c). */
void kvw_lmreg_clear_place(struct kvw_lmreg *reg, const struct kvw_lmreg_instance *instance,
	struct kvw_lmreg_rank *rank, struct kvw_lmreg_place *place);
void kvw_lmreg_clear_rank(struct kvw_lmreg *reg, const struct kvw_lmreg_instance *instance,
	struct kvw_lmreg_rank *rank);

/* Writes all contents of the rank into the index. */
void kvw_lmreg_index_rank(struct kvw_lmreg *reg, const struct kvw_lmreg_instance *instance,
	const struct kvw_lmreg_rank *rank);

/* Applies an admitted or evicted key to a place, as to a set: a repeated report does not count
 * twice. */
void kvw_lmreg_admit(struct kvw_lmreg *reg, const struct kvw_lmreg_instance *instance,
	const struct kvw_lmreg_rank *rank, struct kvw_lmreg_place *place, uint64_t key);
/* Applies many admitted keys; may overwrite `keys`. */
void kvw_lmreg_admit_all(struct kvw_lmreg *reg, const struct kvw_lmreg_instance *instance,
	const struct kvw_lmreg_rank *rank, struct kvw_lmreg_place *place, uint64_t *keys,
	size_t count);
void kvw_lmreg_evict(struct kvw_lmreg *reg, const struct kvw_lmreg_instance *instance,
	const struct kvw_lmreg_rank *rank, struct kvw_lmreg_place *place, uint64_t key);

/* Finds or makes the place of that name; NULL: no room. */
struct kvw_lmreg_place *kvw_lmreg_place(
	struct kvw_lmreg *reg, struct kvw_lmreg_rank *rank, struct kvw_slice location);

void kvw_lmreg_operations(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance,
	struct kvw_lmreg_rank *rank, const struct kvw_lmreg_request *request);

/* Functions for full syncs (registry_sync.c). */
void kvw_lmreg_sync_start(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance,
	struct kvw_lmreg_rank *rank, const struct kvw_lmreg_request *request,
	struct kvw_mp_out *reply);
void kvw_lmreg_sync_batch(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance,
	struct kvw_lmreg_rank *rank, const struct kvw_lmreg_request *request);
void kvw_lmreg_sync_end(struct kvw_lmreg *reg, struct kvw_lmreg_rank *rank,
	const struct kvw_lmreg_request *request);
void kvw_lmreg_sync_status(struct kvw_lmreg *reg, const struct kvw_lmreg_rank *rank,
	const struct kvw_lmreg_request *request, struct kvw_mp_out *reply);
/* Notes that the rank needs a full sync, and why. */
void kvw_lmreg_want_sync(struct kvw_lmreg_rank *rank, const char *why);
/* Returns the reason to request a full sync in the answer to this heartbeat; NULL: none is
 * requested now. */
const char *kvw_lmreg_sync_reason(
	struct kvw_lmreg *reg, struct kvw_lmreg_rank *rank, int64_t now_ns);
void kvw_lmreg_sync_drop(struct kvw_lmreg_rank *rank); /* ends it */
void kvw_lmreg_sync_tick(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance,
	struct kvw_lmreg_rank *rank, int64_t now_ns);

#endif
