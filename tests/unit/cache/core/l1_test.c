/*
 * l1_test.c - what a cache of memory alone does: every public function, without a tier below.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"
#include "tests/unit/suite.h"

static struct rig rig;

static void open_plain(void)
{
	rig_init(&rig);
	rig.with_tier = false;
	rig_open(&rig);
}

static void close_plain(void)
{
	if (rig.k != NULL)
		rig_close(&rig);
}

START_TEST(a_put_chunk_is_got)
{
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, 0), 1);
	ck_assert_uint_eq(rig_get(&rig, 2, 1, 0), 0);
}
END_TEST

START_TEST(a_get_ends_at_the_first_gap)
{
	struct kvt_key gap = key_of(1, 3);
	uint8_t tiers[5];

	rig_put_chain(&rig, 1, 5);
	ck_assert_int_eq(kvt_erase(rig.k, &gap, 1, 0, NULL), KVT_OK);
	ck_assert_uint_eq(rig_get(&rig, 1, 5, 0), 3);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 5, tiers), 3);
	for (int i = 0; i < 5; i++)
		ck_assert_uint_eq(tiers[i], i < 3 ? KVT_TIER_L1 : KVT_TIER_NONE);
}
END_TEST

START_TEST(sizes_that_do_not_fit_units_are_whole)
{
	static const uint64_t sizes[] = {1, 7, 4096, 65535, 65536, 65537, 300001};

	for (uint32_t i = 0; i < 7; i++) {
		ck_assert_int_eq(rig_put_bytes(&rig, i, 0, sizes[i]), KVT_OK);
		ck_assert_uint_eq(rig_get(&rig, i, 1, 0), 1);
	}
}
END_TEST

START_TEST(a_chunk_that_is_there_is_not_put_again)
{
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_EXISTS);
	ck_assert_uint_eq(rig_stats(&rig).put_exists, 1);
}
END_TEST

START_TEST(nothing_is_visible_before_commit)
{
	struct kvt_item item = {.size = sizeof(item), .key = key_of(1, 0), .bytes = CHUNK};
	const struct kvt_segment *segments;
	struct kvt_reservation *r, *second;
	uint32_t count, status;

	ck_assert_int_eq(kvt_put_reserve(rig.k, &item, 1, &r, &segments, &count, &status), KVT_OK);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 1, NULL), 0);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, 0), 0);
	ck_assert_int_eq(
		kvt_put_reserve(rig.k, &item, 1, &second, &segments, &count, &status), KVT_EXISTS);
	kvt_put_abort(rig.k, r);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 1, NULL), 0);
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
}
END_TEST

START_TEST(commit_keeps_what_is_ready)
{
	struct kvt_item items[3];
	struct kvt_key keys[3];
	const struct kvt_segment *segments;
	struct kvt_reservation *r;
	uint32_t counts[3], status[3], at = 0;
	uint8_t *data = malloc(CHUNK);

	keys_of(1, 3, keys);
	for (int i = 0; i < 3; i++)
		items[i] = (struct kvt_item){.size = sizeof(items[i]),
			.key = keys[i],
			.parent = i > 0 ? &keys[i - 1] : NULL,
			.bytes = CHUNK};
	ck_assert_int_eq(kvt_put_reserve(rig.k, items, 3, &r, &segments, counts, status), KVT_OK);
	for (int i = 0; i < 3; i++) {
		struct kvt_checksum sum;

		ck_assert_uint_eq(status[i], KVT_OK);
		bytes_of(&keys[i], data, CHUNK);
		kvt_fill(&segments[at], counts[i], data, CHUNK, &sum);
		at += counts[i];
	}
	ck_assert_int_eq(kvt_put_commit(rig.k, r, 2, NULL), KVT_OK);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, 0), 2);
	ck_assert_int_eq(rig_put(&rig, 1, 2), KVT_OK);
	free(data);
}
END_TEST

START_TEST(wrong_items_are_refused_one_by_one)
{
	struct kvt_item items[3] = {
		{.size = sizeof(items[0]), .key = key_of(1, 0), .bytes = CHUNK},
		{.size = sizeof(items[0]), .key = key_of(2, 0), .bytes = 0},
		{.size = 1, .key = key_of(3, 0), .bytes = CHUNK},
	};
	const struct kvt_segment *segments;
	struct kvt_reservation *r;
	uint32_t counts[3], status[3];

	ck_assert_int_eq(kvt_put_reserve(rig.k, items, 3, &r, &segments, counts, status), KVT_OK);
	ck_assert_uint_eq(status[0], KVT_OK);
	ck_assert_uint_eq(status[1], KVT_EINVAL);
	ck_assert_uint_eq(status[2], KVT_EINVAL);
	ck_assert_uint_eq(counts[1], 0);
	kvt_put_abort(rig.k, r);
	ck_assert_int_eq(
		kvt_put_reserve(rig.k, &items[1], 2, &r, &segments, counts, status), KVT_EINVAL);
}
END_TEST

START_TEST(full_memory_evicts_leaves_only)
{
	struct kvt_lookup found;
	size_t there;

	rig_put_chain(&rig, 1, 4);
	for (uint32_t i = 0; i < 90; i++)
		ck_assert_int_eq(rig_put(&rig, 100 + i, 0), KVT_OK);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].evictions, 30);
	there = rig_lookup(&rig, 1, 4, NULL);
	ck_assert_uint_lt(there, 4);
	for (uint32_t i = 0; i < 4; i++) { /* what is left of a chain has no gap */
		struct kvt_key key = key_of(1, i);

		ck_assert_int_eq(kvt_lookup(rig.k, &key, 1, 0, NULL, &found), KVT_OK);
		ck_assert_uint_eq(found.hits, i < there);
	}
}
END_TEST

START_TEST(a_lease_keeps_its_chunks)
{
	struct kvt_key keys[4];
	struct kvt_lease *lease;

	keys_of(1, 4, keys);
	rig_put_chain(&rig, 1, 4);
	ck_assert_int_eq(kvt_get(rig.k, keys, 4, 0, &lease), KVT_OK);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].leased, 4);
	rig_push_out(&rig);
	check_lease(lease, keys, 4);
	ck_assert_int_eq(kvt_erase(rig.k, keys, 4, 0, NULL), KVT_OK);
	rig_push_out(&rig);
	check_lease(lease, keys, 4);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 4, NULL), 0);
	kvt_release(rig.k, lease);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].leased, 0);
}
END_TEST

START_TEST(when_all_is_leased_a_put_is_refused)
{
	struct kvt_lease *leases[64];

	for (uint32_t i = 0; i < 64; i++) {
		struct kvt_key key = key_of(i, 0);

		ck_assert_int_eq(rig_put(&rig, i, 0), KVT_OK);
		ck_assert_int_eq(kvt_get(rig.k, &key, 1, 0, &leases[i]), KVT_OK);
	}
	ck_assert_int_eq(rig_put(&rig, 1000, 0), KVT_FULL);
	ck_assert_uint_eq(rig_stats(&rig).put_full, 1);
	kvt_release(rig.k, leases[5]);
	ck_assert_int_eq(rig_put(&rig, 1000, 0), KVT_OK);
	ck_assert_uint_eq(rig_get(&rig, 5, 1, 0), 0);
	for (uint32_t i = 0; i < 64; i++)
		if (i != 5)
			kvt_release(rig.k, leases[i]);
}
END_TEST

START_TEST(the_oldest_lease_is_reported)
{
	struct kvt_key key = key_of(1, 0);
	struct kvt_lease *first, *second;

	rig_put_chain(&rig, 1, 1);
	ck_assert_int_eq(kvt_get(rig.k, &key, 1, 0, &first), KVT_OK);
	rig_advance(&rig, SECOND);
	ck_assert_int_eq(kvt_get(rig.k, &key, 1, 0, &second), KVT_OK);
	rig_advance(&rig, SECOND);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].oldest_lease_ns, 2 * SECOND);
	kvt_release(rig.k, first);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].oldest_lease_ns, SECOND);
	kvt_release(rig.k, second);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].oldest_lease_ns, 0);
}
END_TEST

START_TEST(verify_finds_a_changed_byte)
{
	struct kvt_key keys[3];
	struct kvt_lease *lease;
	uint8_t *byte;

	keys_of(1, 3, keys);
	rig_put_chain(&rig, 1, 3);
	ck_assert_int_eq(kvt_get(rig.k, keys, 3, 0, &lease), KVT_OK);
	ck_assert_int_eq(kvt_verify(rig.k, lease), KVT_OK);
	byte = lease->segments[lease->views[1].first_segment].base;
	byte[1000] ^= 4;
	ck_assert_int_eq(kvt_verify(rig.k, lease), KVT_ECORRUPT);
	byte[1000] ^= 4;
	kvt_release(rig.k, lease);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, 0), 1);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].corrupt, 1);
}
END_TEST

START_TEST(scrubbing_finds_a_changed_byte)
{
	struct kvt_key key = key_of(1, 0);
	struct kvt_lease *lease;

	rig_close(&rig);
	rig_init(&rig);
	rig.with_tier = false;
	rig.config.l1_scrub_rate = 4 * CHUNK;
	rig.config.l1_scrub_ns = 0;
	rig_open(&rig);
	rig_put_chain(&rig, 1, 1);
	ck_assert_int_eq(kvt_get(rig.k, &key, 1, 0, &lease), KVT_OK);
	((uint8_t *)lease->segments[0].base)[77] ^= 1;
	kvt_release(rig.k, lease);
	for (int i = 0; i < 30; i++)
		rig_advance(&rig, SECOND / 10);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, 0), 0);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].corrupt, 1);
}
END_TEST

/* 64 chunks in 64 seconds, whatever the rate says. */
START_TEST(scrubbing_a_small_memory_takes_its_time)
{
	rig_close(&rig);
	rig_init(&rig);
	rig.with_tier = false;
	rig.config.l1_scrub_rate = 64 * CHUNK;
	rig.config.l1_scrub_ns = 64 * SECOND;
	rig_open(&rig);
	rig_put_chain(&rig, 1, 8);
	for (uint32_t i = 0; i < 8; i++) {
		struct kvt_key key = key_of(1, i);
		struct kvt_lease *lease;

		ck_assert_int_eq(kvt_get(rig.k, &key, 1, 0, &lease), KVT_OK);
		((uint8_t *)lease->segments[0].base)[77] ^= 1;
		kvt_release(rig.k, lease);
	}
	for (int i = 0; i < 30; i++)
		rig_advance(&rig, SECOND / 10);
	ck_assert_uint_ge(rig_stats(&rig).tiers[KVT_TIER_L1].corrupt, 1);
	ck_assert_uint_le(rig_stats(&rig).tiers[KVT_TIER_L1].corrupt, 4);
	for (int i = 0; i < 100; i++)
		rig_advance(&rig, SECOND / 10);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].corrupt, 8);
}
END_TEST

START_TEST(copy_wants_room)
{
	struct kvt_key key = key_of(1, 0);
	struct kvt_lease *lease;
	uint8_t small[8];

	rig_put_chain(&rig, 1, 1);
	ck_assert_int_eq(kvt_get(rig.k, &key, 1, 0, &lease), KVT_OK);
	ck_assert_uint_eq(kvt_copy(lease, 0, small, sizeof(small)), 0);
	ck_assert_uint_eq(kvt_copy(lease, 1, small, sizeof(small)), 0);
	kvt_release(rig.k, lease);
	kvt_release(rig.k, NULL);
}
END_TEST

START_TEST(erase_removes_and_counts)
{
	struct kvt_key keys[4];
	size_t erased = 99;

	keys_of(1, 4, keys);
	rig_put_chain(&rig, 1, 3);
	ck_assert_int_eq(kvt_erase(rig.k, keys, 4, 0, &erased), KVT_OK);
	ck_assert_uint_eq(erased, 3);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 3, NULL), 0);
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
}
END_TEST

START_TEST(erase_ends_a_put_under_way)
{
	struct kvt_item item = {.size = sizeof(item), .key = key_of(1, 0), .bytes = CHUNK};
	const struct kvt_segment *segments;
	struct kvt_reservation *r;
	uint32_t count, status;

	ck_assert_int_eq(kvt_put_reserve(rig.k, &item, 1, &r, &segments, &count, &status), KVT_OK);
	ck_assert_int_eq(kvt_erase(rig.k, &item.key, 1, 0, NULL), KVT_OK);
	ck_assert_int_eq(kvt_put_commit(rig.k, r, 1, NULL), KVT_OK);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 1, NULL), 0);
	ck_assert_int_eq(rig_put(&rig, 1, 0), KVT_OK);
}
END_TEST

START_TEST(erase_of_a_tenant_spares_others)
{
	struct kvt_tenant tenant = {{1}}; /* of chain 1 */
	size_t erased = 0;

	rig_put_chain(&rig, 1, 3);
	rig_put_chain(&rig, 2, 2);
	ck_assert_int_eq(kvt_erase_tenant(rig.k, &tenant, 0, &erased), KVT_OK);
	ck_assert_uint_eq(erased, 3);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, 0), 0);
	ck_assert_uint_eq(rig_get(&rig, 2, 2, 0), 2);
}
END_TEST

START_TEST(reset_and_own_version_empty_it)
{
	struct kvt_fingerprint own = {{0}}, other = {{1}};

	rig_put_chain(&rig, 1, 3);
	ck_assert_int_eq(kvt_reset(rig.k), KVT_OK);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, 0), 0);
	rig_put_chain(&rig, 1, 3);
	ck_assert_int_eq(kvt_erase_version(rig.k, &other, 0, NULL), KVT_MISS);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, 0), 3);
	ck_assert_int_eq(kvt_erase_version(rig.k, &own, 0, NULL), KVT_OK);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, 0), 0);
}
END_TEST

START_TEST(pinned_chunks_stay)
{
	struct kvt_key keys[3];
	size_t changed = 0;

	keys_of(1, 3, keys);
	rig_put_chain(&rig, 1, 2);
	ck_assert_int_eq(kvt_pin(rig.k, keys, 3, &changed), KVT_OK);
	ck_assert_uint_eq(changed, 2);
	for (uint32_t i = 0; i < 62; i++)
		ck_assert_int_eq(rig_put(&rig, 100 + i, 0), KVT_OK);
	for (uint32_t i = 0; i < 30; i++)
		ck_assert_int_eq(rig_put(&rig, 200 + i, 0), KVT_OK);
	ck_assert_uint_eq(rig_get(&rig, 1, 2, 0), 2);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].pinned, 2);
	ck_assert_int_eq(kvt_unpin(rig.k, keys, 2, &changed), KVT_OK);
	rig_push_out(&rig);
	ck_assert_uint_eq(rig_get(&rig, 1, 2, 0), 0);
}
END_TEST

START_TEST(unused_chunks_expire)
{
	rig_close(&rig);
	rig_init(&rig);
	rig.with_tier = false;
	rig.config.ttl_ns = 10 * SECOND;
	rig_open(&rig);
	rig_put_chain(&rig, 1, 2);
	rig_advance(&rig, 8 * SECOND);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, 0), 1); /* a use */
	rig_advance(&rig, 5 * SECOND);
	ck_assert_uint_eq(rig_get(&rig, 1, 2, 0), 1);
	rig_advance(&rig, 20 * SECOND);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, 0), 0);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_L1].expired, 2);
}
END_TEST

START_TEST(arguments_are_checked)
{
	struct kvt_key key = key_of(1, 0);
	struct kvt_lease *lease;
	struct kvt_lookup found;
	uint64_t op;

	ck_assert_int_eq(kvt_get(rig.k, NULL, 1, 0, &lease), KVT_EINVAL);
	ck_assert_int_eq(kvt_get(rig.k, &key, 0, 0, &lease), KVT_EINVAL);
	ck_assert_int_eq(kvt_get(rig.k, &key, 1, 0, NULL), KVT_EINVAL);
	ck_assert_int_eq(kvt_get(NULL, &key, 1, 0, &lease), KVT_EINVAL);
	ck_assert_int_eq(kvt_lookup(rig.k, NULL, 1, 0, NULL, &found), KVT_EINVAL);
	ck_assert_int_eq(kvt_lookup(rig.k, &key, 0, 0, NULL, &found), KVT_OK);
	ck_assert_int_eq(kvt_erase(rig.k, NULL, 1, 0, NULL), KVT_EINVAL);
	ck_assert_int_eq(kvt_erase_tenant(rig.k, NULL, 0, NULL), KVT_EINVAL);
	ck_assert_int_eq(kvt_get_begin(rig.k, &key, 1, 0, 0, NULL), KVT_EINVAL);
	ck_assert_int_eq(kvt_cancel(rig.k, 12345), KVT_MISS);
	ck_assert_int_eq(kvt_get_take(rig.k, 12345, &lease), KVT_MISS);
	ck_assert_int_eq(kvt_put_commit(rig.k, NULL, 0, NULL), KVT_EINVAL);
	kvt_put_abort(rig.k, NULL);
	ck_assert_int_eq(kvt_drain_begin(rig.k, 0, 0, &op), KVT_OK);
	kvt_close(NULL);
}
END_TEST

START_TEST(configurations_are_checked)
{
	struct kvt_config config = rig.config;
	const struct kvt_tier_ops *none = NULL;
	struct kvt *k = NULL;

	config.abi = 99;
	ck_assert_int_eq(kvt_open_with(&config, &none, &k), KVT_EINVAL);
	config = rig.config;
	config.size = 3;
	ck_assert_int_eq(kvt_open_with(&config, &none, &k), KVT_EINVAL);
	config = rig.config;
	config.l1_staging_share = 0.7;
	ck_assert_int_eq(kvt_open_with(&config, &none, &k), KVT_EINVAL);
	config = rig.config;
	config.l1_policy = "no such policy";
	ck_assert_int_ne(kvt_open_with(&config, &none, &k), KVT_OK);
	config = rig.config;
	config.l1_backing = "paper";
	ck_assert_int_ne(kvt_open_with(&config, &none, &k), KVT_OK);
	ck_assert_ptr_null(k);
	ck_assert_int_eq(kvt_open_with(NULL, &none, &k), KVT_EINVAL);
}
END_TEST

START_TEST(a_caller_of_an_older_version_gets_defaults)
{
	struct kvt_config config = rig.config;
	const struct kvt_tier_ops *none = NULL;
	struct kvt_key key = key_of(1, 0);
	struct kvt *k = NULL;
	struct kvt_item item = {.size = sizeof(item), .key = key, .bytes = 5};

	config.size = offsetof(struct kvt_config, nvme_path);
	config.l1_policy = NULL;
	memset(&config.nvme_path, 0xff, sizeof(config) - config.size); /* not to be looked at */
	ck_assert_int_eq(kvt_open_with(&config, &none, &k), KVT_OK);
	ck_assert_int_eq(kvt_put(k, &item, "12345"), KVT_OK);
	kvt_close(k);
}
END_TEST

START_TEST(a_forked_child_is_refused)
{
	struct kvt_key key = key_of(1, 0);
	struct kvt_lookup found;
	struct kvt_lease *lease;
	int status;
	pid_t child;

	rig_put_chain(&rig, 1, 1);
	child = fork();
	if (child == 0) {
		bool fine = kvt_lookup(rig.k, &key, 1, 0, NULL, &found) == KVT_EFORK &&
			    kvt_get(rig.k, &key, 1, 0, &lease) == KVT_EFORK &&
			    kvt_reset(rig.k) == KVT_EFORK && kvt_eventfd(rig.k) == -1;

		kvt_close(rig.k);
		_exit(fine ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, 0), 1);
}
END_TEST

START_TEST(stats_count)
{
	struct kvt_stats s;

	rig_put_chain(&rig, 1, 3);
	rig_get(&rig, 1, 5, 0);
	rig_lookup(&rig, 1, 4, NULL);
	s = rig_stats(&rig);
	ck_assert_uint_eq(s.puts, 3);
	ck_assert_uint_eq(s.put_bytes, 3 * CHUNK);
	ck_assert_uint_eq(s.gets, 1);
	ck_assert_uint_eq(s.get_chunks, 5);
	ck_assert_uint_eq(s.get_hits, 3);
	ck_assert_uint_eq(s.lookups, 1);
	ck_assert_uint_eq(s.lookup_chunks, 4);
	ck_assert_uint_eq(s.lookup_hits, 3);
	ck_assert_uint_eq(s.tiers[KVT_TIER_L1].chunks, 3);
	ck_assert_uint_eq(s.tiers[KVT_TIER_L1].payload, 3 * CHUNK);
	ck_assert_uint_eq(s.tiers[KVT_TIER_L1].hits, 3);
	ck_assert_uint_eq(s.tiers[KVT_TIER_L1].misses, 2);
	ck_assert_uint_eq(s.tiers[KVT_TIER_NVME].state, KVT_TIER_ABSENT);
}
END_TEST

START_TEST(metrics_are_text)
{
	char *text = NULL;

	rig_put_chain(&rig, 1, 3);
	ck_assert_int_eq(kvt_metrics(rig.k, &text), KVT_OK);
	ck_assert_ptr_nonnull(strstr(text, "kvtier_"));
	kvt_text_free(text);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("memory alone");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, open_plain, close_plain);
	tcase_add_test(tc, a_put_chunk_is_got);
	tcase_add_test(tc, a_get_ends_at_the_first_gap);
	tcase_add_test(tc, sizes_that_do_not_fit_units_are_whole);
	tcase_add_test(tc, a_chunk_that_is_there_is_not_put_again);
	tcase_add_test(tc, nothing_is_visible_before_commit);
	tcase_add_test(tc, commit_keeps_what_is_ready);
	tcase_add_test(tc, wrong_items_are_refused_one_by_one);
	tcase_add_test(tc, full_memory_evicts_leaves_only);
	tcase_add_test(tc, a_lease_keeps_its_chunks);
	tcase_add_test(tc, when_all_is_leased_a_put_is_refused);
	tcase_add_test(tc, the_oldest_lease_is_reported);
	tcase_add_test(tc, verify_finds_a_changed_byte);
	tcase_add_test(tc, scrubbing_finds_a_changed_byte);
	tcase_add_test(tc, scrubbing_a_small_memory_takes_its_time);
	tcase_add_test(tc, copy_wants_room);
	tcase_add_test(tc, erase_removes_and_counts);
	tcase_add_test(tc, erase_ends_a_put_under_way);
	tcase_add_test(tc, erase_of_a_tenant_spares_others);
	tcase_add_test(tc, reset_and_own_version_empty_it);
	tcase_add_test(tc, pinned_chunks_stay);
	tcase_add_test(tc, unused_chunks_expire);
	tcase_add_test(tc, arguments_are_checked);
	tcase_add_test(tc, configurations_are_checked);
	tcase_add_test(tc, a_caller_of_an_older_version_gets_defaults);
	tcase_add_test(tc, a_forked_child_is_refused);
	tcase_add_test(tc, stats_count);
	tcase_add_test(tc, metrics_are_text);
	return run_tcase("cache/core l1", tc);
}
