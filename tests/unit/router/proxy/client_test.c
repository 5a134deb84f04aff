/*
 * client_test.c - a client's connection at moments that a real socket rarely brings about.
 */
#include <check.h>
#include <string.h>
#include <sys/socket.h>

#include "loop_fixture.h"
#include "proxy/advance.h"
#include "tests/unit/suite.h"

static struct loop_fixture f;
static struct kvw_client *client;
static int peer;

static void setup(void)
{
	loop_fixture_init(&f);
	client = loop_fixture_client(&f, &peer);
}

static void teardown(void)
{
	loop_fixture_finish(&f);
	if (peer >= 0)
		close(peer);
}

static void say(const char *text)
{
	ck_assert_int_eq(write(peer, text, strlen(text)), (ssize_t)strlen(text));
}

/* What the client gets until its end, NUL behind it. Returns the last result of read. */
static ssize_t hear(char *text, size_t size)
{
	size_t len = 0;
	ssize_t n;

	while ((n = read(peer, text + len, size - 1 - len)) > 0)
		len += (size_t)n;
	text[len] = '\0';
	return n;
}

/* Let it be asked again whether the client takes bytes. */
static void wake(void)
{
	client->io.writable = true;
	kvw_io_again(&client->io);
	loop_fixture_turn(&f);
}

START_TEST(answer_that_waits_is_the_only_one)
{
	/* The refusal of a body waited for the client; the request was forwarded all the same, and a
	 * second answer begun. */
	static const ssize_t takes[] = {0, 100000};
	static struct taps taps;

	taps = (struct taps){.takes = takes, .count = 2};
	loop_fixture_tap(&client->io, &taps);
	say("POST /v1/files HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
	loop_fixture_turn(&f);
	ck_assert_uint_gt(client->out.bytes, 0);
	ck_assert_uint_eq(f.loop.links.busy_total, 0);
	wake();
	ck_assert_uint_gt(taps.len, 0);
	ck_assert_ptr_nonnull(strstr(taps.data, "HTTP/1.1 400 "));
	ck_assert_ptr_null(strstr(taps.data + 8, "HTTP/1.1"));
	loop_fixture_check_idle(&f);
}
END_TEST

START_TEST(pending_bytes_return_to_zero_when_a_flush_fails)
{
	/* What a flush had sent before its socket broke stayed in the gauge. */
	static const ssize_t takes[] = {0, 10, -1};
	static struct taps taps;

	taps = (struct taps){.takes = takes, .count = 3};
	loop_fixture_tap(&client->io, &taps);
	say("GET /sleep HTTP/1.1\r\nHost: x\r\n\r\n");
	loop_fixture_turn(&f);
	ck_assert_int_eq(kvw_metrics_gauge_sum(f.metrics, KVW_GAUGE_PENDING_BYTES),
		(int64_t)client->out.bytes);
	ck_assert_uint_gt(client->out.bytes, 10);
	wake();
	ck_assert_uint_eq(f.loop.client_count, 0);
	loop_fixture_check_idle(&f);
}
END_TEST

START_TEST(last_answer_survives_what_its_client_sent_before_its_end)
{
	/* Closing a socket with unread bytes resets it, and a reset may overtake the answer. */
	static char rest[100000];
	char text[4096];

	say("GET / HTTP/1.1\r\n\r\n"); /* no Host: 400 */
	memset(rest, 'x', sizeof(rest));
	ck_assert_int_eq(write(peer, rest, sizeof(rest)), (ssize_t)sizeof(rest));
	ck_assert_int_eq(shutdown(peer, SHUT_WR), 0);
	loop_fixture_turn(&f);
	ck_assert_int_eq(hear(text, sizeof(text)), 0);
	ck_assert_ptr_nonnull(strstr(text, "HTTP/1.1 400 "));
	ck_assert_uint_eq(f.loop.client_count, 0);
}
END_TEST

START_TEST(request_goes_on_while_its_worker_takes_all_that_it_is_given)
{
	/* Only so many writes are made in a row. Where each went through there is no edge to come:
	 * the rest has to be sent without one. */
	static const ssize_t takes[] = {1000};
	static struct taps taps;
	static char request[40000];
	size_t len = (size_t)snprintf(request, sizeof(request),
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 30000\r\n\r\n"
		"{\"model\":\"tiny\",\"prompt\":\"");
	size_t total = (size_t)(strstr(request, "\r\n\r\n") + 4 - request) + 30000;

	memset(request + len, 'a', total - len);
	memcpy(request + total - 2, "\"}", 2);
	taps = (struct taps){.takes = takes, .count = 1};
	ck_assert_int_eq(write(peer, request, total), (ssize_t)total);
	kvw_io_set_dispatch(&f.loop.sockets);
	ck_assert_ptr_nonnull(client->exchange);
	ck_assert_ptr_nonnull(client->exchange->attempt.link);
	loop_fixture_tap(&client->exchange->attempt.link->io, &taps);
	loop_fixture_turn(&f);
	ck_assert_int_eq(client->exchange->request_state, KVW_REQUEST_SENT);
	ck_assert_uint_gt(taps.len, 30000);
	ck_assert(memcmp(taps.data + taps.len - 30000, request + total - 30000, 30000) == 0);
	close(peer);
	peer = -1;
	loop_fixture_turn(&f);
	loop_fixture_check_idle(&f);
}
END_TEST

START_TEST(forbidden_step_cuts_one_exchange_and_no_other)
{
	/* An assertion ended the process here, and every stream with it. */
	static const char request[] = "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
				      "Content-Length: 29\r\n\r\n{\"model\":\"tiny\",\"prompt\":\"a\"}";
	struct kvw_exchange *x;
	int other;
	char byte;

	say(request);
	kvw_io_set_dispatch(&f.loop.sockets);
	x = client->exchange;
	ck_assert_ptr_nonnull(x);
	loop_fixture_offer(&f, &other);
	ck_assert_uint_eq(f.loop.client_count, 2);
	kvw_exchange_request_state(x, KVW_REQUEST_READ_HEAD);
	kvw_exchange_response_state(x, KVW_RESPONSE_HELD);
	kvw_exchange_response_state(x, KVW_RESPONSE_STREAMING);
	kvw_exchange_response_state(x, KVW_RESPONSE_HELD);
	ck_assert(x->faulty);
	ck_assert_int_ne(x->request_state, KVW_REQUEST_READ_HEAD);
	ck_assert_int_eq(x->response_state, KVW_RESPONSE_STREAMING);
	kvw_exchange_advance(x);
	ck_assert(kvw_exchange_ended(x));
	kvw_exchange_end(x, KVW_END_COMPLETE); /* a second end is such a step too, and frees nothing */
	ck_assert_int_le(read(peer, &byte, 1), 0); /* closed, without an answer */
	ck_assert_uint_eq(kvw_metrics_counter_sum(f.metrics, KVW_COUNT_INTERNAL_ERRORS), 3);
	ck_assert_uint_eq(f.loop.client_count, 1);
	loop_fixture_turn(&f);
	loop_fixture_check_idle(&f);
	close(other);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("client");

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, answer_that_waits_is_the_only_one);
	tcase_add_test(tcase, forbidden_step_cuts_one_exchange_and_no_other);
	tcase_add_test(tcase, pending_bytes_return_to_zero_when_a_flush_fails);
	tcase_add_test(tcase, last_answer_survives_what_its_client_sent_before_its_end);
	tcase_add_test(tcase, request_goes_on_while_its_worker_takes_all_that_it_is_given);
	return run_tcase("client", tcase);
}
