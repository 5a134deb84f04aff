/*
 * objects_test.c - puts and leases, one at a time: what is stored, replaced, the same, refused; what
 * a lease keeps and when it ends.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bed.h"
#include "tests/unit/suite.h"

static struct bed bed;

static void begin(uint64_t bytes)
{
	bed_init(&bed, bytes);
	bed_open(&bed);
	bed_attach(&bed);
}

static void finish(void)
{
	bed_close(&bed);
	bed_clear(&bed);
}

START_TEST(what_was_put_is_leased)
{
	struct kvt_objects_stats stats;
	enum kvt_put_outcome outcome;
	struct lease l;

	begin(8 * MIB);
	ck_assert_int_eq(lease(&bed, "b", "k", SECOND, SECOND, &l), KVT_MISS);
	ck_assert_int_eq(put(&bed, "b", "k", 1, 100000, &outcome), KVT_OK);
	ck_assert_int_eq(outcome, KVT_PUT_STORED);
	ck_assert_int_eq(lease(&bed, "b", "k", SECOND, SECOND, &l), KVT_OK);
	ck_assert_uint_eq(l.bytes, 100000);
	ck_assert(reads(&bed, &l, 1));
	ck_assert_uint_eq(strlen(l.id), 32);
	ck_assert_uint_eq(strspn(l.id, "0123456789abcdef"), 32);
	ck_assert_int_eq(lease(&bed, "c", "k", SECOND, SECOND, &(struct lease){0}), KVT_MISS);
	ck_assert_int_eq(lease(&bed, "bk", "", SECOND, SECOND, &(struct lease){0}), KVT_EINVAL);
	ck_assert_int_eq(lease(&bed, "b", "kk", SECOND, SECOND, &(struct lease){0}), KVT_MISS);
	stats = stats_of(&bed);
	ck_assert_uint_eq(stats.leases_now, 1);
	ck_assert_int_eq(release(&bed, &l), KVT_OK);
	ck_assert_int_eq(release(&bed, &l), KVT_MISS); /* once */
	ck_assert_int_eq(kvt_object_release(bed.objects, KVW_SLICE("nonsense")), KVT_MISS);
	stats = stats_of(&bed);
	ck_assert_uint_eq(stats.leases_now, 0);
	ck_assert_uint_eq(stats.puts, 1);
	ck_assert_uint_eq(stats.stored, 1);
	ck_assert_uint_eq(stats.lease_hits, 1);
	ck_assert_uint_eq(stats.lease_misses, 3);
	ck_assert_uint_eq(stats.releases, 1);
	ck_assert_uint_eq(stats.puts_now, 0);
	finish();
}
END_TEST

START_TEST(equal_bytes_are_the_same_and_others_replace)
{
	enum kvt_put_outcome outcome;
	struct lease old, new;

	begin(8 * MIB);
	ck_assert_int_eq(put(&bed, "b", "k", 1, 200000, NULL), KVT_OK);
	ck_assert_int_eq(put(&bed, "b", "k", 1, 200000, &outcome), KVT_OK);
	ck_assert_int_eq(outcome, KVT_PUT_SAME);
	ck_assert_int_eq(lease(&bed, "b", "k", 0, SECOND, &old), KVT_OK);
	ck_assert_int_eq(put(&bed, "b", "k", 2, 200000, &outcome), KVT_OK);
	ck_assert_int_eq(outcome, KVT_PUT_REPLACED);
	ck_assert_int_eq(lease(&bed, "b", "k", 0, SECOND, &new), KVT_OK);
	ck_assert(reads(&bed, &old, 1)); /* until its lease ends */
	ck_assert(reads(&bed, &new, 2));
	ck_assert_int_eq(put(&bed, "b", "k", 2, 199999, &outcome), KVT_OK); /* a beginning of it */
	ck_assert_int_eq(outcome, KVT_PUT_REPLACED);
	ck_assert_int_eq(get(&bed, "b", "k", 2), KVT_OK);
	ck_assert(reads(&bed, &old, 1) && reads(&bed, &new, 2));
	ck_assert_int_eq(release(&bed, &old), KVT_OK);
	ck_assert_int_eq(release(&bed, &new), KVT_OK);
	finish();
}
END_TEST

/* What stock LMCache does to find out whether its remote works again. */
START_TEST(a_fixed_key_with_other_bytes_each_time)
{
	begin(4 * MIB);
	for (uint64_t i = 0; i < 300; i++) {
		ck_assert_int_eq(put(&bed, "lmcache", "test@1@0@0@float16", i, 4096, NULL), KVT_OK);
		ck_assert_int_eq(get(&bed, "lmcache", "test@1@0@0@float16", i), KVT_OK);
	}
	ck_assert_uint_eq(stats_of(&bed).replaced, 299);
	finish();
}
END_TEST

START_TEST(a_half_filled_put_is_never_seen)
{
	struct kvt_object_put *p;
	struct kvt_stats cache = {.size = sizeof(cache)};
	struct kvt_checksum sum;

	begin(4 * MIB);
	ck_assert_int_eq(put_begin(&bed, "b", "k", 1, MIB, &p, &sum), KVT_OK);
	ck_assert_int_eq(get(&bed, "b", "k", 1), KVT_MISS);
	kvt_object_put_abort(bed.objects, p);
	ck_assert_int_eq(get(&bed, "b", "k", 1), KVT_MISS);
	ck_assert_int_eq(put(&bed, "b", "k", 2, MIB, NULL), KVT_OK);
	ck_assert_int_eq(put_begin(&bed, "b", "k", 3, MIB, &p, &sum), KVT_OK);
	ck_assert_int_eq(get(&bed, "b", "k", 2), KVT_OK);
	kvt_object_put_abort(bed.objects, p);
	ck_assert_int_eq(get(&bed, "b", "k", 2), KVT_OK);
	ck_assert_uint_eq(stats_of(&bed).put_aborted, 2);
	ck_assert_int_eq(kvt_stats(kvt_objects_cache(bed.objects), &cache), KVT_OK);
	ck_assert_uint_eq(cache.tiers[KVT_TIER_L1].used, MIB); /* room is given back */
	finish();
}
END_TEST

START_TEST(the_write_that_ends_last_wins)
{
	struct kvt_object_put *first, *second;
	struct kvt_checksum one, two;
	enum kvt_put_outcome outcome;

	begin(8 * MIB);
	ck_assert_int_eq(put_begin(&bed, "b", "k", 1, MIB, &first, &one), KVT_OK);
	ck_assert_int_eq(put_begin(&bed, "b", "k", 2, MIB, &second, &two), KVT_OK);
	ck_assert_int_eq(kvt_object_put_end(bed.objects, second, &two, true, &outcome), KVT_OK);
	ck_assert_int_eq(get(&bed, "b", "k", 2), KVT_OK);
	ck_assert_int_eq(kvt_object_put_end(bed.objects, first, &one, true, &outcome), KVT_OK);
	ck_assert_int_eq(outcome, KVT_PUT_REPLACED);
	ck_assert_int_eq(get(&bed, "b", "k", 1), KVT_OK);
	finish();
}
END_TEST

START_TEST(the_write_that_ends_last_wins_also_over_what_was_evicted)
{
	struct kvt_object_put *first, *second;
	struct kvt_checksum one, two;
	enum kvt_put_outcome outcome;
	char key[16];

	begin(8 * MIB);
	ck_assert_int_eq(put_begin(&bed, "b", "k", 1, MIB, &first, &one), KVT_OK);
	ck_assert_int_eq(put_begin(&bed, "b", "k", 2, MIB, &second, &two), KVT_OK);
	ck_assert_int_eq(kvt_object_put_end(bed.objects, second, &two, true, &outcome), KVT_OK);
	for (uint64_t i = 0; i < 20; i++) {
		snprintf(key, sizeof(key), "k%d", (int)i);
		ck_assert_int_eq(put(&bed, "b", key, i, MIB, NULL), KVT_OK);
	}
	ck_assert_int_eq(get(&bed, "b", "k", 2), KVT_MISS);
	ck_assert_int_eq(kvt_object_put_end(bed.objects, first, &one, true, &outcome), KVT_OK);
	ck_assert_int_eq(outcome, KVT_PUT_STORED);
	ck_assert_int_eq(get(&bed, "b", "k", 1), KVT_OK);
	finish();
}
END_TEST

/* The same bytes once more, where a client has written into those that lie there. */
START_TEST(what_a_client_changed_is_replaced_by_a_put)
{
	enum kvt_put_outcome outcome;
	struct lease l;
	char path[128], right, wrong;
	int fd;

	begin(8 * MIB);
	ck_assert_int_eq(put(&bed, "b", "k", 1, MIB, NULL), KVT_OK);
	ck_assert_int_eq(lease(&bed, "b", "k", 0, SECOND, &l), KVT_OK);
	ck_assert_int_eq(release(&bed, &l), KVT_OK);
	snprintf(path, sizeof(path), "/dev/shm/%s", bed.name);
	fd = open(path, O_RDWR);
	right = (char)bed.view[l.fragments[0].arena_offset + 99];
	wrong = (char)(right ^ 1);
	ck_assert_int_eq(pwrite(fd, &wrong, 1, (off_t)l.fragments[0].arena_offset + 99), 1);
	close(fd);
	ck_assert_int_eq(put(&bed, "b", "k", 1, MIB, &outcome), KVT_OK);
	ck_assert_int_eq(outcome, KVT_PUT_REPLACED);
	ck_assert_int_eq(get(&bed, "b", "k", 1), KVT_OK);
	finish();
}
END_TEST

START_TEST(an_erase_concerns_what_was_there_before)
{
	struct kvt_object_name name = name_of("b", "k");
	struct kvt_object_put *p;
	struct kvt_checksum sum;
	enum kvt_put_outcome outcome;
	struct lease l;
	size_t erased;

	begin(8 * MIB);
	ck_assert_int_eq(kvt_object_erase(bed.objects, &name), KVT_MISS);
	ck_assert_int_eq(put(&bed, "b", "k", 1, MIB, NULL), KVT_OK);
	ck_assert_int_eq(lease(&bed, "b", "k", 0, SECOND, &l), KVT_OK);
	ck_assert_int_eq(kvt_object_erase(bed.objects, &name), KVT_OK);
	ck_assert_int_eq(get(&bed, "b", "k", 1), KVT_MISS);
	ck_assert(reads(&bed, &l, 1));
	ck_assert_int_eq(release(&bed, &l), KVT_OK);
	ck_assert_int_eq(put_begin(&bed, "b", "k", 2, MIB, &p, &sum), KVT_OK);
	(void)!kvt_object_erase(bed.objects, &name);
	ck_assert_int_eq(kvt_object_put_end(bed.objects, p, &sum, true, &outcome), KVT_OK);
	ck_assert_int_eq(get(&bed, "b", "k", 2), KVT_OK);
	ck_assert_int_eq(put_begin(&bed, "b", "other", 3, MIB, &p, &sum), KVT_OK);
	ck_assert_int_eq(put(&bed, "c", "k", 4, MIB, NULL), KVT_OK);
	ck_assert_int_eq(kvt_bucket_erase(bed.objects, KVW_SLICE("b"), NULL, &erased), KVT_OK);
	ck_assert_uint_ge(erased, 1);
	ck_assert_int_eq(get(&bed, "b", "k", 2), KVT_MISS);
	ck_assert_int_eq(get(&bed, "c", "k", 4), KVT_OK);
	ck_assert_int_eq(kvt_object_put_end(bed.objects, p, &sum, true, &outcome), KVT_OK);
	ck_assert_int_eq(get(&bed, "b", "other", 3), KVT_OK);
	finish();
}
END_TEST

START_TEST(bytes_that_a_client_changed_are_not_leased)
{
	struct lease l;
	char path[128], wrong = 'x';
	int fd;

	begin(4 * MIB);
	ck_assert_int_eq(put(&bed, "b", "k", 1, MIB, NULL), KVT_OK);
	ck_assert_int_eq(lease(&bed, "b", "k", 0, SECOND, &l), KVT_OK);
	ck_assert_int_eq(release(&bed, &l), KVT_OK);
	snprintf(path, sizeof(path), "/dev/shm/%s", bed.name);
	fd = open(path, O_RDWR);
	wrong ^= (char)bed.view[l.fragments[0].arena_offset + 4711];
	ck_assert_int_eq(pwrite(fd, &wrong, 1, (off_t)l.fragments[0].arena_offset + 4711), 1);
	close(fd);
	ck_assert_int_eq(lease(&bed, "b", "k", SECOND, SECOND, &l), KVT_MISS);
	ck_assert_uint_eq(stats_of(&bed).corrupt, 1);
	ck_assert_int_eq(put(&bed, "b", "k", 1, MIB, NULL), KVT_OK);
	ck_assert_int_eq(get(&bed, "b", "k", 1), KVT_OK);
	finish();
}
END_TEST

START_TEST(leases_end_by_time_and_not_before)
{
	struct kvt_objects_stats stats;
	struct lease l;

	bed_init(&bed, 4 * MIB);
	bed.options.lease_ttl_max_ns = SECOND / 5; /* longer ones are cut to it */
	bed.options.lease_grace_ns = SECOND / 10;
	bed_open(&bed);
	bed_attach(&bed);
	ck_assert_int_eq(put(&bed, "b", "k", 1, MIB, NULL), KVT_OK);
	ck_assert_int_eq(lease(&bed, "b", "k", 0, 3600 * SECOND, &l), KVT_OK);
	do {
		usleep(1000);
		ck_assert(reads(&bed, &l, 1));
		stats = stats_of(&bed);
		ck_assert_uint_le(stats.expired + stats.leases_now, 1);
		if (stats.leases_now != 0 && stats.oldest_lease_ns < SECOND * 3 / 10)
			ck_assert_uint_eq(stats.expired, 0);
	} while (stats.expired == 0);
	ck_assert_int_eq(release(&bed, &l), KVT_MISS);
	finish();
}
END_TEST

START_TEST(a_leased_object_keeps_its_place)
{
	struct lease l;
	char key[32];

	begin(4 * MIB);
	ck_assert_int_eq(put(&bed, "b", "kept", 77, MIB, NULL), KVT_OK);
	ck_assert_int_eq(lease(&bed, "b", "kept", 0, 30 * SECOND, &l), KVT_OK);
	for (uint64_t i = 0; i < 40; i++) { /* ten times the segment */
		snprintf(key, sizeof(key), "k%d", (int)i);
		ck_assert_int_eq(put(&bed, "b", key, i, MIB, NULL), KVT_OK);
		ck_assert(reads(&bed, &l, 77));
	}
	ck_assert_int_eq(put(&bed, "b", "kept", 78, MIB, NULL), KVT_OK);
	for (uint64_t i = 0; i < 40; i++) {
		snprintf(key, sizeof(key), "k%d", (int)i);
		ck_assert_int_eq(put(&bed, "b", key, i + 1, MIB, NULL), KVT_OK);
		ck_assert(reads(&bed, &l, 77));
	}
	ck_assert_int_eq(release(&bed, &l), KVT_OK);
	finish();
}
END_TEST

START_TEST(leases_and_puts_are_bounded)
{
	struct kvt_object_put *puts[8], *one_more;
	struct lease leases[64], more;
	struct kvt_checksum sum;

	begin(8 * MIB);
	ck_assert_int_eq(put(&bed, "b", "k", 1, 1000, NULL), KVT_OK);
	for (int i = 0; i < 64; i++)
		ck_assert_int_eq(lease(&bed, "b", "k", 0, 10 * SECOND, &leases[i]), KVT_OK);
	ck_assert_int_eq(lease(&bed, "b", "k", 0, 10 * SECOND, &more), KVT_BUSY);
	ck_assert_int_eq(release(&bed, &leases[17]), KVT_OK);
	ck_assert_int_eq(lease(&bed, "b", "k", 0, 10 * SECOND, &leases[17]), KVT_OK);
	for (int i = 0; i < 64; i++) {
		for (int j = 0; j < i; j++)
			ck_assert_str_ne(leases[i].id, leases[j].id);
		ck_assert_int_eq(release(&bed, &leases[i]), KVT_OK);
	}
	/* half of the segment may be half-filled */
	ck_assert_int_eq(put_begin(&bed, "b", "1", 1, MIB, &puts[0], &sum), KVT_OK);
	ck_assert_int_eq(put_begin(&bed, "b", "2", 1, 3 * MIB, &puts[1], &sum), KVT_OK);
	ck_assert_int_eq(put_begin(&bed, "b", "3", 1, MIB, &one_more, &sum), KVT_BUSY);
	kvt_object_put_abort(bed.objects, puts[1]);
	ck_assert_int_eq(put_begin(&bed, "b", "3", 1, MIB, &puts[1], &sum), KVT_OK);
	kvt_object_put_abort(bed.objects, puts[1]);
	kvt_object_put_abort(bed.objects, puts[0]);
	ck_assert_int_eq(put(&bed, "b", "k", 1, 0, NULL), KVT_EINVAL);
	ck_assert_int_eq(put(&bed, "b", "k", 1, 8 * MIB + 1, NULL), KVT_EINVAL);
	ck_assert_int_eq(put(&bed, "", "k", 1, 10, NULL), KVT_EINVAL);
	finish();
}
END_TEST

/* What a list showed. */
struct shown {
	char keys[64][16];
	uint64_t bytes[64];
	uint32_t tiers[64], leases[64];
	size_t count;
};

static void show(void *user, const struct kvt_object_entry *entry)
{
	struct shown *s = user;

	ck_assert_uint_lt(s->count, 64);
	ck_assert_str_eq(entry->bucket, "b");
	snprintf(s->keys[s->count], sizeof(s->keys[0]), "%s", entry->key);
	s->bytes[s->count] = entry->bytes;
	s->tiers[s->count] = entry->tier;
	s->leases[s->count++] = entry->leases;
}

static void show_bucket(void *user, const struct kvt_bucket_entry *entry)
{
	struct shown *s = user;

	snprintf(s->keys[s->count], sizeof(s->keys[0]), "%s", entry->bucket);
	s->bytes[s->count++] = entry->bytes;
}

START_TEST(objects_are_listed_in_order_and_in_pages)
{
	struct kvt_object_name name = name_of("b", "k003");
	struct shown s = {.count = 0};
	struct lease l[2];
	bool more;
	char key[16];

	begin(8 * MIB);
	for (uint64_t i = 0; i < 10; i++) {
		snprintf(key, sizeof(key), "k%03d", (int)(i * 7 % 10));
		ck_assert_int_eq(put(&bed, "b", key, i, 1000 + i * 7 % 10, NULL), KVT_OK);
	}
	ck_assert_int_eq(put(&bed, "c", "k", 1, 50, NULL), KVT_OK);
	ck_assert_int_eq(kvt_object_erase(bed.objects, &name), KVT_OK);
	ck_assert_int_eq(lease(&bed, "b", "k004", 0, SECOND, &l[0]), KVT_OK);
	ck_assert_int_eq(lease(&bed, "b", "k004", 0, SECOND, &l[1]), KVT_OK);
	ck_assert_uint_eq(
		kvt_objects_list(bed.objects, KVW_SLICE("b"), KVW_SLICE(""), 4, show, &s, &more),
		4);
	ck_assert(more);
	ck_assert_str_eq(s.keys[3], "k004");
	ck_assert_uint_eq(s.leases[3], 2);
	ck_assert_uint_eq(s.leases[0], 0);
	ck_assert_uint_eq(s.bytes[2], 1002);
	ck_assert_uint_eq(s.tiers[2], KVT_TIER_L1);
	ck_assert_uint_eq(kvt_objects_list(bed.objects, KVW_SLICE("b"), KVW_SLICE("k004"), 5, show,
				  &s, &more),
		5);
	ck_assert(!more);
	ck_assert_str_eq(s.keys[4], "k005");
	ck_assert_str_eq(s.keys[8], "k009");
	ck_assert_uint_eq(
		kvt_objects_list(bed.objects, KVW_SLICE("x"), KVW_SLICE(""), 5, show, &s, &more),
		0);
	s.count = 0;
	ck_assert_uint_eq(kvt_buckets_list(bed.objects, show_bucket, &s), 2);
	ck_assert_str_eq(s.keys[1], "c");
	ck_assert_uint_eq(s.bytes[1], 50);
	ck_assert_uint_eq(stats_of(&bed).objects, 10);
	ck_assert_uint_eq(stats_of(&bed).buckets, 2);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(release(&bed, &l[i]), KVT_OK);
	finish();
}
END_TEST

START_TEST(what_was_evicted_is_not_listed_and_forgotten)
{
	struct shown s = {.count = 0};
	char key[16];
	bool more;

	begin(4 * MIB);
	for (uint64_t i = 0; i < 30; i++) {
		snprintf(key, sizeof(key), "k%03d", (int)i);
		ck_assert_int_eq(put(&bed, "b", key, i, MIB / 2, NULL), KVT_OK);
	}
	(void)kvt_objects_list(bed.objects, KVW_SLICE("b"), KVW_SLICE(""), 60, show, &s, &more);
	ck_assert_uint_ge(s.count, 4);
	ck_assert_uint_le(s.count, 8);
	ck_assert_str_eq(s.keys[s.count - 1], "k029");
	ck_assert_uint_eq(stats_of(&bed).objects, s.count);
	finish();
}
END_TEST

START_TEST(a_bucket_has_its_quota)
{
	static const struct kvt_bucket_limit limits[] = {{"small", 2 * MIB, 0}};
	char key[32];
	int left = 0;

	bed_init(&bed, 16 * MIB);
	bed.options.limits = limits;
	bed.options.limit_count = 1;
	bed_open(&bed);
	bed_attach(&bed);
	ck_assert_int_eq(put(&bed, "large", "k", 5, 4 * MIB, NULL), KVT_OK);
	for (uint64_t i = 0; i < 6; i++) {
		snprintf(key, sizeof(key), "k%d", (int)i);
		ck_assert_int_eq(put(&bed, "small", key, i, MIB, NULL), KVT_OK);
	}
	for (uint64_t i = 0; i < 6; i++) {
		snprintf(key, sizeof(key), "k%d", (int)i);
		left += get(&bed, "small", key, i) == KVT_OK;
	}
	ck_assert_int_eq(left, 2);
	ck_assert_int_eq(put(&bed, "small", "k", 1, 3 * MIB, NULL), KVT_FULL);
	for (uint64_t i = 0; i < 4; i++) /* one as large as the quota can be replaced */
		ck_assert_int_eq(put(&bed, "small", "whole", i, 2 * MIB, NULL), KVT_OK);
	ck_assert_int_eq(get(&bed, "small", "whole", 3), KVT_OK);
	ck_assert_int_eq(get(&bed, "large", "k", 5), KVT_OK);
	finish();
}
END_TEST

static int left_of(const char *bucket, const char *prefix, int count)
{
	char key[32];
	int left = 0;

	for (int i = 0; i < count; i++) {
		snprintf(key, sizeof(key), "%s%d", prefix, i);
		left += get(&bed, bucket, key, (uint64_t)i) == KVT_OK;
	}
	return left;
}

static void put_many(const char *bucket, const char *prefix, int count)
{
	char key[32];

	for (int i = 0; i < count; i++) {
		snprintf(key, sizeof(key), "%s%d", prefix, i);
		ck_assert_int_eq(put(&bed, bucket, key, (uint64_t)i, MIB, NULL), KVT_OK);
	}
}

/* One tenant floods: it loses its own oldest, neither another's nor what names no tenant. */
START_TEST(a_tenant_has_its_quota)
{
	struct kvt_tenant flood, quiet;
	struct kvt_object_name name;
	size_t erased;

	kvt_tenant_of("flood", 5, &flood);
	kvt_tenant_of("quiet", 5, &quiet);
	bed_init(&bed, 16 * MIB);
	bed.cache.tenant_l1_bytes = 3 * MIB;
	bed_open(&bed);
	bed_attach(&bed);
	bed.tenant = &quiet;
	put_many("b", "q", 3);
	bed.tenant = NULL;
	put_many("b", "n", 2);
	bed.tenant = &flood;
	put_many("b", "f", 20);
	put_many("c", "f", 1);
	ck_assert_int_eq(left_of("b", "q", 3), 3);
	ck_assert_int_eq(left_of("b", "n", 2), 2);
	ck_assert_int_eq(left_of("b", "f", 20), 2);
	ck_assert_int_eq(get(&bed, "b", "f19", 19), KVT_OK);
	ck_assert_int_eq(put(&bed, "b", "large", 1, 4 * MIB, NULL), KVT_FULL);
	name = name_of("b", "large");
	ck_assert(kvt_object_is_limited(bed.objects, &name, &flood, 4 * MIB));
	ck_assert(!kvt_object_is_limited(bed.objects, &name, &flood, 3 * MIB)); /* others leave for it */
	ck_assert(!kvt_object_is_limited(bed.objects, &name, NULL, 1 * MIB));
	ck_assert_int_eq(left_of("c", "f", 1), 1);
	ck_assert_int_eq(kvt_bucket_erase(bed.objects, KVW_SLICE("b"), &flood, &erased), KVT_OK);
	ck_assert_uint_eq(erased, 3);
	put_many("b", "f", 3); /* all of its room is free */
	ck_assert_int_eq(left_of("b", "f", 3), 3);
	ck_assert_int_eq(kvt_bucket_erase(bed.objects, KVW_SLICE("b"), NULL, &erased), KVT_OK);
	ck_assert_uint_eq(erased, 8); /* of whichever tenant */
	ck_assert_int_eq(left_of("b", "q", 3) + left_of("b", "n", 2) + left_of("b", "f", 3), 0);
	finish();
}
END_TEST

/* An erase of the tenant takes the place that a put under way fills: the put is refused, not lost. */
START_TEST(a_put_whose_place_was_erased_is_not_answered_as_stored)
{
	struct kvt_object_put *p;
	enum kvt_put_outcome outcome;
	struct kvt_checksum sum;
	struct kvt_tenant tenant;
	size_t erased;

	kvt_tenant_of("tenant", 6, &tenant);
	begin(8 * MIB);
	bed.tenant = &tenant;
	ck_assert_int_eq(put_begin(&bed, "b", "k", 1, MIB, &p, &sum), KVT_OK);
	ck_assert_int_eq(kvt_bucket_erase(bed.objects, KVW_SLICE("b"), &tenant, &erased), KVT_OK);
	ck_assert_int_eq(kvt_object_put_end(bed.objects, p, &sum, true, &outcome), KVT_BUSY);
	ck_assert_int_eq(get(&bed, "b", "k", 1), KVT_MISS);
	ck_assert_int_eq(put(&bed, "b", "k", 2, MIB, NULL), KVT_OK);
	ck_assert_int_eq(get(&bed, "b", "k", 2), KVT_OK);
	ck_assert_int_eq(put_begin(&bed, "b", "l", 3, MIB, &p, &sum), KVT_OK);
	ck_assert_int_eq(kvt_bucket_erase(bed.objects, KVW_SLICE("b"), NULL, &erased), KVT_OK);
	ck_assert_int_eq(kvt_object_put_end(bed.objects, p, &sum, true, &outcome), KVT_OK);
	ck_assert_int_eq(get(&bed, "b", "l", 3), KVT_OK); /* it ended after the erase */
	finish();
}
END_TEST

/* However many there are, it is one change and one pass. */
START_TEST(a_bucket_of_many_tenants_is_erased)
{
	struct kvt_tenant tenant;
	char key[16];
	size_t erased;

	begin(32 * MIB);
	bed.tenant = &tenant;
	for (int i = 0; i < 400; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		kvt_tenant_of(key, strlen(key), &tenant);
		ck_assert_int_eq(put(&bed, i % 2 == 0 ? "b" : "c", key, (uint64_t)i, 4096, NULL), KVT_OK);
	}
	ck_assert_int_eq(kvt_bucket_erase(bed.objects, KVW_SLICE("b"), NULL, &erased), KVT_OK);
	ck_assert_uint_eq(erased, 200);
	ck_assert_int_eq(get(&bed, "b", "k398", 398), KVT_MISS);
	ck_assert_int_eq(get(&bed, "c", "k399", 399), KVT_OK);
	finish();
}
END_TEST

/* A bucket with limits of its own is one tenant, whatever its clients name. */
START_TEST(a_limited_bucket_is_one_tenant)
{
	static const struct kvt_bucket_limit limits[] = {{"small", 2 * MIB, 0}};
	struct kvt_tenant tenant;

	bed_init(&bed, 16 * MIB);
	bed.options.limits = limits;
	bed.options.limit_count = 1;
	bed_open(&bed);
	bed_attach(&bed);
	for (int i = 0; i < 4; i++) {
		char prefix[8];

		snprintf(prefix, sizeof(prefix), "t%d.", i);
		kvt_tenant_of(prefix, 3, &tenant);
		bed.tenant = &tenant;
		put_many("small", prefix, 2);
	}
	ck_assert_int_eq(left_of("small", "t3.", 2), 2);
	ck_assert_int_eq(left_of("small", "t2.", 2), 0);
	finish();
}
END_TEST

START_TEST(while_the_name_means_another_file_nothing_is_leased)
{
	struct lease l;
	char path[128];
	int fd;

	begin(4 * MIB);
	ck_assert_int_eq(put(&bed, "b", "k", 1, MIB, NULL), KVT_OK);
	snprintf(path, sizeof(path), "/dev/shm/%s", bed.name);
	ck_assert_int_eq(unlink(path), 0);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	ck_assert_int_ge(fd, 0);
	/* the own thread may have been faster and given the name back: then this file is not there */
	if (!kvt_segment_is_ours(bed.segment))
		ck_assert_int_eq(lease(&bed, "b", "k", SECOND, SECOND, &l), KVT_ECANCELED);
	close(fd);
	if (!kvt_segment_is_ours(bed.segment))
		ck_assert_int_eq(unlink(path), 0);
	while (access(path, F_OK) != 0) /* the own thread gives it back */
		usleep(1000);
	ck_assert_int_eq(get(&bed, "b", "k", 1), KVT_OK);
	finish();
}
END_TEST

int main(void)
{
	TCase *cases = tcase_create("objects");

	tcase_set_timeout(cases, 60);
	tcase_add_test(cases, what_was_put_is_leased);
	tcase_add_test(cases, equal_bytes_are_the_same_and_others_replace);
	tcase_add_test(cases, a_fixed_key_with_other_bytes_each_time);
	tcase_add_test(cases, a_half_filled_put_is_never_seen);
	tcase_add_test(cases, the_write_that_ends_last_wins);
	tcase_add_test(cases, the_write_that_ends_last_wins_also_over_what_was_evicted);
	tcase_add_test(cases, what_a_client_changed_is_replaced_by_a_put);
	tcase_add_test(cases, an_erase_concerns_what_was_there_before);
	tcase_add_test(cases, bytes_that_a_client_changed_are_not_leased);
	tcase_add_test(cases, leases_end_by_time_and_not_before);
	tcase_add_test(cases, a_leased_object_keeps_its_place);
	tcase_add_test(cases, leases_and_puts_are_bounded);
	tcase_add_test(cases, objects_are_listed_in_order_and_in_pages);
	tcase_add_test(cases, what_was_evicted_is_not_listed_and_forgotten);
	tcase_add_test(cases, a_bucket_has_its_quota);
	tcase_add_test(cases, a_tenant_has_its_quota);
	tcase_add_test(cases, a_put_whose_place_was_erased_is_not_answered_as_stored);
	tcase_add_test(cases, a_bucket_of_many_tenants_is_erased);
	tcase_add_test(cases, a_limited_bucket_is_one_tenant);
	tcase_add_test(cases, while_the_name_means_another_file_nothing_is_leased);
	return run_tcase("cache/daemon/objects", cases);
}
