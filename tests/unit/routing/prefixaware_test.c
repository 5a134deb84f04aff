/*
 * prefixaware_test.c - where prompts go, and what is predicted for them.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "strategy_fixture.h"
#include "tests/unit/suite.h"

#define MS INT64_C(1000000)

static void setup(void)
{
	setup_strategy("prefixaware");
}

static struct kvw_decision pick_of(struct kvw_strategy *chooser, const struct fleet *workers,
	const struct kvw_route_request *request, int64_t now_ns)
{
	struct kvw_decision out = {0};

	EXPECT(chooser->ops->pick(chooser, request, &workers->set, now_ns, &out) == KVW_OK);
	return out;
}

static struct kvw_decision pick(const struct kvw_route_request *request)
{
	return pick_of(strategy, &fleet, request, 0);
}

/* `count` chunks; `branch` tells prompts apart from chunk `shared` on. */
static void make_prompt(struct prompt *p, uint32_t count, uint32_t shared, uint64_t branch)
{
	prompt_start(p);
	for (uint32_t i = 0; i < count; i++)
		prompt_add(p, i < shared ? 1 : branch);
}

/* The same, with a request for it, which borrows the prompt. */
static struct kvw_route_request request_for(
	struct prompt *p, uint32_t count, uint32_t shared, uint64_t branch)
{
	make_prompt(p, count, shared, branch);
	return request_of(p);
}

START_TEST(second_turn_follows_the_first)
{
	struct prompt p;
	struct kvw_route_request request;
	struct kvw_decision first;
	struct kvw_decision second;

	fleet_init(&fleet, 8);
	request = request_for(&p, 20, 20, 0);
	first = pick(&request);
	ck_assert_int_eq(first.reason, KVW_REASON_LOAD);
	ck_assert_uint_eq(first.prompt_tokens, 20 * CHUNK_UNITS);
	ck_assert_uint_eq(first.hit_tokens[KVW_TIER_DEVICE], 0);
	request = request_for(&p, 30, 30, 0);
	second = pick(&request);
	ck_assert_int_eq(second.reason, KVW_REASON_PREFIX);
	ck_assert_uint_eq(second.worker_id, first.worker_id);
	ck_assert_uint_eq(second.hit_tokens[KVW_TIER_DEVICE], 20 * CHUNK_UNITS);
	ck_assert_int_lt(second.prefill_ns, first.prefill_ns);
}
END_TEST

/* p_w = (L - h) / R + a (L^2 - h^2) / 2, to the nanosecond. */
START_TEST(prefill_follows_the_formula)
{
	struct prompt p;
	struct kvw_route_request request;
	struct kvw_decision d;
	double expected = 0;

	fleet_init(&fleet, 2);
	request = request_for(&p, 100, 100, 0);
	d = pick(&request);
	expected = 6400 / 8000.0 * 1e9 + 1.75 * 6400.0 * 6400.0 / 2;
	ck_assert(llabs(d.prefill_ns - (int64_t)expected) <= 2);
	request = request_for(&p, 150, 100, 3);
	d = pick(&request);
	expected = 3200 / 8000.0 * 1e9 + 1.75 * (9600.0 * 9600.0 - 6400.0 * 6400.0) / 2;
	ck_assert(llabs(d.prefill_ns - (int64_t)expected) <= 2);
}
END_TEST

/* Whole blocks, and never the last token. */
START_TEST(hits_are_whole_blocks_short_of_the_end)
{
	static const uint32_t blocks[] = {0, 1, 16, 48, 64, 1000, 100000};
	struct prompt p;

	fleet_init(&fleet, 1);
	make_prompt(&p, 10, 10, 0);
	for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
		struct kvw_route_request request = request_of(&p);
		uint32_t block = blocks[i] == 0 ? 16 : blocks[i];
		struct kvw_decision d;

		fleet.items[0].block_size = blocks[i];
		(void)pick(&request);
		d = pick(&request);
		ck_assert_uint_eq(
			d.hit_tokens[KVW_TIER_DEVICE], (10 * CHUNK_UNITS - 1) / block * block);
		strategy->ops->destroy(strategy);
		strategy = make_default("prefixaware");
	}
}
END_TEST

START_TEST(units_become_tokens)
{
	struct prompt p;
	struct kvw_route_request request;

	fleet_init(&fleet, 2);
	request = request_for(&p, 40, 40, 0);
	request.tokens_per_unit = 0.25f;
	ck_assert_uint_eq(pick(&request).prompt_tokens, 10 * CHUNK_UNITS);
	ck_assert_uint_eq(
		pick(&request).hit_tokens[KVW_TIER_DEVICE], (10 * CHUNK_UNITS - 1) / 16 * 16);
}
END_TEST

/* A prefix is not worth any wait: when its holder is busier than the prefill takes, another
 * worker computes it again, and holds it from then on. */
START_TEST(hot_prefix_spreads_when_waiting_costs_more)
{
	struct kvw_lease busy = {0};
	struct prompt p;
	struct kvw_route_request request;
	struct kvw_decision home;
	struct kvw_decision away;

	fleet_init(&fleet, 2);
	request = request_for(&p, 50, 50, 0); /* 0.4 s */
	home = pick(&request);
	kvw_lease_take(&busy, fleet.items[home.pos].load, 200 * MS, 0);
	ck_assert_uint_eq(pick(&request).pos, home.pos);
	kvw_lease_release(&busy, 0);
	kvw_lease_take(&busy, fleet.items[home.pos].load, 1000 * MS, 0);
	away = pick(&request);
	ck_assert_uint_ne(away.pos, home.pos);
	ck_assert_int_eq(away.reason, KVW_REASON_LOAD);
	away = pick(&request);
	ck_assert_uint_ne(away.pos, home.pos);
	ck_assert_int_eq(away.reason, KVW_REASON_PREFIX);
	kvw_lease_release(&busy, 0);
}
END_TEST

/* The delay that a prefill imposes counts: requests in flight push a miss elsewhere. */
START_TEST(requests_in_flight_count)
{
	struct kvw_lease busy[4] = {0};
	struct prompt p;

	fleet_init(&fleet, 2);
	for (unsigned i = 0; i < 4; i++)
		kvw_lease_take(&busy[i], fleet.items[0].load, 0, 0);
	for (unsigned i = 0; i < 20; i++) {
		struct kvw_route_request request = request_for(&p, 10, 0, 100 + i);
		ck_assert_uint_eq(pick(&request).pos, 1);
	}
	for (unsigned i = 0; i < 4; i++)
		kvw_lease_release(&busy[i], 0);
}
END_TEST

/* Two servers of two ranks. Ranks in lockstep: a prefill within the time of a busier rank delays no answer of other
 * ranks, one beyond it those of all. */
START_TEST(ranks_in_lockstep_share_their_delay)
{
	struct kvw_strategy_options options = test_options();
	struct kvw_lease busy = {0}, decoding[8] = {{0}};
	struct kvw_cost loose[4], locked[4];
	struct kvw_decision d;
	struct prompt p;

	fleet_init(&fleet, 4);
	for (size_t i = 0; i < 4; i++)
		fleet.items[i].server = (uint32_t)i / 2 * 2;
	/* rank 1 has a long prompt before it; rank 0 writes four answers, and so does rank 2 */
	kvw_lease_take(&busy, fleet.items[1].load, INT64_C(10000000000), 0);
	for (size_t i = 0; i < 8; i++)
		kvw_lease_take(&decoding[i], fleet.items[i < 4 ? 0 : 2].load, 0, 0);
	for (int lockstep = 0; lockstep < 2; lockstep++) {
		struct kvw_route_request request = request_for(&p, 10, 0, 77);

		options.lockstep = lockstep == 1;
		strategy->ops->reconfigure(strategy, &options);
		ck_assert_int_eq(strategy->ops->explain(strategy, &request, &fleet.set, 0,
					 lockstep == 1 ? locked : loose, &d),
			KVW_OK);
	}
	/* within what the busier rank takes: no other rank's answer waits longer */
	ck_assert_double_gt(loose[0].others_ns, 0);
	ck_assert_double_eq_tol(locked[0].others_ns, loose[0].others_ns, 1);
	/* the busy rank would be later still, and all five answers with it */
	ck_assert_double_eq_tol(locked[1].others_ns, 5 * loose[1].others_ns, 1);
	/* an idle rank of a server whose other one only writes delays its four answers */
	ck_assert_double_eq_tol(loose[3].others_ns, 0, 1);
	ck_assert_double_eq_tol(locked[3].others_ns, locked[2].others_ns, 1);
	ck_assert_double_eq_tol(locked[2].others_ns, loose[2].others_ns, 1);
	for (size_t i = 0; i < 4; i++)
		ck_assert_double_eq_tol(locked[i].total_ns - loose[i].total_ns,
			locked[i].others_ns - loose[i].others_ns, 1);
	kvw_lease_release(&busy, 0);
	for (size_t i = 0; i < 8; i++)
		kvw_lease_release(&decoding[i], 0);
}
END_TEST

/* One long prompt in flight weighs more than two short ones. */
START_TEST(contexts_in_flight_count)
{
	struct kvw_strategy_options options = test_options();
	struct kvw_lease leases[3] = {{0}, {0}, {0}};
	static const uint32_t tokens[] = {100000, 3000, 3000};
	struct prompt p;

	options.omega = 0;
	options.context_ns_per_token = 6000;
	strategy->ops->destroy(strategy);
	strategy = make_strategy("prefixaware", &options);
	fleet_init(&fleet, 2);
	for (size_t i = 0; i < 3; i++) {
		kvw_lease_take(&leases[i], fleet.items[i > 0].load, 0, 0);
		kvw_lease_hold(&leases[i], tokens[i]);
	}
	for (uint64_t n = 0; n < 20; n++) {
		struct kvw_route_request request = request_for(&p, 10, 0, n + 2);
		ck_assert_uint_eq(pick(&request).worker_id, 1);
	}
	for (size_t i = 0; i < 3; i++)
		kvw_lease_release(&leases[i], 0);
}
END_TEST

/* Prompts without reuse under load: as least-work balancing, so within one request of even. */
START_TEST(uniform_prompts_balance)
{
	struct kvw_lease *leases = calloc(400, sizeof(*leases));
	struct prompt p;

	ck_assert_ptr_nonnull(leases);
	fleet_init(&fleet, 8);
	for (unsigned i = 0; i < 400; i++) {
		struct kvw_route_request request;
		struct kvw_decision d;

		request = request_for(&p, 10, 0, 1000 + i);
		d = pick(&request);
		kvw_lease_take(&leases[i], fleet.items[d.pos].load, d.prefill_ns, 0);
	}
	for (unsigned w = 0; w < 8; w++)
		ck_assert_uint_eq(kvw_load_inflight(fleet.items[w].load), 50);
	for (unsigned i = 0; i < 400; i++)
		kvw_lease_release(&leases[i], 0);
	free(leases);
}
END_TEST

/* Idle replicas with different ids send the same prompt to the same worker, and different prompts
 * to all of them. */
START_TEST(ties_are_broken_alike_everywhere)
{
	struct kvw_strategy *a = make_default("prefixaware");
	struct kvw_strategy *b = make_default("prefixaware");
	unsigned count[8] = {0};
	struct fleet one;
	struct fleet two;
	struct prompt p;

	fleet_init(&one, 8);
	fleet_init(&two, 8);
	for (unsigned w = 0; w < 8; w++)
		two.items[w].key = one.items[7 - w].key;
	for (unsigned i = 0; i < 400; i++) {
		struct kvw_route_request request;
		struct kvw_decision d;

		request = request_for(&p, 12, 0, 1000 + i);
		d = pick_of(a, &one, &request, 0);
		EXPECT(one.items[d.pos].key == two.items[pick_of(b, &two, &request, 0).pos].key);
		count[d.pos]++;
	}
	for (unsigned w = 0; w < 8; w++)
		ck_assert_uint_gt(count[w], 25);
	fleet_finish(&one);
	fleet_finish(&two);
	a->ops->destroy(a);
	b->ops->destroy(b);
}
END_TEST

/* Paths that do not generate leave no trace and are charged nothing. */
START_TEST(what_does_not_teach_is_not_inserted)
{
	struct kvw_strategy_stats stats;
	struct prompt p;
	struct kvw_route_request request;
	struct kvw_decision d;

	fleet_init(&fleet, 4);
	request = request_for(&p, 20, 20, 0);
	request.teaches = false;
	d = pick(&request);
	ck_assert_int_eq(d.reason, KVW_REASON_LOAD);
	ck_assert_int_eq(d.prefill_ns, 0);
	request.teaches = true;
	request.content_known = false;
	d = pick(&request);
	ck_assert_int_eq(d.reason, KVW_REASON_NO_CONTENT);
	strategy->ops->stats(strategy, &stats);
	ck_assert_uint_eq(stats.chunks, 0);
	ck_assert_uint_gt(stats.bytes_limit, stats.bytes);
}
END_TEST

START_TEST(unknown_prompts_spread_by_load)
{
	struct kvw_route_request request = {0};
	struct kvw_lease leases[80] = {0};

	fleet_init(&fleet, 8);
	for (unsigned i = 0; i < 80; i++) {
		struct kvw_decision d = pick(&request);

		kvw_lease_take(&leases[i], fleet.items[d.pos].load, d.prefill_ns, 0);
	}
	for (unsigned w = 0; w < 8; w++)
		ck_assert_uint_eq(kvw_load_inflight(fleet.items[w].load), 10);
	for (unsigned i = 0; i < 80; i++)
		kvw_lease_release(&leases[i], 0);
}
END_TEST

START_TEST(the_only_worker_learns_too)
{
	struct prompt p;
	struct kvw_route_request request;
	struct kvw_decision d;

	fleet_init(&fleet, 4);
	request = request_for(&p, 20, 20, 0);
	for (unsigned w = 0; w < 4; w++)
		fleet.items[w].usable = w == 2;
	d = pick(&request);
	ck_assert_int_eq(d.reason, KVW_REASON_ONLY);
	ck_assert_uint_eq(d.pos, 2);
	for (unsigned w = 0; w < 4; w++)
		fleet.items[w].usable = true;
	d = pick(&request);
	ck_assert_int_eq(d.reason, KVW_REASON_PREFIX);
	ck_assert_uint_eq(d.pos, 2);
}
END_TEST

/* A list of prompts: hits and costs are summed over its chains. */
START_TEST(chains_are_summed)
{
	struct kvw_chunk chunks[60];
	uint32_t ends[] = {20, 20, 60};
	struct prompt one;
	struct prompt two;
	struct kvw_route_request request;
	struct kvw_decision first;
	struct kvw_decision d;

	fleet_init(&fleet, 4);
	make_prompt(&one, 20, 0, 5);
	make_prompt(&two, 40, 0, 6);
	memcpy(chunks, one.chunks, 20 * sizeof(chunks[0]));
	memcpy(chunks + 20, two.chunks, 40 * sizeof(chunks[0]));
	request = request_of(&one);
	first = pick(&request);
	request.chunks = chunks;
	request.chunk_count = 60;
	request.chain_ends = ends;
	request.chain_count = 3; /* the middle one is empty */
	d = pick(&request);
	ck_assert_uint_eq(d.pos, first.pos);
	ck_assert_uint_eq(d.prompt_tokens, 60 * CHUNK_UNITS);
	ck_assert_uint_eq(d.hit_tokens[KVW_TIER_DEVICE], (20 * CHUNK_UNITS - 1) / 16 * 16);
	d = pick(&request);
	ck_assert_uint_eq(d.hit_tokens[KVW_TIER_DEVICE],
		(20 * CHUNK_UNITS - 1) / 16 * 16 + (40 * CHUNK_UNITS - 1) / 16 * 16);
}
END_TEST

/* Beyond what is looked up, chains still count as work. */
START_TEST(many_chains_are_charged)
{
	struct kvw_chunk chunks[400];
	uint32_t ends[400];
	struct prompt p;
	struct kvw_route_request request;
	struct kvw_decision d;

	fleet_init(&fleet, 4);
	for (uint32_t i = 0; i < 400; i++) {
		make_prompt(&p, 1, 0, i);
		chunks[i] = p.chunks[0];
		ends[i] = i + 1;
	}
	request = request_of(&p);
	request.chunks = chunks;
	request.chunk_count = 400;
	request.chain_ends = ends;
	request.chain_count = 400;
	d = pick(&request);
	ck_assert_uint_eq(d.prompt_tokens, 400 * CHUNK_UNITS);
	ck_assert_int_ge(d.prefill_ns, 400 * CHUNK_UNITS / 8000.0 * 1e9);
}
END_TEST

/* A lost cache is noticed by the purge call and by the candidate's generation, and a loop with an
 * old snapshot does not undo what was learned since. */
START_TEST(lost_cache_is_forgotten)
{
	struct kvw_strategy_stats stats;
	struct prompt p;
	struct kvw_route_request request;

	fleet_init(&fleet, 1);
	request = request_for(&p, 20, 20, 0);
	(void)pick(&request);
	ck_assert_uint_gt(pick(&request).hit_tokens[KVW_TIER_DEVICE], 0);
	fleet.items[0].generation = 1;
	ck_assert_uint_eq(pick(&request).hit_tokens[KVW_TIER_DEVICE], 0);
	fleet.items[0].generation = 0;
	ck_assert_uint_gt(pick(&request).hit_tokens[KVW_TIER_DEVICE], 0);
	strategy->ops->purge(strategy, 0);
	ck_assert_uint_eq(pick(&request).hit_tokens[KVW_TIER_DEVICE], 0);
	strategy->ops->stats(strategy, &stats);
	ck_assert_uint_eq(stats.purges, 2);
}
END_TEST

static void answer_500(const struct kvw_decision *d, const struct kvw_route_request *request)
{
	struct kvw_outcome outcome = {.status = 500, .completed = true, .unserved = request};

	strategy->ops->done(strategy, d, &outcome, 0);
}

/* A worker that answered an error computed nothing: the next prompt with that prefix is not drawn to it, and
 * what it held before stays. */
START_TEST(what_a_bad_answer_taught_is_untaught)
{
	struct prompt p;
	struct prompt q;
	struct kvw_route_request begins;
	struct kvw_route_request request;
	struct kvw_decision d;
	uint32_t home;

	fleet_init(&fleet, 1);
	begins = request_for(&q, 50, 50, 0);
	d = pick(&begins);
	answer_500(&d, &begins);
	ck_assert_uint_eq(pick(&begins).hit_tokens[KVW_TIER_DEVICE], 0);
	home = pick(&begins).hit_tokens[KVW_TIER_DEVICE];
	ck_assert_uint_gt(home, 0);
	request = request_for(&p, 90, 50, 7);
	request.tokens_per_unit = 0.3f;
	d = pick(&request);
	request.tokens_per_unit = 0.2f; /* learned since */
	answer_500(&d, &request);
	request.tokens_per_unit = 0.3f;
	ck_assert_uint_eq(pick(&request).hit_tokens[KVW_TIER_DEVICE], d.hit_tokens[KVW_TIER_DEVICE]);
	d = pick(&begins); /* known to its end: nothing was taught */
	answer_500(&d, &begins);
	ck_assert_uint_eq(pick(&begins).hit_tokens[KVW_TIER_DEVICE], home);
	ck_assert_uint_gt(pick(&request).hit_tokens[KVW_TIER_DEVICE], home * 3 / 10);
}
END_TEST

/* Of a list of prompts it is not known which of them was held. */
START_TEST(chains_are_untaught_if_none_was_held)
{
	struct prompt p;
	uint32_t ends[] = {20, 60};
	struct kvw_route_request request;
	struct kvw_decision d;

	fleet_init(&fleet, 1);
	request = request_for(&p, 60, 0, 5);
	request.chain_ends = ends;
	request.chain_count = 2;
	for (unsigned i = 0; i < 2; i++) {
		d = pick(&request);
		ck_assert_uint_eq(d.hit_tokens[KVW_TIER_DEVICE], 0);
		answer_500(&d, &request);
	}
	(void)pick(&request);
	d = pick(&request);
	answer_500(&d, &request);
	ck_assert_uint_eq(pick(&request).hit_tokens[KVW_TIER_DEVICE], d.hit_tokens[KVW_TIER_DEVICE]);
}
END_TEST

/* A set of a version that was seen is not read again; one that is not plain is, each time. */
START_TEST(sets_of_one_version_are_equal)
{
	struct kvw_strategy_stats stats;
	struct prompt p;
	struct kvw_route_request request;

	fleet_init(&fleet, 2);
	request = request_for(&p, 20, 20, 0);
	fleet.set.version = 8;
	fleet.items[1].usable = false;
	for (unsigned i = 0; i < 3; i++)
		ck_assert_uint_eq(pick(&request).pos, 0);
	fleet.set.version = 16; /* in the same place */
	fleet.items[0].usable = false;
	fleet.items[1].usable = true;
	for (unsigned i = 0; i < 3; i++)
		ck_assert_uint_eq(pick(&request).pos, 1);
	fleet.set.version = 24;
	fleet.items[0].usable = true;
	fleet.items[1].generation = 1;
	for (unsigned i = 0; i < 3; i++)
		(void)pick(&request);
	strategy->ops->stats(strategy, &stats);
	ck_assert_uint_eq(stats.purges, 1);
	fleet.set.version = 32;
	fleet.items[0].usable = false;
	ck_assert_uint_eq(pick(&request).pos, 1);
	fleet.set.version = 40;
	fleet.items[0].usable = true;
	fleet.items[1].usable = false;
	ck_assert_uint_eq(pick(&request).pos, 0);
}
END_TEST

/* A prompt of one or two chains out of few beginnings; its chunks lie in *p. */
static struct kvw_route_request random_request(struct prompt *p, uint32_t ends[2], uint64_t *dice)
{
	uint32_t count = 4 + (uint32_t)(test_random(dice) % 60);
	struct kvw_route_request request;

	prompt_start(p);
	for (uint32_t i = 0; i < count; i++)
		prompt_add(p, i % 9 == 0 ? test_random(dice) % 2 : i);
	request = request_of(p);
	if (test_random(dice) % 5 == 0) { /* the second one continues where no chain begins */
		ends[0] = count / 2;
		ends[1] = count;
		request.chain_ends = ends;
		request.chain_count = 2;
	}
	return request;
}

/* Of usable candidates that lie on a board, loads are read and hits are taken many at a time. Others, one
 * by one, give the same. */
START_TEST(many_at_a_time_are_as_one_by_one)
{
	enum { WORKERS = 61, PICKS = 4000, HELD = 200 };
	static struct kvw_lease leases[2][HELD];
	struct kvw_strategy *strategies[2] = {
		make_default("prefixaware"), make_default("prefixaware")};
	struct fleet fleets[2];
	uint64_t dice = 5;
	unsigned hits = 0;

	memset(leases, 0, sizeof(leases));
	for (unsigned k = 0; k < 2; k++)
		fleet_init(&fleets[k], WORKERS);
	fleets[0].set.version = 7;
	fleets[1].set.board = NULL;
	for (unsigned i = 0; i < PICKS; i++) {
		struct kvw_decision d[2];
		struct kvw_cost costs[2][WORKERS];
		struct prompt p;
		uint32_t ends[2];
		struct kvw_route_request request = random_request(&p, ends, &dice);
		int64_t now_ns = i * (MS / 2);

		for (unsigned k = 0; k < 2; k++) {
			struct kvw_lease *lease = &leases[k][i % HELD];

			EXPECT(strategies[k]->ops->explain(strategies[k], &request, &fleets[k].set,
				       now_ns, costs[k], &d[k]) == KVW_OK);
			d[k] = pick_of(strategies[k], &fleets[k], &request, now_ns);
			kvw_lease_release(lease, now_ns);
			kvw_lease_take(
				lease, fleets[k].items[d[k].pos].load, d[k].prefill_ns / 8, now_ns);
			kvw_lease_hold(lease, d[k].prompt_tokens);
		}
		EXPECT(d[0].pos == d[1].pos && d[0].reason == d[1].reason);
		EXPECT(d[0].prompt_tokens == d[1].prompt_tokens);
		EXPECT(d[0].hit_tokens[KVW_TIER_DEVICE] == d[1].hit_tokens[KVW_TIER_DEVICE]);
		EXPECT(d[0].prefill_ns == d[1].prefill_ns && d[0].inflight == d[1].inflight);
		for (unsigned w = 0; w < WORKERS; w++)
			EXPECT(costs[0][w].total_ns == costs[1][w].total_ns &&
				costs[0][w].hit_tokens[KVW_TIER_DEVICE] ==
					costs[1][w].hit_tokens[KVW_TIER_DEVICE]);
		hits += d[0].hit_tokens[KVW_TIER_DEVICE] > 0;
	}
	ck_assert_uint_gt(hits, PICKS / 2);
	for (unsigned k = 0; k < 2; k++) {
		fleet_finish(&fleets[k]);
		strategies[k]->ops->destroy(strategies[k]);
	}
}
END_TEST

/* Ids have gaps once workers were removed, or where not all serve the model. */
START_TEST(ids_may_have_gaps)
{
	struct prompt p;
	struct kvw_route_request request;
	struct kvw_decision first;

	fleet_init(&fleet, 3);
	fleet.items[0].id = 4;
	fleet.items[1].id = 77;
	fleet.items[2].id = KVW_MAX_WORKERS - 1;
	for (unsigned i = 0; i < 30; i++) {
		request = request_for(&p, 20, 0, i);
		first = pick(&request);
		ck_assert_uint_eq(pick(&request).pos, first.pos);
		ck_assert_uint_eq(first.worker_id, fleet.items[first.pos].id);
	}
}
END_TEST

#define LOOPS 4
#define PICKS 8000

struct loop {
	struct kvw_strategy *strategy;
	struct fleet *fleet;
	uint64_t dice;
};

static void *run_loop(void *arg)
{
	struct loop *loop = arg;
	struct kvw_lease leases[8];
	struct prompt p;

	memset(leases, 0, sizeof(leases));
	for (unsigned i = 0; i < PICKS; i++) {
		struct kvw_lease *lease = &leases[i % 8];
		struct kvw_route_request request;
		struct kvw_decision d;

		request = request_for(&p, 30, 10, test_random(&loop->dice) % 200);
		kvw_lease_first_token(lease, (int64_t)i * 1000);
		kvw_lease_release(lease, (int64_t)i * 1000);
		d = pick_of(loop->strategy, loop->fleet, &request, (int64_t)i * 1000);
		kvw_lease_take(
			lease, loop->fleet->items[d.pos].load, d.prefill_ns, (int64_t)i * 1000);
		if (test_random(&loop->dice) % 500 == 0)
			loop->strategy->ops->purge(loop->strategy, d.worker_id);
	}
	for (unsigned i = 0; i < 8; i++)
		kvw_lease_release(&leases[i], 0);
	return NULL;
}

START_TEST(loops_share_the_strategy)
{
	struct loop loops[LOOPS];
	pthread_t threads[LOOPS];

	fleet_init(&fleet, 16);
	for (unsigned i = 0; i < LOOPS; i++) {
		loops[i] = (struct loop){strategy, &fleet, i + 1};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run_loop, &loops[i]), 0);
	}
	for (unsigned i = 0; i < LOOPS; i++)
		pthread_join(threads[i], NULL);
	for (unsigned w = 0; w < 16; w++)
		ck_assert_uint_eq(kvw_load_inflight(fleet.items[w].load), 0);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("prefixaware");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, second_turn_follows_the_first);
	tcase_add_test(tcase, prefill_follows_the_formula);
	tcase_add_test(tcase, hits_are_whole_blocks_short_of_the_end);
	tcase_add_test(tcase, units_become_tokens);
	tcase_add_test(tcase, hot_prefix_spreads_when_waiting_costs_more);
	tcase_add_test(tcase, requests_in_flight_count);
	tcase_add_test(tcase, ranks_in_lockstep_share_their_delay);
	tcase_add_test(tcase, contexts_in_flight_count);
	tcase_add_test(tcase, uniform_prompts_balance);
	tcase_add_test(tcase, ties_are_broken_alike_everywhere);
	tcase_add_test(tcase, what_does_not_teach_is_not_inserted);
	tcase_add_test(tcase, unknown_prompts_spread_by_load);
	tcase_add_test(tcase, the_only_worker_learns_too);
	tcase_add_test(tcase, chains_are_summed);
	tcase_add_test(tcase, many_chains_are_charged);
	tcase_add_test(tcase, lost_cache_is_forgotten);
	tcase_add_test(tcase, what_a_bad_answer_taught_is_untaught);
	tcase_add_test(tcase, chains_are_untaught_if_none_was_held);
	tcase_add_test(tcase, sets_of_one_version_are_equal);
	tcase_add_test(tcase, many_at_a_time_are_as_one_by_one);
	tcase_add_test(tcase, ids_may_have_gaps);
	tcase_add_test(tcase, loops_share_the_strategy);
	tcase_set_timeout(tcase, 60);
	return run_tcase("prefixaware", tcase);
}
