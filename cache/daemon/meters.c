/*
 * meters.c - see meters.h.
 *
 * A line of daemon_metrics.def names a function here that writes the samples; a new counter is an
 * enumerator and a line.
 */
#include "daemon/meters.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "daemon/objects.h"

/* Everything that one page is made of, collected once. */
struct page {
	FILE *out;
	const struct kvt_daemon_metrics_input *in;
	struct kvt_objects_stats objects;
	struct kvt_segment_stats segment;
};

struct metric; /* one line of daemon_metrics.def */
typedef void collect_fn(const struct page *page, const struct metric *metric);

struct metric {
	const char *name, *type, *labels, *help;
	collect_fn *collect;
	size_t arg;
};

static const char *const route_names[KVT_ROUTE_COUNT] = {
#define KVT_ROUTE(name, method, path, where, text) #name,
#include "daemon/routes.def"
	"other",
};

static const char *const status_names[KVT_SLOT_COUNT] = {
#define KVT_STATUS_NAME(code) #code,
	KVT_STATUSES(KVT_STATUS_NAME) "other",
};

static enum kvt_status_slot slot_of(int status)
{
	switch (status) {
#define KVT_STATUS_CASE(code)                                                                      \
	case code:                                                                                 \
		return KVT_SLOT_##code;
		KVT_STATUSES(KVT_STATUS_CASE)
	default:
		return KVT_SLOT_OTHER;
	}
}

void kvt_meter_answer(struct kvt_meters *m, enum kvt_route route, int status, int64_t ns)
{
	static const uint64_t bounds[] = KVT_LATENCY_BOUNDS;
	uint64_t value = ns < 0 ? 0 : (uint64_t)ns;
	unsigned i = 0;

	while (i < KVT_LATENCY_BUCKETS - 1 && value > bounds[i])
		i++;
	kvt_meter_bump(&m->requests[route][slot_of(status)], 1);
	kvt_meter_bump(&m->seconds[route].buckets[i], 1);
	kvt_meter_bump(&m->seconds[route].sum_ns, value);
}

/* --- one function for each collector of daemon_metrics.def ------------------------------------ */

static uint64_t load(const _Atomic uint64_t *value)
{
	return atomic_load_explicit(value, memory_order_relaxed);
}

static uint64_t total(const struct page *page, enum kvt_count what)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < page->in->meter_count; i++)
		sum += load(&page->in->meters[i]->counts[what]);
	return sum;
}

static uint64_t number_at(const void *base, size_t offset)
{
	uint64_t number;

	memcpy(&number, (const uint8_t *)base + offset, sizeof(number));
	return number;
}

static void put(const struct page *page, const struct metric *metric, uint64_t value)
{
	fprintf(page->out, "%s %" PRIu64 "\n", metric->name, value);
}

static void put_labelled(const struct page *page, const struct metric *metric, const char *label,
	const char *value, uint64_t number)
{
	fprintf(page->out, "%s{%s=\"%s\"} %" PRIu64 "\n", metric->name, label, value, number);
}

static void collect_count(const struct page *page, const struct metric *metric)
{
	put(page, metric, total(page, (enum kvt_count)metric->arg));
}

static void collect_connections(const struct page *page, const struct metric *metric)
{
	put(page, metric, page->in->connections);
}

static void collect_puts(const struct page *page, const struct metric *metric)
{
	put(page, metric, page->in->puts);
}

static void collect_object(const struct page *page, const struct metric *metric)
{
	put(page, metric, number_at(&page->objects, metric->arg));
}

static void collect_object_seconds(const struct page *page, const struct metric *metric)
{
	fprintf(page->out, "%s %.9g\n", metric->name,
		(double)number_at(&page->objects, metric->arg) / 1e9);
}

static void collect_segment(const struct page *page, const struct metric *metric)
{
	put(page, metric, number_at(&page->segment, metric->arg));
}

static void collect_quiet(const struct page *page, const struct metric *metric)
{
	int64_t until = page->objects.quiet_until_wall_ns;
	int64_t left = until == 0 ? 0 : until - page->in->wall_ns;

	fprintf(page->out, "%s %.9g\n", metric->name, left > 0 ? (double)left / 1e9 : 0.0);
}

static void collect_outcomes(const struct page *page, const struct metric *metric)
{
	put_labelled(page, metric, "outcome", "stored", page->objects.stored);
	put_labelled(page, metric, "outcome", "replaced", page->objects.replaced);
	put_labelled(page, metric, "outcome", "same", page->objects.same);
}

static void collect_refused(const struct page *page, const struct metric *metric)
{
	static const char *const reasons[] = {
		"connections", "descriptors", "puts", "quiet", "room", "size", "leases", "jobs"};

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		put_labelled(page, metric, "reason", reasons[i],
			total(page, (enum kvt_count)(KVT_COUNT_REFUSED_CONNECTIONS + i)));
}

static void collect_timeouts(const struct page *page, const struct metric *metric)
{
	static const char *const kinds[] = {"idle", "head", "body", "write"};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		put_labelled(page, metric, "kind", kinds[i],
			total(page, (enum kvt_count)(KVT_COUNT_TIMEOUT_IDLE + i)));
}

/* Pairs that never were are left out. */
static void collect_requests(const struct page *page, const struct metric *metric)
{
	for (int route = 0; route < KVT_ROUTE_COUNT; route++)
		for (int slot = 0; slot < KVT_SLOT_COUNT; slot++) {
			uint64_t sum = 0;

			for (size_t i = 0; i < page->in->meter_count; i++)
				sum += load(&page->in->meters[i]->requests[route][slot]);
			if (sum > 0)
				fprintf(page->out, "%s{route=\"%s\",code=\"%s\"} %" PRIu64 "\n",
					metric->name, route_names[route], status_names[slot], sum);
		}
}

static void collect_seconds(const struct page *page, const struct metric *metric)
{
	static const uint64_t bounds[] = KVT_LATENCY_BOUNDS;

	for (int route = 0; route < KVT_ROUTE_COUNT; route++) {
		const char *name = route_names[route];
		uint64_t below = 0, sum_ns = 0;

		for (int b = 0; b < KVT_LATENCY_BUCKETS; b++) {
			for (size_t i = 0; i < page->in->meter_count; i++)
				below += load(&page->in->meters[i]->seconds[route].buckets[b]);
			if (b < KVT_LATENCY_BUCKETS - 1)
				fprintf(page->out,
					"%s_bucket{route=\"%s\",le=\"%g\"} %" PRIu64 "\n",
					metric->name, name, (double)bounds[b] / 1e9, below);
		}
		for (size_t i = 0; i < page->in->meter_count; i++)
			sum_ns += load(&page->in->meters[i]->seconds[route].sum_ns);
		fprintf(page->out,
			"%s_bucket{route=\"%s\",le=\"+Inf\"} %" PRIu64
			"\n%s_sum{route=\"%s\"} %.9f\n%s_count{route=\"%s\"} %" PRIu64 "\n",
			metric->name, name, below, metric->name, name, (double)sum_ns / 1e9,
			metric->name, name, below);
	}
}

/* --- the page --------------------------------------------------------------------------------- */

#define IN_OBJECTS(member) offsetof(struct kvt_objects_stats, member)
#define IN_SEGMENT(member) offsetof(struct kvt_segment_stats, member)

static const struct metric metrics[] = {
#define KVT_METRIC(name, type, labels, collector, arg, help)                                       \
	{name, #type, labels, help, collect_##collector, arg},
#include "daemon/daemon_metrics.def"
};
#define METRICS (sizeof(metrics) / sizeof(metrics[0]))

void kvt_daemon_metrics(const struct kvt_daemon_metrics_input *in, FILE *out)
{
	struct page page = {.out = out, .in = in};

	kvt_objects_stats(in->objects, &page.objects);
	kvt_segment_stats(in->segment, &page.segment);
	for (size_t i = 0; i < METRICS; i++) {
		fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", metrics[i].name, metrics[i].help,
			metrics[i].name, metrics[i].type);
		metrics[i].collect(&page, &metrics[i]);
	}
}

void kvt_daemon_metrics_reference(FILE *out)
{
	fputs("# Metrics of kvtierd\n\n"
	      "Generated from `daemon_metrics.def` by `kvtierd reference --metrics`; a test "
	      "compares.\n"
	      "`/metrics` shows them in this order, then those of its cache "
	      "(`cache/METRICS.md`).\n\n"
	      "| Name | Type | Labels | What it is |\n"
	      "|---|---|---|---|\n",
		out);
	for (size_t i = 0; i < METRICS; i++) {
		const char *tick = metrics[i].labels[0] != '\0' ? "`" : "";

		fprintf(out, "| `%s` | %s | %s%s%s | %s |\n", metrics[i].name, metrics[i].type,
			tick, metrics[i].labels, tick, metrics[i].help);
	}
}
