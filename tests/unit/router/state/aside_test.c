/*
 * aside_test.c - a large prefix tree is recalled while requests are served: they get what it holds in the end, what the
 * rest of the snapshot holds at once, and no snapshot of less takes the file's place.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "kvway/route.h"
#include "state/state.h"
#include "support.h"
#include "tests/unit/suite.h"

#define PROMPTS (KVW_STATE_AT_ONCE + 20000) /* a node each */
#define CHUNKS  4

static char folder[] = "/tmp/kvway-test-aside-XXXXXX";
static char path[64];

/* What of a running kvway has to do with snapshots. */
struct router {
	struct kvw_config *config;
	struct kvw_fleet *fleet;
	struct kvw_state *state;
	struct kvw_load load;
	unsigned owners; /* records that the part was given */
};

static enum kvw_err keep(void *arg, const struct kvw_keep_out *out)
{
	const uint8_t record[16] = {7};

	(void)arg;
	return out->put(out->arg, KVW_KEPT_OWNER, record, sizeof(record));
}

static void recall(void *arg, const struct kvw_keep_in *in)
{
	struct router *router = arg;
	enum kvw_keep_kind kind;
	const uint8_t *record;
	size_t len;

	while (in->next(in->arg, &kind, &record, &len))
		router->owners += kind == KVW_KEPT_OWNER && len == 16 && record[0] == 7;
}

static void start(struct router *router)
{
	const struct kvw_state_part part = {keep, recall, router};
	struct kvw_strategy *strategy;
	struct kvw_settings *settings;
	char text[512];
	size_t len = (size_t)snprintf(text, sizeof(text),
		"routing: {strategy: prefixaware}\nstate: {file: %s, interval: 1s}\nworkers: [{url: 'http://127.0.0.1:9'}]\n", path);

	memset(router, 0, sizeof(*router));
	kvw_load_init(&router->load);
	ck_assert_int_eq(kvw_config_parse("test", text, len, kvw_strategies, stderr, &router->config), KVW_OK);
	ck_assert_int_eq(kvw_settings_strategy(router->config, NULL, &strategy), KVW_OK);
	ck_assert_int_eq(kvw_settings_first(router->config, strategy, &settings), KVW_OK);
	ck_assert_int_eq(kvw_fleet_create(router->config, 1, stderr, &router->fleet), KVW_OK);
	kvw_fleet_set_settings(router->fleet, settings);
	atomic_store(&kvw_fleet_worker(router->fleet, 0)->started_s, 1000);
	ck_assert_int_eq(kvw_state_create(router->config, router->fleet, -1, 0, &router->state), KVW_OK);
	kvw_state_recall(router->state);
	kvw_state_recall_part(router->state, &part);
	ck_assert_int_eq(kvw_state_start(router->state), KVW_OK);
}

static void stop(struct router *router)
{
	kvw_state_stop(router->state);
	kvw_fleet_destroy(router->fleet);
	kvw_config_destroy(router->config);
}

/* Asks for one prompt. Returns the tokens that it is predicted to find. */
static uint32_t ask(struct router *router, uint64_t prompt)
{
	struct kvw_strategy *strategy = router->fleet->strategy;
	struct kvw_worker *worker = kvw_fleet_worker(router->fleet, 0);
	struct kvw_candidate item = {.id = 0, .key = 1, .load = &router->load, .capacity_tokens = 1U << 30, .block_size = 16,
		.share = 1, .usable = true, .generation = atomic_load(&worker->generation)};
	const struct kvw_candidates set = {.items = &item, .count = 1};
	struct kvw_chunk chunks[CHUNKS];
	uint32_t end = CHUNKS;
	struct kvw_route_request request = {.model = KVW_SLICE("m"), .chunks = chunks, .chunk_count = CHUNKS,
		.chain_ends = &end, .chain_count = 1, .tokens_per_unit = 1, .content_known = true, .teaches = true};
	struct kvw_decision decision = {0};

	for (uint32_t i = 0; i < CHUNKS; i++)
		chunks[i] = (struct kvw_chunk){
			.hash = (prompt * CHUNKS + i + 1) * UINT64_C(0x9e3779b97f4a7c15), .end = (i + 1) * 64};
	ck_assert_int_eq(strategy->ops->pick(strategy, &request, &set, kvw_clock_ns(), &decision), KVW_OK);
	return decision.hit_tokens[KVW_TIER_DEVICE];
}

static off_t size_of_file(void)
{
	struct stat found;

	ck_assert_int_eq(stat(path, &found), 0);
	return found.st_size;
}

static void set_up(void)
{
	struct router router;

	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/state", folder);
	start(&router);
	for (uint64_t i = 0; i < PROMPTS; i++)
		(void)ask(&router, i);
	stop(&router);
	ck_assert_int_gt(size_of_file(), KVW_STATE_AT_ONCE * 40);
}

static void tear_down(void)
{
	(void)unlink(path);
	(void)rmdir(folder);
	memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
}

/* Starts a router that is still reading the tree when this returns: on a busy machine it may have
 * read all of it before this could look. */
static void start_reading(struct router *router)
{
	for (int tries = 0; tries < 20; tries++) {
		start(router);
		if (atomic_load(&kvw_state_status(router->state)->recalling))
			return;
		stop(router);
	}
	ck_abort_msg("20 times it was read before this could look");
}

START_TEST(requests_are_served_while_it_is_recalled)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	const struct kvw_state_status *status;
	struct kvw_strategy_stats stats;
	struct router router;
	uint64_t served = 0;
	off_t size;

	start_reading(&router);
	size = size_of_file();
	status = kvw_state_status(router.state);
	ck_assert_uint_eq(router.owners, 1);
	do { /* it was still reading at the last tick, which therefore began no snapshot */
		ck_assert_uint_eq(atomic_load(&status->written), 0);
		ck_assert_int_eq(size_of_file(), size);
		(void)ask(&router, PROMPTS + served++ % 100);
		kvw_state_tick(router.state, kvw_clock_ns() + 3600 * KVW_NS_PER_S);
		(void)nanosleep(&pause, NULL);
	} while (atomic_load(&status->recalling));
	router.fleet->strategy->ops->stats(router.fleet->strategy, &stats);
	ck_assert_uint_ge(stats.nodes, PROMPTS);
	for (uint64_t i = 0; i < PROMPTS; i += 1000)
		ck_assert_uint_eq(ask(&router, i), CHUNKS * 64 - 16);
	stop(&router);
	ck_assert_int_ge(size_of_file(), size);
}
END_TEST

START_TEST(an_end_meanwhile_leaves_the_file)
{
	struct router router;
	off_t size;

	start_reading(&router);
	size = size_of_file();
	stop(&router);
	ck_assert_int_eq(size_of_file(), size);
}
END_TEST

/* A worker whose cache is lost meanwhile has nothing in what comes into use. Counters go on. */
START_TEST(what_is_lost_meanwhile_does_not_come_back)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	struct kvw_strategy_stats before, after;
	const struct kvw_state_status *status;
	struct router router;

	start_reading(&router);
	status = kvw_state_status(router.state);
	for (unsigned i = 0; i < 5; i++)
		kvw_fleet_cache_lost(router.fleet, kvw_fleet_worker(router.fleet, 0), "test");
	(void)ask(&router, PROMPTS);
	router.fleet->strategy->ops->stats(router.fleet->strategy, &before);
	ck_assert_uint_ge(before.purges, 5);
	while (atomic_load(&status->recalling))
		(void)nanosleep(&pause, NULL);
	router.fleet->strategy->ops->stats(router.fleet->strategy, &after);
	ck_assert_uint_ge(after.purges, before.purges);
	for (uint64_t i = 0; i < PROMPTS; i += 1000)
		ck_assert_uint_eq(ask(&router, i), 0);
	stop(&router);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("aside");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, requests_are_served_while_it_is_recalled);
	tcase_add_test(tcase, an_end_meanwhile_leaves_the_file);
	tcase_add_test(tcase, what_is_lost_meanwhile_does_not_come_back);
	return run_tcase("state-aside", tcase);
}
