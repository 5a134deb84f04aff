/*
 * compare_test.c - samples out of a text, estimates with their intervals, and what is beyond noise.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "groups/compare.h"
#include "tests/unit/suite.h"

static const char text[] =
	"# TYPE kvway_group_weight gauge\n"
	"kvway_group_weight{model=\"m\",group=\"a\"} 90\n"
	"kvway_group_weight{model=\"m\",group=\"b\"} 10\n"
	"kvway_group_weight{model=\"x \\\"\\\\\",group=\"a\"} 1\n"
	"kvway_group_requests_total{model=\"m\",group=\"a\",result=\"ok\"} 90\n"
	"kvway_group_requests_total{model=\"m\",group=\"a\",result=\"error\"} 10\n"
	"kvway_group_requests_total{model=\"m\",group=\"b\",result=\"error\"} 7\n"
	"kvway_group_service_level_total{model=\"m\",group=\"a\",result=\"kept\"} 50\n"
	"kvway_group_service_level_total{model=\"m\",group=\"a\",result=\"late\"} 3\n"
	"kvway_group_service_level_total{model=\"m\",group=\"a\",result=\"slow\"} 2\n"
	"kvway_group_service_level_total{model=\"m\",group=\"a\",result=\"unseen\"} 9\n"
	"kvway_group_tokens_total{model=\"m\",group=\"a\",kind=\"prompt\"} 1000\n"
	"kvway_group_time_to_first_token_seconds_bucket{model=\"m\",group=\"a\",le=\"0.1\"} 0\n"
	"kvway_group_time_to_first_token_seconds_bucket{model=\"m\",group=\"a\",le=\"0.2\"} 100\n"
	"kvway_group_time_to_first_token_seconds_bucket{model=\"m\",group=\"a\",le=\"+Inf\"} 100\n"
	"kvway_group_time_to_first_token_seconds_sum{model=\"m\",group=\"a\"} 15\n"
	"kvway_group_time_to_first_token_seconds_count{model=\"m\",group=\"a\"} 100\n"
	"kvway_group_draft_tokens_total{model=\"m\",group=\"b\",kind=\"drafted\"} 50\n"
	"kvway_group_draft_tokens_total{model=\"m\",group=\"b\",kind=\"accepted\"} 30\n"
	"kvway_group_fidelity_total{model=\"m\",group=\"b\",of=\"a\",result=\"equal\"} 8\n"
	"kvway_group_fidelity_total{model=\"m\",group=\"b\",of=\"a\",result=\"different\"} 2\n"
	"kvway_group_fidelity_total{model=\"m\",group=\"b\",of=\"a\",result=\"unfinished\"} 1\n"
	"kvway_group_fidelity_total{model=\"m\",group=\"a\",of=\"b\",result=\"equal\"} 4\n"
	"kvway_group_fidelity_total{model=\"m\",group=\"a\",of=\"b\",result=\"different\"} 1\n"
	"kvway_group_fidelity_total{model=\"m\",group=\"e\",of=\"a\",result=\"equal\"} 99\n"
	"kvway_group_fidelity_total{model=\"n\",group=\"b\",of=\"a\",result=\"equal\"} 99\n"
	"kvway_group_fidelity_first_difference_characters_bucket{model=\"m\",group=\"b\",of=\"a\",le=\"8\"} 1\n"
	"kvway_group_fidelity_first_difference_characters_bucket{model=\"m\",group=\"b\",of=\"a\",le=\"+Inf\"} 2\n"
	"kvway_group_fidelity_first_difference_characters_sum{model=\"m\",group=\"b\",of=\"a\"} 14\n"
	"kvway_group_fidelity_first_difference_characters_count{model=\"m\",group=\"b\",of=\"a\"} 2\n"
	"kvway_group_fidelity_first_difference_characters_bucket{model=\"m\",group=\"a\",of=\"b\",le=\"8\"} 1\n"
	"kvway_group_fidelity_first_difference_characters_bucket{model=\"m\",group=\"a\",of=\"b\",le=\"+Inf\"} 1\n"
	"kvway_group_fidelity_first_difference_characters_sum{model=\"m\",group=\"a\",of=\"b\"} 7\n"
	"kvway_group_fidelity_first_difference_characters_count{model=\"m\",group=\"a\",of=\"b\"} 1\n"
	"kvway_group_fidelity_characters_total{model=\"m\",group=\"b\",of=\"a\",answer=\"client\"} 100\n"
	"kvway_group_fidelity_characters_total{model=\"m\",group=\"b\",of=\"a\",answer=\"copy\"} 110\n"
	"kvway_group_fidelity_characters_total{model=\"m\",group=\"a\",of=\"b\",answer=\"client\"} 50\n"
	"kvway_group_fidelity_characters_total{model=\"m\",group=\"a\",of=\"b\",answer=\"copy\"} 40\n"
	"kvway_group_broken{model=\"m\n"
	"kvway_group_broken{\n"
	"kvway_group_broken{model=";

static struct kvw_group_samples read_group(const char *model, const char *group)
{
	struct kvw_group_samples samples;

	kvw_samples_read((struct kvw_slice){text, sizeof(text) - 1}, model, group, &samples);
	return samples;
}

START_TEST(test_samples_are_read)
{
	struct kvw_group_samples a = read_group("m", "a");

	ck_assert(a.found && a.ok == 90 && a.error == 10 && a.kept == 50 && a.broken == 5 && a.prompt == 1000);
	ck_assert(a.first_token.buckets == 3 && isinf(a.first_token.bounds[2]) && a.first_token.sum == 15);
	ck_assert(read_group("m", "b").error == 7);
	ck_assert(read_group("x \"\\", "a").found);
	ck_assert(!read_group("m", "c").found && !read_group("x", "a").found);
}
END_TEST

/* Copies go both ways: each group's answers are counted as its own. */
START_TEST(test_fidelity_of_two_groups)
{
	static const char *const ab[2] = {"a", "b"}, *const ba[2] = {"b", "a"}, *const ad[2] = {"a", "d"};
	struct kvw_slice all = {text, sizeof(text) - 1};
	struct kvw_fidelity_samples f, earlier;

	kvw_samples_fidelity(all, "m", ab, &f);
	ck_assert(f.equal == 12 && f.different == 3 && f.unfinished == 1 && f.unread == 0);
	ck_assert(f.characters[0] == 140 && f.characters[1] == 160);
	ck_assert(f.difference.count == 3 && f.difference.sum == 21 && f.difference.counts[0] == 2);
	ck_assert(f.difference.buckets == 2 && f.difference.counts[1] == 3);
	kvw_samples_fidelity(all, "m", ba, &earlier);
	ck_assert(earlier.equal == 12 && earlier.characters[0] == 160);
	kvw_samples_fidelity(all, "m", ab, &earlier);
	earlier.equal = 2;
	ck_assert(kvw_samples_subtract_fidelity(&f, &earlier) && f.equal == 10 && f.different == 0);
	ck_assert(!kvw_samples_subtract_fidelity(&f, &earlier));
	kvw_samples_fidelity(all, "m", ad, &f);
	ck_assert(f.equal == 0 && f.difference.buckets == 0);
}
END_TEST

/* Counters of workers fall when one leaves, which is no restart of the router. */
START_TEST(test_drafts)
{
	struct kvw_group_samples later = read_group("m", "b"), before = later;

	ck_assert(later.drafted == 50 && later.accepted == 30);
	before.drafted = 20;
	before.accepted = 10;
	ck_assert(kvw_samples_subtract(&later, &before) && later.drafted == 30 && later.accepted == 20);
	ck_assert(kvw_samples_subtract(&later, &(struct kvw_group_samples){.drafted = 60}) && later.drafted == 0);
}
END_TEST

START_TEST(test_the_model_that_has_both)
{
	struct kvw_slice all = {text, sizeof(text) - 1};
	char model[KVW_SAMPLES_NAME];
	size_t count;

	ck_assert(kvw_samples_model(all, "a", "b", model, &count) && count == 1);
	ck_assert_str_eq(model, "m");
	ck_assert(!kvw_samples_model(all, "a", "c", model, &count));
}
END_TEST

START_TEST(test_differences_of_two_looks)
{
	struct kvw_group_samples later = read_group("m", "a"), before = later;

	before.ok = 80;
	before.first_token.sum = 5;
	before.first_token.count = before.first_token.counts[1] = before.first_token.counts[2] = 40;
	ck_assert(kvw_samples_subtract(&later, &before));
	ck_assert(later.ok == 10 && later.error == 0 && later.first_token.sum == 10 && later.first_token.counts[1] == 60);
	later = read_group("m", "a");
	before.ok = 91;
	ck_assert(!kvw_samples_subtract(&later, &before));
	before = (struct kvw_group_samples){.found = false};
	later = read_group("m", "a");
	ck_assert(kvw_samples_subtract(&later, &before) && later.first_token.counts[1] == 100);
}
END_TEST

/* Textbook: 5 of 100 by Wilson are 2.15 % to 11.18 %; 0 of 30 are 0 to 11.35 %. */
START_TEST(test_shares)
{
	struct kvw_estimate e = kvw_estimate_share(5, 100);

	ck_assert_double_eq_tol(e.value, 0.05, 1e-12);
	ck_assert_double_eq_tol(e.low, 0.02154, 1e-4);
	ck_assert_double_eq_tol(e.high, 0.11175, 1e-4);
	e = kvw_estimate_share(0, 30);
	ck_assert(e.low == 0);
	ck_assert_double_eq_tol(e.high, 0.11351, 1e-4);
	ck_assert(!kvw_estimate_share(0, 0).known);
}
END_TEST

/* Evenly in 0.1 to 0.2: variance 0.01 / 12. */
START_TEST(test_means)
{
	struct kvw_group_samples a = read_group("m", "a");
	struct kvw_estimate e = kvw_estimate_mean(&a.first_token, 100);
	double half = 1.959964 * sqrt(0.01 / 12 / 100);

	ck_assert_double_eq_tol(e.value, 0.15, 1e-12);
	ck_assert_double_eq_tol(e.low, 0.15 - half, 1e-6);
	ck_assert_double_eq_tol(e.high, 0.15 + half, 1e-6);
	ck_assert_double_eq_tol(kvw_estimate_mean(&a.first_token, 25).high, 0.15 + 2 * half, 1e-6);
	ck_assert(!kvw_estimate_mean(&a.gap, 10).known);
}
END_TEST

START_TEST(test_beyond_noise)
{
	struct kvw_estimate few = kvw_estimate_share(2, 20), a = kvw_estimate_share(50, 1000);
	struct kvw_estimate near = kvw_estimate_share(60, 1000), far = kvw_estimate_share(90, 1000);

	ck_assert_int_eq(kvw_estimates_differ(&a, &near), KVW_BEYOND_NO);
	ck_assert_int_eq(kvw_estimates_differ(&a, &far), KVW_BEYOND_YES);
	ck_assert_int_eq(kvw_estimates_differ(&far, &a), KVW_BEYOND_YES);
	ck_assert_int_eq(kvw_estimates_differ(&a, &few), KVW_BEYOND_UNKNOWN);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("compare");

	tcase_add_test(tcase, test_samples_are_read);
	tcase_add_test(tcase, test_fidelity_of_two_groups);
	tcase_add_test(tcase, test_drafts);
	tcase_add_test(tcase, test_the_model_that_has_both);
	tcase_add_test(tcase, test_differences_of_two_looks);
	tcase_add_test(tcase, test_shares);
	tcase_add_test(tcase, test_means);
	tcase_add_test(tcase, test_beyond_noise);
	return run_tcase("groups_compare", tcase);
}
