/*
 * exposition.c - writes metrics as text.
 *
 * The text is built in memory and handed over as a whole: so a client that reads slowly holds no
 * lock of the counters.
 */
#include "metrics/exposition.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#define LABELS_MAX 8 /* most labels of a histogram, with `le` */

/* OpenMetrics: a counter's samples end with _total, which its name does not. Returns the length of
 * the name. A counter without that ending, or whose name is taken by the metric just before it, has
 * no type: *type is changed, and the name stays whole. */
static size_t family_of(const struct kvw_metric_info *info, const struct kvw_metric_info *before,
	const char **type)
{
	static const char total[] = "_total";
	size_t len = strlen(info->name), ending = sizeof(total) - 1, name = len - ending;

	if (strcmp(info->type, "counter") != 0)
		return len;
	if (len > ending && strcmp(info->name + name, total) == 0 &&
		(before == NULL || strlen(before->name) != name ||
			memcmp(before->name, info->name, name) != 0))
		return name;
	*type = "unknown";
	return len;
}

/* Writes the text of a HELP line; OpenMetrics wants quotation marks escaped. */
static void put_help(struct kvw_exposition *out, const char *help)
{
	size_t len;

	for (; out->open && help[len = strcspn(help, "\"")] != '\0'; help += len + 1) {
		kvw_page_put(&out->page, help, len);
		kvw_page_string(&out->page, "\\\"");
	}
	kvw_page_string(&out->page, help);
}

void kvw_metric_head(struct kvw_exposition *out, const struct kvw_metric_info *info)
{
	struct kvw_page *page = &out->page;
	const char *type = info->type;
	size_t len = out->open ? family_of(info, out->info, &type) : strlen(info->name);

	out->info = info;
	kvw_page_string(page, "# HELP ");
	kvw_page_put(page, info->name, len);
	kvw_page_string(page, " ");
	put_help(out, info->help);
	kvw_page_string(page, "\n# TYPE ");
	kvw_page_put(page, info->name, len);
	kvw_page_string(page, " ");
	kvw_page_string(page, type);
	kvw_page_string(page, "\n");
}

/* Writes the part of a sample before its value: name, suffix, labels, and a space. */
static struct kvw_page *begin_sample(struct kvw_exposition *out, const char *suffix,
	const struct kvw_label *labels, size_t count)
{
	struct kvw_page *page = &out->page;

	kvw_page_string(page, out->info->name);
	kvw_page_string(page, suffix);
	for (size_t i = 0; i < count; i++) {
		kvw_page_put(page, i == 0 ? "{" : ",", 1);
		kvw_page_string(page, labels[i].name);
		kvw_page_put(page, "=\"", 2);
		kvw_page_label(page, labels[i].value);
		kvw_page_put(page, "\"", 1);
	}
	kvw_page_string(page, count > 0 ? "} " : " ");
	return page;
}

static void end_sample(struct kvw_page *page)
{
	kvw_page_put(page, "\n", 1);
}

static void end_u64(struct kvw_page *page, uint64_t value)
{
	kvw_page_u64(page, value);
	end_sample(page);
}

static void put_double(const struct kvw_exposition *out, struct kvw_page *page, double value)
{
	char number[40];

	if (out->numbers == KVW_NUMBERS_EXACT || !isfinite(value)) {
		kvw_page_double(page, value);
		return;
	}
	(void)snprintf(number, sizeof(number), "%.9g", value);
	kvw_page_string(page, number);
}

void kvw_sample_u64(
	struct kvw_exposition *out, const struct kvw_label *labels, size_t count, uint64_t value)
{
	end_u64(begin_sample(out, "", labels, count), value);
}

void kvw_sample_i64(
	struct kvw_exposition *out, const struct kvw_label *labels, size_t count, int64_t value)
{
	struct kvw_page *page = begin_sample(out, "", labels, count);

	kvw_page_i64(page, value);
	end_sample(page);
}

void kvw_sample_double(
	struct kvw_exposition *out, const struct kvw_label *labels, size_t count, double value)
{
	struct kvw_page *page = begin_sample(out, "", labels, count);

	put_double(out, page, value);
	end_sample(page);
}

void kvw_sample_named(
	struct kvw_exposition *out, const char *label, const char *value, uint64_t number)
{
	kvw_sample_u64(out, &(struct kvw_label){label, kvw_slice_of(value)}, 1, number);
}

/* Writes a bucket's bound. OpenMetrics wants whole numbers with a decimal point. */
static void print_bound(const struct kvw_exposition *out, char le[32], double bound)
{
	(void)snprintf(le, 32, "%.9g", bound);
	if (out->open && strpbrk(le, ".e") == NULL)
		strcat(le, ".0");
}

static void put_exemplar(struct kvw_page *page, const struct kvw_exemplar *exemplar)
{
	kvw_page_string(page, " # {trace_id=\"");
	kvw_page_put(page, exemplar->trace_id, sizeof(exemplar->trace_id));
	kvw_page_string(page, "\"} ");
	kvw_page_seconds(page, exemplar->value_ns);
	kvw_page_string(page, " ");
	kvw_page_seconds(page, exemplar->wall_ns);
}

/* Writes the lines of all buckets. Returns the number of values in them. */
static uint64_t put_buckets(struct kvw_exposition *out, const struct kvw_label *labels,
	size_t count, const double *bounds, size_t bounds_count, const uint64_t *buckets)
{
	struct kvw_label all[LABELS_MAX];
	uint64_t cumulative = 0;
	char le[32];

	for (size_t i = 0; i < count; i++)
		all[i] = labels[i];
	all[count].name = "le";
	for (size_t i = 0; i <= bounds_count; i++) {
		if (i < bounds_count)
			print_bound(out, le, bounds[i]);
		all[count].value = i < bounds_count ? kvw_slice_of(le) : KVW_SLICE("+Inf");
		cumulative += buckets[i];
		kvw_page_u64(begin_sample(out, "_bucket", all, count + 1), cumulative);
		if (out->open && out->exemplars != NULL && out->exemplars[i].value_ns > 0)
			put_exemplar(&out->page, &out->exemplars[i]);
		end_sample(&out->page);
	}
	return cumulative;
}

void kvw_sample_histogram(struct kvw_exposition *out, const struct kvw_label *labels, size_t count,
	const struct kvw_bounds *bounds, const struct kvw_histogram_sum *sum)
{
	double seconds[KVW_BOUNDS_MAX];
	struct kvw_page *page;
	uint64_t total;

	for (size_t i = 0; i < bounds->count; i++)
		seconds[i] = (double)bounds->ns[i] / 1e9;
	total = put_buckets(out, labels, count, seconds, bounds->count, sum->buckets);
	page = begin_sample(out, "_sum", labels, count);
	if (out->numbers == KVW_NUMBERS_NINE) {
		char decimals[16];

		kvw_page_u64(page, sum->sum_ns / 1000000000);
		(void)snprintf(decimals, sizeof(decimals), ".%09u",
			(unsigned)(sum->sum_ns % 1000000000));
		kvw_page_string(page, decimals);
	} else {
		kvw_page_seconds(page, (int64_t)sum->sum_ns);
	}
	end_sample(page);
	end_u64(begin_sample(out, "_count", labels, count), total);
}

void kvw_sample_buckets(struct kvw_exposition *out, const struct kvw_label *labels, size_t count,
	const double *bounds, size_t bounds_count, const uint64_t *buckets, double sum)
{
	uint64_t total = put_buckets(out, labels, count, bounds, bounds_count, buckets);
	struct kvw_page *page = begin_sample(out, "_sum", labels, count);

	put_double(out, page, sum);
	end_sample(page);
	end_u64(begin_sample(out, "_count", labels, count), total);
}

enum kvw_err kvw_exposition_take(struct kvw_exposition *out, char **text, size_t *len)
{
	struct kvw_page *page = &out->page;

	if (out->open)
		kvw_page_string(page, "# EOF\n");
	kvw_page_put(page, "", 1); /* the NUL */
	if (page->failed) {
		free(page->data);
		*page = (struct kvw_page){0};
		return KVW_ENOMEM;
	}
	*text = page->data;
	*len = page->len - 1;
	*page = (struct kvw_page){0};
	return KVW_OK;
}

/* Writes a link to the section of a question, as GitHub names it. */
static void put_link(FILE *out, const char *question)
{
	fprintf(out, "- [%s](#", question);
	for (const char *c = question; *c != '\0'; c++) {
		if (isalnum((unsigned char)*c) || *c == '-')
			fputc(tolower((unsigned char)*c), out);
		else if (*c == ' ')
			fputc('-', out);
	}
	fputs(")\n", out);
}

static void put_row(FILE *out, const struct kvw_metric_info *info)
{
	const char *tick = info->labels[0] != '\0' ? "`" : "";

	fprintf(out, "| `%s` | %s | %s%s%s | ", info->name, info->type, tick, info->labels, tick);
	for (const char *c = info->help; *c != '\0'; c++) {
		if (*c == '|') /* a '|' would end the cell */
			fputc('\\', out);
		fputc(*c, out);
	}
	fputs(" |\n", out);
}

void kvw_metrics_page(
	FILE *out, const char *introduction, const struct kvw_metric_info *(*at)(size_t i))
{
	static const char head[] =
		"\n| Name | Type | Labels | What it is |\n|---|---|---|---|\n";
	const struct kvw_metric_info *info;

	fputs(introduction, out);
	fputc('\n', out);
	for (size_t i = 0; (info = at(i)) != NULL; i++)
		if (info->name == NULL)
			put_link(out, info->help);
	for (size_t i = 0; (info = at(i)) != NULL; i++) {
		if (info->name == NULL)
			fprintf(out, "\n## %s\n%s", info->help, head);
		else
			put_row(out, info);
	}
}
