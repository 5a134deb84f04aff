/*
 * metrics_test.c - what is recorded is what /metrics says, in text that Prometheus accepts.
 */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "openai/api_path.h"
#include "fixture.h"
#include "admin/metrics.h"
#include "admission/scale.h"
#include "metrics/exposition.h"
#include "prom.h"
#include "tests/unit/suite.h"

#define SECOND INT64_C(1000000000)

static struct fixture fixture;
static struct kvw_metrics *metrics;

static void setup(void)
{
	fixture_init(&fixture, 18001);
	fixture_models(&fixture, 0, "tiny,we\"ird\\name");
	ck_assert_int_eq(kvw_metrics_create(2, fixture.fleet, &metrics), KVW_OK);
}

static void teardown(void)
{
	kvw_metrics_destroy(metrics);
	fixture_finish(&fixture);
}

static struct prom *scrape(int64_t now_ns)
{
	struct prom *prom;
	char *text;
	size_t len;

	ck_assert_int_eq(kvw_metrics_render(metrics, now_ns, false, &text, &len), KVW_OK);
	prom = prom_parse(text, len);
	free(text);
	return prom;
}

START_TEST(every_listed_metric_appears_with_its_type)
{
	struct prom *prom = scrape(SECOND);
	const struct kvw_metric_info *info;
	size_t count = 0;

	for (; (info = kvw_metric_info(count)) != NULL; count++)
		if (info->name != NULL) /* no question */
			prom_family(prom, info->name, info->type);
	ck_assert_uint_gt(count, 60);
	prom_free(prom);
}
END_TEST

START_TEST(requests_add_up_over_loops)
{
	struct kvw_request_record record = fixture_record(&fixture);
	struct prom *prom;

	kvw_metrics_record(kvw_metrics_shard(metrics, 0), &record);
	kvw_metrics_record(kvw_metrics_shard(metrics, 1), &record);
	record.status = 418;
	kvw_metrics_record(kvw_metrics_shard(metrics, 1), &record);
	record.status = 404;
	record.end = KVW_END_LOCAL;
	record.worker_id = UINT32_MAX;
	record.worker_url = (struct kvw_slice){NULL, 0};
	kvw_metrics_record(kvw_metrics_shard(metrics, 0), &record);

	prom = scrape(SECOND);
	ck_assert_double_eq(prom_get(prom, "kvway_requests_total{route=\"chat\",worker=\"http://127.0.0.1:18001\",status=\"200\",end=\"complete\"}"), 2);
	ck_assert_double_eq(prom_get(prom, "kvway_requests_total{route=\"chat\",worker=\"http://127.0.0.1:18001\",status=\"4xx\",end=\"complete\"}"), 1);
	ck_assert_double_eq(prom_get(prom, "kvway_requests_total{route=\"chat\",worker=\"none\",status=\"404\",end=\"local\"}"), 1);
	ck_assert_uint_eq(prom_family(prom, "kvway_requests_total", "counter"), 3);
	ck_assert_double_eq(prom_get(prom, "vllm:num_incoming_requests_total{model=\"tiny\"}"), 4);
	ck_assert_double_eq(prom_get(prom, "vllm:request_errors_total{server=\"http://127.0.0.1:18001\",model=\"tiny\",error_type=\"http_4xx\"}"), 1);
	ck_assert_double_eq(prom_get(prom, "vllm:request_errors_total{server=\"none\",model=\"tiny\",error_type=\"local\"}"), 1);
	ck_assert_double_eq(prom_get(prom, "kvway_request_bytes_total"), 8000);
	ck_assert_double_eq(prom_get(prom, "kvway_request_seconds_count{route=\"chat\"}"), 3);
	ck_assert_double_eq_tol(prom_get(prom, "kvway_request_seconds_sum{route=\"chat\"}"), 0.3, 1e-12);
	prom_free(prom);
}
END_TEST

#define RATIO(role, quantile) \
	"kvway_fleet_predicted_over_promised{model=\"tiny\",role=\"" role "\",quantile=\"" quantile "\"}"

/* An autoscaler finds a figure before the first request, the last minute's while there are some, and 0 afterwards. */
START_TEST(predictions_over_promises_by_model_and_role)
{
	const struct kvw_scale_prediction late = {{SECOND, SECOND, SECOND, 2 * SECOND}};
	const struct kvw_scale_prediction early = {{0, 0, SECOND / 10, 2 * SECOND}};
	struct prom *prom = scrape(SECOND);

	ck_assert_double_eq(prom_get(prom, RATIO("both", "0.9")), 0);
	ck_assert_double_eq(prom_get(prom, "kvway_predicted_over_promised_count{model=\"tiny\",role=\"both\"}"), 0);
	prom_free(prom);

	for (int i = 0; i < 4; i++) {
		kvw_metrics_predicted(kvw_metrics_shard(metrics, 0), 1, KVW_ROLE_BOTH, &early);
		kvw_metrics_predicted(kvw_metrics_shard(metrics, 1), 1, KVW_ROLE_BOTH, i == 0 ? &late : &early);
	}
	kvw_metrics_predicted(kvw_metrics_shard(metrics, 0), 1, KVW_ROLE_PREFILL, &late);
	prom = scrape(2 * SECOND);
	ck_assert_double_le(prom_get(prom, RATIO("both", "0.5")), 0.05);
	ck_assert_double_ge(prom_get(prom, RATIO("both", "0.9")), 1.25);
	ck_assert_double_ge(prom_get(prom, RATIO("prefill", "0.5")), 1.25);
	ck_assert_double_eq(prom_get(prom, "kvway_predicted_over_promised_count{model=\"tiny\",role=\"both\"}"), 8);
	ck_assert_double_eq_tol(prom_get(prom, "kvway_predicted_seconds_total{model=\"tiny\",role=\"both\",part=\"wait\"}"), 1, 1e-9);
	ck_assert_double_eq_tol(prom_get(prom, "kvway_predicted_seconds_total{model=\"tiny\",role=\"both\",part=\"prefill\"}"), 1.7, 1e-9);
	ck_assert_double_eq_tol(prom_get(prom, "kvway_predicted_seconds_total{model=\"tiny\",role=\"both\",part=\"promised\"}"), 16, 1e-9);
	prom_free(prom);

	for (int64_t s = 3; s < 80; s++)
		kvw_metrics_tick(metrics, s * SECOND);
	prom = scrape(80 * SECOND);
	ck_assert_double_eq(prom_get(prom, RATIO("both", "0.9")), 0);
	ck_assert_double_eq(prom_get(prom, "kvway_predicted_over_promised_count{model=\"tiny\",role=\"both\"}"), 8);
	prom_free(prom);
}
END_TEST

START_TEST(status_codes_keep_their_number_or_their_class)
{
	static const struct {
		int status;
		const char *label;
	} cases[] = {{0, "0"}, {101, "1xx"}, {200, "200"}, {206, "206"}, {299, "2xx"}, {304, "304"},
		{307, "3xx"}, {429, "429"}, {431, "431"}, {451, "4xx"}, {500, "500"}, {504, "504"},
		{529, "529"}, {599, "5xx"}, {600, "other"}, {-1, "other"}, {99, "other"}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kvw_request_record record = fixture_record(&fixture);
		struct kvw_metrics *fresh = metrics;
		struct prom *prom;
		char series[160];

		ck_assert_int_eq(kvw_metrics_create(1, fixture.fleet, &metrics), KVW_OK);
		record.status = cases[i].status;
		kvw_metrics_record(kvw_metrics_shard(metrics, 0), &record);
		prom = scrape(SECOND);
		snprintf(series, sizeof(series),
			"kvway_requests_total{route=\"chat\",worker=\"%s\",status=\"%s\",end=\"complete\"}",
			fixture.urls[0], cases[i].label);
		ck_assert_double_eq(prom_get(prom, series), 1);
		prom_free(prom);
		kvw_metrics_destroy(metrics);
		metrics = fresh;
	}
}
END_TEST

START_TEST(latencies_fall_into_their_buckets)
{
	struct kvw_request_record record = fixture_record(&fixture);
	struct kvw_metrics_shard *shard = kvw_metrics_shard(metrics, 0);
	struct prom *prom;

	record.stream = true;
	record.first_token_ns = 60000000; /* a bound of its own: inclusive */
	record.total_ns = 2500000001;     /* just above one */
	record.added_ns = 9000;
	kvw_metrics_record(shard, &record);
	record.stream = false; /* its first byte is no first token */
	kvw_metrics_record(shard, &record);
	kvw_metrics_stream_gap(shard, 12000000);

	prom = scrape(SECOND);
	ck_assert_double_eq(prom_get(prom, "kvway_time_to_first_token_seconds_bucket{route=\"chat\",le=\"0.04\"}"), 0);
	ck_assert_double_eq(prom_get(prom, "kvway_time_to_first_token_seconds_bucket{route=\"chat\",le=\"0.06\"}"), 1);
	ck_assert_double_eq(prom_get(prom, "kvway_time_to_first_token_seconds_count{route=\"chat\"}"), 1);
	ck_assert_double_eq(prom_get(prom, "vllm:request_latency_seconds_bucket{server=\"http://127.0.0.1:18001\",model=\"tiny\",status=\"success\",le=\"2.5\"}"), 0);
	ck_assert_double_eq(prom_get(prom, "vllm:request_latency_seconds_bucket{server=\"http://127.0.0.1:18001\",model=\"tiny\",status=\"success\",le=\"5\"}"), 2);
	ck_assert_double_eq(prom_get(prom, "kvway_added_latency_seconds_bucket{route=\"chat\",le=\"1e-05\"}"), 2);
	ck_assert_double_eq(prom_get(prom, "kvway_inter_token_seconds_bucket{le=\"0.01\"}"), 0);
	ck_assert_double_eq(prom_get(prom, "kvway_inter_token_seconds_bucket{le=\"0.025\"}"), 1);
	prom_free(prom);
}
END_TEST

#define WORKER_0(name) "kvway_worker_" name "{worker=\"http://127.0.0.1:18001\"}"

static uint8_t class_label(struct kvw_metrics_shard *shard, const char *name)
{
	return kvw_metrics_class(shard, kvw_slice_of(name));
}

START_TEST(promises_are_counted_by_class)
{
	struct kvw_metrics_shard *a = kvw_metrics_shard(metrics, 0);
	struct kvw_metrics_shard *b = kvw_metrics_shard(metrics, 1);
	uint8_t chat = class_label(a, "chat");
	uint8_t batch = class_label(b, "batch");
	struct prom *prom;

	/* A reload may name them in another order: a label goes with the name. */
	ck_assert_uint_eq(class_label(b, "chat"), chat);
	ck_assert_uint_eq(class_label(a, "batch"), batch);
	ck_assert_uint_ne(chat, batch);
	kvw_metrics_kept(a, chat, KVW_KEPT);
	kvw_metrics_kept(b, chat, KVW_KEPT);
	kvw_metrics_kept(b, batch, KVW_KEPT_SLOW);
	kvw_metrics_refused(a, batch, KVW_COUNT_REFUSED_DEADLINE);
	kvw_metrics_refused(b, chat, KVW_COUNT_REFUSED_QUEUE_FULL);
	kvw_metrics_first_token(a, 1500000000, 1000000000);
	kvw_metrics_first_token(b, 0, 250000000);
	kvw_metrics_oldest(a, 3 * SECOND);
	kvw_metrics_oldest(b, 4 * SECOND);
	prom = scrape(5 * SECOND);
	ck_assert_double_eq(prom_get(prom, "kvway_service_level_total{class=\"chat\",result=\"kept\"}"), 2);
	ck_assert_double_eq(prom_get(prom, "kvway_service_level_total{class=\"chat\",result=\"late\"}"), 0);
	ck_assert_double_eq(prom_get(prom, "kvway_service_level_total{class=\"batch\",result=\"slow\"}"), 1);
	ck_assert_double_eq(prom_get(prom, "kvway_refused_total{class=\"batch\",reason=\"deadline\"}"), 1);
	ck_assert_double_eq(prom_get(prom, "kvway_refused_total{class=\"chat\",reason=\"queue_full\"}"), 1);
	ck_assert_double_eq(prom_get(prom, "kvway_refused_total{class=\"chat\",reason=\"deadline\"}"), 0);
	ck_assert_double_eq(prom_get(prom, "kvway_refused_deadline_total"), 1);
	ck_assert_double_eq(prom_get(prom, "kvway_refused_queue_full_total"), 1);
	ck_assert_double_eq(prom_get(prom, "kvway_first_token_predictions_total"), 2);
	ck_assert_double_eq(prom_get(prom, "kvway_first_token_predicted_seconds_total"), 1.5);
	ck_assert_double_eq(prom_get(prom, "kvway_first_token_actual_seconds_total"), 1.25);
	ck_assert_double_eq(prom_get(prom, "kvway_first_token_error_seconds_total"), 0.75);
	ck_assert_double_eq(prom_get(prom, "kvway_oldest_waiting_seconds"), 2);
	prom_free(prom);
	kvw_metrics_oldest(a, 0);
	kvw_metrics_oldest(b, 0);
	prom = scrape(5 * SECOND);
	ck_assert_double_eq(prom_get(prom, "kvway_oldest_waiting_seconds"), 0);
	prom_free(prom);
}
END_TEST

START_TEST(classes_without_end_are_one)
{
	struct kvw_metrics_shard *shard = kvw_metrics_shard(metrics, 0);
	uint8_t other = 0;
	struct prom *prom;

	ck_assert_uint_eq(class_label(shard, NULL), class_label(shard, "default"));
	for (int i = 0; i < 100; i++) {
		char name[16];

		snprintf(name, sizeof(name), "c%d", i);
		other = class_label(shard, name);
	}
	ck_assert_uint_eq(class_label(shard, "one more"), other);
	ck_assert_uint_ne(class_label(shard, "c30"), other);
	prom = scrape(SECOND);
	ck_assert_uint_eq(prom_family(prom, "kvway_refused_total", "counter"), 32 * 3);
	prom_free(prom);
	kvw_metrics_refused(shard, other, KVW_COUNT_REFUSED_SERVICE_LEVEL);
	prom = scrape(SECOND);
	ck_assert_double_eq(prom_get(prom, "kvway_refused_total{class=\"other\",reason=\"service_level\"}"), 1);
	prom_free(prom);
}
END_TEST

START_TEST(cached_tokens_compare_prediction_with_truth)
{
	struct kvw_request_record record = fixture_record(&fixture);
	struct kvw_metrics_shard *shard = kvw_metrics_shard(metrics, 0);
	struct prom *prom;

	record.predicted_prompt = 1000;
	record.predicted_cached = 600;
	kvw_metrics_record(shard, &record); /* the count of cached tokens is unknown: not an error of 600 */
	record.prompt_known = record.cached_known = record.completion_known = true;
	record.prompt_tokens = 1010;
	record.cached_tokens = 640;
	record.completion_tokens = 50;
	kvw_metrics_record(shard, &record);
	record.cached_tokens = 500;
	kvw_metrics_record(shard, &record);
	record.predicted_prompt = 0; /* routed without content: nothing to compare */
	kvw_metrics_record(shard, &record);

	prom = scrape(SECOND);
	ck_assert_double_eq(prom_get(prom, "kvway_predicted_prompt_tokens_total"), 3000);
	ck_assert_double_eq(prom_get(prom, "kvway_predicted_cached_tokens_total"), 1800);
	ck_assert_double_eq(prom_get(prom, "kvway_prompt_tokens_total"), 3030);
	ck_assert_double_eq(prom_get(prom, "kvway_cached_tokens_total"), 1640);
	ck_assert_double_eq(prom_get(prom, "kvway_cached_tokens_compared_total"), 2020);
	ck_assert_double_eq(prom_get(prom, "kvway_cached_tokens_error_total"), 140);
	ck_assert_double_eq(prom_get(prom, "kvway_cached_tokens_comparisons_total"), 2);
	ck_assert_double_eq(prom_get(prom, WORKER_0("cached_tokens_comparisons_total")), 2);
	ck_assert_double_eq(prom_get(prom, WORKER_0("predicted_cached_tokens_total")), 1200);
	ck_assert_double_eq(prom_get(prom, WORKER_0("cached_tokens_total")), 1140);
	ck_assert_double_eq(prom_get(prom, WORKER_0("overpredicted_tokens_total")), 100);
	ck_assert_double_eq(prom_get(prom, WORKER_0("underpredicted_tokens_total")), 40);
	ck_assert_double_eq(prom_get(prom, "vllm:input_tokens_total{server=\"http://127.0.0.1:18001\",model=\"tiny\"}"), 3030);
	ck_assert_double_eq(prom_get(prom, "vllm:output_tokens_total{server=\"http://127.0.0.1:18001\",model=\"tiny\"}"), 150);
	prom_free(prom);
}
END_TEST

START_TEST(models_are_known_names_or_unknown_or_other)
{
	struct kvw_request_record record = fixture_record(&fixture);
	struct kvw_metrics_shard *shard = kvw_metrics_shard(metrics, 0);
	struct prom *prom;

	record.model_label = 2;
	kvw_metrics_record(shard, &record);
	record.model_label = 0;
	kvw_metrics_record(shard, &record); /* a name that no worker serves */
	record.model.len = 0;
	kvw_metrics_record(shard, &record); /* none at all: not counted by model */
	record.model_label = 9; /* an index that no view has shown */
	kvw_metrics_record(shard, &record);
	record.model_label = 4000000;
	kvw_metrics_record(shard, &record);

	prom = scrape(SECOND);
	ck_assert_double_eq(prom_get(prom, "vllm:num_incoming_requests_total{model=\"we\\\"ird\\\\name\"}"), 1);
	ck_assert_double_eq(prom_get(prom, "vllm:num_incoming_requests_total{model=\"unknown\"}"), 1);
	ck_assert_double_eq(prom_get(prom, "vllm:num_incoming_requests_total{model=\"other\"}"), 2);
	ck_assert_double_eq(prom_get(prom, "vllm:request_latency_seconds_count{server=\"http://127.0.0.1:18001\",model=\"other\",status=\"success\"}"), 2);
	prom_free(prom);
}
END_TEST

START_TEST(a_model_that_left_keeps_its_name)
{
	struct kvw_request_record record = fixture_record(&fixture);
	struct prom *prom;

	kvw_metrics_record(kvw_metrics_shard(metrics, 0), &record);
	kvw_metrics_tick(metrics, SECOND);
	fixture_models(&fixture, 0, "another");
	prom = scrape(2 * SECOND);
	ck_assert_double_eq(prom_get(prom, "vllm:num_incoming_requests_total{model=\"tiny\"}"), 1);
	prom_free(prom);
}
END_TEST

START_TEST(counters_and_gauges)
{
	struct prom *prom;

	kvw_metrics_add(kvw_metrics_shard(metrics, 0), KVW_COUNT_RETRIES, 2);
	kvw_metrics_add(kvw_metrics_shard(metrics, 1), KVW_COUNT_RETRIES, 3);
	kvw_metrics_add(kvw_metrics_shard(metrics, 1), KVW_COUNT_TIMEOUT_STREAM_IDLE, 1);
	kvw_metrics_gauge(kvw_metrics_shard(metrics, 0), KVW_GAUGE_EXCHANGES, 5);
	kvw_metrics_gauge(kvw_metrics_shard(metrics, 1), KVW_GAUGE_EXCHANGES, 2);
	kvw_metrics_gauge(kvw_metrics_shard(metrics, 0), KVW_GAUGE_EXCHANGES, -4);
	ck_assert_int_eq(kvw_metrics_gauge_sum(metrics, KVW_GAUGE_EXCHANGES), 3);
	ck_assert_uint_eq(kvw_metrics_counter_sum(metrics, KVW_COUNT_RETRIES), 5);

	prom = scrape(SECOND);
	ck_assert_double_eq(prom_get(prom, "kvway_retries_total"), 5);
	ck_assert_double_eq(prom_get(prom, "kvway_exchanges"), 3);
	ck_assert_double_eq(prom_get(prom, "kvway_timeouts_total{kind=\"stream_idle\"}"), 1);
	ck_assert_double_eq(prom_get(prom, "kvway_timeouts_total{kind=\"connect\"}"), 0);
	prom_free(prom);
}
END_TEST

START_TEST(workers_show_load_health_and_capacity)
{
	struct kvw_worker *worker = fixture.fleet->workers[1];
	struct kvw_lease leases[3] = {{0}};
	struct prom *prom;

	for (size_t i = 0; i < 3; i++)
		kvw_lease_take(&leases[i], &worker->load, 500000000, 10 * SECOND);
	kvw_metrics_decoding(kvw_metrics_shard(metrics, 0), 1, +1);
	kvw_fleet_set_capacity(worker, 32736, 32);
	atomic_store(&worker->health, (uint8_t)KVW_HEALTH_DOWN);
	atomic_store(&fixture.fleet->workers[0]->health, (uint8_t)KVW_HEALTH_UP);
	kvw_fleet_cache_lost(fixture.fleet, worker, "test");

	prom = scrape(10 * SECOND);
	ck_assert_double_eq(prom_get(prom, "vllm:num_requests_running{server=\"http://127.0.0.1:18002\"}"), 3);
	ck_assert_double_eq(prom_get(prom, "vllm:num_decoding_requests{server=\"http://127.0.0.1:18002\"}"), 1);
	ck_assert_double_eq(prom_get(prom, "vllm:num_prefill_requests{server=\"http://127.0.0.1:18002\"}"), 2);
	ck_assert_double_eq(prom_get(prom, "vllm:healthy_pods_total{server=\"http://127.0.0.1:18002\"}"), 0);
	ck_assert_double_eq(prom_get(prom, "vllm:healthy_pods_total{server=\"http://127.0.0.1:18001\"}"), 1);
	ck_assert_double_eq_tol(prom_get(prom, "kvway_worker_queue_seconds{worker=\"http://127.0.0.1:18002\"}"), 1.5, 1e-9);
	ck_assert_double_eq(prom_get(prom, "kvway_worker_kv_capacity_tokens{worker=\"http://127.0.0.1:18002\"}"), 32736);
	ck_assert_double_eq(prom_get(prom, "kvway_worker_cache_losses_total{worker=\"http://127.0.0.1:18002\"}"), 1);
	ck_assert_double_eq(prom_get(prom, "kvway_worker_health{worker=\"http://127.0.0.1:18002\"}"), 2);
	ck_assert_double_eq(prom_get(prom, "kvway_workers{state=\"usable\"}"), 1);
	ck_assert_double_eq(prom_get(prom, "kvway_workers{state=\"unprobed\"}"), (double)fixture.fleet->live - 2);
	ck_assert_double_eq(prom_get(prom, "kvway_workers{state=\"down\"}"), 1);
	prom_free(prom);
	for (size_t i = 0; i < 3; i++)
		kvw_lease_release(&leases[i], 10 * SECOND);
	kvw_metrics_decoding(kvw_metrics_shard(metrics, 0), 1, -1);
	prom = scrape(11 * SECOND);
	ck_assert_double_eq(prom_get(prom, "vllm:num_requests_running{server=\"http://127.0.0.1:18002\"}"), 0);
	ck_assert_double_eq(prom_get(prom, "vllm:num_prefill_requests{server=\"http://127.0.0.1:18002\"}"), 0);
	prom_free(prom);
}
END_TEST

/* 10 requests a second for two minutes, then silence: the rate is of the last minute only. */
START_TEST(rates_are_of_the_last_minute)
{
	static const char qps[] = "vllm:current_qps{server=\"http://127.0.0.1:18001\"}";
	static const char latency[] = "vllm:avg_latency{server=\"http://127.0.0.1:18001\"}";
	struct kvw_request_record record = fixture_record(&fixture);
	struct prom *prom = scrape(0);

	ck_assert_double_eq(prom_get(prom, qps), 0);
	ck_assert_double_eq(prom_get(prom, latency), -1);
	prom_free(prom);
	for (int64_t second = 1; second <= 120; second++) {
		for (int i = 0; i < 10; i++)
			kvw_metrics_record(kvw_metrics_shard(metrics, i % 2), &record);
		kvw_metrics_tick(metrics, second * SECOND);
	}
	prom = scrape(120 * SECOND);
	ck_assert_double_eq_tol(prom_get(prom, qps), 10, 0.01);
	ck_assert_double_eq_tol(prom_get(prom, latency), 0.1, 1e-9);
	prom_free(prom);
	for (int64_t second = 121; second <= 150; second++)
		kvw_metrics_tick(metrics, second * SECOND);
	prom = scrape(150 * SECOND);
	ck_assert_double_eq_tol(prom_get(prom, qps), 5, 0.5);
	prom_free(prom);
	for (int64_t second = 151; second <= 250; second++)
		kvw_metrics_tick(metrics, second * SECOND);
	prom = scrape(250 * SECOND);
	ck_assert_double_eq(prom_get(prom, qps), 0);
	ck_assert_double_eq(prom_get(prom, latency), -1);
	prom_free(prom);
}
END_TEST

START_TEST(loop_ages)
{
	_Atomic int64_t turns[3] = {9 * SECOND, 4 * SECOND, 0};
	struct kvw_metrics_sources sources = {.loop_turn_ns = turns, .loop_count = 3};
	struct prom *prom;

	kvw_metrics_set_sources(metrics, &sources);
	prom = scrape(10 * SECOND);
	ck_assert_double_eq(prom_get(prom, "kvway_loop_last_turn_age_seconds{loop=\"0\"}"), 1);
	ck_assert_double_eq(prom_get(prom, "kvway_loop_last_turn_age_seconds{loop=\"1\"}"), 6);
	ck_assert_uint_eq(prom_family(prom, "kvway_loop_last_turn_age_seconds", "gauge"), 2);
	prom_free(prom);
}
END_TEST

START_TEST(process_figures_are_plausible)
{
	struct prom *prom = scrape(SECOND);

	ck_assert_double_gt(prom_get(prom, "process_resident_memory_bytes"), 100000);
	ck_assert_double_ge(prom_get(prom, "process_open_fds"), 3);
	ck_assert_double_gt(prom_get(prom, "process_max_fds"), 3);
	ck_assert_double_gt(prom_get(prom, "process_start_time_seconds"), 1.6e9);
	ck_assert_double_gt(prom_get(prom, "router_memory_usage_percent"), 0);
	ck_assert_double_le(prom_get(prom, "router_memory_usage_percent"), 100);
	ck_assert_double_le(prom_get(prom, "router_disk_usage_percent"), 100);
	prom_free(prom);
}
END_TEST

struct writer {
	size_t loop;
	pthread_t thread;
};

enum { ROUNDS = 20000 };

static void *write_many(void *arg)
{
	struct writer *writer = arg;
	struct kvw_metrics_shard *shard = kvw_metrics_shard(metrics, writer->loop);
	struct kvw_request_record record = fixture_record(&fixture);

	for (uint32_t i = 0; i < ROUNDS; i++) {
		record.worker_id = i % 4; /* 3 is no worker */
		record.api = (enum kvw_api)(i % KVW_API_COUNT);
		record.model_label = i % 300;
		kvw_metrics_record(shard, &record);
		kvw_metrics_add(shard, KVW_COUNT_RETRIES, 1);
		kvw_metrics_gauge(shard, KVW_GAUGE_EXCHANGES, i % 2 == 0 ? 1 : -1);
		kvw_metrics_stream_gap(shard, i * 1000);
	}
	return NULL;
}

/* Two loops count while scrapes run; nothing is lost. Under TSan this shows that it is clean. */
START_TEST(loops_count_while_others_scrape)
{
	struct writer writers[2] = {{.loop = 0}, {.loop = 1}};
	struct prom *prom;
	double sum = 0;

	for (size_t i = 0; i < 2; i++)
		pthread_create(&writers[i].thread, NULL, write_many, &writers[i]);
	for (int i = 1; i <= 10; i++)
		prom_free(scrape(i * SECOND));
	for (size_t i = 0; i < 2; i++)
		pthread_join(writers[i].thread, NULL);
	prom = scrape(20 * SECOND);
	ck_assert_double_eq(prom_get(prom, "kvway_retries_total"), 2 * ROUNDS);
	ck_assert_double_eq(prom_get(prom, "kvway_exchanges"), 0);
	ck_assert_double_eq(prom_get(prom, "kvway_inter_token_seconds_count"), 2 * ROUNDS);
	for (size_t i = 0; i < FIXTURE_WORKERS; i++) {
		char series[128];

		for (int api = 0; api < KVW_API_COUNT; api++) {
			bool found;

			snprintf(series, sizeof(series), "kvway_requests_total{route=\"%s\",worker=\"%s\",status=\"200\",end=\"complete\"}",
				kvw_api_name((enum kvw_api)api), fixture.urls[i]);
			sum += prom_value(prom, series, &found);
		}
	}
	ck_assert_double_eq(sum, 2 * ROUNDS / 4 * 3);
	prom_free(prom);
}
END_TEST

static void tell_learned(
	struct kvw_strategy *self, uint32_t worker_id, struct kvw_worker_learned *out)
{
	(void)self;
	*out = (struct kvw_worker_learned){1000 + worker_id, 2000 + worker_id, 3, 0.5};
}

START_TEST(what_a_strategy_learned_is_shown)
{
	static const struct kvw_strategy_ops ops = {.name = "test", .learned = tell_learned};
	struct kvw_strategy strategy = {.ops = &ops};
	struct prom *prom;
	bool found;

	prom = scrape(SECOND);
	prom_value(prom, WORKER_0("prefill_tokens_per_second"), &found);
	ck_assert(!found); /* there is no strategy, or one that learns nothing */
	prom_free(prom);
	fixture.fleet->strategy = &strategy;
	prom = scrape(SECOND);
	ck_assert_double_eq(prom_get(prom, WORKER_0("prefill_tokens_per_second")), 1000);
	ck_assert_double_eq(prom_get(prom, WORKER_0("observed_prefill_tokens_per_second")), 2000);
	ck_assert_double_eq(prom_get(prom, WORKER_0("prefill_samples")), 3);
	ck_assert_double_eq(prom_get(prom, WORKER_0("capacity_share")), 0.5);
	ck_assert_double_eq(prom_get(prom, WORKER_0("kv_room_tokens")), 0);
	ck_assert_double_eq(prom_get(prom, WORKER_0("kv_wait_seconds")), 0);
	prom_free(prom);
	fixture.fleet->strategy = NULL;
}
END_TEST

/* The page in the source tree is the one that the list makes. */
/* OpenMetrics names a counter without _total, and allows each name once. */
START_TEST(openmetrics_has_each_name_once)
{
	static const char mark[] = "\n# TYPE ";
	size_t len, found = 0;
	char *text;

	ck_assert_int_eq(kvw_metrics_render(metrics, SECOND, true, &text, &len), KVW_OK);
	for (const char *at = text; (at = strstr(at, mark)) != NULL; found++) {
		char line[160];

		at += strlen(mark);
		(void)snprintf(line, sizeof(line), "%s%.*s ", mark, (int)strcspn(at, " "), at);
		ck_assert_msg(strstr(at, line) == NULL, "%s", line + 1);
	}
	ck_assert_uint_gt(found, 100);
	ck_assert_str_eq(text + len - 6, "# EOF\n");
	free(text);
}
END_TEST

START_TEST(reference_page_is_current)
{
	char *made = NULL, *kept = NULL;
	size_t made_len = 0, kept_len = 0;
	FILE *out = open_memstream(&made, &made_len), *file = fopen(METRICS_MD, "re");

	ck_assert_ptr_nonnull(file);
	kvw_metrics_reference(out);
	fclose(out);
	ck_assert_int_gt(getdelim(&kept, &kept_len, '\0', file), 0);
	fclose(file);
	ck_assert_msg(strcmp(made, kept) == 0,
		"src/router/admin/METRICS.md is not what metrics.def makes: "
		"run `ninja -C BUILD metrics-reference`");
	free(made);
	free(kept);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("metrics");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, every_listed_metric_appears_with_its_type);
	tcase_add_test(tcase, requests_add_up_over_loops);
	tcase_add_test(tcase, promises_are_counted_by_class);
	tcase_add_test(tcase, classes_without_end_are_one);
	tcase_add_test(tcase, predictions_over_promises_by_model_and_role);
	tcase_add_test(tcase, status_codes_keep_their_number_or_their_class);
	tcase_add_test(tcase, latencies_fall_into_their_buckets);
	tcase_add_test(tcase, cached_tokens_compare_prediction_with_truth);
	tcase_add_test(tcase, models_are_known_names_or_unknown_or_other);
	tcase_add_test(tcase, a_model_that_left_keeps_its_name);
	tcase_add_test(tcase, counters_and_gauges);
	tcase_add_test(tcase, workers_show_load_health_and_capacity);
	tcase_add_test(tcase, what_a_strategy_learned_is_shown);
	tcase_add_test(tcase, rates_are_of_the_last_minute);
	tcase_add_test(tcase, loop_ages);
	tcase_add_test(tcase, process_figures_are_plausible);
	tcase_add_test(tcase, loops_count_while_others_scrape);
	tcase_add_test(tcase, openmetrics_has_each_name_once);
	tcase_add_test(tcase, reference_page_is_current);
	return run_tcase("admin metrics", tcase);
}
