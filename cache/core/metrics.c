/*
 * metrics.c - renders the metrics; cache_metrics.h has the interface.
 *
 * A line of metrics.def names a function that writes the samples, and a member of one of the
 * structs; so a new counter is one member and one line. Absent tiers have a state and a reason but
 * no numbers.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cache_metrics.h"

struct metric; /* a line of metrics.def, with its function */
typedef void collect_fn(struct kvw_exposition *out, const struct metric *metric,
	const struct kvt_metrics_input *in);

struct metric {
	struct kvw_metric_info info;
	collect_fn *collect;
	size_t arg; /* offset of the member, or an enum kvt_latency */
};

static const char *const tier_names[KVT_TIER_COUNT] = {
	[KVT_TIER_L1] = "l1",
	[KVT_TIER_NVME] = "nvme",
	[KVT_TIER_L2] = "l2",
};

/* --- one function for each kind of line in metrics.def
 * -------------------------------------------- */

#define COLLECT(name)                                                                              \
	static void collect_##name(struct kvw_exposition *out, const struct metric *metric,        \
		const struct kvt_metrics_input *in)

static void put_plain(struct kvw_exposition *out, uint64_t value)
{
	kvw_sample_u64(out, NULL, 0, value);
}

COLLECT(value)
{
	put_plain(out, kvw_number_at(in->stats, metric->arg));
}

COLLECT(tokens)
{
	put_plain(out, kvw_number_at(in->stats, metric->arg) * in->tokens_per_chunk);
}

COLLECT(event)
{
	put_plain(out, kvw_number_at(in->events, metric->arg));
}

COLLECT(controller)
{
	put_plain(out, kvw_number_at(in->controller, metric->arg));
}

COLLECT(fragments)
{
	put_plain(out, kvw_number_at(in->fragments, metric->arg));
}

COLLECT(refused_fragments)
{
	static const char *const reasons[KVT_FRAGMENT_REFUSALS] = {
		[KVT_FRAGMENT_BLENDED] = "blended",
		[KVT_FRAGMENT_HEADER] = "header",
		[KVT_FRAGMENT_MODEL] = "model",
		[KVT_FRAGMENT_TOKENS] = "tokens",
		[KVT_FRAGMENT_FULL] = "full",
	};

	(void)metric;
	for (int i = 0; i < KVT_FRAGMENT_REFUSALS; i++)
		kvw_sample_named(out, "reason", reasons[i], in->fragments->refused[i]);
}

COLLECT(l1)
{
	put_plain(out, kvw_number_at(&in->stats->tiers[KVT_TIER_L1], metric->arg));
}

COLLECT(nvme)
{
	put_plain(out, kvw_number_at(&in->stats->tiers[KVT_TIER_NVME], metric->arg));
}

COLLECT(tier)
{
	for (int t = 0; t < KVT_TIER_COUNT; t++)
		if (in->stats->tiers[t].state != KVT_TIER_ABSENT)
			kvw_sample_named(out, "tier", tier_names[t],
				kvw_number_at(&in->stats->tiers[t], metric->arg));
}

COLLECT(each)
{
	const uint64_t *const all[] = {in->stats->tenant_evictions, in->stats->tenant_refusals,
		in->stats->erased_elsewhere};
	const uint64_t *of = all[metric->arg];

	for (int t = 0; t < KVT_TIER_COUNT; t++)
		if (in->stats->tiers[t].state != KVT_TIER_ABSENT)
			kvw_sample_named(out, "tier", tier_names[t], of[t]);
}

COLLECT(tenants)
{
	(void)metric;
	for (int t = 0; t < KVT_TIER_COUNT; t++)
		if (in->tenants[t] != NULL)
			kvw_sample_named(out, "tier", tier_names[t], in->tenants[t]->tenants);
}

/* Returns the tenant's hash in hex digits, or "none" for chunks without a salt. */
static const char *tenant_name(const struct kvt_tenant *tenant, char out[33])
{
	static const struct kvt_tenant none;

	if (memcmp(tenant, &none, sizeof(none)) == 0)
		return "none";
	for (size_t i = 0; i < sizeof(tenant->bytes); i++)
		sprintf(out + 2 * i, "%02x", tenant->bytes[i]);
	return out;
}

COLLECT(tenant)
{
	char name[33];

	for (int t = 0; t < KVT_TIER_COUNT; t++) {
		const struct kvt_tenant_list *list = in->tenants[t];
		struct kvw_label labels[] = {
			{"tier", kvw_slice_of(tier_names[t])}, {"tenant", kvw_slice_of("other")}};

		if (list == NULL)
			continue;
		kvw_sample_u64(out, labels, 2, kvw_number_at(&list->others, metric->arg));
		for (size_t i = 0; i < list->count; i++) {
			labels[1].value = kvw_slice_of(tenant_name(&list->at[i].tenant, name));
			kvw_sample_u64(out, labels, 2, kvw_number_at(&list->at[i], metric->arg));
		}
	}
}

COLLECT(tier_seconds)
{
	for (int t = 0; t < KVT_TIER_COUNT; t++) {
		struct kvw_label label = {"tier", kvw_slice_of(tier_names[t])};

		if (in->stats->tiers[t].state != KVT_TIER_ABSENT)
			kvw_sample_double(out, &label, 1,
				(double)kvw_number_at(&in->stats->tiers[t], metric->arg) / 1e9);
	}
}

COLLECT(state)
{
	(void)metric;
	for (int t = 0; t < KVT_TIER_COUNT; t++)
		kvw_sample_named(out, "tier", tier_names[t], in->stats->tiers[t].state);
}

/* Copies a text whose array need not end with 0 into one line: control characters become blanks. */
static struct kvw_slice one_line(const char *text, size_t size, char *into)
{
	size_t len = strnlen(text, size);

	for (size_t i = 0; i < len; i++)
		into[i] = (unsigned char)text[i] < ' ' ? ' ' : text[i];
	return (struct kvw_slice){into, len};
}

COLLECT(info)
{
	(void)metric;
	for (int t = 0; t < KVT_TIER_COUNT; t++) {
		const struct kvt_tier_stats *tier = &in->stats->tiers[t];
		char mode[sizeof(tier->mode)], reason[sizeof(tier->reason)];
		struct kvw_label labels[] = {
			{"tier", kvw_slice_of(tier_names[t])},
			{"mode", one_line(tier->mode, sizeof(tier->mode), mode)},
			{"reason", one_line(tier->reason, sizeof(tier->reason), reason)},
		};

		kvw_sample_u64(out, labels, 3, 1);
	}
}

COLLECT(healthy)
{
	bool healthy = true;

	(void)metric;
	for (int t = 0; t < KVT_TIER_COUNT; t++)
		healthy &= in->stats->tiers[t].state == KVT_TIER_ABSENT ||
			   in->stats->tiers[t].state == KVT_TIER_WORKS;
	put_plain(out, healthy);
}

COLLECT(build)
{
	(void)metric;
	(void)in;
	kvw_sample_named(out, "version", kvt_version(), 1);
}

COLLECT(latency)
{
	struct kvw_histogram_sum sum;

	kvt_latency_collect(in->latencies, (enum kvt_latency)metric->arg, &sum);
	kvw_sample_histogram(out, NULL, 0, &in->latencies->bounds, &sum);
}

/* --- the table -------------------------------------------------------------------------------- */

#define IN_STATS(member)      offsetof(struct kvt_stats, member)
#define IN_TIER(member)       offsetof(struct kvt_tier_stats, member)
#define IN_TENANT(member)     offsetof(struct kvt_tenant_share, member)
#define IN_CONTROLLER(member) offsetof(struct kvt_controller_stats, member)
#define IN_FRAGMENTS(member)  offsetof(struct kvt_fragments_stats, member)
#define IN_EVENTS(member)     offsetof(struct kvt_event_log_stats, member)

static const struct metric metrics[] = {
#define KVT_METRIC(name, type, labels, collector, arg, help)                                       \
	{{name, #type, labels, help}, collect_##collector, arg},
#define KVT_QUESTION(text) {{NULL, "", "", text}, NULL, 0},
#include "core/metrics.def"
#undef KVT_METRIC
#undef KVT_QUESTION
};
#define METRICS (sizeof(metrics) / sizeof(metrics[0]))

const struct kvw_metric_info *kvt_metric_info(size_t i)
{
	return i < METRICS ? &metrics[i].info : NULL;
}

enum kvt_status kvt_metrics_render(const struct kvt_metrics_input *in, char **text)
{
	struct kvw_exposition out = {.numbers = KVW_NUMBERS_NINE};
	size_t len;

	for (size_t i = 0; i < METRICS; i++) {
		if (metrics[i].collect == NULL)
			continue; /* a question */
		kvw_metric_head(&out, &metrics[i].info);
		metrics[i].collect(&out, &metrics[i], in);
	}
	return kvw_exposition_take(&out, text, &len) == KVW_OK ? KVT_OK : KVT_ENOMEM;
}

void kvt_latency_collect(
	const struct kvt_latencies *l, enum kvt_latency what, struct kvw_histogram_sum *out)
{
	*out = (struct kvw_histogram_sum){0};
	for (int s = 0; s < KVT_LATENCY_SHARDS; s++)
		kvw_histogram_collect(&l->shards[s].of[what], out);
}

void kvt_metrics_reference(FILE *out)
{
	kvw_metrics_page(out,
		"# Metrics of libkvtier\n\n"
		"Generated from `core/metrics.def` by `ninja -C BUILD cache-metrics-reference`; a test compares.\n"
		"`kvt_metrics` shows them in this order as Prometheus text 0.0.4.\n"
		"`tier` is `l1`, `nvme` or `l2`; a tier that is absent has a state, a reason and "
		"no numbers.\n"
		"Each section is a question, and has the metrics that answer it.\n",
		kvt_metric_info);
}
