/*
 * support.c - a fleet with its exact view and spaces, and a feed over them, for tests of modules.
 */
#include "support.h"

#include <arpa/inet.h>
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void rig_init(struct rig *rig, size_t workers, uint16_t first_port, const char *events)
{
	struct kvw_strategy_options options = {.index_bytes = 16u << 20};
	char text[8192];
	size_t len;

	*rig = (struct rig){.config = NULL};
	len = (size_t)snprintf(text, sizeof(text),
		"routing: {strategy: kvaware}\nkvaware:\n  events:\n%sworkers:\n", events);
	for (size_t i = 0; i < workers; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len,
			"  - url: http://127.0.0.1:%zu\n", first_port + i);
	ck_assert_int_eq(
		kvw_config_parse("test", text, len, kvw_strategies, stderr, &rig->config), KVW_OK);
	ck_assert_int_eq(kvw_fleet_create(rig->config, 1, stderr, &rig->fleet), KVW_OK);
	ck_assert_int_eq(kvw_exact_create(&options, &rig->exact), KVW_OK);
	ck_assert_int_eq(kvw_kvspaces_create(&rig->spaces), KVW_OK);
}

void rig_start(struct rig *rig, const struct kvw_feed_module *module)
{
	struct kvw_feed_deps deps = {.config = rig->config,
		.fleet = rig->fleet,
		.exact = rig->exact,
		.spaces = rig->spaces,
		.modules = {module}};

	ck_assert_int_eq(kvw_feed_start(&deps, stderr, &rig->feed), KVW_OK);
}

void rig_finish(struct rig *rig)
{
	kvw_feed_stop(rig->feed);
	kvw_kvspaces_destroy(rig->spaces);
	kvw_exact_destroy(rig->exact);
	kvw_fleet_destroy(rig->fleet);
	kvw_config_destroy(rig->config);
	*rig = (struct rig){.config = NULL};
}

uint16_t free_port(void)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
	close(fd);
	return ntohs(addr.sin_port);
}

bool rig_wait(struct rig *rig, rig_condition *condition, void *ctx)
{
	const struct timespec pause = {.tv_nsec = 2000000};

	for (int i = 0; i < 5000; i++) {
		if (condition(rig, ctx))
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

uint64_t rig_count(struct rig *rig, enum kvw_feed_counter counter)
{
	struct kvw_feed_stats stats;

	kvw_feed_stats(rig->feed, &stats);
	return stats.counts[counter];
}

enum kvw_coverage rig_coverage(struct rig *rig, uint32_t worker)
{
	return kvw_exact_coverage(rig->exact, worker, KVW_REPORTER_ENGINE);
}

struct wanted_coverage {
	uint32_t worker;
	enum kvw_coverage coverage;
};

static bool has_coverage(struct rig *rig, void *ctx)
{
	const struct wanted_coverage *wanted = ctx;

	return rig_coverage(rig, wanted->worker) == wanted->coverage;
}

void rig_await_coverage(struct rig *rig, uint32_t worker, enum kvw_coverage coverage)
{
	struct wanted_coverage wanted = {worker, coverage};
	struct kvw_feed_status status = {.sources = 0};

	if (rig_wait(rig, has_coverage, &wanted))
		return;
	ck_assert_int_eq(
		kvw_feed_worker_status(rig->feed, worker, KVW_REPORTER_ENGINE, &status), KVW_OK);
	ck_abort_msg("coverage of %u is %d, not %d: %s", worker, status.coverage, coverage, status.wrong);
}

uint32_t rig_hit(struct rig *rig, uint32_t worker, uint32_t block_tokens, const uint32_t *tokens,
	size_t count)
{
	static struct kvw_kvindex_hits hits;
	struct kvw_kvprompt prompt = {.tokens = tokens, .count = count};
	struct kvw_kvchains chains = {.count = 0};
	uint32_t blocks = 0;

	ck_assert_int_eq(kvw_kvchains_fill(&chains, rig->spaces, &prompt), KVW_OK);
	for (uint32_t i = 0; i < chains.count; i++) {
		if (chains.chains[i].reporter != KVW_REPORTER_ENGINE ||
			chains.chains[i].block_tokens != block_tokens)
			continue;
		kvw_exact_match(rig->exact, &chains.chains[i], &hits);
		blocks = hits.blocks[worker];
	}
	kvw_kvchains_finish(&chains);
	return blocks;
}

struct wanted_hit {
	uint32_t worker, block_tokens, blocks;
	const uint32_t *tokens;
	size_t count;
};

static bool has_hit(struct rig *rig, void *ctx)
{
	const struct wanted_hit *wanted = ctx;

	return rig_hit(rig, wanted->worker, wanted->block_tokens, wanted->tokens, wanted->count) ==
	       wanted->blocks;
}

void rig_await_hit(struct rig *rig, uint32_t worker, uint32_t block_tokens, const uint32_t *tokens,
	size_t count, uint32_t blocks)
{
	struct wanted_hit wanted = {worker, block_tokens, blocks, tokens, count};

	if (!rig_wait(rig, has_hit, &wanted))
		ck_abort_msg("worker %u holds %u blocks, not %u", worker,
			rig_hit(rig, worker, block_tokens, tokens, count), blocks);
}
