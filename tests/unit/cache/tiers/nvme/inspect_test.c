/*
 * inspect_test.c - a store looked at from outside, closed and while its owner runs.
 */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tiers/nvme/nvme_inspect.h"
#include "store.h"
#include "tests/unit/suite.h"

static struct store s;

static void setup(void)
{
	store_init(&s);
	ck_assert_int_eq(store_open(&s), KVT_OK);
}

static void teardown(void)
{
	store_finish(&s);
}

static struct kvt_inspect *look(void)
{
	struct kvt_inspect *x = NULL;
	char folder[512], why[KVT_REASON_BYTES];

	store_path(&s, "", folder, sizeof(folder));
	ck_assert_int_eq(kvt_inspect_open(folder, NULL, &s.surroundings, why, &x), KVT_OK);
	return x;
}

START_TEST(lists_what_is_there)
{
	struct kvt_inspect_store store;
	struct kvt_inspect_chunk chunk;
	struct kvt_inspect *x;
	struct kvt_key key = key_of(1), parent = key_of(77);
	struct kvt_item item = {.size = sizeof(item), .tokens = 300, .parent = &parent};

	item.tenant.bytes[0] = 9;
	ck_assert_int_eq(store_put_item(&s, 1, &item, false), KVT_OK);
	for (uint64_t n = 2; n <= 30; n++)
		ck_assert_int_eq(store_put(&s, n), KVT_OK);
	ck_assert_int_eq(store_erase(&s, 30), KVT_OK);
	ck_assert_int_eq(store_flush(&s), KVT_OK);
	x = look(); /* while its owner runs */
	kvt_inspect_store(x, &store);
	ck_assert_uint_eq(store.chunks, 29);
	ck_assert_uint_eq(store.tenants, 2);
	ck_assert_uint_eq(store.payload_bytes, store_stats(&s).payload);
	ck_assert_uint_eq(store.disk_bytes, store_stats(&s).used);
	ck_assert_uint_eq(kvt_inspect_count(x), 29);
	kvt_inspect_chunk(x, 0, &chunk);
	ck_assert_mem_eq(&chunk.key, &key, sizeof(key));
	ck_assert(chunk.has_parent);
	ck_assert_mem_eq(&chunk.parent, &parent, sizeof(parent));
	ck_assert_uint_eq(chunk.tokens, 300);
	ck_assert_uint_eq(chunk.bytes, bytes_of(1));
	for (size_t i = 0; i < kvt_inspect_count(x); i++)
		ck_assert_int_eq(kvt_inspect_verify(x, i, 0, NULL), KVT_OK);
	kvt_inspect_close(x);
}
END_TEST

static void flip(uint64_t at)
{
	char path[512];
	uint8_t byte;
	int fd;

	store_path(&s, "data-00000", path, sizeof(path));
	fd = open(path, O_RDWR);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= 1;
	ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
	(void)close(fd);
}

START_TEST(says_which_pieces_are_damaged)
{
	struct kvt_inspect_damage damage;
	struct kvt_inspect_chunk chunk;
	struct kvt_inspect *x;

	s.more_bytes = 500000; /* two pieces and some */
	ck_assert_int_eq(store_put(&s, 1), KVT_OK);
	ck_assert_int_eq(store_flush(&s), KVT_OK);
	x = look();
	kvt_inspect_chunk(x, 0, &chunk);
	ck_assert(chunk.has_pieces);
	ck_assert_int_eq(kvt_inspect_verify(x, 0, 0, &damage), KVT_OK);
	flip(4096 + 262144); /* the second piece's first byte */
	ck_assert_int_eq(kvt_inspect_verify(x, 0, 0, &damage), KVT_ECORRUPT);
	ck_assert(!damage.header);
	ck_assert_uint_eq(damage.pieces, (chunk.bytes + 262143) / 262144);
	ck_assert_uint_eq(damage.bad, 1);
	ck_assert_uint_eq(damage.first, 1);
	flip(4096 + chunk.bytes - 1); /* the last one's last */
	flip(4096 + 262143);          /* the first one's last */
	ck_assert_int_eq(kvt_inspect_verify(x, 0, 0, &damage), KVT_ECORRUPT);
	ck_assert_uint_eq(damage.bad, 3);
	ck_assert_uint_eq(damage.first, 0);
	flip(330); /* a checksum of a piece */
	ck_assert_int_eq(kvt_inspect_verify(x, 0, 0, &damage), KVT_ECORRUPT);
	ck_assert(damage.header);
	kvt_inspect_close(x);
}
END_TEST

START_TEST(says_what_is_damaged_and_what_has_gone)
{
	struct kvt_inspect_damage damage;
	struct kvt_inspect *x;

	for (uint64_t n = 1; n <= 3; n++)
		ck_assert_int_eq(store_put(&s, n), KVT_OK);
	ck_assert_int_eq(store_flush(&s), KVT_OK);
	x = look();
	flip(5000); /* the first chunk's payload */
	ck_assert_int_eq(kvt_inspect_verify(x, 0, 0, &damage), KVT_ECORRUPT);
	ck_assert(!damage.header);
	ck_assert_uint_eq(damage.pieces, 1);
	ck_assert_uint_eq(damage.bad, 1);
	ck_assert_int_eq(kvt_inspect_verify(x, 1, 0, NULL), KVT_OK);
	/* The owner erases it: then it is gone, not damaged. */
	ck_assert_int_eq(store_erase(&s, 1), KVT_OK);
	ck_assert_int_eq(store_flush(&s), KVT_OK);
	ck_assert_int_eq(kvt_inspect_verify(x, 0, 0, NULL), KVT_MISS);
	kvt_inspect_close(x);
}
END_TEST

static unsigned stores;

static void count(void *self, const char *folder)
{
	(void)self;
	ck_assert_ptr_nonnull(strstr(folder, "f1f1"));
	stores++;
}

START_TEST(finds_stores)
{
	struct kvt_inspect *x = NULL;
	char why[KVT_REASON_BYTES];

	stores = 0;
	ck_assert_int_eq(kvt_inspect_stores(s.folder, count, NULL), KVT_OK);
	ck_assert_uint_eq(stores, 1);
	ck_assert_int_eq(kvt_inspect_stores("/nowhere/at/all", count, NULL), KVT_MISS);
	ck_assert_int_eq(
		kvt_inspect_open("/nowhere/at/all", NULL, &s.surroundings, why, &x), KVT_MISS);
	ck_assert_int_eq(access("/nowhere", F_OK), -1); /* nothing is made */
	ck_assert_int_eq(kvt_inspect_open(s.folder, NULL, &s.surroundings, why, &x), KVT_MISS);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("inspect");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, lists_what_is_there);
	tcase_add_test(tc, says_which_pieces_are_damaged);
	tcase_add_test(tc, says_what_is_damaged_and_what_has_gone);
	tcase_add_test(tc, finds_stores);
	return run_tcase("cache-tiers-inspect", tc);
}
