/*
 * ejection.h - leaves workers out because of their answers.
 *
 * A health probe sees the API server; requests see the engine behind it. A vLLM whose engine has
 * died answers 500, or 200 and an error as its first event, within a millisecond, while /health
 * still says 200: without this, the least loaded worker of all would be the broken one.
 *
 * A worker is ejected after health.passive_failures bad answers in a row, or when bad answers are
 * ejection.bad_share of at least ejection.min_answers in the last ejection.window:
 *
 * 	IN ---bad answers---> OUT ---its time is over, a request is sent to it---> TRIAL
 * 	 ^                     ^--------------------- bad answer ------------------/  |
 * 	 \--------------------------------- good answer -----------------------------/
 *
 * The time of an ejection begins with ejection.time, doubles with each ejection in succession up to
 * ejection.max_time, and is up to a fifth longer by chance, so that workers do not come back
 * together. While a worker is out, good answers that were on their way and healthy probes do not
 * bring it back: only the one request of its trial does, and afterwards the worker starts slowly.
 * At most ejection.max_share of the workers are out: when all are broken, the fault is not theirs.
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
	KVW_GRADE_NONE, /* nothing: the client left, or the request itself was at fault */
	KVW_GRADE_GOOD,
	KVW_GRADE_BAD,
	/* Bad in the end, after it was graded good: takes the place of that. */
	KVW_GRADE_TURNED_BAD,
};

/* Record of one worker; zeroed at first. */
struct kvw_ejection {
	/* Number of the period, good and bad answers. */
	_Atomic uint64_t periods[KVW_EJECTION_PERIODS];
	_Atomic uint32_t bad_in_row;
	_Atomic uint8_t state;      /* enum kvw_ejection_state */
	_Atomic int64_t until_ns;   /* OUT: when its trial may begin */
	_Atomic uint64_t bad, ejections; /* since start */
	/* Under the mutex: */
	uint32_t in_succession;     /* ejections; forgotten after ejection.max_time without one */
	int64_t in_since_ns;
};

/* Records of all workers. */
struct kvw_ejections {
	const struct kvw_config *_Atomic config; /* borrowed; a reload replaces it */
	pthread_mutex_t mutex;
	size_t workers;                  /* that there are; under the mutex */
	_Atomic size_t out;              /* those OUT or in TRIAL; changed under the mutex */
	_Atomic uint64_t refused;        /* ejections that ejection.max_share forbade */
	uint64_t random;                 /* spreads returns; under the mutex */
};

enum kvw_err kvw_ejections_init(
	struct kvw_ejections *all, const struct kvw_config *config) KVW_MUST_CHECK;
void kvw_ejections_finish(struct kvw_ejections *all);

/* Sets the number of workers, of which ejection.max_share is a share. */
void kvw_ejections_set_workers(struct kvw_ejections *all, size_t workers);
/* The worker is gone: its state is as zeroed, for another one. No trial may be under way. */
void kvw_ejection_clear(struct kvw_ejections *all, struct kvw_ejection *worker);

/* Change that a grade has made. */
enum kvw_ejection_change {
	KVW_EJECTION_NO_CHANGE,
	KVW_EJECTION_EJECTED,
	KVW_EJECTION_BACK,
};

/* trial: the attempt that began the worker's trial. *for_ms: how long it is ejected. */
enum kvw_ejection_change kvw_ejection_judge(struct kvw_ejections *all, struct kvw_ejection *worker,
	enum kvw_grade grade, bool trial, int64_t now_ns, int64_t *for_ms);

/* May be sent a request now. While it is OUT, time alone changes the answer. */
bool kvw_ejection_allows(const struct kvw_ejection *worker, int64_t now_ns);

/* A worker that is OUT has been picked. True: this request is its trial, whose grade, NONE too, is
 * owed to kvw_ejection_judge. */
bool kvw_ejection_try(struct kvw_ejections *all, struct kvw_ejection *worker, int64_t now_ns);

/* The worker stands still: it is ejected like after bad answers. Returns for how many ms; 0: it is
 * not ejected, or was already; a trial that is under way is graded when its request leaves. */
int64_t kvw_ejection_force(struct kvw_ejections *all, struct kvw_ejection *worker, int64_t now_ns);

/* The worker is another process now, or answers its probes again: its trial may begin at once. */
void kvw_ejection_hasten(struct kvw_ejections *all, struct kvw_ejection *worker, int64_t now_ns);

/* Is any worker not IN? */
static inline bool kvw_ejections_any(const struct kvw_ejections *all)
{
	return atomic_load_explicit(&all->out, memory_order_relaxed) > 0;
}

static inline enum kvw_ejection_state kvw_ejection_state(const struct kvw_ejection *worker)
{
	return (enum kvw_ejection_state)atomic_load_explicit(&worker->state, memory_order_relaxed);
}

#endif
