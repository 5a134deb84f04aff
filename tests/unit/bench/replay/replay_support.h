/* replay_support.h - small workloads and a fleet for the tests of bench/replay. */
#ifndef REPLAY_SUPPORT_H
#define REPLAY_SUPPORT_H

#include <stdio.h>
#include <stdlib.h>

#include "kvway/route.h"
#include "bench/replay/replay_run.h"

/* NULL: the default strategy. */
static inline struct kvw_config *test_config_of(const char *strategy)
{
	static const char *const workers[] = {"http://127.0.0.1:1"};
	struct kvw_config_flags flags = {.workers = workers, .worker_count = 1, .strategy = strategy};
	struct kvw_config *config = NULL;

	if (kvw_config_from_flags(&flags, kvw_strategies, stderr, &config) != KVW_OK)
		abort();
	return config;
}

static inline struct kvw_config *test_config(void)
{
	return test_config_of(NULL);
}

static inline struct kvb_fleet_options test_fleet_options(uint32_t workers)
{
	return (struct kvb_fleet_options){.workers = workers,
		.profile = kvb_profile_find("reference-kv"),
		.block_size = 16,
		.kv_tokens = 1000000,
		.max_batched_tokens = 8192,
		.max_seqs = 256};
}

/* A prompt that begins with `shared` blocks of `theme` and goes on with blocks of its own. */
static inline uint32_t test_add(struct kvb_jobs *jobs, double at_s, uint32_t theme, uint32_t shared,
	uint32_t input, uint32_t output)
{
	uint64_t ids[512];
	uint64_t own = ((uint64_t)jobs->count + 1) << 32;

	for (uint32_t i = 0; i < 512; i++)
		ids[i] = i < shared ? (uint64_t)theme * 1000 + i + 1 : own + i;
	return kvb_jobs_add(jobs, (int64_t)(at_s * 1e9), input, output, ids);
}

/* `count` requests of mixed lengths, `per_s` a second, half of them with one of eight beginnings. */
static inline struct kvb_jobs test_jobs(uint32_t count, double per_s)
{
	struct kvb_jobs jobs = {0};
	uint64_t random = 7;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t theme = (uint32_t)(kvb_random(&random) * 16);
		uint32_t input = 600 + (uint32_t)(kvb_random(&random) * 9000);
		uint32_t blocks = input / KVB_ID_TOKENS;

		test_add(&jobs, i / per_s, theme, theme < 8 ? (blocks < 6 ? blocks : 6) : 0, input,
			1 + (uint32_t)(kvb_random(&random) * 80));
	}
	return jobs;
}

#endif
