/*
 * gates_test.c - a loop's gates: one for each model that was asked for lately, small, and given back.
 */
#include <stdlib.h>

#include "proxy/gates.h"
#include "loop_fixture.h"
#include "tests/unit/suite.h"

#define MODELS 1000

static struct loop_fixture f;
static struct kvw_model models[MODELS];

static void setup(void)
{
	loop_fixture_init(&f);
	for (uint32_t i = 0; i < MODELS; i++)
		models[i].index = i;
}

static void teardown(void)
{
	loop_fixture_finish(&f);
}

static size_t gates(void)
{
	size_t count = 0;

	for (size_t i = 0; i < f.loop.gates.room; i++)
		count += f.loop.gates.items[i] != NULL;
	return count;
}

START_TEST(gates_of_models_that_are_no_longer_asked_for_are_given_back)
{
	struct kvw_exchange *one = calloc(1, sizeof(*one));

	one->loop = &f.loop;
	for (size_t i = 0; i < MODELS; i++) {
		one->model = &models[i];
		ck_assert(kvw_gates_enter(one)); /* and leaves the one before */
	}
	ck_assert_uint_eq(gates(), MODELS);
	f.loop.now_ns += KVW_GATES_IDLE_NS;
	kvw_gates_shed(&f.loop);
	ck_assert_uint_eq(gates(), MODELS);
	f.loop.now_ns++;
	kvw_gates_shed(&f.loop);
	ck_assert_uint_eq(gates(), 1); /* a request that has not ended knows it */
	ck_assert_ptr_nonnull(one->admission.gate);
	kvw_gates_exit(one);
	ck_assert_ptr_null(one->admission.gate);
	kvw_gates_shed(&f.loop);
	ck_assert_uint_eq(gates(), 0);
	ck_assert(kvw_gates_enter(one)); /* a new one */
	kvw_gates_exit(one);
	free(one);
}
END_TEST

START_TEST(a_model_with_the_index_of_one_that_was_forgotten_has_a_gate_of_its_own)
{
	struct kvw_model before = {.index = 7, .serial = 8}, after = {.index = 7, .serial = 9};
	struct kvw_exchange *one = calloc(1, sizeof(*one));

	one->loop = &f.loop;
	one->model = &before;
	ck_assert(kvw_gates_enter(one));
	kvw_gates_exit(one);
	one->model = &after;
	ck_assert(kvw_gates_enter(one));
	ck_assert_uint_eq(one->admission.gate->of, 9);
	ck_assert_uint_eq(one->admission.gate->users, 1);
	kvw_gates_exit(one);
	free(one);
}
END_TEST

START_TEST(a_gate_is_small)
{
	ck_assert_uint_le(sizeof(struct kvw_gate), 10000); /* there is one for each model and loop */
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("gates");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, gates_of_models_that_are_no_longer_asked_for_are_given_back);
	tcase_add_test(tcase, a_model_with_the_index_of_one_that_was_forgotten_has_a_gate_of_its_own);
	tcase_add_test(tcase, a_gate_is_small);
	return run_tcase("proxy-gates", tcase);
}
