/*
 * exposition_test.c - each kind of sample, to the byte, and the reference page.
 *
 * Expected texts are written from the format's description. The text is built twice: once as it is,
 * once with memory that runs out at each allocation in turn.
 */
#include <check.h>
#include <stdlib.h>

#include "metrics/exposition.h"
#include "tests/unit/suite.h"

static int allocations_left = -1; /* -1: no limit */

void *__real_realloc(void *data, size_t size);
void *__wrap_realloc(void *data, size_t size);

void *__wrap_realloc(void *data, size_t size)
{
	if (allocations_left == 0)
		return NULL;
	if (allocations_left > 0)
		allocations_left--;
	return __real_realloc(data, size);
}

static const struct kvw_metric_info infos[] = {
	{"a_total", "counter", "", "How many."},
	{"b", "gauge", "kind,why", "One | or the other."},
	{"c_seconds", "histogram", "route", "How long."},
};

/* The text so far is `expected`; starts another. */
static void check_taken(struct kvw_exposition *out, const char *expected)
{
	size_t len;
	char *text;

	ck_assert_int_eq(kvw_exposition_take(out, &text, &len), KVW_OK);
	ck_assert_str_eq(text, expected);
	ck_assert_uint_eq(len, strlen(expected));
	ck_assert_ptr_null(out->page.data);
	free(text);
}

START_TEST(help_and_type_precede_the_samples)
{
	struct kvw_exposition out = {0};

	kvw_metric_head(&out, &infos[0]);
	kvw_sample_u64(&out, NULL, 0, UINT64_MAX);
	check_taken(&out, "# HELP a_total How many.\n# TYPE a_total counter\n"
			  "a_total 18446744073709551615\n");
}
END_TEST

START_TEST(openmetrics_names_counters_without_their_ending)
{
	static const struct kvw_metric_info other = {"d", "counter", "", "Says \"d\"."};
	static const struct kvw_metric_info after = {"b_total", "counter", "", "Since."};
	struct kvw_exposition out = {.open = true};

	kvw_metric_head(&out, &infos[0]);
	kvw_sample_u64(&out, NULL, 0, 1);
	kvw_metric_head(&out, &other);
	kvw_sample_u64(&out, NULL, 0, 2);
	check_taken(&out, "# HELP a How many.\n# TYPE a counter\na_total 1\n"
			  "# HELP d Says \\\"d\\\".\n# TYPE d unknown\nd 2\n# EOF\n");
	kvw_metric_head(&out, &infos[1]);
	kvw_metric_head(&out, &after);
	check_taken(&out, "# HELP b One | or the other.\n# TYPE b gauge\n"
			  "# HELP b_total Since.\n# TYPE b_total unknown\n# EOF\n");
}
END_TEST

START_TEST(openmetrics_shows_exemplars_of_buckets)
{
	static const uint64_t values[] = {1, 2500};
	static const struct kvw_exemplar exemplars[3] = {
		[1] = {"0123456789abcdef0123456789abcdef", 1500000000, 1700000000250000000}};
	struct kvw_histogram_sum sum = {.sum_ns = 1500000000, .buckets = {0, 1, 0}, .count = 1};
	struct kvw_exposition out = {.open = true, .exemplars = exemplars};
	struct kvw_bounds bounds;

	kvw_bounds_init(&bounds, values, 2, 1000000);
	kvw_metric_head(&out, &infos[2]);
	kvw_sample_histogram(&out, NULL, 0, &bounds, &sum);
	check_taken(&out, "# HELP c_seconds How long.\n# TYPE c_seconds histogram\n"
			  "c_seconds_bucket{le=\"0.001\"} 0\n"
			  "c_seconds_bucket{le=\"2.5\"} 1 # {trace_id=\"0123456789abcdef0123456789abcdef\"} "
			  "1.5 1700000000.25\n"
			  "c_seconds_bucket{le=\"+Inf\"} 1\nc_seconds_sum 1.5\nc_seconds_count 1\n"
			  "# EOF\n");
}
END_TEST

START_TEST(a_text_without_metrics_is_empty)
{
	check_taken(&(struct kvw_exposition){0}, "");
}
END_TEST

START_TEST(labels_are_escaped)
{
	struct kvw_label labels[] = {{"kind", KVW_SLICE("a\"b\\c\nd")}, {"why", KVW_SLICE("\xFF")}};
	struct kvw_exposition out = {.info = &infos[1]};

	kvw_sample_i64(&out, labels, 2, -3);
	kvw_sample_named(&out, "kind", "x", 4);
	check_taken(&out, "b{kind=\"a\\\"b\\\\c\\nd\",why=\"\xEF\xBF\xBD\"} -3\nb{kind=\"x\"} 4\n");
}
END_TEST

START_TEST(numbers_are_written_in_the_programs_manner)
{
	static const double values[] = {0, 1.5, 1.0 / 3, 1e-9, 123456789.123, 1.0 / 0.0};
	struct kvw_exposition out = {.info = &infos[1]};

	for (size_t i = 0; i < 6; i++)
		kvw_sample_double(&out, NULL, 0, values[i]);
	check_taken(&out, "b 0\nb 1.5\nb 0.333333333333333\nb 1e-09\nb 123456789.123\nb +Inf\n");
	out.numbers = KVW_NUMBERS_NINE;
	for (size_t i = 0; i < 6; i++)
		kvw_sample_double(&out, NULL, 0, values[i]);
	check_taken(&out, "b 0\nb 1.5\nb 0.333333333\nb 1e-09\nb 123456789\nb +Inf\n");
}
END_TEST

/* 2.5 us, 1 s; one value in each bucket. */
static void put_histogram(struct kvw_exposition *out)
{
	static const uint64_t ns[] = {2500, 1000000000};
	struct kvw_label route = {"route", KVW_SLICE("chat")};
	struct kvw_histogram histogram = {0};
	struct kvw_histogram_sum sum = {0};
	struct kvw_bounds bounds;

	kvw_bounds_init(&bounds, ns, 2, 1);
	kvw_histogram_observe(&histogram, &bounds, 2500);
	kvw_histogram_observe(&histogram, &bounds, 2501);
	kvw_histogram_observe(&histogram, &bounds, 1249994999);
	kvw_histogram_collect(&histogram, &sum);
	out->info = &infos[2];
	kvw_sample_histogram(out, &route, 1, &bounds, &sum);
}

#define BUCKETS                                                                                    \
	"c_seconds_bucket{route=\"chat\",le=\"2.5e-06\"} 1\n"                                      \
	"c_seconds_bucket{route=\"chat\",le=\"1\"} 2\n"                                            \
	"c_seconds_bucket{route=\"chat\",le=\"+Inf\"} 3\n"

START_TEST(buckets_are_cumulative)
{
	struct kvw_exposition out = {0};

	put_histogram(&out);
	check_taken(&out, BUCKETS "c_seconds_sum{route=\"chat\"} 1.25\nc_seconds_count{route=\"chat\"} 3\n");
	out.numbers = KVW_NUMBERS_NINE;
	put_histogram(&out);
	check_taken(&out, BUCKETS
		"c_seconds_sum{route=\"chat\"} 1.250000000\nc_seconds_count{route=\"chat\"} 3\n");
}
END_TEST

START_TEST(buckets_of_any_unit)
{
	static const double bounds[] = {0.5, 10};
	static const uint64_t buckets[] = {1, 0, 2};
	struct kvw_exposition out = {.info = &infos[2]};

	kvw_sample_buckets(&out, NULL, 0, bounds, 2, buckets, 40.25);
	check_taken(&out, "c_seconds_bucket{le=\"0.5\"} 1\nc_seconds_bucket{le=\"10\"} 1\n"
			  "c_seconds_bucket{le=\"+Inf\"} 3\nc_seconds_sum 40.25\nc_seconds_count 3\n");
}
END_TEST

/* Past the first 4 KiB, so that the text grows more than once. */
static void put_much(struct kvw_exposition *out)
{
	for (int i = 0; i < 50; i++)
		put_histogram(out);
}

START_TEST(memory_that_runs_out_is_reported_once)
{
	struct kvw_exposition out = {0};
	char *text = NULL;
	size_t len;
	int limit = 0;

	for (;; limit++) {
		enum kvw_err err;

		allocations_left = limit;
		put_much(&out);
		err = kvw_exposition_take(&out, &text, &len);
		allocations_left = -1;
		if (err == KVW_OK)
			break;
		ck_assert_int_eq(err, KVW_ENOMEM);
		ck_assert_ptr_null(text);
		ck_assert_ptr_null(out.page.data);
	}
	ck_assert_int_gt(limit, 2);
	ck_assert_uint_eq(len, strlen(text));
	free(text);
}
END_TEST

static const struct kvw_metric_info *at_questions(size_t i)
{
	static const struct kvw_metric_info list[] = {{NULL, "", "", "Is it late, or slow?"},
		{"a_seconds", "gauge", "model", "How late."}, {NULL, "", "", "Isn't it full?"},
		{"b_total", "counter", "", "One | or the other."}};

	return i < sizeof(list) / sizeof(list[0]) ? &list[i] : NULL;
}

START_TEST(a_question_begins_a_section)
{
	char *page = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&page, &len);

	kvw_metrics_page(out, "# Metrics\n", at_questions);
	fclose(out);
	ck_assert_str_eq(page, "# Metrics\n\n"
			       "- [Is it late, or slow?](#is-it-late-or-slow)\n"
			       "- [Isn't it full?](#isnt-it-full)\n"
			       "\n## Is it late, or slow?\n"
			       "\n| Name | Type | Labels | What it is |\n|---|---|---|---|\n"
			       "| `a_seconds` | gauge | `model` | How late. |\n"
			       "\n## Isn't it full?\n"
			       "\n| Name | Type | Labels | What it is |\n|---|---|---|---|\n"
			       "| `b_total` | counter |  | One \\| or the other. |\n");
	free(page);
}
END_TEST

START_TEST(a_member_is_found_by_its_offset)
{
	struct {
		uint32_t other;
		uint64_t number;
	} stats = {1, 7};

	ck_assert_uint_eq(kvw_number_at(&stats, (size_t)((char *)&stats.number - (char *)&stats)), 7);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("exposition");

	tcase_add_test(tcase, help_and_type_precede_the_samples);
	tcase_add_test(tcase, a_text_without_metrics_is_empty);
	tcase_add_test(tcase, openmetrics_names_counters_without_their_ending);
	tcase_add_test(tcase, openmetrics_shows_exemplars_of_buckets);
	tcase_add_test(tcase, labels_are_escaped);
	tcase_add_test(tcase, numbers_are_written_in_the_programs_manner);
	tcase_add_test(tcase, buckets_are_cumulative);
	tcase_add_test(tcase, buckets_of_any_unit);
	tcase_add_test(tcase, memory_that_runs_out_is_reported_once);
	tcase_add_test(tcase, a_question_begins_a_section);
	tcase_add_test(tcase, a_member_is_found_by_its_offset);
	return run_tcase("exposition", tcase);
}
