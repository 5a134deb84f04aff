/*
 * pace_test.c - when a worker can take a prompt.
 */
#include <check.h>
#include <pthread.h>

#include "admission/pace.h"
#include "tests/unit/suite.h"

#define MS      INT64_C(1000000)
#define THREADS 4
#define ROUNDS  20000

/* A worker that answers so many streams. */
static void answer(struct kvw_pace *pace, int streams)
{
	for (int i = 0; i < streams; i++) {
		kvw_pace_sent(pace, 0, 0);
		kvw_pace_first_token(pace, 0, 0);
		kvw_pace_follows(pace);
	}
}

START_TEST(balance_is_the_mean_of_the_streams)
{
	struct kvw_pace pace = {0};

	answer(&pace, 2);
	ck_assert_int_eq(pace.behind_ns, -KVW_PACE_CREDIT_NS);
	for (int i = 0; i < 2; i++)
		kvw_pace_token(&pace, 1000 * MS, 80 * MS, MS);
	ck_assert_int_eq(pace.behind_ns, -KVW_PACE_CREDIT_NS + 920 * MS);
	ck_assert(kvw_pace_busy(&pace, MS));
	ck_assert_int_eq(kvw_pace_wait_ns(&pace, 0, 0, MS), (920 * MS - KVW_PACE_CREDIT_NS) / 2);
}
END_TEST

START_TEST(credit_and_debt_have_limits)
{
	struct kvw_pace pace = {0};

	answer(&pace, 1);
	for (int i = 0; i < 100; i++)
		kvw_pace_token(&pace, 0, 80 * MS, MS);
	ck_assert_int_eq(pace.behind_ns, -KVW_PACE_CREDIT_NS);
	ck_assert_int_eq(kvw_pace_wait_ns(&pace, 0, 0, MS), 0);
	for (int i = 0; i < 100; i++)
		kvw_pace_token(&pace, 1000 * MS, 80 * MS, MS);
	ck_assert_int_eq(pace.behind_ns, KVW_PACE_DEBT_NS);
}
END_TEST

START_TEST(an_old_balance_says_nothing)
{
	struct kvw_pace pace = {0};

	answer(&pace, 1);
	kvw_pace_token(&pace, 5000 * MS, 80 * MS, MS);
	ck_assert(kvw_pace_busy(&pace, MS + KVW_PACE_STALE_NS));
	ck_assert(!kvw_pace_busy(&pace, MS + KVW_PACE_STALE_NS + 1));
	ck_assert_int_eq(kvw_pace_wait_ns(&pace, 0, 0, MS + KVW_PACE_STALE_NS + 1), 0);
}
END_TEST

START_TEST(the_first_stream_begins_anew)
{
	struct kvw_pace pace = {0};

	answer(&pace, 1);
	kvw_pace_token(&pace, 5000 * MS, 80 * MS, MS);
	kvw_pace_ended(&pace, 0, true, true);
	ck_assert(!kvw_pace_busy(&pace, MS));
	answer(&pace, 1);
	ck_assert_int_eq(pace.behind_ns, -KVW_PACE_CREDIT_NS);
}
END_TEST

/* One step computes a prompt and gives a stream its next token; the worker's answers come in any order. */
START_TEST(the_stream_of_a_prompt_was_not_held_up_by_it)
{
	struct kvw_pace pace = {0};

	answer(&pace, 1);
	kvw_pace_sent(&pace, 0, 0);
	kvw_pace_first_token(&pace, 0, 0);
	kvw_pace_token(&pace, 1080 * MS, 80 * MS, 0);
	ck_assert_int_eq(pace.behind_ns, 1000 * MS - KVW_PACE_CREDIT_NS);
	kvw_pace_follows(&pace);
	kvw_pace_token(&pace, 180 * MS, 80 * MS, 0);
	ck_assert_int_eq(pace.behind_ns, 1050 * MS - KVW_PACE_CREDIT_NS);
}
END_TEST

START_TEST(a_queue_counts_while_something_is_unanswered)
{
	struct kvw_pace pace = {0};

	ck_assert_int_eq(kvw_pace_wait_ns(&pace, 900 * MS, 200 * MS, 0), 0);
	kvw_pace_sent(&pace, 0, 0);
	ck_assert(kvw_pace_busy(&pace, 0));
	ck_assert_int_eq(kvw_pace_wait_ns(&pace, 900 * MS, 200 * MS, 0), 700 * MS);
	ck_assert_int_eq(kvw_pace_wait_ns(&pace, 100 * MS, 200 * MS, 0), 0);
	kvw_pace_first_token(&pace, 0, 0);
	kvw_pace_ended(&pace, 0, true, false);
	ck_assert_int_eq(pace.unanswered, 0);
	ck_assert_int_eq(pace.answering, 0);
}
END_TEST

START_TEST(what_is_not_answered_is_undone_whatever_was_predicted)
{
	struct kvw_pace pace = {0};

	ck_assert_int_eq(kvw_pace_undone_ns(&pace, 1, 0), 0);
	for (int i = 0; i < 4; i++)
		kvw_pace_sent(&pace, 100 * MS, 0);
	ck_assert_int_eq(kvw_pace_undone_ns(&pace, 1, 0), 400 * MS);
	ck_assert_int_eq(kvw_pace_undone_ns(&pace, 0.5, 0), 800 * MS);
	ck_assert_int_eq(kvw_pace_undone_ns(&pace, 1, 60 * MS), 340 * MS);
	/* However long nothing comes, three wait behind the one under way. */
	ck_assert_int_eq(kvw_pace_undone_ns(&pace, 1, 60000 * MS), 300 * MS);
	kvw_pace_first_token(&pace, 100 * MS, 60000 * MS);
	kvw_pace_follows(&pace);
	ck_assert_int_eq(kvw_pace_undone_ns(&pace, 1, 60000 * MS), 300 * MS);
	kvw_pace_ended(&pace, 100 * MS, true, true);
	for (int i = 0; i < 3; i++)
		kvw_pace_ended(&pace, 100 * MS, false, false);
	ck_assert_int_eq(kvw_pace_undone_ns(&pace, 1, 60000 * MS), 0);
	ck_assert_int_eq(pace.undone_ns, 0);
}
END_TEST

START_TEST(whole_answers_neither_share_nor_shorten_what_is_undone)
{
	struct kvw_pace pace = {0};

	for (int i = 0; i < 9; i++)
		kvw_pace_sent(&pace, 0, 0);
	ck_assert_int_eq(kvw_pace_undone_ns(&pace, 1, 100 * MS), 0);
	kvw_pace_sent(&pace, 1000 * MS, 5000 * MS);
	ck_assert_int_eq(kvw_pace_undone_ns(&pace, 1, 5000 * MS), 1000 * MS);
	kvw_pace_first_token(&pace, 0, 5900 * MS);
	ck_assert_int_eq(kvw_pace_undone_ns(&pace, 1, 5900 * MS), 100 * MS);
	ck_assert_int_eq(kvw_pace_undone_ns(&pace, 1, 9000 * MS), 0);
}
END_TEST

static void *live(void *user)
{
	struct kvw_pace *pace = user;

	for (int i = 0; i < ROUNDS; i++) {
		bool answered = i % 3 != 0;
		bool stream = i % 2 == 0;

		kvw_pace_sent(pace, i, i);
		if (answered)
			kvw_pace_first_token(pace, i, i);
		if (answered && stream) {
			kvw_pace_follows(pace);
			kvw_pace_token(pace, 90 * MS, 80 * MS, i);
		}
		kvw_pace_ended(pace, i, answered, stream);
	}
	return NULL;
}

START_TEST(threads_leave_nothing_behind)
{
	struct kvw_pace pace = {0};
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, live, &pace), 0);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	ck_assert_int_eq(pace.unanswered, 0);
	ck_assert_int_eq(pace.answering, 0);
	ck_assert_int_eq(pace.undone_ns, 0);
	ck_assert_int_eq(pace.shown, 0);
	ck_assert_int_ge(pace.behind_ns, -KVW_PACE_CREDIT_NS);
	ck_assert_int_le(pace.behind_ns, KVW_PACE_DEBT_NS);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("pace");

	tcase_add_test(tcase, balance_is_the_mean_of_the_streams);
	tcase_add_test(tcase, credit_and_debt_have_limits);
	tcase_add_test(tcase, an_old_balance_says_nothing);
	tcase_add_test(tcase, the_first_stream_begins_anew);
	tcase_add_test(tcase, the_stream_of_a_prompt_was_not_held_up_by_it);
	tcase_add_test(tcase, a_queue_counts_while_something_is_unanswered);
	tcase_add_test(tcase, what_is_not_answered_is_undone_whatever_was_predicted);
	tcase_add_test(tcase, whole_answers_neither_share_nor_shorten_what_is_undone);
	tcase_add_test(tcase, threads_leave_nothing_behind);
	return run_tcase("admission pace", tcase);
}
