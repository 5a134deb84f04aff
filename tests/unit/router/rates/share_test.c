/*
 * share_test.c - replicas that meet in totals, in simulated time.
 */
#include <check.h>
#include <stdio.h>

#include "rates/share.h"
#include "tests/unit/suite.h"

#define SECOND   INT64_C(1000000000)
#define DAY      (86400 * SECOND)
#define REPLICAS 3

static struct kvw_rate_table *tables[REPLICAS];
static struct kvw_rate_time at;
static struct kvw_rate_sums totals;

static void setup(void)
{
	for (int i = 0; i < REPLICAS; i++)
		tables[i] = kvw_rate_table_create(64);
	at = (struct kvw_rate_time){1000 * SECOND, 20000 * DAY + SECOND};
	totals = (struct kvw_rate_sums){0};
}

static void teardown(void)
{
	for (int i = 0; i < REPLICAS; i++)
		kvw_rate_table_destroy(tables[i]);
}

static struct kvw_rate_subject *subject(int replica)
{
	struct kvw_rate_subject *found = kvw_rate_table_hold(
		tables[replica], KVW_RATE_KEY, KVW_SLICE("k"), at.now_ns, kvw_rate_day(at.utc_ns));

	kvw_rate_subject_put(found);
	return found;
}

static bool ask(int replica, struct kvw_rate_limits limits, uint64_t tokens)
{
	const struct kvw_rate_party party = {KVW_RATE_KEY, KVW_SLICE("k"), limits};
	const struct kvw_rate_demand demand = {tokens, 0, 0};
	struct kvw_rate_ticket ticket;
	struct kvw_rate_refusal refusal;

	if (!kvw_rates_take(tables[replica], &party, 1, &demand, &at, &ticket, &refusal)) {
		kvw_rates_drop(&ticket);
		return false;
	}
	kvw_rates_settle(&ticket, tokens, 0, true, at.now_ns);
	return true;
}

static void exchange(int replica, bool works)
{
	struct kvw_rate_subject *s = subject(replica);
	struct kvw_rate_sums news;

	if (!kvw_rate_share_wants(s, at.now_ns))
		return;
	kvw_rate_share_news(s, &at, &news);
	if (!works) {
		kvw_rate_share_failed(s, &news);
		return;
	}
	if (totals.day != news.day)
		totals.day_tokens = 0;
	totals.exchanges++;
	totals.requests += news.requests;
	totals.tokens += news.tokens;
	totals.day_tokens += news.day_tokens;
	totals.day = news.day;
	kvw_rate_share_totals(s, &news, &totals, &at);
}

/* All replicas are asked for ten times the rate of 600 a minute; each exchanges every 100 ms. */
static int run(int64_t seconds, bool works)
{
	const struct kvw_rate_limits limits = {.requests_per_minute = 600, .burst_ns = SECOND};
	int got = 0;

	for (int64_t ms = 0; ms < seconds * 1000; ms += 10) {
		for (int i = 0; i < REPLICAS; i++)
			got += ask(i, limits, 0);
		if (ms % 100 == 50)
			for (int i = 0; i < REPLICAS; i++)
				exchange(i, works);
		at.now_ns += SECOND / 100;
		at.utc_ns += SECOND / 100;
	}
	return got;
}

START_TEST(together_they_grant_the_rate)
{
	int got = run(60, true);

	/* Each has a burst of its own at first, and what one grants in an interval. */
	ck_assert_int_ge(got, 600);
	ck_assert_int_le(got, 600 + REPLICAS * 10 + REPLICAS);
	got = run(60, true);
	ck_assert_int_ge(got, 600 * 98 / 100);
	ck_assert_int_le(got, 600 * 102 / 100);
}
END_TEST

START_TEST(apart_each_grants_the_rate_and_afterwards_all_together)
{
	int got;

	(void)run(10, true);
	got = run(60, false);
	ck_assert_int_ge(got, REPLICAS * 590);
	ck_assert_int_le(got, REPLICAS * (600 + 10));
	/* What was granted meanwhile is not owed for long. */
	got = run(5, true);
	ck_assert_int_ge(got, 10);
	got = run(60, true);
	ck_assert_int_ge(got, 590);
	ck_assert_int_le(got, 612);
}
END_TEST

START_TEST(tokens_of_a_day_are_those_of_all)
{
	const struct kvw_rate_limits limits = {.tokens_per_day = 1000};

	ck_assert(ask(0, limits, 600));
	exchange(0, true);
	ck_assert(ask(1, limits, 100)); /* which knows nothing yet */
	exchange(1, true);
	ck_assert_int_eq(kvw_day_used(&subject(1)->day, 20000), 700);
	ck_assert(!ask(1, limits, 301));
	ck_assert(ask(1, limits, 300));
	exchange(1, false);
	exchange(1, true);
	exchange(0, true);
	ck_assert_int_eq(kvw_day_used(&subject(0)->day, 20000), 1000);
	ck_assert(!ask(0, limits, 1));
	ck_assert_int_eq(totals.day_tokens, 1000);
	at.now_ns += DAY;
	at.utc_ns += DAY;
	ck_assert(ask(0, limits, 5));
	exchange(0, true);
	ck_assert_int_eq(kvw_day_used(&subject(0)->day, 20001), 5);
	ck_assert(ask(1, limits, 7));
	exchange(1, true);
	ck_assert_int_eq(kvw_day_used(&subject(1)->day, 20001), 12);
	ck_assert_int_eq(totals.day_tokens, 12);
}
END_TEST

START_TEST(totals_that_were_lost_begin_again)
{
	const struct kvw_rate_limits limits = {.requests_per_minute = 600, .burst_ns = SECOND};

	(void)run(10, true);
	totals = (struct kvw_rate_sums){0};
	exchange(0, true);
	exchange(1, true);
	at.now_ns += 2 * SECOND;
	at.utc_ns += 2 * SECOND;
	ck_assert(ask(0, limits, 0) && ask(1, limits, 0));
	ck_assert_int_ge(run(10, true), 98);
}
END_TEST

/* Whatever stands in Redis, nothing overflows. */
START_TEST(totals_are_read_or_refused)
{
	static const char *const bad[] = {"", "-", "1 ", " 1", "+1", "1.0", "0x1", "9223372036854775808",
		"-9223372036854775809", "99999999999999999999999"};
	struct kvw_slice texts[KVW_RATE_TOTALS] = {KVW_SLICE("7"), KVW_SLICE("-9223372036854775808"),
		KVW_SLICE("9223372036854775807"), KVW_SLICE("-0")};
	struct kvw_rate_sums sums;

	ck_assert(kvw_rate_share_read(texts, &sums));
	ck_assert_int_eq(sums.requests, 7);
	ck_assert_int_eq(sums.tokens, INT64_MIN);
	ck_assert_int_eq(sums.day_tokens, INT64_MAX);
	ck_assert_int_eq(sums.exchanges, 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		texts[i % KVW_RATE_TOTALS] = kvw_slice_of(bad[i]);
		ck_assert_msg(!kvw_rate_share_read(texts, &sums), "%s", bad[i]);
		texts[i % KVW_RATE_TOTALS] = KVW_SLICE("1");
	}
	texts[3] = (struct kvw_slice){NULL, 0};
	ck_assert(!kvw_rate_share_read(texts, &sums));
}
END_TEST

START_TEST(totals_that_no_replica_wrote)
{
	static const int64_t wild[] = {INT64_MAX - 1000000, INT64_MIN + 1000000, INT64_MAX - 1000000, 0, -1000};
	const struct kvw_rate_limits limits = {600, 600, 600, 0, SECOND};

	for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
		totals.requests = totals.tokens = totals.day_tokens = wild[i];
		(void)ask(0, limits, 1);
		exchange(0, true);
		at.now_ns += SECOND;
		at.utc_ns += SECOND;
	}
	ck_assert_int_ge(kvw_day_used(&subject(0)->day, 20000), 0);
}
END_TEST

/* A request that was charged and left before a worker was asked. */
START_TEST(what_another_gives_back_is_given_back)
{
	const struct kvw_rate_limits limits = {.requests_per_minute = 60, .tokens_per_minute = 6000};
	const struct kvw_rate_party party = {KVW_RATE_KEY, KVW_SLICE("k"), limits};
	const struct kvw_rate_demand demand = {100000, 0, 0};
	struct kvw_rate_ticket ticket;
	struct kvw_rate_refusal refusal;

	for (int i = 0; i < 2; i++) {
		ck_assert(ask(i, limits, 0));
		exchange(i, true);
	}
	exchange(0, true);
	ck_assert(kvw_rates_take(tables[0], &party, 1, &demand, &at, &ticket, &refusal));
	exchange(0, true);
	exchange(1, true);
	ck_assert_int_eq(kvw_bucket_debt_ns(&subject(1)->tokens, at.now_ns), 1000 * SECOND);
	kvw_rates_settle(&ticket, 0, 0, false, at.now_ns);
	exchange(0, true);
	exchange(1, true);
	ck_assert_int_eq(kvw_bucket_debt_ns(&subject(1)->tokens, at.now_ns), 0);
	ck_assert_int_eq(kvw_bucket_debt_ns(&subject(1)->requests, at.now_ns), SECOND);
}
END_TEST

START_TEST(a_day_of_lost_totals_is_not_forgotten)
{
	const struct kvw_rate_limits limits = {.tokens_per_day = 1000};

	ck_assert(ask(0, limits, 600));
	exchange(0, true);
	ck_assert(ask(1, limits, 100));
	exchange(1, true);
	totals = (struct kvw_rate_sums){.day = totals.day};
	ck_assert(ask(0, limits, 50));
	exchange(0, true);
	ck_assert(ask(1, limits, 5));
	exchange(1, true);
	ck_assert_int_eq(kvw_day_used(&subject(0)->day, 20000), 650);
	ck_assert_int_eq(kvw_day_used(&subject(1)->day, 20000), 755);
}
END_TEST

/* What was held back of a day is given back to that day. */
START_TEST(a_request_over_midnight_is_not_of_the_next_day)
{
	const struct kvw_rate_limits limits = {.tokens_per_day = 1000};
	const struct kvw_rate_party party = {KVW_RATE_KEY, KVW_SLICE("k"), limits};
	const struct kvw_rate_demand demand = {100000, 0, 0};
	struct kvw_rate_ticket ticket;
	struct kvw_rate_refusal refusal;

	ck_assert(kvw_rates_take(tables[0], &party, 1, &demand, &at, &ticket, &refusal));
	exchange(0, true);
	ck_assert_int_eq(totals.day_tokens, 100000);
	at.now_ns += DAY;
	at.utc_ns += DAY;
	ck_assert(ask(1, limits, 300));
	exchange(1, true);
	kvw_rates_settle(&ticket, 10, 0, true, at.now_ns);
	exchange(0, true);
	exchange(1, true);
	ck_assert_int_eq(totals.day_tokens, 300);
	ck_assert_int_eq(kvw_day_used(&subject(0)->day, 20001), 300);
	ck_assert_int_eq(kvw_day_used(&subject(1)->day, 20001), 300);
}
END_TEST

/* One that was idle is not charged with all that the others did meanwhile. */
START_TEST(an_idle_one_comes_back)
{
	const struct kvw_rate_limits limits = {.requests_per_minute = 600, .burst_ns = SECOND};
	int got = 0;

	ck_assert(ask(1, limits, 0));
	exchange(1, true);
	for (int64_t ms = 0; ms < 120000; ms += 10) {
		got += ask(0, limits, 0);
		if (ms % 100 == 50) {
			exchange(0, true);
			exchange(1, true);
		}
		at.now_ns += SECOND / 100;
		at.utc_ns += SECOND / 100;
	}
	ck_assert_int_ge(got, 1200);
	ck_assert(ask(1, limits, 0));
	exchange(1, true);
	ck_assert_int_le(kvw_bucket_debt_ns(&subject(1)->requests, at.now_ns), 2 * SECOND);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("share");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, together_they_grant_the_rate);
	tcase_add_test(tcase, apart_each_grants_the_rate_and_afterwards_all_together);
	tcase_add_test(tcase, tokens_of_a_day_are_those_of_all);
	tcase_add_test(tcase, totals_that_were_lost_begin_again);
	tcase_add_test(tcase, totals_are_read_or_refused);
	tcase_add_test(tcase, totals_that_no_replica_wrote);
	tcase_add_test(tcase, what_another_gives_back_is_given_back);
	tcase_add_test(tcase, a_day_of_lost_totals_is_not_forgotten);
	tcase_add_test(tcase, a_request_over_midnight_is_not_of_the_next_day);
	tcase_add_test(tcase, an_idle_one_comes_back);
	return run_tcase("rates-share", tcase);
}
