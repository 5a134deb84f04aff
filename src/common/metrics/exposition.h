/*
 * exposition.h - metrics as Prometheus text (exposition format 0.0.4), or as OpenMetrics 1.0.0.
 *
 * A program lists its metrics in a .def file: one line each, with the function that writes the
 * samples. Its renderer walks the list: for each metric kvw_metric_head(), then that function,
 * which calls the kvw_sample functions; kvw_exposition_take() ends the text. The same list makes
 * the reference page METRICS.md, so that a page never lacks a metric.
 *
 * The page remembers that memory ran out; kvw_exposition_take() reports it once. Format:
 * https://prometheus.io/docs/instrumenting/exposition_formats/ and
 * https://prometheus.io/docs/specs/om/open_metrics_spec/
 */
#ifndef KVW_EXPOSITION_H
#define KVW_EXPOSITION_H

#include <stdio.h>
#include <string.h>

#include "base/page.h"
#include "kvway/err.h"
#include "metrics/histogram.h"

/* A metric, as described by its line in a .def file, or a question, which the metrics after it
 * answer. Static. */
struct kvw_metric_info {
	const char *name;   /* a histogram's without _bucket; NULL: `help` is a question */
	const char *type;   /* "counter", "gauge" or "histogram" */
	const char *labels; /* names, comma separated; "": none */
	const char *help;   /* one line */
};

/* Format of fractional numbers, which users' scripts may compare as text. */
enum kvw_numbers {
	KVW_NUMBERS_EXACT, /* 15 digits; sums of histograms as in 1.25 */
	KVW_NUMBERS_NINE,  /* 9 digits; sums of histograms with nine decimals, 1.250000000 */
};

/* A traced request that a bucket of a histogram counts; shown in OpenMetrics. */
struct kvw_exemplar {
	char trace_id[32]; /* digits, no NUL */
	int64_t value_ns;  /* 0: there is no exemplar */
	int64_t wall_ns;   /* when it was observed */
};

/* A text that is being written. All zeroes: an empty text. */
struct kvw_exposition {
	struct kvw_page page;
	enum kvw_numbers numbers;
	bool open; /* OpenMetrics */
	/* with `open`: one for each bucket of the histogram that is written next, and its last one;
	 * NULL: none */
	const struct kvw_exemplar *exemplars;
	const struct kvw_metric_info *info; /* the metric being written */
};

/* A label of a sample. Its value may be any bytes: it is escaped. */
struct kvw_label {
	const char *name;
	struct kvw_slice value;
};

/* Writes the HELP and TYPE lines of a metric; the samples that follow belong to it. With `open` a
 * gauge NAME must come just before a counter NAME_total, because OpenMetrics names both NAME. */
void kvw_metric_head(struct kvw_exposition *out, const struct kvw_metric_info *info);

/* Writes one sample: name, suffix, labels in braces if there are any, and value. If count is 0,
 * labels may be NULL. */
void kvw_sample_u64(struct kvw_exposition *out, const struct kvw_label *labels, size_t count,
	uint64_t value);
void kvw_sample_i64(struct kvw_exposition *out, const struct kvw_label *labels, size_t count,
	int64_t value);
void kvw_sample_double(struct kvw_exposition *out, const struct kvw_label *labels, size_t count,
	double value);
/* Writes a sample whose only label is a constant text. */
void kvw_sample_named(
	struct kvw_exposition *out, const char *label, const char *value, uint64_t number);

/* Writes a histogram: buckets, sum and count. At most 7 labels. */
void kvw_sample_histogram(struct kvw_exposition *out, const struct kvw_label *labels, size_t count,
	const struct kvw_bounds *bounds, const struct kvw_histogram_sum *sum);
/* Writes a histogram of any unit. buckets[bounds_count] counts the values above all bounds. */
void kvw_sample_buckets(struct kvw_exposition *out, const struct kvw_label *labels, size_t count,
	const double *bounds, size_t bounds_count, const uint64_t *buckets, double sum);

/* Ends the text. *text ends with a NUL, and the caller frees it with free(); *len does not count
 * the NUL. KVW_ENOMEM: memory ran out, and everything is freed. */
enum kvw_err kvw_exposition_take(
	struct kvw_exposition *out, char **text, size_t *len) KVW_MUST_CHECK;

/* Writes the page METRICS.md: its title and introduction, then all metrics. at(i) returns line
 * number i, or NULL if there are no more. Each question, of which the first line is one, begins a
 * section with a table. */
void kvw_metrics_page(
	FILE *out, const char *introduction, const struct kvw_metric_info *(*at)(size_t i));

/* Returns the uint64_t at `offset` in a struct, for lines of a .def file that name a member. */
static inline uint64_t kvw_number_at(const void *base, size_t offset)
{
	uint64_t number;

	memcpy(&number, (const char *)base + offset, sizeof(number));
	return number;
}

#endif
