/*
 * access_log_test.c - each line is one JSON object, whatever a client sent; nothing is lost unless it
 * is counted.
 */
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "admin/access_line.h"
#include "admin/access_log.h"
#include "fixture.h"
#include "trace/context.h"
#include "admin/log_ring.h"
#include "tests/unit/suite.h"

static struct fixture fixture;
static char dir[64], path[96];

static void setup(void)
{
	fixture_init(&fixture, 18001);
	strcpy(dir, "/tmp/kvway-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/access.log", dir);
}

static void teardown(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	ck_assert_int_eq(system(command), 0);
	fixture_finish(&fixture);
}

static json_t *line_of(const struct kvw_request_record *record)
{
	struct kvw_access_clock clock = {0};
	char line[KVW_ACCESS_LINE_MAX];
	size_t len = kvw_access_line(&clock, record, line);
	json_error_t error;
	json_t *root;

	ck_assert_uint_le(len, sizeof(line));
	ck_assert(line[len - 1] == '\n');
	ck_assert_ptr_null(memchr(line, '\n', len - 1));
	root = json_loadb(line, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
	ck_assert_msg(root != NULL, "%s in %.*s", error.text, (int)len, line);
	return root;
}

static const char *text_of(const json_t *root, const char *key)
{
	const char *text = json_string_value(json_object_get(root, key));

	ck_assert_msg(text != NULL, "no string %s", key);
	return text;
}

static double number_of(const json_t *root, const char *key)
{
	ck_assert_msg(json_is_number(json_object_get(root, key)), "no number %s", key);
	return json_number_value(json_object_get(root, key));
}

START_TEST(a_forwarded_request)
{
	struct kvw_request_record record = fixture_record(&fixture);
	json_t *root;

	record.stream = true;
	record.first_token_ns = 12345678;
	record.prompt_known = record.cached_known = record.completion_known = true;
	record.prompt_tokens = 1000;
	record.cached_tokens = 0;
	record.completion_tokens = 20;
	record.predicted_prompt = 990;
	record.predicted_cached = 512;
	record.stream_chunks = 21;
	record.knowledge = KVW_KNOWS_OTHERS;
	root = line_of(&record);
	ck_assert_str_eq(text_of(root, "ts"), "2026-01-01T00:00:00.123Z");
	ck_assert_str_eq(text_of(root, "request_id"), "req-1");
	ck_assert_str_eq(text_of(root, "client"), "127.0.0.1");
	ck_assert_str_eq(text_of(root, "method"), "POST");
	ck_assert_str_eq(text_of(root, "path"), "/v1/chat/completions");
	ck_assert_str_eq(text_of(root, "route"), "chat");
	ck_assert_str_eq(text_of(root, "model"), "tiny");
	ck_assert_str_eq(text_of(root, "end"), "complete");
	ck_assert_str_eq(text_of(root, "worker"), fixture.urls[0]);
	ck_assert_str_eq(text_of(root, "reason"), "prefix");
	ck_assert_str_eq(text_of(root, "knowledge"), "degraded/others");
	ck_assert(json_is_true(json_object_get(root, "stream")));
	ck_assert_double_eq(number_of(root, "status"), 200);
	ck_assert_double_eq(number_of(root, "attempts"), 1);
	ck_assert_double_eq_tol(number_of(root, "ttft_ms"), 12.345, 1e-9);
	ck_assert_double_eq_tol(number_of(root, "total_ms"), 100, 1e-9);
	ck_assert_double_eq(number_of(root, "added_us"), 40);
	ck_assert_double_eq(number_of(root, "prompt_tokens"), 1000);
	ck_assert_double_eq(number_of(root, "cached_tokens"), 0);
	ck_assert_double_eq(number_of(root, "completion_tokens"), 20);
	ck_assert_double_eq(number_of(root, "predicted_cached_tokens"), 512);
	ck_assert_double_eq(number_of(root, "request_bytes"), 2000);
	ck_assert_double_eq(number_of(root, "response_bytes"), 300);
	json_decref(root);
}
END_TEST

START_TEST(a_request_that_waited_and_was_cut)
{
	struct kvw_request_record record = fixture_record(&fixture);
	json_t *root;

	record.end = KVW_END_TIMEOUT;
	record.timeout = "timeouts.stream_idle";
	record.waited_for = "room";
	record.waited_ns = 1500000;
	root = line_of(&record);
	ck_assert_str_eq(text_of(root, "end"), "timeout");
	ck_assert_str_eq(text_of(root, "timeout"), "timeouts.stream_idle");
	ck_assert_str_eq(text_of(root, "waited_for"), "room");
	ck_assert_double_eq_tol(number_of(root, "waited_ms"), 1.5, 1e-9);
	ck_assert_double_eq(number_of(root, "attempts"), 1);
	json_decref(root);
}
END_TEST

START_TEST(a_request_in_a_trace)
{
	struct kvw_trace_context trace = {
		.trace = {UINT64_C(0x0123456789abcdef), UINT64_C(0xf)}, .span = 1};
	struct kvw_request_record record = fixture_record(&fixture);
	json_t *root = line_of(&record);

	ck_assert_ptr_null(json_object_get(root, "trace_id"));
	json_decref(root);
	record.trace = &trace;
	root = line_of(&record);
	ck_assert_str_eq(text_of(root, "trace_id"), "0123456789abcdef000000000000000f");
	json_decref(root);
}
END_TEST

/* Unknown is left out, never 0; a request answered here names no worker. */
START_TEST(what_is_unknown_is_absent)
{
	static const char *const absent[] = {"worker", "reason", "ttft_ms", "prompt_tokens",
		"cached_tokens", "completion_tokens", "predicted_cached_tokens", "model",
		"knowledge"};
	struct kvw_request_record record = {.end = KVW_END_LOCAL, .worker_id = UINT32_MAX,
		.status = 400, .total_ns = -1};
	json_t *root = line_of(&record);

	for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
		ck_assert_ptr_null(json_object_get(root, absent[i]));
	ck_assert_str_eq(text_of(root, "end"), "local");
	ck_assert_str_eq(text_of(root, "method"), "");
	json_decref(root);
}
END_TEST

START_TEST(hostile_strings_stay_inside_their_quotes)
{
	struct kvw_request_record record = fixture_record(&fixture);
	json_t *root;

	record.target = KVW_SLICE("/a\",\"status\":1,\"x\":\"\n\\\xFF\x01");
	record.model = KVW_SLICE("m\"}\n{");
	record.request_id = KVW_SLICE("\0id");
	root = line_of(&record);
	ck_assert_str_eq(text_of(root, "path"),
		"/a\",\"status\":1,\"x\":\"\n\\\xEF\xBF\xBD\x01");
	ck_assert_str_eq(text_of(root, "model"), "m\"}\n{");
	ck_assert_double_eq(number_of(root, "status"), 200);
	json_decref(root);
}
END_TEST

/* The longest of everything, all of it escaped, with the largest numbers. */
START_TEST(the_longest_line_fits)
{
	static char junk[8192];
	struct kvw_slice all = {junk, sizeof(junk)};
	struct kvw_trace_context trace = {.trace = {UINT64_MAX, 1}, .span = 1};
	struct kvw_request_record record;

	memset(junk, 1, sizeof(junk));
	memset(&record, 0xFF, sizeof(record));
	record.end = KVW_END_UPSTREAM_LOST;
	record.api = KVW_API_COUNT_TOKENS;
	record.reason = KVW_REASON_SLOW_START;
	record.trace = &trace;
	record.stream = record.prompt_known = record.cached_known = record.completion_known = true;
	record.request_bytes = record.response_bytes = INT64_MAX;
	record.timeout = "timeouts.stream_idle";
	record.waited_for = "metrics";
	record.wall_ns = record.total_ns = record.first_token_ns = record.added_ns = INT64_MAX;
	record.waited_ns = INT64_MAX;
	record.method = record.target = record.request_id = record.model = record.client = record.key =
		record.tenant = record.client_certificate = record.group = record.prefiller_url = record.worker_url = all;
	json_decref(line_of(&record));
	memset(junk, 'x', sizeof(junk));
	json_decref(line_of(&record));
}
END_TEST

static size_t count_lines(const char *file, const char *must_hold)
{
	FILE *in = fopen(file, "re");
	char *line = NULL;
	size_t size = 0, n = 0;

	if (in == NULL)
		return 0;
	while (getline(&line, &size, in) > 0) {
		json_t *root = json_loads(line, 0, NULL);

		ck_assert_msg(root != NULL, "not JSON: %s", line);
		json_decref(root);
		if (must_hold == NULL || strstr(line, must_hold) != NULL)
			n++;
	}
	free(line);
	fclose(in);
	return n;
}

START_TEST(off_writes_nothing)
{
	struct kvw_request_record record = fixture_record(&fixture);
	struct kvw_access_log *log;

	ck_assert_int_eq(kvw_access_log_create("off", 2, 65536, stderr, &log), KVW_OK);
	for (int i = 0; i < 100; i++)
		kvw_access_log_write(log, 1, &record);
	kvw_access_log_reopen(log);
	ck_assert_uint_eq(kvw_access_log_dropped(log), 0);
	kvw_access_log_destroy(log);
	kvw_access_log_destroy(NULL);
}
END_TEST

START_TEST(a_target_that_cannot_be_opened_is_named)
{
	struct kvw_access_log *log = NULL;
	char *text = NULL, missing[128];
	size_t len = 0;
	FILE *errors = open_memstream(&text, &len);

	snprintf(missing, sizeof(missing), "%s/no/such/file", dir);
	ck_assert_int_eq(kvw_access_log_create(missing, 1, 65536, errors, &log), KVW_EIO);
	fclose(errors);
	ck_assert_ptr_null(log);
	ck_assert_ptr_nonnull(strstr(text, missing));
	free(text);
}
END_TEST

START_TEST(destroy_writes_out_what_waits)
{
	struct kvw_request_record record = fixture_record(&fixture);
	struct kvw_access_log *log;

	ck_assert_int_eq(kvw_access_log_create(path, 2, 1 << 20, stderr, &log), KVW_OK);
	for (int i = 0; i < 1000; i++)
		kvw_access_log_write(log, (size_t)i % 2, &record);
	kvw_access_log_destroy(log);
	ck_assert_uint_eq(count_lines(path, "req-1"), 1000);
}
END_TEST

static void await_lines(const char *file, size_t wanted)
{
	for (int i = 0; i < 1000 && count_lines(file, NULL) < wanted; i++)
		usleep(10000);
	ck_assert_uint_eq(count_lines(file, NULL), wanted);
}

/* As logrotate does it: rename, then ask for the file to be opened again. */
START_TEST(reopen_follows_a_rename)
{
	struct kvw_request_record record = fixture_record(&fixture);
	struct kvw_access_log *log;
	char rotated[128];

	snprintf(rotated, sizeof(rotated), "%s.1", path);
	ck_assert_int_eq(kvw_access_log_create(path, 1, 65536, stderr, &log), KVW_OK);
	kvw_access_log_write(log, 0, &record);
	await_lines(path, 1);
	ck_assert_int_eq(rename(path, rotated), 0);
	kvw_access_log_write(log, 0, &record);
	await_lines(rotated, 2);
	kvw_access_log_reopen(log);
	for (int i = 0; i < 1000 && access(path, F_OK) != 0; i++)
		usleep(10000);
	kvw_access_log_write(log, 0, &record);
	kvw_access_log_destroy(log);
	ck_assert_uint_eq(count_lines(rotated, NULL), 2);
	ck_assert_uint_eq(count_lines(path, NULL), 1);
}
END_TEST

/* The pipe is not read: the ring fills, lines are dropped and counted, destroy comes back, and the
 * reader that returns finds whole lines. */
START_TEST(a_stuck_reader_costs_lines_not_the_loop)
{
	struct kvw_request_record record = fixture_record(&fixture);
	enum { SENT = 5000 };
	struct kvw_access_log *log;
	uint64_t dropped;
	size_t got = 0;
	char text[65536 * 2];
	ssize_t n;
	int fd;

	ck_assert_int_eq(mkfifo(path, 0600), 0);
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(kvw_access_log_create(path, 1, 65536, stderr, &log), KVW_OK);
	for (int i = 0; i < SENT; i++)
		kvw_access_log_write(log, 0, &record);
	dropped = kvw_access_log_dropped(log);
	ck_assert_uint_gt(dropped, 0);
	ck_assert_uint_lt(dropped, SENT);
	kvw_access_log_destroy(log);
	while ((n = read(fd, text, sizeof(text))) > 0)
		for (ssize_t i = 0; i < n; i++)
			got += text[i] == '\n';
	ck_assert_uint_gt(got, 0);
	ck_assert_uint_le(got, SENT - dropped);
	close(fd);
}
END_TEST

/* The reader is gone for good: no SIGPIPE, lines are counted as lost. */
START_TEST(a_closed_pipe_is_counted)
{
	struct kvw_request_record record = fixture_record(&fixture);
	struct kvw_access_log *log;
	int fd;

	ck_assert_int_eq(mkfifo(path, 0600), 0);
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	ck_assert_int_eq(kvw_access_log_create(path, 1, 65536, stderr, &log), KVW_OK);
	close(fd);
	kvw_access_log_write(log, 0, &record);
	for (int i = 0; i < 1000 && kvw_access_log_dropped(log) == 0; i++)
		usleep(10000);
	ck_assert_uint_eq(kvw_access_log_dropped(log), 1);
	kvw_access_log_destroy(log);
}
END_TEST

struct producer {
	struct kvw_access_log *log;
	size_t loop;
	pthread_t thread;
};

enum { LINES = 20000 };

static void *produce(void *arg)
{
	struct producer *producer = arg;
	struct kvw_request_record record = fixture_record(&fixture);
	char id[32];

	for (unsigned i = 0; i < LINES; i++) {
		int len = snprintf(id, sizeof(id), "%zu-%u", producer->loop, i);

		record.request_id = (struct kvw_slice){id, (size_t)len};
		record.model.len = i % 5; /* lines of different lengths */
		kvw_access_log_write(producer->log, producer->loop, &record);
	}
	return NULL;
}

/* What arrives plus what was dropped is what was sent, whole and in each loop's order. */
START_TEST(loops_write_at_once)
{
	struct producer producers[3];
	struct kvw_access_log *log;
	long last[3] = {-1, -1, -1};
	char *line = NULL;
	size_t size = 0, got = 0;
	uint64_t dropped;
	FILE *in;

	ck_assert_int_eq(kvw_access_log_create(path, 3, 65536, stderr, &log), KVW_OK);
	for (size_t i = 0; i < 3; i++) {
		producers[i] = (struct producer){.log = log, .loop = i};
		pthread_create(&producers[i].thread, NULL, produce, &producers[i]);
	}
	for (int i = 0; i < 20; i++)
		kvw_access_log_reopen(log);
	for (size_t i = 0; i < 3; i++)
		pthread_join(producers[i].thread, NULL);
	dropped = kvw_access_log_dropped(log);
	kvw_access_log_destroy(log);
	in = fopen(path, "re");
	ck_assert_ptr_nonnull(in);
	while (getline(&line, &size, in) > 0) {
		json_t *root = json_loads(line, 0, NULL);
		size_t loop;
		long n;

		ck_assert_msg(root != NULL, "not JSON: %s", line);
		ck_assert_int_eq(sscanf(text_of(root, "request_id"), "%zu-%ld", &loop, &n), 2);
		ck_assert_int_gt(n, last[loop]);
		last[loop] = n;
		json_decref(root);
		got++;
	}
	ck_assert_uint_eq(got + dropped, 3 * LINES);
	free(line);
	fclose(in);
}
END_TEST

/* The ring alone, against a plain queue of lines: random lengths, random times. */
START_TEST(ring_keeps_lines_whole_and_in_order)
{
	struct kvw_log_ring ring;
	char line[600], out[1500];
	unsigned put = 0, taken = 0;

	srand(3);
	ck_assert_int_eq(kvw_log_ring_init(&ring, 4096), KVW_OK);
	for (int round = 0; round < 20000; round++) {
		if (rand() % 3 != 0) {
			size_t len = 10 + (size_t)rand() % 500;
			bool half;

			memset(line, 'a' + (int)(put % 26), len);
			snprintf(line, sizeof(line), "%u ", put);
			line[strlen(line)] = '.';
			line[len - 1] = '\n';
			put += kvw_log_ring_put(&ring, line, len, &half);
		} else {
			size_t n = kvw_log_ring_take(&ring, out, sizeof(out));

			ck_assert(n == 0 || out[n - 1] == '\n');
			for (char *at = out; at < out + n; at = (char *)memchr(at, 0x0A, (size_t)(out + n - at)) + 1)
				ck_assert_uint_eq(strtoul(at, NULL, 10), taken++);
		}
	}
	ck_assert_uint_gt(taken, 1000);
	ck_assert_uint_gt(atomic_load(&ring.dropped), 0);
	kvw_log_ring_finish(&ring);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("access_log");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, a_forwarded_request);
	tcase_add_test(tcase, a_request_that_waited_and_was_cut);
	tcase_add_test(tcase, a_request_in_a_trace);
	tcase_add_test(tcase, what_is_unknown_is_absent);
	tcase_add_test(tcase, hostile_strings_stay_inside_their_quotes);
	tcase_add_test(tcase, the_longest_line_fits);
	tcase_add_test(tcase, off_writes_nothing);
	tcase_add_test(tcase, a_target_that_cannot_be_opened_is_named);
	tcase_add_test(tcase, destroy_writes_out_what_waits);
	tcase_add_test(tcase, reopen_follows_a_rename);
	tcase_add_test(tcase, a_stuck_reader_costs_lines_not_the_loop);
	tcase_add_test(tcase, a_closed_pipe_is_counted);
	tcase_add_test(tcase, loops_write_at_once);
	tcase_add_test(tcase, ring_keeps_lines_whole_and_in_order);
	return run_tcase("access log", tcase);
}
