/*
 * core.h - one cache: how L1, the tiers below it and the operations fit together.
 *
 *	kvt_get ---- L1 hit ------------------------------------------> lease
 *	   \                                                             ^
 *	    wants --> loads --READ--> tier --done--> publish in L1 ------+
 *	kvt_find ---> probes --PROBE--> shared tier
 *	kvt_put --> L1 --> stores --WRITE--> tier
 *	kvt_erase --> L1, loads, stores, tombs; ERASE and FLUSH --> tier
 *
 * Threads. Hits in L1, lookups that find all in L1 and puts take no lock of this file but leases'
 * short one. All other state, for chunks that move between tiers, is guarded by `lock`. A thread
 * that holds `lock` may call functions of L1 and of tiers, since no callback of theirs takes
 * `lock`: the watch writes to the event log, and a tier's done() only puts the request on
 * `finished`, which the thread that steps the tier empties afterwards (kvt_moves_step). So the
 * order of locks is: step_lock, `lock`, then the locks of the rooms below.
 */
#ifndef KVT_CORE_H
#define KVT_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "admin/admin.h"
#include "chunk/slots.h"
#include "lmcache/controller.h"
#include "events/event_log.h"
#include "core/keyed.h"
#include "core/l1.h"
#include "core/latency.h"
#include "core/lease.h"
#include "core/meter.h"
#include "core/trace.h"
#include "memory/neighbours.h"
#include "tiers/tier.h"
#include "kvtier/kvtier_fragments.h"

#define KVT_NEVER INT64_MAX

struct kvt_lower;

/* A request to a tier, under way. Guarded by `lock`, except `next_finished`. */
struct kvt_job {
	struct kvt_tier_request request; /* its `user` member points to this job */
	/* Called once, when the tier has finished the request, so that the part of the cache that
	 * submitted the job gets it back; may free the job. */
	void (*done)(struct kvt *k, struct kvt_job *job);
	void *owner; /* the barrier to which it belongs */
	struct kvt_lower *lower;
	struct kvt_job *next_finished; /* link in the stack of finished jobs */
	struct kvt_job *next, *prev; /* links among the jobs under way in this tier, oldest first */
	int64_t wanted_ns; /* READ, WRITE: when the chunk joined the queue for this tier */
	int64_t begun_ns;
	/* number of the get that needs this request, as from kvt_trace_number; 0: none */
	uint32_t get;
	uint32_t times_late; /* how often this request was counted as stalled */
	bool probe;          /* this request tests whether a tier that failed works again */
	/* the chunk had no name yet, so the request failed without reaching the tier */
	bool unasked;
	/* The names under which the tier knows the chunk and its parent (names.h), set on
	 * submission. */
	struct kvt_key name, parent_name;
	struct kvt_key *names; /* names of a request with more than one key; owned */
	struct kvt_item item;
	/* the breaker's round when the request began: results of earlier rounds do not count */
	uint64_t round;
};

/* Decides whether a tier is used: several failures in a row open the breaker, a successful probe
 * closes it. Guarded by `lock`; the state is also read without `lock`. */
struct kvt_breaker {
	_Atomic uint32_t state; /* enum kvt_breaker_state */
	uint32_t failures;      /* in a row */
	uint32_t limit;
	uint64_t open_ns, open_max_ns; /* first and longest pause */
	uint64_t pause_ns;             /* the present one, doubling */
	int64_t until_ns;              /* when a probe is due */
	uint64_t round;                /* counts changes of state */
	uint64_t seed;                 /* seed of the random delays */
	_Atomic uint64_t trips;
};

enum kvt_breaker_state {
	KVT_BREAKER_CLOSED,
	KVT_BREAKER_OPEN,
	KVT_BREAKER_HALF,
	KVT_BREAKER_PROBING
};

/* Stores that wait for one tier, oldest first. */
struct kvt_store;
struct kvt_store_line {
	struct kvt_store *first, *last;
};

/* A tier below L1. */
struct kvt_refused;
struct kvt_lower {
	struct kvt *k;
	const struct kvt_tier_ops *ops;
	/* NULL: absent, for the `reason`. Written with `lock` held, when the cache is opened or by
	 * the thread that retries a refused store; read without `lock`. Once set it never becomes
	 * NULL again, and a replaced tier is kept until the cache is closed. */
	_Atomic(struct kvt_tier *) tier;
	uint32_t id;    /* enum kvt_tier_id */
	/* enum kvt_tier_state, before what the tier itself reports is added; guarded by `lock` */
	uint32_t state;
	char reason[KVT_REASON_BYTES]; /* under lock */
	/* Both are owned, and written with `lock` held. `refused`: the store could not be opened,
	 * or is lost. `spare`: the store is open; this is the struct to use as `refused` if the
	 * store is lost. */
	struct kvt_refused *refused, *spare;
	struct kvt_breaker breaker;       /* for all but these: */
	/* counts WRITE and FLUSH, which may fail while reads work */
	struct kvt_breaker write_breaker;
	bool given_up; /* the tier was taken out of use, and waits for it are still to be ended */
	struct kvt_meter reads, writes;
	struct kvt_job *oldest, *newest; /* under way */
	size_t under_way;
	struct kvt_store_line line;
	size_t stores_under_way;
	_Atomic(struct kvt_job *) finished;
	_Atomic uint64_t hits, misses, loads, load_bytes, stores, store_bytes, io_errors, corrupt;
	/* how many erases of other processes the tier has reported, by tenant or of all */
	_Atomic uint64_t erased_elsewhere;
	pthread_t thread;
	bool has_thread;
	_Atomic bool stop; /* the tier's thread ends once no request is under way */
};

/* Counters of kvt_fragments_stats. Relaxed atomics, like kvt_counters. */
struct kvt_fragment_counters {
	_Atomic uint64_t stores, stored_chunks, stored_tokens, stored_bytes;
	_Atomic uint64_t loads, hit_tokens, missed_tokens, loaded_bytes, moved_bytes;
	_Atomic uint64_t refused[KVT_FRAGMENT_REFUSALS];
};

void kvt_fragment_counters_read(const struct kvt_fragment_counters *from, struct kvt_fragments_stats *out);

/* Counters of kvt_stats that are the library's own. Relaxed atomics: no reader needs two of them to
 * agree. */
struct kvt_counters {
	_Atomic uint64_t lookups, lookup_chunks, lookup_hits;
	_Atomic uint64_t gets, get_chunks, get_hits, get_timeouts, l1_hits, l1_misses;
	_Atomic uint64_t puts, put_bytes, put_exists, put_full;
	_Atomic uint64_t stores_dropped, prefetches, promotions, joined_loads, not_worth;
	_Atomic uint64_t finds, probes, probe_chunks, probe_hits;
	_Atomic uint64_t lock_refusals;
	_Atomic uint64_t put_blended, put_orphans;
	/* tables of generations that were lost: everything stored became a miss */
	_Atomic uint64_t tables_lost;
	/* questions for the table of generations that a tier refused */
	_Atomic uint64_t tables_refused;
	struct kvt_fragment_counters fragments;
};

static inline void kvt_count(_Atomic uint64_t *counter, uint64_t by)
{
	if (by != 0)
		atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

/* The engine's measured speed of prefill. */
struct kvt_prefill {
	pthread_mutex_t lock;
	double tokens, ns; /* sums that fade over time; guarded by `lock` */
	_Atomic uint64_t tokens_per_second;
};

/* The table of operations: each is begun, runs until it is done or its deadline passes, and is then
 * reported once. */
struct kvt_op;
struct kvt_op_slot;
struct kvt_ops {
	struct kvt_op_slot *slots;
	/* head of the list of free slots; slot_count: none is free */
	uint32_t slot_count, free_slot;
	struct kvt_op *first, *last;           /* running, by deadline */
	struct kvt_op *done_first, *done_last; /* finished operations that wait for kvt_poll */
	int eventfd;
	bool signalled; /* the eventfd is readable */
};

/* Loads: chunks on their way from a lower tier to L1. */
struct kvt_load;
struct kvt_loads {
	struct kvt_keyed_table by_key;
	/* loads that wait for room or for bytes of the limit, oldest first */
	struct kvt_load *first, *last;
	uint64_t limit_bytes, reading_bytes, waiting_bytes;
	size_t waiting, reading;
};

/* Stores: chunks on their way from L1 to lower tiers. */
struct kvt_stores {
	struct kvt_keyed_table by_key;
	/* stores that were written and then erased, where the tier has refused the erase so far */
	struct kvt_store *refused;
	/* charged bytes of stores that wait or are being written, and their limit */
	uint64_t limit_bytes, bytes;
	uint64_t write_bytes;        /* limit of the bytes that are being written at once */
	uint64_t begun;              /* numbers stores */
	size_t count, erased; /* number of all stores; of those to be erased again once written */
};

/* Erased keys that lower tiers may still show, and that no lookup may show. */
struct kvt_tombs {
	struct kvt_keyed_table by_key;
	_Atomic size_t count;
};

/* Erases and drains under way. */
struct kvt_barrier;
struct kvt_barriers {
	struct kvt_barrier *first;
	uint64_t begun; /* numbers barriers */
};

/* A remembered mask: the bits by which a tenant's generation changes a key. */
#define KVT_NAME_MASKS 512
struct kvt_name_mask {
	uint8_t bytes[KVT_SLOT_AT];
	bool set;
	uint32_t slot;
};

/* State of names.c and generations.c: how chunks are called in lower tiers. */
struct kvt_asking;
struct kvt_generations {
	/* the shared tier that has the table of generations; NULL: names are keys. Constant */
	struct kvt_lower *home;
	/* guards the members up to the empty line; no other lock is taken under it */
	pthread_mutex_t lock;
	bool known;             /* the table was read */
	uint8_t id[KVT_TABLE_ID_BYTES];
	/* Number of the last known change of the table. KVT_NUMBER_LOST: the table has lost changes
	 * that were known. */
	uint64_t number;
	uint32_t sum;    /* sum of the numbers in `at` */
	uint64_t *at;    /* generation of each of KVT_SLOTS slots; owned */
	struct kvt_name_mask *masks; /* the last used KVT_NAME_MASKS masks; owned */

	/* until then the known changes are at most l2.seen_time old */
	_Atomic int64_t fresh_until_ns;
	/* the last question failed, and until then no answer is waited for */
	_Atomic int64_t tried_until_ns;
	_Atomic bool refused;           /* the tier could be reached when it failed */
	/* under the core's lock */
	bool told; /* the log has a line about the refusal */
	bool under_way;             /* a question */
	struct kvt_asking *first;   /* questions in line; owned */
	int64_t next_ns;            /* when to ask again */
	struct kvt_slot_set *changed; /* scratch; owned */
};

#define KVT_REFUSED_PUTS 1024

struct kvt {
	/* the settings in force: no 0 stands for a default; its texts are not kept */
	struct kvt_config config;
	struct kvt_surroundings surroundings;
	struct kvt_neighbours neighbours;
	int64_t touched_ns;      /* when it was last measured how much of L1 is in memory */
	char *nvme_path;         /* NULL: none */
	_Atomic uint32_t *alive; /* 1; a forked child reads 0 there */
	_Atomic bool opened;     /* all parts are made, so that the controller may command */
	bool own_clock;          /* the clock is the machine's, so that a wait can sleep by it */
	struct kvt_event_log *events;
	struct kvt_controller *controller; /* NULL: none; set before any tier is made */
	struct kvt_admin *admin; /* NULL: none; set once the handle is open, guarded by `lock` */
	_Atomic bool admin_begun; /* the admin socket was made, which happens at most once */
	struct kvt_tier_watch watch;       /* notifies both */
	struct kvt_l1 *l1;
	struct kvt_lower lower[KVT_TIER_COUNT];
	size_t lower_count;
	/* called when a tier whose store was refused has been opened */
	void (*tier_came)(struct kvt *k);
	struct kvt_leases leases;
	struct kvt_prefill prefill;
	struct kvt_counters counters;
	/* Chunks whose last put was refused, found by a word of their keys (put.c). Relaxed
	 * atomics. */
	_Atomic uint64_t refused_puts[KVT_REFUSED_PUTS];
	struct kvt_latencies latencies;
	struct kvt_trace *trace; /* NULL: nothing is traced */

	pthread_mutex_t step_lock; /* KVT_THREADS_CALLER: lets only one thread step at a time */
	pthread_mutex_t lock;      /* guards all members below, and those above that say so */
	pthread_cond_t changed;    /* an operation is done */
	pthread_cond_t due;        /* signalled when the control thread has work */
	pthread_cond_t ends;       /* signalled when the threads of refused tiers are to end */
	struct kvt_ops ops;
	struct kvt_loads loads;
	struct kvt_stores stores;
	struct kvt_tombs tombs;
	struct kvt_barriers barriers;
	struct kvt_generations generations;
	size_t probes_under_way;
	bool closing;
	bool kicked; /* `due` was signalled */
	pthread_t control;
	bool has_control;
	int64_t tended_ns;   /* used only by the thread that steps the control part */
	/* bytes that may be checked now, used by the same thread; negative: checked too early */
	double scrub_credit;
};

/* Returns KVT_OK if this handle may be used in this process, which is not a forked child. */
static inline enum kvt_status kvt_usable(struct kvt *k)
{
	if (k == NULL)
		return KVT_EINVAL;
	return atomic_load_explicit(k->alive, memory_order_relaxed) == 1 ? KVT_OK : KVT_EFORK;
}

static inline int64_t kvt_clock(struct kvt *k)
{
	return kvt_now(&k->surroundings);
}

static inline void kvt_took(struct kvt *k, enum kvt_latency what, int64_t since_ns)
{
	kvt_latency_add(&k->latencies, what, kvt_clock(k) - since_ns);
}

static inline int64_t kvt_deadline(struct kvt *k, uint64_t timeout_ns)
{
	int64_t now = kvt_clock(k);

	return timeout_ns >= (uint64_t)(KVT_NEVER - now) ? KVT_NEVER : now + (int64_t)timeout_ns;
}

/* Makes the control thread look for work. The caller holds `lock`. */
static inline void kvt_kick(struct kvt *k)
{
	k->kicked = true;
	pthread_cond_signal(&k->due);
}

#endif
