/*
 * rates_test.c - limits of keys, tenants and models: what each is charged with, with a clock of the test's own.
 */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "rates/rates.h"
#include "tests/unit/suite.h"

#define SECOND INT64_C(1000000000)
#define DAY    (86400 * SECOND)
#define MOST   6400

static struct kvw_rate_table *table;
static struct kvw_rate_time at;
static struct kvw_rate_refusal refusal;
static struct kvw_rate_ticket ticket;

static void setup(void)
{
	table = kvw_rate_table_create(MOST);
	ck_assert_ptr_nonnull(table);
	at = (struct kvw_rate_time){1000 * SECOND, 20000 * DAY + DAY - 90 * SECOND};
}

static void teardown(void)
{
	kvw_rate_table_destroy(table);
}

static struct kvw_rate_party party(enum kvw_rate_kind kind, const char *name, struct kvw_rate_limits limits)
{
	return (struct kvw_rate_party){kind, kvw_slice_of(name), limits};
}

/* A request of one party. True: it may go on, and is under way. */
static bool take(struct kvw_rate_party of, uint64_t prompt, uint64_t answer)
{
	const struct kvw_rate_demand demand = {prompt, answer, prompt > 0};
	bool taken = kvw_rates_take(table, &of, 1, &demand, &at, &ticket, &refusal);

	if (!taken)
		kvw_rates_drop(&ticket);
	return taken;
}

static void pass(int64_t ns)
{
	at.now_ns += ns;
	at.utc_ns += ns;
}

static struct kvw_rate_subject *subject(enum kvw_rate_kind kind, const char *name)
{
	struct kvw_rate_subject *found = kvw_rate_table_hold(
		table, kind, kvw_slice_of(name), at.now_ns, kvw_rate_day(at.utc_ns));

	kvw_rate_subject_put(found);
	return found;
}

/* 50 keys at ten times their rates, which differ, for a minute: each gets its own, and no more. */
START_TEST(each_key_gets_its_rate)
{
	enum { KEYS = 50, TICK_MS = 5 };
	int got[KEYS] = {0}, due[KEYS] = {0};

	for (int64_t ms = 0; ms < 60000; ms += TICK_MS) {
		for (int i = 0; i < KEYS; i++) {
			int64_t rate = 60 + 60 * i;
			char name[16];

			(void)snprintf(name, sizeof(name), "key%d", i);
			for (; due[i] < ms * 10 * rate / 60000; due[i]++)
				if (take(party(KVW_RATE_KEY, name,
						 (struct kvw_rate_limits){
							 .requests_per_minute = rate, .burst_ns = SECOND}),
					    0, 0)) {
					got[i]++;
					kvw_rates_settle(&ticket, 0, 0, true, at.now_ns);
				}
		}
		pass(TICK_MS * 1000000);
	}
	for (int i = 0; i < KEYS; i++) {
		double expected = (60 + 60 * i) * 61.0 / 60; /* with the second that was saved up */

		ck_assert_double_ge(got[i], expected * 0.98 - 1);
		ck_assert_double_le(got[i], expected * 1.02 + 1);
	}
}
END_TEST

START_TEST(tokens_are_charged_by_prediction_and_corrected)
{
	struct kvw_rate_party of =
		party(KVW_RATE_KEY, "k", (struct kvw_rate_limits){.tokens_per_minute = 6000, .tokens_per_day = 5000});

	ck_assert(take(of, 400, 500)); /* of 1000, which 10 s bring */
	ck_assert_uint_eq(ticket.tokens, 900);
	ck_assert(!take(of, 100, 50));
	ck_assert_int_eq(refusal.limit, KVW_RATE_TOKENS);
	ck_assert_int_eq(refusal.most, 6000);
	ck_assert_int_eq(refusal.wait_ns, SECOND / 2); /* 50 tokens */
	ck_assert(take(of, 50, 50));
	kvw_rates_settle(&ticket, 40, 10, true, at.now_ns);
	ck_assert_int_eq(subject(KVW_RATE_KEY, "k")->tokens_charged, 940);
	ck_assert(take(of, 10, 50));
	kvw_rates_settle(&ticket, 460, 10, true, at.now_ns); /* more than was predicted: 400 are owed */
	ck_assert_int_eq(subject(KVW_RATE_KEY, "k")->tokens_charged, 1400);
	ck_assert_int_eq(kvw_day_used(&subject(KVW_RATE_KEY, "k")->day, 20000), 1400);
	ck_assert(!take(of, 1, 1));
	ck_assert_int_eq(refusal.wait_ns, kvw_rate_ns(402, 6000));
	pass(refusal.wait_ns);
	ck_assert(take(of, 1, 1));
	kvw_rates_settle(&ticket, 0, 0, false, at.now_ns);
	ck_assert_int_eq(subject(KVW_RATE_KEY, "k")->requests_charged, 3);
	kvw_rates_settle(&ticket, 77, 0, false, at.now_ns); /* once */
	ck_assert_int_eq(subject(KVW_RATE_KEY, "k")->tokens_charged, 1400);
}
END_TEST

START_TEST(answers_are_learned)
{
	struct kvw_rate_party of =
		party(KVW_RATE_KEY, "k", (struct kvw_rate_limits){.tokens_per_minute = 60000000});

	ck_assert(take(of, 100, 0));
	ck_assert_uint_eq(ticket.tokens, 100 + KVW_RATE_ANSWER);
	kvw_rates_settle(&ticket, 140, 40, true, at.now_ns);
	ck_assert(take(of, 100, 0));
	ck_assert_uint_eq(ticket.tokens, 140);
	kvw_rates_settle(&ticket, 220, 120, true, at.now_ns);
	ck_assert(take(of, 100, 0));
	ck_assert_uint_eq(ticket.tokens, 150);
	kvw_rates_settle(&ticket, 0, 0, false, at.now_ns);
	ck_assert(take(of, 100, 7));
	ck_assert_uint_eq(ticket.tokens, 107);
	kvw_rates_settle(&ticket, 0, 0, false, at.now_ns);
	ck_assert(kvw_rates_take(table, &of, 1, &(struct kvw_rate_demand){100, 9, 0}, &at, &ticket, &refusal));
	ck_assert_uint_eq(ticket.tokens, 100); /* such as embeddings */
	kvw_rates_settle(&ticket, 90, 0, true, at.now_ns);
}
END_TEST

START_TEST(a_request_of_more_than_the_limit_passes_when_all_is_there)
{
	struct kvw_rate_party of = party(KVW_RATE_KEY, "k", (struct kvw_rate_limits){.tokens_per_minute = 600});

	ck_assert(take(of, 1000, 200)); /* two minutes' worth */
	kvw_rates_settle(&ticket, 1200, 200, true, at.now_ns);
	ck_assert(!take(of, 1000, 200));
	ck_assert_int_eq(refusal.wait_ns, 120 * SECOND);
	pass(120 * SECOND);
	ck_assert(take(of, 1000, 200));
	kvw_rates_settle(&ticket, 0, 0, false, at.now_ns);
}
END_TEST

START_TEST(a_day_ends_at_midnight)
{
	struct kvw_rate_party of = party(KVW_RATE_TENANT, "t", (struct kvw_rate_limits){.tokens_per_day = 100});

	ck_assert(take(of, 50, 50));
	ck_assert(!take(of, 1, 1));
	ck_assert_int_eq(refusal.limit, KVW_RATE_DAY);
	ck_assert_int_eq(refusal.kind, KVW_RATE_TENANT);
	ck_assert_int_eq(refusal.wait_ns, 90 * SECOND);
	pass(refusal.wait_ns);
	ck_assert(take(of, 1, 1));
	kvw_rates_settle(&ticket, 2, 1, true, at.now_ns);
}
END_TEST

/* A clock that is set back over midnight gives the day before no tokens again, nor the next one, and locks no client out. */
START_TEST(a_clock_set_back_over_midnight)
{
	struct kvw_rate_party of = party(KVW_RATE_TENANT, "t", (struct kvw_rate_limits){.tokens_per_day = 100});
	struct kvw_rate_left requests, tokens;
	struct kvw_rate_state state;

	ck_assert(take(of, 50, 50));
	kvw_rates_settle(&ticket, 100, 50, true, at.now_ns);
	pass(100 * SECOND);
	ck_assert(take(of, 20, 40));
	at.utc_ns -= 30 * SECOND;
	kvw_rates_settle(&ticket, 40, 20, true, at.now_ns);
	ck_assert(take(of, 20, 20));
	kvw_rates_view(&ticket, &at, &requests, &tokens);
	ck_assert_int_eq(tokens.remaining, 20);
	ck_assert_int_eq(tokens.reset_ns, DAY + 20 * SECOND);
	kvw_rates_settle(&ticket, 30, 10, true, at.now_ns); /* less than was predicted, which is seen */
	kvw_rates_look(table, &of, &at, &state);
	ck_assert_int_eq(state.day.remaining, 30);
	ck_assert(!take(of, 20, 11));
	ck_assert_int_eq(refusal.wait_ns, DAY + 20 * SECOND);
	pass(30 * SECOND);
	ck_assert(!take(of, 20, 11));
	ck_assert(take(of, 20, 10));
	kvw_rates_settle(&ticket, 30, 10, true, at.now_ns);
	pass(DAY);
	ck_assert(take(of, 50, 50));
	kvw_rates_settle(&ticket, 100, 50, true, at.now_ns);
	/* One that was a year ahead was wrong before: what counts is the day that there is. */
	at.utc_ns += 365 * DAY;
	ck_assert(take(of, 50, 50));
	kvw_rates_settle(&ticket, 100, 50, true, at.now_ns);
	at.utc_ns -= 365 * DAY;
	ck_assert(take(of, 50, 50));
	kvw_rates_settle(&ticket, 100, 50, true, at.now_ns);
	ck_assert(!take(of, 1, 1));
}
END_TEST

START_TEST(concurrent_requests)
{
	struct kvw_rate_party of = party(KVW_RATE_MODEL, "m", (struct kvw_rate_limits){.concurrent = 2});
	struct kvw_rate_ticket first;

	ck_assert(take(of, 0, 0));
	first = ticket;
	ck_assert(take(of, 0, 0));
	ck_assert(!take(of, 0, 0));
	ck_assert_int_eq(refusal.limit, KVW_RATE_CONCURRENT);
	ck_assert_int_eq(refusal.wait_ns, SECOND);
	kvw_rates_settle(&first, 0, 0, true, at.now_ns);
	ck_assert(take(of, 0, 0));
	ck_assert_int_eq(subject(KVW_RATE_MODEL, "m")->running, 2);
}
END_TEST

/* What one of them refuses none is charged with. */
START_TEST(all_or_none)
{
	const struct kvw_rate_demand demand = {50, 50, 1};
	struct kvw_rate_party all[] = {
		party(KVW_RATE_KEY, "k",
			(struct kvw_rate_limits){60, 600000, 1000000, 5, 0}),
		party(KVW_RATE_TENANT, "k", (struct kvw_rate_limits){600, 6000000, 1000000, 5, 0}),
		party(KVW_RATE_MODEL, "k", (struct kvw_rate_limits){0, 0, 100, 5, 0}),
	};

	ck_assert(kvw_rates_take(table, all, 3, &demand, &at, &ticket, &refusal));
	for (int i = 0; i < 5; i++) {
		struct kvw_rate_ticket other;

		ck_assert(!kvw_rates_take(table, all, 3, &demand, &at, &other, &refusal));
		ck_assert_int_eq(refusal.limit, KVW_RATE_DAY);
		ck_assert_int_eq(refusal.kind, KVW_RATE_MODEL);
		kvw_rates_drop(&other);
	}
	kvw_rates_settle(&ticket, 100, 50, true, at.now_ns);
	ck_assert_uint_eq(kvw_rate_table_count(table), 3);
	for (int i = 0; i < KVW_RATE_KINDS; i++) {
		struct kvw_rate_subject *one = subject((enum kvw_rate_kind)i, "k");

		ck_assert_int_eq(one->running, 0);
		ck_assert_int_eq(one->tokens_charged, 100);
		ck_assert_int_eq(one->requests_charged, 1);
		ck_assert_uint_eq(one->users, 0);
	}
	ck_assert_int_eq(kvw_bucket_debt_ns(&subject(KVW_RATE_KEY, "k")->requests, at.now_ns), SECOND);
	ck_assert_int_eq(kvw_bucket_debt_ns(&subject(KVW_RATE_KEY, "k")->tokens, at.now_ns), SECOND / 100);
	ck_assert_int_eq(kvw_day_used(&subject(KVW_RATE_TENANT, "k")->day, 20000), 100);
}
END_TEST

START_TEST(header_fields)
{
	struct kvw_rate_party of = party(
		KVW_RATE_KEY, "k", (struct kvw_rate_limits){600, 60000, 0, 0, 0});
	char fields[KVW_RATE_FIELDS_ROOM];

	ck_assert(take(of, 400, 600));
	ck_assert_uint_eq(kvw_rates_fields(&ticket, &at, KVW_RATE_OPENAI, fields), strlen(fields));
	ck_assert_str_eq(fields, "x-ratelimit-limit-requests: 600\r\nx-ratelimit-remaining-requests: 99\r\n"
				 "x-ratelimit-reset-requests: 100ms\r\nx-ratelimit-limit-tokens: 60000\r\n"
				 "x-ratelimit-remaining-tokens: 9000\r\nx-ratelimit-reset-tokens: 1s\r\n");
	of.limits = (struct kvw_rate_limits){.tokens_per_day = 1000};
	ck_assert(take(of, 5, 5));
	(void)kvw_rates_fields(&ticket, &at, KVW_RATE_OPENAI, fields);
	ck_assert_str_eq(fields, "x-ratelimit-limit-tokens: 1000\r\nx-ratelimit-remaining-tokens: 990\r\n"
				 "x-ratelimit-reset-tokens: 1m30s\r\n");
	(void)kvw_rates_fields(&ticket, &at, KVW_RATE_ANTHROPIC, fields);
	ck_assert_str_eq(fields, "anthropic-ratelimit-tokens-limit: 1000\r\nanthropic-ratelimit-tokens-remaining: 990\r\n"
				 "anthropic-ratelimit-tokens-reset: 2024-10-05T00:00:00Z\r\n");
	of.limits = (struct kvw_rate_limits){.concurrent = 10};
	ck_assert(take(of, 5, 5));
	ck_assert_uint_eq(kvw_rates_fields(&ticket, &at, KVW_RATE_OPENAI, fields), 0);
}
END_TEST

/* The tightest of all parties counts; a request of which one is allowed in ten seconds shows that one. */
START_TEST(the_least_that_is_left)
{
	const struct kvw_rate_demand demand = {0, 0, 0};
	struct kvw_rate_party two[] = {
		party(KVW_RATE_KEY, "k", (struct kvw_rate_limits){.requests_per_minute = 600}),
		party(KVW_RATE_TENANT, "t", (struct kvw_rate_limits){.requests_per_minute = 3}),
	};
	struct kvw_rate_left requests, tokens;

	ck_assert(kvw_rates_take(table, two, 2, &demand, &at, &ticket, &refusal));
	kvw_rates_view(&ticket, &at, &requests, &tokens);
	ck_assert_int_eq(requests.limit, 3);
	ck_assert_int_eq(requests.remaining, 0);
	ck_assert_int_eq(requests.reset_ns, 20 * SECOND);
	ck_assert_int_eq(tokens.limit, 0);
	pass(20 * SECOND);
	kvw_rates_view(&ticket, &at, &requests, &tokens);
	ck_assert_int_eq(requests.remaining, 1);
}
END_TEST

/* Names come and go: the table keeps its bound, and what is held. */
START_TEST(the_table_is_bounded)
{
	struct kvw_rate_party held = party(KVW_RATE_KEY, "held", (struct kvw_rate_limits){.concurrent = 1});
	struct kvw_rate_limits day = {.tokens_per_day = 1000};

	ck_assert(take(held, 0, 0));
	for (int i = 0; i < 10 * MOST; i++) {
		struct kvw_rate_ticket mine;
		const struct kvw_rate_demand demand = {1, 1, 1};
		char name[24];
		struct kvw_rate_party of;

		(void)snprintf(name, sizeof(name), "%d", i);
		of = party(KVW_RATE_KEY, name, day);
		ck_assert(kvw_rates_take(table, &of, 1, &demand, &at, &mine, &refusal));
		kvw_rates_settle(&mine, i % 32 == 0 ? 2 : 0, 0, true, at.now_ns);
	}
	ck_assert_uint_le(kvw_rate_table_count(table), MOST);
	ck_assert_int_eq(subject(KVW_RATE_KEY, "held")->running, 1);
	ck_assert_int_eq(kvw_day_used(&subject(KVW_RATE_KEY, "0")->day, 20000), 2);
}
END_TEST

static void *ask(void *arg)
{
	int *got = arg;

	for (int i = 0; i < 5000; i++) {
		const struct kvw_rate_demand demand = {10, 10, 1};
		struct kvw_rate_party of = party(KVW_RATE_KEY, i % 2 ? "a" : "b",
			(struct kvw_rate_limits){60000, 60000000, 1000000, 3, 0});
		struct kvw_rate_ticket mine;
		struct kvw_rate_refusal why;

		if (!kvw_rates_take(table, &of, 1, &demand, &at, &mine, &why)) {
			kvw_rates_drop(&mine);
			continue;
		}
		kvw_rates_settle(&mine, 15, 5, true, at.now_ns);
		++*got;
	}
	return NULL;
}

START_TEST(threads_charge_exactly)
{
	pthread_t threads[4];
	int got[4] = {0}, sum = 0;
	struct kvw_rate_subject *a, *b;

	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, ask, &got[i]), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		sum += got[i];
	}
	a = subject(KVW_RATE_KEY, "a");
	b = subject(KVW_RATE_KEY, "b");
	ck_assert_int_eq(a->requests_charged + b->requests_charged, sum);
	ck_assert_int_eq(a->tokens_charged + b->tokens_charged, 15 * (int64_t)sum);
	ck_assert_int_eq(kvw_day_used(&a->day, 20000) + kvw_day_used(&b->day, 20000), 15 * (int64_t)sum);
	ck_assert_int_eq(a->running + b->running, 0);
	ck_assert_int_le(a->requests_charged, 10000);
}
END_TEST

/* A model is shared by tenants: no client's word alone keeps the others out. */
START_TEST(a_model_holds_back_no_more_than_answers_have)
{
	const struct kvw_rate_limits limits = {
		.requests_per_minute = 600, .tokens_per_minute = 60000, .tokens_per_day = 1000000};
	struct kvw_rate_party model = party(KVW_RATE_MODEL, "m", limits);
	struct kvw_rate_ticket held;

	ck_assert(take(model, 10, 1000000000));
	held = ticket;
	ck_assert(take(model, 10, 10));
	kvw_rates_settle(&ticket, 20, 10, true, at.now_ns);
	/* What it used in the end is owed as ever. */
	kvw_rates_settle(&held, 60010, 60000, true, at.now_ns);
	ck_assert_int_eq(subject(KVW_RATE_MODEL, "m")->tokens_charged, 60030);
	ck_assert_int_eq(kvw_day_used(&subject(KVW_RATE_MODEL, "m")->day, kvw_rate_day(at.utc_ns)), 60030);
	ck_assert_int_eq(kvw_bucket_debt_ns(&subject(KVW_RATE_MODEL, "m")->tokens, at.now_ns), kvw_rate_ns(60030, 60000));
	/* Of a key its client's word counts. */
	ck_assert(take(party(KVW_RATE_KEY, "k", limits), 10, 1000000000));
	ck_assert(!take(party(KVW_RATE_KEY, "k", limits), 10, 10));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("rates");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, a_model_holds_back_no_more_than_answers_have);
	tcase_add_test(tcase, each_key_gets_its_rate);
	tcase_add_test(tcase, tokens_are_charged_by_prediction_and_corrected);
	tcase_add_test(tcase, answers_are_learned);
	tcase_add_test(tcase, a_request_of_more_than_the_limit_passes_when_all_is_there);
	tcase_add_test(tcase, a_day_ends_at_midnight);
	tcase_add_test(tcase, a_clock_set_back_over_midnight);
	tcase_add_test(tcase, concurrent_requests);
	tcase_add_test(tcase, all_or_none);
	tcase_add_test(tcase, header_fields);
	tcase_add_test(tcase, the_least_that_is_left);
	tcase_add_test(tcase, the_table_is_bounded);
	tcase_add_test(tcase, threads_charge_exactly);
	return run_tcase("rates", tcase);
}
