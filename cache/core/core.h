/*
 * core.h - one cache: how L1, the tiers below it and the operations hang together.
 *
 *	kvt_get ---- L1 hit ------------------------------------------> lease
 *	   \                                                             ^
 *	    wants --> loads --READ--> tier --done--> publish in L1 ------+
 *	kvt_find ---> probes --PROBE--> shared tier
 *	kvt_put --> L1 --> stores --WRITE--> tier
 *	kvt_erase --> L1, loads, stores, tombs; ERASE and FLUSH --> tier
 *
 * Threads. Hits in L1, lookups that find all in L1 and puts take no lock of this file but leases'
 * short one. All else, what moves between tiers, is under `lock`. With it held, functions of L1
 * and of tiers may be called, since nothing that these call back takes it: the watch goes to the
 * event log, and a tier's done() only puts the request on `finished`, which the thread that steps
 * the tier empties afterwards (kvt_moves_step). So the order of locks is: step, lock, then those of
 * the rooms below.
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

/* A request under way. Under `lock`, but for `next_finished`. */
struct kvt_job {
	struct kvt_tier_request request; /* request.user is this job */
	/* Of the part that submitted it, which gets it back: called once, when the tier has done
	 * with it; may free the job. */
	void (*done)(struct kvt *k, struct kvt_job *job);
	void *owner; /* of a barrier's */
	struct kvt_lower *lower;
	struct kvt_job *next_finished; /* the stack of finished ones */
	struct kvt_job *next, *prev;   /* under way in this tier, oldest first */
	int64_t wanted_ns; /* READ, WRITE: when it came into line */
	int64_t begun_ns;
	uint32_t get; /* number of the get that it is for, as kvt_trace_number; 0: none */
	uint32_t times_late; /* stalls that were counted against the tier */
	bool probe;          /* decides whether a tier that was left alone is used again */
	bool unasked;        /* it had no name: its status is not the tier's word */
	/* What the request calls its chunk, by names.h, once it is submitted. */
	struct kvt_key name, parent_name;
	struct kvt_key *names; /* of more than one; owned */
	struct kvt_item item;
	uint64_t round; /* the breaker's when it began: results of earlier rounds say nothing */
};

/* Whether a tier is used: a run of failures opens it, a probe that works closes it. Under `lock`;
 * the state is also read without. */
struct kvt_breaker {
	_Atomic uint32_t state; /* enum kvt_breaker_state */
	uint32_t failures;      /* in a row */
	uint32_t limit;
	uint64_t open_ns, open_max_ns; /* first and longest pause */
	uint64_t pause_ns;             /* the present one, doubling */
	int64_t until_ns;              /* when a probe is due */
	uint64_t round;                /* counts changes of state */
	uint64_t seed;                 /* of the jitter */
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
	/* NULL: absent, `reason` says why. Set under lock, by open or by the thread that asks again
	 * for a refused one; read without. It never becomes NULL again, and the one that was there
	 * before is kept until close. */
	_Atomic(struct kvt_tier *) tier;
	uint32_t id;    /* enum kvt_tier_id */
	uint32_t state; /* enum kvt_tier_state without the tier's own word; under lock */
	char reason[KVT_REASON_BYTES]; /* under lock */
	/* Owned; set under lock. `refused`: the store could not be opened, or is lost. `spare`: it is
	 * open, and may be lost. */
	struct kvt_refused *refused, *spare;
	struct kvt_breaker breaker;       /* for all but these: */
	struct kvt_breaker write_breaker; /* WRITE and FLUSH may fail, and reads go on */
	bool given_up; /* left alone since, and the waits for it are still to be ended */
	struct kvt_meter reads, writes;
	struct kvt_job *oldest, *newest; /* under way */
	size_t under_way;
	struct kvt_store_line line;
	size_t stores_under_way;
	_Atomic(struct kvt_job *) finished;
	_Atomic uint64_t hits, misses, loads, load_bytes, stores, store_bytes, io_errors, corrupt;
	_Atomic uint64_t erased_elsewhere; /* tenants, and alls, that others erased there */
	pthread_t thread;
	bool has_thread;
	_Atomic bool stop; /* the thread ends when nothing is under way */
};

/* Counters of kvt_fragments_stats. Relaxed, as those below. */
struct kvt_fragment_counters {
	_Atomic uint64_t stores, stored_chunks, stored_tokens, stored_bytes;
	_Atomic uint64_t loads, hit_tokens, missed_tokens, loaded_bytes, moved_bytes;
	_Atomic uint64_t refused[KVT_FRAGMENT_REFUSALS];
};

void kvt_fragment_counters_read(const struct kvt_fragment_counters *from, struct kvt_fragments_stats *out);

/* Counters of kvt_stats that are the library's own. Relaxed: no reader needs two to agree. */
struct kvt_counters {
	_Atomic uint64_t lookups, lookup_chunks, lookup_hits;
	_Atomic uint64_t gets, get_chunks, get_hits, get_timeouts, l1_hits, l1_misses;
	_Atomic uint64_t puts, put_bytes, put_exists, put_full;
	_Atomic uint64_t stores_dropped, prefetches, promotions, joined_loads, not_worth;
	_Atomic uint64_t finds, probes, probe_chunks, probe_hits;
	_Atomic uint64_t lock_refusals;
	_Atomic uint64_t put_blended, put_orphans;
	_Atomic uint64_t tables_lost; /* of generations: everything stored became cold */
	_Atomic uint64_t tables_refused; /* questions for them that a tier refused */
	struct kvt_fragment_counters fragments;
};

static inline void kvt_count(_Atomic uint64_t *counter, uint64_t by)
{
	if (by != 0)
		atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

/* How fast the engine computes. */
struct kvt_prefill {
	pthread_mutex_t lock;
	double tokens, ns; /* sums that forget, under lock */
	_Atomic uint64_t tokens_per_second;
};

/* Operations: begun, running until they are done or their deadline passes, then reported once. */
struct kvt_op;
struct kvt_op_slot;
struct kvt_ops {
	struct kvt_op_slot *slots;
	uint32_t slot_count, free_slot;        /* list through the slots; slot_count: none free */
	struct kvt_op *first, *last;           /* running, by deadline */
	struct kvt_op *done_first, *done_last; /* completions that wait for kvt_poll */
	int eventfd;
	bool signalled; /* the eventfd is readable */
};

/* Chunks on their way up. */
struct kvt_load;
struct kvt_loads {
	struct kvt_keyed_table by_key;
	struct kvt_load *first, *last; /* waiting for room or quota, oldest first */
	uint64_t limit_bytes, reading_bytes, waiting_bytes;
	size_t waiting, reading;
};

/* Chunks on their way down. */
struct kvt_stores {
	struct kvt_keyed_table by_key;
	struct kvt_store *refused;   /* written and erased, but the tier would not erase them yet */
	uint64_t limit_bytes, bytes; /* waiting and being written, as they are charged */
	uint64_t write_bytes;        /* most that is being written at once */
	uint64_t begun;              /* numbers stores */
	size_t count, erased;        /* all of them; to be erased again once they are written */
};

/* Erased keys that tiers below may still show, and no lookup may. */
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

/* Where a key's bytes are changed by its tenant's generation. */
#define KVT_NAME_MASKS 512
struct kvt_name_mask {
	uint8_t bytes[KVT_SLOT_AT];
	bool set;
	uint32_t slot;
};

/* Names of chunks below memory: names.c, generations.c. */
struct kvt_asking;
struct kvt_generations {
	struct kvt_lower *home; /* the shared tier with the table; NULL: names are keys. Constant */
	pthread_mutex_t lock;   /* a leaf; guards what follows up to the empty line */
	bool known;             /* the table was read */
	uint8_t id[KVT_TABLE_ID_BYTES];
	/* Of the last change that is known. KVT_NUMBER_LOST: the table lost some that were. */
	uint64_t number;
	uint32_t sum;    /* of all in `at` */
	uint64_t *at;    /* of each slot, KVT_SLOTS; owned */
	struct kvt_name_mask *masks; /* KVT_NAME_MASKS lately used ones; owned */

	_Atomic int64_t fresh_until_ns; /* changes are known up to l2.seen_time before this */
	_Atomic int64_t tried_until_ns; /* the last question failed: no answer is waited for */
	_Atomic bool refused;           /* the tier could be reached when it failed */
	/* under the core's lock */
	bool told; /* the log says that it refuses */
	bool under_way;             /* a question */
	struct kvt_asking *first;   /* questions in line; owned */
	int64_t next_ns;            /* when to ask again */
	struct kvt_slot_set *changed; /* scratch; owned */
};

#define KVT_REFUSED_PUTS 1024

struct kvt {
	struct kvt_config config; /* settled: no 0 that means a default; without its texts */
	struct kvt_surroundings surroundings;
	struct kvt_neighbours neighbours;
	int64_t touched_ns;      /* when they last got to know how much of L1 is in memory */
	char *nvme_path;         /* NULL: none */
	_Atomic uint32_t *alive; /* 1; a forked child reads 0 there */
	_Atomic bool opened;     /* all parts are there: the controller may command */
	bool own_clock;          /* the machine's: waits may sleep by it */
	struct kvt_event_log *events;
	struct kvt_controller *controller; /* NULL: none; set before any tier is there */
	struct kvt_admin *admin;           /* NULL: none; set once the handle is open, under lock */
	_Atomic bool admin_begun;          /* it is made at most once */
	struct kvt_tier_watch watch;       /* notifies both */
	struct kvt_l1 *l1;
	struct kvt_lower lower[KVT_TIER_COUNT];
	size_t lower_count;
	void (*tier_came)(struct kvt *k); /* after open: a tier that was refused is there now */
	struct kvt_leases leases;
	struct kvt_prefill prefill;
	struct kvt_counters counters;
	/* Chunks whose last put was refused, by a word of their keys; put.c. Relaxed. */
	_Atomic uint64_t refused_puts[KVT_REFUSED_PUTS];
	struct kvt_latencies latencies;
	struct kvt_trace *trace; /* NULL: nothing is traced */

	pthread_mutex_t step_lock; /* KVT_THREADS_CALLER: one thread steps at a time */
	pthread_mutex_t lock;      /* guards all that follows, and what says so above */
	pthread_cond_t changed;    /* an operation is done */
	pthread_cond_t due;        /* the control thread has something to do */
	pthread_cond_t ends;       /* threads of refused tiers are to end */
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
	int64_t tended_ns;   /* of the thread that steps the control part */
	double scrub_credit; /* bytes that may be checked now, likewise; negative: owed */
};

/* Is this handle one that may be used here? Fork check included. */
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

/* The control thread is to look again. Under lock. */
static inline void kvt_kick(struct kvt *k)
{
	k->kicked = true;
	pthread_cond_signal(&k->due);
}

#endif
