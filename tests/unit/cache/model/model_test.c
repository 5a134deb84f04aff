/*
 * model_test.c - the whole library against a trivial map, many seeds for each kind of cache.
 *
 * MODEL_SEEDS=N runs N seeds of each kind instead of a few; MODEL_SEED=N runs that one alone,
 * MODEL_ONLY=NAME one kind; MODEL_TRACE=1 prints what happens.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "history.h"

#define KIB    UINT64_C(1024)
#define MIB    (KIB * 1024)
#define MINUTE (60 * UINT64_C(1000000000))

static const struct profile memory_profiles[] = {
	{.name = "roomy memory",
		.chains = 12,
		.depth = 16,
		.least = 100,
		.most = 60 * KIB,
		.l1_capacity = 64 * MIB,
		.roomy = true,
		.operations = 3000},
	{.name = "roomy memory with a TTL",
		.chains = 12,
		.depth = 8,
		.least = 100,
		.most = 20 * KIB,
		.l1_capacity = 64 * MIB,
		.ttl_ns = MINUTE,
		.roomy = true,
		.operations = 3000},
	{.name = "tight memory",
		.chains = 40,
		.depth = 16,
		.least = 100,
		.most = 200 * KIB,
		.l1_capacity = 8 * MIB,
		.policy = "default",
		.operations = 3000},
	{.name = "tight memory, LRU",
		.chains = 40,
		.depth = 16,
		.least = 100,
		.most = 200 * KIB,
		.l1_capacity = 8 * MIB,
		.policy = "lru",
		.operations = 3000},
	{.name = "tight memory, ARC with a TTL",
		.chains = 40,
		.depth = 16,
		.least = 100,
		.most = 200 * KIB,
		.l1_capacity = 8 * MIB,
		.policy = "arc",
		.ttl_ns = MINUTE,
		.operations = 3000},
	{.name = "tight memory, S3-FIFO",
		.chains = 40,
		.depth = 16,
		.least = 100,
		.most = 200 * KIB,
		.l1_capacity = 8 * MIB,
		.policy = "s3fifo",
		.operations = 3000},
	{.name = "tight memory, W-TinyLFU",
		.chains = 40,
		.depth = 16,
		.least = 100,
		.most = 200 * KIB,
		.l1_capacity = 8 * MIB,
		.policy = "wtinylfu",
		.operations = 3000},
};

static const struct profile disk_profiles[] = {
	{.name = "roomy memory and disk",
		.chains = 12,
		.depth = 16,
		.least = 100,
		.most = 60 * KIB,
		.l1_capacity = 64 * MIB,
		.nvme_capacity = 1024 * MIB,
		.roomy = true,
		.operations = 3000},
	{.name = "roomy memory and disk that loses power",
		.chains = 12,
		.depth = 16,
		.least = 100,
		.most = 60 * KIB,
		.l1_capacity = 64 * MIB,
		.nvme_capacity = 1024 * MIB,
		.roomy = true,
		.crashes = true,
		.operations = 3000},
	{.name = "tight memory over roomy disk",
		.chains = 40,
		.depth = 16,
		.least = 100,
		.most = 200 * KIB,
		.l1_capacity = 8 * MIB,
		.nvme_capacity = 1024 * MIB,
		.operations = 3000},
	{.name = "tight memory over tight disk",
		.chains = 80,
		.depth = 16,
		.least = 100,
		.most = 200 * KIB,
		.l1_capacity = 8 * MIB,
		.nvme_capacity = 64 * MIB,
		.ttl_ns = MINUTE,
		.operations = 3000},
	{.name = "tight disk that fails",
		.chains = 40,
		.depth = 16,
		.least = 100,
		.most = 200 * KIB,
		.l1_capacity = 8 * MIB,
		.nvme_capacity = 64 * MIB,
		.faults = true,
		.operations = 3000},
	{.name = "tight disk that fails and loses power",
		.chains = 40,
		.depth = 16,
		.least = 100,
		.most = 200 * KIB,
		.l1_capacity = 8 * MIB,
		.nvme_capacity = 64 * MIB,
		.ttl_ns = MINUTE,
		.faults = true,
		.crashes = true,
		.operations = 3000},
};

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

static void run_seeds(const struct profile *profile)
{
	uint64_t one = number("MODEL_SEED", 0), seeds = number("MODEL_SEEDS", 2);
	const char *only = getenv("MODEL_ONLY");

	if (only != NULL && strcmp(only, profile->name) != 0)
		return;
	if (one != 0)
		history_run(profile, one);
	for (uint64_t seed = 1; one == 0 && seed <= seeds; seed++)
		history_run(profile, seed);
}

START_TEST(memory)
{
	run_seeds(&memory_profiles[_i]);
}
END_TEST

START_TEST(memory_and_disk)
{
	run_seeds(&disk_profiles[_i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache-model");
	TCase *tc = tcase_create("model");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 3600);
	tcase_add_loop_test(
		tc, memory, 0, (int)(sizeof(memory_profiles) / sizeof(memory_profiles[0])));
	tcase_add_loop_test(
		tc, memory_and_disk, 0, (int)(sizeof(disk_profiles) / sizeof(disk_profiles[0])));
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
