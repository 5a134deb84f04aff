/* ejection.c - ejects workers because of bad answers. */
#include "fleet/ejection.h"

#include "base/clock.h"
#include "base/random.h"

#define COUNT_BITS 16
#define COUNT_MAX  ((UINT64_C(1) << COUNT_BITS) - 1)

/* A word packs a period: its number, then counts of good and bad answers, each at most
 * COUNT_MAX. */
#define GOOD(word)   ((word) >> COUNT_BITS & COUNT_MAX)
#define BAD(word)    ((word) & COUNT_MAX)
#define NUMBER(word) ((word) >> 2 * COUNT_BITS)

enum kvw_err kvw_ejections_init(struct kvw_ejections *all, const struct kvw_config *config)
{
	*all = (struct kvw_ejections){.config = config, .random = (uint64_t)kvw_clock_ns()};
	return pthread_mutex_init(&all->mutex, NULL) == 0 ? KVW_OK : KVW_ENOMEM;
}

void kvw_ejections_finish(struct kvw_ejections *all)
{
	if (all->config != NULL)
		pthread_mutex_destroy(&all->mutex);
}

/* --- the window --- */

static uint64_t period_of(const struct kvw_ejections *all, int64_t now_ns)
{
	int64_t period_ns = all->config->ejection_window_ms * KVW_NS_PER_MS / KVW_EJECTION_PERIODS;

	return (uint64_t)(now_ns / (period_ns > 0 ? period_ns : 1)) & UINT32_MAX;
}

static void count_answer(struct kvw_ejections *all, struct kvw_ejection *worker,
	enum kvw_grade grade, int64_t now_ns)
{
	uint64_t number = period_of(all, now_ns);
	_Atomic uint64_t *period = &worker->periods[number % KVW_EJECTION_PERIODS];
	uint64_t old = atomic_load_explicit(period, memory_order_relaxed), next;

	do {
		next = NUMBER(old) == number ? old : number << 2 * COUNT_BITS;
		if (grade == KVW_GRADE_TURNED_BAD && GOOD(next) > 0)
			next -= UINT64_C(1) << COUNT_BITS;
		if (grade == KVW_GRADE_GOOD && GOOD(next) < COUNT_MAX)
			next += UINT64_C(1) << COUNT_BITS;
		else if (grade != KVW_GRADE_GOOD && BAD(next) < COUNT_MAX)
			next += 1;
	} while (!atomic_compare_exchange_weak_explicit(
		period, &old, next, memory_order_relaxed, memory_order_relaxed));
}

/* Returns whether the share of bad answers in the window is too large. */
static bool too_many_bad(
	const struct kvw_ejections *all, const struct kvw_ejection *worker, int64_t now_ns)
{
	uint64_t number = period_of(all, now_ns), good = 0, bad = 0;

	for (size_t i = 0; i < KVW_EJECTION_PERIODS; i++) {
		uint64_t word = atomic_load_explicit(&worker->periods[i], memory_order_relaxed);

		if (((number - NUMBER(word)) & UINT32_MAX) >= KVW_EJECTION_PERIODS)
			continue;
		good += GOOD(word);
		bad += BAD(word);
	}
	return good + bad >= (uint64_t)all->config->ejection_min_answers &&
	       (double)bad >= all->config->ejection_bad_share * (double)(good + bad);
}

static void forget(struct kvw_ejection *worker)
{
	for (size_t i = 0; i < KVW_EJECTION_PERIODS; i++)
		atomic_store_explicit(&worker->periods[i], 0, memory_order_relaxed);
	atomic_store_explicit(&worker->bad_in_row, 0, memory_order_relaxed);
}

void kvw_ejections_set_workers(struct kvw_ejections *all, size_t workers)
{
	pthread_mutex_lock(&all->mutex);
	all->workers = workers;
	pthread_mutex_unlock(&all->mutex);
}

void kvw_ejection_clear(struct kvw_ejections *all, struct kvw_ejection *worker)
{
	pthread_mutex_lock(&all->mutex);
	if (kvw_ejection_state(worker) != KVW_EJECTION_IN)
		all->out--;
	atomic_store_explicit(&worker->state, KVW_EJECTION_IN, memory_order_relaxed);
	worker->in_succession = 0;
	worker->in_since_ns = 0;
	pthread_mutex_unlock(&all->mutex);
	forget(worker);
	atomic_store_explicit(&worker->until_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&worker->bad, 0, memory_order_relaxed);
	atomic_store_explicit(&worker->ejections, 0, memory_order_relaxed);
}

/* --- states; the mutex is held --- */

static void set_state(struct kvw_ejection *worker, enum kvw_ejection_state state)
{
	atomic_store_explicit(&worker->state, (uint8_t)state, memory_order_release);
}

static int64_t leave_out(struct kvw_ejections *all, struct kvw_ejection *worker, int64_t now_ns)
{
	const struct kvw_config *config = all->config;
	int64_t ms = config->ejection_time_ms;

	if (kvw_ejection_state(worker) == KVW_EJECTION_IN &&
		now_ns - worker->in_since_ns > config->ejection_max_time_ms * KVW_NS_PER_MS)
		worker->in_succession = 0;
	for (uint32_t i = 0; i < worker->in_succession && ms < config->ejection_max_time_ms; i++)
		ms *= 2;
	if (ms > config->ejection_max_time_ms)
		ms = config->ejection_max_time_ms;
	ms += (int64_t)((double)ms / 5 * kvw_random_fraction(&all->random));
	worker->in_succession++;
	atomic_store_explicit(
		&worker->until_ns, now_ns + ms * KVW_NS_PER_MS, memory_order_relaxed);
	set_state(worker, KVW_EJECTION_OUT);
	atomic_fetch_add_explicit(&worker->ejections, 1, memory_order_relaxed);
	return ms;
}

static bool may_leave_out(struct kvw_ejections *all)
{
	double most = all->config->ejection_max_share * (double)all->workers;

	if ((double)(all->out + 1) <= most)
		return true;
	atomic_fetch_add_explicit(&all->refused, 1, memory_order_relaxed);
	return false;
}

static enum kvw_ejection_change judge_trial(struct kvw_ejections *all, struct kvw_ejection *worker,
	enum kvw_grade grade, int64_t now_ns, int64_t *for_ms)
{
	switch (grade) {
	case KVW_GRADE_GOOD:
		forget(worker);
		worker->in_since_ns = now_ns;
		all->out--;
		set_state(worker, KVW_EJECTION_IN);
		return KVW_EJECTION_BACK;
	case KVW_GRADE_BAD:
	case KVW_GRADE_TURNED_BAD:
		*for_ms = leave_out(all, worker, now_ns);
		return KVW_EJECTION_EJECTED;
	default: /* no verdict: the next request becomes the trial */
		atomic_store_explicit(&worker->until_ns, now_ns, memory_order_relaxed);
		set_state(worker, KVW_EJECTION_OUT);
		return KVW_EJECTION_NO_CHANGE;
	}
}

/* Handles one more bad answer. */
static enum kvw_ejection_change judge_bad(
	struct kvw_ejections *all, struct kvw_ejection *worker, int64_t now_ns, int64_t *for_ms)
{
	uint32_t in_row = atomic_load_explicit(&worker->bad_in_row, memory_order_relaxed);

	if (kvw_ejection_state(worker) != KVW_EJECTION_IN ||
		(in_row < (uint64_t)all->config->health_passive_failures &&
			!too_many_bad(all, worker, now_ns)) ||
		!may_leave_out(all))
		return KVW_EJECTION_NO_CHANGE;
	all->out++;
	*for_ms = leave_out(all, worker, now_ns);
	return KVW_EJECTION_EJECTED;
}

/* --- public --- */

enum kvw_ejection_change kvw_ejection_judge(struct kvw_ejections *all, struct kvw_ejection *worker,
	enum kvw_grade grade, bool trial, int64_t now_ns, int64_t *for_ms)
{
	enum kvw_ejection_change change = KVW_EJECTION_NO_CHANGE;

	if (grade != KVW_GRADE_NONE)
		count_answer(all, worker, grade, now_ns);
	if (grade >= KVW_GRADE_BAD) {
		atomic_fetch_add_explicit(&worker->bad, 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&worker->bad_in_row, 1, memory_order_relaxed);
	} else if (grade == KVW_GRADE_GOOD &&
		   atomic_load_explicit(&worker->bad_in_row, memory_order_relaxed) != 0) {
		atomic_store_explicit(&worker->bad_in_row, 0, memory_order_relaxed);
	}
	if (!trial && grade < KVW_GRADE_BAD)
		return change;
	pthread_mutex_lock(&all->mutex);
	if (trial)
		change = judge_trial(all, worker, grade, now_ns, for_ms);
	else
		change = judge_bad(all, worker, now_ns, for_ms);
	pthread_mutex_unlock(&all->mutex);
	return change;
}

bool kvw_ejection_allows(const struct kvw_ejection *worker, int64_t now_ns)
{
	switch (kvw_ejection_state(worker)) {
	case KVW_EJECTION_IN:
		return true;
	case KVW_EJECTION_OUT:
		return atomic_load_explicit(&worker->until_ns, memory_order_relaxed) <= now_ns;
	default:
		return false;
	}
}

bool kvw_ejection_try(struct kvw_ejections *all, struct kvw_ejection *worker, int64_t now_ns)
{
	bool mine;

	pthread_mutex_lock(&all->mutex);
	mine = kvw_ejection_state(worker) == KVW_EJECTION_OUT &&
	       kvw_ejection_allows(worker, now_ns);
	if (mine)
		set_state(worker, KVW_EJECTION_TRIAL);
	pthread_mutex_unlock(&all->mutex);
	return mine;
}

int64_t kvw_ejection_force(struct kvw_ejections *all, struct kvw_ejection *worker, int64_t now_ns)
{
	int64_t ms = 0;

	pthread_mutex_lock(&all->mutex);
	if (kvw_ejection_state(worker) == KVW_EJECTION_IN && may_leave_out(all)) {
		all->out++;
		ms = leave_out(all, worker, now_ns);
	}
	pthread_mutex_unlock(&all->mutex);
	return ms;
}

void kvw_ejection_hasten(struct kvw_ejections *all, struct kvw_ejection *worker, int64_t now_ns)
{
	pthread_mutex_lock(&all->mutex);
	worker->in_succession = 0;
	if (kvw_ejection_state(worker) == KVW_EJECTION_OUT)
		atomic_store_explicit(&worker->until_ns, now_ns, memory_order_relaxed);
	pthread_mutex_unlock(&all->mutex);
}
