/*
 * seal_test.c - sealed chunks in Redis: nothing readable there, tenants' keys shared by all
 * handles, and gone with their tenant.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_redis.h"
#include "redis_rig.h"
#include "tiers/redis/redis_value.h"
#include "tests/unit/suite.h"

#define KEY_1 "1: 00112233445566778899aabbccddeeff0123456789abcdef0123456789abcdef\n"
#define KEY_2 "2: f0e1d2c3b4a5968778695a4b3c2d1e0fffeeddccbbaa99887766554433221100\n"

static struct redis_rig rig;
static char keys[64];

static void write_keys(const char *text)
{
	FILE *f = fopen(keys, "w");

	ck_assert_ptr_nonnull(f);
	ck_assert_int_ge(fputs(text, f), 0);
	ck_assert_int_eq(fclose(f), 0);
	ck_assert_int_eq(chmod(keys, 0600), 0);
}

static void setup(void)
{
	fake_reset();
	(void)snprintf(keys, sizeof(keys), "/tmp/kvt-redis-keys-XXXXXX");
	ck_assert_int_ge(close(mkstemp(keys)), 0);
	write_keys(KEY_1);
	rig_init(&rig);
	rig.config.l2_part_bytes = 1u << 20;
	rig.config.protect_keys = keys;
	ck_assert_int_eq(rig_open(&rig, 0), KVT_OK);
	ck_assert_int_eq(rig_open(&rig, 1), KVT_OK);
}

static void teardown(void)
{
	rig_finish(&rig);
	fake_reset();
	(void)unlink(keys);
}

static enum kvt_status put_for(int handle, uint64_t n, uint8_t tenant, uint64_t bytes)
{
	struct kvt_item item = {.size = sizeof(item), .bytes = bytes, .tenant = {{tenant}}};

	return rig_put_item(&rig, handle, n, &item);
}

static bool in_redis(const void *what, size_t len)
{
	const char *name;
	bool found = false;

	for (size_t i = 0; (name = fake_name(i)) != NULL; i++) {
		size_t bytes;
		const uint8_t *value = fake_value(name, &bytes);

		found = found || memmem(value, bytes, what, len) != NULL;
	}
	return found;
}

START_TEST(sealed_and_opened)
{
	uint8_t plain[32], hashes[32] = "hashes of the engine, 32 bytes.";
	uint32_t tokens[16] = {71, 72, 73, 74, 75, 76, 77};
	struct kvt_blocks blocks = {
		.hashes = hashes, .hash_bytes = 32, .count = 1, .tokens = tokens, .block_size = 16};
	struct kvt_item item = {.size = sizeof(item), .bytes = 1500000, .blocks = &blocks};

	for (size_t i = 0; i < sizeof(plain); i++)
		plain[i] = rig_byte(1, i);
	ck_assert_int_eq(rig_put_item(&rig, 0, 1, &item), KVT_OK);
	ck_assert(!in_redis(plain, sizeof(plain)));
	ck_assert(!in_redis(tokens, sizeof(tokens)));
	ck_assert(!in_redis(hashes, sizeof(hashes)));
	ck_assert_int_eq(rig_get(&rig, 0, 1, 1500000), KVT_OK);
	ck_assert(rig.had_names);
	ck_assert_uint_eq(rig_probe(&rig, 1, 1, 1), 1);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 1500000), KVT_OK); /* by the shared key */
	ck_assert(rig.had_names);
	ck_assert_uint_eq(fake_count("tenantkey"), 1);
}
END_TEST

/* Its tags would prove bytes that no put ever said. */
START_TEST(what_changed_in_memory_is_not_sealed)
{
	static uint8_t bytes[3000];
	struct kvt_key key = rig_key(1);
	struct kvt_segment all = {.base = bytes, .bytes = sizeof(bytes)};
	struct kvt_item item = {.size = sizeof(item), .key = key, .bytes = sizeof(bytes), .tenant = {{5}}};
	struct kvt_tier_request write = {.verb = KVT_TIER_WRITE,
		.keys = &key,
		.key_count = 1,
		.segments = &all,
		.segment_count = 1,
		.bytes = sizeof(bytes),
		.item = &item};

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = rig_byte(1, i);
	kvt_checksum_segments(&all, 1, sizeof(bytes), &write.checksum);
	bytes[1234] ^= 1;
	ck_assert_int_eq(rig_run(&rig, 0, &write), KVT_ECORRUPT);
	ck_assert_int_eq(rig_get(&rig, 1, 1, sizeof(bytes)), KVT_MISS);
	bytes[1234] ^= 1;
	ck_assert_int_eq(rig_run(&rig, 0, &write), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, sizeof(bytes)), KVT_OK);
}
END_TEST

/* Segments may be written by others as soon as the bytes are there, here by the value's own other half: the
 * checksum is that of what was opened. */
START_TEST(a_checksum_is_of_what_was_opened)
{
	static uint8_t bytes[3000];
	struct kvt_key key = rig_key(1);
	struct kvt_segment all = {.base = bytes, .bytes = sizeof(bytes)};
	struct kvt_segment halves[2] = {{.base = bytes, .bytes = 1500}, {.base = bytes, .bytes = 1500}};
	struct kvt_tier_request read = {.verb = KVT_TIER_READ,
		.keys = &key,
		.key_count = 1,
		.segments = halves,
		.segment_count = 2,
		.bytes = sizeof(bytes),
		.deadline_ns = KVT_TIER_NEVER};
	struct kvt_checksum written;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = rig_byte(1, i);
	kvt_checksum_segments(&all, 1, sizeof(bytes), &written);
	ck_assert_int_eq(rig_put(&rig, 0, 1, sizeof(bytes)), KVT_OK);
	memset(bytes, 0, sizeof(bytes));
	ck_assert_int_eq(rig_run(&rig, 0, &read), KVT_OK);
	ck_assert(kvt_checksum_equal(&read.checksum, &written));
}
END_TEST

START_TEST(both_write_for_a_tenant)
{
	ck_assert_int_eq(put_for(0, 1, 5, 100), KVT_OK);
	ck_assert_int_eq(put_for(1, 2, 5, 100), KVT_OK);
	ck_assert_uint_eq(fake_count("tenantkey"), 1);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 0, 2, 100), KVT_OK);
}
END_TEST

START_TEST(flipped_bits)
{
	uint64_t bytes = 500;
	size_t len;

	for (size_t at = 0; at < bytes + 16 + REDIS_FOOTER; at += at < bytes ? 9 : 1) {
		uint8_t *value;

		ck_assert_int_eq(put_for(0, 1, 5, bytes), KVT_OK);
		value = fake_value(rig_name(&rig, 1, 0), &len);
		ck_assert_uint_eq(len, bytes + 16 + REDIS_FOOTER);
		value[at] ^= (uint8_t)(1u << (at % 8));
		ck_assert_int_ne(rig_get(&rig, 1, 1, bytes), KVT_OK);
		rig_steps(&rig, 1, 5);
	}
}
END_TEST

START_TEST(an_erased_tenant_loses_its_key)
{
	struct kvt_tenant tenant = {{5}};
	struct kvt_slot_set *slots = calloc(1, sizeof(*slots));
	struct kvt_table_ask *ask = calloc(1, sizeof(*ask));

	ck_assert_int_eq(put_for(0, 1, 5, 100), KVT_OK);
	ck_assert_int_eq(put_for(0, 2, 6, 100), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_OK);
	ask->raise = kvt_tenant_slot(&tenant);
	ask->tenant = &tenant;
	ck_assert_int_eq(rig_ask_table(&rig, 0, ask), KVT_OK);
	for (int i = 0; i < RIG_HANDLES; i++) /* each hears of the change */
		(void)rig.tiers[i]->ops->drop_slots(rig.tiers[i], slots);
	free(slots);
	free(ask);
	ck_assert_uint_eq(fake_count("tenantkey"), 1);
	ck_assert_int_eq(rig_get(&rig, 0, 1, 100), KVT_MISS);
	ck_assert_int_eq(rig_get(&rig, 0, 2, 100), KVT_OK);
	/* The other handle writes on: by a key that all can have. */
	ck_assert_int_eq(put_for(1, 3, 5, 100), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 0, 3, 100), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_MISS);
}
END_TEST

START_TEST(a_lost_or_damaged_key)
{
	char name[REDIS_KEY_ROOM];
	struct kvt_tenant tenant = {{5}};
	size_t len;

	(void)redis_tenant_key_name(&rig.config.fingerprint, &tenant, name);
	ck_assert_int_eq(put_for(0, 1, 5, 100), KVT_OK);
	fake_value(name, &len)[70] ^= 1;
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_MISS);
	rig_steps(&rig, 1, 5);
	ck_assert_int_eq(put_for(1, 2, 5, 100), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 2, 100), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 0, 2, 100), KVT_OK);
	fake_remove(name);
	rig_close(&rig, 1);
	ck_assert_int_eq(rig_open(&rig, 1), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 2, 100), KVT_MISS);
}
END_TEST

START_TEST(a_newer_master)
{
	ck_assert_int_eq(put_for(0, 1, 5, 100), KVT_OK);
	rig_close(&rig, 1);
	write_keys(KEY_1 KEY_2);
	ck_assert_int_eq(rig_open(&rig, 1), KVT_OK);
	ck_assert_int_eq(put_for(1, 2, 5, 100), KVT_OK);
	rig_steps(&rig, 1, 5);
	rig_close(&rig, 1);
	write_keys(KEY_2); /* the old master has left */
	ck_assert_int_eq(rig_open(&rig, 1), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 2, 100), KVT_OK);
}
END_TEST

START_TEST(plain_and_sealed_do_not_mix)
{
	ck_assert_int_eq(put_for(0, 1, 5, 100), KVT_OK);
	rig_close(&rig, 1);
	rig.config.protect_keys = "";
	ck_assert_int_eq(rig_open(&rig, 1), KVT_OK);
	ck_assert_uint_eq(rig_probe(&rig, 1, 1, 1), 0);
	ck_assert_int_eq(rig_get(&rig, 1, 1, 100), KVT_MISS);
	ck_assert_int_eq(put_for(1, 2, 5, 100), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 0, 2, 100), KVT_MISS);
	ck_assert_int_eq(rig_get(&rig, 0, 1, 100), KVT_OK); /* and nothing was removed */
	ck_assert_int_eq(rig_get(&rig, 1, 2, 100), KVT_OK);
}
END_TEST

static unsigned ended;

static void count_done(struct kvt_tier_request *request)
{
	ck_assert_uint_eq(request->status, KVT_OK);
	ended++;
}

/* Sealed copies are bounded by l2_inflight; a store that finds no room waits. */
START_TEST(sealed_copies_are_bounded)
{
	static uint8_t bytes[600000];
	struct kvt_segment segment = {.base = bytes, .bytes = sizeof(bytes)};
	struct kvt_tier_request writes[6];
	struct kvt_checksum sum;
	struct kvt_key names[6];

	rig_close(&rig, 0);
	rig.config.l2_inflight = 1u << 20;
	ck_assert_int_eq(rig_open(&rig, 0), KVT_OK);
	kvt_checksum_segments(&segment, 1, sizeof(bytes), &sum);
	for (int i = 0; i < 6; i++) {
		names[i] = rig_key(100 + (uint64_t)i);
		writes[i] = (struct kvt_tier_request){.verb = KVT_TIER_WRITE,
			.keys = &names[i],
			.key_count = 1,
			.bytes = sizeof(bytes),
			.segments = &segment,
			.segment_count = 1,
			.checksum = sum,
			.done = count_done};
		rig.tiers[0]->ops->submit(rig.tiers[0], &writes[i]);
	}
	ended = 0;
	for (int i = 0; i < 100 && ended < 6; i++)
		rig_steps(&rig, 0, 1);
	ck_assert_uint_eq(ended, 6);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("redis seal");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, sealed_and_opened);
	tcase_add_test(tcase, what_changed_in_memory_is_not_sealed);
	tcase_add_test(tcase, a_checksum_is_of_what_was_opened);
	tcase_add_test(tcase, both_write_for_a_tenant);
	tcase_add_test(tcase, flipped_bits);
	tcase_add_test(tcase, an_erased_tenant_loses_its_key);
	tcase_add_test(tcase, a_lost_or_damaged_key);
	tcase_add_test(tcase, a_newer_master);
	tcase_add_test(tcase, plain_and_sealed_do_not_mix);
	tcase_add_test(tcase, sealed_copies_are_bounded);
	tcase_set_timeout(tcase, 120);
	return run_tcase("redis seal", tcase);
}
