/*
 * stream_test.c - one engine's events in order: replays, gaps, restarts, losses, rubbish, purges.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "support.h"
#include "feeds/vllm_feed.h"
#include "tests/unit/suite.h"

#define BLOCK 16u
#define CHAIN 40u /* blocks of the prompt that tests store, one block a batch */

static struct rig rig;
static struct engine engine;
static uint32_t tokens[CHAIN * BLOCK];

/* The feed listens to the engine by configured endpoints. */
static void listen_to(bool replay)
{
	char events[256];

	snprintf(events, sizeof(events),
		"    discover: false\n    endpoint: tcp://{host}:%u\n    replay: \"%s%u\"\n",
		engine.port, replay ? "tcp://{host}:" : "", engine.replay_port);
	if (!replay)
		snprintf(events, sizeof(events),
			"    discover: false\n    endpoint: tcp://{host}:%u\n", engine.port);
	rig_init(&rig, 1, 20000, events);
	rig_start(&rig, &kvw_vllm_feed);
}

static void setup(void)
{
	for (uint32_t i = 0; i < CHAIN * BLOCK; i++)
		tokens[i] = i * 31 + 7;
	engine_start(&engine, 0, 0, true);
}

static void teardown(void)
{
	rig_finish(&rig);
	engine_stop(&engine);
}

static struct engine_stored block_of(uint32_t i)
{
	return (struct engine_stored){.base = 1000 + i,
		.parent = i == 0 ? 0 : 999 + i,
		.tokens = tokens + i * BLOCK,
		.blocks = 1,
		.block_size = BLOCK};
}

/* Batch i stores block i of the prompt. */
static void publish(uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++) {
		struct engine_stored stored = block_of(i);

		engine_stored(&engine, &stored);
	}
}

/* The same, but the router receives none of it. */
static void lose(uint32_t from, uint32_t to)
{
	uint8_t data[1024];

	for (uint32_t i = from; i < to; i++) {
		struct engine_stored stored = block_of(i);

		engine_lose(&engine, data, engine_put_stored(data, sizeof(data), &stored));
	}
}

static void await_hit(uint32_t blocks)
{
	rig_await_hit(&rig, 0, BLOCK, tokens, CHAIN * BLOCK, blocks);
}

static const char *what_is_wrong(void)
{
	static struct kvw_feed_status status;

	ck_assert_int_eq(kvw_feed_worker_status(rig.feed, 0, KVW_REPORTER_ENGINE, &status), KVW_OK);
	return status.wrong;
}

START_TEST(an_engine_that_was_silent_so_far_holds_nothing)
{
	listen_to(true);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	await_hit(0);
	ck_assert_str_eq(what_is_wrong(), "");
}
END_TEST

START_TEST(what_was_before_is_replayed_and_what_comes_follows)
{
	struct kvw_feed_status status;

	publish(0, 10);
	engine.old_layout = _i == 1;
	listen_to(true);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	await_hit(10);
	publish(10, 20);
	await_hit(20);
	engine_removed(&engine, 1000 + 15, 0);
	await_hit(15);
	ck_assert_uint_eq(rig_count(&rig, KVW_FEED_BATCHES), 21);
	ck_assert_uint_ge(rig_count(&rig, KVW_FEED_REPLAYED_BATCHES), 10);
	ck_assert_uint_eq(rig_count(&rig, KVW_FEED_DROPPED_EVENTS), 0);
	ck_assert_int_eq(kvw_feed_worker_status(rig.feed, 0, KVW_REPORTER_ENGINE, &status), KVW_OK);
	ck_assert_uint_eq(status.sequence, 20);
	ck_assert_uint_eq(status.sources, 1);
	ck_assert_int_ge(status.lag_ns, 0);
}
END_TEST

START_TEST(a_gap_is_filled)
{
	listen_to(true);
	engine.old_layout = _i == 1;
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	publish(0, 5);
	await_hit(5);
	lose(5, 9);
	publish(9, 12);
	await_hit(12);
	ck_assert_int_eq(rig_coverage(&rig, 0), KVW_COVERAGE_FULL);
	ck_assert_uint_eq(rig_count(&rig, KVW_FEED_DROPPED_EVENTS), 0);
	ck_assert_uint_eq(rig_count(&rig, KVW_FEED_BATCHES), 12);
}
END_TEST

START_TEST(what_was_lost_last_is_found_by_looking)
{
	listen_to(true);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	publish(0, 5);
	await_hit(5);
	lose(5, 9); /* and then nothing comes */
	await_hit(9);
	ck_assert_int_eq(rig_coverage(&rig, 0), KVW_COVERAGE_FULL);
}
END_TEST

START_TEST(a_replay_with_a_hole_is_asked_for_again)
{
	publish(0, 20);
	engine.drop = 7;
	listen_to(true);
	await_hit(7);
	engine.drop = UINT64_MAX;
	await_hit(20);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	ck_assert_uint_eq(rig_count(&rig, KVW_FEED_BATCHES), 20);
	ck_assert_uint_eq(rig_count(&rig, KVW_FEED_LOST_BATCHES), 0);
}
END_TEST

START_TEST(an_engine_that_starts_again_is_read_again)
{
	listen_to(true);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	publish(0, 10);
	await_hit(10);
	engine_restart(&engine);
	lose(0, 3); /* before the feed is there again */
	await_hit(3);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	ck_assert_uint_ge(rig_count(&rig, KVW_FEED_RESTARTS), 1);
	publish(3, 6);
	await_hit(6);
}
END_TEST

START_TEST(a_new_engine_that_has_passed_the_old_number_is_noticed)
{
	listen_to(true);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	publish(0, 10);
	await_hit(10);
	engine_restart(&engine);
	for (uint32_t i = 0; i < 30; i++) { /* it holds other things */
		uint8_t data[256];
		uint64_t hash = 5000 + i;

		engine_lose(&engine, data, engine_put_removed(data, sizeof(data), &hash, 1, 0));
	}
	await_hit(0);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
}
END_TEST

START_TEST(what_the_engine_no_longer_keeps_blinds_until_it_is_emptied)
{
	publish(0, 10);
	engine.keep = 4;
	listen_to(true);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_BLIND);
	publish(10, 11);
	while (strstr(what_is_wrong(), "buffer_steps") == NULL) {
	}
	engine_cleared(&engine);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	ck_assert_str_eq(what_is_wrong(), "");
	publish(0, 2);
	await_hit(2);
}
END_TEST

START_TEST(without_replay_the_first_batch_shows_all)
{
	listen_to(false);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_BLIND);
	ck_assert_ptr_nonnull(strstr(what_is_wrong(), "replay_endpoint"));
	engine_await_subscriber(&engine);
	publish(0, 1);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	publish(1, 4);
	await_hit(4);
	lose(4, 6);
	publish(6, 7); /* a gap that no replay can fill */
	rig_await_coverage(&rig, 0, KVW_COVERAGE_BLIND);
	await_hit(0);
	ck_assert_uint_ge(rig_count(&rig, KVW_FEED_LOST_BATCHES), 2);
	engine_cleared(&engine);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
}
END_TEST

START_TEST(without_replay_a_late_subscriber_is_blind)
{
	publish(0, 3);
	listen_to(false);
	engine_await_subscriber(&engine);
	publish(3, 4);
	while (strstr(what_is_wrong(), "3 batches from 0 on are lost") == NULL) {
	}
	ck_assert_int_eq(rig_coverage(&rig, 0), KVW_COVERAGE_BLIND);
	engine_restart(&engine);
	engine_await_subscriber(&engine);
	publish(0, 2);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	await_hit(2);
}
END_TEST

START_TEST(a_replay_socket_without_an_answer_blinds_for_so_long)
{
	engine.mute = true;
	listen_to(true);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_BLIND);
	while (strstr(what_is_wrong(), "no answer from the replay socket tcp://127.0.0.1:") ==
		NULL) {
	}
	publish(0, 3);
	engine.mute = false;
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	await_hit(3);
}
END_TEST

static bool asked_often(struct rig *r, void *ctx)
{
	(void)r;
	return engine.asked >= *(int *)ctx;
}

START_TEST(what_is_in_its_turn_does_not_wait_for_an_answer)
{
	int often;

	listen_to(true);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	publish(0, 3);
	await_hit(3);
	engine.mute = true;
	often = engine.asked + 1;
	ck_assert(rig_wait(&rig, asked_often, &often)); /* after a silence */
	publish(3, 6);
	await_hit(6);
	ck_assert_int_eq(rig_coverage(&rig, 0), KVW_COVERAGE_FULL); /* it is not overdue yet */
	engine.mute = false;
}
END_TEST

START_TEST(bytes_that_are_no_batch_blind_until_the_engine_is_emptied)
{
	static const uint8_t rubbish[][8] = {{0xc1},        /* never used */
		{0x93, 0xcb, 0, 0, 0},                      /* cut off */
		{0x93, 1, 0xdd, 0xff, 0xff, 0xff, 0xff, 0}, /* four thousand million events */
		{0x91, 1}};                                 /* no events */

	listen_to(true);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	publish(0, 5);
	await_hit(5);
	engine_publish(&engine, rubbish[_i], sizeof(rubbish[_i]));
	rig_await_coverage(&rig, 0, KVW_COVERAGE_BLIND);
	await_hit(0);
	ck_assert_ptr_nonnull(strstr(what_is_wrong(), "cannot be used"));
	ck_assert_uint_ge(rig_count(&rig, KVW_FEED_DROPPED_EVENTS), 1);
	engine_cleared(&engine);
	publish(0, 3);
	await_hit(3);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
}
END_TEST

static bool refused_some(struct rig *r, void *ctx)
{
	return rig_count(r, KVW_FEED_REFUSED) >= *(uint64_t *)ctx;
}

START_TEST(messages_of_another_form_are_passed_over)
{
	uint64_t some = 2;

	listen_to(true);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	publish(0, 5);
	await_hit(5);
	engine_send(&engine, "t", "short", 5, "x", 1);
	engine_send(&engine, "t", "", 0, "", 0);
	ck_assert(rig_wait(&rig, refused_some, &some));
	publish(5, 6);
	await_hit(6);
	ck_assert_int_eq(rig_coverage(&rig, 0), KVW_COVERAGE_FULL);
}
END_TEST

START_TEST(a_duplicate_changes_nothing)
{
	uint8_t number[8] = {0, 0, 0, 0, 0, 0, 0, 3};

	listen_to(true);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	publish(0, 5);
	await_hit(5);
	engine_send(&engine, "t", number, 8, engine.batches[3].data, engine.batches[3].len);
	publish(5, 6);
	await_hit(6);
	ck_assert_uint_eq(rig_count(&rig, KVW_FEED_RESTARTS), 0);
	ck_assert_uint_eq(rig_count(&rig, KVW_FEED_BATCHES), 6);
}
END_TEST

START_TEST(a_purged_worker_that_says_so_later_is_empty)
{
	listen_to(true);
	publish(0, 5);
	await_hit(5);
	kvw_exact_purge(rig.exact, 0);
	await_hit(0);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	await_hit(0);
	engine_cleared(&engine); /* the engine is late */
	publish(0, 3);
	await_hit(3);
	ck_assert_int_eq(rig_coverage(&rig, 0), KVW_COVERAGE_FULL);
}
END_TEST

START_TEST(a_silent_purged_worker_is_read_again)
{
	listen_to(true);
	publish(0, 5);
	await_hit(5);
	kvw_exact_purge(rig.exact, 0);
	await_hit(0);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	publish(5, 6); /* it has kept everything */
	await_hit(6);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
}
END_TEST

START_TEST(a_restart_that_is_noticed_late_loses_nothing)
{
	listen_to(true);
	publish(0, 5);
	await_hit(5);
	engine_restart(&engine);
	lose(0, 4);
	await_hit(4);
	kvw_exact_purge(rig.exact, 0); /* its start time was read only now */
	rig_await_coverage(&rig, 0, KVW_COVERAGE_BLIND);
	await_hit(4);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
}
END_TEST

static bool applied_all(struct rig *r, void *ctx)
{
	return rig_count(r, KVW_FEED_BATCHES) >= *(uint64_t *)ctx;
}

START_TEST(many_batches_arrive_in_order)
{
	uint64_t all = 200 * 2 * CHAIN + CHAIN;

	listen_to(true);
	rig_await_coverage(&rig, 0, KVW_COVERAGE_FULL);
	for (int round = 0; round < 200; round++) {
		publish(0, CHAIN);
		for (uint32_t i = CHAIN; i-- > 0;)
			engine_removed(&engine, 1000 + i, 0);
	}
	publish(0, CHAIN);
	ck_assert(rig_wait(&rig, applied_all, &all));
	await_hit(CHAIN);
	engine_removed(&engine, 1000, 0);
	await_hit(0);
	ck_assert_uint_eq(rig_count(&rig, KVW_FEED_BATCHES), all + 1);
	ck_assert_uint_eq(rig_count(&rig, KVW_FEED_DROPPED_EVENTS), 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("stream");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, an_engine_that_was_silent_so_far_holds_nothing);
	tcase_add_loop_test(tc, what_was_before_is_replayed_and_what_comes_follows, 0, 2);
	tcase_add_loop_test(tc, a_gap_is_filled, 0, 2);
	tcase_add_test(tc, what_was_lost_last_is_found_by_looking);
	tcase_add_test(tc, a_replay_with_a_hole_is_asked_for_again);
	tcase_add_test(tc, an_engine_that_starts_again_is_read_again);
	tcase_add_test(tc, a_new_engine_that_has_passed_the_old_number_is_noticed);
	tcase_add_test(tc, what_the_engine_no_longer_keeps_blinds_until_it_is_emptied);
	tcase_add_test(tc, without_replay_the_first_batch_shows_all);
	tcase_add_test(tc, without_replay_a_late_subscriber_is_blind);
	tcase_add_test(tc, a_replay_socket_without_an_answer_blinds_for_so_long);
	tcase_add_test(tc, what_is_in_its_turn_does_not_wait_for_an_answer);
	tcase_add_loop_test(tc, bytes_that_are_no_batch_blind_until_the_engine_is_emptied, 0, 4);
	tcase_add_test(tc, messages_of_another_form_are_passed_over);
	tcase_add_test(tc, a_duplicate_changes_nothing);
	tcase_add_test(tc, a_purged_worker_that_says_so_later_is_empty);
	tcase_add_test(tc, a_silent_purged_worker_is_read_again);
	tcase_add_test(tc, a_restart_that_is_noticed_late_loses_nothing);
	tcase_add_test(tc, many_batches_arrive_in_order);
	return run_tcase("stream", tc);
}
