/*
 * compare.c - results of several runs side by side.
 *
 * Reads the files that --json wrote. Runs that did not do the same work are still shown, with a
 * line that names what differs.
 */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "bench/load/mem.h"
#include "bench/load/report.h"

static const struct metric {
	const char *title;
	const char *group; /* member of the result that holds the value; NULL: the result itself */
	const char *key;
	double scale;
	int digits;
} metrics[] = {
	{"TTFT mean s", "ttft_s", "mean", 1, 3},
	{"TTFT p50 s", "ttft_s", "p50", 1, 3},
	{"TTFT p90 s", "ttft_s", "p90", 1, 3},
	{"TTFT p99 s", "ttft_s", "p99", 1, 3},
	{"ITL mean ms", "itl_s", "mean", 1000, 2},
	{"ITL p99 ms", "itl_s", "p99", 1000, 2},
	{"TPOT mean ms", "tpot_s", "mean", 1000, 2},
	{"E2E mean s", "e2e_s", "mean", 1, 3},
	{"E2E p99 s", "e2e_s", "p99", 1, 3},
	{"requests/s", NULL, "requests_per_s", 1, 3},
	{"output tokens/s", NULL, "completion_tokens_per_s", 1, 1},
	{"goodput %", NULL, "goodput", 100, 1},
	{"cached share %", NULL, "cached_share", 100, 1},
	{"failed", NULL, "failed", 1, 0},
};

#define METRIC_COUNT (sizeof(metrics) / sizeof(metrics[0]))

/* Returns the value of a metric in one result; NaN where it is unknown. */
static double value_of(const json_t *result, const struct metric *metric)
{
	const json_t *at = metric->group ? json_object_get(result, metric->group) : result;
	const json_t *value = json_object_get(at, metric->key);

	return json_is_number(value) ? json_number_value(value) * metric->scale : NAN;
}

/* Prints which parameters of two runs differ, so that a reader does not take their effect for a
 * gain. */
static void print_differences(json_t **results, size_t count, FILE *out)
{
	static const char *const keys[] = {"workload", "model", "speed", "parameters", "slo"};

	for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
		for (size_t i = 1; i < count; i++)
			if (!json_equal(json_object_get(results[0], keys[k]),
				    json_object_get(results[i], keys[k]))) {
				fprintf(out, "note: the runs differ in %s\n", keys[k]);
				break;
			}
}

static void print_cell(FILE *out, double value, int digits)
{
	if (isnan(value))
		fprintf(out, " %14s", "-");
	else
		fprintf(out, " %14.*f", digits, value);
}

static void print_table(json_t **results, size_t count, FILE *out)
{
	fprintf(out, "%-18s", "");
	for (size_t i = 0; i < count; i++)
		fprintf(out, " %14.14s", json_string_value(json_object_get(results[i], "label")));
	fputs(count == 2 ? "   second/first\n" : "\n", out);
	for (size_t m = 0; m < METRIC_COUNT; m++) {
		double first = value_of(results[0], &metrics[m]);

		fprintf(out, "%-18s", metrics[m].title);
		for (size_t i = 0; i < count; i++)
			print_cell(out, value_of(results[i], &metrics[m]), metrics[m].digits);
		if (count == 2 && first > 0)
			fprintf(out, " %13.2fx", value_of(results[1], &metrics[m]) / first);
		fputc('\n', out);
	}
}

enum kvw_err kvb_report_compare(char **files, size_t count, FILE *out, FILE *error)
{
	json_t **results = kvb_alloc(count, sizeof(*results));
	enum kvw_err err = KVW_OK;
	double speed;

	for (size_t i = 0; i < count && err == KVW_OK; i++) {
		json_error_t cause;

		results[i] = json_load_file(files[i], 0, &cause);
		if (results[i] == NULL) {
			fprintf(error, "%s: %s\n", files[i], cause.text);
			err = KVW_EIO;
		} else if (!json_is_string(json_object_get(results[i], "label"))) {
			fprintf(error, "%s: not a result of kvbench\n", files[i]);
			err = KVW_EPROTO;
		}
	}
	if (err == KVW_OK) {
		speed = json_number_value(json_object_get(results[0], "speed"));
		if (speed != 1)
			fprintf(out, "simulated, speed %g\n", speed);
		print_differences(results, count, out);
		print_table(results, count, out);
	}
	for (size_t i = 0; i < count; i++)
		json_decref(results[i]);
	free(results);
	return err;
}
