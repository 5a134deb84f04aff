/*
 * tokens_test.c - the tokenizer against workers that answer, fail, are silent, or are not there.
 *
 * The workers are libevent's HTTP server on this thread; the tokenizer's thread is the real one.
 */
#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>

#include "base/account.h"
#include "base/clock.h"
#include "feeds/tokens/token_body.h"
#include "feeds/tokens/tokens.h"
#include "tests/unit/suite.h"

#define WORKERS   2
#define WAIT_NS   (20 * KVW_NS_PER_S) /* a test that waits so long has failed */

enum manner { GOOD, GARBAGE, ERROR_500, BAD_PROMPT, NO_ROUTE, NO_MODEL, SILENT, HUGE_ANSWER };

static struct {
	struct event_base *base;
	struct evhttp *http[WORKERS];
	int ports[WORKERS];
	enum manner manner[WORKERS];
	unsigned asked[WORKERS];
	ev_uint16_t peer_port; /* of the last connection that asked */
	char body[4096], authorization[256], path[256];
	struct evhttp_request *held[16]; /* of SILENT */
	size_t held_count;
	struct kvw_config *config;
	struct kvw_fleet *fleet;
	struct kvw_account memory;
	struct kvw_tokens *tokens;
	struct kvw_tokens_box *box;
	unsigned answers; /* calls of done */
	struct kvw_token_result last;
} t;

static void reply(struct evhttp_request *request, int status, const char *text)
{
	evbuffer_add(evhttp_request_get_output_buffer(request), text, strlen(text));
	evhttp_send_reply(request, status, NULL, NULL);
}

static void reply_huge(struct evhttp_request *request)
{
	static char blank[1 << 20];

	memset(blank, ' ', sizeof(blank));
	evbuffer_add(evhttp_request_get_output_buffer(request), blank, sizeof(blank));
	reply(request, 200, "{\"count\":1,\"tokens\":[1]}");
}

static void on_request(struct evhttp_request *request, void *arg)
{
	size_t worker = (size_t)arg;
	struct evbuffer *body = evhttp_request_get_input_buffer(request);
	const char *authorization = evhttp_find_header(
		evhttp_request_get_input_headers(request), "Authorization");
	int len = evbuffer_remove(body, t.body, sizeof(t.body) - 1);
	char *peer;

	evhttp_connection_get_peer(evhttp_request_get_connection(request), &peer, &t.peer_port);
	t.asked[worker]++;
	t.body[len < 0 ? 0 : len] = '\0';
	snprintf(t.authorization, sizeof(t.authorization), "%s",
		authorization == NULL ? "" : authorization);
	snprintf(t.path, sizeof(t.path), "%s", evhttp_request_get_uri(request));
	switch (t.manner[worker]) {
	case GOOD:
		reply(request, 200, "{\"count\":3,\"max_model_len\":9,\"tokens\":[7,8,9]}");
		break;
	case GARBAGE:
		reply(request, 200, "{\"count\":3,\"tokens\":[7,8]}");
		break;
	case ERROR_500:
		reply(request, 500, "{}");
		break;
	case BAD_PROMPT:
		reply(request, 400, "{\"error\":{\"message\":\"no\"}}");
		break;
	case NO_ROUTE:
		reply(request, 404, "{\"detail\":\"Not Found\"}");
		break;
	case NO_MODEL:
		reply(request, 404, "{\"error\":{\"message\":\"no such model\"}}");
		break;
	case HUGE_ANSWER:
		reply_huge(request);
		break;
	case SILENT:
		t.held[t.held_count++] = request;
		break;
	}
}

static void setup_with(const char *more)
{
	char text[1024];
	size_t len;

	signal(SIGPIPE, SIG_IGN);
	memset(&t, 0, sizeof(t));
	t.base = event_base_new();
	for (size_t i = 0; i < WORKERS; i++) {
		struct evhttp_bound_socket *bound;
		struct sockaddr_in at;
		socklen_t at_len = sizeof(at);

		t.http[i] = evhttp_new(t.base);
		evhttp_set_gencb(t.http[i], on_request, (void *)i);
		bound = evhttp_bind_socket_with_handle(t.http[i], "127.0.0.1", 0);
		getsockname(evhttp_bound_socket_get_fd(bound), (struct sockaddr *)&at, &at_len);
		t.ports[i] = ntohs(at.sin_port);
	}
	len = (size_t)snprintf(text, sizeof(text),
		"routing: {strategy: roundrobin}\n%s"
		"workers:\n  - url: http://127.0.0.1:%d\n  - {url: \"http://127.0.0.1:%d/up\", "
		"api_key: secret}\n",
		more, t.ports[0], t.ports[1]);
	ck_assert_int_eq(kvw_config_parse("test", text, len, kvw_strategies, stderr, &t.config), KVW_OK);
	ck_assert_int_eq(kvw_fleet_create(t.config, 1, stderr, &t.fleet), KVW_OK);
	kvw_account_set_most(&t.memory, UINT64_MAX / 2);
	ck_assert_int_eq(kvw_tokens_start(t.config, t.fleet, &t.memory, &t.tokens), KVW_OK);
	ck_assert_int_eq(kvw_tokens_box_create(&t.box), KVW_OK);
}

static void setup(void)
{
	setup_with("");
}

static void teardown(void)
{
	kvw_tokens_box_close(t.box);
	kvw_tokens_stop(t.tokens);
	ck_assert_uint_eq(kvw_account_bytes(&t.memory), 0);
	kvw_token_list_put(t.last.list);
	kvw_fleet_destroy(t.fleet);
	kvw_config_destroy(t.config);
	for (size_t i = 0; i < WORKERS; i++)
		evhttp_free(t.http[i]);
	event_base_free(t.base);
}

static void done(void *user, const struct kvw_token_result *result)
{
	ck_assert_ptr_eq(user, &t);
	t.answers++;
	kvw_token_list_put(t.last.list);
	t.last = *result;
}

/* Serves until `counter` has reached `wanted`. */
static void await(const unsigned *counter, unsigned wanted)
{
	int64_t until_ns = kvw_clock_ns() + WAIT_NS;
	struct pollfd at = {kvw_tokens_box_fd(t.box), POLLIN, 0};

	while (*counter < wanted) {
		event_base_loop(t.base, EVLOOP_NONBLOCK);
		if (poll(&at, 1, 1) == 1)
			kvw_tokens_box_read(t.box);
		ck_assert_int_lt(kvw_clock_ns(), until_ns);
	}
}

static struct kvw_token_job *make(const char *body)
{
	struct kvw_token_job *job = kvw_token_job_create(t.tokens, strlen(body));

	ck_assert_ptr_nonnull(job);
	memcpy(kvw_token_job_body(job), body, strlen(body));
	return job;
}

static struct kvw_token_ask ask_of(uint32_t first, uint32_t count)
{
	return (struct kvw_token_ask){.api = KVW_API_CHAT,
		.workers = {first, 1 - first},
		.worker_count = count,
		.box = t.box,
		.done = done,
		.user = &t};
}

/* Submits a job that has to be asked about. */
static struct kvw_token_job *submit(const char *body, const struct kvw_token_ask *ask)
{
	struct kvw_token_job *job = make(body);
	struct kvw_token_result result;

	ck_assert(!kvw_token_job_submit(job, ask, &result));
	return job;
}

static uint64_t inflight(void)
{
	struct kvw_tokens_stats stats;

	kvw_tokens_stats(t.tokens, &stats);
	return stats.inflight;
}

static void is_answer(const struct kvw_token_result *result)
{
	ck_assert_int_eq(result->inexact, KVW_INEXACT_NOT);
	ck_assert_uint_eq(result->list->count, 3);
	ck_assert_uint_eq(result->list->ids[2], 9);
}

START_TEST(a_worker_is_asked_once_for_equal_bodies)
{
	struct kvw_token_ask ask = ask_of(0, 1);
	struct kvw_token_result result;
	struct kvw_tokens_stats stats;

	(void)submit("{\"model\":\"m\"}", &ask);
	await(&t.answers, 1);
	is_answer(&t.last);
	ck_assert_str_eq(t.path, "/tokenize");
	ck_assert_str_eq(t.body, "{\"model\":\"m\"}");
	ck_assert(kvw_token_job_submit(make("{\"model\":\"m\"}"), &ask, &result));
	is_answer(&result);
	kvw_token_list_put(result.list);
	ck_assert_uint_eq(t.asked[0], 1);
	/* The same bytes on another path are another prompt. */
	ask.api = KVW_API_COMPLETIONS;
	(void)submit("{\"model\":\"m\"}", &ask);
	await(&t.answers, 2);
	ck_assert_uint_eq(t.asked[0], 2);
	kvw_tokens_stats(t.tokens, &stats);
	ck_assert_uint_eq(stats.asked, 2);
	ck_assert_uint_eq(stats.answered, 2);
	ck_assert_uint_eq(stats.cached, 1);
	ck_assert_uint_eq(stats.inflight, 0);
	ck_assert_uint_eq(stats.cache_lists, 2);
}
END_TEST

START_TEST(keys_are_the_workers_own_or_the_clients)
{
	struct kvw_token_ask ask = ask_of(0, 1);

	ask.authorization = KVW_SLICE("Bearer client");
	(void)submit("{\"a\":1}", &ask);
	await(&t.answers, 1);
	ck_assert_str_eq(t.authorization, "Bearer client");
	ask.workers[0] = 1;
	(void)submit("{\"a\":2}", &ask);
	await(&t.answers, 2);
	ck_assert_str_eq(t.authorization, "Bearer secret");
	ck_assert_str_eq(t.path, "/up/tokenize");
	ask = ask_of(0, 1);
	(void)submit("{\"a\":3}", &ask);
	await(&t.answers, 3);
	ck_assert_str_eq(t.authorization, "");
}
END_TEST

START_TEST(another_is_asked_when_one_fails)
{
	static const enum manner failing[] = {GARBAGE, ERROR_500, NO_ROUTE, HUGE_ANSWER};
	struct kvw_token_ask ask = ask_of(0, 2);

	for (unsigned i = 0; i < sizeof(failing) / sizeof(failing[0]); i++) {
		char body[32];

		t.manner[0] = failing[i];
		snprintf(body, sizeof(body), "{\"a\":%u}", i);
		(void)submit(body, &ask);
		await(&t.answers, i + 1);
		is_answer(&t.last);
		ck_assert_uint_eq(t.asked[0], i + 1);
		ck_assert_uint_eq(t.asked[1], i + 1);
	}
}
END_TEST

START_TEST(a_bad_prompt_is_not_shown_around)
{
	struct kvw_token_ask ask = ask_of(0, 2);

	t.manner[0] = BAD_PROMPT;
	(void)submit("{\"a\":1}", &ask);
	await(&t.answers, 1);
	ck_assert_int_eq(t.last.inexact, KVW_INEXACT_FAILED);
	ck_assert_uint_eq(t.asked[1], 0);
	ck_assert_uint_eq(inflight(), 0);
}
END_TEST

START_TEST(all_fail)
{
	struct kvw_token_ask ask = ask_of(0, 2);

	t.manner[0] = t.manner[1] = ERROR_500;
	(void)submit("{\"a\":1}", &ask);
	await(&t.answers, 1);
	ck_assert_int_eq(t.last.inexact, KVW_INEXACT_FAILED);
	/* What failed is asked again next time. */
	t.manner[0] = GOOD;
	(void)submit("{\"a\":1}", &ask);
	await(&t.answers, 2);
	is_answer(&t.last);
}
END_TEST

static struct kvw_candidate candidate(uint32_t id)
{
	return (struct kvw_candidate){
		.id = id, .load = &t.fleet->workers[id]->load, .usable = true};
}

START_TEST(a_worker_without_tokenize_is_left_alone)
{
	struct kvw_candidate items[] = {candidate(0), candidate(1)};
	struct kvw_token_ask ask = ask_of(0, 1);
	uint32_t workers[KVW_TOKENS_WORKERS];

	t.manner[0] = NO_ROUTE;
	(void)submit("{\"a\":1}", &ask);
	await(&t.answers, 1);
	ck_assert_int_eq(t.last.inexact, KVW_INEXACT_NO_TOKENS);
	ck_assert(kvw_tokens_refused_by(t.tokens, 0, kvw_clock_ns()));
	for (int i = 0; i < 4; i++) {
		ck_assert_uint_eq(
			kvw_tokens_choose(t.tokens, items, 2, kvw_clock_ns(), workers), 1);
		ck_assert_uint_eq(workers[0], 1);
	}
	ck_assert(!kvw_tokens_refused_by(t.tokens, 0, kvw_clock_ns() + 120 * KVW_NS_PER_S));
}
END_TEST

START_TEST(a_model_that_is_gone_is_no_missing_path)
{
	struct kvw_token_ask ask = ask_of(0, 1);

	t.manner[0] = NO_MODEL;
	(void)submit("{\"a\":1}", &ask);
	await(&t.answers, 1);
	ck_assert_int_eq(t.last.inexact, KVW_INEXACT_FAILED);
	ck_assert(!kvw_tokens_refused_by(t.tokens, 0, kvw_clock_ns()));
}
END_TEST

START_TEST(the_least_busy_is_asked_and_not_always_the_same)
{
	struct kvw_candidate items[] = {candidate(0), candidate(1)};
	uint32_t workers[KVW_TOKENS_WORKERS];
	unsigned first[WORKERS] = {0};
	struct kvw_lease lease = {0};

	for (int i = 0; i < 10; i++) {
		ck_assert_uint_eq(kvw_tokens_choose(t.tokens, items, 2, 0, workers), 2);
		ck_assert_uint_ne(workers[0], workers[1]);
		first[workers[0]]++;
	}
	ck_assert_uint_eq(first[0], 5);
	kvw_lease_take(&lease, items[0].load, 0, 0);
	for (int i = 0; i < 10; i++) {
		ck_assert_uint_eq(kvw_tokens_choose(t.tokens, items, 2, 0, workers), 2);
		ck_assert_uint_eq(workers[0], 1);
	}
	items[1].usable = false;
	ck_assert_uint_eq(kvw_tokens_choose(t.tokens, items, 2, 0, workers), 1);
	ck_assert_uint_eq(workers[0], 0);
	ck_assert_uint_eq(kvw_tokens_choose(t.tokens, items, 0, 0, workers), 0);
	kvw_lease_release(&lease, 0);
}
END_TEST

START_TEST(a_forgotten_job_fills_the_cache)
{
	struct kvw_token_ask ask = ask_of(0, 1);
	struct kvw_token_result result;
	struct kvw_token_job *job;

	t.manner[0] = SILENT;
	job = submit("{\"a\":1}", &ask);
	await(&t.asked[0], 1);
	kvw_token_job_forget(job);
	ck_assert_uint_eq(inflight(), 1);
	reply(t.held[0], 200, "{\"tokens\":[7,8,9]}");
	t.manner[0] = GOOD;
	(void)submit("{\"b\":1}", &ask);
	await(&t.answers, 1); /* of the second alone */
	for (int i = 0; i < 20000 && inflight() > 0; i++) {
		event_base_loop(t.base, EVLOOP_NONBLOCK);
		kvw_tokens_box_read(t.box);
		poll(NULL, 0, 1);
	}
	ck_assert_uint_eq(inflight(), 0);
	ck_assert(kvw_token_job_submit(make("{\"a\":1}"), &ask, &result));
	is_answer(&result);
	kvw_token_list_put(result.list);
	ck_assert_uint_eq(t.answers, 1);
}
END_TEST

START_TEST(stopping_ends_what_is_under_way)
{
	struct kvw_token_ask ask = ask_of(0, 2);

	t.manner[0] = t.manner[1] = SILENT;
	for (int i = 0; i < 5; i++) {
		char body[32];

		snprintf(body, sizeof(body), "{\"a\":%d}", i);
		(void)submit(body, &ask);
	}
	await(&t.asked[0], 3);
	/* teardown closes the box, then stops; nothing may be called or leak */
}
END_TEST

START_TEST(a_conversion_is_posted)
{
	struct kvw_token_ask ask = ask_of(0, 1);

	ask.api = KVW_API_RESPONSES;
	ask.convert = true;
	(void)submit("{\"model\":\"m\",\"input\":\"hi\",\"store\":true}", &ask);
	await(&t.answers, 1);
	is_answer(&t.last);
	ck_assert_str_eq(
		t.body, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
	(void)submit("{\"model\":\"m\",\"input\":[{\"type\":\"function_call\"}]}", &ask);
	await(&t.answers, 2);
	ck_assert_int_eq(t.last.inexact, KVW_INEXACT_NO_TOKENS);
	ck_assert_uint_eq(t.asked[0], 1);
}
END_TEST

#define COSTLY_JOBS 48
#define COSTLY_LEN  ((size_t)512 << 10)

/* A body of many blocks, whose conversion takes as long as any of its length. */
static void write_costly(char *body)
{
	static const char begin[] = "{\"messages\":[{\"role\":\"user\",\"content\":[", end[] = "]}]}",
			  block[] = "{\"type\":\"text\",\"text\":\"a\"},";
	size_t at = sizeof(begin) - 1, stop = COSTLY_LEN - sizeof(block) - sizeof(end);

	memset(body, ' ', COSTLY_LEN);
	memcpy(body, begin, at);
	for (; at < stop; at += sizeof(block) - 1)
		memcpy(body + at, block, sizeof(block) - 1);
	body[at - 1] = ' ';
	memcpy(body + at, end, sizeof(end) - 1);
}

/* Of all threads: the machine may be busy. */
static int64_t cpu_ns(void)
{
	struct timespec at;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
	return at.tv_sec * KVW_NS_PER_S + at.tv_nsec;
}

static int64_t conversion_ns(void)
{
	int64_t from_ns = cpu_ns();
	char *body = malloc(COSTLY_LEN), *out;
	size_t len;

	write_costly(body);
	ck_assert_int_eq(kvw_token_body_convert(KVW_API_MESSAGES, body, COSTLY_LEN, &out, &len), KVW_OK);
	free(out);
	free(body);
	return cpu_ns() - from_ns;
}

/* SIGTERM stood for as long as all that had been submitted was converted. */
START_TEST(stopping_waits_for_one_conversion_and_not_for_all)
{
	struct kvw_token_ask ask = ask_of(0, 1);
	struct kvw_token_result result;
	int64_t one_ns = conversion_ns(), from_ns;

	ask.api = KVW_API_MESSAGES;
	ask.convert = true;
	t.manner[0] = SILENT;
	for (int i = 0; i < COSTLY_JOBS; i++) {
		struct kvw_token_job *job = kvw_token_job_create(t.tokens, COSTLY_LEN);

		ck_assert_ptr_nonnull(job);
		write_costly(kvw_token_job_body(job));
		ck_assert(!kvw_token_job_submit(job, &ask, &result));
	}
	from_ns = cpu_ns();
	kvw_tokens_box_close(t.box);
	kvw_tokens_stop(t.tokens);
	ck_assert_int_lt(cpu_ns() - from_ns, COSTLY_JOBS / 4 * one_ns);
	t.box = NULL;
	t.tokens = NULL;
}
END_TEST

START_TEST(limits_hold)
{
	struct kvw_token_job *jobs[3];

	teardown();
	setup_with("kvaware: {tokens: {inflight: 3}}\n");
	for (int i = 0; i < 3; i++)
		jobs[i] = make("{}");
	ck_assert_ptr_null(kvw_token_job_create(t.tokens, 2));
	kvw_token_job_destroy(jobs[0]);
	jobs[0] = make("{}");
	for (int i = 0; i < 3; i++)
		kvw_token_job_destroy(jobs[i]);
	ck_assert_uint_eq(inflight(), 0);
	ck_assert_ptr_null(kvw_token_job_create(t.tokens, KVW_TOKENS_BODY_MAX + 1));
	ck_assert_uint_eq(inflight(), 0);
}
END_TEST

START_TEST(jobs_hold_what_fits_into_memory)
{
	struct kvw_token_job *job = make("{}");

	ck_assert_uint_eq(kvw_account_bytes(&t.memory), 2);
	kvw_account_set_most(&t.memory, 5);
	ck_assert_ptr_null(kvw_token_job_create(t.tokens, 4));
	ck_assert_uint_eq(inflight(), 1);
	ck_assert_uint_eq(kvw_account_bytes(&t.memory), 2);
	kvw_token_job_destroy(job);
}
END_TEST

START_TEST(no_endpoint_to_ask)
{
	struct kvw_token_ask ask = ask_of(0, 0);
	struct kvw_token_result result;

	ck_assert(kvw_token_job_submit(make("{}"), &ask, &result));
	ck_assert_int_eq(result.inexact, KVW_INEXACT_NO_TOKENS);
	ask.worker_count = 1;
	ask.cached_only = true;
	ck_assert(kvw_token_job_submit(make("{}"), &ask, &result));
	ck_assert_int_eq(result.inexact, KVW_INEXACT_NO_CHOICE);
	ck_assert_uint_eq(inflight(), 0);
}
END_TEST

START_TEST(connections_are_kept)
{
	struct kvw_token_ask ask = ask_of(0, 1);
	unsigned distinct = 0;

	for (unsigned i = 0; i < 20; i++) {
		char body[32];
		int before = t.peer_port;

		snprintf(body, sizeof(body), "{\"a\":%u}", i);
		(void)submit(body, &ask);
		await(&t.answers, i + 1);
		is_answer(&t.last);
		distinct += t.peer_port != before;
	}
	ck_assert_uint_eq(distinct, 1);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("tokens");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_worker_is_asked_once_for_equal_bodies);
	tcase_add_test(tcase, keys_are_the_workers_own_or_the_clients);
	tcase_add_test(tcase, another_is_asked_when_one_fails);
	tcase_add_test(tcase, a_bad_prompt_is_not_shown_around);
	tcase_add_test(tcase, all_fail);
	tcase_add_test(tcase, a_worker_without_tokenize_is_left_alone);
	tcase_add_test(tcase, a_model_that_is_gone_is_no_missing_path);
	tcase_add_test(tcase, the_least_busy_is_asked_and_not_always_the_same);
	tcase_add_test(tcase, a_forgotten_job_fills_the_cache);
	tcase_add_test(tcase, stopping_ends_what_is_under_way);
	tcase_add_test(tcase, stopping_waits_for_one_conversion_and_not_for_all);
	tcase_add_test(tcase, a_conversion_is_posted);
	tcase_add_test(tcase, limits_hold);
	tcase_add_test(tcase, jobs_hold_what_fits_into_memory);
	tcase_add_test(tcase, no_endpoint_to_ask);
	tcase_add_test(tcase, connections_are_kept);
	return run_tcase("tokens", tcase);
}
