/*
 * kvaware_model_test.c - predicted hits against a naive count of what was reported.
 *
 * A world of prompts that branch at each chunk; workers store and drop runs of them, in their engine's
 * tiers and in LMCache's, are purged, and are heard of well or not. For each question the reference
 * looks at each block by itself.
 */
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tests/unit/suite.h"

#define WORKERS  7
#define DEPTH    6            /* chunks of the longest prompt */
#define NODES    (1 << DEPTH) /* a path of bits, with a leading 1 */
#define PER_NODE (CHUNK_UNITS / BLOCK_TOKENS)

struct model {
	struct kvw_strategy *strategy;
	struct kvw_exact *exact;
	struct fleet fleet;
	uint64_t dice;
	uint32_t engine[WORKERS][KVW_TIER_COUNT][NODES][PER_NODE]; /* stores less removals */
	uint32_t lmcache[WORKERS][KVW_TIER_COUNT][NODES];
	enum kvw_coverage coverages[WORKERS][KVW_REPORTER_COUNT];
	bool purging[WORKERS]; /* asked for and not carried out */
	uint64_t hits, exact_hits, extended;
};

/* A prompt: bits of a path, below the leading 1. */
struct question {
	uint32_t nodes[DEPTH]; /* of each chunk */
	struct prompt prompt;
	struct naming naming;
	struct kvw_route_request request;
	uint32_t tokens;
};

static uint32_t roll(struct model *m, uint32_t below)
{
	return (uint32_t)(test_random(&m->dice) >> 20) % below;
}

static void question_make(struct model *m, struct question *q)
{
	uint32_t chunks = 1 + roll(m, DEPTH - 1);
	uint32_t node = 1;

	q->tokens = chunks * CHUNK_UNITS - (roll(m, 2) == 0 ? 0 : roll(m, CHUNK_UNITS));
	prompt_start(&q->prompt);
	for (uint32_t c = 0; c < chunks; c++) {
		uint32_t bit = roll(m, 3) == 0;

		node = node * 2 + bit;
		q->nodes[c] = node;
		prompt_add(&q->prompt, bit);
	}
	q->prompt.chunks[chunks - 1].end = q->tokens;
	q->request = request_of(&q->prompt);
	name_prompt(&q->naming, &q->prompt, q->tokens, &q->request);
}

/* --- events --- */

static void play_run(struct model *m, bool stored)
{
	static struct question q;
	enum kvw_reporter reporter = roll(m, 2) == 0 ? KVW_REPORTER_ENGINE : KVW_REPORTER_LMCACHE;
	enum kvw_tier tier = (enum kvw_tier)roll(m, KVW_TIER_COUNT);
	uint32_t worker = roll(m, WORKERS);
	const struct kvw_exact_chain *chain = &q.naming.chains[reporter];
	uint32_t first = 0;
	uint32_t count = 0;

	question_make(m, &q);
	if (chain->count == 0)
		return;
	first = roll(m, 3) == 0 ? roll(m, chain->count) : 0;
	count = 1 + roll(m, chain->count - first);
	for (uint32_t i = first; i < first + count; i++) {
		uint32_t *cell =
			reporter == KVW_REPORTER_ENGINE
				? &m->engine[worker][tier][q.nodes[i / PER_NODE]][i % PER_NODE]
				: &m->lmcache[worker][tier][q.nodes[i]];

		if (stored)
			(*cell)++;
		else if (*cell > 0)
			(*cell)--;
	}
	if (stored)
		report_stored(m->exact, worker, chain, tier, first, count);
	else
		report_removed(m->exact, worker, chain, tier, first, count);
}

static void carry_out_purges(struct model *m)
{
	uint32_t purged[WORKERS];
	size_t count = kvw_exact_tick(m->exact, 0, purged, WORKERS);

	for (size_t i = 0; i < count; i++) {
		uint32_t w = purged[i];

		EXPECT(m->purging[w]);
		m->purging[w] = false;
		memset(m->engine[w], 0, sizeof(m->engine[w]));
		memset(m->lmcache[w], 0, sizeof(m->lmcache[w]));
		for (unsigned t = 0; t < KVW_REPORTER_COUNT; t++)
			if (m->coverages[w][t] == KVW_COVERAGE_FULL)
				m->coverages[w][t] = KVW_COVERAGE_BLIND;
	}
	for (uint32_t w = 0; w < WORKERS; w++)
		EXPECT(!m->purging[w]);
}

static void play_event(struct model *m)
{
	uint32_t what = roll(m, 1000);
	uint32_t worker = roll(m, WORKERS);
	enum kvw_reporter reporter = (enum kvw_reporter)roll(m, KVW_REPORTER_COUNT);
	uint32_t coverage = roll(m, 5);

	if (what < 560) {
		play_run(m, true);
	} else if (what < 960) {
		play_run(m, false);
	} else if (what < 980) {
		m->coverages[worker][reporter] =
			coverage < KVW_COVERAGE_FULL ? (enum kvw_coverage)coverage : KVW_COVERAGE_FULL;
		kvw_exact_set_coverage(m->exact, worker, reporter, m->coverages[worker][reporter]);
	} else if (what < 985) {
		m->purging[worker] = true;
		m->strategy->ops->purge(m->strategy, worker);
	} else {
		carry_out_purges(m);
	}
}

/* --- comparing --- */

static bool believed(const struct model *m, uint32_t worker, enum kvw_reporter reporter)
{
	return !m->purging[worker] && m->coverages[worker][reporter] == KVW_COVERAGE_FULL;
}

/* Fastest tier of a block; KVW_TIER_COUNT: none. */
static uint32_t tier_of(const struct model *m, uint32_t worker, enum kvw_reporter reporter,
	const struct question *q, uint32_t block)
{
	uint32_t t = 0;

	for (; t < KVW_TIER_COUNT; t++) {
		if (reporter == KVW_REPORTER_ENGINE &&
			m->engine[worker][t][q->nodes[block / PER_NODE]][block % PER_NODE] > 0)
			break;
		if (reporter == KVW_REPORTER_LMCACHE && m->lmcache[worker][t][q->nodes[block]] > 0)
			break;
	}
	return t;
}

/* Appends the tier of each token that is reused of one reporter's run. Returns how many. */
static uint32_t run_of(const struct model *m, uint32_t worker, enum kvw_reporter reporter,
	const struct question *q, uint8_t *tiers)
{
	const struct kvw_exact_chain *chain = &q->naming.chains[reporter];
	uint32_t tokens = 0;
	uint32_t most = q->tokens - 1;

	for (uint32_t b = 0; b < chain->count; b++) {
		uint32_t tier = tier_of(m, worker, reporter, q, b);

		if (tier == KVW_TIER_COUNT)
			break;
		for (uint32_t i = 0; i < chain->block_tokens; i++)
			tiers[tokens++] = (uint8_t)tier;
	}
	if (reporter == KVW_REPORTER_ENGINE)
		most = most / BLOCK_TOKENS * BLOCK_TOKENS;
	return tokens < most ? tokens : most;
}

static int by_value(const void *a, const void *b)
{
	return *(const uint8_t *)a - *(const uint8_t *)b;
}

/* What is to be predicted of a worker. */
static void expect(
	struct model *m, uint32_t worker, const struct question *q, uint32_t tokens[KVW_TIER_COUNT])
{
	uint8_t tiers[DEPTH * CHUNK_UNITS];
	uint8_t behind[DEPTH * CHUNK_UNITS];
	uint32_t count = 0;
	uint32_t more = 0;

	if (believed(m, worker, KVW_REPORTER_ENGINE))
		count = run_of(m, worker, KVW_REPORTER_ENGINE, q, tiers);
	if (believed(m, worker, KVW_REPORTER_LMCACHE))
		more = run_of(m, worker, KVW_REPORTER_LMCACHE, q, behind);
	/* Only how much lies in each tier counts: the fastest goes first. */
	qsort(behind, more, 1, by_value);
	m->extended += count > 0 && more > count;
	for (; count < more; count++)
		tiers[count] = behind[count];
	memset(tokens, 0, sizeof(uint32_t) * KVW_TIER_COUNT);
	for (uint32_t i = 0; i < count; i++)
		tokens[tiers[i]]++;
}

static void check(struct model *m)
{
	static struct question q;
	struct kvw_cost costs[WORKERS];
	struct kvw_decision d;

	question_make(m, &q);
	EXPECT(m->strategy->ops->explain(m->strategy, &q.request, &m->fleet.set, 0, costs, &d) ==
		KVW_OK);
	for (uint32_t w = 0; w < WORKERS; w++) {
		uint32_t tokens[KVW_TIER_COUNT];

		expect(m, w, &q, tokens);
		EXPECT(memcmp(tokens, costs[w].hit_tokens, sizeof(tokens)) == 0);
		EXPECT(costs[w].exact ==
			(believed(m, w, KVW_REPORTER_ENGINE) || believed(m, w, KVW_REPORTER_LMCACHE)));
		for (unsigned t = 0; t < KVW_TIER_COUNT; t++)
			m->hits += tokens[t];
		m->exact_hits += costs[w].exact && tokens[KVW_TIER_DEVICE] > 0;
	}
	EXPECT(memcmp(d.hit_tokens, costs[d.pos].hit_tokens, sizeof(d.hit_tokens)) == 0);
	EXPECT(d.exact == costs[d.pos].exact);
}

START_TEST(every_hit_is_the_naive_one)
{
	struct kvw_strategy_options options = test_options();
	struct model *m = calloc(1, sizeof(*m));

	ck_assert_ptr_nonnull(m);
	m->dice = (uint64_t)_i;
	ck_assert_int_eq(kvw_strategy_find("kvaware")->create(&options, &m->strategy), KVW_OK);
	m->exact = m->strategy->ops->exact(m->strategy);
	fleet_init(&m->fleet, WORKERS);
	for (unsigned i = 0; i < 20000; i++) {
		play_event(m);
		check(m);
	}
	ck_assert_uint_gt(m->exact_hits, 10000);
	ck_assert_uint_gt(m->extended, 1000);
	m->strategy->ops->destroy(m->strategy);
	fleet_finish(&m->fleet);
	free(m);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("model");

	tcase_add_loop_test(tcase, every_hit_is_the_naive_one, 1, 4);
	tcase_set_timeout(tcase, 240);
	return run_tcase("kvaware_model", tcase);
}
