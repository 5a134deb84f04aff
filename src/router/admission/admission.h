/*
 * admission.h - state that all event loops share to decide which request is sent, waits or is
 * refused.
 *
 * A router that only chooses lets a queue grow in each worker, where first come, first served then
 * breaks all promises at once. So requests wait in kvway instead. A worker gets a prompt when it
 * can take it (pace.h); waiting requests are sent in an order that keeps the most promises
 * (queue.h); a request that is too expensive for an overloaded fleet is not sent (price.h); and
 * turns of running programs come before new programs that would evict their caches (programs.h).
 * gate.h puts these together for one loop and one model.
 *
 * The workers' rate is learned as well: the predicted prefill of the requests that they answered,
 * over the time in which they had work. The rate is in the unit of the predictions, so that
 * predictions that are wrong by a constant factor do no harm here.
 *
 * No I/O, no clock of its own, no locks but short ones: the replay of bench/replay runs this code.
 *
 * Threads: any, unless a function says otherwise.
 */
#ifndef KVW_ADMISSION_H
#define KVW_ADMISSION_H

#include "admission/pace.h"
#include "admission/programs.h"
#include "admission/queue.h"
#include "kvway/load.h"
#include "kvway/slice.h"

/* workers count as full when they were busy for more than this share of their time */
#define KVW_FULL_SHARE 0.85f

struct kvw_admission {
	struct kvw_pace paces[KVW_MAX_WORKERS]; /* indexed by worker id */
	struct kvw_programs *programs; /* running programs; NULL: programs are not recognised */

	/* The workers' rate: predicted prefill in ns that one worker does per ns of being busy. */
	_Atomic float done_per_ns;
	/* share of all workers' time of the last half minute in which they were busy */
	_Atomic float busy_share;
	/* predicted prefill in ns of requests that got their first token since looked_ns */
	_Atomic int64_t done_ns;
	_Atomic int64_t looked_ns; /* time of the last update of the sums below */
	/* a lock: held by the thread that updates; guards the two sums below */
	_Atomic bool looking;
	double work_sum, busy_sum, time_sum;
	double own_sum; /* the part of busy_sum in which workers computed this router's prompts */

	/* Published by the last gate that planned its queue or counted; estimate.c reads these
	 * members. */
	_Atomic int64_t planned_ns;         /* 0: none has */
	_Atomic float limits[KVW_CLASSES];  /* limits on prices by class, from that plan */
	_Atomic float mean_ns, lag; /* from the last gate that published; lag 0: none has yet */

	/* Sums over all loops: waiting work in ns, and offered work in ns per second. */
	_Atomic int64_t waiting_ns;
	_Atomic int64_t first_waiting_ns; /* waiting work of the most important class */
	_Atomic int64_t offered_per_s;
	_Atomic uint64_t refused; /* requests, ever */
	/* The same sums of other routers with the same workers; 0: none. */
	_Atomic int64_t peers_waiting_ns, peers_first_waiting_ns, peers_offered_per_s;
};

/* Work that waits at one or more routers, and work that is offered to them. */
struct kvw_admission_work {
	int64_t waiting_ns, first_waiting_ns, offered_per_s;
};

/* programs: size of the table; 0: none. NULL: no memory. Aligned to cache lines. */
struct kvw_admission *kvw_admission_create(size_t programs);
void kvw_admission_destroy(struct kvw_admission *admission); /* NULL is allowed */

/* Updates the learned numbers. Every loop calls it every few ms; the first call does the work, the
 * others return at once. slots: all worker ids are below this; workers: number of workers that have
 * not left, since the slots of those that have must not count as idle workers. */
void kvw_admission_look(
	struct kvw_admission *admission, size_t slots, size_t workers, int64_t now_ns);

/* Returns how many predicted ns of prefill one busy worker does in a ns. */
static inline double kvw_admission_rate(const struct kvw_admission *admission)
{
	return atomic_load_explicit(&admission->done_per_ns, memory_order_relaxed);
}

/* Returns whether the workers have as much work as they can do. */
static inline bool kvw_admission_full(const struct kvw_admission *admission)
{
	return atomic_load_explicit(&admission->busy_share, memory_order_relaxed) > KVW_FULL_SHARE;
}

/* kvw_admission_own returns this router's work, to be sent to other routers;
 * kvw_admission_set_peers replaces the sums of all other routers. */
struct kvw_admission_work kvw_admission_own(const struct kvw_admission *admission);
void kvw_admission_set_peers(
	struct kvw_admission *admission, const struct kvw_admission_work *peers);

/* Parses the field x-kvway-deadline-ms: how long after its arrival a request is useful; 0: not a
 * valid time. */
int64_t kvw_admission_deadline_ns(struct kvw_slice text);

/* Drops a worker's state: another worker will get its id. */
void kvw_admission_left(struct kvw_admission *admission, uint32_t worker);

#endif
