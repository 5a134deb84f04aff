/*
 * threads_test.c - many clients at once: puts that end, stop or cross each other, leases that are
 * given back or run out, erases, lists, and a thread that removes the segment's name. A lease's
 * holder reads through a mapping of its own, made by name, until it ends.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bed.h"
#include "tests/unit/suite.h"

#define THREADS 6
#define KEYS    20
#define BUCKETS 3

static struct bed bed;
static _Atomic uint32_t begun[BUCKETS][KEYS];
static _Atomic uint64_t stored, hits, misses, busy, full, checked;

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* One thread's dice. */
static uint32_t draw(uint64_t *dice, uint32_t below)
{
	*dice ^= *dice << 13;
	*dice ^= *dice >> 7;
	*dice ^= *dice << 17;
	return (uint32_t)(*dice >> 16) % below;
}

struct which {
	uint32_t bucket, key;
	char bucket_text[8], key_text[8];
};

static struct which draw_name(uint64_t *dice)
{
	struct which w = {.bucket = draw(dice, BUCKETS), .key = draw(dice, KEYS)};

	snprintf(w.bucket_text, sizeof(w.bucket_text), "b%d", (int)w.bucket);
	snprintf(w.key_text, sizeof(w.key_text), "k%d", (int)w.key);
	return w;
}

static uint64_t name_part(const struct which *w)
{
	return (uint64_t)(w->bucket * KEYS + w->key + 1) << 32;
}

/* Two in three of all versions have the same bytes as the one before. */
static uint64_t next_seed(const struct which *w)
{
	return name_part(w) | (atomic_fetch_add(&begun[w->bucket][w->key], 1) / 3 + 1);
}

static uint64_t size_for(const struct which *w)
{
	return 100 + w->key * 9000;
}

static void do_put(uint64_t *dice)
{
	struct which w = draw_name(dice);
	enum kvt_put_outcome outcome;
	struct kvt_object_put *p;
	struct kvt_checksum sum;
	enum kvt_status status;

	status = put_begin(&bed, w.bucket_text, w.key_text, next_seed(&w), size_for(&w), &p, &sum);
	if (status == KVT_OK && draw(dice, 5) == 0) {
		kvt_object_put_abort(bed.objects, p);
		return;
	}
	if (status == KVT_OK)
		status = kvt_object_put_end(bed.objects, p, &sum, true, &outcome);
	EXPECT(status == KVT_OK || status == KVT_FULL || status == KVT_BUSY);
	stored += status == KVT_OK;
	busy += status == KVT_BUSY;
	full += status == KVT_FULL;
}

static void do_lease(uint64_t *dice)
{
	const uint64_t ttl_ns = (1 + draw(dice, 100)) * (SECOND / 1000);
	struct which w = draw_name(dice);
	int64_t ends_ns = now() + (int64_t)ttl_ns;
	enum kvt_status status;
	uint64_t seed;
	struct lease l;

	status = lease(&bed, w.bucket_text, w.key_text, SECOND, ttl_ns, &l);
	EXPECT(status == KVT_OK || status == KVT_MISS || status == KVT_ECANCELED ||
		status == KVT_BUSY);
	if (status != KVT_OK) {
		misses++;
		return;
	}
	hits++;
	seed = seed_of(&bed, &l);
	EXPECT(l.bytes == size_for(&w));
	if (now() < ends_ns) { /* else what was read is unknown */
		EXPECT(seed >> 32 == name_part(&w) >> 32);
		EXPECT((uint32_t)seed >= 1 && (uint32_t)seed <= begun[w.bucket][w.key] / 3 + 1);
	}
	while (now() < ends_ns) {
		bool right = reads(&bed, &l, seed);

		EXPECT(right || now() >= ends_ns);
		checked += right;
		if (draw(dice, 3) == 0)
			break;
	}
	if (draw(dice, 4) != 0)
		(void)!release(&bed, &l); /* its time may be over */
}

static void ignore(void *user, const struct kvt_object_entry *entry)
{
	(void)user;
	EXPECT(entry->tier < KVT_TIER_COUNT);
}

static void do_other(uint64_t *dice)
{
	struct which w = draw_name(dice);
	struct kvt_object_name name = name_of(w.bucket_text, w.key_text);
	struct kvt_objects_stats stats;
	char path[128];
	size_t erased;
	bool more;

	switch (draw(dice, 40)) {
	case 0:
		EXPECT(kvt_bucket_erase(bed.objects, name.bucket, NULL, &erased) == KVT_OK);
		break;
	case 1:
		snprintf(path, sizeof(path), "/dev/shm/%s", bed.name);
		unlink(path);
		break;
	case 2:
	case 3:
		kvt_objects_stats(bed.objects, &stats);
		break;
	case 4:
	case 5:
		(void)kvt_objects_list(
			bed.objects, name.bucket, KVW_SLICE("k1"), 10, ignore, NULL, &more);
		break;
	default:
		EXPECT(kvt_object_erase(bed.objects, &name) != KVT_EINVAL);
		break;
	}
}

static void *client(void *self)
{
	uint64_t dice = (uint64_t)(uintptr_t)self * 0x9e3779b97f4a7c15ull | 1;
	const char *ops = getenv("THREADS_OPS");

	for (int i = ops != NULL ? atoi(ops) : 1500; i > 0; i--) {
		uint32_t what = draw(&dice, 20);

		if (what < 8)
			do_put(&dice);
		else if (what < 19)
			do_lease(&dice);
		else
			do_other(&dice);
	}
	return NULL;
}

static void run_clients(void)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, client, (void *)(i + 1)), 0);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

/* Leases that were not given back, and what is being written, may keep the segment full for a
 * while. */
static void put_patiently(const struct which *w, uint64_t seed)
{
	enum kvt_status status;

	while ((status = put(&bed, w->bucket_text, w->key_text, seed, size_for(w), NULL)) ==
		KVT_FULL)
		usleep(1000);
	ck_assert_int_eq(status, KVT_OK);
}

/* When all is quiet, a put is read back, and nothing is left over. */
static void check_end(void)
{
	struct kvt_stats cache = {.size = sizeof(cache)};

	for (uint32_t i = 0; i < BUCKETS * KEYS; i++) {
		struct which w = {.bucket = i / KEYS, .key = i % KEYS};
		uint64_t seed = name_part(&w) | 0xffffffff;

		snprintf(w.bucket_text, sizeof(w.bucket_text), "b%d", (int)w.bucket);
		snprintf(w.key_text, sizeof(w.key_text), "k%d", (int)w.key);
		put_patiently(&w, seed);
		ck_assert_int_eq(get(&bed, w.bucket_text, w.key_text, seed), KVT_OK);
	}
	while (stats_of(&bed).leases_now != 0)
		usleep(1000);
	ck_assert_uint_eq(stats_of(&bed).puts_now, 0);
	ck_assert_uint_eq(stats_of(&bed).corrupt, 0);
	ck_assert_int_eq(kvt_drain(kvt_objects_cache(bed.objects), 20 * SECOND), KVT_OK);
	do { /* the library looks at a chunk now and then, and an end of a lease has two steps */
		ck_assert_int_eq(kvt_stats(kvt_objects_cache(bed.objects), &cache), KVT_OK);
	} while (cache.tiers[KVT_TIER_L1].leased != 0);
	ck_assert_uint_eq(cache.tiers[KVT_TIER_NVME].corrupt, 0);
}

static void run(bool with_store)
{
	bed_init(&bed, 4 * MIB); /* less than is put */
	if (with_store) {
		bed.cache.nvme_path = bed.store;
		bed.cache.nvme_capacity = 64 * MIB;
		bed.options.catalog_path = bed.catalog;
	}
	bed.options.lease_ttl_max_ns = SECOND / 10;
	bed.options.lease_grace_ns = SECOND / 100;
	bed_open(&bed);
	bed_attach(&bed);
	run_clients();
	check_end();
	printf("stored %llu, hits %llu, misses %llu, busy %llu, full %llu, read %llu\n",
		(unsigned long long)stored, (unsigned long long)hits, (unsigned long long)misses,
		(unsigned long long)busy, (unsigned long long)full, (unsigned long long)checked);
	ck_assert_uint_gt(stored, 100);
	ck_assert_uint_gt(hits, 100);
	bed_close(&bed);
	bed_clear(&bed);
}

START_TEST(in_memory_alone)
{
	run(false);
}
END_TEST

START_TEST(with_a_store_below)
{
	run(true);
}
END_TEST

int main(void)
{
	TCase *cases = tcase_create("threads");

	tcase_set_timeout(cases, 250);
	tcase_add_test(cases, in_memory_alone);
	tcase_add_test(cases, with_a_store_below);
	return run_tcase("cache/daemon/threads", cases);
}
