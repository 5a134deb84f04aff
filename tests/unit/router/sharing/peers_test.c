/*
 * peers_test.c - what others said counts once, for a time, and up to a limit.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "sharing/peers.h"
#include "tests/unit/suite.h"

#define MS   INT64_C(1000000)
#define LIFE (2000 * MS)

static struct kvw_peers *peers;
static struct kvw_load_news news;
static struct kvw_load_part part;
static struct kvw_admission_work work;
static char text[KVW_LOAD_BYTES];

static void setup(void)
{
	peers = kvw_peers_create(1, LIFE);
	ck_assert_ptr_nonnull(peers);
}

static void teardown(void)
{
	kvw_peers_destroy(peers);
}

/* The origin has queue_ns and one request on the worker 42. */
static enum kvw_heard say(uint64_t origin, uint64_t sequence, int64_t queue_ns, int64_t now_ns)
{
	news.origin = origin;
	news.sequence = sequence;
	news.work = (struct kvw_admission_work){100 * MS, 50 * MS, 10 * MS};
	news.count = 1;
	news.entries[0] = (struct kvw_load_entry){42, {queue_ns, queue_ns, 1, 100, 1, 1}};
	return kvw_peers_hear(peers, text, kvw_load_write(&news, text), now_ns);
}

static const struct kvw_load_part *sum(int64_t now_ns)
{
	static const uint64_t keys[3] = {7, 42, 99};
	struct kvw_load_part parts[3];

	kvw_peers_sum(peers, keys, 3, parts, &work, now_ns);
	ck_assert_uint_eq(parts[0].inflight + parts[2].inflight, 0);
	part = parts[1];
	return &part;
}

START_TEST(what_all_said_is_added)
{
	int64_t oldest;

	ck_assert_int_eq(say(2, 1, 300 * MS, 0), KVW_HEARD_NEW);
	ck_assert_int_eq(say(3, 9, 200 * MS, 0), KVW_HEARD_NEW);
	ck_assert_int_eq(sum(0)->queue_ns, 500 * MS);
	ck_assert_uint_eq(part.inflight, 2);
	ck_assert_uint_eq(part.context, 200);
	ck_assert_int_eq(work.waiting_ns, 200 * MS);
	ck_assert_int_eq(work.offered_per_s, 20 * MS);
	ck_assert_uint_eq(kvw_peers_count(peers, 10 * MS, &oldest), 2);
	ck_assert_int_eq(oldest, 10 * MS);
}
END_TEST

START_TEST(a_new_message_replaces_the_last)
{
	say(2, 1, 300 * MS, 0);
	ck_assert_int_eq(say(2, 2, 50 * MS, 100 * MS), KVW_HEARD_NEW);
	ck_assert_int_eq(sum(100 * MS)->queue_ns, 50 * MS);
	ck_assert_uint_eq(part.inflight, 1);
}
END_TEST

START_TEST(an_old_message_changes_nothing)
{
	say(2, 5, 300 * MS, 0);
	ck_assert_int_eq(say(2, 5, 300 * MS, 200 * MS), KVW_HEARD_OLD);
	ck_assert_int_eq(say(2, 4, 900 * MS, 200 * MS), KVW_HEARD_OLD);
	ck_assert_int_eq(sum(200 * MS)->queue_ns, 100 * MS); /* what is left of it, not all again */
	ck_assert_int_eq(sum(LIFE - 1)->inflight, 1);
	ck_assert_int_eq(sum(LIFE)->inflight, 0); /* hearing it again did not make it younger */
	ck_assert_int_eq(say(2, 5, 300 * MS, LIFE), KVW_HEARD_OLD);
	ck_assert_int_eq(sum(LIFE)->inflight, 0);
}
END_TEST

START_TEST(the_dead_are_forgotten)
{
	int64_t oldest;

	say(2, 1, 300 * MS, 0);
	ck_assert_uint_eq(kvw_peers_count(peers, LIFE, &oldest), 0);
	ck_assert_int_eq(oldest, 0);
	ck_assert_int_eq(sum(LIFE)->queue_ns, 0);
	ck_assert_int_eq(work.waiting_ns, 0);
}
END_TEST

START_TEST(own_and_bad_messages_do_not_count)
{
	ck_assert_int_eq(say(1, 1, 300 * MS, 0), KVW_HEARD_OWN);
	ck_assert_int_eq(kvw_peers_hear(peers, "hello", 5, 0), KVW_HEARD_BAD);
	ck_assert_uint_eq(sum(0)->inflight, 0);
}
END_TEST

START_TEST(more_origins_than_there_is_room_for)
{
	for (uint64_t i = 0; i < KVW_PEERS; i++)
		ck_assert_int_eq(say(10 + i, 1, 10000 * MS, 0), KVW_HEARD_NEW);
	ck_assert_int_eq(say(1000, 1, 10 * MS, 0), KVW_HEARD_FULL);
	ck_assert_int_eq(sum(0)->queue_ns, 60000 * MS); /* all together have a limit, too */
	ck_assert_int_eq(say(1000, 2, 10 * MS, 11 * LIFE), KVW_HEARD_NEW);
	ck_assert_int_eq(sum(11 * LIFE)->queue_ns, 10 * MS);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("peers");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_all_said_is_added);
	tcase_add_test(tcase, a_new_message_replaces_the_last);
	tcase_add_test(tcase, an_old_message_changes_nothing);
	tcase_add_test(tcase, the_dead_are_forgotten);
	tcase_add_test(tcase, own_and_bad_messages_do_not_count);
	tcase_add_test(tcase, more_origins_than_there_is_room_for);
	return run_tcase("peers", tcase);
}
