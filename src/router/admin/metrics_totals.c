/* metrics_totals.c - adds up what /metrics shows by labels, and what workers that have left did. */
#include "admin/metrics_totals.h"

#include <stddef.h>

#include "admin/collect.h"
#include "openai/api_path.h"

const char *kvw_total_name(enum kvw_total total)
{
	static const char *const names[KVW_TOTAL_COUNT] = {
		[KVW_TOTAL_OK] = "ok",
		[KVW_TOTAL_CLIENT_ERROR] = "client_error",
		[KVW_TOTAL_REFUSED] = "refused",
		[KVW_TOTAL_FAILED] = "failed",
		[KVW_TOTAL_LEFT] = "left",
		[KVW_TOTAL_PROMPT] = "prompt_tokens",
		[KVW_TOTAL_CACHED] = "cached_tokens",
		[KVW_TOTAL_COMPLETION] = "completion_tokens",
		[KVW_TOTAL_PREDICTED_PROMPT] = "predicted_prompt_tokens",
		[KVW_TOTAL_PREDICTED_CACHED] = "predicted_cached_tokens",
		[KVW_TOTAL_PREFILLED] = "prefilled_elsewhere_tokens",
		[KVW_TOTAL_KEPT] = "promises_kept",
		[KVW_TOTAL_LATE] = "promises_late",
		[KVW_TOTAL_SLOW] = "promises_slow",
		[KVW_TOTAL_BROKEN] = "promises_broken",
		[KVW_TOTAL_SERVICE_LEVEL] = "refused_service_level",
		[KVW_TOTAL_DEADLINE] = "refused_deadline",
		[KVW_TOTAL_QUEUE_FULL] = "refused_queue_full",
		[KVW_TOTAL_RATE] = "refused_rate",
		[KVW_TOTAL_KEY] = "refused_key",
		[KVW_TOTAL_BODY_MEMORY] = "refused_body_memory",
		[KVW_TOTAL_CONNECTIONS] = "refused_connections",
		[KVW_TOTAL_ENGINE_FULL] = "engine_full",
		[KVW_TOTAL_RETRIES] = "retries",
		[KVW_TOTAL_DESCRIPTORS] = "out_of_descriptors",
	};

	return names[total];
}

static enum kvw_total fate_of(enum kvw_end end, size_t status)
{
	const char *name = kvw_status_name(status);

	if (end == KVW_END_CLIENT_GONE)
		return KVW_TOTAL_LEFT;
	if (end == KVW_END_UPSTREAM_LOST || end == KVW_END_TIMEOUT || end == KVW_END_SHUTDOWN ||
		name[0] == '5')
		return KVW_TOTAL_FAILED;
	if (name[0] != '4')
		return KVW_TOTAL_OK;
	return name[1] == '2' && name[2] == '9' ? KVW_TOTAL_REFUSED : KVW_TOTAL_CLIENT_ERROR;
}

static void add_requests(
	const struct kvw_metrics *metrics, size_t slot, size_t api, uint64_t counts[])
{
	for (size_t i = 0; i < metrics->loops; i++) {
		const struct kvw_request_cell *cell = atomic_load_explicit(
			&metrics->shards[i].request_cells[slot * KVW_API_COUNT + api],
			memory_order_acquire);

		for (size_t end = 0; cell != NULL && end < KVW_END_COUNT; end++)
			for (size_t status = 0; status < KVW_STATUS_SLOTS; status++) {
				uint64_t n = kvw_counted(&cell->count[end][status]);

				if (n > 0)
					counts[fate_of((enum kvw_end)end, status)] += n;
			}
	}
}

void kvw_metrics_totals_keep(struct kvw_metrics *metrics, uint32_t worker_id)
{
	uint64_t counts[KVW_TOTAL_COUNT] = {0};

	for (size_t api = 0; api < KVW_API_COUNT; api++)
		add_requests(metrics, (size_t)worker_id + 1, api, counts);
	for (size_t i = 0; i < KVW_TOTAL_FATES; i++)
		kvw_bump(&metrics->left[i], counts[i]);
}

static uint64_t counter(const struct kvw_metrics *metrics, enum kvw_counter from, int count)
{
	uint64_t sum = 0;

	for (int i = 0; i < count; i++)
		sum += kvw_metrics_counter_sum(metrics, (enum kvw_counter)(from + i));
	return sum;
}

static uint64_t tally(const struct kvw_metrics *metrics, enum kvw_tally which)
{
	return kvw_shards_sum(metrics, offsetof(struct kvw_metrics_shard, tallies) +
					       (size_t)which * sizeof(_Atomic uint64_t));
}

static void add_promises(const struct kvw_metrics_shard *shard, uint64_t counts[])
{
	for (size_t class = 0; class <= KVW_CLASS_OTHER; class ++) {
		const _Atomic uint64_t *kept = shard->kept[class];

		counts[KVW_TOTAL_KEPT] += kvw_counted(&kept[KVW_KEPT]);
		counts[KVW_TOTAL_LATE] += kvw_counted(&kept[KVW_KEPT_LATE]);
		counts[KVW_TOTAL_SLOW] += kvw_counted(&kept[KVW_KEPT_SLOW]);
		counts[KVW_TOTAL_BROKEN] +=
			kvw_counted(&kept[KVW_KEPT_FAILED]) + kvw_counted(&kept[KVW_KEPT_REFUSED]);
	}
}

static void add_counters(const struct kvw_metrics *metrics, uint64_t counts[])
{
	counts[KVW_TOTAL_PROMPT] = tally(metrics, KVW_TALLY_PROMPT);
	counts[KVW_TOTAL_CACHED] = tally(metrics, KVW_TALLY_CACHED);
	counts[KVW_TOTAL_COMPLETION] = tally(metrics, KVW_TALLY_COMPLETION);
	counts[KVW_TOTAL_PREDICTED_PROMPT] = tally(metrics, KVW_TALLY_PREDICTED_PROMPT);
	counts[KVW_TOTAL_PREDICTED_CACHED] = tally(metrics, KVW_TALLY_PREDICTED_CACHED);
	counts[KVW_TOTAL_PREFILLED] =
		kvw_shards_sum(metrics, offsetof(struct kvw_metrics_shard, pd.prompt_tokens));
	counts[KVW_TOTAL_SERVICE_LEVEL] = counter(metrics, KVW_COUNT_REFUSED_SERVICE_LEVEL, 1);
	counts[KVW_TOTAL_DEADLINE] = counter(metrics, KVW_COUNT_REFUSED_DEADLINE, 1);
	counts[KVW_TOTAL_QUEUE_FULL] = counter(metrics, KVW_COUNT_REFUSED_QUEUE_FULL, 1);
	counts[KVW_TOTAL_RATE] = counter(metrics, KVW_COUNT_RATE_REQUESTS,
		KVW_COUNT_RATE_CONCURRENT - KVW_COUNT_RATE_REQUESTS + 1);
	counts[KVW_TOTAL_KEY] = counter(metrics, KVW_COUNT_AUTH_MISSING,
		KVW_COUNT_AUTH_TENANT - KVW_COUNT_AUTH_MISSING + 1);
	counts[KVW_TOTAL_BODY_MEMORY] = counter(metrics, KVW_COUNT_BODY_MEMORY_REFUSED, 1);
	counts[KVW_TOTAL_CONNECTIONS] = counter(metrics, KVW_COUNT_CONNECTIONS_REFUSED, 1);
	counts[KVW_TOTAL_ENGINE_FULL] = counter(metrics, KVW_COUNT_FULL_ANSWERS, 1);
	counts[KVW_TOTAL_RETRIES] = counter(metrics, KVW_COUNT_RETRIES, 1);
	counts[KVW_TOTAL_DESCRIPTORS] = counter(metrics, KVW_COUNT_OUT_OF_DESCRIPTORS, 1);
}

void kvw_metrics_totals(
	const struct kvw_metrics *metrics, int64_t now_ns, struct kvw_metrics_totals *out)
{
	int64_t first_ns = now_ns;

	*out = (struct kvw_metrics_totals){
		.waiting = (uint64_t)kvw_metrics_gauge_sum(metrics, KVW_GAUGE_WAITING),
		.exchanges = (uint64_t)kvw_metrics_gauge_sum(metrics, KVW_GAUGE_EXCHANGES),
	};
	for (size_t i = 0; i < KVW_TOTAL_FATES; i++)
		out->counts[i] = kvw_counted(&metrics->left[i]);
	for (size_t slot = 0; slot < kvw_metrics_slots(metrics); slot++)
		for (size_t api = 0; api < KVW_API_COUNT; api++)
			if (slot != 0 || api != KVW_API_OTHER)
				add_requests(metrics, slot, api, out->counts);
	add_counters(metrics, out->counts);
	for (size_t i = 0; i < metrics->loops; i++) {
		const struct kvw_metrics_shard *shard = &metrics->shards[i];
		int64_t came_ns = atomic_load_explicit(&shard->oldest_ns, memory_order_relaxed);

		add_promises(shard, out->counts);
		for (size_t api = 0; api < KVW_API_COUNT; api++)
			kvw_histogram_collect(&shard->routes[api].first_token, &out->first_token);
		first_ns = came_ns != 0 && came_ns < first_ns ? came_ns : first_ns;
	}
	out->oldest_s = (double)(now_ns - first_ns) / 1e9;
}

double kvw_totals_first_token(const struct kvw_metrics *metrics,
	const struct kvw_metrics_totals *from, const struct kvw_metrics_totals *to, double share)
{
	const struct kvw_bounds *bounds = &metrics->bounds.token;
	double rank = share * (double)(to->first_token.count - from->first_token.count), before = 0;

	if (to->first_token.count <= from->first_token.count)
		return -1;
	for (size_t i = 0; i < bounds->count; i++) {
		double low = i == 0 ? 0 : (double)bounds->ns[i - 1], high = (double)bounds->ns[i];
		double in = (double)(to->first_token.buckets[i] - from->first_token.buckets[i]);

		if (in > 0 && before + in >= rank)
			return (low + (high - low) * (rank - before) / in) / 1e9;
		before += in;
	}
	return (double)bounds->ns[bounds->count - 1] / 1e9;
}
