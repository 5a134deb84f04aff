/*
 * admission.c - state that all event loops share to decide which request is sent, waits or is
 * refused.
 */
#include "admission/admission.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_RATE 1.1f /* initial rate */
#define LEAST_RATE 0.05
/* highest assumed rate, for workers that answer at once, without an engine */
#define MOST_RATE  1e6
#define LOOK_NS    INT64_C(2000000)
/* After a longer pause between two updates, the time in between is ignored. */
#define LONG_NS    INT64_C(1000000000)
#define FADE_NS    30e9
#define IDLE_NS    2e9 /* idle time assumed per worker before its first work */
#define PRIOR_NS   2e9 /* work at the initial rate added per worker as a prior */

struct kvw_admission *kvw_admission_create(size_t programs)
{
	struct kvw_admission *admission = aligned_alloc(64, sizeof(*admission));

	if (admission == NULL)
		return NULL;
	memset(admission, 0, sizeof(*admission));
	atomic_init(&admission->done_per_ns, FIRST_RATE);
	if (programs == 0)
		return admission;
	admission->programs = kvw_programs_create(programs);
	if (admission->programs == NULL) {
		free(admission);
		return NULL;
	}
	return admission;
}

void kvw_admission_destroy(struct kvw_admission *admission)
{
	if (admission == NULL)
		return;
	kvw_programs_destroy(admission->programs);
	free(admission);
}

/* Adds the last dt_ns to the sums. */
static void sum_up(struct kvw_admission *admission, size_t slots, size_t workers, int64_t dt_ns,
	int64_t now_ns)
{
	double left = exp(-(double)dt_ns / FADE_NS);
	int64_t done = atomic_exchange_explicit(&admission->done_ns, 0, memory_order_relaxed);
	size_t busy = 0;
	double own = 0;
	double prior = PRIOR_NS * (double)(workers > 0 ? workers : 1);
	double rate = 0;

	if (dt_ns > LONG_NS)
		return;
	for (size_t w = 0; w < slots; w++)
		if (kvw_pace_busy(&admission->paces[w], now_ns)) {
			busy++;
			own += kvw_pace_own_share(&admission->paces[w]);
		}
	admission->work_sum = admission->work_sum * left + (double)done;
	admission->busy_sum = admission->busy_sum * left + (double)dt_ns * (double)busy;
	admission->own_sum = admission->own_sum * left + (double)dt_ns * own;
	admission->time_sum = admission->time_sum * left + (double)dt_ns * (double)workers;
	if (admission->time_sum > 0)
		atomic_store_explicit(&admission->busy_share,
			(float)(admission->busy_sum /
				(admission->time_sum + IDLE_NS * (double)workers)),
			memory_order_relaxed);
	rate = (admission->work_sum + prior * (double)FIRST_RATE) / (admission->own_sum + prior);
	rate = rate < LEAST_RATE ? LEAST_RATE : rate > MOST_RATE ? MOST_RATE : rate;
	atomic_store_explicit(&admission->done_per_ns, (float)rate, memory_order_relaxed);
}

void kvw_admission_look(
	struct kvw_admission *admission, size_t slots, size_t workers, int64_t now_ns)
{
	int64_t last = atomic_load_explicit(&admission->looked_ns, memory_order_relaxed);

	if (now_ns - last < LOOK_NS ||
		atomic_exchange_explicit(&admission->looking, true, memory_order_acquire))
		return;
	last = atomic_load_explicit(&admission->looked_ns, memory_order_relaxed);
	if (now_ns - last >= LOOK_NS) {
		sum_up(admission, slots, workers, now_ns - last, now_ns);
		atomic_store_explicit(&admission->looked_ns, now_ns, memory_order_relaxed);
	}
	atomic_store_explicit(&admission->looking, false, memory_order_release);
}

struct kvw_admission_work kvw_admission_own(const struct kvw_admission *admission)
{
	return (struct kvw_admission_work){
		atomic_load_explicit(&admission->waiting_ns, memory_order_relaxed),
		atomic_load_explicit(&admission->first_waiting_ns, memory_order_relaxed),
		atomic_load_explicit(&admission->offered_per_s, memory_order_relaxed)};
}

void kvw_admission_set_peers(
	struct kvw_admission *admission, const struct kvw_admission_work *peers)
{
	atomic_store_explicit(
		&admission->peers_waiting_ns, peers->waiting_ns, memory_order_relaxed);
	atomic_store_explicit(
		&admission->peers_first_waiting_ns, peers->first_waiting_ns, memory_order_relaxed);
	atomic_store_explicit(
		&admission->peers_offered_per_s, peers->offered_per_s, memory_order_relaxed);
}

int64_t kvw_admission_deadline_ns(struct kvw_slice text)
{
	int64_t ms = 0;

	if (text.len == 0 || text.len > 9)
		return 0;
	for (size_t i = 0; i < text.len; i++) {
		if (text.data[i] < '0' || text.data[i] > '9')
			return 0;
		ms = ms * 10 + (text.data[i] - '0');
	}
	return ms == 0 ? 1 : ms * 1000000;
}

void kvw_admission_left(struct kvw_admission *admission, uint32_t worker)
{
	struct kvw_pace *pace = &admission->paces[worker];

	atomic_store_explicit(&pace->behind_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&pace->unanswered, 0, memory_order_relaxed);
	atomic_store_explicit(&pace->answering, 0, memory_order_relaxed);
	atomic_store_explicit(&pace->undone_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&pace->shown, 0, memory_order_relaxed);
	kvw_pace_set_peers(pace, 0, 0, 0);
}
