/*
 * keep_test.c - what the registry knows passes to the next process, which goes on from there.
 */
#include <stdlib.h>
#include <string.h>

#include "feeds/kvspace.h"
#include "invariants.h"
#include "tests/unit/suite.h"
#include "world.h"

#define RECORDS 512

static const struct kvw_lmreg_worker workers[WORLD_WORKERS] = {
	{"", "10.0.0.1"}, {"", "10.0.0.2"}, {"named", "10.0.0.3"}, {"", "10.0.0.4"}};
static struct world before, after;

/* Records on their way. */
static struct box {
	size_t count;
	struct {
		enum kvw_keep_kind kind;
		uint8_t *bytes;
		size_t len;
	} records[RECORDS];
} box;

static void setup(void)
{
	world_open(&before, workers, WORLD_WORKERS);
	world_open(&after, workers, WORLD_WORKERS);
}

static void empty_box(void)
{
	while (box.count > 0)
		free(box.records[--box.count].bytes);
}

static void teardown(void)
{
	empty_box();
	world_close(&before);
	world_close(&after);
}

static enum kvw_err put(void *arg, enum kvw_keep_kind kind, const void *record, size_t len)
{
	struct box *to = arg;

	ck_assert_uint_lt(to->count, RECORDS);
	ck_assert_uint_le(len, KVW_KEPT_MOST);
	to->records[to->count].bytes = malloc(len + 1);
	ck_assert_ptr_nonnull(to->records[to->count].bytes);
	memcpy(to->records[to->count].bytes, record, len);
	to->records[to->count].kind = kind;
	to->records[to->count++].len = len;
	return KVW_OK;
}

static void keep(const struct world *world)
{
	const struct kvw_keep_out out = {.put = put, .arg = &box};

	empty_box();
	ck_assert_int_eq(kvw_lmreg_keep(world->reg, &out), KVW_OK);
}

static void recall(struct world *world)
{
	static const uint64_t keys[] = {1, 2, 3, 4, 5};
	const char *fault;

	world->now_ns = before.now_ns + SECOND;
	for (size_t i = 0; i < box.count; i++) {
		kvw_lmreg_recall(
			world->reg, box.records[i].kind, box.records[i].bytes, box.records[i].len, world->now_ns);
		kvw_lmreg_tick(world->reg, world->now_ns);
		for (int w = 0; w < WORLD_WORKERS; w++)
			ck_assert_int_ne(world->coverages[w], KVW_COVERAGE_FULL);
	}
	kvw_lmreg_recall_end(world->reg, true, world->now_ns);
	fault = lmreg_fault(world->reg, keys, 5);
	ck_assert_msg(fault == NULL, "%s", fault);
}

static void move(void)
{
	keep(&before);
	recall(&after);
}

START_TEST(the_next_one_goes_on_without_asking)
{
	world_register(&before, "i0", 0, NULL);
	world_heartbeat(&before, "i0", 0, NULL);
	world_ops(&before, "i0", 0, 0, "+1 +2 +3");
	world_ops_at(&before, "i0", 0, "LocalDiskBackend", 0, "+1 +2 +3 +4");
	move();
	ck_assert_int_eq(after.coverages[0], KVW_COVERAGE_FULL);
	ck_assert_uint_eq(world_held(&after, 0), 4);
	ck_assert_uint_eq(after.reg->stats.keys, 7);
	world_heartbeat(&after, "i0", 0, NULL);
	ck_assert(!world_answered(&after, "full_sync"));
	world_ops(&after, "i0", 0, 3, "-2 +5");
	world_ops_at(&after, "i0", 0, "LocalDiskBackend", 4, "-2");
	ck_assert_uint_eq(world_held(&after, 0), 1);
	ck_assert_uint_eq(after.reg->stats.gaps, 0);
	world_heartbeat(&after, "i0", 0, NULL);
	ck_assert(!world_answered(&after, "full_sync"));
	ck_assert_int_eq(after.coverages[0], KVW_COVERAGE_FULL);
	after.now_ns += KVW_LMREG_PROVE_NS + SECOND; /* what followed has shown that nothing was lost */
	world_heartbeat(&after, "i0", 0, NULL);
	ck_assert(!world_answered(&after, "full_sync"));
	ck_assert_uint_eq(after.reg->stats.syncs_asked, 0);
}
END_TEST

/* An eviction that was lost while no process listened is not believed in. */
START_TEST(a_gap_voids_the_location_and_is_asked_for)
{
	world_register(&before, "i0", 0, NULL);
	world_heartbeat(&before, "i0", 0, NULL);
	world_ops(&before, "i0", 0, 0, "+1 +2 +3");
	move();
	world_ops(&after, "i0", 0, 4, "+4"); /* number 3 was an eviction */
	ck_assert_uint_eq(world_held(&after, 0), 0);
	ck_assert_int_eq(after.coverages[0], KVW_COVERAGE_BLIND);
	world_heartbeat(&after, "i0", 0, NULL);
	ck_assert(world_answered(&after, "full_sync") && world_answered(&after, "sequence_gap"));
}
END_TEST

/* The last thing that it said was lost, and nothing follows that would show it. */
START_TEST(a_rank_that_says_nothing_is_asked_once)
{
	world_register(&before, "i0", 0, NULL);
	world_heartbeat(&before, "i0", 0, NULL);
	world_ops(&before, "i0", 0, 0, "+1 +2 +3");
	move();
	after.now_ns += KVW_LMREG_PROVE_NS - SECOND;
	world_heartbeat(&after, "i0", 0, NULL);
	ck_assert(!world_answered(&after, "full_sync"));
	after.now_ns += SECOND;
	world_heartbeat(&after, "i0", 0, NULL);
	ck_assert(world_answered(&after, "full_sync"));
	ck_assert_int_eq(after.coverages[0], KVW_COVERAGE_FULL);
	after.now_ns += KVW_LMREG_PROVE_NS;
	world_heartbeat(&after, "i0", 0, NULL);
	ck_assert(!world_answered(&after, "full_sync"));
}
END_TEST

START_TEST(a_new_process_is_noticed)
{
	world_register(&before, "i0", 0, NULL);
	world_ops(&before, "i0", 0, 0, "+1 +2 +3");
	world_register(&before, "i1", 0, "10.0.0.2");
	world_ops(&before, "i1", 0, 0, "+1 +2 +3");
	move();
	world_ops(&after, "i0", 0, 0, "+1"); /* its registration was lost */
	ck_assert_uint_eq(world_held(&after, 0), 1);
	ck_assert_int_eq(after.coverages[0], KVW_COVERAGE_FULL);
	world_register(&after, "i1", 0, "10.0.0.2");
	ck_assert_uint_eq(world_held(&after, 1), 0);
	ck_assert_int_eq(after.coverages[1], KVW_COVERAGE_FULL);
}
END_TEST

/* Asked by one process, a rank is not asked by the next within the minute in which it would not answer. */
START_TEST(the_minute_passes_on)
{
	world_heartbeat(&before, "i0", 0, NULL);
	ck_assert(world_answered(&before, "full_sync"));
	move();
	ck_assert_int_eq(after.coverages[0], KVW_COVERAGE_BLIND);
	world_heartbeat(&after, "i0", 0, NULL);
	ck_assert(!world_answered(&after, "full_sync"));
	after.now_ns += KVW_LMREG_SYNC_AGAIN_NS;
	world_heartbeat(&after, "i0", 0, NULL);
	ck_assert(world_answered(&after, "full_sync"));
}
END_TEST

/* It does not pass: what has come is kept, and the rest is asked for later. */
START_TEST(a_sync_that_is_under_way_ends)
{
	world_heartbeat(&before, "i0", 0, NULL);
	world_ask(&before, "{'type':'FullSyncStartMsg','instance_id':'i0','worker_id':0,'location':'LocalCPUBackend',"
			   "'sync_id':'s1','total_keys':4,'batch_count':2}");
	world_push(&before, "{'type':'FullSyncBatchMsg','instance_id':'i0','worker_id':0,'location':'LocalCPUBackend',"
			    "'sync_id':'s1','batch_id':0,'keys':[1,2]}");
	move();
	ck_assert_uint_eq(world_held(&after, 0), 2);
	ck_assert_int_eq(after.coverages[0], KVW_COVERAGE_BLIND);
	world_ask(&after, "{'type':'FullSyncStatusMsg','instance_id':'i0','worker_id':0,'sync_id':'s1'}");
	ck_assert(world_answered_bytes(&after, "can_exit_freeze\xc3", 16));
	after.now_ns += KVW_LMREG_SYNC_AGAIN_NS;
	world_heartbeat(&after, "i0", 0, NULL);
	ck_assert(world_answered(&after, "full_sync"));
}
END_TEST

START_TEST(ranks_that_are_gone_stay_a_gap)
{
	world_register(&before, "i0", 0, NULL);
	world_register(&before, "i0", 1, NULL);
	world_ops(&before, "i0", 0, 0, "+1");
	world_ops(&before, "i0", 1, 0, "+1");
	world_push(&before, "{'type':'DeRegisterMsg','instance_id':'i0','worker_id':1,'ip':'10.0.0.1','port':8501}");
	move();
	ck_assert_uint_eq(world_held(&after, 0), 0);
	ck_assert_int_eq(after.coverages[0], KVW_COVERAGE_BLIND);
	world_register(&after, "i0", 1, NULL);
	world_ops(&after, "i0", 1, 0, "+1");
	ck_assert_uint_eq(world_held(&after, 0), 1);
	ck_assert_int_eq(after.coverages[0], KVW_COVERAGE_FULL);
}
END_TEST

/* Found by prompts, which an address alone would not show; by configuration; by address. */
START_TEST(instances_stay_their_workers)
{
	world_register(&before, "stray", 0, "10.0.0.8");
	world_register(&before, "learned", 0, "10.0.0.9");
	world_register(&before, "named", 0, "10.0.0.7");
	world_register(&before, "i1", 0, "10.0.0.2");
	world_ops(&before, "learned", 0, 0, "+1 +2");
	world_ops(&before, "named", 0, 0, "+1 +2 +3");
	world_ops(&before, "i1", 0, 0, "+1");
	kvw_lmreg_map(before.reg, kvw_lmreg_find(before.reg, KVW_SLICE("learned")), 3, KVW_LMREG_LEARNED);
	move();
	ck_assert_uint_eq(after.reg->count, 4);
	ck_assert_uint_eq(world_held(&after, 1), 1);
	ck_assert_uint_eq(world_held(&after, 2), 3);
	ck_assert_uint_eq(world_held(&after, 3), 2);
	ck_assert_int_eq(kvw_lmreg_find(after.reg, KVW_SLICE("learned"))->how, KVW_LMREG_LEARNED);
	ck_assert_uint_eq(kvw_lmreg_find(after.reg, KVW_SLICE("stray"))->worker, KVW_LMREG_NONE);
}
END_TEST

/* A recipe that prompts have proved stays; the next one may know it by another number. */
START_TEST(the_recipe_passes)
{
	const struct kvw_lmcache_recipe configured = {.chunk_size = 256, .seed = "0"},
					found = {.chunk_size = 64, .seed = "123", .partial_chunk = true};
	struct kvw_kvspaces *here, *there;
	uint32_t first, space;

	ck_assert_int_eq(kvw_kvspaces_create(&here), KVW_OK);
	ck_assert_int_eq(kvw_kvspaces_create(&there), KVW_OK);
	ck_assert_int_eq(kvw_kvspaces_lmcache(here, &configured, &first), KVW_OK);
	ck_assert_int_eq(kvw_kvspaces_lmcache(here, &found, &space), KVW_OK);
	ck_assert_int_eq(kvw_kvspaces_engine(there, 16, &first), KVW_OK);
	ck_assert_int_eq(kvw_kvspaces_lmcache(there, &configured, &first), KVW_OK);
	before.reg->options.spaces = here;
	after.reg->options.spaces = there;
	after.reg->options.space = first;
	for (uint32_t i = 0; i < 2; i++) {
		world_register(&before, i == 0 ? "i0" : "i1", 0, i == 0 ? NULL : "10.0.0.2");
		world_ops(&before, i == 0 ? "i0" : "i1", 0, 0, "+1 +2");
		kvw_lmreg_set_space(before.reg, before.reg->by_worker[i], space);
	}
	before.reg->by_worker[0]->matched = 3; /* of the other it is a guess */
	move();
	ck_assert_uint_eq(kvw_kvspaces_count(there), 3);
	ck_assert_uint_eq(after.reg->by_worker[0]->space, 2);
	ck_assert_uint_eq(after.reg->by_worker[0]->matched, 3);
	ck_assert_uint_eq(world_held_in(&after, 0, 2), 2);
	ck_assert_uint_eq(after.reg->by_worker[1]->space, first);
	after.reg->options.spaces = before.reg->options.spaces = NULL;
	kvw_kvspaces_destroy(here);
	kvw_kvspaces_destroy(there);
}
END_TEST

/* Bounds of the next process hold; what finds no room is only missed. */
START_TEST(limits_hold)
{
	world_register(&before, "i0", 0, NULL);
	world_ops(&before, "i0", 0, 0, "+1 +2 +3 +4 +5 +6 +7 +8");
	keep(&before);
	after.reg->options.key_limit = 5;
	recall(&after);
	ck_assert_uint_eq(after.reg->stats.keys, 5);
	ck_assert_uint_eq(after.reg->stats.dropped, 3);
}
END_TEST

/* Each record cut, longer, or of other bytes: nothing is believed that came with it, and nothing breaks. */
START_TEST(nonsense_makes_nothing_whole)
{
	world_register(&before, "i0", 0, NULL);
	world_heartbeat(&before, "i0", 0, NULL);
	world_register(&before, "i0", 1, NULL);
	world_ops(&before, "i0", 0, 0, "+1 +2 +3");
	world_ops(&before, "i0", 1, 0, "+1 +2 +3");
	keep(&before);
	for (size_t i = 0; i < box.count; i++) {
		for (size_t len = 0; len < box.records[i].len; len++) {
			size_t whole = box.records[i].len;

			if (box.records[i].kind == KVW_KEPT_KEYS && len % 8 == 0)
				continue; /* fewer keys */
			world_close(&after);
			world_open(&after, workers, WORLD_WORKERS);
			box.records[i].len = len;
			recall(&after);
			ck_assert_int_ne(after.coverages[0], KVW_COVERAGE_FULL);
			box.records[i].len = whole;
		}
	}
	world_close(&after);
	world_open(&after, workers, WORLD_WORKERS);
	keep(&before);
	recall(&after);
	ck_assert_int_eq(after.coverages[0], KVW_COVERAGE_FULL);
	for (size_t i = 0; i < box.count; i++) /* the same again: it is there already */
		kvw_lmreg_recall(after.reg, box.records[i].kind, box.records[i].bytes, box.records[i].len, after.now_ns);
	kvw_lmreg_recall_end(after.reg, true, after.now_ns);
	ck_assert_uint_eq(after.reg->count, 1);
	ck_assert_uint_eq(after.reg->stats.keys, 6);
}
END_TEST

/* A worker that goes while the next process reads takes what is still to come with it. */
START_TEST(a_worker_may_go_meanwhile)
{
	world_register(&before, "i0", 0, NULL);
	world_ops(&before, "i0", 0, 0, "+1 +2 +3");
	keep(&before);
	for (size_t i = 0; i < box.count; i++) {
		if (box.records[i].kind == KVW_KEPT_KEYS)
			kvw_lmreg_worker_down(after.reg, 0, before.now_ns);
		kvw_lmreg_recall(after.reg, box.records[i].kind, box.records[i].bytes, box.records[i].len, after.now_ns);
	}
	kvw_lmreg_recall_end(after.reg, true, after.now_ns);
	ck_assert_uint_eq(after.reg->count, 0);
	ck_assert_uint_eq(after.reg->stats.keys, 0);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("keep");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, the_next_one_goes_on_without_asking);
	tcase_add_test(tcase, a_gap_voids_the_location_and_is_asked_for);
	tcase_add_test(tcase, a_rank_that_says_nothing_is_asked_once);
	tcase_add_test(tcase, a_new_process_is_noticed);
	tcase_add_test(tcase, the_minute_passes_on);
	tcase_add_test(tcase, a_sync_that_is_under_way_ends);
	tcase_add_test(tcase, ranks_that_are_gone_stay_a_gap);
	tcase_add_test(tcase, instances_stay_their_workers);
	tcase_add_test(tcase, the_recipe_passes);
	tcase_add_test(tcase, limits_hold);
	tcase_add_test(tcase, nonsense_makes_nothing_whole);
	tcase_add_test(tcase, a_worker_may_go_meanwhile);
	return run_tcase("lmcache-keep", tcase);
}
