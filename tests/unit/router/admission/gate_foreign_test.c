/*
 * gate_foreign_test.c - what a gate makes of requests that others send to workers directly.
 */
#include "gate_scene.h"

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
