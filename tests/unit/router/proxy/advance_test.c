/*
 * advance_test.c - exchanges at moments when two things end at once.
 */
#include <check.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "loop_fixture.h"
#include "proxy/advance.h"
#include "tests/unit/suite.h"

static const ssize_t nothing[] = {0}, some[] = {10, 0}, all[] = {100000};

static struct loop_fixture f;
static struct kvw_client *client;
static struct taps taps;
static int peer, connection; /* the client's end; the worker's */

static void setup(void)
{
	loop_fixture_init(&f);
	client = loop_fixture_client(&f, &peer);
	taps = (struct taps){.takes = nothing, .count = 1};
	connection = -1;
}

static void teardown(void)
{
	loop_fixture_finish(&f);
	close(peer);
	if (connection >= 0)
		close(connection);
}

static void say(int fd, const char *text)
{
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	loop_fixture_turn(&f);
}

/* From now on the client takes so much, and is looked at again. */
static void take(const ssize_t *takes, size_t count)
{
	taps.takes = takes;
	taps.count = count;
	taps.next = 0;
	client->io.writable = true;
	kvw_io_again(&client->io);
	loop_fixture_turn(&f);
}

/* A whole answer, which ends with its connection, waits for its client. */
static struct kvw_exchange *begin_slow_client(void)
{
	say(peer, "POST /v1/completions HTTP/1.0\r\nContent-Length: 29\r\n\r\n{\"model\":\"tiny\",\"prompt\":\"a\"}");
	connection = accept(f.listener, NULL, NULL);
	ck_assert_int_ge(connection, 0);
	loop_fixture_turn(&f);
	taps.takes = some;
	taps.count = 2;
	loop_fixture_tap(&client->io, &taps);
	say(connection, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
	ck_assert_ptr_nonnull(client->exchange);
	ck_assert_int_eq(client->exchange->response_state, KVW_RESPONSE_DONE);
	ck_assert_uint_gt(client->out.bytes, 0);
	return client->exchange;
}

START_TEST(a_whole_answer_outlives_the_time_of_its_request)
{
	/* It counted as a timeout, and the connection was reset once all was sent: what the client had not read was lost. */
	struct kvw_exchange *x = begin_slow_client();

	x->deadline.fn(&x->deadline, f.loop.now_ns);
	ck_assert_ptr_eq(client->exchange, x);
	take(all, 1);
	ck_assert(kvw_exchange_ended(x));
	ck_assert_int_eq(x->end, KVW_END_COMPLETE);
	ck_assert_uint_eq(kvw_metrics_counter_sum(f.metrics, KVW_COUNT_TIMEOUT_REQUEST), 0);
	ck_assert(!client->reset);
	ck_assert(memcmp(taps.data + taps.len - 5, "hello", 5) == 0);
	loop_fixture_check_idle(&f);
}
END_TEST

START_TEST(an_answer_that_a_client_has_not_taken_is_cut_at_once_when_kvway_ends)
{
	/* It was sent on and then reset, though it was whole. */
	struct kvw_exchange *x = begin_slow_client();

	kvw_exchange_shut_down(x);
	ck_assert(kvw_exchange_ended(x));
	ck_assert_int_eq(client->state, KVW_CLIENT_CLOSED);
	ck_assert(client->reset); /* or else it would look whole */
	ck_assert_uint_eq(f.loop.client_count, 0);
	loop_fixture_check_idle(&f);
}
END_TEST

START_TEST(a_refused_body_is_answered_once_whatever_its_request_waits_for)
{
	/* A fault in a body whose model was looked for got its 400; then the look ended, with an answer of its own. */
	struct kvw_worker *worker = f.fleet->workers[0];
	char text[512];

	atomic_store(&worker->models_given, false); /* it may have more */
	f.config->routing_scan_limit = 100;
	(void)snprintf(text, sizeof(text), "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
		"c8\r\n{\"model\":\"other\",\"prompt\":\"%0173d\r\n", 0);
	say(peer, text);
	ck_assert_ptr_nonnull(client->exchange);
	ck_assert_int_eq(client->exchange->request_state, KVW_REQUEST_WAITING);
	loop_fixture_tap(&client->io, &taps);
	say(peer, "zz\r\n");
	ck_assert_ptr_nonnull(client->exchange);
	ck_assert_int_eq(client->exchange->response_state, KVW_RESPONSE_DONE);
	atomic_store(&worker->models_read_ns, f.loop.now_ns + KVW_NS_PER_S); /* the worker's list came, without it */
	kvw_exchange_unpark(&f.loop);
	ck_assert_uint_eq(kvw_metrics_counter_sum(f.metrics, KVW_COUNT_INTERNAL_ERRORS), 0);
	take(all, 1);
	ck_assert_ptr_nonnull(strstr(taps.data, "HTTP/1.1 400 "));
	ck_assert_ptr_null(strstr(taps.data + 8, "HTTP/1.1"));
	loop_fixture_check_idle(&f);
}
END_TEST

static struct kvw_worker *newcomer;
static const struct kvw_strategy_ops *usual;

/* Finds no worker, and then the newcomer's list of models is read. */
static enum kvw_err pick_before_list(struct kvw_strategy *self, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct kvw_decision *out)
{
	static const char *const models[] = {"tiny"};
	enum kvw_err err = usual->pick(self, request, set, now_ns, out);

	if (err == KVW_ENOWORKER)
		ck_assert_int_eq(kvw_fleet_set_models(f.fleet, newcomer, models, 1), KVW_OK);
	return err;
}

START_TEST(a_worker_whose_list_comes_during_the_search_gets_the_request)
{
	/* A reload had replaced the model's worker: 503, as the newcomer was neither in the candidates nor awaited any more. */
	struct kvw_strategy_ops ops = *f.strategy->ops;
	struct pollfd wait = {.events = POLLIN};

	usual = f.strategy->ops;
	ops.pick = pick_before_list;
	f.strategy->ops = &ops;
	newcomer = loop_fixture_join(&f);
	loop_fixture_bar(&f, 0, true);
	say(peer, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 29\r\n\r\n{\"model\":\"tiny\",\"prompt\":\"a\"}");
	wait.fd = f.second;
	ck_assert_int_eq(poll(&wait, 1, 0), 1);
	connection = accept(f.second, NULL, NULL);
	ck_assert_int_ge(connection, 0);
	loop_fixture_turn(&f);
	ck_assert_ptr_nonnull(client->exchange);
	ck_assert_int_eq(client->exchange->request_state, KVW_REQUEST_SENT);
	f.strategy->ops = usual;
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("advance");

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_whole_answer_outlives_the_time_of_its_request);
	tcase_add_test(tcase, an_answer_that_a_client_has_not_taken_is_cut_at_once_when_kvway_ends);
	tcase_add_test(tcase, a_refused_body_is_answered_once_whatever_its_request_waits_for);
	tcase_add_test(tcase, a_worker_whose_list_comes_during_the_search_gets_the_request);
	return run_tcase("advance", tcase);
}
