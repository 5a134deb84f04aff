/*
 * http_test.c - what scripts ask LMCache's controller by HTTP: the very answers, and what is refused.
 */
#include <check.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "admin/http.h"
#include "admin/lmcache_http.h"
#include "rig.h"
#include "server/listen.h"
#include "tests/unit/suite.h"

static struct rig rig;
static struct event_base *base;
static struct kvw_admin_http *server;
static struct kvw_lmcache_http *http;
static int port;

/* The last answer. */
static int status;
static char body[2048];

static void on_request(struct kvw_conn *conn, void *arg)
{
	(void)arg;
	if (!kvw_lmcache_http(http, conn))
		kvw_admin_http_error(conn, 404, "", "not found");
}

static void serve(struct kvw_feed *feed)
{
	char bound[KVW_LISTEN_TEXT], why[128];
	int fd;

	base = event_base_new();
	ck_assert_int_eq(
		kvw_listen("127.0.0.1:0", KVW_LISTEN_ALONE, &fd, bound, why, sizeof(why)), KVW_OK);
	port = atoi(strrchr(bound, ':') + 1);
	ck_assert_int_eq(
		kvw_admin_http_create(base, fd, 1 << 20, NULL, on_request, NULL, &server), KVW_OK);
	ck_assert_int_eq(
		kvw_lmcache_http_create(kvw_admin_http_loop(server), feed, &http), KVW_OK);
}

static void setup(void)
{
	char text[256] = "";

	rig_init(&rig);
	ck_assert_msg(rig_start(&rig, "    chunk_size: 2\n    none_hash: 0\n", text,
			      sizeof(text)) == KVW_OK,
		"%s", text);
	serve(rig.feed);
}

static void teardown(void)
{
	kvw_admin_http_cut(server);
	kvw_lmcache_http_destroy(http);
	kvw_admin_http_destroy(server);
	event_base_free(base);
	if (rig.context != NULL)
		rig_finish(&rig);
}

static void on_answer(struct evhttp_request *request, void *arg)
{
	struct evbuffer *input;
	size_t len;

	(void)arg;
	status = request == NULL ? -1 : evhttp_request_get_response_code(request);
	input = request == NULL ? NULL : evhttp_request_get_input_buffer(request);
	len = input == NULL ? 0 : evbuffer_get_length(input);
	ck_assert_uint_lt(len, sizeof(body));
	if (len > 0)
		evbuffer_copyout(input, body, len);
	body[len] = '\0';
	event_base_loopbreak(base);
}

static void call(enum evhttp_cmd_type method, const char *path, const char *text)
{
	struct evhttp_connection *connection =
		evhttp_connection_base_new(base, NULL, "127.0.0.1", (uint16_t)port);
	struct evhttp_request *request = evhttp_request_new(on_answer, NULL);

	status = 0;
	evbuffer_add(evhttp_request_get_output_buffer(request), text, strlen(text));
	evhttp_add_header(evhttp_request_get_output_headers(request), "Host", "x");
	ck_assert_int_eq(evhttp_make_request(connection, request, method, path), 0);
	event_base_dispatch(base);
	evhttp_connection_free(connection);
}

/* Answers begin with an event id: what follows it. */
static const char *after_id(const char *prefix)
{
	char begins[64];
	size_t len = (size_t)snprintf(begins, sizeof(begins), "{\"event_id\":\"%s", prefix);

	ck_assert_msg(strncmp(body, begins, len) == 0, "%s", body);
	ck_assert_uint_gt(strlen(body), len + 38);
	return body + len + 38; /* a UUID, and ", */
}

static void check_refused(const char *path, const char *text, int expected, const char *detail)
{
	call(EVHTTP_REQ_POST, path, text);
	ck_assert_int_eq(status, expected);
	ck_assert_msg(
		strncmp(body, "{\"detail\":", 10) == 0 && strstr(body, detail) != NULL, "%s", body);
}

/* One worker that stores the chunks of tokens 1 to 4, on disk. */
static void store(void)
{
	struct kvw_lmcache_recipe recipe = {.chunk_size = 2, .root = KVW_LMCACHE_ROOT_NUMBER};
	const uint32_t tokens[] = {1, 2, 3, 4};
	uint64_t keys[2], state;
	const int off = 0;
	size_t count;
	char url[64], text[512];
	void *push = zmq_socket(rig.context, ZMQ_PUSH);

	ck_assert_int_eq(kvw_lmcache_begin(&recipe, &state), KVW_OK);
	ck_assert_int_eq(kvw_lmcache_hash(&recipe, &state, tokens, 4, keys, 2, &count), KVW_OK);
	snprintf(url, sizeof(url), "tcp://127.0.0.1:%d", rig.pull);
	zmq_setsockopt(push, ZMQ_LINGER, &off, sizeof(off));
	ck_assert_int_eq(zmq_connect(push, url), 0);
	snprintf(text, sizeof(text),
		"{\"type\":\"RegisterMsg\",\"instance_id\":\"i0\",\"worker_id\":0,"
		"\"ip\":\"127.0.0.1\",\"port\":0,\"peer_init_url\":null}");
	zmq_send(push, text, strlen(text), 0);
	snprintf(text, sizeof(text),
		"{\"type\":\"BatchedKVOperationMsg\",\"instance_id\":\"i0\",\"worker_id\":0,"
		"\"location\":\"LocalDiskBackend\",\"operations\":[{\"op_type\":\"admit\","
		"\"key\":%lld,\"seq_num\":0},{\"op_type\":\"admit\",\"key\":%lld,\"seq_num\":1}]}",
		(long long)keys[0], (long long)keys[1]);
	zmq_send(push, text, strlen(text), 0);
	for (int i = 0; i < 5000; i++) {
		call(EVHTTP_REQ_GET, "/controller/key-stats", "");
		if (strstr(body, "\"total_key_count\":2") != NULL)
			break;
	}
	zmq_close(push);
}

START_TEST(answers)
{
	setup();
	store();
	ck_assert_str_eq(body, "{\"total_key_count\":2,\"total_instance_count\":1,"
			       "\"total_worker_count\":1,\"instances\":[{\"instance_id\":\"i0\","
			       "\"key_count\":2,\"worker_count\":1}]}");
	call(EVHTTP_REQ_POST, "/lookup", "{\"tokens\": [1, 2, 3, 4, 5]}");
	ck_assert_int_eq(status, 200);
	ck_assert_str_eq(after_id("Lookup"), "\"layout_info\":{\"i0\":[\"LocalDiskBackend\",4]}}");
	call(EVHTTP_REQ_POST, "/lookup", "{\"tokens\": [2, 3]}");
	ck_assert_str_eq(after_id("Lookup"), "\"layout_info\":{}}");
	call(EVHTTP_REQ_POST, "/query_instance", "{\"event_id\": \"e\", \"ip\": \"127.0.0.1\"}");
	ck_assert_str_eq(after_id("QueryInst"), "\"res\":\"i0\"}");
	call(EVHTTP_REQ_POST, "/query_worker_info", "{\"instance_id\": \"i0\"}");
	ck_assert_ptr_nonnull(strstr(after_id("QueryWorkerInfo"),
		"\"worker_infos\":[{\"instance_id\":\"i0\",\"worker_id\":0,\"ip\":\"127.0.0.1\","
		"\"port\":0,\"peer_init_url\":null,\"registration_time\":"));
	call(EVHTTP_REQ_POST, "/query_worker_info",
		"{\"instance_id\": \"all\", \"worker_ids\": [1, 700]}");
	ck_assert_str_eq(after_id("QueryWorkerInfo"), "\"worker_infos\":[]}");
	call(EVHTTP_REQ_GET, "/controller/workers?instance_id=i0&worker_id=0", "");
	ck_assert_ptr_nonnull(strstr(body, "\"key_count\":2}"));
	call(EVHTTP_REQ_GET, "/controller/workers?instance_id=i0&worker_id=1", "");
	ck_assert_int_eq(status, 404);
	teardown();
}
END_TEST

START_TEST(refusals)
{
	setup();
	store();
	check_refused("/lookup", "{}", 422, "\"tokens\"");
	check_refused("/lookup", "{\"tokens\": [1, -1]}", 422, "token ids");
	check_refused("/lookup", "{\"tokens\": [1.5]}", 422, "token ids");
	check_refused("/lookup", "[", 422, "JSON object");
	check_refused("/lookup", "", 422, "JSON object");
	check_refused("/query_instance", "{\"ip\": 5}", 422, "\"ip\"");
	check_refused("/query_instance", "{\"ip\": \"10.0.0.1\"}", 404, "10.0.0.1");
	check_refused("/clear", "{\"instance_id\": \"i0\"}", 422, "\"location\"");
	check_refused("/clear", "{\"instance_id\": \"x\", \"location\": \"LocalCPUBackend\"}", 404,
		"instance x is not registered");
	/* it registered without a port */
	check_refused("/health", "{\"instance_id\": \"i0\"}", 500, "rank 0 never said");
	check_refused("/move", "{}", 501, "does not");
	check_refused("/check_finish", "{}", 501, "does not");
	call(EVHTTP_REQ_GET, "/lookup", "");
	ck_assert_int_eq(status, 404); /* not one of these */
	call(EVHTTP_REQ_GET, "/health", "");
	ck_assert_int_eq(status, 404);
	teardown();
}
END_TEST

START_TEST(without_a_controller)
{
	memset(&rig, 0, sizeof(rig));
	serve(NULL);
	check_refused("/lookup", "{\"tokens\": []}", 503, "not configured");
	call(EVHTTP_REQ_GET, "/controller/workers", "");
	ck_assert_int_eq(status, 503);
	teardown();
}
END_TEST

/* The control thread ends while the feed has the question still. */
START_TEST(stop_meanwhile)
{
	setup();
	for (int i = 0; i < 20; i++) {
		struct evhttp_connection *connection =
			evhttp_connection_base_new(base, NULL, "127.0.0.1", (uint16_t)port);
		struct evhttp_request *request = evhttp_request_new(on_answer, NULL);

		evhttp_add_header(evhttp_request_get_output_headers(request), "Host", "x");
		evbuffer_add_printf(
			evhttp_request_get_output_buffer(request), "{\"tokens\":[1,2]}");
		ck_assert_int_eq(
			evhttp_make_request(connection, request, EVHTTP_REQ_POST, "/lookup"), 0);
		for (int turn = 0; turn < i; turn++)
			event_base_loop(base, EVLOOP_NONBLOCK);
		evhttp_connection_free(connection);
	}
	teardown();
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("http");

	tcase_add_test(tc, answers);
	tcase_add_test(tc, refusals);
	tcase_add_test(tc, without_a_controller);
	tcase_add_test(tc, stop_meanwhile);
	tcase_set_timeout(tc, 90);
	return run_tcase("lmcache http", tc);
}
