/*
 * step.c - the threads that do the work, and a caller's wait for it.
 *
 * The library has one thread for timed work (deadlines, pauses of tiers, retries, expiry,
 * scrubbing) and one for each lower tier, which waits in the tier's step. These threads block all
 * signals, which are for the program, and may run on every CPU, since the thread that opened the
 * handle may be bound to one.
 *
 * With KVT_THREADS_CALLER there are no threads: kvt_step, or the waiting caller, calls the same
 * functions one after another.
 */
#include <sched.h>

#include "base/thread.h"
#include "core/moves.h"
#include "core/refused.h"
#include "core/step.h"

#define TEND_NS       100000000   /* between looks at L1 */
/* between measurements of how much of L1 is in memory, until all of it is */
#define TOUCHED_NS    200000000
#define TIER_WAIT_NS  100000000   /* a tier's longest wait in one step */
#define SCRUB_MOST    (16u << 20) /* bytes in one look */
#define SLICE_NS      1000000 /* how long a wait sleeps when the given clock is not the machine's */
/* after this many idle rounds without progress of the clock, the wait is over */
#define STILL_AT_MOST 250

/* --- control ---------------------------------------------------------------------------------- */

/* Returns how many bytes a second are scrubbed: the configured number, or less where L1 is
 * small. */
static double scrub_rate(const struct kvt *k)
{
	double rate = (double)k->config.l1_scrub_rate, pass;

	if (k->config.l1_scrub_ns == 0)
		return rate;
	pass = (double)kvt_arena_capacity(kvt_l1_arena(k->l1)) * 1e9 /
	       (double)k->config.l1_scrub_ns;
	return pass < rate ? pass : rate;
}

/* Expires and scrubs chunks of L1; the caller does not hold `lock`. */
static size_t tend(struct kvt *k, int64_t now_ns, int64_t *next_ns)
{
	uint64_t elapsed_ns, checked = 0, budget = 0;
	size_t done;

	if (now_ns < k->tended_ns + TEND_NS) {
		if (k->tended_ns + TEND_NS < *next_ns)
			*next_ns = k->tended_ns + TEND_NS;
		return 0;
	}
	elapsed_ns = (uint64_t)(now_ns - k->tended_ns);
	k->tended_ns = now_ns;
	if (k->neighbours.fd >= 0 && now_ns >= k->touched_ns + TOUCHED_NS &&
		k->neighbours.touched < kvt_arena_capacity(kvt_l1_arena(k->l1))) {
		k->touched_ns = now_ns;
		kvt_neighbours_touch(
			&k->neighbours, kvt_arena_resident(kvt_l1_arena(k->l1)));
	}
	if (elapsed_ns > 1000000000)
		elapsed_ns = 1000000000;
	k->scrub_credit += scrub_rate(k) * (double)elapsed_ns / 1e9;
	if (k->scrub_credit > SCRUB_MOST)
		k->scrub_credit = SCRUB_MOST;
	if (k->scrub_credit >= 1)
		budget = (uint64_t)k->scrub_credit;
	done = kvt_l1_tend(k->l1, budget, &checked);
	/* whole chunks are checked: the credit may become negative */
	k->scrub_credit -= (double)checked;
	if (now_ns + TEND_NS < *next_ns)
		*next_ns = now_ns + TEND_NS;
	return done;
}

/* Does the work that is due by time; the caller holds `lock`. */
static size_t look_at_clock(struct kvt *k, int64_t *next_ns)
{
	int64_t now_ns = kvt_clock(k);
	size_t done = kvt_ops_expire(k, now_ns, next_ns);

	return done + kvt_moves_tick(k, now_ns, next_ns);
}

/* Sleeps until `cond` is signalled or the deadline; with a clock that is not the machine's, for a
 * short while. */
static void sleep_on(struct kvt *k, pthread_cond_t *cond, int64_t deadline_ns)
{
	struct timespec until;
	int64_t wait_ns = deadline_ns - kvt_clock(k), at_ns;

	if (!k->own_clock && wait_ns > SLICE_NS)
		wait_ns = SLICE_NS;
	if (wait_ns > 1000000000)
		wait_ns = 1000000000;
	clock_gettime(CLOCK_MONOTONIC, &until);
	at_ns = (int64_t)until.tv_sec * 1000000000 + until.tv_nsec + (wait_ns > 0 ? wait_ns : 0);
	until = (struct timespec){at_ns / 1000000000, at_ns % 1000000000};
	pthread_cond_timedwait(cond, &k->lock, &until);
}

static void *control_main(void *self)
{
	struct kvt *k = self;
	int64_t next_ns;

	pthread_mutex_lock(&k->lock);
	while (!k->closing) {
		next_ns = KVT_NEVER;
		k->kicked = false;
		look_at_clock(k, &next_ns);
		pthread_mutex_unlock(&k->lock);
		tend(k, kvt_clock(k), &next_ns);
		pthread_mutex_lock(&k->lock);
		if (!k->kicked && !k->closing)
			sleep_on(k, &k->due, next_ns);
	}
	pthread_mutex_unlock(&k->lock);
	return NULL;
}

/* --- tiers ------------------------------------------------------------------------------------ */

static bool idle(struct kvt_lower *b)
{
	bool none;

	pthread_mutex_lock(&b->k->lock);
	none = b->under_way == 0;
	pthread_mutex_unlock(&b->k->lock);
	return none;
}

/* Retries a store that another process owns until it is open or the handle closes. */
static void await_store(struct kvt_lower *b)
{
	struct kvt *k = b->k;
	bool closing = false;

	while (!closing && b->tier == NULL) {
		int64_t next_ns = KVT_NEVER;

		if (kvt_refused_step(b, &next_ns) != 0)
			return;
		pthread_mutex_lock(&k->lock);
		if (!k->closing)
			sleep_on(k, &k->ends, next_ns);
		closing = k->closing;
		pthread_mutex_unlock(&k->lock);
	}
}

static void *below_main(void *self)
{
	struct kvt_lower *b = self;
	int64_t next_ns = KVT_NEVER;
	size_t done = 1;

	await_store(b);
	if (b->tier == NULL)
		return NULL;
	while (!atomic_load(&b->stop) || !idle(b)) {
		int64_t wait_ns = next_ns - kvt_clock(b->k);

		/* Work that is due "at once" begins when a request ends, and the step itself waits
		 * for that. */
		if (wait_ns <= 0 || wait_ns > TIER_WAIT_NS)
			wait_ns = TIER_WAIT_NS;
		next_ns = KVT_NEVER;
		done = kvt_moves_step(b, done != 0 ? 0 : wait_ns, &next_ns);
		done += kvt_refused_step(b, &next_ns); /* the tier's store may be lost */
	}
	return NULL;
}

/* --- threads ---------------------------------------------------------------------------------- */

static void run_anywhere(void)
{
	cpu_set_t all;

	CPU_ZERO(&all);
	for (int i = 0; i < CPU_SETSIZE; i++)
		CPU_SET(i, &all);
	sched_setaffinity(0, sizeof(all), &all); /* if this is refused the CPUs stay as they were */
}

/* Starts a thread that blocks all signals and may run on every CPU. */
static enum kvt_status start_thread(
	pthread_t *thread, void *(*main)(void *), void *self, const char *name)
{
	cpu_set_t own;
	bool bound;
	int failed;

	bound = sched_getaffinity(0, sizeof(own), &own) == 0;
	run_anywhere(); /* the new thread inherits it */
	failed = kvw_thread_start(thread, main, self);
	if (bound)
		sched_setaffinity(0, sizeof(own), &own);
	if (failed != 0)
		return KVT_ENOMEM;
	pthread_setname_np(*thread, name);
	return KVT_OK;
}

enum kvt_status kvt_threads_start(struct kvt *k)
{
	enum kvt_status status;

	if (k->config.threads == KVT_THREADS_CALLER)
		return KVT_OK;
	status = start_thread(&k->control, control_main, k, "kvt-control");
	if (status != KVT_OK)
		return status;
	k->has_control = true;
	for (size_t i = 0; i < k->lower_count; i++) {
		struct kvt_lower *b = &k->lower[i];
		char name[16] = "kvt-";

		if (b->tier == NULL && b->refused == NULL)
			continue;
		strncat(name, b->ops->name, sizeof(name) - sizeof("kvt-"));
		status = start_thread(&b->thread, below_main, b, name);
		if (status != KVT_OK)
			return status;
		pthread_mutex_lock(&k->lock);
		b->has_thread = true;
		if (b->tier != NULL)
			/* the control thread may have given it a request meanwhile */
			b->tier->ops->wake(b->tier);
		pthread_mutex_unlock(&k->lock);
	}
	return KVT_OK;
}

static bool all_idle(struct kvt *k)
{
	for (size_t i = 0; i < k->lower_count; i++)
		if (!idle(&k->lower[i]))
			return false;
	return true;
}

void kvt_threads_stop(struct kvt *k)
{
	int64_t next_ns;

	pthread_mutex_lock(&k->lock);
	kvt_kick(k);
	pthread_cond_broadcast(&k->ends);
	pthread_mutex_unlock(&k->lock);
	for (size_t i = 0; i < k->lower_count; i++) {
		struct kvt_lower *b = &k->lower[i];
		struct kvt_tier *tier;

		atomic_store(&b->stop, true);
		if (!b->has_thread)
			continue;
		tier = b->tier;
		if (tier != NULL)
			tier->ops->wake(tier);
		pthread_join(b->thread, NULL);
	}
	if (k->has_control)
		pthread_join(k->control, NULL);
	while (!all_idle(k))
		kvt_step_all(k, TIER_WAIT_NS, &next_ns);
}

/* --- the caller's ----------------------------------------------------------------------------- */

size_t kvt_step_all(struct kvt *k, int64_t wait_ns, int64_t *next_ns)
{
	size_t done = 0;

	*next_ns = KVT_NEVER;
	pthread_mutex_lock(&k->step_lock);
	pthread_mutex_lock(&k->lock);
	done += look_at_clock(k, next_ns);
	pthread_mutex_unlock(&k->lock);
	if (done != 0)
		wait_ns = 0;
	for (size_t i = 0; i < k->lower_count; i++) {
		int64_t tier_ns = KVT_NEVER;

		if (k->lower[i].tier != NULL)
			done += kvt_moves_step(&k->lower[i], wait_ns, &tier_ns);
		done += kvt_refused_step(&k->lower[i], &tier_ns);
		if (tier_ns < *next_ns)
			*next_ns = tier_ns;
	}
	done += tend(k, kvt_clock(k), next_ns);
	done += kvt_event_log_step(k->events, next_ns);
	if (k->config.threads == KVT_THREADS_CALLER)
		done += kvt_controller_step(k->controller, next_ns);
	pthread_mutex_unlock(&k->step_lock);
	return done;
}

size_t kvt_step(struct kvt *k, int64_t *next_ns)
{
	int64_t next = KVT_NEVER;
	size_t done = 0;

	if (kvt_usable(k) == KVT_OK && k->config.threads == KVT_THREADS_CALLER)
		done = kvt_step_all(k, 0, &next);
	if (next_ns != NULL)
		*next_ns = next;
	return done;
}

/* --- waiting ---------------------------------------------------------------------------------- */

static bool is_done(struct kvt *k, struct kvt_op *op)
{
	bool done;

	pthread_mutex_lock(&k->lock);
	if (!op->done && op->deadline_ns <= kvt_clock(k))
		op->expire(k, op, KVT_MISS);
	done = op->done;
	pthread_mutex_unlock(&k->lock);
	return done;
}

/* Waits without threads of the library: the caller does the work itself. If the given clock stands
 * still meanwhile, the wait is over when nothing happens any more. */
static void wait_stepping(struct kvt *k, struct kvt_op *op)
{
	int64_t then_ns = kvt_clock(k), next_ns;
	int still = 0;

	while (!is_done(k, op)) {
		size_t did = kvt_step_all(k, SLICE_NS, &next_ns);
		int64_t now_ns = kvt_clock(k);

		still = did == 0 && now_ns == then_ns ? still + 1 : 0;
		then_ns = now_ns;
		if (still < STILL_AT_MOST)
			continue;
		pthread_mutex_lock(&k->lock);
		if (!op->done)
			op->expire(k, op, KVT_MISS);
		pthread_mutex_unlock(&k->lock);
	}
}

void kvt_wait_changed(struct kvt *k, int64_t deadline_ns)
{
	sleep_on(k, &k->changed, deadline_ns);
}

void kvt_op_wait(struct kvt *k, struct kvt_op *op)
{
	if (k->config.threads == KVT_THREADS_CALLER) {
		wait_stepping(k, op);
		return;
	}
	pthread_mutex_lock(&k->lock);
	while (!op->done) {
		if (op->deadline_ns <= kvt_clock(k))
			op->expire(k, op, KVT_MISS);
		else
			sleep_on(k, &k->changed, op->deadline_ns);
	}
	pthread_mutex_unlock(&k->lock);
}
