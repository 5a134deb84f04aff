/*
 * gate_scene.h - a gate before three workers, one of which is used unless a test says otherwise, and requests that come to it.
 * Several programs of tests include it.
 */
#ifndef KVW_TEST_GATE_SCENE_H
#define KVW_TEST_GATE_SCENE_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "admission/gate.h"
#include "tests/unit/suite.h"

#define MS      INT64_C(1000000)
#define SECOND  INT64_C(1000000000)
#define BEGIN   (10 * SECOND)
#define WORKERS 3
#define MANY    2000

/* A request, with what its prefill takes on any worker. */
struct request {
	struct kvw_entrant e; /* first */
	int64_t prefill_ns;
	int seen; /* how often it was sent, refused or left */
};

static struct kvw_admission *admission;
static struct kvw_gate gate;
static struct kvw_outlooks outlooks;
static struct kvw_load loads[WORKERS];
static struct kvw_candidate items[WORKERS];
static struct kvw_candidates set;
static struct request requests[MANY];

static void setup(void)
{
	admission = kvw_admission_create(64);
	ck_assert_ptr_nonnull(admission);
	kvw_gate_init(&gate, admission, &outlooks);
	gate.terms = (struct kvw_gate_terms){30 * SECOND, SECOND};
	for (uint32_t i = 0; i < WORKERS; i++) {
		kvw_load_init(&loads[i]);
		items[i] = (struct kvw_candidate){.id = i, .load = &loads[i], .usable = true, .share = 1};
	}
	set = (struct kvw_candidates){.items = items, .count = 1};
	memset(requests, 0, sizeof(requests));
}

static void teardown(void)
{
	kvw_gate_finish(&gate);
	ck_assert_int_eq(admission->waiting_ns, 0);
	ck_assert_int_eq(admission->offered_per_s, 0);
	kvw_admission_destroy(admission);
}

static void set_queue(size_t worker, int64_t idle_at_ns)
{
	atomic_store(&loads[worker].seen->idle_at_ns, idle_at_ns);
}

static bool judge(void *user, struct kvw_entrant *e, int64_t now_ns)
{
	const struct request *r = (const struct request *)e;
	struct kvw_cost costs[WORKERS] = {0};
	struct kvw_decision wish = {0};

	(void)user;
	for (size_t i = 0; i < set.count; i++) {
		costs[i].verdict = items[i].usable ? KVW_VERDICT_COSTS_MORE : KVW_VERDICT_UNUSABLE;
		costs[i].prefill_ns = (double)r->prefill_ns;
		costs[i].queue_ns = (double)kvw_load_queue_ns(&loads[i], now_ns);
		costs[i].total_ns = costs[i].prefill_ns + costs[i].queue_ns + 1;
		if (costs[i].total_ns < costs[wish.pos].total_ns)
			wish.pos = i;
	}
	return kvw_gate_judge(&gate, e, &set, costs, &wish, now_ns);
}

/* Comes, is judged and waits. */
static struct kvw_entrant *come(size_t i, uint8_t class, int64_t prefill_ns, int64_t ttft_ns, int64_t now_ns)
{
	struct request *r = &requests[i];

	r->prefill_ns = prefill_ns;
	r->e.wait.class = class;
	r->e.wait.came_ns = now_ns;
	r->e.promise = (struct kvw_promise){ttft_ns, 0, ttft_ns > 0 ? 100 * MS : 0};
	ck_assert(judge(NULL, &r->e, now_ns));
	ck_assert_int_eq(kvw_gate_wait(&gate, &r->e, now_ns), KVW_OK);
	return &r->e;
}

static void pass(struct kvw_entrant *e, int64_t now_ns)
{
	struct kvw_decision decision = {.worker_id = e->wait.worker,
		.prefill_ns = ((struct request *)e)->prefill_ns,
		.queue_ns = kvw_load_queue_ns(&loads[e->wait.worker], now_ns)};

	kvw_gate_passed(&gate, e, &decision, now_ns);
	set_queue(e->wait.worker, now_ns + decision.queue_ns + decision.prefill_ns);
}

static inline enum kvw_next next(struct kvw_entrant **out, int64_t now_ns)
{
	return kvw_gate_next(&gate, now_ns, judge, NULL, out);
}

static inline void relieve(uint32_t worker, int64_t now_ns)
{
	kvw_pace_ended(&admission->paces[worker], 0, false, false);
	set_queue(worker, now_ns);
}

#endif
