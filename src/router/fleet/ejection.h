/*
 * ejection.h - ejects workers because of bad answers.
 *
 * A health probe sees the API server; requests see the engine behind it. A vLLM whose engine has
 * died answers 500, or 200 and an error as its first event, within a millisecond, while /health
 * still says 200: without this, the least loaded worker of all would be the broken one.
 *
 * A worker is ejected after health.passive_failures bad answers in a row, or when bad answers are
 * ejection.bad_share of at least ejection.min_answers in the last ejection.window:
 *
 *	IN ---bad answers---> OUT ---its time is over, a request is sent to it---> TRIAL
 *	 ^                     ^--------------------- bad answer ------------------/  |
 *	 \--------------------------------- good answer -----------------------------/
 *
 * The time of an ejection begins with ejection.time, doubles with each ejection in succession up to
 * ejection.max_time, and is randomly up to a fifth longer, so that workers do not return together.
 * While a worker is out, good answers of earlier requests and healthy probes do not bring it back:
 * only the one request of its trial does, and afterwards the worker starts slowly. At most
 * ejection.max_share of the workers are out: when all fail, the fault is probably elsewhere.
 *
 * Threads: any. Counting is a compare-and-swap on the worker; a change of state takes a mutex, and
 * happens a few times a second at most.
 */
#ifndef KVW_EJECTION_H
#define KVW_EJECTION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

#define KVW_EJECTION_PERIODS 10 /* periods of a window */

enum kvw_ejection_state { KVW_EJECTION_IN, KVW_EJECTION_OUT, KVW_EJECTION_TRIAL };

/* The verdict of an attempt on its worker, once the answer has begun or the attempt has ended. */
enum kvw_grade {
	KVW_GRADE_NONE, /* no verdict: the client left, or the request was at fault */
	KVW_GRADE_GOOD,
	KVW_GRADE_BAD,
	/* An answer that was graded good turned out bad: replaces that grade. */
	KVW_GRADE_TURNED_BAD,
};

/* Record of one worker; zeroed at first. */
struct kvw_ejection {
	/* Each word: number of the period, counts of good and bad answers. */
	_Atomic uint64_t periods[KVW_EJECTION_PERIODS];
	_Atomic uint32_t bad_in_row;
	_Atomic uint8_t state;      /* enum kvw_ejection_state */
	_Atomic int64_t until_ns;   /* OUT: earliest time of the trial */
	_Atomic uint64_t bad, ejections; /* counted since the start */
	/* Under the mutex: */
	/* ejections one after another; reset after ejection.max_time without one */
	uint32_t in_succession;
	int64_t in_since_ns;
};

/* Records of all workers. */
struct kvw_ejections {
	const struct kvw_config *_Atomic config; /* borrowed; a reload replaces it */
	pthread_mutex_t mutex;
	size_t workers;                  /* number of workers; guarded by the mutex */
	_Atomic size_t out; /* number of workers OUT or in TRIAL; changed with the mutex held */
	_Atomic uint64_t refused;        /* ejections that ejection.max_share prevented */
	uint64_t random;                 /* state of the random jitter; guarded by the mutex */
};

enum kvw_err kvw_ejections_init(
	struct kvw_ejections *all, const struct kvw_config *config) KVW_MUST_CHECK;
void kvw_ejections_finish(struct kvw_ejections *all);

/* Sets the number of workers, to which ejection.max_share applies. */
void kvw_ejections_set_workers(struct kvw_ejections *all, size_t workers);
/* Zeroes the record when its worker has left, for another worker. No trial may be under way. */
void kvw_ejection_clear(struct kvw_ejections *all, struct kvw_ejection *worker);

/* Change caused by a grade. */
enum kvw_ejection_change {
	KVW_EJECTION_NO_CHANGE,
	KVW_EJECTION_EJECTED,
	KVW_EJECTION_BACK,
};

/* Counts a grade. trial: the attempt is the worker's trial. *for_ms: duration of an ejection. */
enum kvw_ejection_change kvw_ejection_judge(struct kvw_ejections *all, struct kvw_ejection *worker,
	enum kvw_grade grade, bool trial, int64_t now_ns, int64_t *for_ms);

/* Returns whether the worker may get a request now. While it is OUT, only time changes the
 * result. */
bool kvw_ejection_allows(const struct kvw_ejection *worker, int64_t now_ns);

/* Called when a worker that is OUT was picked. True: this request is the worker's trial, and its
 * grade, even NONE, must be passed to kvw_ejection_judge. */
bool kvw_ejection_try(struct kvw_ejections *all, struct kvw_ejection *worker, int64_t now_ns);

/* Ejects a stalled worker, as after bad answers. Returns the duration in ms; 0: it was not ejected,
 * or was already. The request of a trial under way is graded when it leaves the worker. */
int64_t kvw_ejection_force(struct kvw_ejections *all, struct kvw_ejection *worker, int64_t now_ns);

/* Lets the worker's trial begin at once: the worker is a new process, or answers its probes
 * again. */
void kvw_ejection_hasten(struct kvw_ejections *all, struct kvw_ejection *worker, int64_t now_ns);

/* Returns whether any worker is not IN. */
static inline bool kvw_ejections_any(const struct kvw_ejections *all)
{
	return atomic_load_explicit(&all->out, memory_order_relaxed) > 0;
}

static inline enum kvw_ejection_state kvw_ejection_state(const struct kvw_ejection *worker)
{
	return (enum kvw_ejection_state)atomic_load_explicit(&worker->state, memory_order_relaxed);
}

#endif
