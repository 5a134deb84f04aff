/*
 * share_test.c - stores of several processes on one disk: their parts, together never more than there is.
 */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/folder.h"
#include "store.h"
#include "tiers/nvme/nvme.h"
#include "tests/unit/suite.h"

#define GIB    ((uint64_t)1 << 30)
#define MIB    ((uint64_t)1 << 20)
#define LOOK_NS 3000000000 /* more than lies between two looks */

/* --- the sums ---------------------------------------------------------------------------------- */

static char path[] = "/tmp/kvt-share-XXXXXX";

static void make_path(void)
{
	strcpy(path + strlen(path) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(path));
}

static void remove_path(void)
{
	char line[128];

	snprintf(line, sizeof(line), "rm -r '%s'", path);
	ck_assert_int_eq(system(line), 0);
}

/* A store of `mib` MiB of files, made for this test. Returns its lock. */
static int make_store(char engine, unsigned rank, unsigned mib)
{
	char folder[200], file[220], name[65];
	int fd, at, error, lock;
	int64_t owner;

	memset(name, engine, 64);
	name[64] = '\0';
	snprintf(folder, sizeof(folder), "%s/%s/%u", path, name, rank);
	at = kvt_folder_open(folder);
	ck_assert_int_ge(at, 0);
	lock = kvt_folder_lock(at, "lock", &owner, &error);
	snprintf(file, sizeof(file), "%s/data-00000", folder);
	fd = open(file, O_RDWR | O_CREAT, 0600);
	if (mib > 0)
		ck_assert_int_eq(posix_fallocate(fd, 0, (off_t)mib << 20), 0);
	close(fd);
	close(at);
	return lock;
}

/* The part of rank 0 of engine 'a', on a disk of 1000 MiB with so much free. */
static struct kvt_nvme_share share_of(uint32_t ranks, uint64_t free_mib)
{
	struct kvt_machine m = {.disk_total = 1000 * MIB,
		.disk_free = free_mib * MIB,
		.disk_ours = kvt_folder_bytes(path)};
	char folder[200], name[65], why[KVT_REASON_BYTES];
	struct kvt_nvme_share share;

	memset(name, 'a', 64);
	name[64] = '\0';
	snprintf(folder, sizeof(folder), "%s/%s/0", path, name);
	kvt_nvme_share(&m, path, folder, ranks, &share, why);
	ck_assert(why[0] != '\0');
	return share;
}

START_TEST(ranks_and_engines_have_equal_parts)
{
	int locks[3];

	ck_assert_uint_eq(share_of(1, 500).part, 400 * MIB);
	ck_assert_uint_eq(share_of(4, 500).part, 100 * MIB); /* of which none is open yet */
	locks[0] = make_store('a', 1, 0); /* another rank */
	ck_assert_uint_eq(share_of(4, 500).part, 100 * MIB);
	ck_assert_uint_eq(share_of(1, 500).stores, 2); /* a replica that was not known of */
	locks[1] = make_store('b', 0, 0); /* another engine */
	ck_assert_uint_eq(share_of(4, 500).stores, 5);
	locks[2] = make_store('b', 1, 1);
	ck_assert_uint_eq(share_of(1, 500).stores, 4);
	for (int i = 1; i < 3; i++)
		kvt_folder_unlock(locks[i]);
	ck_assert_uint_eq(share_of(4, 500).part / MIB, 100); /* its files are left, and are of what is divided */
	kvt_folder_unlock(locks[0]);
}
END_TEST

/* One that was there first has more than its part: the rest is for those that came later. */
START_TEST(files_beyond_a_part_are_not_shared)
{
	int first = make_store('b', 0, 40), second = make_store('c', 0, 0);
	struct kvt_nvme_share share = share_of(1, 60);

	ck_assert_uint_eq(share.stores, 3);
	ck_assert_uint_le(share.part, (60 - 50) * MIB); /* what the disk has free but for its twentieth */
	share = share_of(1, 75);
	ck_assert_uint_eq(share.part / MIB, (75 - 50) / 2); /* less than a third of the whole, 21.7 */
	kvt_folder_unlock(first);
	kvt_folder_unlock(second);
}
END_TEST

/* --- stores ------------------------------------------------------------------------------------ */

static struct store s;

static void setup(void)
{
	store_init(&s);
}

static void teardown(void)
{
	store_finish(&s);
}

static uint64_t later(struct store *of)
{
	store_advance(of, LOOK_NS);
	store_step(of, 2);
	return store_stats(of).capacity;
}

START_TEST(another_engine_comes_and_goes)
{
	struct store other;
	uint64_t alone, whole;

	s.config.nvme_capacity = 0;
	ck_assert_int_eq(store_open(&s), KVT_OK);
	alone = store_stats(&s).capacity;
	whole = ((struct nvme *)s.tier)->share.whole;
	store_copy(&other, &s);
	other.config.fingerprint.bytes[0] ^= 1;
	ck_assert_int_eq(store_open(&other), KVT_OK);
	ck_assert_uint_le(store_stats(&other).capacity, whole / 2 + GIB);
	ck_assert_uint_le(later(&s), whole / 2 + GIB);
	ck_assert_int_eq(store_put(&s, 1), KVT_OK);
	ck_assert_int_eq(store_get(&s, 1), KVT_OK);
	store_close(&other);
	ck_assert_uint_eq(later(&s), alone);
}
END_TEST

/* A store whose part became less goes on within it, evicts, and keeps to it after it was opened again. */
START_TEST(no_file_beyond_the_part)
{
	struct nvme *t;
	uint64_t part;

	ck_assert_int_eq(store_open(&s), KVT_OK);
	t = (struct nvme *)s.tier;
	t->share = (struct kvt_nvme_share){.stores = 2, .part = 3 * t->format.file_bytes};
	t->share_ns = INT64_MAX;
	part = t->share.part;
	nvme_space_allow(t);
	for (uint64_t n = 1; n <= 400; n++)
		ck_assert_int_eq(store_put(&s, n), KVT_OK);
	ck_assert_uint_gt(store_stats(&s).evictions, 0);
	ck_assert_uint_eq(store_stats(&s).capacity, part);
	ck_assert_uint_eq(t->space.file_count, 3);
	ck_assert_int_eq(store_get(&s, 400), KVT_OK);
	t->share.part = t->format.file_bytes; /* less than it has: files in use stay */
	nvme_space_allow(t);
	ck_assert_uint_eq(store_stats(&s).capacity, part);
	ck_assert_int_eq(store_get(&s, 400), KVT_OK);
	t->share.stores = 1;
	nvme_space_allow(t);
	ck_assert_uint_eq(store_stats(&s).capacity, s.config.nvme_capacity);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("nvme-share");
	TCase *sums = tcase_create("sums"), *stores = tcase_create("stores");

	tcase_add_checked_fixture(sums, make_path, remove_path);
	tcase_add_test(sums, ranks_and_engines_have_equal_parts);
	tcase_add_test(sums, files_beyond_a_part_are_not_shared);
	tcase_add_checked_fixture(stores, setup, teardown);
	tcase_add_test(stores, another_engine_comes_and_goes);
	tcase_add_test(stores, no_file_beyond_the_part);
	suite_add_tcase(suite, sums);
	suite_add_tcase(suite, stores);
	return run_suite(suite);
}
