/*
 * replica_test.c - replicas that hear each other know what the others have sent.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "sharing/replica.h"
#include "tests/unit/suite.h"

#define MS      INT64_C(1000000)
#define LIFE    (2000 * MS)
#define WORKERS 3

/* One replica with loads of its own. */
struct side {
	struct kvw_replica *replica;
	struct kvw_admission *admission;
	struct kvw_load_board *board;
	struct kvw_load *loads;
	struct kvw_replica_worker workers[WORKERS];
	struct kvw_lease leases[WORKERS];
	char text[KVW_LOAD_BYTES];
	size_t len;
};

static struct side one, two;

static void begin(struct side *side, uint64_t origin)
{
	memset(side, 0, sizeof(*side));
	side->replica = kvw_replica_create(origin, LIFE);
	side->admission = kvw_admission_create(0);
	side->board = aligned_alloc(64, sizeof(*side->board));
	side->loads = aligned_alloc(64, WORKERS * sizeof(side->loads[0]));
	ck_assert(side->replica != NULL && side->admission != NULL && side->board != NULL && side->loads != NULL);
	for (uint32_t w = 0; w < WORKERS; w++) {
		kvw_load_init_on(&side->loads[w], side->board, w);
		side->workers[w] = (struct kvw_replica_worker){1000 - w, &side->loads[w], w};
	}
}

static void end(struct side *side)
{
	kvw_replica_destroy(side->replica);
	kvw_admission_destroy(side->admission);
	free(side->board);
	free(side->loads);
}

static void setup(void)
{
	begin(&one, 1);
	begin(&two, 2);
	/* The second has its workers in another order. */
	for (uint32_t w = 0; w < WORKERS; w++)
		two.workers[w].key = 1000 - (WORKERS - 1 - w);
}

static void teardown(void)
{
	end(&one);
	end(&two);
}

static void speak(struct side *side, int64_t now_ns)
{
	side->len = kvw_replica_write(side->replica, side->workers, WORKERS, side->admission, now_ns, side->text);
}

static void hear(struct side *side, const struct side *other, int64_t now_ns)
{
	(void)kvw_replica_hear(side->replica, other->text, other->len, now_ns);
	kvw_replica_apply(side->replica, side->workers, WORKERS, side->admission, now_ns);
}

START_TEST(a_worker_has_what_both_sent)
{
	struct kvw_replica_stats stats;

	kvw_lease_take(&one.leases[0], &one.loads[0], 400 * MS, 0);
	kvw_lease_hold(&one.leases[0], 5000);
	speak(&one, 0);
	hear(&two, &one, 0);
	ck_assert_int_eq(kvw_load_queue_ns(&two.loads[2], 0), 400 * MS); /* the same URL */
	ck_assert_uint_eq(kvw_load_inflight(&two.loads[2]), 1);
	ck_assert_uint_eq(kvw_load_context(&two.loads[2]), 5000);
	ck_assert_uint_eq(kvw_load_inflight(&two.loads[0]), 0);
	ck_assert(kvw_pace_busy(&two.admission->paces[2], 0));
	ck_assert_int_eq(kvw_pace_undone_ns(&two.admission->paces[2], 1, 0), 400 * MS);
	kvw_replica_stats(two.replica, 50 * MS, &stats);
	ck_assert_uint_eq(stats.peers, 1);
	ck_assert_int_eq(stats.oldest_ns, 50 * MS);
	/* It says nothing of what it heard, or that would come back for ever. */
	speak(&two, 0);
	hear(&one, &two, 0);
	ck_assert_int_eq(kvw_load_queue_ns(&one.loads[0], 0), 400 * MS);
	ck_assert_uint_eq(kvw_load_inflight(&one.loads[0]), 1);
	/* The answer has ended. */
	kvw_lease_release(&one.leases[0], 100 * MS);
	speak(&one, 100 * MS);
	hear(&two, &one, 100 * MS);
	ck_assert_int_eq(kvw_load_queue_ns(&two.loads[2], 100 * MS), 0);
	ck_assert_uint_eq(kvw_load_inflight(&two.loads[2]), 0);
	ck_assert(!kvw_pace_busy(&two.admission->paces[2], 100 * MS));
}
END_TEST

START_TEST(a_replica_that_fell_silent_is_forgotten)
{
	kvw_lease_take(&one.leases[0], &one.loads[0], 9000 * MS, 0);
	kvw_lease_hold(&one.leases[0], 5000);
	speak(&one, 0);
	hear(&two, &one, 0);
	hear(&two, &one, LIFE - 1);
	ck_assert_uint_eq(kvw_load_inflight(&two.loads[2]), 1);
	hear(&two, &one, LIFE);
	ck_assert_uint_eq(kvw_load_inflight(&two.loads[2]), 0);
	ck_assert_int_eq(kvw_load_queue_ns(&two.loads[2], LIFE), 0);
	ck_assert(!kvw_pace_busy(&two.admission->paces[2], LIFE));
}
END_TEST

START_TEST(what_waits_at_others_is_known)
{
	atomic_store(&one.admission->waiting_ns, 700 * MS);
	atomic_store(&one.admission->offered_per_s, 90 * MS);
	speak(&one, 0);
	hear(&two, &one, 0);
	ck_assert_int_eq(atomic_load(&two.admission->peers_waiting_ns), 700 * MS);
	ck_assert_int_eq(atomic_load(&two.admission->peers_offered_per_s), 90 * MS);
	hear(&two, &one, LIFE);
	ck_assert_int_eq(atomic_load(&two.admission->peers_waiting_ns), 0);
}
END_TEST

/* A peer that has all workers busy for ever: a replica that believed it would never send anything. */
START_TEST(a_peer_that_says_too_much_does_not_stop_all)
{
	int64_t now = 0;

	for (uint32_t w = 0; w < WORKERS; w++) {
		kvw_lease_take(&one.leases[w], &one.loads[w], 3600000 * MS, 0);
		kvw_lease_hold(&one.leases[w], 5000);
	}
	for (; now < 2000 * MS; now += 100 * MS) {
		speak(&one, now);
		hear(&two, &one, now);
		ck_assert_int_eq(kvw_load_queue_ns(&two.loads[0], now), KVW_LOAD_MOST_QUEUE_NS);
		atomic_fetch_add(&two.admission->refused, 1);
	}
	speak(&one, now += 100 * MS);
	hear(&two, &one, now);
	ck_assert_int_le(kvw_load_queue_ns(&two.loads[0], now), 100 * MS);
	/* Something is sent, and they count again; its first token shows that they should not. */
	kvw_lease_take(&two.leases[0], &two.loads[0], 10 * MS, now);
	kvw_lease_hold(&two.leases[0], 100);
	speak(&one, now += 100 * MS);
	hear(&two, &one, now);
	ck_assert_int_ge(kvw_load_queue_ns(&two.loads[0], now), KVW_LOAD_MOST_QUEUE_NS);
}
END_TEST

/* Found out by first tokens on one worker, a peer counts on none, and an honest one counts on. */
START_TEST(a_peer_found_wrong_on_one_worker_counts_on_none)
{
	struct kvw_load_news *news = calloc(1, sizeof(*news));
	int64_t now = 0;

	ck_assert_ptr_nonnull(news);
	kvw_lease_take(&one.leases[1], &one.loads[1], 300 * MS, 0);
	news->origin = 7;
	news->count = WORKERS;
	for (size_t w = 0; w < WORKERS; w++)
		news->entries[w] = (struct kvw_load_entry){two.workers[w].key, {30000 * MS, 30000 * MS, 4000, 9000, 4000, 4000}};
	for (size_t i = 0; i < 10; i++, now += 20 * MS) {
		char text[KVW_LOAD_BYTES];

		news->sequence = i + 1;
		(void)kvw_replica_hear(two.replica, text, kvw_load_write(news, text), now);
		speak(&one, now);
		hear(&two, &one, now);
		kvw_lease_take(&two.leases[0], &two.loads[0], 1 * MS, now);
		kvw_lease_first_token(&two.leases[0], now + 10 * MS);
		kvw_lease_release(&two.leases[0], now + 10 * MS);
	}
	ck_assert_int_eq(kvw_load_queue_ns(&two.loads[2], now), 0);
	ck_assert_uint_eq(kvw_load_inflight(&two.loads[2]), 0);
	ck_assert_uint_eq(kvw_load_inflight(&two.loads[1]), 1); /* the same URL as one's */
	free(news);
}
END_TEST

/* As many replicas as there are places have come and gone: the next ones are heard all the same. */
START_TEST(replicas_that_are_gone_keep_no_place)
{
	struct kvw_load_news *news = calloc(1, sizeof(*news));
	int64_t now = 0;

	ck_assert_ptr_nonnull(news);
	news->sequence = 1;
	for (news->origin = 100; news->origin < 100 + KVW_PEERS; news->origin++)
		ck_assert_int_eq(kvw_replica_hear(two.replica, one.text, kvw_load_write(news, one.text), now), KVW_HEARD_NEW);
	ck_assert_int_eq(kvw_replica_hear(two.replica, one.text, kvw_load_write(news, one.text), now), KVW_HEARD_FULL);
	now = LIFE;
	ck_assert_int_eq(kvw_replica_hear(two.replica, one.text, kvw_load_write(news, one.text), now), KVW_HEARD_NEW);
	free(news);
}
END_TEST

START_TEST(a_worker_that_a_message_names_twice_counts_once)
{
	struct kvw_load_news *news = calloc(1, sizeof(*news));

	ck_assert_ptr_nonnull(news);
	news->origin = 7;
	news->sequence = 1;
	news->count = 100;
	for (size_t i = 0; i < news->count; i++)
		news->entries[i] = (struct kvw_load_entry){two.workers[0].key, {300 * MS, 300 * MS, 2, 100, 2, 2}};
	one.len = kvw_load_write(news, one.text);
	hear(&two, &one, 0);
	ck_assert_uint_eq(kvw_load_inflight(&two.loads[0]), 2);
	ck_assert_int_eq(kvw_load_queue_ns(&two.loads[0], 0), 300 * MS);
	free(news);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("replica");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_worker_has_what_both_sent);
	tcase_add_test(tcase, a_replica_that_fell_silent_is_forgotten);
	tcase_add_test(tcase, what_waits_at_others_is_known);
	tcase_add_test(tcase, a_peer_found_wrong_on_one_worker_counts_on_none);
	tcase_add_test(tcase, replicas_that_are_gone_keep_no_place);
	tcase_add_test(tcase, a_worker_that_a_message_names_twice_counts_once);
	tcase_add_test(tcase, a_peer_that_says_too_much_does_not_stop_all);
	return run_tcase("replica", tcase);
}
