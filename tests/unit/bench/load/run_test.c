/*
 * run_test.c - whole runs of kvbench against a small server, and the JSON and tables made of
 * them.
 *
 * The server is a thread with blocking sockets that answers with a canned stream, misbehaves where
 * a test asks it to, and keeps what it was asked. Nothing here depends on how long anything takes.
 */
#include <arpa/inet.h>
#include <check.h>
#include <event2/event.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/load/arrivals.h"
#include "base/clock.h"
#include "bench/load/reactor.h"
#include "bench/load/report.h"
#include "bench/load/run.h"
#include "tests/unit/suite.h"

enum manner { STREAM, NOT_FOUND, CUT, NO_DONE, HANG_UP_FIRST_IDLE, NO_TEXT, BUSY_TWICE, BUSY_MUTE, SILENT };

/* The server. One connection at a time is enough: tests use a concurrency of 1. */
struct server {
	int fd;
	uint16_t port;
	enum manner manner;
	pthread_t thread;
	_Atomic int connections;
	_Atomic int requests;
	char last_body[65536]; /* read by the test after the thread has ended */
	char last_head[4096];
};

static const char stream_head[] =
	"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
/* Chunks of the stream: events lie across their borders. */
static const char *const pieces[] = {
	"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[{\"del",
	"ta\":{\"content\":\"b\"}}]}\n",
	"\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":200,\"completion_tokens\":2,",
	"\"prompt_tokens_details\":{\"cached_tokens\":150}}}\n\ndata: [DONE]\n\n",
};

static void send_text(int fd, const char *text, size_t len)
{
	ck_assert_int_eq(send(fd, text, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* The stream's head and its first `count` chunks. */
static void send_stream(int fd, size_t count, bool end)
{
	send_text(fd, stream_head, sizeof(stream_head) - 1);
	for (size_t i = 0; i < count; i++) {
		char chunk[256];
		int len = snprintf(
			chunk, sizeof(chunk), "%zx\r\n%s\r\n", strlen(pieces[i]), pieces[i]);

		send_text(fd, chunk, (size_t)len);
	}
	if (end)
		send_text(fd, "0\r\n\r\n", 5);
}

/* Reads one request; false when the client has closed. */
static bool read_request(struct server *server, int fd)
{
	char text[70000];
	size_t len = 0;
	char *end = NULL;

	while (end == NULL ||
		len < (size_t)(end - text) + 4 +
				(strstr(text, "Content-Length: ")
						? strtoul(strstr(text, "Content-Length: ") + 16,
							  NULL, 10)
						: 0)) {
		ssize_t got = recv(fd, text + len, sizeof(text) - 1 - len, 0);

		if (got <= 0)
			return false;
		len += (size_t)got;
		text[len] = '\0';
		end = strstr(text, "\r\n\r\n");
	}
	snprintf(server->last_body, sizeof(server->last_body), "%s", end + 4);
	ck_assert_uint_lt((size_t)(end - text), sizeof(server->last_head));
	memcpy(server->last_head, text, (size_t)(end - text));
	server->last_head[end - text] = '\0';
	return true;
}

/* Answers one request; false to hang up afterwards. */
static bool answer(struct server *server, int fd)
{
	static const char missing[] = "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}";
	static const char busy[] = "HTTP/1.1 429 Too Many Requests\r\nx-empty:\r\nRetry-After: 0\r\n"
				   "content-length: 2\r\n\r\n{}";
	static const char mute[] = "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n\r\n{}";
	char rest[16];
	static const char no_text[] =
		"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 142\r\n\r\n"
		"data: "
		"{\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\"}]}\n\n"
		"data: {\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\ndata: "
		"[DONE]\n\n";
	static const char models[] = "HTTP/1.1 200 OK\r\ncontent-length: 27\r\n\r\n"
				     "{\"data\":[{\"id\":\"the-one\"}]}";

	if (strncmp(server->last_head, "GET /v1/models ", 15) == 0) {
		send_text(fd, models, sizeof(models) - 1);
		return true;
	}
	server->requests++;
	switch (server->manner) {
	case NOT_FOUND:
		send_text(fd, missing, sizeof(missing) - 1);
		return true;
	case BUSY_MUTE:
		send_text(fd, mute, sizeof(mute) - 1);
		return true;
	case SILENT:
		while (recv(fd, rest, sizeof(rest), 0) > 0)
			;
		return false;
	case BUSY_TWICE:
		if (server->requests <= 2)
			send_text(fd, busy, sizeof(busy) - 1);
		else
			send_stream(fd, 4, true);
		return true;
	case CUT:
		send_stream(fd, 1, false);
		return false;
	case NO_DONE:
		send_stream(fd, 2, true);
		return true;
	case HANG_UP_FIRST_IDLE:
		send_stream(fd, 4, true);
		return server->requests > 1;
	case NO_TEXT:
		send_text(fd, no_text, sizeof(no_text) - 1);
		return true;
	case STREAM:
		send_stream(fd, 4, true);
		return true;
	}
	return false;
}

static void *serve(void *arg)
{
	struct server *server = arg;
	int fd;

	while ((fd = accept(server->fd, NULL, NULL)) >= 0) {
		server->connections++;
		while (read_request(server, fd) && answer(server, fd))
			;
		close(fd);
	}
	return NULL;
}

static struct server *server_start(enum manner manner)
{
	struct server *server = calloc(1, sizeof(*server));
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);

	server->manner = manner;
	server->fd = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(server->fd, (struct sockaddr *)&at, len), 0);
	ck_assert_int_eq(listen(server->fd, 64), 0);
	ck_assert_int_eq(getsockname(server->fd, (struct sockaddr *)&at, &len), 0);
	server->port = ntohs(at.sin_port);
	ck_assert_int_eq(pthread_create(&server->thread, NULL, serve, server), 0);
	return server;
}

static void server_stop(struct server *server)
{
	shutdown(server->fd, SHUT_RDWR);
	pthread_join(server->thread, NULL);
	close(server->fd);
}

/* Runs kvbench's inside with these words; the result is JSON that the caller owns. */
static json_t *run(const struct server *server, const char *words)
{
	char copy[512], url[64];
	char program[] = "kvbench", *argv[32] = {program};
	struct kvb_options options;
	struct event_base *base = event_base_new();
	struct kvb_run *run = NULL;
	struct kvb_report report;
	json_t *json;
	int argc = 1;

	snprintf(copy, sizeof(copy), "%s", words);
	for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	snprintf(url, sizeof(url), "--url=http://127.0.0.1:%u/v1/", server->port);
	argv[argc++] = url;
	ck_assert_int_eq(kvb_options_parse(argc, argv, &options, stderr), KVW_OK);
	ck_assert_int_eq(kvb_run_create(base, &options, &run), KVW_OK);
	ck_assert_int_eq(options.command == KVB_CHAT ? kvb_chat(run, base, &options)
						     : kvb_replay(run, base, &options),
		KVW_OK);
	report = (struct kvb_report){.options = &options,
		.model = kvb_run_model(run),
		.tally = kvb_run_tally(run),
		.result = kvb_tally_result(kvb_run_tally(run), kvb_run_duration_ns(run)),
		.stale = kvb_run_stale(run),
		.retried = kvb_run_retried(run)};
	json = kvb_report_json(&report);
	kvb_run_destroy(run);
	event_base_free(base);
	return json;
}

static json_int_t whole(const json_t *json, const char *key)
{
	ck_assert_msg(json_is_integer(json_object_get(json, key)), "%s is missing", key);
	return json_integer_value(json_object_get(json, key));
}

START_TEST(chat_grows_its_history)
{
	struct server *server = server_start(STREAM);
	json_t *json = run(server, "chat --users 1 --rounds 3 --qps 0 --concurrency 1 --speed 4 "
				   "--system-tokens 10 --question-tokens 5 --answer-tokens 7");
	json_t *body, *messages;

	server_stop(server);
	ck_assert_int_eq(whole(json, "completed"), 3);
	ck_assert_int_eq(whole(json, "failed"), 0);
	ck_assert_int_eq(whole(json, "prompt_tokens"), 600);
	ck_assert_int_eq(whole(json, "completion_tokens"), 6);
	ck_assert_int_eq(whole(json, "cached_told"), 3);
	ck_assert_double_eq_tol(json_real_value(json_object_get(json, "cached_share")), 0.75, 1e-9);
	ck_assert_int_eq(whole(json_object_get(json, "itl_s"), "count"), 3);
	ck_assert(json_is_true(json_object_get(json, "simulated")));
	ck_assert_str_eq(json_string_value(json_object_get(json, "model")), "the-one");
	ck_assert_int_eq(server->connections, 1); /* kept alive */
	ck_assert_ptr_nonnull(strstr(server->last_head, "POST /v1/chat/completions HTTP/1.1"));
	ck_assert_ptr_nonnull(strstr(server->last_head, "x-session-id: s1"));
	body = json_loads(server->last_body, 0, NULL);
	messages = json_object_get(body, "messages");
	/* system, then two questions with their answers, then the third question */
	ck_assert_uint_eq(json_array_size(messages), 6);
	ck_assert_str_eq(
		json_string_value(json_object_get(json_array_get(messages, 2), "content")), "ab");
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(messages, 2), "role")),
		"assistant");
	ck_assert_uint_eq(
		json_string_length(json_object_get(json_array_get(messages, 0), "content")), 40);
	ck_assert_int_eq(whole(body, "max_tokens"), 7);
	ck_assert(json_is_true(
		json_object_get(json_object_get(body, "stream_options"), "include_usage")));
	json_decref(body);
	json_decref(json);
	free(server);
}
END_TEST

/* The only token ended the answer: it has no text, and its first event is the first token's. */
START_TEST(an_answer_without_text_is_one_if_tokens_were_made)
{
	struct server *server = server_start(NO_TEXT);
	json_t *json = run(server, "chat --users 1 --rounds 2 --qps 0 --concurrency 1");

	server_stop(server);
	ck_assert_int_eq(whole(json, "completed"), 2);
	ck_assert_int_eq(whole(json, "failed"), 0);
	ck_assert_int_eq(whole(json, "completion_tokens"), 2);
	ck_assert_int_eq(whole(json_object_get(json, "ttft_s"), "count"), 2);
	json_decref(json);
	free(server);
}
END_TEST

START_TEST(open_arrivals_ask_everything)
{
	struct server *server = server_start(STREAM);
	json_t *json =
		run(server, "chat --users 3 --sessions 5 --rounds 2 --qps 1000 --concurrency 1");

	server_stop(server);
	ck_assert_int_eq(whole(json, "completed"), 10);
	ck_assert_int_eq(server->requests, 10);
	json_decref(json);
	free(server);
}
END_TEST

START_TEST(closed_loop_asks_everything)
{
	struct server *server = server_start(STREAM);
	json_t *json =
		run(server, "chat --users 3 --sessions 5 --rounds 2 --qps 0 --concurrency 1");

	server_stop(server);
	ck_assert_int_eq(whole(json, "completed"), 10);
	json_decref(json);
	free(server);
}
END_TEST

START_TEST(trace_is_replayed)
{
	static const char text[] =
		"{\"timestamp\":0,\"input_length\":600,\"output_length\":9,\"hash_ids\":[4,5]}\n"
		"{\"timestamp\":3,\"input_length\":1000,\"output_length\":8,\"hash_ids\":[4,6]}\n";
	char path[] = "/tmp/kvb-trace-XXXXXX", words[200];
	int fd = mkstemp(path);
	struct server *server = server_start(STREAM);
	json_t *json, *body;

	ck_assert_int_eq(write(fd, text, sizeof(text) - 1), (ssize_t)sizeof(text) - 1);
	close(fd);
	snprintf(words, sizeof(words), "trace --concurrency 1 --trace %s", path);
	json = run(server, words);
	server_stop(server);
	unlink(path);
	ck_assert_int_eq(whole(json, "completed"), 2);
	ck_assert_str_eq(json_string_value(json_object_get(json, "workload")), "trace");
	ck_assert(json_is_false(json_object_get(json, "simulated")));
	body = json_loads(server->last_body, 0, NULL);
	ck_assert_uint_eq(json_string_length(json_object_get(body, "prompt")), 4000);
	ck_assert_int_eq(whole(body, "max_tokens"), 8);
	ck_assert_ptr_nonnull(strstr(server->last_head, "x-session-id: s7"));
	json_decref(body);
	json_decref(json);
	free(server);
}
END_TEST

/* Replays one request with these further words; the header that says when it is due, or "". */
static void due_told(const char *words, char *out, size_t size)
{
	static const char text[] =
		"{\"timestamp\":0,\"input_length\":600,\"output_length\":9,\"hash_ids\":[4,5]}\n";
	char path[] = "/tmp/kvb-trace-XXXXXX", all[200];
	int fd = mkstemp(path);
	struct server *server = server_start(STREAM);
	const char *header;
	json_t *json;

	ck_assert_int_eq(write(fd, text, sizeof(text) - 1), (ssize_t)sizeof(text) - 1);
	close(fd);
	snprintf(all, sizeof(all), "trace --trace %s %s", path, words);
	json = run(server, all);
	server_stop(server);
	unlink(path);
	ck_assert_int_eq(whole(json, "completed"), 1);
	header = strstr(server->last_head, "x-sim-due: ");
	snprintf(out, size, "%.*s", header != NULL ? (int)strcspn(header, "\r") : 0,
		header != NULL ? header : "");
	json_decref(json);
	free(server);
}

START_TEST(sped_up_requests_say_when_they_are_due)
{
	long long due, lead, before = kvw_clock_ns();
	char header[100];

	due_told("--speed 20 --lead-ms 40", header, sizeof(header));
	ck_assert_int_eq(sscanf(header, "x-sim-due: %lld %lld", &due, &lead), 2);
	ck_assert_int_eq(lead, 40000000);
	ck_assert_int_ge(due, before + lead);
	ck_assert_int_le(due, kvw_clock_ns() + lead);
	due_told("--speed 1", header, sizeof(header));
	ck_assert_str_eq(header, "");
	due_told("--speed 20 --lead-ms 0", header, sizeof(header));
	ck_assert_str_eq(header, "");
}
END_TEST

/* Three arrivals that are all due at once, each recorded when it came. */
struct paused {
	struct event_base *base;
	int64_t came_ns[3], due_ns[3];
};

static int64_t at_once(void *arg, uint64_t n)
{
	(void)arg;
	(void)n;
	return 0;
}

static void on_paused(void *arg, uint64_t n, int64_t due_ns)
{
	struct paused *paused = arg;

	paused->came_ns[n] = kvw_clock_ns();
	paused->due_ns[n] = due_ns;
	if (n == 2)
		event_base_loopbreak(paused->base);
}

START_TEST(a_pause_keeps_arrivals_apart_and_their_due_time)
{
	struct paused paused = {.base = event_base_new()};
	struct kvb_arrivals arrivals = {.when = at_once,
		.arrive = on_paused,
		.arg = &paused,
		.total = 3,
		.pause_ns = 2000000};

	kvb_arrivals_begin(&arrivals, paused.base);
	event_base_dispatch(paused.base);
	kvb_arrivals_finish(&arrivals);
	event_base_free(paused.base);
	for (int i = 1; i < 3; i++) {
		ck_assert_int_eq(paused.due_ns[i], paused.due_ns[0]);
		ck_assert_int_ge(paused.came_ns[i] - paused.came_ns[i - 1], 2000000);
	}
}
END_TEST

/* The one kind of error that all requests of a run ended with. */
static void expect_failure(enum manner manner, const char *kind)
{
	struct server *server = server_start(manner);
	json_t *json = run(server, "chat --users 1 --rounds 2 --qps 0 --concurrency 1");

	server_stop(server);
	ck_assert_int_eq(whole(json, "completed"), 0);
	ck_assert_int_eq(whole(json, "failed"), 2);
	ck_assert_int_eq(whole(json_object_get(json, "errors"), kind), 2);
	ck_assert(json_is_null(json_object_get(json, "ttft_s")));
	ck_assert(json_is_null(json_object_get(json, "cached_share")));
	ck_assert_double_eq(json_real_value(json_object_get(json, "goodput")), 0);
	json_decref(json);
	free(server);
}

START_TEST(a_refused_request_comes_back_when_it_is_told_to)
{
	static const char *const words[] = {
		"chat --users 1 --rounds 1 --concurrency 1 --qps 0 --retries 2",
		"chat --users 1 --rounds 1 --concurrency 1 --qps 0 --retries 1",
		"chat --users 1 --rounds 1 --concurrency 1 --qps 0"};

	for (json_int_t again = 2; again >= 0; again--) {
		struct server *server = server_start(BUSY_TWICE);
		json_t *json = run(server, words[2 - again]);

		server_stop(server);
		ck_assert_int_eq(whole(json, "retried"), again);
		ck_assert_int_eq(whole(json, "completed"), again == 2);
		ck_assert_int_eq(whole(json, "failed"), again < 2);
		ck_assert_int_eq(server->requests, again + 1);
		ck_assert_int_eq(whole(json_object_get(json, "refused_s"), "count"), again == 0 ? 1 : 2);
		ck_assert_int_eq(whole(json, "refused_mute"), 0);
		ck_assert_ptr_nonnull(strstr(server->last_body, "\"messages\""));
		json_decref(json);
		free(server);
	}
}
END_TEST

START_TEST(a_refusal_that_names_no_time_is_counted_and_final)
{
	struct server *server = server_start(BUSY_MUTE);
	json_t *json = run(server, "chat --users 1 --rounds 2 --concurrency 1 --qps 0 --retries 5");

	server_stop(server);
	ck_assert_int_eq(whole(json, "retried"), 0);
	ck_assert_int_eq(whole(json, "refused_mute"), 2);
	ck_assert_int_eq(whole(json_object_get(json, "errors"), "status 429"), 2);
	json_decref(json);
	free(server);
}
END_TEST

/* Both leave, and the server notices it. */
START_TEST(clients_that_leave_close_their_connections)
{
	static const char text[] =
		"{\"timestamp\":0,\"input_length\":9,\"output_length\":9,\"hash_ids\":[4]}\n"
		"{\"timestamp\":1,\"input_length\":9,\"output_length\":9,\"hash_ids\":[5]}\n";
	char path[] = "/tmp/kvb-trace-XXXXXX", words[200];
	int fd = mkstemp(path);
	struct server *server = server_start(SILENT);
	json_t *json;

	ck_assert_int_eq(write(fd, text, sizeof(text) - 1), (ssize_t)sizeof(text) - 1);
	close(fd);
	snprintf(words, sizeof(words),
		"trace --trace %s --model m --concurrency 1 --leave-share 1 --leave-after 0.05", path);
	json = run(server, words);
	server_stop(server);
	unlink(path);
	ck_assert_int_eq(whole(json_object_get(json, "errors"), "left"), 2);
	ck_assert_int_eq(server->requests, 2);
	ck_assert_int_eq(server->connections, 2);
	ck_assert_ptr_nonnull(strstr(server->last_head, "x-sim-leave: "));
	json_decref(json);
	free(server);
}
END_TEST

START_TEST(failures_are_counted_by_kind)
{
	expect_failure(NOT_FOUND, "status 404");
	expect_failure(CUT, "answer cut short");
	expect_failure(NO_DONE, "stream without [DONE]");
}
END_TEST

START_TEST(a_closed_idle_connection_is_replaced)
{
	struct server *server = server_start(HANG_UP_FIRST_IDLE);
	json_t *json = run(server, "chat --users 1 --rounds 3 --qps 0 --concurrency 1 --model m");

	server_stop(server);
	ck_assert_int_eq(whole(json, "failed"), 0);
	ck_assert_int_eq(whole(json, "completed"), 3);
	ck_assert_int_eq(server->connections, 2);
	json_decref(json);
	free(server);
}
END_TEST

START_TEST(a_refused_connection_is_said)
{
	struct server nobody = {.port = 0};
	json_t *json;
	int fd = kvb_listen("127.0.0.1", &nobody.port); /* a port that is surely free ... */

	close(fd); /* ... and on which no server listens */
	json = run(&nobody, "chat --users 2 --rounds 1 --model m");
	ck_assert_int_eq(whole(json_object_get(json, "errors"), "connect: Connection refused"), 2);
	json_decref(json);
}
END_TEST

START_TEST(results_are_compared)
{
	char a[] = "/tmp/kvb-a-XXXXXX", b[] = "/tmp/kvb-b-XXXXXX";
	char none[] = "/nonexistent", *files[] = {a, b}, *missing[] = {a, none};
	int fd_a = mkstemp(a), fd_b = mkstemp(b);
	char *text = NULL, *line;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size), *silent = fopen("/dev/null", "w");

	dprintf(fd_a, "{\"label\":\"rr\",\"speed\":8,\"ttft_s\":{\"mean\":2.0},\"failed\":0,"
		      "\"cached_share\":null}");
	dprintf(fd_b, "{\"label\":\"pa\",\"speed\":8,\"ttft_s\":{\"mean\":0.5},\"failed\":3,"
		      "\"cached_share\":0.5}");
	close(fd_a);
	close(fd_b);
	ck_assert_int_eq(kvb_report_compare(files, 2, out, silent), KVW_OK);
	ck_assert_int_eq(kvb_report_compare(missing, 2, out, silent), KVW_EIO);
	fclose(out);
	fclose(silent);
	ck_assert_ptr_nonnull(strstr(text, "simulated, speed 8"));
	line = strstr(text, "TTFT mean s");
	ck_assert_ptr_nonnull(line);
	*strchr(line, '\n') = '\0';
	ck_assert_ptr_nonnull(strstr(line, "2.000"));
	ck_assert_ptr_nonnull(strstr(line, "0.500"));
	ck_assert_ptr_nonnull(strstr(line, "0.25x"));
	free(text);
	unlink(a);
	unlink(b);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("all");

	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, chat_grows_its_history);
	tcase_add_test(tests, an_answer_without_text_is_one_if_tokens_were_made);
	tcase_add_test(tests, open_arrivals_ask_everything);
	tcase_add_test(tests, closed_loop_asks_everything);
	tcase_add_test(tests, trace_is_replayed);
	tcase_add_test(tests, sped_up_requests_say_when_they_are_due);
	tcase_add_test(tests, a_pause_keeps_arrivals_apart_and_their_due_time);
	tcase_add_test(tests, a_refused_request_comes_back_when_it_is_told_to);
	tcase_add_test(tests, failures_are_counted_by_kind);
	tcase_add_test(tests, a_refusal_that_names_no_time_is_counted_and_final);
	tcase_add_test(tests, clients_that_leave_close_their_connections);
	tcase_add_test(tests, a_closed_idle_connection_is_replaced);
	tcase_add_test(tests, a_refused_connection_is_said);
	tcase_add_test(tests, results_are_compared);
	return run_tcase("load run", tests);
}
