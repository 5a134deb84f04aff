/*
 * admission_bounded.c - so many requests at the workers, the next ones in a queue with a timeout.
 *
 * First come, first served. A request that finds the queue full is refused at once, one that has
 * waited for the timeout is refused then. This is the concurrency bound of vllm-router and SGLang's
 * gateway, as documented, llm-d's concurrency detector, and maxconn with a queue of HAProxy or
 * max_conns of nginx. Where a server is bounded, the bound here is that of all together: in front of a
 * policy that sends to the least busy one that is the same. None of them says when a refused client
 * may come back.
 */
#include "bench/load/mem.h"
#include "bench/replay/replay_admission.h"

#include <stdlib.h>

#define ENDLESS UINT32_MAX

/* Bounds, with the place of their publication; the parameter in admissions.def is a row's
 * number. */
static const struct bounds {
	/* most requests at all workers together; 0: `each` times the number of workers */
	uint32_t total;
	uint32_t each;
	uint32_t queue; /* waiting */
	int64_t timeout_ns;
} rows[] = {
	{32768, 0, 100, INT64_C(60000000000)}, /* vllm-router */
	{256, 0, 100, INT64_C(60000000000)},   /* SGLang's gateway */
	{0, 16, ENDLESS, INT64_C(5000000000)}, /* HAProxy, nginx */
	/* HAProxy, with the best of several bounds for the recorded trace */
	{0, 16, ENDLESS, INT64_C(1200000000)},
};

/* A waiting request. */
struct entry {
	uint32_t job;
	int64_t came_ns;
};

struct gate {
	struct bounds bounds;
	struct entry *entries; /* a ring with room for all jobs, oldest first */
	uint32_t room, first, count;
	uint32_t inflight, limit;
};

static void *create(const struct kvb_admission_env *env)
{
	struct gate *gate = kvb_alloc(1, sizeof(*gate));

	gate->bounds = rows[(size_t)env->param];
	gate->limit = gate->bounds.total > 0 ? gate->bounds.total
					     : gate->bounds.each * env->fleet->options.workers;
	gate->room = (uint32_t)env->fleet->jobs->count;
	gate->entries = kvb_alloc(gate->room, sizeof(gate->entries[0]));
	return gate;
}

static struct entry *entry_at(struct gate *gate, uint32_t i)
{
	return &gate->entries[(gate->first + i) % gate->room];
}

static void arrive(void *self, uint32_t job, int64_t now_ns)
{
	struct gate *gate = self;

	*entry_at(gate, gate->count++) = (struct entry){job, now_ns};
}

static uint32_t take_oldest(struct gate *gate)
{
	uint32_t job = entry_at(gate, 0)->job;

	gate->first = (gate->first + 1) % gate->room;
	gate->count--;
	return job;
}

static enum kvb_word next(void *self, int64_t now_ns, struct kvb_admission_answer *out)
{
	struct gate *gate = self;

	if (gate->count == 0)
		return KVB_NOTHING;
	if (now_ns - entry_at(gate, 0)->came_ns >= gate->bounds.timeout_ns) {
		out->job = take_oldest(gate);
		return KVB_REFUSE;
	}
	if (gate->inflight < gate->limit) {
		out->job = take_oldest(gate);
		gate->inflight++;
		return KVB_SEND;
	}
	if (gate->count > gate->bounds.queue) {
		out->job = entry_at(gate, --gate->count)->job;
		return KVB_REFUSE;
	}
	return KVB_NOTHING;
}

static int64_t wake_ns(void *self, int64_t now_ns)
{
	struct gate *gate = self;

	(void)now_ns;
	return gate->count > 0 ? entry_at(gate, 0)->came_ns + gate->bounds.timeout_ns : INT64_MAX;
}

static void token(void *self, uint32_t job, bool first, bool last, int64_t now_ns)
{
	(void)job;
	(void)first;
	(void)now_ns;
	((struct gate *)self)->inflight -= last;
}

static void destroy(void *self)
{
	free(((struct gate *)self)->entries);
	free(self);
}

const struct kvb_admission_ops kvb_admission_bounded_ops = {.create = create,
	.arrive = arrive,
	.next = next,
	.wake_ns = wake_ns,
	.token = token,
	.destroy = destroy};
