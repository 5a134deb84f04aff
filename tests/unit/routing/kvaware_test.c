/*
 * kvaware_test.c - hits by the workers' own word, where they come from and what they cost.
 */
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tests/unit/suite.h"

#define SECOND INT64_C(1000000000)

/* A strategy, its fleet, and the prompt that is asked about. */
struct scene {
	struct kvw_strategy *strategy;
	struct kvw_exact *exact;
	struct fleet fleet;
	struct prompt prompt;
	struct naming naming;
	struct kvw_route_request request;
};

static struct scene *scene_make(size_t workers)
{
	struct kvw_strategy_options options = test_options();
	struct scene *s = calloc(1, sizeof(*s));

	ck_assert_ptr_nonnull(s);
	ck_assert_int_eq(kvw_strategy_find("kvaware")->create(&options, &s->strategy), KVW_OK);
	s->exact = s->strategy->ops->exact(s->strategy);
	fleet_init(&s->fleet, workers);
	return s;
}

static void scene_free(struct scene *s)
{
	s->strategy->ops->destroy(s->strategy);
	fleet_finish(&s->fleet);
	free(s);
}

/* A prompt of `tokens` tokens; `branch` tells prompts apart from chunk `shared` on. */
static void ask(struct scene *s, uint32_t tokens, uint32_t shared, uint64_t branch)
{
	uint32_t chunks = (tokens + CHUNK_UNITS - 1) / CHUNK_UNITS;

	prompt_start(&s->prompt);
	for (uint32_t i = 0; i < chunks; i++)
		prompt_add(&s->prompt, i < shared ? 1 : branch);
	s->prompt.chunks[chunks - 1].end = tokens;
	s->request = request_of(&s->prompt);
	name_prompt(&s->naming, &s->prompt, tokens, &s->request);
}

static const struct kvw_exact_chain *engine(const struct scene *s)
{
	return &s->naming.chains[KVW_REPORTER_ENGINE];
}

static const struct kvw_exact_chain *lmcache(const struct scene *s)
{
	return &s->naming.chains[KVW_REPORTER_LMCACHE];
}

static struct kvw_decision pick_at(struct scene *s, int64_t now_ns)
{
	struct kvw_decision out = {0};

	EXPECT(s->strategy->ops->pick(s->strategy, &s->request, &s->fleet.set, now_ns, &out) ==
		KVW_OK);
	return out;
}

static struct kvw_decision explain(struct scene *s, struct kvw_cost *costs)
{
	struct kvw_decision out = {0};

	EXPECT(s->strategy->ops->explain(s->strategy, &s->request, &s->fleet.set, 0, costs, &out) ==
		KVW_OK);
	return out;
}

static void all_see(struct scene *s, enum kvw_reporter reporter, enum kvw_coverage coverage)
{
	for (uint32_t w = 0; w < s->fleet.set.count; w++)
		kvw_exact_set_coverage(s->exact, w, reporter, coverage);
}

static void carry_out_purges(struct scene *s)
{
	uint32_t purged[KVW_MAX_WORKERS];

	(void)kvw_exact_tick(s->exact, 0, purged, KVW_MAX_WORKERS);
}

/* What a decision for the only worker that holds the prompt knew. */
static const char *knowledge(struct scene *s)
{
	const struct kvw_knowledge_text *text;
	struct kvw_cost costs[2];
	struct kvw_decision told = explain(s, costs);
	struct kvw_decision d = pick_at(s, 0);

	ck_assert_int_eq(told.knowledge, d.knowledge);
	text = kvw_knowledge_text(d.knowledge);
	return text == NULL ? "" : text->name;
}

START_TEST(a_decision_says_how_much_it_knew)
{
	struct scene *s = scene_make(2);
	struct kvw_cost costs[2];

	ask(s, 1000, 100, 0);
	ck_assert_str_eq(knowledge(s), "fallback/no_reports");
	all_see(s, KVW_REPORTER_ENGINE, KVW_COVERAGE_BLIND);
	ck_assert_str_eq(knowledge(s), "degraded/missed");
	all_see(s, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	report_stored(s->exact, 1, engine(s), KVW_TIER_DEVICE, 0, 62);
	ck_assert_str_eq(knowledge(s), "exact/all");
	kvw_exact_set_coverage(s->exact, 0, KVW_REPORTER_ENGINE, KVW_COVERAGE_BLIND);
	ck_assert_str_eq(knowledge(s), "degraded/others");
	(void)explain(s, costs);
	ck_assert_int_eq(costs[0].knowledge, KVW_KNOWS_MISSED);
	ck_assert_int_eq(costs[1].knowledge, KVW_KNOWS_ALL);
	s->fleet.items[0].usable = false;
	ck_assert_str_eq(knowledge(s), "exact/all");
	kvw_exact_set_coverage(s->exact, 1, KVW_REPORTER_LMCACHE, KVW_COVERAGE_BLIND);
	ck_assert_str_eq(knowledge(s), "degraded/part");
	s->request.exact_count = s->request.exact_tokens = 0;
	s->request.inexact = KVW_INEXACT_TIMEOUT;
	ck_assert_str_eq(knowledge(s), "degraded/no_tokens");
	s->request.inexact = KVW_INEXACT_NO_CHOICE;
	ck_assert_str_eq(knowledge(s), "fallback/no_choice");
	s->request.inexact = KVW_INEXACT_NOT_WANTED;
	ck_assert_str_eq(knowledge(s), "");
	scene_free(s);
}
END_TEST

START_TEST(a_worker_is_found_by_its_own_word)
{
	struct scene *s = scene_make(8);
	struct kvw_cost costs[8];
	struct kvw_decision d;
	struct kvw_decision told;

	ask(s, 1000, 100, 0);
	all_see(s, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	report_stored(s->exact, 5, engine(s), KVW_TIER_DEVICE, 0, 40);
	report_stored(s->exact, 3, engine(s), KVW_TIER_DEVICE, 0, 10);
	report_stored(s->exact, 4, engine(s), KVW_TIER_DEVICE, 1, 50); /* not its beginning */
	told = explain(s, costs);
	d = pick_at(s, 0);
	ck_assert_uint_eq(d.worker_id, 5);
	ck_assert_int_eq(d.reason, KVW_REASON_KVAWARE);
	ck_assert(d.exact);
	ck_assert_uint_eq(d.prompt_tokens, 1000);
	ck_assert_uint_eq(d.hit_tokens[KVW_TIER_DEVICE], 40 * BLOCK_TOKENS);
	ck_assert(same_decision(&told, &d));
	ck_assert_uint_eq(costs[3].hit_tokens[KVW_TIER_DEVICE], 10 * BLOCK_TOKENS);
	ck_assert_uint_eq(costs[4].hit_tokens[KVW_TIER_DEVICE], 0);
	ck_assert(costs[3].exact && costs[4].exact);
	scene_free(s);
}
END_TEST

START_TEST(what_is_pushed_out_is_paid_for)
{
	struct scene *s = scene_make(2);
	struct kvw_cost costs[2];

	all_see(s, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	ask(s, 80 * BLOCK_TOKENS, 0, 7);
	report_stored(s->exact, 0, engine(s), KVW_TIER_DEVICE, 0, 80);
	ask(s, 1000, 100, 0);
	report_stored(s->exact, 0, engine(s), KVW_TIER_DEVICE, 0, 20);
	ck_assert_uint_eq(explain(s, costs).worker_id, 0);
	ck_assert(costs[0].evict_ns == 0 && costs[1].evict_ns == 0);
	for (size_t w = 0; w < 2; w++)
		s->fleet.items[w].capacity_tokens = 100 * BLOCK_TOKENS;
	ck_assert_uint_eq(explain(s, costs).worker_id, 1);
	ck_assert_double_eq_tol(costs[0].evict_ns, 2 * costs[0].prefill_ns, costs[0].prefill_ns / 3);
	ck_assert_double_eq_tol(costs[0].total_ns,
		costs[0].queue_ns + costs[0].prefill_ns + costs[0].others_ns + costs[0].evict_ns, 1);
	ck_assert(costs[1].evict_ns == 0);
	/* Where no cache has room, the prefix counts again. */
	ask(s, 100 * BLOCK_TOKENS, 0, 8);
	report_stored(s->exact, 1, engine(s), KVW_TIER_DEVICE, 0, 100);
	ask(s, 1000, 100, 0);
	ck_assert_uint_eq(explain(s, costs).worker_id, 0);
	ck_assert(costs[1].evict_ns > costs[0].evict_ns);
	scene_free(s);
}
END_TEST

START_TEST(what_was_dropped_is_missed_though_it_was_sent)
{
	struct scene *s = scene_make(4);
	struct kvw_decision first;
	struct kvw_decision second;

	ask(s, 1000, 100, 0);
	first = pick_at(s, 0); /* by the tree, which will remember */
	ck_assert(!first.exact);
	all_see(s, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	report_stored(s->exact, first.worker_id, engine(s), KVW_TIER_DEVICE, 0, 62);
	report_removed(s->exact, first.worker_id, engine(s), KVW_TIER_DEVICE, 0, 62);
	second = pick_at(s, 0);
	ck_assert_int_eq(second.reason, KVW_REASON_LOAD);
	ck_assert(second.exact);
	ck_assert_uint_eq(second.hit_tokens[KVW_TIER_DEVICE], 0);
	scene_free(s);
}
END_TEST

START_TEST(the_last_token_is_never_reused)
{
	struct scene *s = scene_make(1);

	kvw_exact_set_coverage(s->exact, 0, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	ask(s, 1024, 100, 0);
	report_stored(s->exact, 0, engine(s), KVW_TIER_DEVICE, 0, 64);
	ck_assert_uint_eq(pick_at(s, 0).hit_tokens[KVW_TIER_DEVICE], 1024 - BLOCK_TOKENS);
	ask(s, 1025, 100, 0);
	ck_assert_uint_eq(pick_at(s, 0).hit_tokens[KVW_TIER_DEVICE], 1024);
	/* LMCache computes the last token alone. */
	kvw_exact_set_coverage(s->exact, 0, KVW_REPORTER_LMCACHE, KVW_COVERAGE_FULL);
	ask(s, 1024, 0, 3);
	report_stored(s->exact, 0, lmcache(s), KVW_TIER_HOST, 0, 16);
	ck_assert_uint_eq(pick_at(s, 0).hit_tokens[KVW_TIER_HOST], 1023);
	scene_free(s);
}
END_TEST

START_TEST(a_worker_that_was_not_heard_of_is_guessed)
{
	struct scene *s = scene_make(4);
	struct kvw_decision d;

	ask(s, 1000, 100, 0);
	d = pick_at(s, 0);
	report_stored(s->exact, (d.worker_id + 1) % 4, engine(s), KVW_TIER_DEVICE, 0, 62);
	all_see(s, KVW_REPORTER_ENGINE, KVW_COVERAGE_BLIND);
	ck_assert_int_eq(pick_at(s, 0).worker_id, d.worker_id);
	ck_assert_int_eq(pick_at(s, 0).reason, KVW_REASON_PREFIX);
	ck_assert(!pick_at(s, 0).exact);
	s->request.exact_count = 0;
	all_see(s, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	ck_assert_int_eq(pick_at(s, 0).reason, KVW_REASON_PREFIX);
	scene_free(s);
}
END_TEST

/* 20 blocks in the engine are 320 tokens; LMCache has 4 pieces of 64 in memory and 4 on disk. */
START_TEST(lmcache_goes_on_where_the_engine_ends)
{
	struct scene *s = scene_make(2);
	struct kvw_cost costs[2];
	struct kvw_decision d;

	ask(s, 1000, 100, 0);
	report_stored(s->exact, 1, engine(s), KVW_TIER_DEVICE, 0, 20);
	report_stored(s->exact, 1, lmcache(s), KVW_TIER_HOST, 0, 4);
	report_stored(s->exact, 1, lmcache(s), KVW_TIER_DISK, 4, 4);
	all_see(s, KVW_REPORTER_LMCACHE, KVW_COVERAGE_FULL);
	d = explain(s, costs);
	ck_assert_uint_eq(d.worker_id, 1);
	ck_assert_int_eq(d.reason, KVW_REASON_KVAWARE);
	ck_assert_uint_eq(d.hit_tokens[KVW_TIER_DEVICE], 0); /* the engine itself reports nothing */
	ck_assert_uint_eq(d.hit_tokens[KVW_TIER_HOST], 256);
	ck_assert_uint_eq(d.hit_tokens[KVW_TIER_DISK], 256);
	all_see(s, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	d = explain(s, costs);
	ck_assert_uint_eq(d.hit_tokens[KVW_TIER_DEVICE], 320);
	ck_assert_uint_eq(d.hit_tokens[KVW_TIER_HOST], 0);
	ck_assert_uint_eq(d.hit_tokens[KVW_TIER_DISK], 192);
	all_see(s, KVW_REPORTER_LMCACHE, KVW_COVERAGE_BLIND);
	d = explain(s, costs);
	ck_assert_uint_eq(d.hit_tokens[KVW_TIER_DEVICE], 320);
	ck_assert_uint_eq(d.hit_tokens[KVW_TIER_DISK], 0);
	scene_free(s);
}
END_TEST

/* No worker is busy: costs are p_w, by 125 us a token and 1.75 ns a pair. */
START_TEST(loading_takes_its_time)
{
	struct scene *s = scene_make(4);
	struct kvw_cost costs[4];
	double all = 6400 * 125000.0 + 1.75 * 6400.0 * 6400.0 / 2;
	double rest = 1280 * 125000.0 + 1.75 * (6400.0 * 6400.0 - 5120.0 * 5120.0) / 2;

	ask(s, 6400, 100, 0);
	all_see(s, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	report_stored(s->exact, 0, engine(s), KVW_TIER_HOST, 0, 320);
	report_stored(s->exact, 1, engine(s), KVW_TIER_DISK, 0, 320);
	report_stored(s->exact, 2, engine(s), KVW_TIER_DEVICE, 0, 320);
	(void)explain(s, costs);
	ck_assert_double_eq_tol(costs[0].prefill_ns, rest + 5120 * 2000.0, 100);
	ck_assert_double_eq_tol(costs[1].prefill_ns, rest + 5120 * 20000.0, 100);
	ck_assert_double_eq_tol(costs[2].prefill_ns, rest, 100);
	ck_assert_double_eq_tol(costs[3].prefill_ns, all, 100);
	ck_assert_int_eq(costs[2].verdict, KVW_VERDICT_CHOSEN);
	scene_free(s);
}
END_TEST

START_TEST(what_is_slower_to_load_than_to_compute_saves_nothing)
{
	struct kvw_strategy_options options = test_options();
	struct scene *s = scene_make(2);
	struct kvw_cost costs[2];

	s->strategy->ops->destroy(s->strategy);
	options.load_ns_per_token[KVW_TIER_REMOTE] = 1e6;
	ck_assert_int_eq(kvw_strategy_find("kvaware")->create(&options, &s->strategy), KVW_OK);
	s->exact = s->strategy->ops->exact(s->strategy);
	ask(s, 6400, 100, 0);
	all_see(s, KVW_REPORTER_LMCACHE, KVW_COVERAGE_FULL);
	report_stored(s->exact, 0, lmcache(s), KVW_TIER_REMOTE, 0, 80);
	(void)explain(s, costs);
	ck_assert_uint_eq(costs[0].hit_tokens[KVW_TIER_REMOTE], 5120);
	ck_assert_double_eq_tol(costs[0].prefill_ns, costs[1].prefill_ns, 1);
	scene_free(s);
}
END_TEST

/* The engine reports blocks only when it schedules them. */
START_TEST(a_burst_finds_what_is_on_its_way)
{
	struct scene *s = scene_make(8);
	struct kvw_decision first;
	struct kvw_decision d;

	all_see(s, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	ask(s, 64 * 200 + 10, 190, 0);
	first = pick_at(s, 0);
	ck_assert_int_eq(first.reason, KVW_REASON_LOAD);
	for (uint64_t i = 1; i < 20; i++) {
		ask(s, 64 * 200 + 10, 190, i);
		d = pick_at(s, 0);
		ck_assert_uint_eq(d.worker_id, first.worker_id);
		ck_assert_int_eq(d.reason, KVW_REASON_KVAWARE);
		ck_assert_uint_eq(d.hit_tokens[KVW_TIER_DEVICE], 190 * 64);
	}
	/* Whatever became of it, no event reported it. */
	d = pick_at(s, first.prefill_ns * 2 + 3 * SECOND);
	ck_assert_int_eq(d.reason, KVW_REASON_LOAD);
	scene_free(s);
}
END_TEST

START_TEST(claims_go_on_where_the_hit_ends)
{
	struct scene *s = scene_make(4);
	struct kvw_decision d;

	all_see(s, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	ask(s, 640, 100, 0);
	report_stored(s->exact, 2, engine(s), KVW_TIER_HOST, 0, 30);
	ck_assert_uint_eq(pick_at(s, 0).worker_id, 2);
	ask(s, 1280, 100, 0);
	d = pick_at(s, 0);
	ck_assert_uint_eq(d.worker_id, 2);
	ck_assert_uint_eq(d.hit_tokens[KVW_TIER_HOST], 480);
	ck_assert_uint_eq(d.hit_tokens[KVW_TIER_DEVICE], 160);
	/* The event comes: nothing changes but the tier. */
	report_stored(s->exact, 2, engine(s), KVW_TIER_DEVICE, 0, 80);
	ask(s, 1290, 100, 0);
	ck_assert_uint_eq(pick_at(s, 0).hit_tokens[KVW_TIER_DEVICE], 1280);
	scene_free(s);
}
END_TEST

/* LMCache's servers report once a second. */
START_TEST(with_lmcache_alone_a_burst_finds_it_too)
{
	struct scene *s = scene_make(8);
	struct kvw_decision first, d;

	all_see(s, KVW_REPORTER_LMCACHE, KVW_COVERAGE_FULL);
	ask(s, 64 * 200 + 10, 190, 0);
	first = pick_at(s, 0);
	ask(s, 64 * 200 + 10, 190, 1);
	d = pick_at(s, first.prefill_ns + SECOND + SECOND / 2);
	ck_assert_uint_eq(d.worker_id, first.worker_id);
	ck_assert_uint_eq(d.hit_tokens[KVW_TIER_DEVICE], 190 * 64);
	d = pick_at(s, first.prefill_ns * 4 + 6 * SECOND);
	ck_assert_uint_eq(d.hit_tokens[KVW_TIER_DEVICE], 0);
	scene_free(s);
}
END_TEST

START_TEST(a_lost_cache_is_forgotten_at_once)
{
	struct scene *s = scene_make(2);
	struct kvw_cost costs[2];
	struct kvw_decision d;

	all_see(s, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	ask(s, 6400, 100, 0);
	report_stored(s->exact, 1, engine(s), KVW_TIER_DEVICE, 0, 100);
	ck_assert_uint_eq(pick_at(s, 0).worker_id, 1); /* claims the rest */
	s->strategy->ops->purge(s->strategy, 1);
	d = explain(s, costs);
	ck_assert_uint_eq(costs[1].hit_tokens[KVW_TIER_DEVICE], 0);
	ck_assert(!costs[1].exact);
	ck_assert_int_eq(d.reason, KVW_REASON_LOAD);
	carry_out_purges(s);
	kvw_exact_set_coverage(s->exact, 1, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	(void)explain(s, costs);
	ck_assert_uint_eq(costs[1].hit_tokens[KVW_TIER_DEVICE], 0);
	ck_assert(costs[1].exact);
	report_stored(s->exact, 1, engine(s), KVW_TIER_DEVICE, 0, 100);
	(void)explain(s, costs);
	ck_assert_uint_eq(costs[1].hit_tokens[KVW_TIER_DEVICE], 1600); /* no claim goes on */
	scene_free(s);
}
END_TEST

/* An answer with fewer cached tokens than predicted shrinks the tree's view of its worker, unless
 * the prediction was the worker's own. */
START_TEST(the_tree_learns_from_its_own_mistakes_alone)
{
	struct scene *s = scene_make(1);
	struct kvw_outcome outcome = {.status = 200,
		.first_token = true,
		.completed = true,
		.prompt_known = true,
		.cached_known = true,
		.prompt_tokens = 6400};
	struct kvw_worker_learned learned;
	struct kvw_decision d;

	ask(s, 6400, 100, 0);
	(void)pick_at(s, 0);
	kvw_exact_set_coverage(s->exact, 0, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	report_stored(s->exact, 0, engine(s), KVW_TIER_DEVICE, 0, 400);
	d = pick_at(s, 0);
	ck_assert(d.exact);
	s->strategy->ops->done(s->strategy, &d, &outcome, 0);
	s->strategy->ops->learned(s->strategy, 0, &learned);
	ck_assert_double_eq(learned.capacity_share, 1);
	kvw_exact_set_coverage(s->exact, 0, KVW_REPORTER_ENGINE, KVW_COVERAGE_BLIND);
	d = pick_at(s, 0);
	ck_assert(!d.exact);
	s->strategy->ops->done(s->strategy, &d, &outcome, 0);
	s->strategy->ops->learned(s->strategy, 0, &learned);
	ck_assert_double_lt(learned.capacity_share, 1);
	scene_free(s);
}
END_TEST

/* The blocks that a failed request was to bring are not waited for. */
START_TEST(a_bad_answer_ends_its_claims)
{
	struct scene *s = scene_make(1);
	struct kvw_outcome outcome = {.status = 500, .completed = true, .unserved = &s->request};
	struct kvw_decision d;

	ask(s, 6400, 100, 0);
	kvw_exact_set_coverage(s->exact, 0, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	report_stored(s->exact, 0, engine(s), KVW_TIER_DEVICE, 0, 100);
	d = pick_at(s, 0);
	ck_assert(d.exact);
	ck_assert_uint_eq(d.hit_tokens[KVW_TIER_DEVICE], 1600);
	s->strategy->ops->done(s->strategy, &d, &outcome, 0);
	ck_assert_uint_eq(pick_at(s, 0).hit_tokens[KVW_TIER_DEVICE], 1600);
	ck_assert_uint_gt(pick_at(s, 0).hit_tokens[KVW_TIER_DEVICE], 1600);
	scene_free(s);
}
END_TEST

START_TEST(the_known_length_counts)
{
	struct scene *s = scene_make(2);
	struct kvw_decision d;

	ask(s, 1000, 100, 0);
	s->request.tokens_per_unit = 0.25f;
	ck_assert_uint_eq(pick_at(s, 0).prompt_tokens, 1000);
	d = pick_at(s, 0); /* by the tree, whose hit is measured alike */
	ck_assert_uint_eq(d.hit_tokens[KVW_TIER_DEVICE], 992);
	s->request.exact_tokens = 0;
	ck_assert_uint_eq(pick_at(s, 0).prompt_tokens, 250);
	scene_free(s);
}
END_TEST

START_TEST(statistics_show_both_views)
{
	struct scene *s = scene_make(2);
	struct kvw_strategy_stats stats;

	ask(s, 1000, 100, 0);
	(void)pick_at(s, 0);
	report_stored(s->exact, 0, engine(s), KVW_TIER_DEVICE, 0, 62);
	report_stored(s->exact, 1, engine(s), KVW_TIER_DEVICE, 0, 2);
	s->strategy->ops->stats(s->strategy, &stats);
	ck_assert_uint_eq(stats.exact_blocks, 62);
	ck_assert_uint_eq(stats.exact_holders, 64);
	ck_assert_uint_gt(stats.chunks, 0);
	ck_assert_uint_le(stats.exact_bytes_limit, 8 << 20);
	scene_free(s);
}
END_TEST

/* --- compared with prefixaware --- */

/* One of two equal fleets. */
struct twin {
	struct kvw_strategy *strategy;
	struct fleet fleet;
	struct kvw_lease leases[64];
	struct kvw_decision decisions[64];
};

static void twin_make(struct twin *twin, const char *name)
{
	struct kvw_strategy_options options = test_options();

	options.tree_bytes = 2 << 20;
	options.inflight_bound = 1.5;
	options.inflight_gap = 2;
	memset(twin, 0, sizeof(*twin));
	ck_assert_int_eq(kvw_strategy_find(name)->create(&options, &twin->strategy), KVW_OK);
	fleet_init(&twin->fleet, 6);
	for (uint32_t w = 0; w < 6; w++)
		twin->fleet.items[w].capacity_tokens = 60000;
}

static void twin_free(struct twin *twin)
{
	for (unsigned i = 0; i < 64; i++)
		kvw_lease_release(&twin->leases[i], 0);
	twin->strategy->ops->destroy(twin->strategy);
	fleet_finish(&twin->fleet);
}

/* Ends the request of a slot and begins another there. */
static void twin_turn(struct twin *twin, unsigned slot, const struct kvw_route_request *request,
	uint32_t cached, int64_t now_ns)
{
	const struct kvw_strategy_ops *ops = twin->strategy->ops;
	struct kvw_decision *d = &twin->decisions[slot];
	struct kvw_lease *lease = &twin->leases[slot];
	struct kvw_cost costs[6];
	struct kvw_decision told;
	struct kvw_outcome outcome = {.status = 200,
		.first_token = true,
		.completed = true,
		.streamed = true,
		.prompt_known = true,
		.cached_known = true,
		.prompt_tokens = d->prompt_tokens,
		.first_token_ns = now_ns / 7 % SECOND + 1000};

	if (lease->load != NULL) {
		outcome.cached_tokens = cached % (d->prompt_tokens + 1);
		kvw_lease_first_token(lease, now_ns);
		kvw_lease_release(lease, now_ns);
		ops->done(twin->strategy, d, &outcome, now_ns);
	}
	EXPECT(ops->explain(twin->strategy, request, &twin->fleet.set, now_ns, costs, &told) ==
		KVW_OK);
	EXPECT(ops->pick(twin->strategy, request, &twin->fleet.set, now_ns, d) == KVW_OK);
	EXPECT(same_decision(&told, d));
	kvw_lease_take(lease, twin->fleet.items[d->pos].load, d->prefill_ns, now_ns);
	kvw_lease_hold(lease, d->prompt_tokens);
}

/* No worker reports anything: every decision is prefixaware's, to the last bit. */
START_TEST(without_events_it_is_prefixaware)
{
	static struct twin twins[2];
	static struct prompt prompt;
	static struct naming naming;
	uint64_t dice = (uint64_t)_i;
	int64_t now_ns = SECOND;

	twin_make(&twins[0], "prefixaware");
	twin_make(&twins[1], "kvaware");
	for (unsigned i = 0; i < 4000; i++) {
		struct kvw_route_request request;
		uint64_t roll = test_random(&dice);
		uint32_t chunks = 1 + (uint32_t)(roll % 90);
		unsigned slot = roll >> 8 & 63;

		prompt_start(&prompt);
		for (uint32_t c = 0; c < chunks; c++)
			prompt_add(&prompt, c < 20 ? roll >> 16 & 3 : roll >> 20 & 63);
		request = request_of(&prompt);
		if (_i % 2 == 1)
			name_prompt(&naming, &prompt, chunks * CHUNK_UNITS, &request);
		request.content_known = (roll >> 32 & 31) != 0;
		request.teaches = (roll >> 37 & 31) != 0;
		now_ns += (int64_t)(roll >> 42 & 0xffffff);
		for (unsigned t = 0; t < 2; t++) {
			if (i % 500 == 499)
				twins[t].fleet.items[roll % 6].generation++;
			if (i % 700 == 699)
				twins[t].strategy->ops->purge(twins[t].strategy, roll % 6);
			twin_turn(&twins[t], slot, &request, (uint32_t)(roll >> 40), now_ns);
		}
		EXPECT(same_decision(&twins[0].decisions[slot], &twins[1].decisions[slot]));
	}
	twin_free(&twins[0]);
	twin_free(&twins[1]);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("kvaware");

	tcase_add_test(tcase, a_worker_is_found_by_its_own_word);
	tcase_add_test(tcase, a_decision_says_how_much_it_knew);
	tcase_add_test(tcase, what_is_pushed_out_is_paid_for);
	tcase_add_test(tcase, what_was_dropped_is_missed_though_it_was_sent);
	tcase_add_test(tcase, the_last_token_is_never_reused);
	tcase_add_test(tcase, a_worker_that_was_not_heard_of_is_guessed);
	tcase_add_test(tcase, lmcache_goes_on_where_the_engine_ends);
	tcase_add_test(tcase, loading_takes_its_time);
	tcase_add_test(tcase, what_is_slower_to_load_than_to_compute_saves_nothing);
	tcase_add_test(tcase, a_burst_finds_what_is_on_its_way);
	tcase_add_test(tcase, claims_go_on_where_the_hit_ends);
	tcase_add_test(tcase, with_lmcache_alone_a_burst_finds_it_too);
	tcase_add_test(tcase, a_lost_cache_is_forgotten_at_once);
	tcase_add_test(tcase, the_tree_learns_from_its_own_mistakes_alone);
	tcase_add_test(tcase, a_bad_answer_ends_its_claims);
	tcase_add_test(tcase, the_known_length_counts);
	tcase_add_test(tcase, statistics_show_both_views);
	tcase_add_loop_test(tcase, without_events_it_is_prefixaware, 1, 5);
	tcase_set_timeout(tcase, 120);
	return run_tcase("kvaware", tcase);
}
