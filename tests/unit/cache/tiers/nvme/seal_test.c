/*
 * seal_test.c - a sealed store: nothing readable on disk, keys that come and go, tenants erased.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "history.h"
#include "store.h"
#include "io/testing/test_disk.h"
#include "tests/unit/suite.h"

#define KEY_1 "1: 00112233445566778899aabbccddeeff0123456789abcdef0123456789abcdef\n"
#define KEY_2 "2: f0e1d2c3b4a5968778695a4b3c2d1e0fffeeddccbbaa99887766554433221100\n"

static struct store s;
static struct kvt_disk *disk;
static struct kvt_io_layer layer;
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
	struct kvt_disk_options options = {0};

	(void)snprintf(keys, sizeof(keys), "/tmp/kvt-tiers-keys-XXXXXX");
	ck_assert_int_ge(close(mkstemp(keys)), 0);
	write_keys(KEY_1);
	store_init(&s);
	options.clock = &s.time;
	ck_assert_int_eq(kvt_disk_create(&options, &disk), KVT_OK);
	layer = kvt_disk_layer(disk);
	s.config.io = &layer;
	s.config.protect_keys = keys;
	ck_assert_int_eq(store_open(&s), KVT_OK);
}

static void teardown(void)
{
	store_finish(&s);
	kvt_disk_destroy(disk);
	(void)unlink(keys);
}

static void reopen(void)
{
	store_close(&s);
	ck_assert_int_eq(store_open(&s), KVT_OK);
}

static enum kvt_status put_for(uint64_t n, uint8_t tenant)
{
	struct kvt_item item = {.size = sizeof(item), .tokens = 256};

	item.tenant.bytes[0] = tenant;
	return store_put_item(&s, n, &item, false);
}

/* Is this anywhere in a file of the store? */
static bool on_disk(const char *name, size_t room, const void *what, size_t len)
{
	char folder[512];
	uint8_t *bytes = malloc(room);
	bool found;

	store_path(&s, "", folder, sizeof(folder));
	folder[strlen(folder) - 1] = '\0';
	ck_assert_int_eq(kvt_disk_peek(disk, folder, name, 0, bytes, room), KVT_OK);
	found = memmem(bytes, room, what, len) != NULL;
	free(bytes);
	return found;
}

START_TEST(sealed_and_opened)
{
	uint8_t hashes[32] = "hashes of the engine, 32 bytes.";
	uint32_t tokens[16] = {71, 72, 73, 74, 75, 76, 77};
	struct kvt_blocks blocks = {
		.hashes = hashes, .hash_bytes = 32, .count = 1, .tokens = tokens, .block_size = 16};
	struct kvt_item item = {.size = sizeof(item), .blocks = &blocks};
	uint8_t plain[64];
	struct wish *w;

	fill(1, plain, sizeof(plain));
	ck_assert_int_eq(store_put_item(&s, 1, &item, true), KVT_OK);
	ck_assert(!on_disk("data-00000", 1 << 20, plain, sizeof(plain)));
	ck_assert(!on_disk("data-00000", 1 << 20, tokens, sizeof(tokens)));
	reopen();
	w = wish_new(&s, KVT_TIER_READ, 1, 0);
	s.tier->ops->submit(s.tier, &w->request);
	ck_assert_int_eq(wish_wait(&s, w), KVT_OK);
	ck_assert(w->had_names);
	wish_free(w);
}
END_TEST

/* Its tags would prove bytes that no put ever said. */
START_TEST(what_changed_in_memory_is_not_sealed)
{
	for (uint64_t n = 1; n <= 4; n++) {
		struct wish *w = wish_new(&s, KVT_TIER_WRITE, n, 4096);

		w->bytes[n == 1 ? 0 : n == 2 ? w->room - 1 : w->room / 2] ^= 1;
		s.tier->ops->submit(s.tier, &w->request);
		ck_assert_int_eq(wish_wait(&s, w), KVT_ECORRUPT);
		wish_free(w);
		ck_assert(!store_has(&s, n));
	}
	ck_assert_uint_eq(store_stats(&s).used, 0);
	ck_assert_int_eq(store_put(&s, 1), KVT_OK);
	ck_assert_int_eq(store_get(&s, 1), KVT_OK);
}
END_TEST

static void on_opened(struct kvt_tier_request *r)
{
	((struct wish *)r->user)->done = true;
}

/* Segments may be written by others as soon as the bytes are there, here by the chunk's own other half: the
 * checksum is that of what was opened. */
START_TEST(a_checksum_is_of_what_was_opened)
{
	struct wish *w = wish_new(&s, KVT_TIER_WRITE, 1, 0);
	struct kvt_checksum written = w->request.checksum, there;

	s.tier->ops->submit(s.tier, &w->request);
	ck_assert_int_eq(wish_wait(&s, w), KVT_OK);
	wish_free(w);
	w = wish_new(&s, KVT_TIER_READ, 1, 0);
	w->segments[0].bytes = w->room / 2;
	w->segments[1] = (struct kvt_segment){.base = w->bytes, .bytes = w->room - w->room / 2};
	w->request.segment_count = 2;
	w->request.done = on_opened;
	s.tier->ops->submit(s.tier, &w->request);
	ck_assert_int_eq(wish_wait(&s, w), KVT_OK);
	kvt_checksum_segments(w->segments, 2, w->room, &there);
	ck_assert(!kvt_checksum_equal(&there, &written));
	ck_assert(kvt_checksum_equal(&w->request.checksum, &written));
	wish_free(w);
}
END_TEST

START_TEST(an_erased_tenant_loses_its_key)
{
	uint8_t zero[4096] = {0}, block[4096];
	struct kvt_tenant tenant = {{3}};
	char folder[512];
	size_t erased;

	for (uint64_t n = 1; n <= 6; n++)
		ck_assert_int_eq(put_for(n, n % 2 == 0 ? 3 : 4), KVT_OK);
	ck_assert_int_eq(store_flush(&s), KVT_OK);
	ck_assert(on_disk("tenants", 8192, tenant.bytes, sizeof(tenant.bytes)));
	ck_assert_int_eq(s.tier->ops->erase_tenant(s.tier, &tenant, &erased), KVT_OK);
	ck_assert_int_eq(store_flush(&s), KVT_OK);
	store_path(&s, "", folder, sizeof(folder));
	folder[strlen(folder) - 1] = '\0';
	/* Tenant 4 came first, tenant 3 second. */
	ck_assert_int_eq(kvt_disk_peek(disk, folder, "tenants", 4096, block, 4096), KVT_OK);
	ck_assert_mem_eq(block, zero, 4096);
	for (uint64_t n = 1; n <= 6; n++)
		ck_assert_int_eq(store_get(&s, n), n % 2 == 0 ? KVT_MISS : KVT_OK);
	ck_assert_int_eq(put_for(2, 3), KVT_OK);
	reopen();
	ck_assert_int_eq(store_get(&s, 1), KVT_OK);
	ck_assert_int_eq(store_get(&s, 2), KVT_OK);
}
END_TEST

START_TEST(keys_rotate)
{
	ck_assert_int_eq(put_for(1, 5), KVT_OK);
	store_close(&s);
	write_keys(KEY_1 KEY_2);
	ck_assert_int_eq(store_open(&s), KVT_OK);
	ck_assert_int_eq(store_get(&s, 1), KVT_OK);
	ck_assert_int_eq(put_for(2, 5), KVT_OK);
	store_close(&s);
	write_keys(KEY_2); /* the tenant's key was wrapped again by the put */
	ck_assert_int_eq(store_open(&s), KVT_OK);
	ck_assert_int_eq(store_get(&s, 1), KVT_OK);
	ck_assert_int_eq(store_get(&s, 2), KVT_OK);
}
END_TEST

START_TEST(without_its_key_nothing_opens)
{
	ck_assert_int_eq(put_for(1, 5), KVT_OK);
	store_close(&s);
	write_keys(KEY_2);
	ck_assert_int_eq(store_open(&s), KVT_OK);
	ck_assert_int_ne(store_get(&s, 1), KVT_OK);
	store_close(&s);
	write_keys("1: short\n");
	ck_assert_int_eq(store_open(&s), KVT_EINVAL);
	ck_assert_uint_gt(strlen(s.why), 0);
	s.config.protect_keys = NULL; /* a sealed store, opened plain */
	ck_assert_int_eq(store_open(&s), KVT_OK);
	ck_assert_int_ne(store_get(&s, 1), KVT_OK);
}
END_TEST

START_TEST(power_is_lost)
{
	struct history_result result = {0};

	for (uint64_t seed = 1; seed <= 5; seed++) {
		struct history_options options = {.seed = seed,
			.steps = 50,
			.crashes = 20,
			.capacity = 64u << 20,
			.keys = keys};

		history_run(&options, &result);
	}
	ck_assert_uint_gt(result.must, 20);
	ck_assert_uint_gt(result.must_not, 20);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("seal");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, sealed_and_opened);
	tcase_add_test(tc, what_changed_in_memory_is_not_sealed);
	tcase_add_test(tc, a_checksum_is_of_what_was_opened);
	tcase_add_test(tc, an_erased_tenant_loses_its_key);
	tcase_add_test(tc, keys_rotate);
	tcase_add_test(tc, without_its_key_nothing_opens);
	tcase_add_test(tc, power_is_lost);
	return run_tcase("cache-tiers-seal", tc);
}
