/*
 * fixture.c - a small fleet for the tests of src/router/admin: workers on closed loopback ports, a
 * configuration made by hand.
 */
#include "fixture.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fixture_init(struct fixture *fixture, uint16_t first_port)
{
	static char nothing[] = "", any_port[] = "127.0.0.1:0", health[] = "/health";

	memset(fixture, 0, sizeof(*fixture));
	for (size_t i = 0; i < FIXTURE_WORKERS; i++) {
		snprintf(fixture->urls[i], sizeof(fixture->urls[i]), "http://127.0.0.1:%zu",
			first_port + i);
		fixture->workers[i].url = fixture->urls[i];
		fixture->workers[i].api_key = nothing;
		fixture->workers[i].weight = 1;
	}
	fixture->config.workers = fixture->workers;
	fixture->config.worker_count = FIXTURE_WORKERS;
	fixture->config.admin_listen = any_port;
	fixture->config.admin_tls_certificate = nothing;
	fixture->config.admin_tls_client_ca = nothing;
	fixture->config.discovery_file = nothing;
	fixture->config.health_path = health;
	fixture->config.health_interval_ms = 60000;
	fixture->config.health_timeout_ms = 2000;
	fixture->config.health_fall = 3;
	fixture->config.health_rise = 1;
	fixture->config.health_passive_failures = 3;
	fixture->config.health_models_interval_ms = 60000;
	fixture->config.health_metrics_interval_ms = 60000;
	ck_assert_int_eq(
		kvw_fleet_create(&fixture->config, 1, stderr, &fixture->fleet), KVW_OK);
}

void fixture_finish(struct fixture *fixture)
{
	kvw_fleet_destroy(fixture->fleet);
}

void fixture_models(struct fixture *fixture, size_t worker, const char *names)
{
	char *copy = strdup(names), *rest = copy, *name;
	const char *items[16];
	size_t count = 0;

	while ((name = strsep(&rest, ",")) != NULL && count < 16)
		items[count++] = name;
	ck_assert_int_eq(kvw_fleet_set_models(fixture->fleet, fixture->fleet->workers[worker],
				 items, count),
		KVW_OK);
	free(copy);
}

struct kvw_request_record fixture_record(const struct fixture *fixture)
{
	return (struct kvw_request_record){
		.wall_ns = INT64_C(1767225600123000000), /* 2026-01-01T00:00:00.123Z */
		.start_ns = 1000,
		.total_ns = 100000000,
		.added_ns = 40000,
		.end = KVW_END_COMPLETE,
		.status = 200,
		.api = KVW_API_CHAT,
		.method = KVW_SLICE("POST"),
		.target = KVW_SLICE("/v1/chat/completions"),
		.request_id = KVW_SLICE("req-1"),
		.model = KVW_SLICE("tiny"),
		.model_label = 1,
		.client = KVW_SLICE("127.0.0.1"),
		.worker_url = kvw_slice_of(fixture->urls[0]),
		.worker_id = 0,
		.reason = KVW_REASON_PREFIX,
		.attempts = 1,
		.request_bytes = 2000,
		.response_bytes = 300,
	};
}
