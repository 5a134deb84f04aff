/*
 * sync_test.c - full syncs: asked for, listed, interrupted, mixed with what happens meanwhile.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"
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

static void start(const char *id, unsigned batches)
{
	char json[400];

	snprintf(json, sizeof(json),
		"{'type':'FullSyncStartMsg','instance_id':'i0','worker_id':0,"
		"'location':'LocalCPUBackend','sync_id':'%s','total_keys':4,'batch_count':%u}",
		id, batches);
	world_ask(&world, json);
}

static void batch(const char *id, unsigned number, const char *keys)
{
	char json[400];

	snprintf(json, sizeof(json),
		"{'type':'FullSyncBatchMsg','instance_id':'i0','worker_id':0,"
		"'location':'LocalCPUBackend','sync_id':'%s','batch_id':%u,'keys':[%s]}",
		id, number, keys);
	world_push(&world, json);
}

static void end(const char *id)
{
	char json[400];

	snprintf(json, sizeof(json),
		"{'type':'FullSyncEndMsg','instance_id':'i0','worker_id':0,"
		"'location':'LocalCPUBackend','sync_id':'%s','actual_total_keys':4}",
		id);
	world_push(&world, json);
}

/* Asks for the status; checks the answer byte for byte but for the progress. */
static void check_status(
	const char *id, bool complete, bool can_exit, const uint32_t *missing, uint32_t count)
{
	struct kvw_mp_out out;
	uint8_t expected[256];
	char json[400];

	snprintf(json, sizeof(json),
		"{'type':'FullSyncStatusMsg','instance_id':'i0','worker_id':0,'sync_id':'%s'}", id);
	world_ask(&world, json);
	kvw_mp_out_init(&out, expected, sizeof(expected));
	kvw_mp_put_str(&out, KVW_SLICE("is_complete"));
	kvw_mp_put_bool(&out, complete);
	ck_assert(world_answered_bytes(&world, expected, out.len));
	kvw_mp_out_init(&out, expected, sizeof(expected));
	kvw_mp_put_str(&out, KVW_SLICE("can_exit_freeze"));
	kvw_mp_put_bool(&out, can_exit);
	kvw_mp_put_str(&out, KVW_SLICE("missing_batches"));
	kvw_mp_put_array(&out, count);
	for (uint32_t i = 0; i < count; i++)
		kvw_mp_put_uint(&out, missing[i]);
	ck_assert(world_answered_bytes(&world, expected, out.len));
}

/* A router that has just been started meets a worker that lives for long. */
static void meet(void)
{
	world_heartbeat(&world, "i0", 0, NULL);
	ck_assert(world_answered(&world, "full_sync"));
	ck_assert(world_answered(&world, "controller_restart"));
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_BLIND);
}

START_TEST(after_a_restart)
{
	meet();
	world_ops(&world, "i0", 0, 900, "+1 +2"); /* before it froze */
	start("s", 2);
	ck_assert(world_answered(&world, "FullSyncStartRetMsg"));
	ck_assert_uint_eq(world_held(&world, 0), 0);
	ck_assert_str_eq(world.wrong[0], "in a full sync");
	batch("s", 0, "1,2");
	check_status("s", false, false, (const uint32_t[]){1}, 1);
	batch("s", 1, "3,4");
	end("s");
	check_status("s", true, true, NULL, 0);
	ck_assert_uint_eq(world_held(&world, 0), 4);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_FULL);
	ck_assert_str_eq(world.wrong[0], "");
	world_ops(&world, "i0", 0, 902, "-4"); /* numbers go on */
	ck_assert_uint_eq(world_held(&world, 0), 3);
	ck_assert_uint_eq(world.reg->stats.gaps, 0);
	world_heartbeat(&world, "i0", 0, NULL);
	ck_assert(!world_answered(&world, "full_sync"));
}
END_TEST

START_TEST(lost_batch_is_sent_again)
{
	meet();
	start("s", 3);
	batch("s", 0, "1");
	batch("s", 2, "3");
	end("s");
	check_status("s", false, false, (const uint32_t[]){1}, 1);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_BLIND);
	batch("s", 0, "1"); /* twice: one holder */
	batch("s", 1, "2");
	end("s");
	check_status("s", true, true, NULL, 0);
	ck_assert_uint_eq(world_held(&world, 0), 3);
	world_ops(&world, "i0", 0, 0, "-1");
	ck_assert_uint_eq(world_held(&world, 0), 0);
}
END_TEST

START_TEST(lost_end_does_not_freeze)
{
	meet();
	start("s", 1);
	batch("s", 0, "1");
	check_status("s", true, true, NULL, 0);
	end("s");
	ck_assert_uint_eq(world.reg->stats.syncs_done, 1);
}
END_TEST

/* Operations from before the list was made come late; those from after it may come early. */
START_TEST(operations_meanwhile)
{
	meet();
	start("s", 2);
	world_ops(&world, "i0", 0, 50, "-2"); /* evicted after the list was made */
	batch("s", 0, "1,2,3");
	ck_assert_uint_eq(world_held(&world, 0), 1);
	world_ops(&world, "i0", 0, 51, "+2"); /* and stored again */
	batch("s", 1, "4");
	ck_assert_uint_eq(world_held(&world, 0), 4);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_FULL);
}
END_TEST

START_TEST(a_gap_meanwhile_is_made_good_later)
{
	meet();
	world_ops(&world, "i0", 0, 10, "+9");
	start("s", 1);
	world_ops(&world, "i0", 0, 13, "+8");
	batch("s", 0, "1,2");
	ck_assert_uint_eq(world_held(&world, 0), 2);        /* the list is good */
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_BLIND); /* but something is not known */
	world.now_ns += 61 * SECOND;
	world_heartbeat(&world, "i0", 0, NULL);
	ck_assert(world_answered(&world, "sequence_gap"));
}
END_TEST

START_TEST(start_again)
{
	meet();
	start("s", 2);
	batch("s", 0, "1");
	start("s", 2); /* its answer was late: the same sync */
	batch("s", 1, "2");
	ck_assert_uint_eq(world_held(&world, 0), 2);
	start("t", 1); /* another one */
	ck_assert_uint_eq(world_held(&world, 0), 0);
	batch("s", 1, "2");
	ck_assert_uint_eq(world.reg->stats.refused[KVW_LMCACHE_STALE], 1);
	batch("t", 0, "1");
	ck_assert_uint_eq(world_held(&world, 0), 1);
}
END_TEST

START_TEST(silence_ends_it)
{
	meet();
	start("s", 2);
	batch("s", 0, "1");
	for (int second = 0; second < 61; second++) {
		world.now_ns += SECOND;
		kvw_lmreg_tick(world.reg, world.now_ns);
		world_heartbeat(&world, "i0", 0, NULL);
	}
	ck_assert_uint_eq(world.reg->stats.syncs_failed, 1);
	ck_assert_uint_eq(world.reg->stats.syncs_asked, 2);
	check_status("s", false, true, NULL, 0); /* unknown now: it must not stay frozen for that */
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_BLIND);
}
END_TEST

START_TEST(nonsense)
{
	meet();
	batch("none", 0, "1");
	end("none");
	check_status("none", false, true, NULL, 0);
	start("big", KVW_LMREG_BATCHES + 1);
	ck_assert(world_answered(&world, "too many batches"));
	start("empty", 0);
	check_status("empty", true, true, NULL, 0);
	start("s", 1);
	batch("s", 1, "1");
	batch("s", 77777, "1");
	ck_assert_uint_eq(world.reg->stats.refused[KVW_LMCACHE_STALE], 4);
	ck_assert_uint_eq(world_held(&world, 0), 0);
}
END_TEST

/* A status lists at most so many batches; the others follow when these have come. */
START_TEST(many_missing)
{
	meet();
	start("s", KVW_LMREG_BATCHES);
	world_ask(&world, "{'type':'FullSyncStatusMsg','instance_id':'i0','worker_id':0,"
			  "'sync_id':'s'}");
	ck_assert_uint_gt(world.answer_len, KVW_LMREG_MISSING);
	ck_assert_uint_lt(world.answer_len, KVW_LMREG_REPLY_MAX);
}
END_TEST

START_TEST(status_of_an_unknown_worker)
{
	check_status("s", false, true, NULL, 0);
	ck_assert_uint_eq(world.reg->count, 0);
}
END_TEST

/* The rank registered is a new process: a sync of the old one is over. */
START_TEST(registration_ends_it)
{
	meet();
	start("s", 2);
	batch("s", 0, "1");
	world_register(&world, "i0", 0, NULL);
	batch("s", 1, "2");
	ck_assert_uint_eq(world_held(&world, 0), 0);
	ck_assert_int_eq(world.coverages[0], KVW_COVERAGE_FULL);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("sync");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, after_a_restart);
	tcase_add_test(tc, lost_batch_is_sent_again);
	tcase_add_test(tc, lost_end_does_not_freeze);
	tcase_add_test(tc, operations_meanwhile);
	tcase_add_test(tc, a_gap_meanwhile_is_made_good_later);
	tcase_add_test(tc, start_again);
	tcase_add_test(tc, silence_ends_it);
	tcase_add_test(tc, nonsense);
	tcase_add_test(tc, many_missing);
	tcase_add_test(tc, status_of_an_unknown_worker);
	tcase_add_test(tc, registration_ends_it);
	return run_tcase("lmcache sync", tc);
}
