/*
 * probe_test.c - the prober against a small server in the same event loop, on loopback.
 *
 * The fleet is a recorder of the calls that the prober makes: what is tested here is what it asks,
 * when, and what it reports, not what the fleet makes of it.
 */
#include <arpa/inet.h>
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>

#include "base/clock.h"
#include "fleet/probe.h"
#include "tests/unit/port.h"
#include "tests/unit/suite.h"

/* --- the fleet as a recorder --- */

static struct {
	size_t good, bad, model_calls, capacity_calls, lost, slow_starts;
	size_t foreign_calls;
	bool late;
	struct kvw_foreign_found foreign; /* the last */
	char why[256], models[256], adapters[256];
	uint64_t tokens;
	uint32_t block_size;
} calls;

void kvw_fleet_set_probe(
	struct kvw_fleet *fleet, struct kvw_worker *worker, bool ok, const char *why)
{
	(void)fleet;
	(void)worker;
	if (ok)
		calls.good++;
	else
		calls.bad++;
	snprintf(calls.why, sizeof(calls.why), "%s", why);
}

void kvw_fleet_set_late(struct kvw_fleet *fleet, struct kvw_worker *worker, bool late)
{
	(void)fleet;
	(void)worker;
	calls.late = late;
}

void kvw_fleet_bar(
	struct kvw_fleet *recorder, struct kvw_worker *barred, enum kvw_barred reason, bool set)
{
	(void)recorder;
	ck_assert_int_eq(reason, KVW_BARRED_ASLEEP);
	atomic_store(&barred->barred, set ? KVW_BARRED_ASLEEP : 0);
}

enum kvw_err kvw_fleet_take_listed(
	struct kvw_fleet *fleet, struct kvw_worker *worker, struct kvw_model_names *listed, int64_t asked_ns)
{
	(void)asked_ns;
	(void)fleet;
	(void)worker;
	calls.model_calls++;
	calls.models[0] = calls.adapters[0] = '\0';
	for (size_t i = 0; i < listed->count; i++) {
		strcat(calls.models, listed->items[i]);
		strcat(calls.models, " ");
		if (listed->cards[i].parent != NULL)
			strcat(calls.adapters, listed->items[i]);
	}
	kvw_model_names_finish(listed);
	return KVW_OK;
}

void kvw_fleet_set_blends(struct kvw_worker *worker, bool blends)
{
	(void)worker;
	(void)blends;
}

void kvw_fleet_set_capacity(struct kvw_worker *worker, uint64_t tokens, uint32_t block_size)
{
	(void)worker;
	calls.capacity_calls++;
	calls.tokens = tokens;
	calls.block_size = block_size;
}

void kvw_fleet_cache_lost(struct kvw_fleet *fleet, struct kvw_worker *worker, const char *why)
{
	(void)fleet;
	(void)worker;
	(void)why;
	calls.lost++;
}

void kvw_fleet_set_foreign(
	struct kvw_fleet *fleet, struct kvw_worker *worker, const struct kvw_foreign_found *found)
{
	(void)fleet;
	(void)worker;
	calls.foreign_calls++;
	calls.foreign = *found;
}

void kvw_fleet_start_slowly(struct kvw_fleet *fleet, struct kvw_worker *worker)
{
	(void)fleet;
	(void)worker;
	calls.slow_starts++;
}

void kvw_fleet_set_stall(
	struct kvw_fleet *fleet, struct kvw_worker *worker, enum kvw_stall_state state)
{
	(void)fleet;
	atomic_store(&worker->stall.state, (uint8_t)state);
}

/* --- the worker --- */

static struct {
	struct event_base *base;
	struct evhttp *http;
	int kept; /* holds the port while the server does not listen */
	uint16_t port;
	size_t health_asked, models_asked, metrics_asked, unexpected;
	int health_status;
	bool hang, huge, garbage, asleep;
	double started_s;
	unsigned waiting;
	int64_t models_asked_ns; /* the last time */
	char authorization[64], host[64];
	struct evhttp_request *held;
} server;

static void reply(struct evhttp_request *request, int status, const char *body)
{
	evbuffer_add_printf(evhttp_request_get_output_buffer(request), "%s", body);
	evhttp_send_reply(request, status, NULL, NULL);
}

static void remember_headers(struct evhttp_request *request)
{
	struct evkeyvalq *headers = evhttp_request_get_input_headers(request);
	const char *authorization = evhttp_find_header(headers, "Authorization");
	const char *host = evhttp_find_header(headers, "Host");

	snprintf(server.authorization, sizeof(server.authorization), "%s",
		authorization == NULL ? "" : authorization);
	snprintf(server.host, sizeof(server.host), "%s", host == NULL ? "" : host);
}

static void on_health(struct evhttp_request *request, void *arg)
{
	(void)arg;
	server.health_asked++;
	remember_headers(request);
	if (server.hang)
		server.held = request;
	else
		reply(request, server.health_status, "");
}

static void on_models(struct evhttp_request *request, void *arg)
{
	(void)arg;
	server.models_asked++;
	server.models_asked_ns = kvw_clock_ns();
	reply(request, 200,
		server.garbage ? "<html>"
			       : "{\"object\":\"list\",\"data\":[{\"id\":\"z\"},{\"id\":\"a\","
				 "\"parent\":\"z\"}]}");
}

static void on_metrics(struct evhttp_request *request, void *arg)
{
	struct evbuffer *body = evhttp_request_get_output_buffer(request);

	(void)arg;
	server.metrics_asked++;
	if (server.huge)
		for (size_t i = 0; i <= KVW_PROBE_MAX_BODY / 1024; i++)
			evbuffer_add_printf(body, "%01023d\n", 0);
	evbuffer_add_printf(body,
		"process_start_time_seconds %.3f\nvllm:cache_config_info{block_size=\"16\","
		"num_gpu_blocks=\"101\",engine=\"0\"} 1.0\n"
		"vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\n"
		"vllm:num_requests_waiting{engine=\"0\"} %u.0\n"
		"vllm:num_requests_running{engine=\"0\"} 2.0\n"
		"vllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} %d.0\n",
		server.started_s, server.waiting, !server.asleep);
	evhttp_send_reply(request, 200, NULL, NULL);
}

static void on_unexpected(struct evhttp_request *request, void *arg)
{
	(void)arg;
	server.unexpected++;
	reply(request, 404, "");
}

static void server_open(void)
{
	server.http = evhttp_new(server.base);
	evhttp_set_cb(server.http, "/up/health", on_health, NULL);
	evhttp_set_cb(server.http, "/up/v1/models", on_models, NULL);
	evhttp_set_cb(server.http, "/up/metrics", on_metrics, NULL);
	evhttp_set_gencb(server.http, on_unexpected, NULL);
	ck_assert_int_eq(evhttp_bind_socket(server.http, "127.0.0.1", server.port), 0);
}

static void server_close(void)
{
	evhttp_free(server.http);
	server.http = NULL;
}

/* --- the fixture --- */

static struct kvw_config config;
static struct kvw_fleet fleet;
static struct kvw_prober *prober; /* started by start() */
static struct kvw_worker worker;
static char url[96], authority[64], host[] = "worker.example", prefix[] = "/up", key[32] = "",
		     health_path[] = "/health";

static void setup(void)
{
	struct sockaddr_in *addr = (struct sockaddr_in *)&worker.addresses.items[0];

	setenv("http_proxy", "http://127.0.0.1:1", 1); /* must not be used */
	kvw_load_init(&worker.load);
	server.base = event_base_new();
	server.health_status = 200;
	server.started_s = 1000.5;
	server.port = keep_port(&server.kept);
	server_open();
	config.health_interval_ms = 60;
	config.health_timeout_ms = 20000;
	config.health_models_interval_ms = 60;
	config.health_metrics_interval_ms = 60;
	config.health_path = health_path;
	snprintf(authority, sizeof(authority), "%s:%u", host, server.port);
	snprintf(url, sizeof(url), "http://%s/up", authority);
	worker.load.seen = &worker.load.own;
	worker.url = worker.endpoint = url;
	worker.lead = &worker;
	worker.rank = KVW_RANK_NONE;
	worker.authority = authority;
	worker.path_prefix = prefix;
	worker.api_key = key;
	addr->sin_family = AF_INET;
	addr->sin_port = htons(server.port);
	addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	worker.addresses.count = 1;
	worker.host = host;
	worker.port = server.port;
	atomic_store(&worker.life, KVW_WORKER_LIVE);
	atomic_store(&worker.holds, UINT32_C(1) << 31); /* may be held */
	fleet.workers[0] = &worker;
	fleet.count = 1;
	fleet.config = &config;
}

static void teardown(void)
{
	kvw_prober_destroy(prober);
	if (server.http != NULL)
		server_close();
	close(server.kept);
	event_base_free(server.base);
}

static void start(void)
{
	ck_assert_int_eq(kvw_prober_create(server.base, &fleet, &prober), KVW_OK);
	ck_assert_uint_eq(kvw_prober_first_round_done(prober), 0);
}

/* Turns the loop until *value reaches `least`; fails after many seconds. */
static void await(const size_t *value, size_t least)
{
	const struct timeval moment = {.tv_usec = 5000};

	for (int i = 0; i < 4000 && *value < least; i++) {
		event_base_loopexit(server.base, &moment);
		event_base_dispatch(server.base);
	}
	ck_assert_uint_ge(*value, least);
}

static void turn_for_ms(long ms)
{
	const struct timeval span = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	event_base_loopexit(server.base, &span);
	event_base_dispatch(server.base);
}

START_TEST(a_healthy_worker_is_read_whole)
{
	strcpy(key, "secret");
	start();
	await(&calls.good, 1);
	await(&calls.model_calls, 1);
	await(&calls.capacity_calls, 1);
	ck_assert_uint_eq(kvw_prober_first_round_done(prober), 1);
	ck_assert_uint_eq(calls.bad, 0);
	ck_assert_str_eq(calls.models, "a z ");
	ck_assert_str_eq(calls.adapters, "a");
	ck_assert_uint_eq(calls.tokens, 1600);
	ck_assert_uint_eq(calls.block_size, 16);
	ck_assert_str_eq(server.authorization, "Bearer secret");
	ck_assert_str_eq(server.host, authority);
	await(&calls.good, 4); /* and again and again */
	await(&calls.model_calls, 3);
	await(&calls.capacity_calls, 3);
	ck_assert_uint_eq(kvw_prober_first_round_done(prober), 1);
	ck_assert_uint_eq(server.unexpected, 0);
	ck_assert_uint_eq(calls.lost, 0);
}
END_TEST

START_TEST(another_path_is_probed_after_a_reload)
{
	static char other[] = "/metrics";

	config.health_metrics_interval_ms = 3600 * 1000;
	start();
	await(&calls.good, 2);
	config.health_path = other;
	await(&server.metrics_asked, 4);
}
END_TEST

START_TEST(without_a_key_none_is_sent)
{
	start();
	await(&calls.good, 1);
	ck_assert_str_eq(server.authorization, "");
}
END_TEST

START_TEST(a_bad_status_is_a_failure)
{
	server.health_status = 503;
	start();
	await(&calls.bad, 2);
	ck_assert_uint_eq(calls.good, 0);
	ck_assert_str_eq(calls.why, "status 503");
	ck_assert_uint_eq(kvw_prober_first_round_done(prober), 1);
}
END_TEST

START_TEST(a_redirect_is_not_followed)
{
	server.health_status = 302;
	start();
	await(&calls.bad, 1);
	ck_assert_str_eq(calls.why, "status 302");
}
END_TEST

START_TEST(a_worker_that_hangs_times_out)
{
	server.hang = true;
	config.health_timeout_ms = 100;
	start();
	await(&calls.bad, 1);
	ck_assert_uint_eq(calls.good, 0);
	ck_assert_msg(strstr(calls.why, "timed out") != NULL, "%s", calls.why);
	ck_assert(calls.late);
}
END_TEST

/* A worker goes and comes back: its kind is read again at once, not at the next interval. */
START_TEST(a_worker_that_comes_back_is_read_at_once)
{
	size_t models;

	config.health_models_interval_ms = config.health_metrics_interval_ms = 3600 * 1000;
	start();
	await(&calls.good, 1);
	await(&calls.model_calls, 1);
	await(&calls.capacity_calls, 1);
	server_close();
	await(&calls.bad, 2);
	ck_assert(!calls.late); /* it does not even take connections */
	models = calls.model_calls;
	server.started_s = 2000;
	server_open();
	await(&calls.model_calls, models + 1);
	await(&calls.lost, 1);
	ck_assert_uint_eq(calls.lost, 1);
}
END_TEST

/* What is ours is compared as it was when the page was asked for. */
START_TEST(requests_of_others_are_found)
{
	struct kvw_lease lease = {0};

	server.waiting = 5;
	kvw_lease_take(&lease, &worker.load, 1, 1);
	kvw_lease_hold(&lease, 1);
	start();
	await(&calls.foreign_calls, 3);
	ck_assert_uint_eq(calls.foreign.waiting, 4);
	ck_assert_uint_eq(calls.foreign.running, 2);
	kvw_lease_first_token(&lease, 2);
	kvw_lease_widen(&lease, 99);
	await(&calls.foreign_calls, calls.foreign_calls + 2);
	ck_assert_uint_eq(calls.foreign.waiting + calls.foreign.running, 0);
	kvw_lease_release(&lease, 3);
	await(&calls.foreign_calls, calls.foreign_calls + 3);
	ck_assert_uint_eq(calls.foreign.waiting, 5);
	/* They do not stay for ever where no page comes any more. */
	server_close();
	while (calls.foreign.waiting + calls.foreign.running > 0)
		await(&calls.foreign_calls, calls.foreign_calls + 1);
}
END_TEST

START_TEST(while_others_wait_the_metrics_are_read_each_second)
{
	config.health_metrics_interval_ms = 8000;
	config.admission_enabled = true;
	server.waiting = 5;
	start();
	await(&calls.foreign_calls, 3);
	ck_assert_uint_eq(calls.foreign.waiting, 5);
}
END_TEST

START_TEST(a_worker_that_falls_asleep_loses_its_cache)
{
	start();
	await(&calls.capacity_calls, 3);
	ck_assert_uint_eq(calls.lost, 0);
	server.asleep = true;
	await(&calls.lost, 1);
	await(&calls.capacity_calls, calls.capacity_calls + 3);
	ck_assert_uint_eq(calls.lost, 1); /* once, for as long as it sleeps */
	server.asleep = false;
	await(&calls.capacity_calls, calls.capacity_calls + 2);
	server.asleep = true;
	await(&calls.lost, 2);
}
END_TEST

START_TEST(a_new_start_time_means_a_lost_cache)
{
	start();
	await(&calls.capacity_calls, 3);
	ck_assert_uint_eq(calls.lost, 0);
	server.started_s += 0.01;
	await(&calls.lost, 1);
	await(&calls.capacity_calls, calls.capacity_calls + 3);
	ck_assert_uint_eq(calls.lost, 1);
	ck_assert_uint_eq(calls.slow_starts, 1);
}
END_TEST

/* Half of 1,600 tokens are in use by two requests of 200 tokens each. */
START_TEST(use_of_kv_memory_shows_how_many_prompts_fit)
{
	struct kvw_lease leases[2] = {0};
	float tokens = 0;

	for (size_t i = 0; i < 2; i++) {
		kvw_lease_take(&leases[i], &worker.load, 0, 0);
		kvw_lease_hold(&leases[i], 200);
	}
	atomic_store(&worker.capacity_tokens, 1600);
	start();
	await(&calls.foreign_calls, 1);
	await(&calls.foreign_calls, calls.foreign_calls + 1);
	tokens = atomic_load(&worker.load.room->tokens);
	for (size_t i = 0; i < 2; i++)
		kvw_lease_release(&leases[i], 0);
	ck_assert_float_eq(tokens, 800);
}
END_TEST

START_TEST(configured_models_are_not_asked)
{
	worker.models_given = true;
	atomic_store(&worker.models_wanted, true);
	start();
	await(&calls.good, 4);
	turn_for_ms(250);
	ck_assert_uint_eq(server.models_asked, 0);
	ck_assert(!atomic_load(&worker.models_wanted));
}
END_TEST

/* A loop that met an unknown model asks for a refresh: it comes soon, but once a second at most. */
START_TEST(a_wanted_refresh_comes_once_a_second)
{
	int64_t second_ns;

	config.health_models_interval_ms = 3600 * 1000;
	start();
	await(&server.models_asked, 1);
	turn_for_ms(1100);
	atomic_store(&worker.models_wanted, true);
	await(&server.models_asked, 2);
	ck_assert(!atomic_load(&worker.models_wanted));
	second_ns = server.models_asked_ns;
	while (server.models_asked == 2) { /* what is asked for meanwhile is not forgotten */
		atomic_store(&worker.models_wanted, true);
		turn_for_ms(20);
	}
	ck_assert_uint_eq(server.models_asked, 3);
	/* It is looked at ten times a second; the pause is a second, less what the server lagged. */
	ck_assert_int_gt(server.models_asked_ns - second_ns, 500 * KVW_NS_PER_MS);
}
END_TEST

START_TEST(pages_beyond_the_limit_and_garbage_change_nothing)
{
	server.huge = server.garbage = true;
	start();
	await(&server.metrics_asked, 2);
	await(&server.models_asked, 2);
	await(&calls.good, 3);
	ck_assert_uint_eq(calls.capacity_calls, 0);
	ck_assert_uint_eq(calls.model_calls, 0);
	ck_assert_uint_eq(calls.bad, 0);
}
END_TEST

START_TEST(destroy_aborts_what_runs)
{
	server.hang = true;
	start();
	await(&server.health_asked, 1);
	kvw_prober_destroy(prober);
	prober = NULL;
	kvw_prober_destroy(NULL);
	ck_assert_uint_eq(calls.bad, 0);
	turn_for_ms(50);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("probe");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, a_healthy_worker_is_read_whole);
	tcase_add_test(tcase, another_path_is_probed_after_a_reload);
	tcase_add_test(tcase, without_a_key_none_is_sent);
	tcase_add_test(tcase, a_bad_status_is_a_failure);
	tcase_add_test(tcase, a_redirect_is_not_followed);
	tcase_add_test(tcase, a_worker_that_hangs_times_out);
	tcase_add_test(tcase, a_worker_that_comes_back_is_read_at_once);
	tcase_add_test(tcase, requests_of_others_are_found);
	tcase_add_test(tcase, while_others_wait_the_metrics_are_read_each_second);
	tcase_add_test(tcase, a_worker_that_falls_asleep_loses_its_cache);
	tcase_add_test(tcase, a_new_start_time_means_a_lost_cache);
	tcase_add_test(tcase, use_of_kv_memory_shows_how_many_prompts_fit);
	tcase_add_test(tcase, configured_models_are_not_asked);
	tcase_add_test(tcase, a_wanted_refresh_comes_once_a_second);
	tcase_add_test(tcase, pages_beyond_the_limit_and_garbage_change_nothing);
	tcase_add_test(tcase, destroy_aborts_what_runs);
	return run_tcase("probe", tcase);
}
