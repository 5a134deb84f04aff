/*
 * memory_test.c - each allocation fails in turn: nothing leaks, nothing is lost without a gap.
 */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>

#include "events_support.h"
#include "tests/unit/failing_allocator.h"
#include "tests/unit/suite.h"

#define CALLS 200

static long left = -1; /* allocations until one fails; -1: none does */
static long made;
static bool armed; /* the library is at work, not the test */

static bool fails(void)
{
	if (!armed)
		return false;
	made++;
	return left >= 0 && left-- == 0;
}

static struct world world;
static struct chunk chunk;

/* Everything once, with the n-th allocation failing. */
static void run(long n, bool publish)
{
	struct kvt_config config = {.size = sizeof(config),
		.threads = KVT_THREADS_CALLER,
		.events_queue = 64,
		.events_publish = publish ? "tcp://127.0.0.1:*" : NULL,
		.events_replay = publish ? "tcp://127.0.0.1:*" : NULL,
		.events_replay_bytes = 1 << 16};
	struct kvt_event_log *log = NULL;
	struct kvt_event out[8];
	enum kvt_status status;
	uint64_t expected = 1;
	int64_t next = INT64_MAX;
	size_t got;

	world_init(&world);
	made = 0;
	left = n;
	armed = true;
	status = kvt_event_log_create(&config, &world.s, &log);
	armed = false;
	ck_assert(status == KVT_OK || status == KVT_ENOMEM);
	ck_assert_int_eq(status == KVT_OK, log != NULL);
	for (uint64_t i = 0; log != NULL && i < CALLS; i++) {
		/* every tenth is longer than what readers have room for */
		chunk_make(&chunk, i, i % 10 == 9 ? 3000 : 2, 32, 4);
		armed = true;
		kvt_event_log_stored(log, KVT_TIER_L1, &chunk.blocks);
		(void)kvt_event_log_step(log, &next);
		got = kvt_event_log_take(log, out, 8);
		armed = false;
		for (size_t e = 0; e < got; e++)
			ck_assert_uint_eq(out[e].sequence, expected++);
	}
	left = -1;
	while (log != NULL && (got = kvt_event_log_take(log, out, 8)) > 0)
		for (size_t e = 0; e < got; e++)
			ck_assert_uint_eq(out[e].sequence, expected++);
	if (log != NULL)
		ck_assert_uint_eq(expected, CALLS + 1);
	kvt_event_log_destroy(log);
}

static void run_all(bool publish)
{
	long most;

	run(-1, publish);
	most = made;
	ck_assert_int_gt(most, 3);
	for (long n = 0; n < most; n++)
		run(n, publish);
}

START_TEST(queue_alone)
{
	run_all(false);
}
END_TEST

START_TEST(with_publisher)
{
	run_all(true);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("memory");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, queue_alone);
	tcase_add_test(tc, with_publisher);
	return run_tcase("cache-events-memory", tc);
}
