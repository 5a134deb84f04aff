/*
 * plan_test.c - which keys of L2 are deleted, where, and what becomes of deletions that fail.
 */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/random.h"
#include "feeds/coordinator/plan.h"
#include "tests/unit/router/feeds/coordinator/invariants.h"
#include "tests/unit/suite.h"

#define SECOND INT64_C(1000000000)

static struct kvw_cd *cd;
static struct kvw_cd_plan plan;
static uint64_t seq;

static void check_books(void)
{
	const char *fault = coordinator_fault(cd);

	ck_assert_msg(fault == NULL, "%s", fault);
}

static struct kvw_cd_instance *register_it(const char *id)
{
	struct kvw_cd_registration registration = {.id = kvw_slice_of(id),
		.ip = KVW_SLICE("10.0.0.1"),
		.p2p_url = KVW_SLICE(""),
		.metadata = KVW_SLICE("{}"),
		.http_port = 80};
	struct kvw_cd_instance *instance;
	bool again;

	ck_assert_int_eq(kvw_cd_register(cd, &registration, &instance, &again), KVW_OK);
	return instance;
}

static void setup(void)
{
	const struct kvw_cd_options options = {.bytes = UINT64_C(1) << 30, .seed = 1};

	seq = 0;
	ck_assert_int_eq(kvw_cd_create(&options, &cd), KVW_OK);
	register_it("a");
}

static void teardown(void)
{
	free(plan.body.data);
	plan = (struct kvw_cd_plan){0};
	check_books();
	kvw_cd_destroy(cd);
}

static struct kvw_ce_key key_of(const uint32_t *number, const char *salt, uint32_t group)
{
	return (struct kvw_ce_key){.hash = {(const char *)number, sizeof(*number)},
		.model = KVW_SLICE("m"),
		.salt = kvw_slice_of(salt),
		.rank = 0x01000100,
		.group = group};
}

/* What a server reports of chunks from..until. */
struct report {
	const char *id, *salt;
	enum kvw_ce_type type;
	uint32_t from, until;
	uint64_t size;
	bool is_private;
	uint32_t group;
};

static void report(struct report r)
{
	struct kvw_ce_batch batch = {.instance = kvw_slice_of(r.id == NULL ? "a" : r.id),
		.backend = KVW_SLICE("fs"),
		.incarnation = 1,
		.seq = ++seq,
		.type = r.type,
		.tier = KVW_CE_L2,
		.shared = !r.is_private};
	struct kvw_cd_instance *instance;

	ck_assert_int_eq(kvw_cd_batch(cd, &batch, SECOND, &instance), KVW_CD_APPLIED);
	for (uint32_t i = r.from; i < r.until; i++)
		kvw_cd_entry(cd, instance, &batch,
			&(struct kvw_ce_entry){
				.key = key_of(&i, r.salt == NULL ? "" : r.salt, r.group),
				.size_bytes = r.size == 0 ? 10 : r.size,
				.offset = -1});
	kvw_cd_batch_end(cd, instance, &batch);
}

/* Makes a plan; returns its number of keys. */
static size_t make_plan(uint64_t cap, int64_t now_ns)
{
	bool made;

	free(plan.body.data);
	made = kvw_cd_plan(cd, cap, now_ns, &plan);
	ck_assert(made == (plan.keys > 0));
	ck_assert(!plan.body.failed);
	check_books();
	return plan.keys;
}

static bool is_planned(uint32_t number)
{
	char digits[9];

	(void)snprintf(digits, sizeof(digits), "%02x%02x%02x%02x", number & 255, number >> 8 & 255,
		number >> 16 & 255, number >> 24);
	return plan.keys > 0 && memmem(plan.body.data, plan.body.len, digits, 8) != NULL;
}

START_TEST(a_salt_at_its_quota_loses_a_fifth_and_its_oldest_first)
{
	ck_assert_int_eq(kvw_cd_set_quota(cd, KVW_SLICE("t"), 100), KVW_OK);
	for (uint32_t i = 0; i < 9; i++)
		report((struct report){.salt = "t", .from = i, .until = i + 1});
	ck_assert_uint_eq(make_plan(0, SECOND), 0);
	report((struct report){.salt = "t", .type = KVW_CE_ACCESS, .from = 0, .until = 1});
	report((struct report){.salt = "t", .from = 9, .until = 10});
	ck_assert_uint_eq(make_plan(0, SECOND), 2);
	ck_assert(is_planned(1) && is_planned(2) && !is_planned(0) && !is_planned(9));
	ck_assert_str_eq(plan.server->id, "a");
	ck_assert_str_eq(plan.backend, "fs");
	ck_assert_uint_eq(make_plan(0, SECOND), 0); /* they count as gone */
	ck_assert(!plan.in_vain);
	report((struct report){.salt = "t", .type = KVW_CE_DELETE, .from = 1, .until = 3});
	ck_assert_uint_eq(cd->counts.evicted, 2);
	ck_assert_uint_eq(cd->counts.evicted_bytes, 20);
	ck_assert_uint_eq(make_plan(0, SECOND), 0);
}
END_TEST

START_TEST(of_a_batch_the_first_chunk_outlives_the_others)
{
	ck_assert_int_eq(kvw_cd_set_quota(cd, KVW_SLICE(""), 100), KVW_OK);
	report((struct report){.from = 0, .until = 10});
	ck_assert_uint_eq(make_plan(0, SECOND), 2);
	ck_assert(is_planned(9) && is_planned(8));
}
END_TEST

START_TEST(the_default_limit_is_of_salts_without_their_own)
{
	cd->salts.has_default = true;
	report((struct report){.from = 0, .until = 4});
	report((struct report){.salt = "t", .from = 0, .until = 4});
	ck_assert_int_eq(kvw_cd_set_quota(cd, KVW_SLICE("t"), 1000), KVW_OK);
	ck_assert_uint_eq(make_plan(0, SECOND), 4);
	report((struct report){.type = KVW_CE_DELETE, .from = 0, .until = 4});
	ck_assert(kvw_cd_drop_quota(cd, KVW_SLICE("t")));
	ck_assert(!kvw_cd_drop_quota(cd, KVW_SLICE("t")));
	ck_assert_uint_eq(make_plan(0, SECOND), 4);
}
END_TEST

START_TEST(shared_pools_stay_below_their_cap_by_the_oldest_of_all_salts)
{
	report((struct report){.salt = "t", .from = 0, .until = 4});
	report((struct report){.salt = "u", .from = 0, .until = 4});
	report((struct report){.salt = "u", .from = 4, .until = 30, .is_private = true});
	ck_assert_uint_eq(make_plan(100, SECOND), 0);
	report((struct report){.salt = "t", .from = 8, .until = 9});
	ck_assert_uint_eq(make_plan(100, SECOND), 1);
	ck_assert(is_planned(3));
	ck_assert(memmem(plan.body.data, plan.body.len, "\"t\"", 3) != NULL);
}
END_TEST

START_TEST(pinned_chunks_stay_in_every_group_until_the_last_pin_goes)
{
	uint32_t first = 0;
	struct kvw_ce_key key = key_of(&first, "t", 0);

	ck_assert_int_eq(kvw_cd_set_quota(cd, KVW_SLICE("t"), 0), KVW_OK);
	ck_assert_int_eq(kvw_cd_pin(cd, &key, 1), KVW_OK);
	ck_assert_int_eq(kvw_cd_pin(cd, &key, 1), KVW_OK);
	report((struct report){.salt = "t", .from = 0, .until = 3});
	report((struct report){.salt = "t", .from = 0, .until = 1, .group = 5});
	ck_assert_uint_eq(make_plan(0, SECOND), 2);
	kvw_cd_unpin(cd, &key);
	ck_assert_uint_eq(make_plan(0, SECOND), 0);
	ck_assert(plan.in_vain);
	kvw_cd_unpin(cd, &key);
	ck_assert_uint_eq(cd->pins.count, 0);
	ck_assert_uint_eq(make_plan(0, SECOND), 2);
	kvw_cd_unpin(cd, &key);
	ck_assert_int_eq(kvw_cd_pin(cd, &key, 3), KVW_OK);
	kvw_cd_drop_pins(cd, &key);
	ck_assert(!kvw_cd_is_pinned(cd, &key));
}
END_TEST

START_TEST(after_a_failure_another_server_deletes_the_same_keys)
{
	report((struct report){.from = 0, .until = 10});
	ck_assert_int_eq(kvw_cd_set_quota(cd, KVW_SLICE(""), 100), KVW_OK);
	ck_assert_uint_eq(make_plan(0, SECOND), 2);
	kvw_cd_plan_failed(cd, plan.number, plan.server, SECOND);
	ck_assert_uint_eq(make_plan(0, SECOND), 0); /* the only server rests */
	register_it("b");
	ck_assert_uint_eq(make_plan(0, SECOND), 2);
	ck_assert_str_eq(plan.server->id, "b");
	ck_assert(is_planned(9) && is_planned(8));
	kvw_cd_plan_failed(cd, plan.number, plan.server, SECOND);
	ck_assert_uint_eq(make_plan(0, 2 * SECOND), 2);
	ck_assert_str_eq(plan.server->id, "a");
}
END_TEST

START_TEST(a_deletion_that_is_never_reported_is_repeated_and_then_forgotten)
{
	int64_t now_ns = SECOND;

	report((struct report){.from = 0, .until = 10});
	ck_assert_int_eq(kvw_cd_set_quota(cd, KVW_SLICE(""), 100), KVW_OK);
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(make_plan(0, now_ns), 2);
		ck_assert(is_planned(9) && is_planned(8));
		kvw_cd_plan_answered(cd, plan.number);
		ck_assert_uint_eq(make_plan(0, now_ns + KVW_CD_PLAN_AGAIN), 0);
		now_ns += KVW_CD_PLAN_AGAIN + 1;
	}
	ck_assert_uint_eq(make_plan(0, now_ns), 0);
	ck_assert_uint_eq(cd->counts.forgotten, 2);
	ck_assert_uint_eq(cd->counts.evicted, 0);
	ck_assert_uint_eq(cd->tier_bytes[KVW_CE_L2], 80);
}
END_TEST

START_TEST(a_chunk_that_is_stored_again_meanwhile_is_not_forgotten)
{
	report((struct report){.from = 0, .until = 10});
	ck_assert_int_eq(kvw_cd_set_quota(cd, KVW_SLICE(""), 100), KVW_OK);
	ck_assert_uint_eq(make_plan(0, SECOND), 2);
	kvw_cd_plan_answered(cd, plan.number);
	report((struct report){.from = 9, .until = 10});
	ck_assert_uint_eq(cd->salts.asked_bytes, 10);
	ck_assert_uint_eq(make_plan(0, 2 * SECOND), 1);
	ck_assert(is_planned(7));
}
END_TEST

START_TEST(a_private_l2_is_emptied_by_its_own_server_alone)
{
	register_it("b");
	report((struct report){.from = 0, .until = 5, .is_private = true});
	report((struct report){.id = "b", .from = 5, .until = 10, .is_private = true});
	cd->salts.has_default = true;
	ck_assert_uint_eq(make_plan(0, SECOND), 5);
	ck_assert_str_eq(plan.server->id, "a");
	ck_assert_uint_eq(make_plan(0, SECOND), 5);
	ck_assert_str_eq(plan.server->id, "b");
	kvw_cd_plan_failed(cd, plan.number, NULL, SECOND);
	kvw_cd_leave(cd, KVW_SLICE("b"));
	ck_assert_uint_eq(make_plan(0, SECOND), 0);
}
END_TEST

START_TEST(a_request_has_at_most_ten_thousand_keys)
{
	cd->salts.has_default = true;
	report((struct report){.from = 0, .until = 25000});
	ck_assert_uint_eq(make_plan(0, SECOND), 10000);
	ck_assert_uint_eq(make_plan(0, SECOND), 10000);
	ck_assert_uint_eq(make_plan(0, SECOND), 5000);
	ck_assert_uint_eq(make_plan(0, SECOND), 0);
}
END_TEST

START_TEST(the_declared_cap_needs_all_to_agree)
{
	struct kvw_ce_batch batch = {.instance = KVW_SLICE("a"),
		.backend = KVW_SLICE("fs"),
		.incarnation = 1,
		.seq = ++seq,
		.type = KVW_CE_CONFIG,
		.tier = KVW_CE_L2,
		.shared = true,
		.capacity_bytes = 100,
		.capacity_revision = 1};
	struct kvw_cd_instance *instance;

	report((struct report){.from = 0, .until = 5});
	ck_assert_uint_eq(kvw_cd_declared_cap(cd), 0);
	for (int i = 0; i < 2; i++) {
		batch.seq = ++seq;
		ck_assert_int_eq(kvw_cd_batch(cd, &batch, SECOND, &instance), KVW_CD_APPLIED);
		kvw_cd_batch_end(cd, instance, &batch);
		ck_assert_uint_eq(kvw_cd_declared_cap(cd), i == 0 ? 100 : 0);
		batch.instance = KVW_SLICE("b");
		batch.capacity_bytes = 200;
	}
}
END_TEST

START_TEST(pins_and_salts_are_bounded)
{
	char salt[16];
	uint32_t i;

	for (i = 0; i <= KVW_CD_PINS; i++) {
		struct kvw_ce_key key = key_of(&i, "", 0);
		enum kvw_err err = kvw_cd_pin(cd, &key, 1);

		ck_assert_int_eq(err, i < KVW_CD_PINS ? KVW_OK : KVW_ELIMIT);
	}
	for (i = 0; i <= KVW_CD_SALTS; i++) {
		(void)snprintf(salt, sizeof(salt), "%" PRIu32, i);
		ck_assert_int_eq(kvw_cd_set_quota(cd, kvw_slice_of(salt), 1),
			i < KVW_CD_SALTS ? KVW_OK : KVW_ELIMIT);
	}
	report((struct report){.salt = "unknown", .from = 0, .until = 1});
	ck_assert_uint_eq(cd->counts.dropped, 1);
}
END_TEST

/* Anything in any order: the books stay right, and quotas are kept in the end. */
START_TEST(random_reports_and_plans_leave_the_books_right)
{
	static const char *const ids[] = {"a", "b"}, *const salts[] = {"", "t"};
	uint64_t state = (uint64_t)_i + 1;

	register_it("b");
	cd->salts.has_default = true;
	cd->salts.default_limit = 300;
	for (int64_t step = 0; step < 3000; step++) {
		struct report r = {.id = ids[kvw_random_below(&state, 2)],
			.salt = salts[kvw_random_below(&state, 2)],
			.type = (enum kvw_ce_type)(kvw_random_below(&state, 3)),
			.from = (uint32_t)(kvw_random_below(&state, 60)),
			.is_private = kvw_random_below(&state, 3) == 0};

		r.until = r.from + (uint32_t)(kvw_random_below(&state, 8));
		report(r);
		if (kvw_random_below(&state, 3) > 0 || make_plan(200, step * SECOND) == 0)
			continue;
		if (kvw_random_below(&state, 2) == 0)
			kvw_cd_plan_answered(cd, plan.number);
		else
			kvw_cd_plan_failed(cd, plan.number, plan.server, step * SECOND);
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("plan");

	kvw_log_set_level(KVW_LOG_ERROR);
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_salt_at_its_quota_loses_a_fifth_and_its_oldest_first);
	tcase_add_test(tc, of_a_batch_the_first_chunk_outlives_the_others);
	tcase_add_test(tc, the_default_limit_is_of_salts_without_their_own);
	tcase_add_test(tc, shared_pools_stay_below_their_cap_by_the_oldest_of_all_salts);
	tcase_add_test(tc, pinned_chunks_stay_in_every_group_until_the_last_pin_goes);
	tcase_add_test(tc, after_a_failure_another_server_deletes_the_same_keys);
	tcase_add_test(tc, a_deletion_that_is_never_reported_is_repeated_and_then_forgotten);
	tcase_add_test(tc, a_chunk_that_is_stored_again_meanwhile_is_not_forgotten);
	tcase_add_test(tc, a_private_l2_is_emptied_by_its_own_server_alone);
	tcase_add_test(tc, a_request_has_at_most_ten_thousand_keys);
	tcase_add_test(tc, the_declared_cap_needs_all_to_agree);
	tcase_add_test(tc, pins_and_salts_are_bounded);
	tcase_add_loop_test(tc, random_reports_and_plans_leave_the_books_right, 0, 8);
	return run_tcase("coordinator-plan", tc);
}
