/*
 * lmcache_test.c - chunks as stock LMCache keeps them: its values are read by the letter, ours
 * are its own to read, and what has a mark is verified.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_redis.h"
#include "tiers/redis/redis_lmcache.h"
#include "tiers/redis/redis_names.h"
#include "redis_rig.h"

#define MS     1000000ll
#define LAYOUT "dtype=bfloat16 format=KV_2LTD shape=2,2,*,16"
#define NAME   "drive/tiny@1@0@-13f5d085b2318dc0@bfloat16"
#define BYTES  1024 /* 8 tokens */

static struct redis_rig rig;

/* As recorded from LMCache 0.5.6: length 1024, KV_2LTD, bfloat16, [2, 2, 8, 16]. */
static const uint8_t recorded[LMCACHE_METADATA] = {
	0, 4, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0, 16, 0, 0, 0};

static void setup(void)
{
	fake_reset();
	rig_init(&rig);
	rig.config.l2_format = "lmcache";
	rig.config.l2_layout = LAYOUT;
	ck_assert_int_eq(rig_open(&rig, 0), KVT_OK);
	ck_assert_int_eq(rig_open(&rig, 1), KVT_OK);
}

static void teardown(void)
{
	rig_finish(&rig);
	fake_reset();
}

static void name(int handle, uint64_t n, const char *text)
{
	struct kvt_key key = rig_key(n);

	rig.tiers[handle]->ops->also_named(rig.tiers[handle], &key, &text, 1);
}

static void stock_set(const char *bytes_name, const char *metadata_name, uint64_t n)
{
	uint8_t bytes[BYTES];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = rig_byte(n, i);
	fake_set(bytes_name, bytes, sizeof(bytes));
	fake_set(metadata_name, recorded, sizeof(recorded));
}

static enum kvt_status put(int handle, uint64_t n, const char *alias, uint8_t tenant)
{
	struct kvt_item item = {.size = sizeof(item),
		.bytes = BYTES,
		.alias = alias,
		.tokens = 8,
		.tenant = {{tenant}}};

	return rig_put_item(&rig, handle, n, &item);
}

START_TEST(layouts)
{
	static const char *const wrong[] = {"", "dtype=bfloat16",
		"dtype=bf16 format=KV_2LTD shape=2,2,*,16",
		"dtype=bfloat16 format=KV_2LTD shape=2,2,8,16",
		"dtype=bfloat16 format=KV_2LTD shape=2,*,*,16",
		"dtype=bfloat16 format=KV_2LTD shape=2,2,*",
		"dtype=bfloat16 format=KV_2LTD shape=2,2,*,16,1",
		"dtype=bfloat16 format=KV_2LTD shape=2,0,*,16",
		"dtype=bfloat16 format=KV_2LTD shape=2,-1,*,16",
		"dtype=bfloat16 format=XX shape=2,2,*,16",
		"dtype=bfloat16 format=KV_2LTD shape=2,2,*,16 more",
		"dtype=bfloat16 format=KV_2LTD shape=65536,65536,*,16"};
	struct lmcache_layout l;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_msg(lmcache_layout_parse(wrong[i], &l) != NULL, "%s", wrong[i]);
	ck_assert_ptr_null(
		lmcache_layout_parse("shape=2,32,*,1024  format=KV_2LTD dtype=half ", &l));
	ck_assert_uint_eq(l.bytes_per_token, 2 * 32 * 1024 * 2);
	ck_assert_uint_eq(lmcache_tokens(&l, l.bytes_per_token * 256), 256);
	ck_assert_uint_eq(lmcache_tokens(&l, l.bytes_per_token * 256 + 1), 0);
}
END_TEST

START_TEST(refused)
{
	struct redis_rig other;

	rig_init(&other);
	other.config.l2_format = "lmcache";
	ck_assert_int_eq(rig_open(&other, 0), KVT_EINVAL);
	ck_assert_ptr_nonnull(strstr(other.why, "l2.layout"));
	other.config.l2_layout = LAYOUT;
	other.config.protect_keys = "/nonexistent";
	ck_assert_int_eq(rig_open(&other, 0), KVT_ENOTSUP);
	ck_assert_ptr_nonnull(strstr(other.why, "protect.keys"));
}
END_TEST

START_TEST(what_lmcache_wrote)
{
	stock_set(NAME "kv_bytes", NAME "metadata", 1);
	ck_assert_int_eq(rig_get(&rig, 0, 1, BYTES), KVT_MISS); /* its name is unknown */
	ck_assert_uint_eq(rig_probe(&rig, 0, 1, 1), 0);
	name(0, 1, NAME);
	ck_assert_uint_eq(rig_probe(&rig, 0, 1, 1), 1);
	ck_assert_int_eq(rig_get(&rig, 0, 1, BYTES), KVT_OK);
	ck_assert_uint_eq(rig_stats(&rig, 0).unverified, 1);
	ck_assert_uint_eq(fake.sets + fake.unlinks, 0); /* nothing of it was touched */
}
END_TEST

START_TEST(what_we_write)
{
	const uint8_t *metadata, *bytes;
	size_t len;

	ck_assert_int_eq(put(0, 1, NAME, 0), KVT_OK);
	metadata = fake_value(NAME "metadata", &len);
	ck_assert_uint_eq(len, sizeof(recorded));
	ck_assert_mem_eq(metadata, recorded, len);
	bytes = fake_value(NAME "kv_bytes", &len);
	ck_assert_uint_eq(len, BYTES);
	for (size_t i = 0; i < BYTES; i++)
		ck_assert_uint_eq(bytes[i], rig_byte(1, i));
	ck_assert_int_eq(rig_get(&rig, 0, 1, BYTES), KVT_OK);
	name(1, 1, NAME);
	ck_assert_uint_eq(rig_probe(&rig, 1, 1, 1), 1);
	ck_assert_int_eq(rig_get(&rig, 1, 1, BYTES), KVT_OK);
	ck_assert_uint_eq(rig_stats(&rig, 1).unverified, 0);
	ck_assert_int_eq(put(0, 2, NULL, 0), KVT_ENOTSUP); /* no name */
}
END_TEST

START_TEST(metadata_to_the_last_number)
{
	uint8_t other[LMCACHE_METADATA];

	name(0, 1, NAME);
	for (size_t at = 0; at < sizeof(other); at++) {
		stock_set(NAME "kv_bytes", NAME "metadata", 1);
		memcpy(other, recorded, sizeof(other));
		other[at] ^= 1;
		fake_set(NAME "metadata", other, sizeof(other));
		rig.now_ns += 6000 * MS;
		ck_assert_uint_eq(rig_probe(&rig, 0, 1, 1), 0);
		ck_assert_int_eq(rig_get(&rig, 0, 1, BYTES), KVT_MISS);
	}
	fake_set(NAME "metadata", recorded, sizeof(recorded) - 1);
	ck_assert_int_eq(rig_get(&rig, 0, 1, BYTES), KVT_MISS);
	fake_set(NAME "metadata", recorded, sizeof(recorded));
	ck_assert_int_eq(rig_get(&rig, 0, 1, BYTES), KVT_OK);
}
END_TEST

START_TEST(bytes_of_another_length)
{
	uint8_t bytes[BYTES + 1] = {0};

	name(0, 1, NAME);
	for (size_t len = 0; len <= BYTES + 1; len += BYTES / 2 + 1) {
		stock_set(NAME "kv_bytes", NAME "metadata", 1);
		fake_set(NAME "kv_bytes", bytes, len);
		rig.now_ns += 6000 * MS;
		ck_assert_uint_eq(rig_probe(&rig, 0, 1, 1), 0);
		ck_assert_int_eq(rig_get(&rig, 0, 1, BYTES), KVT_MISS);
	}
	fake_remove(NAME "kv_bytes");
	ck_assert_int_eq(rig_get(&rig, 0, 1, BYTES), KVT_MISS);
	fake_make_list(NAME "kv_bytes");
	rig.now_ns += 6000 * MS;
	ck_assert_uint_eq(rig_probe(&rig, 0, 1, 1), 0);
	ck_assert_int_eq(rig_get(&rig, 0, 1, BYTES), KVT_MISS);
}
END_TEST

START_TEST(a_mark_is_verified)
{
	const char *const keys[] = {NAME "kv_bytes", NAME "kvtier"};
	size_t len;

	name(1, 1, NAME);
	for (size_t i = 0; i < 2; i++) {
		for (size_t at = 0; at < (i == 0 ? BYTES : REDIS_MARK); at += i == 0 ? 13 : 1) {
			uint8_t *value;

			ck_assert_int_eq(put(0, 1, NAME, 0), KVT_OK);
			value = fake_value(keys[i], &len);
			value[at] ^= (uint8_t)(1u << (at % 8));
			ck_assert_int_eq(rig_get(&rig, 1, 1, BYTES), KVT_ECORRUPT);
			rig_steps(&rig, 1, 5);
			ck_assert_uint_eq(fake_count(NAME), 0);
		}
	}
	ck_assert_uint_eq(rig_stats(&rig, 1).unverified, 0);
}
END_TEST

/* 64 bits of hash, and no weights: the name may be another chunk's. */
START_TEST(a_name_of_two_chunks)
{
	ck_assert_int_eq(put(0, 1, NAME, 0), KVT_OK);
	name(1, 2, NAME);
	ck_assert_uint_eq(rig_probe(&rig, 1, 2, 1), 0);
	ck_assert_int_eq(rig_get(&rig, 1, 2, BYTES), KVT_MISS);
	ck_assert_int_eq(rig_get(&rig, 0, 1, BYTES), KVT_OK);
}
END_TEST

START_TEST(erased_keys)
{
	ck_assert_int_eq(put(0, 1, NAME, 0), KVT_OK);
	ck_assert_int_eq(rig_erase(&rig, 0, 1), KVT_OK);
	ck_assert_uint_eq(fake_count(NAME), 0);
	ck_assert_int_eq(rig_get(&rig, 0, 1, BYTES), KVT_MISS);
	/* Erased before its name was known: hidden, and gone when the name is known. */
	stock_set(NAME "kv_bytes", NAME "metadata", 1);
	ck_assert_int_eq(rig_erase(&rig, 1, 1), KVT_OK);
	ck_assert_int_eq(rig_flush(&rig, 1), KVT_OK);
	name(1, 1, NAME);
	ck_assert_int_eq(rig_get(&rig, 1, 1, BYTES), KVT_MISS);
	rig_steps(&rig, 1, 10);
	ck_assert_uint_eq(fake_count(NAME), 0);
	ck_assert_int_eq(put(1, 1, NAME, 0), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 1, 1, BYTES), KVT_OK);
}
END_TEST

START_TEST(an_erased_tenant)
{
	struct kvt_tenant tenant = {{7}};
	size_t erased;

	ck_assert_int_eq(put(0, 1, "a" NAME, 7), KVT_OK);
	ck_assert_int_eq(put(0, 2, "b" NAME, 8), KVT_OK);
	stock_set("c" NAME "kv_bytes", "c" NAME "metadata", 3);
	name(0, 3, "c" NAME);
	ck_assert_int_eq(rig_get(&rig, 0, 3, BYTES), KVT_OK);
	ck_assert_int_eq(rig.tiers[0]->ops->erase_tenant(rig.tiers[0], &tenant, &erased), KVT_OK);
	ck_assert_int_eq(rig_get(&rig, 0, 1, BYTES), KVT_MISS);
	ck_assert_int_eq(rig_get(&rig, 0, 2, BYTES), KVT_OK);
	/* Whose it is cannot be known: it might be the tenant's. */
	ck_assert_int_eq(rig_get(&rig, 0, 3, BYTES), KVT_MISS);
	ck_assert_int_eq(rig_flush(&rig, 0), KVT_OK);
	name(1, 1, "a" NAME);
	name(1, 3, "c" NAME);
	ck_assert_int_eq(rig_get(&rig, 1, 1, BYTES), KVT_MISS);
	ck_assert_int_eq(rig_get(&rig, 1, 3, BYTES), KVT_MISS);
	ck_assert_uint_eq(rig_probe(&rig, 1, 3, 1), 0);
}
END_TEST

START_TEST(names_are_bounded)
{
	char text[64], long_name[2000];
	struct redis_names *names;
	struct kvt_key key;
	char out[64];

	ck_assert_int_eq(redis_names_create(100, 1 << 20, &names), KVT_OK);
	for (uint64_t n = 0; n < 1000; n++) {
		key = rig_key(n);
		(void)snprintf(text, sizeof(text), "name %llu", (unsigned long long)n);
		redis_names_tell(names, &key, text);
	}
	key = rig_key(899);
	ck_assert(!redis_names_has(names, &key));
	key = rig_key(900);
	ck_assert_uint_eq(redis_names_find(names, &key, out, sizeof(out)), 8);
	ck_assert_str_eq(out, "name 900");
	redis_names_tell(names, &key, "another");
	ck_assert_uint_eq(redis_names_find(names, &key, out, sizeof(out)), 7);
	memset(long_name, 'x', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';
	key = rig_key(5000);
	redis_names_tell(names, &key, long_name);
	ck_assert(!redis_names_has(names, &key));
	redis_names_destroy(names);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("redis lmcache");
	TCase *tcase = tcase_create("redis lmcache");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, layouts);
	tcase_add_test(tcase, refused);
	tcase_add_test(tcase, what_lmcache_wrote);
	tcase_add_test(tcase, what_we_write);
	tcase_add_test(tcase, metadata_to_the_last_number);
	tcase_add_test(tcase, bytes_of_another_length);
	tcase_add_test(tcase, a_mark_is_verified);
	tcase_add_test(tcase, a_name_of_two_chunks);
	tcase_add_test(tcase, erased_keys);
	tcase_add_test(tcase, an_erased_tenant);
	tcase_add_test(tcase, names_are_bounded);
	tcase_set_timeout(tcase, 120);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
