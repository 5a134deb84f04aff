/*
 * meter.c - measures the rate at which a tier moves bytes; meter.h describes how.
 */
#include "core/meter.h"

#define SAMPLE_NS     10000000 /* a piece of a busy time */
#define STALE_NS      10000000000
#define SECOND_NS     1000000000.0
#define SAMPLE_WEIGHT 0.25

static void sample(struct kvt_meter *m, int64_t elapsed_ns)
{
	double old = (double)atomic_load_explicit(&m->rate, memory_order_relaxed);
	double seen = (double)m->moved * SECOND_NS / (double)elapsed_ns;
	double next = old == 0 ? seen : old + (seen - old) * SAMPLE_WEIGHT;

	atomic_store_explicit(&m->rate, next < 1 ? 1 : (uint64_t)next, memory_order_relaxed);
}

void kvt_meter_begin(struct kvt_meter *m, uint64_t bytes, int64_t now_ns)
{
	if (atomic_fetch_add_explicit(&m->queued, bytes, memory_order_relaxed) == 0) {
		m->window_ns = now_ns;
		m->moved = 0;
	}
}

void kvt_meter_end(struct kvt_meter *m, uint64_t bytes, bool moved, int64_t now_ns)
{
	uint64_t left = atomic_fetch_sub_explicit(&m->queued, bytes, memory_order_relaxed) - bytes;
	int64_t elapsed_ns = now_ns - m->window_ns;

	if (moved) {
		m->moved += bytes;
		atomic_store_explicit(&m->asked_ns, now_ns, memory_order_relaxed);
	}
	if (left != 0 && elapsed_ns < SAMPLE_NS)
		return;
	if (m->moved != 0 && elapsed_ns > 0)
		sample(m, elapsed_ns);
	m->window_ns = now_ns;
	m->moved = 0;
}

bool kvt_meter_look_again(struct kvt_meter *m, int64_t now_ns)
{
	int64_t asked_ns = atomic_load_explicit(&m->asked_ns, memory_order_relaxed);

	return now_ns - asked_ns > STALE_NS &&
	       atomic_compare_exchange_strong_explicit(
		       &m->asked_ns, &asked_ns, now_ns, memory_order_relaxed, memory_order_relaxed);
}
