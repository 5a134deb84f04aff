/*
 * redis_test.c - chunks in Redis, native format: what is written comes back whole or not at
 * all, whatever Redis does with it.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_redis.h"
#include "redis_rig.h"
#include "tiers/redis/redis_value.h"
#include "tests/unit/suite.h"

#define MS 1000000ll

static struct redis_rig rig;

static void setup(void)
{
	fake_reset();
	rig_init(&rig);
	rig.config.l2_part_bytes = 64u << 10;
	ck_assert_int_eq(rig_open(&rig, 0), KVT_OK);
	ck_assert_int_eq(rig_open(&rig, 1), KVT_OK);
}

static void teardown(void)
{
	rig_finish(&rig);
	fake_reset();
}

static void forget(void)
{
	rig.now_ns += 10000 * MS; /* longer than any answer is believed */
}

START_TEST(not_configured)
{
	struct redis_rig other;

	rig_init(&other);
	other.config.l2_url = "";
	ck_assert_int_eq(rig_open(&other, 0), KVT_MISS);
	other.config.l2_url = "sagemaker-hyperpod://127.0.0.1:9200";
	ck_assert_int_eq(rig_open(&other, 0), KVT_MISS);
	other.config.l2_url = "nonsense";
	ck_assert_int_eq(rig_open(&other, 0), KVT_EINVAL);
	ck_assert_ptr_nonnull(strstr(other.why, "l2.url"));
}
END_TEST

START_TEST(what_one_writes_another_reads)
{
	const uint64_t sizes[] = {1, 100, 335, 336, 337, 5000, 65535, 65536, 65537, 300000};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		ck_assert_int_eq(rig_put(&rig, 0, i, sizes[i]), KVT_OK);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		ck_assert_int_eq(rig_get(&rig, 0, i, sizes[i]), KVT_OK);
		ck_assert_int_eq(rig_get(&rig, 1, i, sizes[i]), KVT_OK);
		ck_assert(rig_knows(&rig, 1, i));
	}
	ck_assert_int_eq(rig_get(&rig, 1, 99, 100), KVT_MISS);
	ck_assert_uint_le(fake.largest, (64u << 10) + REDIS_FOOTER + REDIS_MAX_EXTRA);
	ck_assert_uint_eq(fake_count("}:4"), 1); /* 300000 bytes: five parts */
	ck_assert_uint_eq(rig_stats(&rig, 1).hits, 10);
}
END_TEST

START_TEST(one_round_trip_for_a_read)
{
	uint64_t before;

	ck_assert_int_eq(rig_put(&rig, 0, 1, 5000), KVT_OK);
	ck_assert_uint_eq(rig_probe(&rig, 1, 1, 1), 1);
	before = fake.commands;
	ck_assert_int_eq(rig_get(&rig, 1, 1, 5000), KVT_OK);
	ck_assert_uint_eq(fake.commands - before, 1);
}
END_TEST

START_TEST(another_length_is_a_miss)
{
	ck_assert_int_eq(rig_put(&rig, 0, 1, 5000), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 4000), KVT_MISS);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 6000), KVT_MISS);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 500000), KVT_MISS);
	ck_assert_int_eq(rig_put(&rig, 0, 2, 500000), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 2, 5000), KVT_MISS);
	ck_assert_int_eq(rig_get(&rig, 1, 2, 500000), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 5000), KVT_OK);
}
END_TEST

START_TEST(cut_by_others_settings)
{
	rig_close(&rig, 1);
	rig.config.l2_part_bytes = 4u << 20;
	ck_assert_int_eq(rig_open(&rig, 1), KVT_OK);
	ck_assert_int_eq(rig_put(&rig, 0, 1, 200000), KVT_OK);
	ck_assert_int_eq(rig_put(&rig, 1, 2, 200000), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 200000), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 0, 2, 200000), KVT_OK);
	forget();
	ck_assert_uint_eq(rig_probe(&rig, 0, 1, 2), 2);
	ck_assert_int_eq(rig_get(&rig, 0, 2, 200000), KVT_OK);
}
END_TEST

START_TEST(probes_find_a_prefix)
{
	for (uint64_t n = 0; n < 1500; n++) {
		if (n != 700)
			ck_assert_int_eq(rig_put(&rig, 0, n, 50), KVT_OK);
	}
	ck_assert_uint_eq(rig_probe(&rig, 1, 0, 1500), 700);
	ck_assert(rig_knows(&rig, 1, 0));
	ck_assert(rig_knows(&rig, 1, 699));
	ck_assert(!rig_knows(&rig, 1, 700));
	ck_assert_int_eq(rig_put(&rig, 0, 700, 50), KVT_OK);
	ck_assert_uint_eq(rig_probe(&rig, 1, 0, 1500), 700); /* believed for a time */
	rig.now_ns += 600 * MS;
	ck_assert_uint_eq(rig_probe(&rig, 1, 0, 1500), 1500);
	ck_assert_uint_eq(rig_probe(&rig, 1, 5000, 3), 0);
	ck_assert_uint_eq(rig_probe(&rig, 1, 0, 0), 0);
}
END_TEST

START_TEST(what_a_probe_tells)
{
	struct kvt_key parent = rig_key(77), key = rig_key(5);
	struct kvt_item item = {.size = sizeof(item),
		.tokens = 123,
		.bytes = 70000,
		.parent = &parent,
		.tenant = {{9}},
		.ttl_ns = 5000 * (uint64_t)MS};
	struct kvt_tier_known known;

	ck_assert(rig.tiers[1]->ops->unsure(rig.tiers[1], &key));
	ck_assert_int_eq(rig_put_item(&rig, 0, 5, &item), KVT_OK);
	ck_assert_uint_eq(rig_probe(&rig, 1, 5, 2), 1);
	ck_assert_int_eq(rig.tiers[1]->ops->known(rig.tiers[1], &key, &known), KVT_OK);
	ck_assert_uint_eq(known.bytes, 70000);
	ck_assert_uint_eq(known.tokens, 123);
	ck_assert_uint_eq(known.tenant.bytes[0], 9);
	ck_assert(known.has_parent);
	ck_assert_mem_eq(&known.parent, &parent, sizeof(parent));
	ck_assert_uint_eq(known.ttl_ns, 5000 * (uint64_t)MS);
	ck_assert(!rig.tiers[1]->ops->unsure(rig.tiers[1], &key));
	ck_assert_int_eq(fake_ttl_ms(rig_name(&rig, 5, 0)), 5000);
	ck_assert_int_eq(fake_ttl_ms(rig_name(&rig, 5, 1)), 5000);
	ck_assert_int_eq(rig_put(&rig, 0, 6, 10), KVT_OK);
	ck_assert_int_eq(fake_ttl_ms(rig_name(&rig, 6, 0)), 86400000);
	rig.now_ns += 6000 * MS;
	ck_assert_uint_eq(rig_probe(&rig, 1, 5, 2), 0); /* expired */
}
END_TEST

/* Every byte of the footer, and bytes of the payload: a miss, and it is gone. */
START_TEST(flipped_bits_are_misses)
{
	uint64_t bytes = 1000;
	size_t len;

	for (size_t at = 0; at < bytes + REDIS_FOOTER; at += at < bytes ? 7 : 1) {
		uint8_t *value;

		ck_assert_int_eq(rig_put(&rig, 0, 3, bytes), KVT_OK);
		value = fake_value(rig_name(&rig, 3, 0), &len);
		ck_assert_uint_eq(len, bytes + REDIS_FOOTER);
		value[at] ^= (uint8_t)(1u << (at % 8));
		ck_assert_int_eq(rig_get(&rig, 1, 3, bytes), KVT_ECORRUPT);
		rig_steps(&rig, 1, 5);
		ck_assert_ptr_null(fake_value(rig_name(&rig, 3, 0), &len));
		ck_assert(!rig_knows(&rig, 1, 3));
	}
	ck_assert_uint_gt(rig_stats(&rig, 1).corrupt, REDIS_FOOTER);
}
END_TEST

START_TEST(flipped_bits_of_parts_are_misses)
{
	uint64_t bytes = 150000;
	size_t len;

	for (unsigned part = 0; part < 3; part++) {
		for (size_t at = 0; at < 60; at++) {
			uint8_t *value;

			ck_assert_int_eq(rig_put(&rig, 0, 3, bytes), KVT_OK);
			value = fake_value(rig_name(&rig, 3, part), &len);
			value[(at * 7919 + (at % 2) * (len - REDIS_FOOTER)) % len] ^= 0x40;
			ck_assert_int_ne(rig_get(&rig, 1, 3, bytes), KVT_OK);
			rig_steps(&rig, 1, 8);
			ck_assert_uint_eq(fake_count("{"), 0);
		}
	}
}
END_TEST

START_TEST(cut_or_longer_values)
{
	uint8_t copy[3000];
	size_t len;

	for (size_t lost = 1; lost < 1300; lost += 41) {
		ck_assert_int_eq(rig_put(&rig, 0, 3, 1000), KVT_OK);
		len = 0;
		memcpy(copy, fake_value(rig_name(&rig, 3, 0), &len), 1000 + REDIS_FOOTER);
		fake_set(rig_name(&rig, 3, 0), copy, len - lost);
		rig.now_ns += 600 * MS;
		ck_assert_uint_eq(rig_probe(&rig, 1, 3, 1), 0); /* a cut value is no hit */
		ck_assert_int_eq(rig_get(&rig, 1, 3, 1000), KVT_ECORRUPT);
		rig_steps(&rig, 1, 5);
		fake_set(rig_name(&rig, 3, 0), copy + lost, len - lost);
		ck_assert_int_ne(rig_get(&rig, 1, 3, 1000), KVT_OK);
		rig_steps(&rig, 1, 5);
	}
	ck_assert_int_eq(rig_put(&rig, 0, 3, 1000), KVT_OK);
	memcpy(copy + 9, fake_value(rig_name(&rig, 3, 0), &len), 1000 + REDIS_FOOTER);
	memcpy(copy, "123456789", 9);
	fake_set(rig_name(&rig, 3, 0), copy, len + 9);
	ck_assert_int_eq(rig_get(&rig, 1, 3, 1000), KVT_ECORRUPT);
}
END_TEST

START_TEST(a_value_belongs_to_its_key)
{
	uint8_t copy[3000];
	size_t len;

	ck_assert_int_eq(rig_put(&rig, 0, 1, 1000), KVT_OK);
	memcpy(copy, fake_value(rig_name(&rig, 1, 0), &len), 1000 + REDIS_FOOTER);
	fake_set(rig_name(&rig, 2, 0), copy, len);
	ck_assert_uint_eq(rig_probe(&rig, 1, 2, 1), 0);
	ck_assert_int_eq(rig_get(&rig, 1, 2, 1000), KVT_ECORRUPT);
	/* The same key under another fingerprint, whose first half is the same. */
	rig_close(&rig, 1);
	rig.config.fingerprint.bytes[31] ^= 1;
	ck_assert_int_eq(rig_open(&rig, 1), KVT_OK);
	ck_assert_uint_eq(rig_probe(&rig, 1, 1, 1), 0);
	ck_assert_int_ne(rig_get(&rig, 1, 1, 1000), KVT_OK);
}
END_TEST

START_TEST(parts_that_are_missing_or_mixed)
{
	static uint8_t part[70000];
	size_t len;

	ck_assert_int_eq(rig_put(&rig, 0, 1, 150000), KVT_OK);
	memcpy(part, fake_value(rig_name(&rig, 1, 1), &len), 65536 + REDIS_FOOTER);
	fake_remove(rig_name(&rig, 1, 1));
	ck_assert_uint_eq(rig_probe(&rig, 1, 1, 1), 0);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 150000), KVT_MISS);
	ck_assert_int_eq(rig_put(&rig, 0, 1, 150000), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 150000), KVT_OK);
	fake_set(rig_name(&rig, 1, 1), part, len); /* of the write before */
	ck_assert_int_eq(rig_get(&rig, 1, 1, 150000), KVT_MISS);
	ck_assert_uint_eq(rig_stats(&rig, 1).corrupt, 0);
}
END_TEST

START_TEST(another_type_under_the_name)
{
	fake_make_list(rig_name(&rig, 4, 0));
	ck_assert_uint_eq(rig_probe(&rig, 0, 4, 1), 0);
	ck_assert_int_eq(rig_get(&rig, 0, 4, 100), KVT_ECORRUPT);
	rig_steps(&rig, 0, 5);
	ck_assert_uint_eq(fake_count("{"), 0);
	ck_assert_int_eq(rig_put(&rig, 0, 4, 100), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 0, 4, 100), KVT_OK);
}
END_TEST

START_TEST(names_of_blocks_come_back)
{
	uint8_t hashes[64];
	uint32_t tokens[32] = {1, 2, 3, 4};
	struct kvt_blocks blocks = {.hashes = hashes,
		.hash_bytes = 32,
		.count = 2,
		.tokens = tokens,
		.block_size = 16,
		.lora_name = "abc"};
	struct kvt_item item = {.size = sizeof(item), .bytes = 100, .blocks = &blocks};
	uint8_t *value;
	size_t len;

	memset(hashes, 0x5a, sizeof(hashes));
	ck_assert_int_eq(rig_put_item(&rig, 0, 1, &item), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_OK);
	ck_assert(rig.had_names);
	value = fake_value(rig_name(&rig, 1, 0), &len);
	ck_assert_uint_gt(len, 100 + REDIS_FOOTER + 64);
	value[110] ^= 1;
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_ECORRUPT);
	ck_assert_int_eq(rig_put(&rig, 0, 2, 100), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 2, 100), KVT_OK);
	ck_assert(!rig.had_names);
}
END_TEST

START_TEST(a_server_that_is_full)
{
	const char *const errors[] = {"OOM command not allowed when used memory > 'maxmemory'.",
		"MISCONF Redis is configured to save RDB snapshots",
		"READONLY You can't write against a read only replica.",
		"NOPERM this user has no permissions to run the 'set' command",
		"ERR Protocol error: invalid bulk length"};

	ck_assert_int_eq(rig_put(&rig, 0, 1, 100), KVT_OK);
	for (size_t i = 0; i < 5; i++) {
		fake.error = errors[i];
		rig.now_ns += 11000 * MS;
		rig.warnings = 0;
		for (uint64_t n = 10; n < 20; n++)
			ck_assert_int_eq(rig_put(&rig, 0, n, 100), KVT_FULL);
		ck_assert_uint_eq(rig.warnings, 1);
		ck_assert_int_eq(rig_get(&rig, 0, 1, 100), KVT_OK);
	}
	fake.error = NULL;
	ck_assert_int_eq(rig_put(&rig, 0, 10, 100), KVT_OK);
}
END_TEST

START_TEST(no_server)
{
	ck_assert_int_eq(rig_put(&rig, 0, 1, 100), KVT_OK);
	fake.down = true;
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_EIO);
	ck_assert_int_eq(rig_put(&rig, 1, 2, 100), KVT_EIO);
	ck_assert_uint_eq(rig_probe(&rig, 1, 1, 1), SIZE_MAX);
	fake.down = false;
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_OK);
}
END_TEST

START_TEST(a_server_that_stands_still)
{
	int64_t begun;

	ck_assert_int_eq(rig_put(&rig, 0, 1, 100), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 0, 1, 100), KVT_OK);
	fake.stalled = true;
	begun = rig.now_ns;
	ck_assert_int_eq(rig_get(&rig, 0, 1, 100), KVT_EIO);
	ck_assert_int_ge(rig.now_ns - begun, 1000 * MS);
	ck_assert_int_le(rig.now_ns - begun, 1010 * MS);
	begun = rig.now_ns;
	ck_assert_int_eq(rig_get_by(&rig, 0, 1, 100, begun + 20 * MS), KVT_EIO);
	ck_assert_int_le(rig.now_ns - begun, 22 * MS);
	/* A caller without time learns nothing about the server. */
	ck_assert_int_eq(rig_get_by(&rig, 0, 1, 100, rig.now_ns + MS / 2), KVT_MISS);
	fake.stalled = false;
	ck_assert_int_eq(rig_get(&rig, 0, 1, 100), KVT_OK);
}
END_TEST

static void done_at_close(struct kvt_tier_request *request)
{
	(void)request;
}

START_TEST(closing_ends_everything)
{
	struct kvt_key key = rig_key(1);
	uint8_t bytes[100];
	struct kvt_segment segment = {.base = bytes, .bytes = sizeof(bytes)};
	struct kvt_tier_request reads[3];

	fake.stalled = true;
	for (int i = 0; i < 3; i++) {
		reads[i] =
			(struct kvt_tier_request){.verb = i == 1 ? KVT_TIER_WRITE : KVT_TIER_READ,
				.keys = &key,
				.key_count = 1,
				.bytes = sizeof(bytes),
				.segments = &segment,
				.segment_count = 1};
		reads[i].status = 77;
	}
	ck_assert_int_eq(rig_put(&rig, 0, 9, 100), KVT_EIO);
	for (int i = 0; i < 3; i++) {
		reads[i].done = done_at_close;
		rig.tiers[0]->ops->submit(rig.tiers[0], &reads[i]);
		if (i == 1)
			rig_steps(&rig, 0, 2);
	}
	rig_close(&rig, 0);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(reads[i].status, KVT_ECANCELED);
}
END_TEST

START_TEST(a_configuration_of_zeros)
{
	rig_close(&rig, 0);
	rig.config.l2_part_bytes = 0;
	rig.config.l2_deadline_ns = 0;
	rig.config.l2_inflight = 0;
	rig.config.l2_seen_ns = 0;
	ck_assert_int_eq(rig_open(&rig, 0), KVT_OK);
	ck_assert_int_eq(rig_put(&rig, 0, 1, 70000), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 0, 1, 70000), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 70000), KVT_OK);
	fake.stalled = true;
	ck_assert_int_eq(rig_get(&rig, 0, 1, 70000), KVT_EIO);
}
END_TEST

static unsigned stored;

static void count_stored(struct kvt_tier_request *request)
{
	stored += request->status == KVT_OK;
}

/* Many at once take their turns and end well, also when the server takes most of a deadline for
 * those in front; and they end when it takes forever. */
START_TEST(writes_take_turns)
{
	enum { COUNT = 12, BYTES = 8 << 20 };
	static uint8_t bytes[BYTES];
	struct kvt_segment segment = {.base = bytes, .bytes = BYTES};
	struct kvt_tier_request writes[COUNT];
	struct kvt_key keys[COUNT];

	rig_close(&rig, 0);
	rig.config.l2_part_bytes = 4u << 20;
	ck_assert_int_eq(rig_open(&rig, 0), KVT_OK);
	ck_assert_int_eq(rig_put(&rig, 0, 50, 100), KVT_OK);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < COUNT; i++) {
			keys[i] = rig_key(100 + (uint64_t)i);
			writes[i] = (struct kvt_tier_request){.verb = KVT_TIER_WRITE,
				.status = 77,
				.keys = &keys[i],
				.key_count = 1,
				.bytes = BYTES,
				.segments = &segment,
				.segment_count = 1,
				.done = count_stored};
			rig.tiers[0]->ops->submit(rig.tiers[0], &writes[i]);
		}
		fake.stalled = true;
		stored = 0;
		rig_steps(&rig, 0, 5);
		rig.now_ns += 900 * MS;
		rig_steps(&rig, 0, 5);
		fake.stalled = round == 1;
		for (int i = 0; i < 10; i++) {
			rig.now_ns += 900 * MS * round;
			rig_steps(&rig, 0, 10);
		}
		ck_assert_uint_eq(stored, round == 0 ? COUNT : 0);
		for (int i = 0; i < COUNT; i++)
			ck_assert_uint_ne(writes[i].status, 77);
	}
	ck_assert_int_eq(rig_flush(&rig, 0), KVT_OK);
}
END_TEST

START_TEST(wrong_requests)
{
	struct kvt_key key = rig_key(1);
	struct kvt_tier_request request = {.verb = KVT_TIER_READ, .keys = &key, .key_count = 1};

	ck_assert_int_eq(rig_run(&rig, 0, &request), KVT_EINVAL);
	request.verb = (enum kvt_tier_verb)99;
	ck_assert_int_eq(rig_run(&rig, 0, &request), KVT_EINVAL);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("redis tier");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, not_configured);
	tcase_add_test(tcase, what_one_writes_another_reads);
	tcase_add_test(tcase, one_round_trip_for_a_read);
	tcase_add_test(tcase, another_length_is_a_miss);
	tcase_add_test(tcase, cut_by_others_settings);
	tcase_add_test(tcase, probes_find_a_prefix);
	tcase_add_test(tcase, what_a_probe_tells);
	tcase_add_test(tcase, flipped_bits_are_misses);
	tcase_add_test(tcase, flipped_bits_of_parts_are_misses);
	tcase_add_test(tcase, cut_or_longer_values);
	tcase_add_test(tcase, a_value_belongs_to_its_key);
	tcase_add_test(tcase, parts_that_are_missing_or_mixed);
	tcase_add_test(tcase, another_type_under_the_name);
	tcase_add_test(tcase, names_of_blocks_come_back);
	tcase_add_test(tcase, a_server_that_is_full);
	tcase_add_test(tcase, no_server);
	tcase_add_test(tcase, a_server_that_stands_still);
	tcase_add_test(tcase, closing_ends_everything);
	tcase_add_test(tcase, a_configuration_of_zeros);
	tcase_add_test(tcase, writes_take_turns);
	tcase_add_test(tcase, wrong_requests);
	tcase_set_timeout(tcase, 120);
	return run_tcase("redis tier", tcase);
}
