/*
 * keep_test.c - what the directory knows passes to the next process, whole or not at all trusted.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/random.h"
#include "feeds/coordinator/keep.h"
#include "feeds/coordinator/pages.h"
#include "feeds/coordinator/plan.h"
#include "tests/unit/router/feeds/coordinator/invariants.h"
#include "tests/unit/suite.h"

#define SECOND  INT64_C(1000000000)
#define RECORDS 4096

static struct kvw_cd *before, *after;
static uint64_t seqs[3];
static struct kvw_cd_recall recall;

static struct {
	enum kvw_keep_kind kind;
	uint8_t *bytes;
	size_t len;
} records[RECORDS];
static size_t count;

static enum kvw_err put(void *arg, enum kvw_keep_kind kind, const void *record, size_t len)
{
	(void)arg;
	ck_assert_uint_lt(count, RECORDS);
	ck_assert_uint_le(len, KVW_KEPT_MOST);
	records[count].kind = kind;
	records[count].bytes = malloc(len + 1);
	ck_assert_ptr_nonnull(records[count].bytes);
	memcpy(records[count].bytes, record, len);
	records[count++].len = len;
	return KVW_OK;
}

static void check_books(const struct kvw_cd *cd)
{
	const char *fault = coordinator_fault(cd);

	ck_assert_msg(fault == NULL, "%s", fault);
}

static void setup(void)
{
	const struct kvw_cd_options options = {.bytes = UINT64_C(1) << 30, .seed = 1};
	const struct kvw_cd_options other = {.bytes = UINT64_C(1) << 30, .seed = 2};

	memset(seqs, 0, sizeof(seqs));
	memset(&recall, 0, sizeof(recall));
	ck_assert_int_eq(kvw_cd_create(&options, &before), KVW_OK);
	ck_assert_int_eq(kvw_cd_create(&other, &after), KVW_OK);
}

static void teardown(void)
{
	while (count > 0)
		free(records[--count].bytes);
	check_books(before);
	check_books(after);
	kvw_cd_destroy(before);
	kvw_cd_destroy(after);
}

static void register_it(const char *id)
{
	struct kvw_cd_registration registration = {.id = kvw_slice_of(id),
		.ip = KVW_SLICE("10.0.0.1"),
		.p2p_url = KVW_SLICE("tcp://x"),
		.metadata = KVW_SLICE("{\"zone\":\"a\"}"),
		.http_port = 80,
		.mq_port = 81,
		.wall_s = 1.5};
	struct kvw_cd_instance *instance;
	bool again;

	ck_assert_int_eq(kvw_cd_register(before, &registration, &instance, &again), KVW_OK);
}

static struct kvw_ce_key key_of(const uint32_t *number, uint64_t *state)
{
	return (struct kvw_ce_key){.hash = {(const char *)number, sizeof(*number)},
		.model = KVW_SLICE("m"),
		.salt = kvw_random_below(state, 2) == 0 ? KVW_SLICE("") : KVW_SLICE("t"),
		.rank = 0x02000200 | kvw_random_below(state, 2) << 16,
		.group = kvw_random_below(state, 5) == 0};
}

/* A batch of anything. */
static void report(uint64_t *state)
{
	static const char *const ids[] = {"a", "b", "c"}, *const backends[] = {"dram", "fs"};
	static const uint32_t tokens[4] = {1, 2, 3, 4};
	uint32_t server = kvw_random_below(state, 3);
	struct kvw_ce_batch batch = {.instance = kvw_slice_of(ids[server]),
		.incarnation = 1,
		.seq = ++seqs[server],
		.type = (enum kvw_ce_type)kvw_random_below(state, 4),
		.tier = (enum kvw_ce_tier)kvw_random_below(state, 2),
		.capacity_bytes = 1000,
		.capacity_revision = kvw_random_below(state, 3)};
	struct kvw_cd_instance *instance;

	batch.backend = kvw_slice_of(backends[batch.tier]);
	batch.shared = batch.tier == KVW_CE_L2 && kvw_random_below(state, 2) == 0;
	ck_assert_int_eq(kvw_cd_batch(before, &batch, SECOND, &instance), KVW_CD_APPLIED);
	for (uint32_t i = 0; i < 6 && batch.type != KVW_CE_CONFIG; i++) {
		uint32_t number = kvw_random_below(state, 80);
		bool known = kvw_random_below(state, 2) == 0;

		kvw_cd_entry(before, instance, &batch,
			&(struct kvw_ce_entry){.key = key_of(&number, state),
				.size_bytes = 1 + kvw_random_below(state, 50),
				.tokens = known ? tokens : NULL,
				.token_count = known ? 4 : 0,
				.offset = known ? 4 * (int64_t)number : -1});
	}
	kvw_cd_batch_end(before, instance, &batch);
}

static void fill(uint64_t *state, int reports)
{
	register_it("a");
	register_it("b");
	while (reports-- > 0)
		report(state);
}

static void write_all(void)
{
	const struct kvw_keep_out out = {.put = put};

	ck_assert_int_eq(kvw_cd_keep(before, &out), KVW_OK);
}

static void read_all(bool all_came)
{
	for (size_t i = 0; i < count; i++)
		kvw_cd_recall(after, &recall, records[i].kind, records[i].bytes, records[i].len,
			5 * SECOND);
	kvw_cd_recalled(after, &recall, all_came);
}

static void write_pages(struct kvw_page *page, const struct kvw_cd *cd)
{
	const struct kvw_cd_pin_filter filter = {.limit = 1000};

	kvw_cd_page_instances(page, cd);
	kvw_cd_page_usage(page, cd);
	kvw_cd_page_stats(page, cd);
	kvw_cd_page_quotas(page, cd, KVW_CE_L1);
	kvw_cd_page_quotas(page, cd, KVW_CE_L2);
	kvw_cd_page_pins(page, cd, &filter);
	for (uint32_t number = 0; number < 80; number++)
		for (uint32_t i = 0; i < 8; i++) {
			struct kvw_ce_key key = {.hash = {(const char *)&number, sizeof(number)},
				.model = KVW_SLICE("m"),
				.salt = i & 1 ? KVW_SLICE("t") : KVW_SLICE(""),
				.rank = 0x02000200 | (i >> 1 & 1) << 16,
				.group = i >> 2};

			kvw_cd_page_result(page, cd, &key);
		}
	kvw_page_put(page, "", 1);
	ck_assert(!page->failed);
}

static void expect_same(void)
{
	struct kvw_page old = {0}, new = {0};

	write_pages(&old, before);
	write_pages(&new, after);
	ck_assert_str_eq(old.data, new.data);
	free(old.data);
	free(new.data);
}

START_TEST(all_that_is_known_comes_over)
{
	uint64_t state = (uint64_t)_i + 1;
	uint32_t number = 3;
	struct kvw_ce_key key = key_of(&number, &state);
	const struct kvw_cd_instance *old, *new;

	ck_assert_int_eq(kvw_cd_set_quota(before, KVW_SLICE("t"), 100), KVW_OK);
	ck_assert_int_eq(kvw_cd_pin(before, &key, 2), KVW_OK);
	before->salts.has_default = true;
	before->salts.default_limit = 77;
	fill(&state, 300);
	write_all();
	read_all(true);
	ck_assert(!recall.failed);
	expect_same();
	ck_assert_uint_eq(after->salts.default_limit, 77);
	TAILQ_FOREACH(old, &before->instances, entry)
	{
		new = kvw_cd_find_instance(after, kvw_slice_of(old->id));
		ck_assert_ptr_nonnull(new);
		ck_assert_uint_eq(new->seq, old->seq);
		ck_assert_uint_eq(new->named, old->named);
		ck_assert_uint_eq(new->unnamed, old->unnamed);
		ck_assert_uint_eq(new->stored_since, old->stored_since);
		ck_assert_int_eq(new->incomplete, old->incomplete);
	}
}
END_TEST

START_TEST(what_was_used_last_is_still_used_last)
{
	uint64_t state = 9;
	struct kvw_cd_plan old, new;

	fill(&state, 200);
	write_all();
	read_all(true);
	for (int i = 0; i < 20; i++) {
		uint64_t cap = 1000 - 40 * (uint64_t)i;
		bool made = kvw_cd_plan(before, cap, 9 * SECOND, &old);

		ck_assert_int_eq(kvw_cd_plan(after, cap, 9 * SECOND, &new), made);
		ck_assert_uint_eq(old.body.len, new.body.len);
		ck_assert(old.body.len == 0 ||
			  memcmp(old.body.data, new.body.data, old.body.len) == 0);
		free(old.body.data);
		free(new.body.data);
	}
}
END_TEST

START_TEST(a_deletion_under_way_is_planned_again_first)
{
	uint64_t state = 4;
	struct kvw_cd_plan old, new;

	fill(&state, 200);
	ck_assert(kvw_cd_plan(before, 100, SECOND, &old));
	write_all();
	read_all(true);
	ck_assert(kvw_cd_plan(after, 100, SECOND, &new));
	ck_assert_uint_eq(old.keys, new.keys);
	ck_assert_mem_eq(old.body.data, new.body.data, old.body.len);
	free(old.body.data);
	free(new.body.data);
}
END_TEST

START_TEST(records_that_are_missing_make_servers_incomplete)
{
	uint64_t state = 5;
	const struct kvw_cd_instance *at;

	fill(&state, 50);
	write_all();
	free(records[--count].bytes);
	read_all(false);
	TAILQ_FOREACH(at, &after->instances, entry)
	ck_assert(at->incomplete);
}
END_TEST

/* Records of any bytes: the books stay right. */
START_TEST(damaged_records_do_no_harm)
{
	uint64_t state = (uint64_t)_i + 100;
	const struct kvw_cd_instance *at;

	fill(&state, 60);
	write_all();
	for (size_t i = 0; i < count; i++) {
		if (kvw_random_below(&state, 40) == 0)
			records[i].len = kvw_random_below(&state, (uint32_t)records[i].len + 1);
		if (records[i].len > 0 && kvw_random_below(&state, 20) == 0)
			records[i].bytes[kvw_random_below(&state, (uint32_t)records[i].len)] ^=
				(uint8_t)(1 + kvw_random_below(&state, 255));
		if (kvw_random_below(&state, 100) == 0)
			records[i].kind = (enum kvw_keep_kind)kvw_random_below(&state, 32);
	}
	read_all(true);
	TAILQ_FOREACH(at, &after->instances, entry)
	ck_assert(!recall.failed || at->incomplete || !at->has_cursor);
	check_books(after);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("keep");

	kvw_log_set_level(KVW_LOG_ERROR);
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, all_that_is_known_comes_over, 0, 4);
	tcase_add_test(tc, what_was_used_last_is_still_used_last);
	tcase_add_test(tc, a_deletion_under_way_is_planned_again_first);
	tcase_add_test(tc, records_that_are_missing_make_servers_incomplete);
	tcase_add_loop_test(tc, damaged_records_do_no_harm, 0, 200);
	return run_tcase("coordinator-keep", tc);
}
