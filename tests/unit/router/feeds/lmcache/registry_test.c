/*
 * registry_test.c - instances, ranks, what they hold and how long they are believed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/common/wire/support.h"
#include "tests/unit/suite.h"
#include "wire/lmcache_hash.h"
#include "world.h"

static const struct kvw_lmreg_worker workers[WORLD_WORKERS] = {
	{"", "10.0.0.1"}, {"", "10.0.0.2"}, {"named", "10.0.0.3"}, {"", "10.0.0.4"}};
static struct world world;

static void setup(void)
{
	world_open(&world, workers, WORLD_WORKERS);
}

static void teardown(void)
{
	world_close(&world);
}

START_TEST(registers_stores_evicts)
{
	world_register(&world, "i0", 0, NULL);
	ck_assert(world_answered(&world, "RegisterRetMsg"));
	ck_assert(world_answered(&world, "10.9.9.9:8082"));
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_FULL);
	world_ops(&world, "i0", 0, 0, "+1 +2 +3");
	ck_assert_uint_eq(world_held(&world, 0), 3);
	ck_assert_uint_eq(world_held(&world, 1), 0);
	world_ops(&world, "i0", 0, 3, "-3 -1 +4");
	ck_assert_uint_eq(world_held(&world, 0), 0); /* a hole at the front */
	world_ops(&world, "i0", 0, 6, "+1");
	ck_assert_uint_eq(world_held(&world, 0), 2);
	ck_assert_uint_eq(world.reg->stats.gaps, 0);
	ck_assert_uint_eq(world.reg->stats.keys, 3);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_FULL);
}
END_TEST

START_TEST(an_admit_twice_is_one_holder)
{
	world_register(&world, "i0", 0, NULL);
	world_ops(&world, "i0", 0, 0, "+1 +1 +1 -1");
	ck_assert_uint_eq(world_held(&world, 0), 0);
	world_ops(&world, "i0", 0, 4, "-1 -9");
	ck_assert_uint_eq(world.reg->stats.unknown_evicts, 2);
}
END_TEST

START_TEST(places_count_alone)
{
	world_register(&world, "i0", 0, NULL);
	world_ops(&world, "i0", 0, 0, "+1 +2");
	world_ops_at(&world, "i0", 0, "LocalDiskBackend", 0, "+1 +2 +3");
	world_ops(&world, "i0", 0, 2, "-1 -2");
	ck_assert_uint_eq(world_held(&world, 0), 3); /* on disk still */
	world_ops_at(&world, "i0", 0, "LocalDiskBackend", 3, "-2");
	ck_assert_uint_eq(world_held(&world, 0), 1);
	ck_assert_uint_eq(world.reg->stats.gaps, 0);
}
END_TEST

/* Two locations of one tier: clearing one leaves the other. */
START_TEST(places_of_one_tier)
{
	world_register(&world, "i0", 0, NULL);
	world_ops_at(&world, "i0", 0, "LocalDiskBackend", 0, "+1 +2");
	world_ops_at(&world, "i0", 0, "GdsBackend", 0, "+1");
	world_ops_at(&world, "i0", 0, "LocalDiskBackend", 9, "+7"); /* a gap */
	ck_assert_uint_eq(world_held(&world, 0), 1);
	ck_assert_uint_eq(world.reg->stats.gaps, 1);
}
END_TEST

START_TEST(ranks_hold_together)
{
	world_register(&world, "i0", 0, NULL);
	world_register(&world, "i0", 1, NULL);
	world_ops(&world, "i0", 0, 0, "+1 +2 +3");
	ck_assert_uint_eq(world_held(&world, 0), 0);
	world_ops(&world, "i0", 1, 0, "+1 +2");
	ck_assert_uint_eq(world_held(&world, 0), 2);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_FULL);
}
END_TEST

START_TEST(more_ranks_than_sources)
{
	for (uint32_t r = 0; r < 16; r++) {
		world_register(&world, "i0", r, NULL);
		world_ops(&world, "i0", r, 0, "+1 +2");
	}
	ck_assert_uint_eq(world_held(&world, 0), 2);
	world_ops(&world, "i0", 7, 2, "-2");
	ck_assert_uint_eq(world_held(&world, 0), 1);
}
END_TEST

START_TEST(deregistered_is_forgotten)
{
	world_register(&world, "i0", 0, NULL);
	world_ops(&world, "i0", 0, 0, "+1");
	world_push(&world, "{'type':'DeRegisterMsg','instance_id':'i0','worker_id':0,"
			   "'ip':'10.0.0.1','port':8500}");
	ck_assert_uint_eq(world_held(&world, 0), 0);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_NONE);
	ck_assert_uint_eq(world.reg->count, 0);
	ck_assert_uint_eq(world.reg->stats.keys, 0);
	world_push(&world, "{'type':'DeRegisterMsg','instance_id':'unknown','worker_id':0,"
			   "'ip':'10.0.0.1','port':8500}");
	ck_assert_uint_eq(world.reg->count, 0);
}
END_TEST

/* One rank gone, one alive: chunks need both. */
START_TEST(half_an_instance_claims_nothing)
{
	world_register(&world, "i0", 0, NULL);
	world_register(&world, "i0", 1, NULL);
	world_ops(&world, "i0", 0, 0, "+1");
	world_ops(&world, "i0", 1, 0, "+1");
	world_push(&world, "{'type':'DeRegisterMsg','instance_id':'i0','worker_id':1,"
			   "'ip':'10.0.0.1','port':8501}");
	ck_assert_uint_eq(world_held(&world, 0), 0);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_BLIND);
	world_register(&world, "i0", 1, NULL);
	world_ops(&world, "i0", 1, 0, "+1");
	ck_assert_uint_eq(world_held(&world, 0), 1);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_FULL);
}
END_TEST

START_TEST(registering_again_is_a_new_process)
{
	world_register(&world, "i0", 0, NULL);
	world_ops(&world, "i0", 0, 0, "+1 +2");
	world_register(&world, "i0", 0, NULL);
	ck_assert_uint_eq(world_held(&world, 0), 0);
	world_ops(&world, "i0", 0, 0, "+1");
	ck_assert_uint_eq(world_held(&world, 0), 1);
	ck_assert_uint_eq(world.reg->stats.gaps, 0);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_FULL);
}
END_TEST

/* --- sequence --- */

START_TEST(gap_without_heartbeats_purges)
{
	world_register(&world, "i0", 0, NULL);
	world_ops(&world, "i0", 0, 0, "+1 +2");
	world_ops(&world, "i0", 0, 5, "+3");
	ck_assert_uint_eq(world.reg->stats.gaps, 1);
	ck_assert_uint_eq(world_held(&world, 0), 0);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_BLIND);
	world_ops(&world, "i0", 0, 6, "+1");
	ck_assert_uint_eq(world_held(&world, 0), 1); /* what it says is true again */
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_BLIND);
}
END_TEST

START_TEST(gap_with_heartbeats_asks_once_a_minute)
{
	world_register(&world, "i0", 0, NULL);
	world_heartbeat(&world, "i0", 0, NULL);
	ck_assert(!world_answered(&world, "full_sync"));
	world_ops(&world, "i0", 0, 3, "+3");
	world_heartbeat(&world, "i0", 0, NULL);
	ck_assert(world_answered(&world, "full_sync"));
	ck_assert(world_answered(&world, "sequence_gap"));
	for (int second = 0; second < 59; second++) {
		world.now_ns += SECOND;
		world_heartbeat(&world, "i0", 0, NULL);
		ck_assert(!world_answered(&world, "full_sync"));
	}
	world.now_ns += SECOND;
	world_heartbeat(&world, "i0", 0, NULL);
	ck_assert(world_answered(&world, "full_sync"));
	ck_assert_uint_eq(world.reg->stats.syncs_asked, 2);
}
END_TEST

START_TEST(sequence_from_zero_again_is_a_new_process)
{
	world_register(&world, "i0", 0, NULL);
	world_ops(&world, "i0", 0, 0, "+1 +2");
	world_ops_at(&world, "i0", 0, "LocalDiskBackend", 0, "+1 +2 +3");
	world_ops(&world, "i0", 0, 0, "+1");
	ck_assert_uint_eq(world_held(&world, 0), 1); /* the disk's content went too */
	ck_assert_uint_eq(world.reg->stats.restarts, 1);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_FULL);
	world_ops_at(&world, "i0", 0, "LocalDiskBackend", 0, "+2");
	ck_assert_uint_eq(world_held(&world, 0), 2);
	ck_assert_uint_eq(world.reg->stats.gaps, 0);
}
END_TEST

/* kvway was started later than a worker that sends no heartbeats. */
START_TEST(met_midway_is_blind)
{
	world_ops(&world, "named", 0, 17, "+1 +2");
	ck_assert_uint_eq(world_held(&world, 2), 2); /* true, though not all */
	ck_assert_int_eq(world.coverages[2], KVW_COVERAGE_BLIND);
	world_ops(&world, "named", 0, 19, "-2");
	ck_assert_uint_eq(world_held(&world, 2), 1);
	ck_assert_uint_eq(world.reg->stats.gaps, 0);
}
END_TEST

START_TEST(heard_from_the_beginning_is_whole)
{
	world_ops(&world, "named", 0, 0, "+1 +2");
	ck_assert_int_eq(world.coverages[2], KVW_COVERAGE_FULL);
	world.now_ns += SECOND;
	world_register(&world, "named", 0, "10.0.0.3"); /* it came by the slower socket */
	ck_assert_uint_eq(world_held(&world, 2), 2);
	world_ops(&world, "named", 0, 2, "+3");
	ck_assert_uint_eq(world_held(&world, 2), 3);
	ck_assert_uint_eq(world.reg->stats.gaps, 0);
}
END_TEST

START_TEST(too_many_places)
{
	char name[16];

	world_register(&world, "i0", 0, NULL);
	for (int i = 0; i < KVW_LMREG_PLACES + 3; i++) {
		snprintf(name, sizeof(name), "place%d", i);
		world_ops_at(&world, "i0", 0, name, 0, "+1");
	}
	ck_assert_uint_eq(world.reg->stats.refused[KVW_LMCACHE_NO_ROOM], 3);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_BLIND);
}
END_TEST

START_TEST(key_limit)
{
	char ops[32];

	world_register(&world, "i0", 0, NULL);
	for (unsigned i = 0; i < 5000; i++) {
		snprintf(ops, sizeof(ops), "+%u", i + 1);
		world_ops(&world, "i0", 0, i, ops);
	}
	ck_assert_uint_eq(world.reg->stats.keys, 4096);
	ck_assert_uint_eq(world.reg->stats.dropped, 5000 - 4096);
	world_ops(&world, "i0", 0, 5000, "+1"); /* known: nothing to drop */
	ck_assert_uint_eq(world.reg->stats.dropped, 5000 - 4096);
}
END_TEST

/* --- silence --- */

START_TEST(silence_after_heartbeats)
{
	world_register(&world, "i0", 0, NULL);
	world_heartbeat(&world, "i0", 0, NULL);
	world_ops(&world, "i0", 0, 0, "+1");
	for (int second = 0; second <= 30; second++, world.now_ns += SECOND)
		kvw_lmreg_tick(world.reg, world.now_ns);
	ck_assert_uint_eq(world_held(&world, 0), 1);
	kvw_lmreg_tick(world.reg, world.now_ns);
	ck_assert_uint_eq(world_held(&world, 0), 0);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_NONE);
	ck_assert_uint_eq(world.reg->stats.timeouts, 1);
}
END_TEST

START_TEST(silence_without_heartbeats_means_nothing)
{
	world_register(&world, "i0", 0, NULL);
	world_ops(&world, "i0", 0, 0, "+1");
	for (int second = 0; second < 3600; second++, world.now_ns += SECOND)
		kvw_lmreg_tick(world.reg, world.now_ns);
	ck_assert_uint_eq(world_held(&world, 0), 1);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_FULL);
}
END_TEST

/* The router itself was stopped for an hour and could not receive heartbeats. */
START_TEST(own_silence_is_not_theirs)
{
	world_heartbeat(&world, "i0", 0, NULL);
	kvw_lmreg_tick(world.reg, world.now_ns);
	world.now_ns += 3600 * SECOND;
	kvw_lmreg_tick(world.reg, world.now_ns);
	ck_assert_uint_eq(world.reg->count, 1);
	for (int second = 0; second <= 31; second++, world.now_ns += SECOND)
		kvw_lmreg_tick(world.reg, world.now_ns);
	ck_assert_uint_eq(world.reg->count, 0);
}
END_TEST

START_TEST(worker_that_refuses_connections)
{
	world_register(&world, "i0", 0, NULL);
	world_ops(&world, "i0", 0, 0, "+1");
	kvw_lmreg_worker_down(world.reg, 0, world.now_ns - 1); /* registered since it was up */
	ck_assert_uint_eq(world_held(&world, 0), 1);
	kvw_lmreg_worker_down(world.reg, 1, world.now_ns); /* another one */
	ck_assert_uint_eq(world_held(&world, 0), 1);
	kvw_lmreg_worker_down(world.reg, 0, world.now_ns + SECOND);
	ck_assert_uint_eq(world_held(&world, 0), 0);
	ck_assert_uint_eq(world.reg->stats.lost, 1);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_NONE);
}
END_TEST

START_TEST(purged_by_the_strategy_is_reported_again)
{
	world_register(&world, "i0", 0, NULL);
	world_ops(&world, "i0", 0, 0, "+1 +2");
	kvw_kvindex_purge(world.index, 0);
	world.coverages[0] = KVW_COVERAGE_BLIND;
	ck_assert_uint_eq(world_held(&world, 0), 0);
	kvw_lmreg_worker_purged(world.reg, 0);
	ck_assert_uint_eq(world_held(&world, 0), 2);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_FULL);
	world_ops(&world, "i0", 0, 2, "-1");
	ck_assert_uint_eq(world_held(&world, 0), 0);
	kvw_lmreg_worker_purged(world.reg, 3);
	kvw_lmreg_worker_purged(world.reg, 900);
}
END_TEST

/* --- other versions: constructed, not recorded --- */

/* Up to 0.3.11: registration and heartbeats on the pull socket, distributed_url, single operations. */
START_TEST(version_03)
{
	world_push(&world, "{'type':'RegisterMsg','instance_id':'old','worker_id':0,"
			   "'ip':'10.0.0.1','port':8001,'distributed_url':'10.0.0.1:8201'}");
	world_push(&world, "{'type':'KVAdmitMsg','instance_id':'old','worker_id':0,'key':1,"
			   "'location':'LocalDiskBackend'}");
	world_push(&world, "{'type':'KVAdmitMsg','instance_id':'old','worker_id':0,'key':2,"
			   "'location':'LocalDiskBackend','seq_num':0}");
	ck_assert_uint_eq(world_held(&world, 0), 2);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_FULL);
	world_push(&world, "{'type':'KVEvictMsg','instance_id':'old','worker_id':0,'key':2,"
			   "'location':'LocalDiskBackend'}");
	ck_assert_uint_eq(world_held(&world, 0), 1);
	ck_assert_uint_eq(world.reg->stats.gaps, 0);
	/* the router restarts: a heartbeat that cannot be answered announces it, and it stays blind */
	world_close(&world);
	setup();
	world_push(&world, "{'type':'HeartbeatMsg','instance_id':'old','worker_id':0,"
			   "'ip':'10.0.0.1','port':8001,'distributed_url':null}");
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_BLIND);
	ck_assert_uint_eq(world.reg->stats.syncs_asked, 0);
}
END_TEST

/* 0.4: as 0.5, but members unknown here, in another order. */
START_TEST(version_04)
{
	world_ask(&world, "{'port':8001,'ip':'10.0.0.1','zone':'a','worker_id':0,"
			  "'instance_id':'four','type':'RegisterMsg'}");
	ck_assert(world_answered(&world, "RegisterRetMsg"));
	world_ops(&world, "four", 0, 0, "+1");
	ck_assert_uint_eq(world_held(&world, 0), 1);
}
END_TEST

START_TEST(misplaced)
{
	world_ask(&world, "{'type':'DeRegisterMsg','instance_id':'i0','worker_id':0,"
			  "'ip':'10.0.0.1','port':8500}");
	ck_assert(world_answered(&world, "ErrorMsg"));
	world_push(&world, "{'type':'FullSyncStatusMsg','instance_id':'i0','worker_id':0,"
			   "'sync_id':'s'}");
	world_push(&world, "{'type':'BatchedP2PLookupMsg','hashes':[1],'instance_id':'a','worker_id':0}");
	ck_assert_uint_eq(world.reg->stats.refused[KVW_LMCACHE_MISPLACED], 3);
	ck_assert_uint_eq(world.reg->count, 0);
}
END_TEST

/* --- recorded --- */

/* Chunks of tokens first, first + 1, ... that the index has for worker 0, by LMCache's default hash. */
static uint32_t chunks_held(uint32_t first, uint32_t count, uint32_t chunk)
{
	static struct kvw_kvindex_hits hits;
	struct kvw_lmcache_recipe recipe = {.chunk_size = chunk, .seed = "0"};
	uint32_t tokens[4096];
	uint64_t keys[256], state;
	size_t made = 0;

	for (uint32_t i = 0; i < count; i++)
		tokens[i] = first + i;
	ck_assert_int_eq(kvw_lmcache_begin(&recipe, &state), KVW_OK);
	ck_assert_int_eq(
		kvw_lmcache_hash(&recipe, &state, tokens, count, keys, 256, &made), KVW_OK);
	kvw_kvindex_match(world.index, 0, keys, (uint32_t)made, chunk, &hits);
	return hits.blocks[0];
}

/* LMCache 0.5.6, run A of the recordings: what a real worker said is what the index knows after it. */
START_TEST(recorded_056)
{
	const struct kvw_lmreg_worker named[] = {{"i0", "10.0.0.1"}, {"i1", "10.0.0.2"}};
	struct lines lines = lines_read("lmcache_frames.txt");
	size_t used = 0;

	teardown();
	world_open(&world, named, 2);
	for (size_t i = 0; i < lines.count; i += 2) {
		const char *means = line_value(lines.items[i + 1], "means");
		struct bytes frame = bytes_of_hex(line_value(lines.items[i], "frame"));
		bool asked = strncmp(means, "Register", 8) == 0 ||
			     strncmp(means, "Heartbeat", 9) == 0 ||
			     strncmp(means, "FullSyncSta", 11) == 0;

		if (strstr(means, " i0/0 ") != NULL) {
			world_frame(&world, slice_of(frame), asked);
			used++;
		}
		if (used == 3) /* registered, store 1000 40, store 1000 320 */
			ck_assert_uint_eq(chunks_held(1000, 320, 16), 20);
		if (used == 6) { /* store 5000 320 evicted the first ones */
			ck_assert_uint_eq(chunks_held(1000, 320, 16), 0);
			ck_assert_uint_eq(chunks_held(5000, 320, 16), 20);
			ck_assert_uint_eq(world.reg->stats.gaps, 0);
		}
		if (used == 10) /* the sync has listed them all, without its end */
			ck_assert_uint_eq(chunks_held(5000, 320, 16), 20);
		if (used == 12) { /* Status */
			ck_assert(world_answered(&world, "FullSyncStatusRetMsg"));
			ck_assert_uint_eq(world.reg->stats.syncs_done, 1);
		}
		bytes_free(&frame);
		if (strstr(means, "DeRegisterMsg i0") != NULL)
			break;
		if (used == 14)
			ck_assert_uint_eq(world.reg->stats.keys, 1); /* Clear left the pinned one */
	}
	ck_assert_uint_eq(used, 15);
	ck_assert_uint_eq(world.reg->count, 0);
	ck_assert_uint_eq(world.reg->stats.unknown_evicts, 0);
	lines_free(&lines);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("registry");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, registers_stores_evicts);
	tcase_add_test(tc, an_admit_twice_is_one_holder);
	tcase_add_test(tc, places_count_alone);
	tcase_add_test(tc, places_of_one_tier);
	tcase_add_test(tc, ranks_hold_together);
	tcase_add_test(tc, more_ranks_than_sources);
	tcase_add_test(tc, deregistered_is_forgotten);
	tcase_add_test(tc, half_an_instance_claims_nothing);
	tcase_add_test(tc, registering_again_is_a_new_process);
	tcase_add_test(tc, gap_without_heartbeats_purges);
	tcase_add_test(tc, gap_with_heartbeats_asks_once_a_minute);
	tcase_add_test(tc, sequence_from_zero_again_is_a_new_process);
	tcase_add_test(tc, met_midway_is_blind);
	tcase_add_test(tc, heard_from_the_beginning_is_whole);
	tcase_add_test(tc, too_many_places);
	tcase_add_test(tc, key_limit);
	tcase_add_test(tc, silence_after_heartbeats);
	tcase_add_test(tc, silence_without_heartbeats_means_nothing);
	tcase_add_test(tc, own_silence_is_not_theirs);
	tcase_add_test(tc, worker_that_refuses_connections);
	tcase_add_test(tc, purged_by_the_strategy_is_reported_again);
	tcase_add_test(tc, version_03);
	tcase_add_test(tc, version_04);
	tcase_add_test(tc, misplaced);
	tcase_add_test(tc, recorded_056);
	return run_tcase("lmcache registry", tc);
}
