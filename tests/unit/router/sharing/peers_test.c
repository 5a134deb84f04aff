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
static struct kvw_load_claim most;
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
	struct kvw_load_claim claims[3];
	struct kvw_load_part parts[3];

	kvw_peers_sum(peers, keys, 3, parts, claims, &work, now_ns);
	ck_assert(claims[0].of == 0 && claims[2].of == 0);
	most = claims[1];
	ck_assert_uint_eq(parts[0].inflight + parts[2].inflight, 0);
	part = parts[1];
	return &part;
}

START_TEST(what_all_said_is_added)
{
	int64_t oldest;
	float trust;

	ck_assert_int_eq(say(2, 1, 300 * MS, 0), KVW_HEARD_NEW);
	ck_assert_int_eq(say(3, 9, 200 * MS, 0), KVW_HEARD_NEW);
	ck_assert_int_eq(sum(0)->queue_ns, 500 * MS);
	ck_assert_uint_eq(part.inflight, 2);
	ck_assert_uint_eq(part.context, 200);
	ck_assert_int_eq(work.waiting_ns, 200 * MS);
	ck_assert_int_eq(work.offered_per_s, 20 * MS);
	ck_assert_uint_eq(kvw_peers_count(peers, 10 * MS, &oldest, &trust), 2);
	ck_assert_int_eq(oldest, 10 * MS);
	ck_assert(trust == 1);
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
	float trust;

	say(2, 1, 300 * MS, 0);
	ck_assert_uint_eq(kvw_peers_count(peers, LIFE, &oldest, &trust), 0);
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

static void judge(uint32_t of, uint32_t wrong, uint32_t right, int64_t now_ns)
{
	kvw_peers_judge(peers, &(const struct kvw_load_verdict){of, wrong, right}, now_ns);
}

/* Found out by its own claims; the other one goes on counting. */
START_TEST(one_that_says_too_much_loses_trust_alone)
{
	uint32_t liar;
	int64_t oldest;
	float trust;

	say(2, 1, 400 * MS, 0);
	say(3, 1, 20000 * MS, 0);
	ck_assert_int_eq(sum(0)->queue_ns, 20400 * MS);
	ck_assert_int_eq(most.queue_ns, 20000 * MS);
	liar = most.of;
	ck_assert_uint_ne(liar, 0);
	judge(liar, 1, 0, 0);
	ck_assert_int_eq(sum(0)->queue_ns, 10400 * MS);
	ck_assert_int_eq(work.waiting_ns, 150 * MS);
	ck_assert_uint_eq(kvw_peers_count(peers, 0, &oldest, &trust), 2);
	ck_assert(trust == 0.5f);
	judge(liar, 100, 0, 0);
	ck_assert_int_eq(sum(0)->queue_ns, 400 * MS);
	ck_assert_uint_eq(part.inflight, 1);
	ck_assert_uint_eq(part.context, 100);
	ck_assert_int_eq(work.waiting_ns, 100 * MS);
	/* It is looked at for as long as it says more than the others could be found wrong by. */
	ck_assert_uint_eq(most.of, liar);
	/* A word about one that is not there, and about none, changes nothing. */
	judge(1000, 1, 0, 0);
	judge(0, 1, 1, 0);
	ck_assert_int_eq(sum(0)->queue_ns, 400 * MS);
	/* Requests that do wait win it back. */
	judge(liar, 0, 5, 0);
	ck_assert_int_eq(sum(0)->queue_ns / (10 * MS), 1040);
	judge(liar, 0, 50, 0);
	ck_assert_int_eq(sum(0)->queue_ns, 20400 * MS);
}
END_TEST

START_TEST(time_gives_trust_back)
{
	uint64_t sequence = 1;
	int64_t now = 0;

	say(3, sequence++, 20000 * MS, now);
	(void)sum(now);
	judge(most.of, 100, 0, now);
	for (; now <= 30000 * MS; now += 1000 * MS) {
		say(3, sequence++, 20000 * MS, now);
		ck_assert_int_eq(sum(now)->queue_ns, 0);
	}
	for (now = 35000 * MS; now < 41000 * MS; now += 1000 * MS)
		say(3, sequence++, 20000 * MS, now);
	now -= 1000 * MS;
	ck_assert_int_eq(sum(now)->queue_ns, 20000 * MS);
}
END_TEST

/* What is trusted less is looked at less, so that others' claims come to be judged, too. */
START_TEST(the_claim_that_counts_most_is_judged)
{
	uint32_t liar;

	say(3, 1, 20000 * MS, 0);
	(void)sum(0);
	liar = most.of;
	judge(liar, 100, 0, 0);
	say(2, 1, 1000 * MS, 0);
	(void)sum(0);
	ck_assert_uint_eq(most.of, liar);
	say(2, 2, 1500 * MS, 0);
	(void)sum(0);
	ck_assert_uint_ne(most.of, liar);
	ck_assert_int_eq(most.queue_ns, 1500 * MS);
}
END_TEST

/* A place that another origin gets has nothing of the former one's trust. */
START_TEST(a_new_origin_is_trusted)
{
	uint32_t former;

	say(2, 1, 3000 * MS, 0);
	(void)sum(0);
	former = most.of;
	judge(former, 100, 0, 0);
	ck_assert_int_eq(sum(0)->queue_ns, 0);
	say(3, 1, 3000 * MS, 11 * LIFE);
	ck_assert_int_eq(sum(11 * LIFE)->queue_ns, 3000 * MS);
	ck_assert_uint_ne(most.of, former);
	judge(former, 100, 0, 11 * LIFE);
	ck_assert_int_eq(sum(11 * LIFE)->queue_ns, 3000 * MS);
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
	tcase_add_test(tcase, one_that_says_too_much_loses_trust_alone);
	tcase_add_test(tcase, time_gives_trust_back);
	tcase_add_test(tcase, the_claim_that_counts_most_is_judged);
	tcase_add_test(tcase, a_new_origin_is_trusted);
	tcase_add_test(tcase, more_origins_than_there_is_room_for);
	return run_tcase("peers", tcase);
}
