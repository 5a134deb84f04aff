/*
 * model_test.c - the whole library against a trivial map, many seeds for each kind of cache.
 *
 * MODEL_SEEDS=N runs N seeds of each kind instead of a few; MODEL_SEED=N runs that one alone,
 * MODEL_ONLY=NAME one kind; MODEL_TRACE=1 prints what happens.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "history.h"
#include "tests/unit/steps.h"
#include "tests/unit/suite.h"

#define KIB    UINT64_C(1024)
#define MIB    (KIB * 1024)
#define MINUTE (60 * UINT64_C(1000000000))

/* Caches that keep all that the test puts, and caches that must evict most of it. */
#define ROOMY                                                                                      \
	.chains = 12, .depth = 16, .least = 100, .most = 60 * KIB, .l1_capacity = 64 * MIB,        \
	.roomy = true, .operations = 3000
#define TIGHT                                                                                      \
	.chains = 40, .depth = 16, .least = 100, .most = 200 * KIB, .l1_capacity = 8 * MIB,        \
	.operations = 3000

static const struct profile memory_profiles[] = {
	{.name = "roomy memory", ROOMY},
	{.name = "roomy memory with a TTL",
		.chains = 12,
		.depth = 8,
		.least = 100,
		.most = 20 * KIB,
		.l1_capacity = 64 * MIB,
		.ttl_ns = MINUTE,
		.roomy = true,
		.operations = 3000},
	{.name = "tight memory", TIGHT, .policy = "default"},
	{.name = "tight memory, LRU", TIGHT, .policy = "lru"},
	{.name = "tight memory, ARC with a TTL", TIGHT, .policy = "arc", .ttl_ns = MINUTE},
	{.name = "tight memory, S3-FIFO", TIGHT, .policy = "s3fifo"},
	{.name = "tight memory, W-TinyLFU", TIGHT, .policy = "wtinylfu"},
};

static const struct profile disk_profiles[] = {
	{.name = "roomy memory and disk", ROOMY, .nvme_capacity = 1024 * MIB},
	{.name = "roomy memory and disk that loses power",
		ROOMY,
		.nvme_capacity = 1024 * MIB,
		.crashes = true},
	{.name = "tight memory over roomy disk", TIGHT, .nvme_capacity = 1024 * MIB},
	{.name = "tight memory over tight disk",
		.chains = 80,
		.depth = 16,
		.least = 100,
		.most = 200 * KIB,
		.l1_capacity = 8 * MIB,
		.nvme_capacity = 64 * MIB,
		.ttl_ns = MINUTE,
		.operations = 3000},
	{.name = "tight disk that fails", TIGHT, .nvme_capacity = 64 * MIB, .faults = true},
	{.name = "tight disk that fails and loses power",
		TIGHT,
		.nvme_capacity = 64 * MIB,
		.ttl_ns = MINUTE,
		.faults = true,
		.crashes = true},
	{.name = "large chunks on a disk that fails and loses power", /* checked by pieces */
		.chains = 20,
		.depth = 8,
		.least = 100,
		.most = 900 * KIB,
		.l1_capacity = 16 * MIB,
		.nvme_capacity = 64 * MIB,
		.faults = true,
		.crashes = true,
		.operations = 1000},
};

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

static void run_seeds(const struct profile *profile)
{
	uint64_t one = number("MODEL_SEED", 0), seeds = number("MODEL_SEEDS", kvt_test_steps(2));
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

static bool names(const struct profile *profiles, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(profiles[i].name, name) == 0)
			return true;
	return false;
}

int main(void)
{
	const char *only = getenv("MODEL_ONLY");
	TCase *tc = tcase_create("model");

	if (only != NULL && !names(memory_profiles, sizeof(memory_profiles) / sizeof(memory_profiles[0]), only) &&
		!names(disk_profiles, sizeof(disk_profiles) / sizeof(disk_profiles[0]), only)) {
		fprintf(stderr, "MODEL_ONLY=%s: no such kind\n", only);
		return 2;
	}
	tcase_set_timeout(tc, 3600);
	tcase_add_loop_test(
		tc, memory, 0, (int)(sizeof(memory_profiles) / sizeof(memory_profiles[0])));
	tcase_add_loop_test(
		tc, memory_and_disk, 0, (int)(sizeof(disk_profiles) / sizeof(disk_profiles[0])));
	return run_tcase("cache-model", tc);
}
