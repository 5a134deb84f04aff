/*
 * foreign_test.c - what of a worker's own counts is not ours.
 */
#include <check.h>
#include <string.h>

#include "fleet/foreign.h"
#include "tests/unit/suite.h"

static struct kvw_foreign foreign;
static struct kvw_load_sequences own; /* ours, now */
static struct kvw_scrape page;
static struct kvw_foreign_found found;
static int64_t now_ns;

static void setup(void)
{
	memset(&foreign, 0, sizeof(foreign));
	own = (struct kvw_load_sequences){0, 0, 0};
	page = (struct kvw_scrape){.requests_waiting = -1,
		.requests_running = -1,
		.prompts = -1,
		.prompt_tokens = -1,
		.first_tokens = -1,
		.cache_queries = -1,
		.cache_hits = -1};
	memset(&found, 0, sizeof(found));
	now_ns = 1000;
}

static void count_all(double waiting, double running)
{
	page.requests_waiting = waiting;
	page.requests_running = running;
}

/* A page that says so, a microsecond after the last one; nothing of ours comes or goes meanwhile. */
static void look(void)
{
	now_ns += 1000;
	kvw_foreign_asked(&foreign, &own);
	kvw_foreign_read(&foreign, &page, &own, now_ns, &found);
}

static void is_found(uint32_t waiting, uint32_t running)
{
	ck_assert_uint_eq(found.waiting, waiting);
	ck_assert_uint_eq(found.running, running);
}

START_TEST(what_is_beyond_ours_is_foreign)
{
	count_all(5, 8);
	own = (struct kvw_load_sequences){4, 1, 100};
	look();
	look();
	is_found(4, 5);
	own.all = 20; /* all of it */
	look();
	is_found(0, 0);
	/* Of ours none waits that has no first token. */
	own = (struct kvw_load_sequences){10, 0, 120};
	look();
	look();
	is_found(3, 0);
}
END_TEST

START_TEST(one_page_alone_is_not_believed)
{
	count_all(1000, 1000);
	look();
	is_found(0, 0);
	count_all(0, 0);
	look();
	is_found(0, 0);
	count_all(3, 1);
	look();
	is_found(0, 0);
	count_all(7, 4);
	look();
	is_found(3, 1);
	count_all(6, 0); /* none is believed at once */
	look();
	is_found(6, 0);
	count_all(-1, -1); /* a page without them */
	look();
	is_found(0, 0);
	count_all(6, 0);
	look();
	is_found(0, 0);
}
END_TEST

START_TEST(ours_that_come_and_go_while_it_is_read_are_not_foreign)
{
	count_all(4, 6);
	for (int i = 0; i < 3; i++) {
		own = (struct kvw_load_sequences){2, 2, 50};
		kvw_foreign_asked(&foreign, &own);
		own = (struct kvw_load_sequences){0, 0, 58}; /* eight came, and all have ended */
		kvw_foreign_read(&foreign, &page, &own, now_ns, &found);
		is_found(0, 0);
	}
}
END_TEST

START_TEST(prompts_are_as_long_as_the_worker_says)
{
	look();
	ck_assert_double_eq(found.prompt_tokens, KVW_FOREIGN_PROMPT);
	ck_assert_double_eq(found.cached_tokens, 0);
	page.prompts = 1000;
	page.prompt_tokens = 200000;
	page.cache_queries = 400000;
	page.cache_hits = 100000;
	look();
	ck_assert_double_eq(found.prompt_tokens, 200);
	ck_assert_double_eq(found.cached_tokens, 50);
	look();
	ck_assert_double_eq(found.prompt_tokens, 200); /* no other has ended */
	/* Longer ones come: soon only these count. */
	for (int i = 0; i < 20; i++) {
		page.prompts += 10;
		page.prompt_tokens += 100000;
		page.cache_queries += 100000;
		look();
	}
	ck_assert_double_gt(found.prompt_tokens, 9500);
	ck_assert_double_lt(found.cached_tokens, 200);
	/* Counters that began again. */
	page.prompts = 2;
	page.prompt_tokens = 60;
	look();
	ck_assert_double_eq(found.prompt_tokens, 30);
}
END_TEST

START_TEST(they_take_what_first_tokens_took_while_some_waited)
{
	count_all(10, 4);
	page.first_tokens = 70;
	look();
	look();
	ck_assert(found.each_ns == 0 && found.since_ns == 1000);
	look();
	ck_assert(found.each_ns == 0 && found.since_ns == 2000);
	page.first_tokens = 72;
	look();
	ck_assert(found.each_ns == 1500 && found.since_ns == 0);
	look();
	page.first_tokens = 76;
	look();
	ck_assert_double_eq(found.each_ns, (1500 + 500) / 2.0);
	/* None waited: the next ones may be others. */
	count_all(0, 4);
	look();
	ck_assert(found.each_ns == 0 && found.since_ns == 0);
	count_all(3, 4);
	look();
	ck_assert(found.each_ns == 0 && found.since_ns == 0);
	page.first_tokens = 77;
	look();
	ck_assert(found.each_ns == 1000);
	page.first_tokens = 2; /* it began again */
	look();
	ck_assert(found.each_ns == 0);
}
END_TEST

START_TEST(another_process_is_believed_by_its_own_pages)
{
	count_all(5, 5);
	look();
	kvw_foreign_asked(&foreign, &own);
	kvw_foreign_restarted(&foreign);
	kvw_foreign_read(&foreign, &page, &own, now_ns, &found);
	is_found(0, 0);
	look();
	is_found(5, 5);
}
END_TEST

START_TEST(any_numbers_are_borne)
{
	static const double numbers[] = {-1, 0, 0.5, 1, 1e6, 1e15};
	const size_t n = sizeof(numbers) / sizeof(numbers[0]);

	for (size_t i = 0; i < n * n * n; i++) {
		count_all(numbers[i % n] > 1e6 ? 1e6 : numbers[i % n],
			numbers[i / n % n] > 1e6 ? 1e6 : numbers[i / n % n]);
		page.prompts = numbers[i / n / n];
		page.prompt_tokens = numbers[i % n];
		page.first_tokens = numbers[(i + 2) % n];
		page.cache_queries = numbers[i / n % n];
		page.cache_hits = numbers[(i + 1) % n];
		look();
		ck_assert_uint_le(found.waiting, 1000000);
		ck_assert_uint_le(found.running, 2000000);
		ck_assert_double_ge(found.prompt_tokens, 0);
		ck_assert(found.each_ns >= 0 && found.since_ns >= 0);
		ck_assert_double_le(found.cached_tokens, found.prompt_tokens);
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("foreign");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, what_is_beyond_ours_is_foreign);
	tcase_add_test(tcase, one_page_alone_is_not_believed);
	tcase_add_test(tcase, ours_that_come_and_go_while_it_is_read_are_not_foreign);
	tcase_add_test(tcase, prompts_are_as_long_as_the_worker_says);
	tcase_add_test(tcase, they_take_what_first_tokens_took_while_some_waited);
	tcase_add_test(tcase, another_process_is_believed_by_its_own_pages);
	tcase_add_test(tcase, any_numbers_are_borne);
	return run_tcase("foreign requests", tcase);
}
