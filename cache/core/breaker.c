/*
 * breaker.c - decides whether a tier is used after failures; breaker.h has the states.
 */
#include "core/breaker.h"

#include "base/random.h"

#define JITTER_PART 8

void kvt_breaker_init(struct kvt_breaker *b, const struct kvt_config *config, uint64_t seed)
{
	*b = (struct kvt_breaker){
		.limit = config->breaker_failures,
		.open_ns = config->breaker_open_ns,
		.open_max_ns = config->breaker_open_max_ns,
		.seed = seed,
	};
}

static void become(struct kvt_breaker *b, enum kvt_breaker_state state)
{
	atomic_store_explicit(&b->state, state, memory_order_relaxed);
	b->failures = 0;
	b->round++;
}

static void trip(struct kvt_breaker *b, int64_t now_ns)
{
	uint64_t pause_ns = b->pause_ns == 0 ? b->open_ns : b->pause_ns * 2;

	b->pause_ns = pause_ns < b->open_max_ns ? pause_ns : b->open_max_ns;
	b->until_ns = now_ns + (int64_t)b->pause_ns +
		      (int64_t)(kvw_random(&b->seed) % (b->pause_ns / JITTER_PART + 1));
	atomic_fetch_add_explicit(&b->trips, 1, memory_order_relaxed);
	become(b, KVT_BREAKER_OPEN);
}

void kvt_breaker_begin(struct kvt_breaker *b, struct kvt_job *job)
{
	job->probe = b->state == KVT_BREAKER_HALF;
	if (job->probe)
		become(b, KVT_BREAKER_PROBING);
	job->round = b->round;
}

bool kvt_breaker_end(
	struct kvt_breaker *b, const struct kvt_job *job, enum kvt_outcome outcome, int64_t now_ns)
{
	if (job->round != b->round)
		return false;
	switch (outcome) {
	case KVT_OUTCOME_GOOD:
		b->failures = 0;
		if (job->probe) {
			b->pause_ns = 0;
			become(b, KVT_BREAKER_CLOSED);
		}
		return false;
	case KVT_OUTCOME_BAD:
		if (!job->probe && ++b->failures < b->limit)
			return false;
		trip(b, now_ns);
		return true;
	case KVT_OUTCOME_NONE:
		if (job->probe)
			become(b, KVT_BREAKER_HALF);
		return false;
	}
	return false;
}

bool kvt_breaker_tick(struct kvt_breaker *b, int64_t now_ns, int64_t *next_ns)
{
	if (b->state != KVT_BREAKER_OPEN)
		return false;
	if (now_ns >= b->until_ns) {
		become(b, KVT_BREAKER_HALF);
		return true;
	}
	if (b->until_ns < *next_ns)
		*next_ns = b->until_ns;
	return false;
}
