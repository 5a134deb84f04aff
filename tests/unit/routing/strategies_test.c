/*
 * strategies_test.c - what every built-in strategy has in common.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "routing/strategies.h"
#include "support.h"
#include "tests/unit/suite.h"

START_TEST(names_are_found)
{
	size_t count = 0;

	for (; kvw_strategies[count] != NULL; count++) {
		const struct kvw_strategy_ops *ops = kvw_strategies[count];

		ck_assert_ptr_eq(kvw_strategy_find(ops->name), ops);
		ck_assert_uint_gt(strlen(ops->help), 10);
		ck_assert(ops->create != NULL && ops->pick != NULL && ops->destroy != NULL);
		ck_assert(ops->explain != NULL);
	}
	ck_assert_uint_eq(count, KVW_STRATEGY_COUNT);
	ck_assert_ptr_null(kvw_strategy_find("kvaware2"));
	ck_assert_ptr_null(kvw_strategy_find(""));
	ck_assert_ptr_nonnull(kvw_strategy_find("prefixaware"));
	ck_assert_ptr_nonnull(kvw_strategy_find("session"));
	ck_assert_ptr_nonnull(kvw_strategy_find("roundrobin"));
}
END_TEST

START_TEST(reasons_have_different_names)
{
	for (int a = 0; a < KVW_REASON_COUNT; a++) {
		const char *name = kvw_reason_name((enum kvw_reason)a);

		ck_assert_uint_lt(strlen(name), 32);
		if (a >= KVW_REASON_OWN && strcmp(name, "unknown") == 0)
			continue;
		ck_assert_str_ne(name, "unknown");
		ck_assert_uint_gt(strlen(kvw_reason_why((enum kvw_reason)a)), 10);
		for (int b = 0; b < a; b++)
			ck_assert_str_ne(name, kvw_reason_name((enum kvw_reason)b));
	}
	ck_assert_str_eq(kvw_reason_name((enum kvw_reason)KVW_REASON_COUNT), "unknown");
}
END_TEST

/* Each list of own reasons has an end, and only its strategy decides for them. */
START_TEST(own_reasons_are_of_one_strategy)
{
	size_t own = 0;

	for (int reason = 0; reason < KVW_REASON_COUNT; reason++) {
		size_t strategies = 0, all = 0;

		for (; kvw_strategies[all] != NULL; all++)
			strategies += kvw_reason_of(kvw_strategies[all], (enum kvw_reason)reason);
		ck_assert_uint_le(strategies, reason < KVW_REASON_OWN ? all : 1);
		ck_assert(reason >= KVW_REASON_OWN || strategies == all);
		own += reason >= KVW_REASON_OWN && strategies == 1;
	}
	for (size_t i = 0; kvw_strategies[i] != NULL; i++) {
		const struct kvw_reason_text *reasons = kvw_strategies[i]->reasons;
		size_t count = 0;

		while (reasons != NULL && reasons[count].name != NULL)
			count++;
		ck_assert_uint_le(count, KVW_OWN_REASONS);
		own -= count;
	}
	ck_assert_uint_eq(own, 0);
	ck_assert(!kvw_reason_of(kvw_strategies[0], KVW_REASON_COUNT));
}
END_TEST

START_TEST(verdicts_have_different_names)
{
	for (int a = 0; a < KVW_VERDICT_COUNT; a++) {
		ck_assert_ptr_nonnull(kvw_verdict_name((enum kvw_verdict)a));
		for (int b = 0; b < a; b++)
			ck_assert_str_ne(kvw_verdict_name((enum kvw_verdict)a),
				kvw_verdict_name((enum kvw_verdict)b));
	}
	ck_assert_str_eq(kvw_verdict_name(KVW_VERDICT_COUNT), "unknown");
}
END_TEST

/* What explain says of one request is true of itself, changes nothing, and is what pick does. */
static void check_explain(struct kvw_strategy *strategy, const struct kvw_route_request *request,
	const struct fleet *fleet, int64_t now_ns, struct kvw_decision *out)
{
	struct kvw_strategy_stats before = {0};
	struct kvw_strategy_stats after = {0};
	struct kvw_cost costs[2][12];
	struct kvw_decision again = {0};
	const struct kvw_strategy_ops *ops = strategy->ops;

	if (ops->stats != NULL)
		ops->stats(strategy, &before);
	EXPECT(ops->explain(strategy, request, &fleet->set, now_ns, costs[0], out) == KVW_OK);
	EXPECT(ops->explain(strategy, request, &fleet->set, now_ns, costs[1], &again) == KVW_OK);
	if (ops->stats != NULL)
		ops->stats(strategy, &after);
	EXPECT(memcmp(&before, &after, sizeof(before)) == 0);
	EXPECT(out->pos == again.pos && out->reason == again.reason);
	for (size_t i = 0; i < fleet->set.count; i++) {
		const struct kvw_cost *cost = &costs[0][i];
		double sum = cost->queue_ns + cost->prefill_ns + cost->others_ns +
			     cost->context_ns;

		EXPECT(cost->verdict == costs[1][i].verdict);
		EXPECT(cost->verdict < KVW_VERDICT_COUNT);
		EXPECT((cost->verdict == KVW_VERDICT_CHOSEN) == (i == out->pos));
		EXPECT((cost->verdict == KVW_VERDICT_UNUSABLE) == !fleet->items[i].usable);
		EXPECT(cost->total_ns == 0 || fabs(cost->total_ns - sum) <= 1 + sum * 1e-6);
		EXPECT(cost->inflight == kvw_load_inflight(fleet->items[i].load));
	}
	EXPECT(out->queue_ns == kvw_load_queue_ns(fleet->items[out->pos].load, now_ns));
	EXPECT(costs[0][out->pos].hit_tokens[KVW_TIER_DEVICE] == out->hit_tokens[KVW_TIER_DEVICE]);
}

/* Random fleets, requests and loads: only usable workers, all fields filled, ENOWORKER alone when
 * there is none, and *out untouched then. */
START_TEST(only_usable_workers_are_picked)
{
	const struct kvw_strategy_ops *ops = kvw_strategies[_i];
	struct kvw_strategy_options options = test_options();
	struct kvw_strategy *strategy = NULL;
	struct kvw_lease leases[24];
	struct fleet fleet;
	uint64_t dice = 3;

	memset(leases, 0, sizeof(leases));
	fleet_init(&fleet, 12);
	options.inflight_bound = 1.5;
	options.inflight_gap = 1;
	ck_assert_int_eq(ops->create(&options, &strategy), KVW_OK);
	for (unsigned i = 0; i < 5000; i++) {
		struct kvw_decision out = {.pos = 99, .worker_id = 77};
		struct kvw_decision foretold = {.pos = 99};
		struct kvw_cost costs[12];
		struct kvw_route_request request;
		struct kvw_lease *lease = &leases[i % 24];
		struct prompt p;
		unsigned usable = 0;
		enum kvw_err err = KVW_OK;
		char name[8];

		prompt_start(&p);
		for (unsigned k = (unsigned)(test_random(&dice) % 20); k > 0; k--)
			prompt_add(&p, test_random(&dice) % 3);
		request = request_of(&p);
		request.content_known = test_random(&dice) % 4 != 0;
		request.teaches = test_random(&dice) % 4 != 0;
		snprintf(name, sizeof(name), "s%u", (unsigned)(test_random(&dice) % 50));
		if (test_random(&dice) % 2 == 0)
			request.session = kvw_slice_of(name);
		for (unsigned w = 0; w < 12; w++) {
			fleet.items[w].usable = test_random(&dice) % 4 == 0;
			usable += fleet.items[w].usable;
			fleet.items[w].generation += test_random(&dice) % 500 == 0;
			if (test_random(&dice) % 8 == 0)
				kvw_load_set_room(fleet.items[w].load, 1 + (double)(test_random(&dice) % 4096));
			fleet.items[w].share = test_random(&dice) % 8 == 0 ? 0.5f : 1;
		}
		kvw_lease_release(lease, (int64_t)i);
		if (usable > 0)
			check_explain(strategy, &request, &fleet, (int64_t)i, &foretold);
		else
			EXPECT(ops->explain(strategy, &request, &fleet.set, (int64_t)i, costs,
				       &foretold) == KVW_ENOWORKER);
		err = ops->pick(strategy, &request, &fleet.set, (int64_t)i, &out);
		EXPECT((err == KVW_ENOWORKER) == (usable == 0));
		if (err != KVW_OK) {
			EXPECT(out.pos == 99 && out.worker_id == 77);
			continue;
		}
		EXPECT(out.pos < 12 && fleet.items[out.pos].usable);
		EXPECT(out.worker_id == fleet.items[out.pos].id);
		EXPECT(out.prefill_ns >= 0 && out.reason < KVW_REASON_COUNT);
		EXPECT(out.hit_tokens[KVW_TIER_DEVICE] <= out.prompt_tokens);
		EXPECT(foretold.pos == out.pos && foretold.reason == out.reason);
		EXPECT(foretold.prefill_ns == out.prefill_ns);
		EXPECT(foretold.hit_tokens[0] == out.hit_tokens[0]);
		kvw_lease_take(lease, fleet.items[out.pos].load, out.prefill_ns, (int64_t)i);
	}
	for (unsigned i = 0; i < 24; i++)
		kvw_lease_release(&leases[i], 5000);
	ops->destroy(strategy);
	ops->destroy(NULL);
	fleet_finish(&fleet);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("strategies");

	tcase_add_test(tcase, names_are_found);
	tcase_add_test(tcase, reasons_have_different_names);
	tcase_add_test(tcase, own_reasons_are_of_one_strategy);
	tcase_add_test(tcase, verdicts_have_different_names);
	tcase_add_loop_test(tcase, only_usable_workers_are_picked, 0, KVW_STRATEGY_COUNT);
	return run_tcase("strategies", tcase);
}
