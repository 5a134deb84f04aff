/*
 * room_test.c - what it costs others that a chunk gets room in L1: nothing where it cannot fit, and no
 * more than the parts under way where a chain is longer than L1.
 */
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tests/unit/suite.h"

#define LONG      (1000 * SECOND)
#define HOT       100 /* chains of one chunk each, number HOT and those after it */
#define L1_CHUNKS 64u

static struct rig rig;

static void open_rig(void)
{
	rig_init(&rig);
	rig_open(&rig);
}

static void close_rig(void)
{
	if (rig.k != NULL)
		rig_close(&rig);
}

static uint64_t evictions(void)
{
	return rig_stats(&rig).tiers[KVT_TIER_L1].evictions;
}

/* L1 is full of hot chunks, of which the first `leased` are held. */
static void fill_with_hot(uint32_t leased, struct kvt_lease **leases)
{
	for (uint32_t i = 0; i < L1_CHUNKS; i++) {
		struct kvt_key key = key_of(HOT + i, 0);

		ck_assert_int_eq(rig_put(&rig, HOT + i, 0), KVT_OK);
		if (i < leased)
			ck_assert_int_eq(kvt_get(rig.k, &key, 1, 0, &leases[i]), KVT_OK);
	}
	rig_settle(&rig);
}

static size_t hits_in_l1(const struct kvt_key *key)
{
	struct kvt_lookup found;

	ck_assert_int_eq(kvt_lookup(rig.k, key, 1, KVT_IN(KVT_TIER_L1), NULL, &found), KVT_OK);
	return found.hits;
}

static size_t hot_in_l1(void)
{
	size_t count = 0;

	for (uint32_t i = 0; i < L1_CHUNKS; i++) {
		struct kvt_key key = key_of(HOT + i, 0);

		count += hits_in_l1(&key);
	}
	return count;
}

static void release_all(struct kvt_lease **leases, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		kvt_release(rig.k, leases[i]);
}

START_TEST(a_put_that_cannot_fit_evicts_nothing)
{
	struct kvt_lease *leases[40];
	uint64_t before;

	fill_with_hot(40, leases);
	before = evictions();
	ck_assert_int_eq(rig_put_bytes(&rig, 1, 0, 25 * CHUNK), KVT_FULL); /* 24 may go */
	ck_assert_uint_eq(evictions(), before);
	ck_assert_uint_eq(hot_in_l1(), L1_CHUNKS);
	ck_assert_int_eq(rig_put_bytes(&rig, 1, 0, 20 * CHUNK), KVT_OK);
	ck_assert_uint_eq(evictions(), before + 20);
	release_all(leases, 40);
}
END_TEST

#define UNITS (L1_CHUNKS * 3) /* of L1, a third of a chunk each */

/* Uses the objects that lie in every second unit, the first one in unit `from`, in the order of their places. */
static void use_every_second(const struct kvt_key of[UNITS], uint32_t from)
{
	struct kvt_lease *lease;

	for (uint32_t i = from; i < UNITS; i += 2) {
		ck_assert_int_eq(kvt_get(rig.k, &of[i], 1, 0, &lease), KVT_OK);
		kvt_release(rig.k, lease);
	}
}

/* Room for it and the staging share is free soon, but in single units; then there is a place. */
START_TEST(a_put_makes_a_place_in_scattered_memory)
{
	const uint64_t unit = CHUNK / 3, needed = 17 + UNITS / 10;
	struct kvt_key of[UNITS], key;
	struct kvt_lease *lease;

	rig_close(&rig);
	rig_init(&rig);
	rig.config.l1_staging_share = 0.1;
	rig_open(&rig);
	for (uint32_t i = 0; i < UNITS; i++) {
		ck_assert_int_eq(rig_put_bytes(&rig, HOT + i, 0, unit), KVT_OK);
		rig_settle(&rig);
	}
	for (uint32_t i = 0; i < UNITS; i++) /* loads fill the staging share, too */
		ck_assert_uint_eq(rig_get(&rig, HOT + i, 1, LONG), 1);
	for (uint32_t i = 0; i < UNITS; i++) {
		key = key_of(HOT + i, 0);
		ck_assert_int_eq(kvt_get(rig.k, &key, 1, 0, &lease), KVT_OK);
		of[lease->segments[0].arena_offset / unit] = key;
		kvt_release(rig.k, lease);
	}
	use_every_second(of, 1);
	use_every_second(of, 0);
	ck_assert_int_eq(rig_put_bytes(&rig, 1, 0, 17 * unit), KVT_OK);
	ck_assert_uint_gt(rig_stats(&rig).tiers[KVT_TIER_L1].used, (UNITS - 4 * needed) * unit);
}
END_TEST

/* A child is chosen before its parent, so a chain goes as a whole where it has to. */
START_TEST(a_chain_makes_room_from_its_end)
{
	rig_put_chain(&rig, 1, 32);
	rig_put_chain(&rig, 2, 32);
	ck_assert_int_eq(rig_put_bytes(&rig, 3, 0, 48 * CHUNK), KVT_OK);
	ck_assert_uint_eq(evictions(), 48);
}
END_TEST

START_TEST(a_load_that_cannot_fit_evicts_nothing)
{
	struct kvt_lease *leases[40];
	struct kvt_key key = key_of(1, 0);
	uint64_t before;

	ck_assert_int_eq(rig_put_bytes(&rig, 1, 0, 25 * CHUNK), KVT_OK);
	rig_settle(&rig);
	rig_push_out(&rig);
	fill_with_hot(40, leases);
	ck_assert(fake_has(fake_tier(), &key));
	before = evictions();
	ck_assert_uint_eq(rig_get(&rig, 1, 1, LONG), 0);
	ck_assert_uint_eq(evictions(), before);
	ck_assert_uint_eq(hot_in_l1(), L1_CHUNKS);
	release_all(leases, 40);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, LONG), 1);
}
END_TEST

/* 512 chunks through an L1 of 64, eight at a time, the next eight on their way meanwhile. */
START_TEST(a_chain_longer_than_l1_passes_through)
{
	enum { CHAIN = 512, PART = 8, PARTS = CHAIN / PART };
	static struct kvt_key keys[CHAIN];
	uint64_t ops[PARTS] = {0};

	for (uint32_t i = 0; i < CHAIN; i++) {
		ck_assert_int_eq(rig_put(&rig, 1, i), KVT_OK);
		rig_settle(&rig);
		if (i % 32 == 31) /* a chain is never evicted from above its end */
			rig_push_out(&rig);
	}
	keys_of(1, CHAIN, keys);
	fill_with_hot(0, NULL);
	for (uint32_t i = 0; i <= PARTS; i++) {
		struct kvt_completion done[2];
		struct kvt_lease *lease;

		if (i < PARTS)
			ck_assert_int_eq(
				kvt_get_begin(rig.k, &keys[i * PART], PART, LONG, 0, &ops[i]),
				KVT_OK);
		rig_settle(&rig);
		(void)kvt_poll(rig.k, done, 2);
		if (i == 0)
			continue;
		ck_assert_int_eq(kvt_get_take(rig.k, ops[i - 1], &lease), KVT_OK);
		ck_assert_uint_eq(lease->count, PART);
		check_lease(lease, &keys[(i - 1) * PART], PART);
		kvt_release_passing(rig.k, lease, 0);
	}
	ck_assert_uint_ge(hot_in_l1(), L1_CHUNKS - 2 * PART);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].leased, 0);
}
END_TEST

static size_t hits_of_chain(uint32_t n)
{
	struct kvt_key keys[5 * L1_CHUNKS];
	struct kvt_lookup found;

	keys_of(1, n, keys);
	ck_assert_int_eq(kvt_lookup(rig.k, keys, n, KVT_ALL_TIERS, NULL, &found), KVT_OK);
	return found.hits;
}

/* Its end goes through the room of what is stored already, so that all of it reaches the tier. */
START_TEST(a_put_chain_longer_than_l1_passes_through)
{
	const uint32_t chunks = 5 * L1_CHUNKS;

	for (uint32_t i = 0; i < chunks; i++) {
		ck_assert_int_eq(rig_put(&rig, 1, i), KVT_OK);
		rig_settle(&rig);
	}
	for (uint32_t i = 0; i < chunks; i++) {
		struct kvt_key key = key_of(1, i);

		ck_assert_msg(fake_has(fake_tier(), &key), "chunk %u", i);
	}
	ck_assert_uint_eq(hits_of_chain(chunks), chunks);
}
END_TEST

/* A chunk that fits nowhere was put again and again, and each try evicted its parent. */
START_TEST(a_put_too_large_leaves_its_parent)
{
	struct kvt_key keys[2] = {key_of(1, 0), key_of(2, 0)};
	struct kvt_lease *lease;
	uint64_t before;

	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
	rig_settle(&rig);
	ck_assert(fake_has(fake_tier(), &keys[0]));
	before = evictions();
	ck_assert_int_eq(rig_put_bytes(&rig, 1, 1, 2 * L1_CHUNKS * CHUNK), KVT_FULL);
	ck_assert_uint_eq(evictions(), before);
	ck_assert_int_eq(rig_put_bytes(&rig, 2, 0, 40 * CHUNK), KVT_OK);
	ck_assert_int_eq(kvt_get(rig.k, &keys[1], 1, 0, &lease), KVT_OK);
	ck_assert_int_eq(rig_put_bytes(&rig, 1, 1, 30 * CHUNK), KVT_FULL); /* held by others */
	ck_assert_uint_eq(evictions(), before);
	ck_assert_uint_eq(hits_in_l1(&keys[0]), 1);
	kvt_release(rig.k, lease);
	rig_settle(&rig); /* what is being stored stays */
	ck_assert_int_eq(rig_put_bytes(&rig, 1, 1, 30 * CHUNK), KVT_OK);
}
END_TEST

/* Puts the ends of a chunk: a second object, of which the chunk is the parent. */
static enum kvt_status put_ends(uint32_t index, uint64_t bytes)
{
	struct kvt_key chunk = key_of(1, index);
	struct kvt_item item = {.size = sizeof(item), .parent = &chunk, .bytes = bytes};
	uint8_t *data = calloc(1, bytes);
	enum kvt_status status;

	ck_assert_ptr_nonnull(data);
	kvt_key_ends(&chunk, &item.key);
	status = kvt_put(rig.k, &item, data);
	free(data);
	return status;
}

/* Ends hang on their chunk: they leave before it. */
START_TEST(a_put_chain_with_ends_passes_through)
{
	const uint64_t unit = CHUNK / 3, chunk_bytes = (3 + (uint64_t)_i / 4) * unit;
	const uint64_t ends_bytes = (1 + (uint64_t)_i % 4) * unit;

	for (uint32_t i = 0; i < 2 * L1_CHUNKS; i++) {
		struct kvt_key keys[2] = {key_of(1, i)};

		ck_assert_msg(rig_put_bytes(&rig, 1, i, chunk_bytes) == KVT_OK, "chunk %u", i);
		rig_settle(&rig);
		ck_assert_msg(put_ends(i, ends_bytes) == KVT_OK, "ends %u", i);
		rig_settle(&rig);
		kvt_key_ends(&keys[0], &keys[1]);
		ck_assert(fake_has(fake_tier(), &keys[0]) && fake_has(fake_tier(), &keys[1]));
	}
}
END_TEST

/* What is not stored yet is not given up for what comes after it; there is room once it is. */
START_TEST(a_put_chain_waits_for_the_tier)
{
	uint32_t n = 0;

	fake_hold(fake_tier(), KVT_TIER_WRITE, true);
	while (rig_put(&rig, 1, n) == KVT_OK)
		n++;
	ck_assert_uint_ge(n, L1_CHUNKS * 3 / 4);
	rig_settle(&rig);
	ck_assert_int_eq(rig_put(&rig, 1, n), KVT_FULL);
	ck_assert_uint_eq(hits_of_chain(n), n);
	fake_hold(fake_tier(), KVT_TIER_WRITE, false);
	rig_settle(&rig);
	ck_assert_int_eq(rig_put(&rig, 1, n), KVT_OK);
	ck_assert_uint_eq(hits_of_chain(n + 1), n + 1);
}
END_TEST

/* --- chunks whose parent is nowhere ------------------------------------------------------------- */

static void open_alone(uint64_t quota)
{
	rig_close(&rig);
	rig_init(&rig);
	rig.with_tier = false;
	rig.config.tenant_l1_bytes = quota;
	rig_open(&rig);
}

/* Puts chunks of chain 1; returns how many were stored. */
static uint32_t put_all(uint32_t chunks)
{
	uint32_t stored = 0;

	for (uint32_t i = 0; i < chunks; i++) {
		enum kvt_status status = rig_put(&rig, 1, i);

		ck_assert_int_eq(status, i == stored ? i < L1_CHUNKS ? status : KVT_FULL : KVT_MISS);
		stored += status == KVT_OK;
	}
	return stored;
}

/* Each chunk behind the first that found no room took the room of one in front of it. */
START_TEST(a_chain_longer_than_memory_keeps_its_beginning)
{
	open_alone(0);
	ck_assert_uint_eq(put_all(2 * L1_CHUNKS), L1_CHUNKS);
	ck_assert_uint_eq(hits_of_chain(2 * L1_CHUNKS), L1_CHUNKS);
	ck_assert_uint_eq(evictions(), 0);
	ck_assert_uint_eq(rig_stats(&rig).put_full, 1);
	ck_assert_uint_eq(rig_stats(&rig).put_orphans, L1_CHUNKS - 1);
	ck_assert_int_eq(rig_put(&rig, 2, 0), KVT_OK); /* others' chains have room, and take its end */
	ck_assert_uint_eq(hits_of_chain(2 * L1_CHUNKS), L1_CHUNKS - 1);
}
END_TEST

START_TEST(a_chain_longer_than_its_tenants_quota_keeps_its_beginning)
{
	open_alone(16 * CHUNK);
	for (uint32_t i = 0; i < 32; i++)
		ck_assert_int_eq(rig_put(&rig, 1, i), i < 16 ? KVT_OK : i == 16 ? KVT_FULL : KVT_MISS);
	ck_assert_uint_eq(hits_of_chain(32), 16);
}
END_TEST

/* A shared tier may have any chunk that it was not asked about: not one that this handle refused to put. */
START_TEST(what_follows_a_refused_put_is_not_in_a_shared_tier)
{
	struct kvt_key refused;
	uint8_t *data = calloc(1, CHUNK);
	uint32_t n = 0;

	rig_close(&rig);
	rig_init(&rig);
	rig.remote = true;
	rig_open(&rig);
	ck_assert_int_eq(rig_put(&rig, 7, 3), KVT_OK); /* others may have put the chunks in front of it */
	fake_hold(fake_tier(), KVT_TIER_WRITE, true);
	while (rig_put(&rig, 1, n) == KVT_OK)
		n++;
	for (uint32_t i = n + 1; i < n + 8; i++)
		ck_assert_int_eq(rig_put(&rig, 1, i), KVT_MISS);
	ck_assert_uint_eq(hits_of_chain(n + 8), n);
	refused = key_of(1, n); /* another process puts it, and this one gets to know */
	bytes_of(&refused, data, CHUNK);
	fake_plant(fake_tier(), &refused, data, CHUNK);
	free(data);
	fake_hold(fake_tier(), KVT_TIER_WRITE, false);
	rig_settle(&rig);
	ck_assert_int_eq(kvt_find(rig.k, &refused, 1, KVT_ALL_TIERS, LONG, NULL, &(struct kvt_lookup){0}), KVT_OK);
	ck_assert_int_eq(rig_put(&rig, 1, n + 1), KVT_OK);
}
END_TEST

/* Parents behind their children in one call, and children of what another call still fills. */
START_TEST(parents_may_come_in_the_same_call_or_be_under_way)
{
	enum { N = 5 };
	struct kvt_item items[N], child = {.size = sizeof(child), .key = key_of(1, N), .bytes = CHUNK};
	const struct kvt_segment *segments, *other;
	struct kvt_reservation *r, *second;
	uint32_t counts[N], status[N], count, one, at = 0;
	uint8_t *data = malloc(CHUNK);
	struct kvt_key keys[N];

	ck_assert_ptr_nonnull(data);
	keys_of(1, N, keys);
	for (uint32_t i = 0; i < N; i++) /* the chain's end first */
		items[i] = (struct kvt_item){.size = sizeof(items[i]), .key = keys[N - 1 - i],
			.parent = i < N - 1 ? &keys[N - 2 - i] : NULL, .bytes = CHUNK};
	ck_assert_int_eq(kvt_put_reserve(rig.k, items, N, &r, &segments, counts, status), KVT_OK);
	child.parent = &keys[N - 1];
	ck_assert_int_eq(kvt_put_reserve(rig.k, &child, 1, &second, &other, &count, &one), KVT_OK);
	for (uint32_t i = 0; i < N; i++) {
		struct kvt_checksum sum;

		ck_assert_uint_eq(status[i], KVT_OK);
		bytes_of(&items[i].key, data, CHUNK);
		kvt_fill(&segments[at], counts[i], data, CHUNK, &sum);
		at += counts[i];
	}
	free(data);
	ck_assert_int_eq(kvt_put_commit(rig.k, r, N, NULL), KVT_OK);
	kvt_put_abort(rig.k, second);
	rig_settle(&rig);
	ck_assert_uint_eq(rig_get(&rig, 1, N, 0), N);
	ck_assert_uint_eq(fake_chunks(fake_tier()), N);
	ck_assert_uint_eq(rig_stats(&rig).put_orphans, 0);
	ck_assert_int_eq(rig_put(&rig, 1, N + 1), KVT_MISS); /* what was aborted is not there */
}
END_TEST

START_TEST(what_others_want_does_not_pass)
{
	struct kvt_key keys[5];
	struct kvt_lease *passing, *other;
	struct kvt_lookup found;

	keys_of(1, 5, keys);
	rig_put_chain(&rig, 1, 5);
	rig_settle(&rig);
	rig_push_out(&rig);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, LONG), 1); /* of L1 already */
	ck_assert_int_eq(kvt_get(rig.k, keys, 5, LONG, &passing), KVT_OK);
	ck_assert_uint_eq(passing->count, 5);
	ck_assert_int_eq(kvt_get(rig.k, keys, 3, 0, &other), KVT_OK);
	ck_assert_int_eq(kvt_pin(rig.k, &keys[3], 1, NULL), KVT_OK);
	kvt_release_passing(rig.k, passing, 0);
	ck_assert_int_eq(kvt_lookup(rig.k, keys, 5, KVT_IN(KVT_TIER_L1), NULL, &found), KVT_OK);
	ck_assert_uint_eq(found.hits, 4);
	check_lease(other, keys, 3);
	kvt_release(rig.k, other);
	kvt_release_passing(rig.k, NULL, 0);
	ck_assert_int_eq(kvt_get(rig.k, &keys[4], 1, LONG, &passing), KVT_OK);
	kvt_release_passing(rig.k, passing, 1); /* the first one stays */
	ck_assert_int_eq(kvt_lookup(rig.k, keys, 5, KVT_IN(KVT_TIER_L1), NULL, &found), KVT_OK);
	ck_assert_uint_eq(found.hits, 5);
}
END_TEST

START_TEST(a_prefetch_takes_an_eighth)
{
	static struct kvt_key keys[L1_CHUNKS];

	keys_of(1, L1_CHUNKS, keys);
	rig_put_chain(&rig, 1, 60);
	rig_settle(&rig);
	rig_push_out(&rig);
	fill_with_hot(0, NULL);
	ck_assert_int_eq(kvt_prefetch(rig.k, keys, 60), KVT_OK);
	rig_settle(&rig);
	ck_assert_uint_eq(hot_in_l1(), L1_CHUNKS * 7 / 8);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("room");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, open_rig, close_rig);
	tcase_add_test(tc, a_put_that_cannot_fit_evicts_nothing);
	tcase_add_test(tc, a_put_makes_a_place_in_scattered_memory);
	tcase_add_test(tc, a_chain_makes_room_from_its_end);
	tcase_add_test(tc, a_load_that_cannot_fit_evicts_nothing);
	tcase_add_test(tc, a_chain_longer_than_l1_passes_through);
	tcase_add_test(tc, a_put_chain_longer_than_l1_passes_through);
	tcase_add_test(tc, a_put_too_large_leaves_its_parent);
	tcase_add_loop_test(tc, a_put_chain_with_ends_passes_through, 0, 16);
	tcase_add_test(tc, a_put_chain_waits_for_the_tier);
	tcase_add_test(tc, a_chain_longer_than_memory_keeps_its_beginning);
	tcase_add_test(tc, a_chain_longer_than_its_tenants_quota_keeps_its_beginning);
	tcase_add_test(tc, what_follows_a_refused_put_is_not_in_a_shared_tier);
	tcase_add_test(tc, parents_may_come_in_the_same_call_or_be_under_way);
	tcase_add_test(tc, what_others_want_does_not_pass);
	tcase_add_test(tc, a_prefetch_takes_an_eighth);
	return run_tcase("cache/core room", tc);
}
