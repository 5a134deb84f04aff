/*
 * learning_test.c - what prefixaware learns from answers: rates and capacity, in a small simulation
 * of a fleet whose rates and capacity are known.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tests/unit/suite.h"

#define MS       INT64_C(1000000)
#define SECOND   (1000 * MS)
#define OVERHEAD (12 * MS)
#define WORKERS  4
#define REQUESTS 3000

static struct kvw_strategy *strategy;
static struct fleet fleet;

static void setup(void)
{
	struct kvw_strategy_options options = test_options();

	options.inflight_bound = 2;
	options.inflight_gap = 8;
	fleet_init(&fleet, WORKERS);
	ck_assert_int_eq(kvw_strategy_find("prefixaware")->create(&options, &strategy), KVW_OK);
}

static void teardown(void)
{
	strategy->ops->destroy(strategy);
	fleet_finish(&fleet);
}

static struct kvw_worker_learned learned(uint32_t worker)
{
	struct kvw_worker_learned out = {0};

	strategy->ops->learned(strategy, worker, &out);
	return out;
}

/* --- single answers --- */

/* A decision for a prompt of 4,000 tokens of which `hit` are predicted, and its answer. */
static const struct kvw_decision plain_decision = {
	.prompt_tokens = 4000, .prefill_ns = 500 * MS, .chains = 1, .worker_id = 0};
static const struct kvw_outcome good_outcome = {.status = 200,
	.first_token = true,
	.completed = true,
	.streamed = true,
	.first_token_ns = 200 * MS};

static uint32_t samples_after(struct kvw_decision decision, struct kvw_outcome outcome)
{
	teardown();
	setup();
	for (unsigned i = 0; i < 20; i++)
		strategy->ops->done(strategy, &decision, &outcome, 0);
	return learned(0).rate_samples;
}

START_TEST(streams_that_met_no_other_prefill_teach_the_rate)
{
	struct kvw_outcome outcome = good_outcome;

	ck_assert_uint_eq(samples_after(plain_decision, outcome), 20);
	ck_assert_double_eq_tol(learned(0).observed_tokens_per_second, 20000, 2000);
	outcome.ahead_ns = outcome.behind_ns = 40 * MS;
	ck_assert_uint_eq(samples_after(plain_decision, outcome), 20);
	outcome.completed = false; /* the client left after the first token */
	ck_assert_uint_eq(samples_after(plain_decision, outcome), 20);
}
END_TEST

START_TEST(others_do_not)
{
	struct kvw_decision decision = plain_decision;
	struct kvw_outcome outcome = good_outcome;

	outcome.streamed = false;
	ck_assert_uint_eq(samples_after(decision, outcome), 0);
	outcome = good_outcome;
	outcome.first_token = false;
	ck_assert_uint_eq(samples_after(decision, outcome), 0);
	outcome = good_outcome;
	outcome.status = 500;
	ck_assert_uint_eq(samples_after(decision, outcome), 0);
	outcome = good_outcome;
	outcome.ahead_ns = 60 * MS;
	ck_assert_uint_eq(samples_after(decision, outcome), 0);
	outcome = good_outcome;
	outcome.behind_ns = 60 * MS;
	ck_assert_uint_eq(samples_after(decision, outcome), 0);
	decision.chains = 2; /* the first token of which prompt? */
	ck_assert_uint_eq(samples_after(decision, good_outcome), 0);
	decision.chains = 0; /* by load alone */
	ck_assert_uint_eq(samples_after(decision, good_outcome), 0);
	decision = plain_decision;
	decision.inflight = 100;
	ck_assert_uint_eq(samples_after(decision, good_outcome), 0);
}
END_TEST

/* What usage reports counts before what was predicted; a large hit that was only predicted is too
 * uncertain to learn from. */
START_TEST(actual_hits_count_where_they_are_reported)
{
	struct kvw_decision decision = plain_decision;
	struct kvw_outcome outcome = good_outcome;

	decision.hit_tokens[KVW_TIER_DEVICE] = 3000;
	ck_assert_uint_eq(samples_after(decision, outcome), 0);
	outcome.prompt_known = outcome.cached_known = true;
	outcome.prompt_tokens = 4000;
	outcome.cached_tokens = 0;
	ck_assert_uint_eq(samples_after(decision, outcome), 20);
	ck_assert_double_eq_tol(learned(0).observed_tokens_per_second, 20000, 2000);
	outcome.cached_tokens = 3000;
	ck_assert_uint_eq(samples_after(decision, outcome), 20);
	ck_assert_double_eq_tol(learned(0).observed_tokens_per_second, 5000, 1000);
	outcome.cached_tokens = 3000 + 4000 / 16 + 128;
	ck_assert_uint_eq(samples_after(decision, outcome), 20);
	outcome.cached_tokens++; /* more than the device had: from a tier behind it, at another pace */
	ck_assert_uint_eq(samples_after(decision, outcome), 0);
	outcome.cached_tokens = 4000; /* cannot be: something is always computed */
	ck_assert_uint_eq(samples_after(decision, outcome), 0);
}
END_TEST

START_TEST(failed_hits_shrink_the_view)
{
	struct kvw_decision decision = plain_decision;
	struct kvw_outcome outcome = good_outcome;

	decision.hit_tokens[KVW_TIER_DEVICE] = 3000;
	outcome.prompt_tokens = 4000;
	(void)samples_after(decision, outcome);
	ck_assert_double_eq(learned(0).capacity_share, 1); /* unknown is not 0 */
	outcome.prompt_known = outcome.cached_known = true;
	outcome.completed = false;
	(void)samples_after(decision, outcome);
	ck_assert_double_eq(learned(0).capacity_share, 1);
	outcome.completed = true;
	(void)samples_after(decision, outcome);
	ck_assert_double_lt(learned(0).capacity_share, 0.6);
	strategy->ops->purge(strategy, 0);
	ck_assert_double_eq(learned(0).capacity_share, 1);
}
END_TEST

/* The view of a worker that disproves its hits holds less, so that older prompts are no longer
 * predicted there. */
START_TEST(a_smaller_view_forgets_earlier)
{
	struct kvw_decision decision = plain_decision;
	struct kvw_outcome outcome = good_outcome;
	struct kvw_decision d = {0};
	struct kvw_route_request request;
	struct prompt p;
	unsigned hits[2] = {0};

	outcome.prompt_known = outcome.cached_known = true;
	decision.hit_tokens[KVW_TIER_DEVICE] = 3000;
	outcome.prompt_tokens = 4000;
	for (unsigned wrong = 0; wrong < 2; wrong++) {
		teardown();
		setup();
		fleet.set.count = 1;
		fleet.items[0].capacity_tokens = 64000; /* twenty prompts of 3,200 */
		for (unsigned i = 0; i < 200 * wrong; i++)
			strategy->ops->done(strategy, &decision, &outcome, 0);
		for (unsigned i = 0; i < 36; i++) {
			prompt_start(&p);
			for (unsigned k = 0; k < 50; k++)
				prompt_add(&p, i % 18);
			request = request_of(&p);
			ck_assert_int_eq(strategy->ops->pick(strategy, &request, &fleet.set,
						 (int64_t)i * SECOND, &d),
				KVW_OK);
			hits[wrong] += d.hit_tokens[KVW_TIER_DEVICE] > 0;
		}
	}
	ck_assert_uint_ge(hits[0], 16);
	ck_assert_uint_le(hits[1], 2);
}
END_TEST

/* --- a fleet --- */

/* A worker that prefills one prompt after the other. */
struct machine {
	double rate;     /* tokens per second */
	int64_t free_ns; /* when it has prefilled all it was given */
	double tokens;   /* prefilled */
};

/* A request on its way. */
struct flight {
	struct kvw_decision decision;
	struct kvw_lease lease;
	int64_t first_ns, end_ns; /* 0: past */
	int64_t picked_ns;
	struct kvw_lease kept; /* as it was at the first token */
};

/* All events up to now. */
static void pass_time(struct flight *flights, size_t count, int64_t now_ns)
{
	for (;;) {
		struct flight *next = NULL;
		int64_t at = now_ns + 1;

		for (size_t i = 0; i < count; i++) {
			struct flight *f = &flights[i];
			int64_t due = f->first_ns != 0 ? f->first_ns : f->end_ns;

			if (due != 0 && due < at) {
				at = due;
				next = f;
			}
		}
		if (next == NULL)
			return;
		if (next->first_ns != 0) {
			kvw_lease_first_token(&next->lease, at);
			next->kept = next->lease;
			next->first_ns = 0;
		} else {
			struct kvw_outcome outcome = good_outcome;

			outcome.first_token_ns = next->picked_ns;
			outcome.ahead_ns = next->kept.ahead_ns;
			outcome.behind_ns = next->kept.behind_ns;
			outcome.served_ns = next->kept.served_ns;
			kvw_lease_release(&next->lease, at);
			strategy->ops->done(strategy, &next->decision, &outcome, at);
			next->end_ns = 0;
		}
	}
}

/* Sends prompts of 500 to 8,000 tokens that share nothing, at a rate of `load` of what the fleet
 * can prefill. */
static void run_fleet(struct machine *machines, double load, uint64_t seed)
{
	struct flight *flights = calloc(REQUESTS, sizeof(*flights));
	double capacity = 0;
	double now_ns = SECOND;
	size_t first = 0;
	struct prompt p;

	ck_assert_ptr_nonnull(flights);
	for (unsigned w = 0; w < WORKERS; w++)
		capacity += machines[w].rate;
	for (size_t i = 0; i < REQUESTS; i++) {
		struct flight *f = &flights[i];
		uint32_t chunks = 8 + (uint32_t)(test_random(&seed) % 117);
		double length = chunks * CHUNK_UNITS;
		double u = ((double)(test_random(&seed) >> 11) + 1) / (double)(UINT64_C(1) << 53);
		struct kvw_route_request request;
		struct machine *m;
		int64_t now;

		now_ns += -log(u) * 66.5 * CHUNK_UNITS / (capacity * load) * 1e9;
		now = (int64_t)now_ns;
		while (first < i && flights[first].end_ns == 0 && flights[first].first_ns == 0)
			first++;
		pass_time(flights + first, i - first, now);
		prompt_start(&p);
		for (uint32_t k = 0; k < chunks; k++)
			prompt_add(&p, i + 1000);
		request = request_of(&p);
		EXPECT(strategy->ops->pick(strategy, &request, &fleet.set, now, &f->decision) ==
			KVW_OK);
		kvw_lease_take(
			&f->lease, fleet.items[f->decision.pos].load, f->decision.prefill_ns, now);
		m = &machines[f->decision.pos];
		m->free_ns = m->free_ns > now ? m->free_ns : now;
		m->free_ns += OVERHEAD + (int64_t)(length * 1e9 / m->rate +
						   1.75 * 20480 / m->rate * length * length / 2);
		m->tokens += i > REQUESTS / 4 ? length : 0; /* once rates are known */
		f->first_ns = m->free_ns;
		f->picked_ns = m->free_ns - now; /* its time to first token */
		f->end_ns = m->free_ns + 500 * MS;
	}
	pass_time(flights, REQUESTS, (int64_t)now_ns + 3600 * SECOND);
	for (unsigned w = 0; w < WORKERS; w++) {
		ck_assert_uint_eq(kvw_load_inflight(fleet.items[w].load), 0);
		ck_assert_int_eq(fleet.items[w].load->waiting_ns, 0);
	}
	free(flights);
}

/* The prior is off by a factor of 2.5; the rates are found, also by workers that are never idle. The
 * one that is three times slower is given a third of what the others are when the fleet is full,
 * and less when the faster ones have time for more. */
START_TEST(a_slower_worker_gets_less)
{
	static const double loads[] = {0.6, 0.95, 1.05};

	for (unsigned i = 0; i < 9; i++) {
		struct machine machines[WORKERS] = {
			{20480, 0, 0}, {20480, 0, 0}, {20480 / 3.0, 0, 0}, {20480, 0, 0}};
		double others = 0;
		double part = 0;

		teardown();
		setup();
		run_fleet(machines, loads[i / 3], i);
		for (unsigned w = 0; w < WORKERS; w++) {
			double observed = learned(w).observed_tokens_per_second;

			ck_assert_double_eq_tol(observed / machines[w].rate, 1, 0.15);
			others += w == 2 ? 0 : machines[w].tokens / 3;
		}
		part = machines[2].tokens / others;
		ck_assert_double_lt(part, 0.42);
		ck_assert_double_gt(part, loads[i / 3] > 0.9 ? 0.27 : 0.01);
	}
}
END_TEST

/* Equal workers are treated as equal, whatever their samples were. */
START_TEST(equal_workers_share_evenly)
{
	struct machine machines[WORKERS] = {
		{20480, 0, 0}, {20480, 0, 0}, {20480, 0, 0}, {20480, 0, 0}};
	double total = 0;

	run_fleet(machines, 0.7, 3);
	for (unsigned w = 0; w < WORKERS; w++)
		total += machines[w].tokens;
	for (unsigned w = 0; w < WORKERS; w++) {
		ck_assert_double_eq_tol(machines[w].tokens / total, 0.25, 0.03);
		ck_assert_double_eq(
			learned(w).prefill_tokens_per_second, learned(0).prefill_tokens_per_second);
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("learning");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, streams_that_met_no_other_prefill_teach_the_rate);
	tcase_add_test(tcase, others_do_not);
	tcase_add_test(tcase, actual_hits_count_where_they_are_reported);
	tcase_add_test(tcase, failed_hits_shrink_the_view);
	tcase_add_test(tcase, a_smaller_view_forgets_earlier);
	tcase_add_test(tcase, a_slower_worker_gets_less);
	tcase_add_test(tcase, equal_workers_share_evenly);
	tcase_set_timeout(tcase, 120);
	return run_tcase("learning", tcase);
}
