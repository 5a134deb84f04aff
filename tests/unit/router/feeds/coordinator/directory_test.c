/*
 * directory_test.c - the directory by LMCache's rules: order, restarts, what outlives its reporter.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/random.h"
#include "feeds/coordinator/pages.h"
#include "tests/unit/router/feeds/coordinator/invariants.h"
#include "tests/unit/suite.h"

#define SECOND INT64_C(1000000000)

static struct kvw_cd *cd;
static int held; /* L1 objects by the callback, which come and go in pairs */
static size_t freed;
static bool nameable;

static void on_l1(
	void *ctx, struct kvw_cd_instance *instance, struct kvw_cd_object *object, bool holds)
{
	(void)ctx;
	(void)instance;
	(void)object;
	held += holds ? 1 : -1;
}

static bool can_name(void *ctx, const struct kvw_cd_object *object)
{
	(void)ctx;
	return nameable && kvw_cd_is_named(object);
}

static void on_freed(void *ctx, struct kvw_cd_instance *instance)
{
	(void)ctx;
	(void)instance;
	freed++;
}

static void make(uint64_t bytes)
{
	const struct kvw_cd_options options = {
		.bytes = bytes, .seed = 1, .l1 = on_l1, .can_name = can_name, .freed = on_freed};

	held = 0;
	nameable = true;
	freed = 0;
	ck_assert_int_eq(kvw_cd_create(&options, &cd), KVW_OK);
}

static void setup(void)
{
	make(UINT64_C(1) << 30);
}

static void check_all(void)
{
	const struct kvw_cd_instance *at;
	uint64_t objects = 0;
	const char *fault = coordinator_fault(cd);

	TAILQ_FOREACH(at, &cd->instances, entry)
	objects += at->l1_objects;
	ck_assert_msg(fault == NULL, "%s", fault);
	ck_assert_int_eq(held, (int)objects);
}

static void teardown(void)
{
	check_all();
	kvw_cd_destroy(cd);
}

/* A batch of objects whose hashes are the digits of `hashes`. */
struct send {
	const char *instance, *hashes, *backend;
	uint64_t incarnation, seq, size;
	enum kvw_ce_type type;
	enum kvw_ce_tier tier;
	bool shared;
	uint64_t capacity, revision;
	const uint32_t *tokens; /* 4 of them; NULL: none */
	int64_t offset;
	uint32_t rank;
};

static enum kvw_cd_verdict send(struct send s)
{
	struct kvw_cd_instance *instance;
	struct kvw_ce_batch batch = {.instance = kvw_slice_of(s.instance),
		.backend = kvw_slice_of(s.backend == NULL ? "dram" : s.backend),
		.incarnation = s.incarnation,
		.seq = s.seq,
		.type = s.type,
		.tier = s.tier,
		.shared = s.shared,
		.capacity_bytes = s.capacity,
		.capacity_revision = s.revision};
	enum kvw_cd_verdict verdict = kvw_cd_batch(cd, &batch, SECOND, &instance);

	if (verdict != KVW_CD_APPLIED)
		return verdict;
	for (const char *hash = s.hashes; hash != NULL && *hash != '\0'; hash++)
		kvw_cd_entry(cd, instance, &batch,
			&(struct kvw_ce_entry){.key = {.hash = {hash, 1},
						       .model = KVW_SLICE("m"),
						       .rank = s.rank != 0 ? s.rank : 0x01000100},
				.size_bytes = s.size,
				.tokens = s.tokens,
				.token_count = s.tokens == NULL ? 0 : 4,
				.offset = s.tokens == NULL ? -1 : s.offset});
	kvw_cd_batch_end(cd, instance, &batch);
	return verdict;
}

static uint64_t l1_of(const char *id)
{
	const struct kvw_cd_instance *instance = kvw_cd_find_instance(cd, kvw_slice_of(id));

	return instance == NULL ? 0 : instance->l1_objects;
}

static void expect_page(void (*write)(struct kvw_page *, const struct kvw_cd *), const char *text)
{
	struct kvw_page page = {0};

	write(&page, cd);
	kvw_page_put(&page, "", 1);
	ck_assert(!page.failed);
	ck_assert_str_eq(page.data, text);
	free(page.data);
}

START_TEST(known_numbers_are_duplicates_and_old_processes_are_stale)
{
	ck_assert_int_eq(
		send((struct send){
			.instance = "a", .hashes = "xy", .incarnation = 5, .seq = 1, .size = 8}),
		KVW_CD_APPLIED);
	ck_assert_int_eq(
		send((struct send){
			.instance = "a", .hashes = "z", .incarnation = 5, .seq = 1, .size = 8}),
		KVW_CD_DUPLICATE);
	ck_assert_int_eq(
		send((struct send){
			.instance = "a", .hashes = "z", .incarnation = 4, .seq = 9, .size = 8}),
		KVW_CD_STALE);
	ck_assert_int_eq(
		send((struct send){
			.instance = "b", .hashes = "x", .incarnation = 1, .seq = 1, .size = 8}),
		KVW_CD_APPLIED);
	ck_assert_uint_eq(cd->object_count, 2);
	ck_assert_uint_eq(cd->tier_bytes[KVW_CE_L1], 24);
	ck_assert_uint_eq(cd->counts.duplicates, 1);
	ck_assert_uint_eq(cd->counts.stale, 1);
	ck_assert(!kvw_cd_find_instance(cd, KVW_SLICE("a"))->incomplete);
}
END_TEST

START_TEST(a_restart_loses_l1_and_keeps_l2)
{
	(void)send((struct send){
		.instance = "a", .hashes = "xy", .incarnation = 5, .seq = 1, .size = 8});
	(void)send((struct send){.instance = "a",
		.hashes = "x",
		.backend = "fs",
		.incarnation = 5,
		.seq = 2,
		.size = 8,
		.tier = KVW_CE_L2});
	(void)send((struct send){
		.instance = "b", .hashes = "y", .incarnation = 5, .seq = 1, .size = 8});
	check_all();
	ck_assert_int_eq(
		send((struct send){
			.instance = "a", .hashes = "", .incarnation = 6, .seq = 1, .size = 8}),
		KVW_CD_APPLIED);
	ck_assert_uint_eq(l1_of("a"), 0);
	ck_assert_uint_eq(l1_of("b"), 1);
	ck_assert_uint_eq(cd->object_count, 2);
	ck_assert_uint_eq(cd->counts.restarts, 1);
	expect_page(kvw_cd_page_usage,
		"{\"instances\":[{\"instance_id\":\"a\",\"registered\":false,\"declared_capacity\":"
		"false,\"modules\":[{\"tier\":\"l2\",\"backend\":\"fs\",\"shared\":false,"
		"\"used_bytes\":8,\"capacity_bytes\":0,\"usage_ratio\":null}]},{\"instance_id\":"
		"\"b\",\"registered\":false,\"declared_capacity\":false,\"modules\":[{\"tier\":"
		"\"l1\",\"backend\":\"dram\",\"shared\":false,\"used_bytes\":8,\"capacity_bytes\":"
		"0,\"usage_ratio\":null}]}],\"shared_modules\":[]}");
}
END_TEST

START_TEST(a_gap_lasts_until_l1_was_replaced)
{
	struct kvw_cd_instance *a;

	(void)send((struct send){.instance = "a",
		.hashes = "",
		.incarnation = 5,
		.seq = 1,
		.type = KVW_CE_CONFIG,
		.capacity = 32,
		.revision = 1});
	(void)send((struct send){
		.instance = "a", .hashes = "x", .incarnation = 5, .seq = 4, .size = 8});
	a = kvw_cd_find_instance(cd, KVW_SLICE("a"));
	ck_assert(a->gap && a->incomplete);
	ck_assert_uint_eq(cd->counts.gaps, 1);
	(void)send((struct send){
		.instance = "a", .hashes = "yz", .incarnation = 5, .seq = 5, .size = 8});
	ck_assert(a->incomplete);
	(void)send((struct send){
		.instance = "a", .hashes = "xyz", .incarnation = 5, .seq = 6, .size = 8});
	ck_assert(a->incomplete); /* they were there already */
	(void)send((struct send){
		.instance = "a", .hashes = "w", .incarnation = 5, .seq = 7, .size = 8});
	ck_assert(!a->incomplete);
	(void)send((struct send){.instance = "c",
		.hashes = "w",
		.incarnation = 5,
		.seq = 7,
		.size = 8}); /* met midway */
	ck_assert(kvw_cd_find_instance(cd, KVW_SLICE("c"))->incomplete);
}
END_TEST

START_TEST(sizes_change_and_deletes_need_the_same_place)
{
	(void)send((struct send){
		.instance = "a", .hashes = "x", .incarnation = 5, .seq = 1, .size = 8});
	(void)send((struct send){
		.instance = "a", .hashes = "x", .incarnation = 5, .seq = 2, .size = 100});
	(void)send((struct send){.instance = "a",
		.hashes = "x",
		.backend = "fs",
		.incarnation = 5,
		.seq = 3,
		.size = 7,
		.tier = KVW_CE_L2,
		.shared = true});
	(void)send((struct send){.instance = "b",
		.hashes = "x",
		.backend = "fs",
		.incarnation = 5,
		.seq = 1,
		.size = 9,
		.tier = KVW_CE_L2,
		.shared = true});
	ck_assert_uint_eq(cd->tier_bytes[KVW_CE_L1], 100);
	ck_assert_uint_eq(cd->tier_bytes[KVW_CE_L2], 9);
	ck_assert_uint_eq(cd->tier_count[KVW_CE_L2], 1); /* a shared pool is one place */
	check_all();
	(void)send((struct send){.instance = "a",
		.hashes = "x",
		.backend = "cxl",
		.incarnation = 5,
		.seq = 4,
		.type = KVW_CE_DELETE});
	(void)send((struct send){
		.instance = "b", .hashes = "x", .incarnation = 5, .seq = 2, .type = KVW_CE_DELETE});
	ck_assert_uint_eq(l1_of("a"), 1);
	(void)send((struct send){
		.instance = "a", .hashes = "x", .incarnation = 5, .seq = 5, .type = KVW_CE_DELETE});
	(void)send((struct send){.instance = "a",
		.hashes = "x",
		.backend = "fs",
		.incarnation = 5,
		.seq = 6,
		.type = KVW_CE_DELETE,
		.tier = KVW_CE_L2,
		.shared = true});
	ck_assert_uint_eq(cd->object_count, 0);
	ck_assert_uint_eq(cd->bytes, 0);
}
END_TEST

START_TEST(tokens_belong_to_a_hash_and_every_rank_has_them)
{
	static const uint32_t four[] = {1, 2, 3, 4}, others[] = {5, 6, 7, 8};
	struct kvw_ce_key key = {
		.hash = KVW_SLICE("x"), .model = KVW_SLICE("m"), .rank = 0x02010201};

	(void)send((struct send){.instance = "a",
		.hashes = "x",
		.incarnation = 5,
		.seq = 1,
		.size = 8,
		.rank = 0x02000200});
	ck_assert_uint_eq(kvw_cd_find_instance(cd, KVW_SLICE("a"))->unnamed, 1);
	(void)send((struct send){.instance = "a",
		.hashes = "x",
		.incarnation = 5,
		.seq = 2,
		.size = 8,
		.rank = 0x02010201,
		.tokens = four,
		.offset = 4});
	ck_assert(kvw_cd_is_named(kvw_cd_find(cd, &key)));
	check_all();
	(void)send((struct send){.instance = "a",
		.hashes = "x",
		.incarnation = 5,
		.seq = 3,
		.size = 8,
		.rank = 0x02010201,
		.tokens = others,
		.offset = 5});
	ck_assert_uint_eq(kvw_cd_find(cd, &key)->binding->tokens[0], 5);
	ck_assert(!kvw_cd_is_named(kvw_cd_find(cd, &key))); /* not a whole number of chunks */
	key.rank = 0x02000200;
	ck_assert_uint_eq(kvw_cd_find(cd, &key)->binding->tokens[0], 5);
	ck_assert_uint_eq(cd->counts.unnamed, 2);
}
END_TEST

START_TEST(tokens_that_have_no_name_count_as_none)
{
	static const uint32_t four[] = {1, 2, 3, 4};
	struct send s = {.instance = "a",
		.hashes = "x",
		.incarnation = 5,
		.seq = 1,
		.size = 8,
		.tokens = four};

	(void)send(s);
	nameable = false;
	s.hashes = "yz";
	s.seq = 2;
	(void)send(s);
	ck_assert_uint_eq(kvw_cd_find_instance(cd, KVW_SLICE("a"))->named, 1);
	ck_assert_uint_eq(kvw_cd_find_instance(cd, KVW_SLICE("a"))->unnamed, 2);
}
END_TEST

START_TEST(a_declaration_replaces_the_one_before)
{
	(void)send((struct send){.instance = "a",
		.hashes = "",
		.backend = "dram",
		.incarnation = 5,
		.seq = 1,
		.type = KVW_CE_CONFIG,
		.capacity = 16,
		.revision = 1});
	(void)send((struct send){.instance = "a",
		.hashes = "",
		.backend = "cxl",
		.incarnation = 5,
		.seq = 2,
		.type = KVW_CE_CONFIG,
		.capacity = 4,
		.revision = 1});
	(void)send((struct send){
		.instance = "a", .hashes = "x", .incarnation = 5, .seq = 3, .size = 8});
	ck_assert_uint_eq(kvw_cd_l1_capacity(kvw_cd_find_instance(cd, KVW_SLICE("a"))), 20);
	(void)send((struct send){.instance = "a",
		.hashes = "",
		.backend = "dram",
		.incarnation = 5,
		.seq = 4,
		.type = KVW_CE_CONFIG,
		.capacity = 32,
		.revision = 2});
	(void)send((struct send){.instance = "a",
		.hashes = "",
		.backend = "cxl",
		.incarnation = 5,
		.seq = 5,
		.type = KVW_CE_CONFIG,
		.capacity = 4,
		.revision = 1});
	expect_page(kvw_cd_page_usage,
		"{\"instances\":[{\"instance_id\":\"a\",\"registered\":false,\"declared_capacity\":"
		"true,\"modules\":[{\"tier\":\"l1\",\"backend\":\"dram\",\"shared\":false,"
		"\"used_bytes\":8,\"capacity_bytes\":32,\"usage_ratio\":0.25}]}],"
		"\"shared_modules\":[]}");
}
END_TEST

static void register_it(const char *id, const char *ip, int64_t now_ns, bool again)
{
	struct kvw_cd_registration registration = {.id = kvw_slice_of(id),
		.ip = kvw_slice_of(ip),
		.metadata = KVW_SLICE("{}"),
		.http_port = 8080,
		.wall_s = 1.5,
		.now_ns = now_ns};
	struct kvw_cd_instance *instance;
	bool was;

	ck_assert_int_eq(kvw_cd_register(cd, &registration, &instance, &was), KVW_OK);
	ck_assert(was == again);
}

START_TEST(a_silent_server_loses_l1_and_is_forgotten)
{
	register_it("a", "10.0.0.1", SECOND, false);
	register_it("a", "10.0.0.2", SECOND, true);
	expect_page(kvw_cd_page_instances,
		"{\"instances\":[{\"instance_id\":\"a\",\"ip\":\"10.0.0.2\",\"http_port\":8080,"
		"\"registration_time\":1.5,\"metadata\":{},\"p2p_advertised_url\":\"\",\"mq_port\":"
		"0}]}");
	(void)send((struct send){
		.instance = "a", .hashes = "x", .incarnation = 5, .seq = 1, .size = 8});
	kvw_cd_tick(cd, 30 * SECOND, 31 * SECOND);
	ck_assert_uint_eq(l1_of("a"), 1);
	ck_assert(kvw_cd_beat(cd, KVW_SLICE("a"), 31 * SECOND));
	kvw_cd_tick(cd, 30 * SECOND, 61 * SECOND);
	ck_assert_uint_eq(l1_of("a"), 1);
	kvw_cd_tick(cd, 30 * SECOND, 62 * SECOND);
	ck_assert_uint_eq(cd->instance_count, 0);
	ck_assert_uint_eq(freed, 1);
	ck_assert(!kvw_cd_beat(cd, KVW_SLICE("a"), 62 * SECOND));
	ck_assert_uint_eq(cd->object_count, 0);
	/* It comes back where it was: its numbers go on. */
	register_it("a", "10.0.0.1", 63 * SECOND, false);
	ck_assert_int_eq(
		send((struct send){
			.instance = "a", .hashes = "y", .incarnation = 5, .seq = 2, .size = 8}),
		KVW_CD_APPLIED);
	ck_assert(kvw_cd_find_instance(cd, KVW_SLICE("a"))->incomplete);
}
END_TEST

START_TEST(a_server_that_leaves_keeps_its_l2_for_an_hour_and_a_shared_pool_stays)
{
	register_it("a", "10.0.0.1", SECOND, false);
	(void)send((struct send){
		.instance = "a", .hashes = "x", .incarnation = 5, .seq = 1, .size = 8});
	(void)send((struct send){.instance = "a",
		.hashes = "x",
		.backend = "fs",
		.incarnation = 5,
		.seq = 2,
		.size = 8,
		.tier = KVW_CE_L2});
	(void)send((struct send){
		.instance = "b", .hashes = "x", .incarnation = 5, .seq = 1, .size = 8});
	kvw_cd_leave(cd, KVW_SLICE("a"));
	kvw_cd_leave(cd, KVW_SLICE("unknown"));
	ck_assert_uint_eq(cd->tier_count[KVW_CE_L1], 1);
	ck_assert_uint_eq(cd->tier_count[KVW_CE_L2], 1);
	kvw_cd_tick(cd, 30 * SECOND, 3000 * SECOND);
	ck_assert_uint_eq(l1_of("b"), 1);
	(void)send((struct send){.instance = "c",
		.hashes = "xy",
		.backend = "pool",
		.incarnation = 5,
		.seq = 1,
		.size = 8,
		.tier = KVW_CE_L2,
		.shared = true});
	kvw_cd_tick(cd, 30 * SECOND, 3700 * SECOND);
	ck_assert_uint_eq(cd->tier_count[KVW_CE_L1], 0);
	ck_assert_uint_eq(cd->tier_count[KVW_CE_L2], 2); /* of the shared pool */
	ck_assert_uint_eq(cd->instance_count, 1);
	ck_assert_ptr_null(kvw_cd_find_instance(cd, KVW_SLICE("a")));
}
END_TEST

START_TEST(memory_and_instances_are_bounded)
{
	char id[16];

	kvw_cd_destroy(cd);
	make(2000);
	(void)send((struct send){.instance = "a",
		.hashes = "abcdefghijklmnopqrstuvwxyz",
		.incarnation = 5,
		.seq = 1,
		.size = 8});
	ck_assert_uint_gt(cd->object_count, 0);
	ck_assert_uint_eq(cd->counts.dropped + cd->object_count, 26);
	ck_assert(kvw_cd_find_instance(cd, KVW_SLICE("a"))->incomplete);
	check_all();
	for (unsigned i = 0; i < KVW_CD_INSTANCES; i++) {
		(void)snprintf(id, sizeof(id), "i%u", i);
		ck_assert_int_eq(send((struct send){
					 .instance = id, .hashes = "", .incarnation = 5, .seq = 1}),
			i < KVW_CD_INSTANCES - 1 ? KVW_CD_APPLIED : KVW_CD_FULL);
	}
	for (unsigned i = 0; i < 300; i++) {
		(void)snprintf(id, sizeof(id), "backend%u", i);
		(void)send((struct send){.instance = "a",
			.hashes = "1",
			.backend = id,
			.incarnation = 5,
			.seq = 2 + i,
			.size = 8});
	}
	ck_assert_uint_le(cd->backend_count, KVW_CD_BACKENDS);
}
END_TEST

START_TEST(l2_leaves_half_of_the_memory_and_its_loss_is_none_of_l1)
{
	kvw_cd_destroy(cd);
	make(4000);
	(void)send((struct send){.instance = "a",
		.hashes = "abcdefghijklmnopqrstuvwxyz",
		.backend = "fs",
		.incarnation = 5,
		.seq = 1,
		.size = 8,
		.tier = KVW_CE_L2});
	ck_assert_uint_gt(cd->counts.dropped, 0);
	ck_assert_uint_gt(cd->object_count, 0);
	ck_assert_uint_le(cd->bytes, 2000);
	(void)send((struct send){
		.instance = "a", .hashes = "012", .incarnation = 5, .seq = 2, .size = 8});
	ck_assert_uint_eq(l1_of("a"), 3);
	ck_assert(!kvw_cd_find_instance(cd, KVW_SLICE("a"))->incomplete);
}
END_TEST

static uint64_t roll(uint64_t *state, uint64_t below)
{
	return kvw_random(state) % below;
}

static struct send random_batch(uint64_t *state, const char *id, uint64_t next, uint64_t era)
{
	static const char *const backends[] = {"dram", "cxl", "fs"};
	static const char all[] = "abcdefghijklmnopqrstuvwxyz";
	static const uint32_t tokens[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
	struct send s = {.instance = id};

	s.hashes = all + roll(state, 26);
	s.backend = backends[roll(state, 3)];
	s.incarnation = era + roll(state, 2);
	s.seq = next + roll(state, 3);
	s.size = roll(state, 100);
	s.type = roll(state, 2) == 0 ? KVW_CE_STORE : (enum kvw_ce_type)roll(state, 3);
	s.tier = (enum kvw_ce_tier)roll(state, 2);
	s.shared = roll(state, 4) == 0;
	s.tokens = roll(state, 2) == 0 ? tokens[roll(state, 2)] : NULL;
	s.offset = (int64_t)roll(state, 3) * 4;
	return s;
}

/* Anything in any order: the books stay right. */
START_TEST(random_batches_leave_the_books_right)
{
	static const char *const ids[] = {"a", "b", "c"};
	uint64_t state = (uint64_t)_i + 1;

	kvw_cd_destroy(cd);
	make(_i % 2 == 0 ? UINT64_C(1) << 30 : 4000);
	for (int step = 0; step < 4000; step++) {
		const char *id = ids[roll(&state, 3)];
		struct kvw_cd_instance *known;

		if (roll(&state, 200) == 0)
			kvw_cd_leave(cd, kvw_slice_of(id));
		known = kvw_cd_find_instance(cd, kvw_slice_of(id));
		if (roll(&state, 100) == 0)
			register_it(
				id, "10.0.0.1", step * SECOND, known != NULL && known->registered);
		if (roll(&state, 50) == 0)
			kvw_cd_tick(cd, 30 * SECOND, step * SECOND);
		known = kvw_cd_find_instance(cd, kvw_slice_of(id));
		(void)send(
			random_batch(&state, id, known == NULL || known->seq == 0 ? 1 : known->seq,
				1 + (uint64_t)step / 500));
		if (step % 50 == 0)
			check_all();
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("directory");

	kvw_log_set_level(KVW_LOG_ERROR);
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, known_numbers_are_duplicates_and_old_processes_are_stale);
	tcase_add_test(tc, a_restart_loses_l1_and_keeps_l2);
	tcase_add_test(tc, a_gap_lasts_until_l1_was_replaced);
	tcase_add_test(tc, sizes_change_and_deletes_need_the_same_place);
	tcase_add_test(tc, tokens_belong_to_a_hash_and_every_rank_has_them);
	tcase_add_test(tc, tokens_that_have_no_name_count_as_none);
	tcase_add_test(tc, a_declaration_replaces_the_one_before);
	tcase_add_test(tc, a_silent_server_loses_l1_and_is_forgotten);
	tcase_add_test(tc,
		a_server_that_leaves_keeps_its_l2_for_an_hour_and_a_shared_pool_stays);
	tcase_add_test(tc, memory_and_instances_are_bounded);
	tcase_add_test(tc, l2_leaves_half_of_the_memory_and_its_loss_is_none_of_l1);
	tcase_add_loop_test(tc, random_batches_leave_the_books_right, 0, 8);
	return run_tcase("coordinator-directory", tc);
}
