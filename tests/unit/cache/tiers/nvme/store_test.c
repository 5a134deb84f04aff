/*
 * store_test.c - the NVMe tier over the machine's own files: what is put comes back, also after the
 * store was closed; what was erased does not.
 */
#include <check.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "tiers/nvme/nvme.h"
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

static void reopen(void)
{
	store_close(&s);
	ck_assert_int_eq(store_open(&s), KVT_OK);
}

START_TEST(put_then_get)
{
	for (uint64_t n = 1; n <= 60; n++)
		ck_assert_int_eq(store_put(&s, n), KVT_OK);
	for (uint64_t n = 1; n <= 60; n++)
		ck_assert_int_eq(store_get(&s, n), KVT_OK);
	ck_assert_int_eq(store_get(&s, 61), KVT_MISS);
	ck_assert_int_eq(store_put(&s, 1), KVT_EXISTS);
	ck_assert_uint_eq(store_stats(&s).chunks, 60);
	ck_assert_uint_eq(store_stats(&s).state, KVT_TIER_WORKS);
	ck_assert_uint_lt(sizeof(struct nvme_side), 32); /* of memory with each index entry */
}
END_TEST

START_TEST(segments_need_not_be_aligned)
{
	const uint64_t cuts[] = {1, 100, 4096, 4097, 65536};

	for (uint64_t n = 1; n <= 20; n++) {
		struct wish *w = wish_new(&s, KVT_TIER_WRITE, n, cuts[n % 5]);

		s.tier->ops->submit(s.tier, &w->request);
		ck_assert_int_eq(wish_wait(&s, w), KVT_OK);
		wish_free(w);
		w = wish_new(&s, KVT_TIER_READ, n, cuts[(n + 1) % 5]);
		s.tier->ops->submit(s.tier, &w->request);
		ck_assert_int_eq(wish_wait(&s, w), KVT_OK);
		wish_free(w);
	}
}
END_TEST

START_TEST(comes_back_after_reopen)
{
	for (uint64_t n = 1; n <= 100; n++)
		ck_assert_int_eq(store_put(&s, n), KVT_OK);
	reopen();
	ck_assert_uint_eq(store_stats(&s).chunks, 100);
	for (uint64_t n = 1; n <= 100; n++)
		ck_assert_int_eq(store_get(&s, n), KVT_OK);
	reopen();
	ck_assert_uint_eq(store_stats(&s).chunks, 100);
}
END_TEST

START_TEST(evicts_within_capacity)
{
	for (uint64_t n = 1; n <= 1000; n++)
		ck_assert_int_eq(store_put(&s, n), KVT_OK);
	ck_assert_uint_le(store_stats(&s).used, s.config.nvme_capacity);
	ck_assert_uint_gt(store_stats(&s).evictions, 300);
	ck_assert_int_eq(store_get(&s, 1), KVT_MISS);
	ck_assert_int_eq(store_get(&s, 1000), KVT_OK);
	reopen();
	for (uint64_t n = 1; n <= 1000; n++) {
		enum kvt_status status = store_get(&s, n);

		ck_assert(status == KVT_OK || status == KVT_MISS);
	}
	ck_assert_uint_eq(store_stats(&s).corrupt, 0);
	ck_assert_int_eq(store_get(&s, 1000), KVT_OK);
}
END_TEST

static void limited(uint64_t *evictions, uint64_t *refusals)
{
	s.tier->ops->limited(s.tier, evictions, refusals);
}

/* A tenant at its limit: its own oldest leave, and a chunk that they make no room for counts as refused once, however
 * often it was tried. Others go on. */
START_TEST(a_limited_tenants_chunks_are_counted)
{
	struct kvt_item flood = {.size = sizeof(flood), .tokens = 256, .tenant = {{7}}};
	struct kvt_item other = {.size = sizeof(other), .tokens = 256, .tenant = {{8}}};
	uint64_t evictions, refusals, used = 0;
	struct kvt_tenant_list list;
	struct kvt_key key;

	ck_assert_int_eq(s.tier->ops->limit_tenant(s.tier, &flood.tenant, 8 * NVME_UNIT), KVT_OK);
	ck_assert_int_eq(store_put_item(&s, 1, &other, false), KVT_OK);
	for (uint64_t n = 2; n <= 60; n++)
		ck_assert_int_eq(store_put_item(&s, n, &flood, false), KVT_OK);
	s.tier->ops->tenants(s.tier, 8, &list);
	for (size_t i = 0; i < list.count; i++)
		used += list.at[i].tenant.bytes[0] == 7 ? list.at[i].bytes : 0;
	ck_assert(used > 0 && used <= 8 * NVME_UNIT);
	limited(&evictions, &refusals);
	ck_assert_uint_eq(refusals, 0);
	ck_assert_uint_eq(evictions, store_stats(&s).evictions);
	ck_assert_uint_gt(evictions, 20);
	for (uint64_t n = 2, full = 0; full < 2; n++) { /* nothing of it may leave, until there is no room */
		if (n > 60)
			full += store_put_item(&s, n, &flood, n % 2 == 0) == KVT_FULL;
		key = key_of(n);
		(void)s.tier->ops->pin(s.tier, &key, 1, true);
	}
	ck_assert_int_eq(store_put_item(&s, 1000, &other, false), KVT_OK);
	used = evictions;
	limited(&evictions, &refusals);
	ck_assert_uint_eq(refusals, 2);
	s.tier->ops->tenants(s.tier, 8, &list);
	for (size_t i = 0; i < list.count; i++)
		ck_assert_uint_eq(list.at[i].refused, list.at[i].tenant.bytes[0] == 7 ? 2 : 0);
	ck_assert_uint_eq(evictions, used);
	ck_assert_uint_eq(store_stats(&s).state, KVT_TIER_WORKS);
}
END_TEST

START_TEST(erased_stays_away)
{
	struct kvt_tenant tenant = {{7}};
	size_t erased;

	for (uint64_t n = 1; n <= 20; n++) {
		struct kvt_item item = {.size = sizeof(item), .tokens = 256};

		if (n % 2 == 0)
			item.tenant = tenant;
		ck_assert_int_eq(store_put_item(&s, n, &item, false), KVT_OK);
	}
	ck_assert_int_eq(store_flush(&s), KVT_OK);
	ck_assert_int_eq(store_erase(&s, 1), KVT_OK);
	ck_assert_int_eq(store_get(&s, 1), KVT_MISS);
	ck_assert_int_eq(s.tier->ops->erase_tenant(s.tier, &tenant, &erased), KVT_OK);
	ck_assert_uint_eq(erased, 10);
	reopen();
	ck_assert_uint_eq(store_stats(&s).chunks, 9);
	ck_assert(!store_has(&s, 1));
	ck_assert(store_has(&s, 3));
	ck_assert(!store_has(&s, 2));
	ck_assert_int_eq(store_put(&s, 1), KVT_OK);
	reopen();
	ck_assert_int_eq(store_get(&s, 1), KVT_OK);
	ck_assert_int_eq(s.tier->ops->erase_all(s.tier, &erased), KVT_OK);
	ck_assert_uint_eq(erased, 10);
	ck_assert_int_eq(store_put(&s, 50), KVT_OK);
	reopen();
	ck_assert_uint_eq(store_stats(&s).chunks, 1);
	ck_assert_int_eq(store_get(&s, 50), KVT_OK);
}
END_TEST

START_TEST(an_erase_overtakes_a_queued_write)
{
	struct wish *put = wish_new(&s, KVT_TIER_WRITE, 5, 0);
	struct wish *erase = wish_new(&s, KVT_TIER_ERASE, 5, 0);

	s.tier->ops->submit(s.tier, &put->request);
	s.tier->ops->submit(s.tier, &erase->request);
	ck_assert_int_eq(wish_wait(&s, put), KVT_ECANCELED);
	ck_assert_int_eq(wish_wait(&s, erase), KVT_OK);
	ck_assert(!store_has(&s, 5));
	wish_free(put);
	wish_free(erase);
}
END_TEST

START_TEST(a_flipped_bit_is_a_miss)
{
	char path[512];
	uint8_t byte;
	uint64_t at;
	unsigned wrong = 0;
	int fd;

	for (uint64_t n = 1; n <= 10; n++)
		ck_assert_int_eq(store_put(&s, n), KVT_OK);
	store_path(&s, "data-00000", path, sizeof(path));
	fd = open(path, O_RDWR);
	ck_assert_int_ge(fd, 0);
	for (at = 0; at < 1 << 20; at += 65536) {
		ck_assert_int_eq(pread(fd, &byte, 1, (off_t)at + 600), 1);
		byte ^= 0x10;
		ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)at + 600), 1);
	}
	(void)close(fd);
	for (uint64_t n = 1; n <= 10; n++) {
		enum kvt_status status = store_get(&s, n);

		ck_assert(status == KVT_OK || status == KVT_ECORRUPT);
		wrong += status == KVT_ECORRUPT;
		if (status == KVT_ECORRUPT)
			ck_assert_int_eq(store_get(&s, n), KVT_MISS);
	}
	ck_assert_uint_gt(wrong, 0);
	ck_assert_uint_eq(store_stats(&s).corrupt, wrong);
	ck_assert_uint_eq(store_stats(&s).chunks, 10 - wrong);
}
END_TEST

START_TEST(another_format_is_left_alone)
{
	char path[512];
	uint8_t block[NVME_PAGE], before[NVME_PAGE];
	int fd;

	ck_assert_int_eq(store_put(&s, 1), KVT_OK);
	store_close(&s);
	store_path(&s, "format", path, sizeof(path));
	fd = open(path, O_RDWR);
	ck_assert_int_eq(pread(fd, block, sizeof(block), 0), sizeof(block));
	memcpy(before, block, sizeof(block));
	block[8] = 2;
	ck_assert_int_eq(pwrite(fd, block, sizeof(block), 0), sizeof(block));
	ck_assert_int_eq(store_open(&s), KVT_EFORMAT);
	ck_assert_ptr_nonnull(strstr(s.why, "rm -r"));
	ck_assert_int_eq(pwrite(fd, before, sizeof(before), 0), sizeof(before));
	(void)close(fd);
	ck_assert_int_eq(store_open(&s), KVT_OK);
	ck_assert_int_eq(store_get(&s, 1), KVT_OK);
}
END_TEST

START_TEST(a_store_has_one_owner)
{
	struct store other = s;

	other.tier = NULL;
	other.config.nvme_path = s.folder;
	ck_assert_int_eq(store_open(&other), KVT_ELOCKED);
	ck_assert_ptr_null(other.tier);
}
END_TEST

START_TEST(expired_chunks_leave)
{
	struct kvt_item item = {.size = sizeof(item), .ttl_ns = 60000000000};

	ck_assert_int_eq(store_put_item(&s, 1, &item, false), KVT_OK);
	ck_assert_int_eq(store_put(&s, 2), KVT_OK);
	store_advance(&s, 30000000000);
	reopen();
	ck_assert(store_has(&s, 1));
	store_advance(&s, 31000000000);
	ck_assert(!store_has(&s, 1));
	reopen();
	ck_assert_uint_eq(store_stats(&s).chunks, 1);
}
END_TEST

/* A step of the wall clock ends no chunk early, and keeps none beyond its TTL. */
START_TEST(a_wall_clock_that_is_set)
{
	struct kvt_item item = {.size = sizeof(item), .ttl_ns = 60000000000};
	const int64_t day = 86400000000000;

	ck_assert_int_eq(store_put_item(&s, 1, &item, false), KVT_OK);
	store_advance_wall(&s, 10 * day);
	ck_assert(store_has(&s, 1));
	ck_assert_int_eq(store_put_item(&s, 2, &item, false), KVT_OK);
	store_advance_wall(&s, -20 * day);
	ck_assert(store_has(&s, 2));
	reopen(); /* by a wall clock that is ten days behind the one that the chunks were written by */
	ck_assert(store_has(&s, 1) && store_has(&s, 2));
	store_advance(&s, 61000000000);
	ck_assert(!store_has(&s, 1) && !store_has(&s, 2));
}
END_TEST

START_TEST(a_smaller_capacity_holds)
{
	for (uint64_t n = 1; n <= 300; n++)
		ck_assert_int_eq(store_put(&s, n), KVT_OK);
	store_close(&s);
	s.config.nvme_capacity = 16u << 20;
	ck_assert_int_eq(store_open(&s), KVT_OK);
	ck_assert_uint_le(store_stats(&s).used, s.config.nvme_capacity);
	ck_assert_uint_gt(store_stats(&s).chunks, 20);
	for (uint64_t n = 1; n <= 300; n++)
		ck_assert_int_ne(store_get(&s, n), KVT_ECORRUPT);
	for (uint64_t n = 301; n <= 600; n++)
		ck_assert_int_eq(store_put(&s, n), KVT_OK);
}
END_TEST

START_TEST(chains_come_back)
{
	struct kvt_tier_known known;
	struct kvt_key parent, key;

	for (unsigned round = 0; round < 3; round++) {
		for (uint64_t n = 1; n <= 30 && round == 0; n++) {
			struct kvt_item item = {
				.size = sizeof(item), .tokens = 17, .ttl_ns = 3600000000000};

			parent = key_of(n - 1);
			item.parent = n == 1 ? NULL : &parent;
			ck_assert_int_eq(store_put_item(&s, n, &item, false), KVT_OK);
		}
		for (uint64_t n = 1; n <= 30; n++) {
			key = key_of(n);
			parent = key_of(n - 1);
			ck_assert_int_eq(s.tier->ops->known(s.tier, &key, &known), KVT_OK);
			ck_assert_uint_eq(known.bytes, bytes_of(n));
			ck_assert_uint_eq(known.tokens, 17);
			ck_assert_uint_eq(known.ttl_ns, 3600000000000);
			ck_assert(known.has_parent == (n > 1));
			if (n > 1)
				ck_assert_mem_eq(&known.parent, &parent, sizeof(parent));
		}
		reopen();
	}
}
END_TEST

/* A chunk whose parent did not come, or found no room, has no use here. */
START_TEST(a_chunk_without_its_parent_is_refused)
{
	struct kvt_key parent = key_of(1);
	struct kvt_item item = {.size = sizeof(item), .parent = &parent};
	struct wish *first = wish_new(&s, KVT_TIER_WRITE, 1, 0), *second;

	for (int i = 0; i < 2; i++) {
		if (i == 1) /* is being written when its child comes */
			s.tier->ops->submit(s.tier, &first->request);
		second = wish_new(&s, KVT_TIER_WRITE, 2, 0);
		second->request.item = &item;
		second->request.chained = true;
		s.tier->ops->submit(s.tier, &second->request);
		ck_assert_int_eq(wish_wait(&s, second), i == 0 ? KVT_MISS : KVT_OK);
		wish_free(second);
	}
	ck_assert_int_eq(wish_wait(&s, first), KVT_OK);
	wish_free(first);
	ck_assert(store_has(&s, 1) && store_has(&s, 2));
}
END_TEST

START_TEST(names_come_back)
{
	uint8_t hashes[2 * 32] = {1, 2, 3};
	uint8_t parent[32] = {9};
	uint32_t tokens[32];
	struct kvt_blocks blocks = {
		.hashes = hashes,
		.hash_bytes = 32,
		.count = 2,
		.parent = parent,
		.tokens = tokens,
		.block_size = 16,
		.lora_name = "adapter",
		.lmcache_hash = UINT64_C(0xec0a2f7a4dce7240),
		.has_lmcache_hash = 1,
	};
	struct kvt_item item = {.size = sizeof(item), .blocks = &blocks};
	struct wish *w;

	for (unsigned i = 0; i < 32; i++)
		tokens[i] = i * 1000;
	ck_assert_int_eq(store_put_item(&s, 1, &item, true), KVT_OK);
	ck_assert_uint_eq(s.stored, 1);
	ck_assert_uint_eq(s.lmcache_hash, blocks.lmcache_hash);
	s.lmcache_hash = 0;
	ck_assert_uint_gt(store_stats(&s).name_bytes, 64);
	w = wish_new(&s, KVT_TIER_READ, 1, 0);
	s.tier->ops->submit(s.tier, &w->request);
	ck_assert_int_eq(wish_wait(&s, w), KVT_OK);
	ck_assert(w->had_names);
	wish_free(w);
	s.no_room = true;
	reopen();
	for (unsigned i = 0; i < 100; i++)
		store_step(&s, 1);
	ck_assert_uint_eq(s.stored, 1); /* as long as the queue has no room */
	s.no_room = false;
	for (unsigned i = 0; i < 1000 && s.stored < 2; i++)
		store_step(&s, 100);
	ck_assert_uint_eq(s.stored, 2);
	ck_assert_uint_eq(s.lmcache_hash, blocks.lmcache_hash);
	ck_assert_int_eq(store_erase(&s, 1), KVT_OK);
	store_step(&s, 10);
	ck_assert_uint_eq(s.removed, 1);
	ck_assert_uint_eq(store_stats(&s).name_bytes, 0);
}
END_TEST

/* Noticed after a second; from then on nothing of it is read, written or promised. */
START_TEST(a_folder_that_vanished)
{
	for (uint64_t n = 1; n <= 20; n++)
		ck_assert_int_eq(store_put(&s, n), KVT_OK);
	remove_tree(s.folder);
	store_advance(&s, 2000000000);
	for (int i = 0; i < 1000 && !s.tier->ops->lost(s.tier); i++)
		store_step(&s, 1);
	ck_assert(s.tier->ops->lost(s.tier));
	ck_assert_int_eq(store_put(&s, 30), KVT_MISS);
	ck_assert_int_eq(store_get(&s, 1), KVT_MISS);
	ck_assert_int_eq(store_erase(&s, 1), KVT_OK);
	ck_assert_int_eq(store_flush(&s), KVT_ECANCELED);
	ck_assert_uint_eq(store_stats(&s).chunks, 0);
	ck_assert_uint_eq(store_stats(&s).state, KVT_TIER_BROKEN);
	store_close(&s);
	ck_assert_int_eq(store_open(&s), KVT_OK); /* made again, empty */
	ck_assert_uint_eq(store_stats(&s).chunks, 0);
	ck_assert_int_eq(store_put(&s, 1), KVT_OK);
	ck_assert_int_eq(store_get(&s, 1), KVT_OK);
}
END_TEST

/* A file system of 12 MiB in a namespace of this process's own. false: not allowed here. */
static bool mount_small(const char *folder)
{
	return unshare(CLONE_NEWNS) == 0 &&
	       mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("tmpfs", folder, "tmpfs", 0, "size=12m") == 0;
}

START_TEST(a_full_file_system)
{
	char path[512];
	unsigned found = 0;
	uint64_t used;
	FILE *other;

	store_close(&s);
	if (!mount_small(s.folder))
		return; /* only root may; the disk in memory of faults_test has the same */
	(void)snprintf(path, sizeof(path), "%s/other", s.folder);
	other = fopen(path, "w");
	ck_assert_ptr_nonnull(other);
	for (unsigned i = 0; i < 3u << 20; i++)
		ck_assert_int_ne(fputc(1, other), EOF);
	ck_assert_int_eq(fclose(other), 0);
	ck_assert_int_eq(store_open(&s), KVT_OK); /* may have 64 MiB, finds 9 */
	for (uint64_t n = 1; n <= 300; n++) {
		ck_assert_int_eq(store_put(&s, n), KVT_OK);
		found += store_get(&s, n) == KVT_OK;
	}
	ck_assert_uint_eq(found, 300);
	ck_assert_uint_gt(store_stats(&s).evictions, 100);
	ck_assert_uint_le(store_stats(&s).used, 9u << 20);
	used = store_stats(&s).used;
	ck_assert_int_eq(unlink(path), 0); /* room again: after a while it takes it */
	store_advance(&s, 60000000000);
	for (uint64_t n = 301; n <= 400; n++)
		ck_assert_int_eq(store_put(&s, n), KVT_OK);
	ck_assert_uint_gt(store_stats(&s).used, used + (1u << 20));
	reopen();
	ck_assert_int_eq(store_get(&s, 400), KVT_OK);
	store_close(&s);
	(void)umount(s.folder);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("store");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, put_then_get);
	tcase_add_test(tc, segments_need_not_be_aligned);
	tcase_add_test(tc, comes_back_after_reopen);
	tcase_add_test(tc, evicts_within_capacity);
	tcase_add_test(tc, a_limited_tenants_chunks_are_counted);
	tcase_add_test(tc, erased_stays_away);
	tcase_add_test(tc, an_erase_overtakes_a_queued_write);
	tcase_add_test(tc, a_flipped_bit_is_a_miss);
	tcase_add_test(tc, another_format_is_left_alone);
	tcase_add_test(tc, a_store_has_one_owner);
	tcase_add_test(tc, expired_chunks_leave);
	tcase_add_test(tc, a_wall_clock_that_is_set);
	tcase_add_test(tc, a_smaller_capacity_holds);
	tcase_add_test(tc, chains_come_back);
	tcase_add_test(tc, a_chunk_without_its_parent_is_refused);
	tcase_add_test(tc, names_come_back);
	tcase_add_test(tc, a_folder_that_vanished);
	tcase_add_test(tc, a_full_file_system);
	return run_tcase("cache-tiers-store", tc);
}
