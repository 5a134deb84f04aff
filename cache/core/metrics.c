/*
 * metrics.c - see the header.
 *
 * A line of metrics.def names a function that writes the samples and a place in one of the
 * structs; so a new counter is a member and a line. Tiers that are absent have a state and a reason
 * and no numbers.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/cache_metrics.h"

struct metric; /* one line, with its function */
typedef void collect_fn(FILE *out, const struct metric *metric, const struct kvt_metrics_input *in);

struct metric {
	struct kvt_metric_info info;
	collect_fn *collect;
	size_t arg; /* an offset, or an enum kvt_latency */
};

static const char *const tier_names[KVT_TIER_COUNT] = {
	[KVT_TIER_L1] = "l1",
	[KVT_TIER_NVME] = "nvme",
	[KVT_TIER_L2] = "l2",
};

static uint64_t number_at(const void *base, size_t offset)
{
	uint64_t number;

	memcpy(&number, (const uint8_t *)base + offset, sizeof(number));
	return number;
}

/* --- one function for each collector of metrics.def ------------------------------------------- */

static void put_plain(FILE *out, const struct metric *metric, uint64_t value)
{
	fprintf(out, "%s %" PRIu64 "\n", metric->info.name, value);
}

static void collect_value(
	FILE *out, const struct metric *metric, const struct kvt_metrics_input *in)
{
	put_plain(out, metric, number_at(in->stats, metric->arg));
}

static void collect_tokens(
	FILE *out, const struct metric *metric, const struct kvt_metrics_input *in)
{
	put_plain(out, metric, number_at(in->stats, metric->arg) * in->tokens_per_chunk);
}

static void collect_event(
	FILE *out, const struct metric *metric, const struct kvt_metrics_input *in)
{
	put_plain(out, metric, number_at(in->events, metric->arg));
}

static void collect_controller(
	FILE *out, const struct metric *metric, const struct kvt_metrics_input *in)
{
	put_plain(out, metric, number_at(in->controller, metric->arg));
}

static void collect_l1(FILE *out, const struct metric *metric, const struct kvt_metrics_input *in)
{
	put_plain(out, metric, number_at(&in->stats->tiers[KVT_TIER_L1], metric->arg));
}

static void collect_nvme(FILE *out, const struct metric *metric, const struct kvt_metrics_input *in)
{
	put_plain(out, metric, number_at(&in->stats->tiers[KVT_TIER_NVME], metric->arg));
}

static void collect_tier(FILE *out, const struct metric *metric, const struct kvt_metrics_input *in)
{
	for (int t = 0; t < KVT_TIER_COUNT; t++)
		if (in->stats->tiers[t].state != KVT_TIER_ABSENT)
			fprintf(out, "%s{tier=\"%s\"} %" PRIu64 "\n", metric->info.name,
				tier_names[t], number_at(&in->stats->tiers[t], metric->arg));
}

static void collect_tier_seconds(
	FILE *out, const struct metric *metric, const struct kvt_metrics_input *in)
{
	for (int t = 0; t < KVT_TIER_COUNT; t++)
		if (in->stats->tiers[t].state != KVT_TIER_ABSENT)
			fprintf(out, "%s{tier=\"%s\"} %.9g\n", metric->info.name, tier_names[t],
				(double)number_at(&in->stats->tiers[t], metric->arg) / 1e9);
}

static void collect_state(
	FILE *out, const struct metric *metric, const struct kvt_metrics_input *in)
{
	for (int t = 0; t < KVT_TIER_COUNT; t++)
		fprintf(out, "%s{tier=\"%s\"} %" PRIu32 "\n", metric->info.name, tier_names[t],
			in->stats->tiers[t].state);
}

/* A label's value from an array that need not end with 0. */
static void put_label(FILE *out, const char *text, size_t size)
{
	for (size_t i = 0; i < size && text[i] != '\0'; i++) {
		if (text[i] == '"' || text[i] == '\\')
			fputc('\\', out);
		fputc((unsigned char)text[i] < ' ' ? ' ' : text[i], out);
	}
}

static void collect_info(FILE *out, const struct metric *metric, const struct kvt_metrics_input *in)
{
	for (int t = 0; t < KVT_TIER_COUNT; t++) {
		const struct kvt_tier_stats *tier = &in->stats->tiers[t];

		fprintf(out, "%s{tier=\"%s\",mode=\"", metric->info.name, tier_names[t]);
		put_label(out, tier->mode, sizeof(tier->mode));
		fputs("\",reason=\"", out);
		put_label(out, tier->reason, sizeof(tier->reason));
		fputs("\"} 1\n", out);
	}
}

static void collect_healthy(
	FILE *out, const struct metric *metric, const struct kvt_metrics_input *in)
{
	bool healthy = true;

	for (int t = 0; t < KVT_TIER_COUNT; t++)
		healthy &= in->stats->tiers[t].state == KVT_TIER_ABSENT ||
			   in->stats->tiers[t].state == KVT_TIER_WORKS;
	put_plain(out, metric, healthy);
}

static void collect_build(
	FILE *out, const struct metric *metric, const struct kvt_metrics_input *in)
{
	(void)in;
	fprintf(out, "%s{version=\"%s\"} 1\n", metric->info.name, kvt_version());
}

static void collect_latency(
	FILE *out, const struct metric *metric, const struct kvt_metrics_input *in)
{
	static const uint64_t bounds[] = KVT_LATENCY_BOUNDS;
	const char *name = metric->info.name;
	struct kvt_latency_sum sum;
	uint64_t below = 0;

	kvt_latency_collect(in->latencies, (enum kvt_latency)metric->arg, &sum);
	for (int i = 0; i < KVT_LATENCY_BUCKETS - 1; i++) {
		below += sum.buckets[i];
		fprintf(out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, (double)bounds[i] / 1e9,
			below);
	}
	fprintf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, sum.count);
	fprintf(out, "%s_sum %.9f\n", name, (double)sum.sum_ns / 1e9);
	fprintf(out, "%s_count %" PRIu64 "\n", name, sum.count);
}

/* --- the table -------------------------------------------------------------------------------- */

#define IN_STATS(member)  offsetof(struct kvt_stats, member)
#define IN_TIER(member)   offsetof(struct kvt_tier_stats, member)
#define IN_CONTROLLER(member) offsetof(struct kvt_controller_stats, member)
#define IN_EVENTS(member) offsetof(struct kvt_event_log_stats, member)

static const struct metric metrics[] = {
#define KVT_METRIC(name, type, labels, collector, arg, help)                                       \
	{{name, #type, labels, help}, collect_##collector, arg},
#include "core/metrics.def"
#undef KVT_METRIC
};
#define METRICS (sizeof(metrics) / sizeof(metrics[0]))

const struct kvt_metric_info *kvt_metric_info(size_t i)
{
	return i < METRICS ? &metrics[i].info : NULL;
}

enum kvt_status kvt_metrics_render(const struct kvt_metrics_input *in, char **text)
{
	char *made = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&made, &len);
	bool failed;

	if (out == NULL)
		return KVT_ENOMEM;
	for (size_t i = 0; i < METRICS; i++) {
		const struct kvt_metric_info *info = &metrics[i].info;

		fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", info->name, info->help, info->name,
			info->type);
		metrics[i].collect(out, &metrics[i], in);
	}
	failed = ferror(out) != 0;
	failed |= fclose(out) != 0;
	if (failed || made == NULL) {
		free(made);
		return KVT_ENOMEM;
	}
	*text = made;
	return KVT_OK;
}

void kvt_latency_collect(
	const struct kvt_latencies *l, enum kvt_latency what, struct kvt_latency_sum *out)
{
	*out = (struct kvt_latency_sum){0};
	for (int s = 0; s < KVT_LATENCY_SHARDS; s++) {
		out->sum_ns +=
			atomic_load_explicit(&l->shards[s].of[what].sum_ns, memory_order_relaxed);
		for (int i = 0; i < KVT_LATENCY_BUCKETS; i++) {
			uint64_t n = atomic_load_explicit(
				&l->shards[s].of[what].buckets[i], memory_order_relaxed);

			out->buckets[i] += n;
			out->count += n;
		}
	}
}

void kvt_metrics_reference(FILE *out)
{
	fputs("# Metrics of libkvtier\n\n"
	      "Generated from `core/metrics.def` by `kvt-metrics-reference`; a test compares.\n"
	      "`kvt_metrics` shows them in this order as Prometheus text 0.0.4.\n"
	      "`tier` is `l1`, `nvme` or `l2`; a tier that is absent has a state, a reason and no "
	      "numbers.\n\n"
	      "| Name | Type | Labels | What it is |\n"
	      "|---|---|---|---|\n",
		out);
	for (size_t i = 0; i < METRICS; i++) {
		const struct kvt_metric_info *info = &metrics[i].info;
		const char *tick = info->labels[0] != '\0' ? "`" : "";

		fprintf(out, "| `%s` | %s | %s%s%s | %s |\n", info->name, info->type, tick,
			info->labels, tick, info->help);
	}
}
