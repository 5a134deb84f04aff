/*
 * power_test.c - the store after a kill or a loss of power at any moment of random work.
 *
 * Without arguments a short run, as a unit test. By command as long as wanted:
 *     kvt_nvme_power_test --histories 10000 [--seed 1] [--steps 60] [--capacity BYTES] [--keys FILE]
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "history.h"
#include "tests/unit/steps.h"
#include "tests/unit/suite.h"

#define CRASHES 20
#define ALL     (KVT_TEST_SHARE > 1 ? 100 : 200) /* crashes of a test */

static struct history_result run(
	uint64_t histories, uint64_t seed, unsigned steps, uint64_t capacity, const char *keys)
{
	struct history_result result = {0};

	for (uint64_t i = 0; result.crashes < histories; i++) {
		struct history_options options = {
			.seed = seed + i,
			.steps = steps,
			.crashes = CRASHES,
			.capacity = capacity,
			.keys = keys,
		};

		history_run(&options, &result);
	}
	return result;
}

START_TEST(nothing_wrong_with_room)
{
	struct history_result result = run(ALL, 1, 60, 64u << 20, NULL);

	ck_assert_uint_gt(result.found, 0);
	ck_assert_uint_gt(result.lost, 0);
	ck_assert_uint_gt(result.must, 100);
	ck_assert_uint_gt(result.must_not, 100);
}
END_TEST

START_TEST(nothing_wrong_while_evicting)
{
	struct history_result result = run(ALL, 1000, 60, 2u << 20, NULL);

	ck_assert_uint_gt(result.found, 0);
	ck_assert_uint_gt(result.must_not, 100);
}
END_TEST

static int by_command(int argc, char **argv)
{
	uint64_t histories = 10000, seed = 1, capacity = 0;
	unsigned steps = 60;
	const char *keys = NULL;
	struct history_result r;

	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--histories") == 0)
			histories = strtoull(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--seed") == 0)
			seed = strtoull(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--steps") == 0)
			steps = (unsigned)strtoul(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--capacity") == 0)
			capacity = strtoull(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--keys") == 0)
			keys = argv[i + 1];
		else
			return EXIT_FAILURE;
	}
	if (capacity != 0) {
		r = run(histories, seed, steps, capacity, keys);
	} else {
		struct history_result more;

		r = run(histories / 2, seed, steps, 64u << 20, keys);
		more = run(histories / 2, seed + 1000000, steps, 2u << 20, keys);
		r.crashes += more.crashes;
		r.puts += more.puts;
		r.erases += more.erases;
		r.found += more.found;
		r.lost += more.lost;
		r.corrupt += more.corrupt;
		r.must += more.must;
		r.must_not += more.must_not;
	}
	printf("{\"histories\": %llu, \"puts\": %llu, \"erases\": %llu, \"chunks_found\": %llu, "
	       "\"chunks_lost\": %llu, \"dropped_as_corrupt\": %llu, \"had_to_be_there\": %llu, "
	       "\"had_to_be_gone\": %llu, \"wrong\": 0}\n",
		(unsigned long long)r.crashes, (unsigned long long)r.puts,
		(unsigned long long)r.erases, (unsigned long long)r.found,
		(unsigned long long)r.lost, (unsigned long long)r.corrupt,
		(unsigned long long)r.must, (unsigned long long)r.must_not);
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("power");

	if (argc > 1)
		return by_command(argc, argv);
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, nothing_wrong_with_room);
	tcase_add_test(tc, nothing_wrong_while_evicting);
	return run_tcase("cache-tiers-power", tc);
}
