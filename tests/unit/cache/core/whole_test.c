/*
 * whole_test.c - the library as it is opened by others: kvt_open, files in a folder, threads.
 */
#include <errno.h>
#include <ftw.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support.h"
#include "core/core.h"
#include "io/machine.h"
#include "options/setting.h"
#include "tests/unit/suite.h"

static struct rig rig;
static char folder[64];

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
	(void)info;
	(void)kind;
	(void)at;
	return remove(path);
}

static void configure(void)
{
	rig_init(&rig);
	rig.config.threads = KVT_THREADS_OWN;
	rig.config.clock = NULL;
	rig.config.nvme_path = folder;
	rig.config.nvme_capacity = 128u << 20;
}

static void open_whole(void)
{
	ck_assert_int_eq(kvt_open(&rig.config, &rig.k), KVT_OK);
}

static void make_folder(void)
{
	strcpy(folder, "/tmp/kvt-whole-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	configure();
	open_whole();
}

static void remove_folder(void)
{
	if (rig.k != NULL)
		rig_close(&rig);
	nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void reopen(void)
{
	rig_close(&rig);
	open_whole();
}

/* A file lies where the store's folder is to be; when it is gone the store is used. */
START_TEST(a_store_whose_place_is_taken_is_tried_again)
{
	char path[256];
	size_t at;
	FILE *file;

	rig_close(&rig);
	rig.config.fingerprint.bytes[0] = 7; /* another store */
	rig.config.breaker_open_ns = SECOND / 20;
	at = (size_t)snprintf(path, sizeof(path), "%s/07", folder);
	for (int i = 1; i < 32; i++)
		at += (size_t)snprintf(path + at, sizeof(path) - at, "00");
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fclose(file);
	open_whole();
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].state, KVT_TIER_BROKEN);
	ck_assert_int_eq(unlink(path), 0);
	for (int i = 0; i < 600 && rig_stats(&rig).tiers[KVT_TIER_NVME].state != KVT_TIER_WORKS; i++)
		usleep(50000);
	rig_put_chain(&rig, 1, 3);
	ck_assert_int_eq(kvt_drain(rig.k, 60 * SECOND), KVT_OK);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].chunks, 3);
}
END_TEST

static void await_state(struct kvt *k, uint32_t state)
{
	struct kvt_stats stats = {.size = sizeof(stats)};

	for (int i = 0; i < 600; i++, usleep(50000)) {
		ck_assert_int_eq(kvt_stats(k, &stats), KVT_OK);
		if (stats.tiers[KVT_TIER_NVME].state == state)
			return;
	}
	ck_abort_msg("state %u instead of %u", stats.tiers[KVT_TIER_NVME].state, state);
}

static void lock_path(char out[256])
{
	size_t at = (size_t)snprintf(out, 256, "%s/", folder);

	for (int i = 0; i < 32; i++)
		at += (size_t)snprintf(out + at, 256 - at, "00");
	(void)snprintf(out + at, 256 - at, "/0/%s", KVT_IO_LOCK_NAME);
}

/* An operator empties the disk below an engine that runs: the store begins again within seconds. */
START_TEST(a_store_whose_folder_was_removed_begins_again)
{
	struct kvt_stats before;
	char lock[256];

	lock_path(lock);
	rig_put_chain(&rig, 1, 3);
	ck_assert_int_eq(kvt_drain(rig.k, 60 * SECOND), KVT_OK);
	for (int round = 0; round < 2; round++) {
		before = rig_stats(&rig);
		if (round == 0) /* all of it, then the lock alone */
			nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
		else
			ck_assert_int_eq(unlink(lock), 0);
		for (int i = 0; i < 600 && access(lock, F_OK) != 0; i++)
			usleep(50000);
		await_state(rig.k, KVT_TIER_WORKS);
		ck_assert_uint_gt(rig.lines, 0);
		ck_assert_uint_eq(before.tiers[KVT_TIER_NVME].chunks, 3);
		ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].chunks, 0);
		rig_put_chain(&rig, 10 + (uint32_t)round, 3);
		ck_assert_int_eq(kvt_drain(rig.k, 60 * SECOND), KVT_OK);
		ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].chunks, 3);
	}
	ck_assert_int_eq(kvt_reset(rig.k), KVT_OK);
	reopen();
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].chunks, 0);
}
END_TEST

/* Another owner comes by that gap: the first one lets go, and has the store when the other ends. */
START_TEST(a_store_never_keeps_two_owners)
{
	char lock[256];
	struct kvt *other;

	rig_close(&rig);
	rig.config.breaker_open_ns = 5 * SECOND; /* the other has the lock long before */
	open_whole();
	rig_put_chain(&rig, 1, 3);
	ck_assert_int_eq(kvt_drain(rig.k, 60 * SECOND), KVT_OK);
	lock_path(lock);
	ck_assert_int_eq(unlink(lock), 0);
	ck_assert_int_eq(kvt_open(&rig.config, &other), KVT_OK);
	await_state(other, KVT_TIER_WORKS);
	await_state(rig.k, KVT_TIER_BROKEN);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, SECOND), 3); /* of memory */
	ck_assert_int_eq(kvt_erase(rig.k, (struct kvt_key[]){key_of(1, 0)}, 1, SECOND, NULL), KVT_MISS);
	kvt_close(other);
	await_state(rig.k, KVT_TIER_WORKS);
	ck_assert_uint_eq(rig_get(&rig, 1, 1, SECOND), 0);
}
END_TEST

START_TEST(what_was_stored_is_there_after_a_restart)
{
	uint8_t tiers[6];

	rig_put_chain(&rig, 1, 6);
	ck_assert_int_eq(kvt_drain(rig.k, 60 * SECOND), KVT_OK);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].chunks, 6);
	reopen();
	ck_assert_uint_eq(rig_lookup(&rig, 1, 6, tiers), 6);
	ck_assert_uint_eq(tiers[5], KVT_TIER_NVME);
	ck_assert_uint_eq(rig_get(&rig, 1, 6, 60 * SECOND), 6);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 6, tiers), 6);
	ck_assert_uint_eq(tiers[5], KVT_TIER_L1);
	ck_assert_uint_gt(rig_stats(&rig).tiers[KVT_TIER_NVME].read_bytes_per_second, 0);
}
END_TEST

/* The caller did not say how many tokens these chunks have: the configuration does, also after a
 * restart. */
START_TEST(tokens_that_were_not_counted_are_known_after_a_restart)
{
	struct kvt_lookup plan;
	struct kvt_key keys[3];

	keys_of(1, 3, keys);
	rig_put_chain(&rig, 1, 3);
	ck_assert_int_eq(kvt_drain(rig.k, 60 * SECOND), KVT_OK);
	reopen();
	kvt_report_prefill(rig.k, 1000, SECOND);
	ck_assert_int_eq(kvt_lookup(rig.k, keys, 3, KVT_ALL_TIERS, NULL, &plan), KVT_OK);
	ck_assert_uint_eq(plan.worth, 3);
	ck_assert_uint_ge(plan.recompute_ns, rig.config.tokens_per_chunk * 3 * (SECOND / 1000) / 2);
}
END_TEST

START_TEST(what_was_erased_is_not)
{
	struct kvt_tenant tenant = {{2}};
	struct kvt_key keys[4];
	size_t erased;

	keys_of(1, 4, keys);
	rig_put_chain(&rig, 1, 4);
	rig_put_chain(&rig, 2, 4);
	rig_put_chain(&rig, 3, 2);
	ck_assert_int_eq(kvt_drain(rig.k, 60 * SECOND), KVT_OK);
	ck_assert_int_eq(kvt_erase(rig.k, &keys[2], 2, 60 * SECOND, &erased), KVT_OK);
	ck_assert_uint_eq(erased, 2);
	ck_assert_int_eq(kvt_erase_tenant(rig.k, &tenant, 60 * SECOND, &erased), KVT_OK);
	ck_assert_uint_eq(erased, 4);
	reopen();
	ck_assert_uint_eq(rig_get(&rig, 1, 4, 60 * SECOND), 2);
	ck_assert_uint_eq(rig_get(&rig, 2, 4, 60 * SECOND), 0);
	ck_assert_uint_eq(rig_get(&rig, 3, 2, 60 * SECOND), 2);
	ck_assert_int_eq(kvt_reset(rig.k), KVT_OK);
	reopen();
	ck_assert_uint_eq(rig_get(&rig, 3, 2, 60 * SECOND), 0);
}
END_TEST

START_TEST(another_fingerprint_sees_nothing_and_can_be_removed)
{
	struct kvt_fingerprint first = rig.config.fingerprint;
	char path[200];

	rig_put_chain(&rig, 1, 3);
	ck_assert_int_eq(kvt_drain(rig.k, 60 * SECOND), KVT_OK);
	rig.config.fingerprint.bytes[0] = 7;
	reopen();
	ck_assert_uint_eq(rig_get(&rig, 1, 3, SECOND), 0);
	ck_assert_int_eq(kvt_erase_version(rig.k, &first, 0, NULL), KVT_OK);
	first.bytes[1] = 9;
	ck_assert_int_eq(kvt_erase_version(rig.k, &first, 0, NULL), KVT_MISS);
	snprintf(path, sizeof(path), "%s/0009", folder);
	ck_assert_int_eq(access(path, F_OK), -1);
	rig.config.fingerprint.bytes[0] = 0;
	reopen();
	ck_assert_uint_eq(rig_get(&rig, 1, 3, SECOND), 0);
}
END_TEST

START_TEST(a_store_in_use_is_not_removed)
{
	struct kvt_config other = rig.config;
	struct kvt *k;

	rig_put_chain(&rig, 1, 1);
	ck_assert_int_eq(kvt_drain(rig.k, 60 * SECOND), KVT_OK);
	other.fingerprint.bytes[0] = 7;
	ck_assert_int_eq(kvt_open(&other, &k), KVT_OK);
	ck_assert_int_eq(kvt_erase_version(k, &rig.config.fingerprint, 0, NULL), KVT_ELOCKED);
	kvt_close(k);
	reopen();
	ck_assert_uint_eq(rig_get(&rig, 1, 1, 60 * SECOND), 1);
}
END_TEST

START_TEST(a_folder_that_cannot_be_is_left_out)
{
	rig_close(&rig);
	rig.config.nvme_path = "/proc/nowhere";
	open_whole();
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].state, KVT_TIER_BROKEN);
	ck_assert_uint_gt(strlen(rig_stats(&rig).tiers[KVT_TIER_NVME].reason), 0);
	rig_put_chain(&rig, 1, 3);
	ck_assert_uint_eq(rig_get(&rig, 1, 3, 0), 3);
}
END_TEST

START_TEST(a_caller_without_threads_can_do_it_all)
{
	rig_close(&rig);
	rig.config.threads = KVT_THREADS_CALLER;
	open_whole();
	rig_put_chain(&rig, 1, 4);
	ck_assert_int_eq(kvt_drain(rig.k, 60 * SECOND), KVT_OK);
	reopen();
	ck_assert_uint_eq(rig_get(&rig, 1, 4, 60 * SECOND), 4);
	ck_assert_int_eq(kvt_reset(rig.k), KVT_OK);
}
END_TEST

START_TEST(a_pin_holds_in_files)
{
	struct kvt_key keys[2];
	size_t changed;

	keys_of(1, 2, keys);
	rig_put_chain(&rig, 1, 2);
	ck_assert_int_eq(kvt_drain(rig.k, 60 * SECOND), KVT_OK);
	ck_assert_int_eq(kvt_pin(rig.k, keys, 2, &changed), KVT_OK);
	ck_assert_uint_eq(changed, 2);
	ck_assert_uint_eq(rig_stats(&rig).tiers[KVT_TIER_NVME].pinned, 2);
}
END_TEST

START_TEST(a_second_round_evicts_and_goes_on)
{
	rig_close(&rig);
	rig.config.nvme_capacity = 32u << 20;
	rig.config.store_inflight = 1u << 30;
	open_whole();
	for (uint32_t i = 0; i < 400; i++) {
		ck_assert_int_eq(rig_put(&rig, i, 0), KVT_OK);
		if (i % 8 == 7)
			ck_assert_int_eq(kvt_drain(rig.k, 60 * SECOND), KVT_OK);
	}
	ck_assert_uint_gt(rig_stats(&rig).tiers[KVT_TIER_NVME].evictions, 100);
	ck_assert_uint_eq(rig_get(&rig, 399, 1, 60 * SECOND), 1);
	reopen();
	ck_assert_uint_gt(rig_stats(&rig).tiers[KVT_TIER_NVME].chunks, 50);
}
END_TEST

/* A caller that was compiled with the first version of the structs: shorter items, in an array of
 * their own step, and blocks without what came later. */
static const char *text_at(const struct kvt_config *config, const struct kvw_key *setting)
{
	const char *text;

	memcpy(&text, (const char *)config + setting->offset, sizeof(text));
	return text;
}

/* A text may be freed as soon as kvt_open has returned: whatever key it belongs to, the cache has
 * no pointer to it. */
START_TEST(an_open_cache_points_at_no_text_of_its_caller)
{
	size_t texts = 0;

	for (size_t i = 0; i < KVT_SETTING_COUNT; i++) {
		const struct kvw_key *s = &kvt_settings[i];

		if (!s->type->owned)
			continue;
		texts++;
		ck_assert_msg(text_at(&rig.config, s) != NULL, "%s: no text was given", s->path);
		ck_assert_msg(text_at(&rig.k->config, s) == NULL, "%s: still set", s->path);
	}
	ck_assert_uint_gt(texts, 20);
}
END_TEST

START_TEST(an_older_caller_is_understood)
{
	size_t step = offsetof(struct kvt_item, blocks_size);
	uint8_t hash[32] = {1};
	struct kvt_blocks blocks = {
		.hashes = hash,
		.hash_bytes = 32,
		.count = 1,
		.lmcache_hash = 7,
		.has_lmcache_hash = 1, /* beyond what such a caller has: not read */
	};
	const struct kvt_segment *segments;
	struct kvt_reservation *r;
	uint32_t counts[2], status[2];
	struct kvt_event event;
	struct kvt_key keys[2];
	uint8_t array[2 * sizeof(struct kvt_item)];

	keys_of(1, 2, keys);
	memset(array, 0xff, sizeof(array));
	for (size_t i = 0; i < 2; i++) {
		struct kvt_item item = {
			.size = (uint32_t)step, .key = keys[i], .bytes = 4096, .blocks = &blocks};

		memcpy(array + i * step, &item, step);
	}
	ck_assert_int_eq(kvt_put_reserve(rig.k, (const struct kvt_item *)(const void *)array, 2, &r,
				 &segments, counts, status),
		KVT_OK);
	ck_assert_uint_eq(status[0], KVT_OK);
	ck_assert_uint_eq(status[1], KVT_OK);
	memset(segments[0].base, 5, 4096);
	memset(segments[1].base, 6, 4096);
	ck_assert_int_eq(kvt_put_commit(rig.k, r, 2, NULL), KVT_OK);
	ck_assert_uint_eq(kvt_events(rig.k, &event, 1), 1);
	ck_assert_uint_eq(event.count, 1);
	memset(array, 0, sizeof(array));
	memcpy(array, &(uint32_t){8}, sizeof(uint32_t)); /* of no version */
	ck_assert_int_eq(kvt_put_reserve(rig.k, (const struct kvt_item *)(const void *)array, 1, &r,
				 &segments, counts, status),
		KVT_EINVAL);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("over files");

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, make_folder, remove_folder);
	tcase_add_test(tc, a_store_whose_place_is_taken_is_tried_again);
	tcase_add_test(tc, a_store_whose_folder_was_removed_begins_again);
	tcase_add_test(tc, a_store_never_keeps_two_owners);
	tcase_add_test(tc, what_was_stored_is_there_after_a_restart);
	tcase_add_test(tc, tokens_that_were_not_counted_are_known_after_a_restart);
	tcase_add_test(tc, what_was_erased_is_not);
	tcase_add_test(tc, another_fingerprint_sees_nothing_and_can_be_removed);
	tcase_add_test(tc, a_store_in_use_is_not_removed);
	tcase_add_test(tc, a_folder_that_cannot_be_is_left_out);
	tcase_add_test(tc, a_caller_without_threads_can_do_it_all);
	tcase_add_test(tc, a_pin_holds_in_files);
	tcase_add_test(tc, a_second_round_evicts_and_goes_on);
	tcase_add_test(tc, an_open_cache_points_at_no_text_of_its_caller);
	tcase_add_test(tc, an_older_caller_is_understood);
	return run_tcase("cache/core whole", tc);
}
