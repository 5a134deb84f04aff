/*
 * request_test.c - requests as they arrive: what their method makes of their path.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "loop_fixture.h"
#include "tests/unit/suite.h"

static struct loop_fixture f;
static struct kvw_client *client;
static struct kvw_worker *worker;
static int peer;

static void setup(void)
{
	loop_fixture_init(&f);
	client = loop_fixture_client(&f, &peer);
	worker = f.fleet->workers[0];
}

static void teardown(void)
{
	loop_fixture_finish(&f);
	close(peer);
}

/* A request without a body; *connection is the worker's, which has it. */
static void ask(const char *method, const char *path, int *connection)
{
	char text[256];
	int len = snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\nHost: x\r\n\r\n", method, path);

	ck_assert_int_eq(write(peer, text, (size_t)len), len);
	loop_fixture_turn(&f);
	ck_assert_ptr_nonnull(client->exchange);
	*connection = accept(f.listener, NULL, NULL);
	ck_assert_int_ge(*connection, 0);
	loop_fixture_turn(&f);
	ck_assert_int_eq(client->exchange->request_state, KVW_REQUEST_SENT);
}

static void answer(int connection, const char *text)
{
	char got[4096];

	ck_assert_int_eq(write(connection, text, strlen(text)), (ssize_t)strlen(text));
	loop_fixture_turn(&f);
	close(connection);
	loop_fixture_turn(&f);
	ck_assert_ptr_null(client->exchange);
	ck_assert_int_gt(recv(peer, got, sizeof(got), MSG_DONTWAIT), 0);
	ck_assert(memcmp(got, "HTTP/1.1 200 ", 13) == 0);
	loop_fixture_check_idle(&f);
}

static const char *const others[] = {"OPTIONS", "HEAD", "GET", "PUT", "PATCH", "DELETE"};

START_TEST(only_a_post_is_an_inference)
{
	/* A browser's preflight, which an API server answers with 200, excused an engine that fails. */
	const char *method = others[_i];
	int connection;

	atomic_store(&worker->ejection.bad_in_row, 2);
	ask(method, "/v1/completions", &connection);
	ck_assert_uint_eq(kvw_load_sequences(&worker->load).all, 1);
	ck_assert_uint_eq(atomic_load(&worker->stall.waiting), 0);
	answer(connection, strcmp(method, "HEAD") == 0 ? "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
						      : "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nOK");
	ck_assert_uint_eq(atomic_load(&worker->ejection.bad_in_row), 2);
	ck_assert_uint_eq(atomic_load(&worker->ejection.bad), 0);
	ask("POST", "/v1/completions", &connection);
	ck_assert_uint_eq(atomic_load(&worker->stall.waiting), 1);
	answer(connection, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
	ck_assert_uint_eq(atomic_load(&worker->ejection.bad_in_row), 0);
}
END_TEST

START_TEST(an_answer_without_a_body_to_another_method_is_no_fault)
{
	/* It "ended before the first token": three of these ejected a worker that was well. */
	int connection;

	for (size_t i = 0; i < 5; i++) {
		ask(others[_i], "/v1/completions", &connection);
		answer(connection, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
	}
	ck_assert_uint_eq(atomic_load(&worker->ejection.bad), 0);
}
END_TEST

START_TEST(only_a_post_empties_a_cache)
{
	/* What routing knew of a worker's cache was gone after a preflight of /reset_prefix_cache. */
	uint32_t generation = atomic_load(&worker->generation);
	int connection;

	f.config->expose_engine_control = true;
	ask(others[_i], "/reset_prefix_cache", &connection);
	answer(connection, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
	ck_assert_uint_eq(atomic_load(&worker->generation), generation);
	ask("POST", "/reset_prefix_cache", &connection);
	answer(connection, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
	ck_assert_uint_eq(atomic_load(&worker->generation), generation + 1);
}
END_TEST

int main(void)
{
	const int count = sizeof(others) / sizeof(others[0]);
	TCase *tcase = tcase_create("request");

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, only_a_post_is_an_inference, 0, count);
	tcase_add_loop_test(tcase, an_answer_without_a_body_to_another_method_is_no_fault, 0, 2);
	tcase_add_loop_test(tcase, only_a_post_empties_a_cache, 0, count);
	return run_tcase("request", tcase);
}
