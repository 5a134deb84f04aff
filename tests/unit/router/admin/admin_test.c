/*
 * admin_test.c - what the control thread answers, over a socket and by kvw_admin_answer().
 */
#include <arpa/inet.h>
#include <check.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "admin/admin.h"
#include "admin/metrics_copy.h"
#include "base/clock.h"
#include "fixture.h"
#include "prom.h"
#include "tests/unit/suite.h"

static struct fixture fixture;
static struct kvw_metrics *metrics;
static struct kvw_admin *admin;
static _Atomic int64_t turns[2];

static struct kvw_admin_deps deps_of(void)
{
	return (struct kvw_admin_deps){.config = &fixture.config, .fleet = fixture.fleet,
		.metrics = metrics, .loop_turn_ns = turns, .loop_count = 2};
}

static void setup(void)
{
	struct kvw_admin_deps deps;

	/* Port 1 and after: nothing listens there, every probe fails at once. */
	fixture_init(&fixture, 1);
	ck_assert_int_eq(kvw_metrics_create(2, fixture.fleet, &metrics), KVW_OK);
	for (size_t i = 0; i < 2; i++)
		atomic_store(&turns[i], kvw_clock_ns());
	deps = deps_of();
	ck_assert_int_eq(kvw_admin_start(&deps, stderr, &admin), KVW_OK);
}

static void teardown(void)
{
	kvw_admin_stop(admin);
	kvw_metrics_destroy(metrics);
	fixture_finish(&fixture);
}

/* Sends `request`, returns the whole answer. Caller frees. */
static char *exchange(const char *request)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	char *answer = malloc(1 << 20);
	size_t len = 0;
	ssize_t n;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const char *colon = strrchr(kvw_admin_address(admin), ':');

	to.sin_port = htons((uint16_t)atoi(colon + 1));
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	ck_assert_int_eq(send(fd, request, strlen(request), MSG_NOSIGNAL),
		(ssize_t)strlen(request));
	while ((n = read(fd, answer + len, (1 << 20) - 1 - len)) > 0)
		len += (size_t)n;
	answer[len] = '\0';
	close(fd);
	return answer;
}

static char *get(const char *path)
{
	char request[256];

	snprintf(request, sizeof(request),
		"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path);
	return exchange(request);
}

static void check_status(const char *answer, int status)
{
	ck_assert_msg(strncmp(answer, "HTTP/1.1 ", 9) == 0 && atoi(answer + 9) == status,
		"want %d, got %.60s", status, answer);
}

static json_t *body_of(const char *answer)
{
	const char *body = strstr(answer, "\r\n\r\n");
	json_t *root;

	ck_assert_ptr_nonnull(body);
	root = json_loads(body + 4, 0, NULL);
	ck_assert_msg(root != NULL, "body is not JSON: %s", body + 4);
	return root;
}

START_TEST(health_over_http)
{
	char *answer = get("/health");
	json_t *root = body_of(answer);

	check_status(answer, 200);
	ck_assert_ptr_nonnull(strcasestr(answer, "content-type: application/json"));
	ck_assert_str_eq(json_string_value(json_object_get(root, "status")), "ok");
	json_decref(root);
	free(answer);
}
END_TEST

START_TEST(head_has_no_body_and_the_length_of_get)
{
	char *answer = exchange("HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
	char *whole = get("/health");
	const char *body = strstr(whole, "\r\n\r\n") + 4;
	char expected[64];

	check_status(answer, 200);
	snprintf(expected, sizeof(expected), "content-length: %zu\r\n", strlen(body));
	ck_assert_ptr_nonnull(strcasestr(answer, expected));
	ck_assert_str_eq(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
	free(answer);
	free(whole);
}
END_TEST

START_TEST(metrics_over_http)
{
	char *answer = get("/metrics?x=1");
	const char *body = strstr(answer, "\r\n\r\n") + 4;

	check_status(answer, 200);
	ck_assert_ptr_nonnull(strcasestr(answer, "content-type: text/plain; version=0.0.4"));
	prom_free(prom_parse(body, strlen(body)));
	free(answer);
}
END_TEST

START_TEST(other_paths_and_methods_are_refused)
{
	char *answer = get("/");

	check_status(answer, 404);
	json_decref(body_of(answer));
	free(answer);
	answer = get("/v1/models/x");
	check_status(answer, 404);
	free(answer);
	answer = exchange("POST /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
			  "Content-Length: 2\r\n\r\n{}");
	check_status(answer, 405);
	ck_assert_ptr_nonnull(strcasestr(answer, "allow: GET, HEAD"));
	free(answer);
	answer = exchange("DELETE /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
	check_status(answer, 405);
	free(answer);
}
END_TEST

START_TEST(a_head_beyond_the_limit_is_refused)
{
	static char request[40000];
	char *answer;

	memset(request, 'a', sizeof(request) - 1);
	memcpy(request, "GET /health HTTP/1.1\r\nX: ", 25);
	memcpy(request + sizeof(request) - 5, "\r\n\r\n", 4);
	answer = exchange(request);
	ck_assert_msg(strstr(answer, " 200 ") == NULL, "accepted: %.80s", answer);
	free(answer);
	answer = get("/health");
	check_status(answer, 200);
	free(answer);
}
END_TEST

static json_t *local(const char *path, int64_t now_ns, int status)
{
	struct kvw_local_answer answer;
	json_t *root;

	ck_assert_int_eq(kvw_admin_answer(admin, kvw_slice_of(path), NULL, now_ns, &answer), KVW_OK);
	ck_assert_int_eq(answer.status, status);
	root = json_loadb(answer.body, answer.len, 0, NULL);
	ck_assert_ptr_nonnull(root);
	free(answer.body);
	return root;
}

START_TEST(health_names_the_stuck_loop)
{
	json_t *root;

	atomic_store(&turns[0], 100 * KVW_NS_PER_S);
	atomic_store(&turns[1], 96 * KVW_NS_PER_S);
	json_decref(local("/health", 101 * KVW_NS_PER_S, 200));
	root = local("/health", 101 * KVW_NS_PER_S + 1, 503);
	ck_assert_int_eq(json_integer_value(json_object_get(root, "loop")), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(root, "last_turn_age_ms")), 5000);
	json_decref(root);
	atomic_store(&turns[1], 0); /* not begun */
	json_decref(local("/health", 101 * KVW_NS_PER_S, 200));
}
END_TEST

START_TEST(ready_means_that_a_request_finds_a_worker)
{
	struct kvw_worker *worker = fixture.fleet->workers[1];
	json_t *root = local("/ready", 1, 503); /* no worker has answered a probe */

	ck_assert_int_eq(json_integer_value(json_object_get(root, "workers")), 3);
	ck_assert_int_eq(json_integer_value(json_object_get(root, "serving")), 0);
	json_decref(root);
	atomic_store(&worker->health, (uint8_t)KVW_HEALTH_UP);
	json_decref(local("/ready", 1, 503)); /* its models are not known */
	atomic_store(&worker->models_known, true);
	root = local("/ready", 1, 200);
	ck_assert_int_eq(json_integer_value(json_object_get(root, "serving")), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(root, "up")), 1);
	json_decref(root);
	atomic_store(&worker->health, (uint8_t)KVW_HEALTH_DOWN);
	json_decref(local("/ready", 1, 503));
	atomic_store(&worker->health, (uint8_t)KVW_HEALTH_UP);
	kvw_admin_set_draining(admin);
	root = local("/ready", 1, 503);
	ck_assert(json_is_true(json_object_get(root, "draining")));
	json_decref(root);
}
END_TEST

START_TEST(models_are_merged_sorted_and_unique)
{
	static const char *const expected[] = {"a \"lora\"", "base", "zeta"};
	json_t *root = local("/v1/models", 1, 200), *data;

	ck_assert_uint_eq(json_array_size(json_object_get(root, "data")), 0);
	json_decref(root);
	/* No probe can get through to replace these: nothing listens. */
	fixture_models(&fixture, 0, "zeta,base");
	fixture_models(&fixture, 2, "base,a \"lora\"");
	root = local("/v1/models", 1, 200);
	data = json_object_get(root, "data");
	ck_assert_str_eq(json_string_value(json_object_get(root, "object")), "list");
	ck_assert_uint_eq(json_array_size(data), 3);
	for (size_t i = 0; i < 3; i++) {
		json_t *model = json_array_get(data, i);

		ck_assert_str_eq(json_string_value(json_object_get(model, "id")), expected[i]);
		ck_assert_str_eq(json_string_value(json_object_get(model, "object")), "model");
		ck_assert_str_eq(json_string_value(json_object_get(model, "owned_by")), "vllm");
		ck_assert_int_gt(json_integer_value(json_object_get(model, "created")), 1600000000);
	}
	json_decref(root);
}
END_TEST

START_TEST(unknown_paths_are_not_ours)
{
	struct kvw_local_answer answer = {.status = 7};

	ck_assert_int_eq(kvw_admin_answer(admin, KVW_SLICE("/healthz"), NULL, 1, &answer), KVW_ENOTFOUND);
	ck_assert_int_eq(kvw_admin_answer(admin, KVW_SLICE(""), NULL, 1, &answer), KVW_ENOTFOUND);
	ck_assert_int_eq(answer.status, 7);
}
END_TEST

START_TEST(a_taken_address_is_named)
{
	static char taken[64];
	struct kvw_admin_deps deps = deps_of();
	struct kvw_config config = fixture.config;
	struct kvw_admin *second = NULL;
	char *text = NULL;
	size_t len = 0;
	FILE *errors = open_memstream(&text, &len);

	snprintf(taken, sizeof(taken), "%s", kvw_admin_address(admin));
	config.admin_listen = taken;
	deps.config = &config;
	ck_assert_int_eq(kvw_admin_start(&deps, errors, &second), KVW_EIO);
	fclose(errors);
	ck_assert_ptr_null(second);
	ck_assert_msg(strstr(text, taken) != NULL && strstr(text, "in use") != NULL, "%s", text);
	free(text);
}
END_TEST

/* As loops do, which never wait for it. */
static void *ask_for_text(void *arg)
{
	int got = 0;

	(void)arg;
	for (int i = 0; i < 100000 && got < 1000; i++) {
		struct kvw_metrics_text *text = kvw_admin_metrics(admin, kvw_clock_ns());

		if (text == NULL) {
			usleep(100);
			continue;
		}
		ck_assert(memmem(text->data, text->len, "kvway_requests_total", 20) != NULL);
		ck_assert_int_le(kvw_clock_ns() - text->made_ns, 20 * KVW_NS_PER_S);
		kvw_metrics_text_put(text);
		got++;
	}
	ck_assert_int_eq(got, 1000);
	return NULL;
}

/* A text too old is replaced while others still hold it. */
START_TEST(text_of_metrics_is_shared_by_many_threads)
{
	struct kvw_metrics_text *first = NULL, *second = NULL;
	pthread_t threads[3];

	for (size_t i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, ask_for_text, NULL);
	for (size_t i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	while ((first = kvw_admin_metrics(admin, kvw_clock_ns())) == NULL)
		usleep(100);
	ck_assert_ptr_null(kvw_admin_metrics(admin, first->made_ns + KVW_NS_PER_S + 1));
	for (int i = 0; i < 100000 && (second == NULL || second == first); i++) {
		kvw_metrics_text_put(second);
		usleep(100);
		second = kvw_admin_metrics(admin, kvw_clock_ns());
	}
	ck_assert_ptr_nonnull(second);
	ck_assert_ptr_ne(first, second);
	ck_assert(memmem(first->data, first->len, "kvway_requests_total", 20) != NULL);
	kvw_metrics_text_put(first);
	kvw_metrics_text_put(second);
}
END_TEST

static void *ask_often(void *arg)
{
	(void)arg;
	for (int i = 0; i < 200; i++) {
		struct kvw_local_answer answer;

		ck_assert_int_eq(kvw_admin_answer(admin, KVW_SLICE("/metrics"), NULL, kvw_clock_ns(),
					 &answer),
			KVW_OK);
		free(answer.body);
	}
	return NULL;
}

/* Loops answer on the main port while the control thread answers on its own. */
START_TEST(answers_from_many_threads)
{
	pthread_t threads[2];

	for (size_t i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, ask_often, NULL);
	for (int i = 0; i < 20; i++) {
		char *answer = get("/metrics");

		check_status(answer, 200);
		free(answer);
	}
	for (size_t i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("admin");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, health_over_http);
	tcase_add_test(tcase, head_has_no_body_and_the_length_of_get);
	tcase_add_test(tcase, metrics_over_http);
	tcase_add_test(tcase, other_paths_and_methods_are_refused);
	tcase_add_test(tcase, a_head_beyond_the_limit_is_refused);
	tcase_add_test(tcase, health_names_the_stuck_loop);
	tcase_add_test(tcase, ready_means_that_a_request_finds_a_worker);
	tcase_add_test(tcase, models_are_merged_sorted_and_unique);
	tcase_add_test(tcase, unknown_paths_are_not_ours);
	tcase_add_test(tcase, a_taken_address_is_named);
	tcase_add_test(tcase, text_of_metrics_is_shared_by_many_threads);
	tcase_add_test(tcase, answers_from_many_threads);
	return run_tcase("admin", tcase);
}
