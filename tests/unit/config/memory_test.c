/*
 * memory_test.c - the loader when memory runs out at any point: an error, nothing left behind.
 *
 * The linker sends this program's calls of malloc, calloc and free, and the loader's of libyaml,
 * through counting_allocator.h (-Wl,--wrap). Each run lets one allocation more succeed than the run
 * before, until a load goes through. Blocks are counted, so a leak shows without a sanitizer.
 */
#include <yaml.h>

#include "helpers.h"
#include "config/diff.h"
#include "config/stack_flags.h"
#include "tests/unit/counting_allocator.h"
#include "tests/unit/suite.h"

static const char right[] = "listen: 0.0.0.0:1\n"
			    "intelligentRoutingSpec: {enabled: true, routingStrategy: session}\n"
			    "routing:\n"
			    "  session:\n"
			    "    headers: [a, b, c]\n"
			    "admission: {classes: [c], default_class: c}\n"
			    "service_levels: [{model: m, ttft: 1s}, {class: c, tpot: 1ms}]\n"
			    "rate_limits: [{tenant: t, concurrent: 1}, {model: m, burst: 1s, tokens_per_day: 9}]\n"
			    "discovery: {kubernetes: {pools: [{service: s}, {selector: a, port: 1}]}}\n"
			    "workers:\n"
			    "  - url: http://a:1\n"
			    "    models: [x, y]\n"
			    "    api_key: k\n"
			    "  - url: http://b:1\n";

static const char wrong[] = "lisen: a\n"
			    "loops: many\n"
			    "routing:\n"
			    "  session:\n"
			    "    headers: [a, \"\", b c]\n"
			    "    body_fields: [a, \"\"]\n"
			    "admission: {default_class: c}\n"
			    "rate_limits: [t, {tenant: t}, {model: x, model: y, concurrent: 1}, {tenant: [], rpm: 1}]\n"
			    "service_levels: [m, {model: m}, {class: c, tpot: 1s}, {model: 1, ttft: x}]\n"
			    "workers:\n"
			    "  - url: http://a:1\n"
			    "    models: [x, [y]]\n"
			    "  - url: http://a:1\n"
			    "  - nothing\n"
			    "intelligentRoutingSpec: {enabled: true, routingStrategy: session, no: 1}\n";

enum source { FROM_FILE, FROM_FLAGS, FROM_STACK_FLAGS };

static enum kvw_err load_once(
	enum source source, const char *text, FILE *errors, struct kvw_config **config)
{
	const char *const workers[] = {"http://a:1", "http://b:1"};
	const struct kvw_config_flags flags = {
		.listen = "0.0.0.0:1", .workers = workers, .worker_count = 2};

	struct kvw_stack_given stack[3];
	const struct kvw_config_flags stack_flags = {.stack = stack, .stack_count = 3};

	if (source == FROM_STACK_FLAGS) {
		for (size_t i = 0; i < KVW_STACK_FLAG_COUNT; i++) {
			if (kvw_stack_flags[i].use == KVW_STACK_BACKENDS)
				stack[0] = (struct kvw_stack_given){i, "http://a:1,http://b:1,http://a:1"};
			if (kvw_stack_flags[i].use == KVW_STACK_MODELS)
				stack[1] = (struct kvw_stack_given){i, "m,n,o"};
			if (kvw_stack_flags[i].use == KVW_STACK_LIST)
				stack[2] = (struct kvw_stack_given){i, "x-user-id"};
		}
		return kvw_config_from_flags(&stack_flags, test_strategies, errors, config);
	}
	if (source == FROM_FILE)
		return kvw_config_parse(
			"t.yaml", text, strlen(text), test_strategies, errors, config);
	return kvw_config_from_flags(&flags, test_strategies, errors, config);
}

/* Fails the first allocation, the second, ... Returns how many had to succeed. */
static long starve(enum source source, const char *text, enum kvw_err in_the_end)
{
	FILE *errors = fopen("/dev/null", "w");
	enum kvw_err err = KVW_ENOMEM;
	long needed = -1;

	ck_assert_ptr_nonnull(errors);
	while (err == KVW_ENOMEM) {
		struct kvw_config *config = NULL;
		bool untouched;

		ck_assert_int_lt(++needed, 10000);
		allowed = needed;
		live = 0;
		counting = true;
		err = load_once(source, text, errors, &config);
		untouched = err == KVW_OK || config == NULL;
		kvw_config_destroy(config);
		counting = false; /* Check allocates too */
		ck_assert(untouched);
		ck_assert_msg(live == 0, "%ld blocks left after %ld allocations", live, needed);
	}
	ck_assert_int_eq(err, in_the_end);
	fclose(errors);
	return needed;
}

START_TEST(test_right_file)
{
	ck_assert_int_gt(starve(FROM_FILE, right, KVW_OK), 60);
}
END_TEST

START_TEST(test_wrong_file)
{
	ck_assert_int_gt(starve(FROM_FILE, wrong, KVW_EINVAL), 40);
}
END_TEST

START_TEST(test_broken_file)
{
	ck_assert_int_gt(starve(FROM_FILE, "loops: [1, 2\nlisten: a:1\n", KVW_EINVAL), 4);
}
END_TEST

START_TEST(test_flags)
{
	ck_assert_int_gt(starve(FROM_FLAGS, NULL, KVW_OK), 30);
}
END_TEST

static const char changed[] = "listen: 0.0.0.0:2\n"
			      "log: {access: stdout}\n"
			      "routing: {session: {headers: [d]}}\n"
			      "service_levels: [{model: m, ttft: 2s}]\n"
			      "rate_limits: [{tenant: t, concurrent: 2}]\n"
			      "discovery: {kubernetes: {pools: [{service: t, models: [a]}]}}\n"
			      "workers:\n"
			      "  - url: http://a:1\n"
			      "    models: [x, z]\n"
			      "  - url: http://c:1\n";

/* The diff of two, and what a reload keeps of the first. */
START_TEST(test_diff)
{
	enum kvw_err err = KVW_ENOMEM;
	FILE *errors = fopen("/dev/null", "w");
	long needed = -1;

	ck_assert_ptr_nonnull(errors);
	while (err == KVW_ENOMEM) {
		struct kvw_config *before = NULL, *after = NULL;
		struct kvw_config_diff *diff = NULL;

		ck_assert_int_lt(++needed, 10000);
		allowed = -1;
		live = 0;
		counting = true;
		ck_assert_int_eq(load_once(FROM_FILE, right, errors, &before), KVW_OK);
		ck_assert_int_eq(load_once(FROM_FILE, changed, errors, &after), KVW_OK);
		allowed = needed;
		err = kvw_config_diff(before, after, test_strategies, &diff);
		if (err == KVW_OK)
			err = kvw_config_take_restart_keys(before, after, test_strategies);
		kvw_config_diff_destroy(diff);
		kvw_config_destroy(before);
		kvw_config_destroy(after);
		counting = false;
		ck_assert_msg(live == 0, "%ld blocks left after %ld allocations", live, needed);
	}
	ck_assert_int_eq(err, KVW_OK);
	ck_assert_int_gt(needed, 30);
	fclose(errors);
}
END_TEST

START_TEST(test_stack_flags)
{
	ck_assert_int_gt(starve(FROM_STACK_FLAGS, NULL, KVW_OK), 40);
}
END_TEST

START_TEST(test_file_buffer)
{
	struct kvw_config *config = NULL;
	FILE *errors = fopen("/dev/null", "w");
	enum kvw_err err;

	allowed = 0;
	live = 0;
	counting = true;
	err = kvw_config_load("/dev/null", test_strategies, errors, &config);
	counting = false;
	ck_assert_int_eq(err, KVW_ENOMEM);
	ck_assert_int_eq(live, 0);
	fclose(errors);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("memory");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_right_file);
	tcase_add_test(tc, test_wrong_file);
	tcase_add_test(tc, test_broken_file);
	tcase_add_test(tc, test_flags);
	tcase_add_test(tc, test_diff);
	tcase_add_test(tc, test_stack_flags);
	tcase_add_test(tc, test_file_buffer);
	return run_tcase("config memory", tc);
}
