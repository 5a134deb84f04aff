/*
 * gate_foreign_test.c - what a gate makes of requests that others send to workers directly.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "admission/gate.h"
#include "tests/unit/suite.h"

#define MS      INT64_C(1000000)
#define SECOND  INT64_C(1000000000)
#define BEGIN   (10 * SECOND)
#define WORKERS 3
#define MANY    2

/* A request, with what its prefill takes on any worker. */
struct request {
	struct kvw_entrant e; /* first */
	int64_t prefill_ns;
	int seen; /* how often it was sent, refused or left */
};

static struct kvw_admission *admission;
static struct kvw_gate gate;
static struct kvw_load loads[WORKERS];
static struct kvw_candidate items[WORKERS];
static struct kvw_candidates set;
static struct request requests[MANY];

static void setup(void)
{
	admission = kvw_admission_create(64);
	ck_assert_ptr_nonnull(admission);
	kvw_gate_init(&gate, admission);
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

static enum kvw_next next(struct kvw_entrant **out, int64_t now_ns)
{
	return kvw_gate_next(&gate, now_ns, judge, NULL, out);
}

static void relieve(uint32_t worker, int64_t now_ns)
{
	kvw_pace_ended(&admission->paces[worker], 0, false, false);
	set_queue(worker, now_ns);
}

/* Others ask a worker directly, so that its own queue is long. */
static void intrude(uint32_t worker, int64_t ns, int64_t now_ns)
{
	kvw_load_set_foreign(&loads[worker], 5, 3, ns, now_ns);
}

START_TEST(a_worker_whose_own_queue_is_long_gets_no_more)
{
	struct kvw_entrant *out = NULL;
	struct kvw_entrant promised = {.promise = {.ttft_ns = SECOND}, .wait.came_ns = BEGIN};

	atomic_store(&admission->done_per_ns, 1.0f);
	intrude(0, 5 * SECOND, BEGIN);
	ck_assert(!kvw_gate_open(&gate, &promised, &set, BEGIN));
	(void)come(0, 0, 100 * MS, 0, BEGIN);
	ck_assert_int_eq(requests[0].e.wait_ns, 4 * SECOND); /* but for the second that it may have ahead */
	ck_assert_int_eq(next(&out, BEGIN + 3 * SECOND), KVW_NOTHING);
	/* They go on coming: those behind it do not keep it out. */
	intrude(0, 5 * SECOND, BEGIN + 3 * SECOND);
	ck_assert_int_eq(next(&out, BEGIN + 3900 * MS), KVW_NOTHING);
	ck_assert_int_eq(next(&out, BEGIN + 4100 * MS), KVW_SEND);
	pass(out, BEGIN + 4100 * MS);
	kvw_gate_ended(&gate, out, BEGIN + 4200 * MS);
	/* None is there any more. */
	intrude(0, 0, BEGIN + 5 * SECOND);
	relieve(0, BEGIN + 5 * SECOND);
	promised.wait.came_ns = BEGIN + 5 * SECOND;
	ck_assert(kvw_gate_open(&gate, &promised, &set, BEGIN + 5 * SECOND));
}
END_TEST

START_TEST(another_worker_is_chosen_than_one_that_others_use)
{
	struct kvw_entrant *out = NULL;

	set.count = WORKERS;
	intrude(0, 5 * SECOND, BEGIN);
	kvw_load_set_foreign(&loads[1], 0, 9, 0, BEGIN); /* it answers them */
	(void)come(0, 0, 100 * MS, 2 * SECOND, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN), KVW_SEND);
	ck_assert_uint_eq(out->wait.worker, 2);
	pass(out, BEGIN);
}
END_TEST

START_TEST(refused_where_others_keep_all_workers)
{
	struct kvw_entrant *out = NULL;

	set.count = 2;
	intrude(0, 20 * SECOND, BEGIN);
	(void)come(0, 0, 100 * MS, 3 * SECOND, BEGIN);
	ck_assert_int_eq(next(&out, BEGIN + SECOND), KVW_SEND);
	pass(out, BEGIN + SECOND);
	intrude(1, 20 * SECOND, BEGIN + SECOND);
	(void)come(1, 0, 100 * MS, 3 * SECOND, BEGIN + SECOND);
	ck_assert_int_eq(next(&out, BEGIN + 2 * SECOND), KVW_NOTHING);
	ck_assert_int_eq(next(&out, BEGIN + 4 * SECOND), KVW_REFUSE);
	ck_assert_int_eq(out->refusal, KVW_REFUSED_SERVICE_LEVEL);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("gate foreign");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_worker_whose_own_queue_is_long_gets_no_more);
	tcase_add_test(tcase, another_worker_is_chosen_than_one_that_others_use);
	tcase_add_test(tcase, refused_where_others_keep_all_workers);
	return run_tcase("admission gate and foreign requests", tcase);
}
