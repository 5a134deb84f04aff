/*
 * wakes_test.c - which models may be woken, and how many requests wait for each.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/wake/wakes.h"
#include "tests/unit/suite.h"

static struct kvw_wakes *wakes;
static char name_a[] = "a", name_b[] = "b", name_c[] = "c";
static char *a[] = {name_a}, *b[] = {name_b, name_c};

static void setup(void)
{
	ck_assert_int_eq(kvw_wakes_create(&wakes), KVW_OK);
}

static void teardown(void)
{
	kvw_wakes_destroy(wakes);
}

static struct kvw_wake_model *find(const struct kvw_config *config, const char *name)
{
	return kvw_wakes_find(wakes, config, kvw_slice_of(name));
}

START_TEST(known_is_what_is_named_or_was_served)
{
	struct kvw_pool_config pools[] = {{.models = {.items = a, .count = 1}}};
	struct kvw_config config = {.discovery_wake_models = {.items = b, .count = 2}}, none = {0};
	struct kvw_wake_model *model;

	ck_assert(!kvw_wakes_any(wakes, &none) && kvw_wakes_any(wakes, &config));
	ck_assert_ptr_null(find(&config, "a"));
	model = find(&config, "c");
	ck_assert_str_eq(model->name, "c");
	ck_assert_ptr_eq(find(&config, "c"), model);
	ck_assert_ptr_null(find(&none, "c")); /* a reload has taken its name out */
	config.pools = pools;
	config.pool_count = 1;
	ck_assert_ptr_nonnull(find(&config, "a"));
	kvw_wakes_served(wakes, "c");
	ck_assert_ptr_eq(find(&none, "c"), model);
	ck_assert_ptr_null(find(&none, "d"));
}
END_TEST

START_TEST(no_more_are_remembered_than_there_is_room_for)
{
	const struct kvw_config none = {0};
	char name[32];

	for (int i = 0; i <= KVW_WAKE_MODELS_MOST; i++) {
		snprintf(name, sizeof(name), "adapter-%d", i);
		kvw_wakes_served(wakes, name);
		ck_assert((find(&none, name) != NULL) == (i < KVW_WAKE_MODELS_MOST));
	}
	ck_assert_str_eq(find(&none, "adapter-0")->name, "adapter-0");
	ck_assert_str_eq(find(&none, "adapter-65535")->name, "adapter-65535");
}
END_TEST

START_TEST(pools_of_a_model_are_those_that_name_it_or_else_those_that_name_none)
{
	struct kvw_pool_config pools[] = {
		{.models = {.items = a, .count = 1}}, {.models = {.items = NULL}}, {.models = {.items = b, .count = 2}}};
	const struct kvw_config config = {.pools = pools, .pool_count = 3};

	for (size_t i = 0; i < 3; i++) {
		ck_assert_int_eq(kvw_wakes_pool_serves(&config, i, "a"), i == 0);
		ck_assert_int_eq(kvw_wakes_pool_serves(&config, i, "c"), i == 2);
		ck_assert_int_eq(kvw_wakes_pool_serves(&config, i, "other"), i == 1);
	}
}
END_TEST

START_TEST(what_waits_is_counted)
{
	const struct kvw_config config = {.discovery_wake_models = {.items = b, .count = 2}};
	struct kvw_wake_model *first = find(&config, "b"), *second = find(&config, "c");

	kvw_wakes_hold(first);
	kvw_wakes_hold(first);
	kvw_wakes_hold(second);
	ck_assert_uint_eq(kvw_wakes_held(wakes), 3);
	kvw_wakes_release(wakes, first, KVW_WAKE_WOKEN, 5);
	kvw_wakes_release(wakes, second, KVW_WAKE_LEFT, 7);
	ck_assert_uint_eq(kvw_wakes_held(wakes), 1);
	ck_assert_uint_eq(first->held, 1);
	ck_assert_uint_eq(wakes->held_ns, 12);
	ck_assert(first->wanted && second->wanted);
	first->wanted = second->wanted = false;
	second->asleep_ns = 1;
	kvw_wakes_hold(second); /* it is being woken already */
	kvw_wakes_release(wakes, second, KVW_WAKE_LEFT, 0);
	ck_assert(!second->wanted);
	kvw_wakes_refuse(wakes, second);
	ck_assert(second->wanted && second->held == 0);
	ck_assert_uint_eq(wakes->results[KVW_WAKE_REFUSED], 1);
}
END_TEST

/* Requests wait no longer than hold, so a waking that takes longer was in vain. */
START_TEST(a_waking_is_stuck_after_a_failure_or_hold)
{
	const struct kvw_config config = {.discovery_wake_models = {.items = b, .count = 2}};
	struct kvw_wake_model *first = find(&config, "b"), *second = find(&config, "c");

	ck_assert_ptr_null(kvw_wakes_stuck(wakes, 1000, INT64_C(5000000000)));
	second->asleep_ns = INT64_C(4000000000);
	ck_assert_ptr_null(kvw_wakes_stuck(wakes, 1000, INT64_C(5000000000)));
	ck_assert_ptr_eq(kvw_wakes_stuck(wakes, 1000, INT64_C(5000000001)), second);
	second->asleep_ns = 0;
	first->failed = true;
	ck_assert_ptr_eq(kvw_wakes_stuck(wakes, 1000, INT64_C(5000000000)), first);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("wakes");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, known_is_what_is_named_or_was_served);
	tcase_add_test(tests, no_more_are_remembered_than_there_is_room_for);
	tcase_add_test(tests, pools_of_a_model_are_those_that_name_it_or_else_those_that_name_none);
	tcase_add_test(tests, what_waits_is_counted);
	tcase_add_test(tests, a_waking_is_stuck_after_a_failure_or_hold);
	return run_tcase("wakes", tests);
}
