/*
 * metrics_test.c - the text that a scraper reads: whole, well formed, and with the right numbers.
 */
#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/cache_metrics.h"
#include "tests/unit/suite.h"

static struct kvt_stats stats;
static struct kvt_event_log_stats events;
static struct kvt_controller_stats controller;
static struct kvt_fragments_stats fragments;
static struct kvt_latencies latencies;
static struct kvt_tenant_list tenants;
static char *text;

static void setup(void)
{
	memset(&stats, 0, sizeof(stats));
	memset(&events, 0, sizeof(events));
	memset(&controller, 0, sizeof(controller));
	memset(&fragments, 0, sizeof(fragments));
	memset(&latencies, 0, sizeof(latencies));
	memset(&tenants, 0, sizeof(tenants));
	kvt_latencies_init(&latencies);
	stats.tiers[KVT_TIER_L1].state = KVT_TIER_WORKS;
	stats.tiers[KVT_TIER_NVME].state = KVT_TIER_WORKS;
	text = NULL;
}

static void teardown(void)
{
	free(text);
}

static void render(void)
{
	const struct kvt_tenant_list *const lists[KVT_TIER_COUNT] = {
		&tenants, [KVT_TIER_NVME] = &tenants};
	struct kvt_metrics_input in = {&stats, &events, &controller, &fragments, &latencies, lists, 256};

	free(text);
	text = NULL;
	ck_assert_int_eq(kvt_metrics_render(&in, &text), KVT_OK);
}

/* The value of a sample, by everything before it; NAN: there is none. */
static double value(const char *sample)
{
	size_t len = strlen(sample);

	for (const char *line = text; line != NULL && *line != '\0';) {
		if (strncmp(line, sample, len) == 0 && line[len] == ' ')
			return strtod(line + len, NULL);
		line = strchr(line, '\n');
		line = line == NULL ? NULL : line + 1;
	}
	return NAN;
}

static size_t count_of(const char *needle)
{
	size_t count = 0;

	for (const char *at = text; (at = strstr(at, needle)) != NULL; at++)
		count++;
	return count;
}

/* The metric that a sample's name belongs to. */
static bool belongs(const char *name, size_t len, const struct kvw_metric_info *info)
{
	static const char *const tails[] = {"_bucket", "_sum", "_count"};
	size_t base = strlen(info->name);

	if (strcmp(info->type, "histogram") != 0)
		return len == base && strncmp(name, info->name, len) == 0;
	for (int i = 0; i < 3; i++)
		if (len == base + strlen(tails[i]) && strncmp(name, info->name, base) == 0 &&
			strncmp(name + base, tails[i], strlen(tails[i])) == 0)
			return true;
	return false;
}

/* HELP, TYPE, then at least one sample of that name, with the labels that the table says. */
START_TEST(each_metric_is_there_once)
{
	const struct kvw_metric_info *info;
	char line[512];
	const char *at;

	render();
	at = text;
	for (size_t i = 0; (info = kvt_metric_info(i)) != NULL; i++) {
		size_t samples = 0;

		if (info->name == NULL)
			continue; /* a question */
		snprintf(line, sizeof(line), "# HELP %s %s\n", info->name, info->help);
		ck_assert_uint_eq(count_of(line), 1);
		ck_assert(strncmp(at, line, strlen(line)) == 0);
		at += strlen(line);
		snprintf(line, sizeof(line), "# TYPE %s %s\n", info->name, info->type);
		ck_assert_uint_eq(count_of(line), 1);
		ck_assert(strncmp(at, line, strlen(line)) == 0);
		at += strlen(line);
		for (; *at != '#' && *at != '\0'; samples++) {
			char *end;

			ck_assert_msg(
				belongs(at, strcspn(at, "{ "), info), "%s: %.60s", info->name, at);
			if (info->labels[0] != '\0') {
				size_t first = strcspn(info->labels, ",");

				at += strcspn(at, "{") + 1;
				ck_assert(
					strncmp(at, info->labels, first) == 0 && at[first] == '=');
				at = strchr(at, '}') + 1;
			} else {
				at += strcspn(at, " ");
			}
			ck_assert_int_eq(*at, ' ');
			(void)strtod(at, &end);
			ck_assert_int_eq(*end, '\n');
			at = end + 1;
		}
		ck_assert_uint_gt(samples, 0);
		if (strcmp(info->type, "counter") == 0)
			ck_assert_str_eq(info->name + strlen(info->name) - 6, "_total");
	}
	ck_assert_int_eq(*at, '\0');
}
END_TEST

START_TEST(numbers_are_those_of_the_stats)
{
	stats.lookups = 7;
	stats.lookup_chunks = 5;
	stats.get_hits = 3;
	stats.tiers[KVT_TIER_L1].used = 1234567890123;
	stats.tiers[KVT_TIER_NVME].hits = 42;
	stats.tiers[KVT_TIER_NVME].oldest_lease_ns = 1500000000;
	events.publish_drops = 9;
	controller.link.syncs = 4;
	controller.queue_drops = 6;
	render();
	ck_assert_double_eq(value("kvtier_controller_full_syncs_total"), 4);
	ck_assert_double_eq(value("kvtier_controller_queue_drops_total"), 6);
	ck_assert_double_eq(value("lmcache:num_lookup_requests_total"), 7);
	ck_assert_double_eq(value("lmcache:num_lookup_tokens_total"), 5 * 256);
	ck_assert_double_eq(value("lmcache:num_hit_tokens_total"), 3 * 256);
	ck_assert_double_eq(value("kvtier_get_hit_chunks_total"), 3);
	ck_assert_double_eq(value("lmcache:local_cache_usage"), 1234567890123);
	ck_assert_double_eq(value("kvtier_tier_used_bytes{tier=\"l1\"}"), 1234567890123);
	ck_assert_double_eq(value("kvtier_tier_hits_total{tier=\"nvme\"}"), 42);
	ck_assert_double_eq(value("kvtier_tier_hits_total{tier=\"l1\"}"), 0);
	ck_assert_double_eq(value("kvtier_tier_oldest_lease_seconds{tier=\"nvme\"}"), 1.5);
	ck_assert_double_eq(value("kvtier_events_slow_subscribers_total"), 9);
}
END_TEST

START_TEST(tenants_are_named_by_their_hash)
{
	tenants.at[0] = (struct kvt_tenant_share){{{0xab, 1}}, 3, 700, 0};
	tenants.at[1] = (struct kvt_tenant_share){{{0}}, 2, 600, 11};
	tenants.count = 2;
	tenants.others = (struct kvt_tenant_share){{{0}}, 5, 50, 0};
	tenants.tenants = 9;
	render();
	ck_assert_double_eq(value("kvtier_tenants{tier=\"nvme\"}"), 9);
	ck_assert_double_eq(value("kvtier_tenant_used_bytes{tier=\"l1\",tenant="
				  "\"ab010000000000000000000000000000\"}"),
		700);
	ck_assert_double_eq(value("kvtier_tenant_chunks{tier=\"l1\",tenant=\"none\"}"), 2);
	ck_assert_double_eq(value("kvtier_tenant_refused_chunks{tier=\"l1\",tenant=\"none\"}"), 11);
	ck_assert_double_eq(value("kvtier_tenant_chunks{tier=\"l1\",tenant=\"other\"}"), 5);
	ck_assert(isnan(value("kvtier_tenants{tier=\"l2\"}")));
	stats.tenant_evictions[KVT_TIER_NVME] = 7;
	stats.tenant_refusals[KVT_TIER_NVME] = 8;
	render();
	ck_assert_double_eq(value("kvtier_tenant_evictions_total{tier=\"nvme\"}"), 7);
	ck_assert_double_eq(value("kvtier_tenant_refusals_total{tier=\"nvme\"}"), 8);
	ck_assert(isnan(value("kvtier_tenant_refusals_total{tier=\"l2\"}"))); /* it is absent */
}
END_TEST

START_TEST(tiers_report_their_state)
{
	stats.tiers[KVT_TIER_NVME].state = KVT_TIER_PAUSED;
	strcpy(stats.tiers[KVT_TIER_NVME].mode, "uring");
	strcpy(stats.tiers[KVT_TIER_NVME].reason, "a \"quoted\" \\ and\na break");
	memset(stats.tiers[KVT_TIER_L1].reason, 'x', KVT_REASON_BYTES); /* to the last byte */
	render();
	ck_assert_double_eq(value("kvtier_tier_state{tier=\"nvme\"}"), 2);
	ck_assert_double_eq(value("kvtier_tier_state{tier=\"l2\"}"), 0);
	ck_assert_double_eq(value("lmcache:lmcache_is_healthy"), 0);
	ck_assert_double_eq(value("kvtier_tier_info{tier=\"nvme\",mode=\"uring\",reason="
				  "\"a \\\"quoted\\\" \\\\ and a break\"}"),
		1);
	ck_assert(isnan(value("kvtier_tier_chunks{tier=\"l2\"}"))); /* absent: no numbers */
	stats.tiers[KVT_TIER_NVME].state = KVT_TIER_WORKS;
	render();
	ck_assert_double_eq(value("lmcache:lmcache_is_healthy"), 1);
}
END_TEST

/* A value lies in the first bucket whose bound is not below it; buckets add up. */
START_TEST(latencies_fall_into_buckets)
{
	kvt_latency_add(&latencies, KVT_LATENCY_GET, -5);
	kvt_latency_add(&latencies, KVT_LATENCY_GET, 1000);
	kvt_latency_add(&latencies, KVT_LATENCY_GET, 1001);
	kvt_latency_add(&latencies, KVT_LATENCY_GET, 1000000);
	kvt_latency_add(&latencies, KVT_LATENCY_GET, INT64_C(60000000000));
	render();
	ck_assert_double_eq(value("lmcache:time_to_retrieve_bucket{le=\"1e-06\"}"), 2);
	ck_assert_double_eq(value("lmcache:time_to_retrieve_bucket{le=\"2.5e-06\"}"), 3);
	ck_assert_double_eq(value("lmcache:time_to_retrieve_bucket{le=\"0.0005\"}"), 3);
	ck_assert_double_eq(value("lmcache:time_to_retrieve_bucket{le=\"0.001\"}"), 4);
	ck_assert_double_eq(value("lmcache:time_to_retrieve_bucket{le=\"5\"}"), 4);
	ck_assert_double_eq(value("lmcache:time_to_retrieve_bucket{le=\"+Inf\"}"), 5);
	ck_assert_double_eq(value("lmcache:time_to_retrieve_count"), 5);
	ck_assert_double_eq_tol(value("lmcache:time_to_retrieve_sum"), 60.001002001, 1e-8);
	ck_assert_double_eq(value("lmcache:time_to_store_count"), 0);
}
END_TEST

#define ADDS 100000

static void *add_many(void *arg)
{
	for (int i = 0; i < ADDS; i++)
		kvt_latency_add(&latencies, KVT_LATENCY_LOOKUP, i);
	return arg;
}

START_TEST(threads_lose_no_count)
{
	struct kvw_histogram_sum sum;
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, add_many, NULL), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	kvt_latency_collect(&latencies, KVT_LATENCY_LOOKUP, &sum);
	ck_assert_uint_eq(sum.count, 4 * ADDS);
	ck_assert_uint_eq(sum.sum_ns, UINT64_C(4) * ADDS * (ADDS - 1) / 2);
}
END_TEST

START_TEST(the_page_is_what_the_table_makes)
{
	char *made = NULL, *kept = NULL;
	size_t made_len = 0, kept_len = 0;
	FILE *out = open_memstream(&made, &made_len), *file = fopen(METRICS_MD, "re");

	ck_assert_ptr_nonnull(file);
	kvt_metrics_reference(out);
	fclose(out);
	ck_assert_int_gt(getdelim(&kept, &kept_len, '\0', file), 0);
	fclose(file);
	ck_assert_msg(strcmp(made, kept) == 0,
		"cache/METRICS.md is not what metrics.def makes: "
		"run `ninja -C BUILD cache-metrics-reference`");
	free(made);
	free(kept);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("metrics");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, each_metric_is_there_once);
	tcase_add_test(tc, numbers_are_those_of_the_stats);
	tcase_add_test(tc, tenants_are_named_by_their_hash);
	tcase_add_test(tc, tiers_report_their_state);
	tcase_add_test(tc, latencies_fall_into_buckets);
	tcase_add_test(tc, threads_lose_no_count);
	tcase_add_test(tc, the_page_is_what_the_table_makes);
	return run_tcase("cache-core-metrics", tc);
}
