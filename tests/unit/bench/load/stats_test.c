/* stats_test.c - percentiles, means, and the service level that goodput counts. */
#include <check.h>
#include <stdlib.h>

#include "bench/load/outcome.h"
#include "bench/load/stats.h"
#include "bench/load/text.h"
#include "tests/unit/suite.h"

#define NEAR(a, b) ck_assert_double_eq_tol((a), (b), 1e-9)

START_TEST(no_samples_give_zero)
{
	struct kvb_samples set = {0};
	struct kvb_summary summary = kvb_samples_summary(&set, 1);

	NEAR(kvb_samples_percentile(&set, 50), 0);
	ck_assert_uint_eq(summary.count, 0);
	NEAR(summary.mean, 0);
	kvb_samples_finish(&set);
}
END_TEST

START_TEST(percentiles_interpolate_between_ranks)
{
	struct kvb_samples set = {0};

	kvb_samples_add(&set, 40);
	NEAR(kvb_samples_percentile(&set, 99), 40);
	kvb_samples_add(&set, 10);
	kvb_samples_add(&set, 30);
	kvb_samples_add(&set, 20);
	NEAR(kvb_samples_percentile(&set, 0), 10);
	NEAR(kvb_samples_percentile(&set, 100), 40);
	NEAR(kvb_samples_percentile(&set, 50), 25);   /* rank 1.5 */
	NEAR(kvb_samples_percentile(&set, 90), 37);   /* rank 2.7 */
	NEAR(kvb_samples_percentile(&set, 99), 39.7); /* rank 2.97 */
	kvb_samples_finish(&set);
}
END_TEST

START_TEST(samples_added_after_a_percentile_count)
{
	struct kvb_samples set = {0};

	for (int i = 2000; i > 0; i--)
		kvb_samples_add(&set, i);
	NEAR(kvb_samples_percentile(&set, 50), 1000.5);
	kvb_samples_add(&set, -1);
	NEAR(kvb_samples_percentile(&set, 0), -1);
	kvb_samples_finish(&set);
}
END_TEST

START_TEST(summary_is_scaled)
{
	struct kvb_samples set = {0};
	struct kvb_summary summary;

	kvb_samples_add(&set, 1);
	kvb_samples_add(&set, 3);
	summary = kvb_samples_summary(&set, 10);
	NEAR(summary.mean, 20);
	NEAR(summary.p50, 20);
	NEAR(summary.max, 30);
	kvb_samples_finish(&set);
}
END_TEST

START_TEST(random_numbers_follow_the_seed_and_their_mean)
{
	uint64_t a = 7, b = 7, c = 8;
	double sum = 0;

	ck_assert_uint_eq(kvb_random(&a), kvb_random(&b));
	ck_assert_uint_ne(kvb_random(&a), kvb_random(&c));
	for (int i = 0; i < 100000; i++) {
		double unit = kvb_random_unit(&a);

		ck_assert(unit >= 0 && unit < 1);
		sum += kvb_random_exponential(&b, 0.25);
	}
	ck_assert_double_eq_tol(sum / 100000, 0.25, 0.005);
}
END_TEST

/* A request that took ttft and e2e seconds for `tokens` tokens after a prompt of `prompt`. */
static struct kvb_record record(double ttft, double e2e, int64_t tokens, int64_t prompt)
{
	return (struct kvb_record){.ok = true,
		.error = "",
		.ttft_ns = (int64_t)(ttft * 1e9),
		.e2e_ns = (int64_t)(e2e * 1e9),
		.completion_tokens = tokens,
		.prompt_tokens = prompt};
}

static const struct kvb_slo slo = {.ttft_s = 2, .ttft_tokens_per_s = 8192, .tpot_s = 0.1};

START_TEST(goodput_allows_time_by_prompt_length)
{
	struct kvb_record short_prompt = record(2.5, 3, 10, 100);
	struct kvb_record long_prompt = record(2.5, 3, 10, 8192);
	struct kvb_record too_late = record(3.01, 3.5, 10, 8192);

	ck_assert(!kvb_record_good(&short_prompt, &slo, 1));
	ck_assert(kvb_record_good(&long_prompt, &slo, 1));
	ck_assert(!kvb_record_good(&too_late, &slo, 1));
}
END_TEST

START_TEST(goodput_limits_time_per_token)
{
	struct kvb_record fast = record(1, 1.95, 11, 100); /* 95 ms a token */
	struct kvb_record slow = record(1, 2.05, 11, 100); /* 105 ms a token */
	struct kvb_record one = record(1, 1, 1, 100);

	NEAR(kvb_record_tpot_ns(&fast), 95e6);
	ck_assert(kvb_record_good(&fast, &slo, 1));
	ck_assert(!kvb_record_good(&slow, &slo, 1));
	ck_assert(kvb_record_good(&one, &slo, 1));
}
END_TEST

START_TEST(goodput_counts_simulated_time)
{
	struct kvb_record quick = record(0.3, 0.4, 11, 0);

	ck_assert(kvb_record_good(&quick, &slo, 1));
	ck_assert(kvb_record_good(&quick, &slo, 6));
	ck_assert(!kvb_record_good(&quick, &slo, 10)); /* 3 s for the workers */
}
END_TEST

START_TEST(tally_sums_only_what_is_known)
{
	struct kvb_tally tally = {.speed = 10, .slo = slo};
	struct kvb_record told = record(0.1, 0.19, 11, 1000), silent = record(0.1, 0.19, 11, 5000);
	struct kvb_record failed = {.error = "status 503"};
	struct kvb_result result;

	told.cached_known = true;
	told.cached_tokens = 750;
	kvb_tally_add(&tally, &told);
	kvb_tally_add(&tally, &silent);
	kvb_tally_add(&tally, &failed);
	kvb_tally_add(&tally, &failed);
	kvb_tally_add_gap(&tally, 20000000);
	result = kvb_tally_result(&tally, INT64_C(2000000000));
	ck_assert_uint_eq(result.ok, 2);
	ck_assert_uint_eq(result.failed, 2);
	ck_assert_uint_eq(result.cached_reported, 1);
	NEAR(result.cached_share, 0.75);
	NEAR(result.goodput, 0.5); /* failed requests are not good */
	NEAR(result.duration_s, 20);
	NEAR(result.requests_per_s, 0.1);
	NEAR(result.prompt_tokens_per_s, 300);
	NEAR(result.ttft_s.mean, 1);
	NEAR(result.itl_s.mean, 0.2);
	NEAR(result.tpot_s.mean, 0.09);
	ck_assert_uint_eq(tally.error_kinds, 1);
	ck_assert_str_eq(tally.errors[0].kind, "status 503");
	ck_assert_uint_eq(tally.errors[0].count, 2);
	kvb_tally_finish(&tally);
}
END_TEST

START_TEST(kinds_of_errors_are_bounded)
{
	struct kvb_tally tally = {.speed = 1, .slo = slo};
	uint64_t sum = 0;

	for (int i = 0; i < 100; i++) {
		char kind[32];
		struct kvb_record failed = {.error = kind};

		snprintf(kind, sizeof(kind), "kind %d", i);
		kvb_tally_add(&tally, &failed);
	}
	ck_assert_uint_eq(tally.error_kinds, KVB_ERROR_KINDS);
	for (size_t i = 0; i < tally.error_kinds; i++)
		sum += tally.errors[i].count;
	ck_assert_uint_eq(sum, 100);
	ck_assert_str_eq(tally.errors[KVB_ERROR_KINDS - 1].kind, "other");
	kvb_tally_finish(&tally);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("all");

	tcase_add_test(tests, no_samples_give_zero);
	tcase_add_test(tests, percentiles_interpolate_between_ranks);
	tcase_add_test(tests, samples_added_after_a_percentile_count);
	tcase_add_test(tests, summary_is_scaled);
	tcase_add_test(tests, random_numbers_follow_the_seed_and_their_mean);
	tcase_add_test(tests, goodput_allows_time_by_prompt_length);
	tcase_add_test(tests, goodput_limits_time_per_token);
	tcase_add_test(tests, goodput_counts_simulated_time);
	tcase_add_test(tests, tally_sums_only_what_is_known);
	tcase_add_test(tests, kinds_of_errors_are_bounded);
	return run_tcase("load stats", tests);
}
