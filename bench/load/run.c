/*
 * run.c - requests under way: sends them when due, reads the streams, counts what happened.
 *
 * Times are taken where bytes are read: the first content event ends TTFT, the next ones make the
 * gaps between tokens. A request is measured from when it was sent; how long it then was overdue is
 * told apart (`late`), so that a generator that cannot keep up is seen and not hidden.
 */
#include "bench/load/run.h"

#include <event2/event.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/load/fetch.h"
#include "bench/load/http_client.h"
#include "bench/load/sse.h"
#include "bench/load/text.h"

/* One request under way or waiting for the cap. */
struct call {
	STAILQ_ENTRY(call) waiting;
	struct kvb_run *run;
	struct kvb_request request;
	int64_t sent_ns, written_ns, event_ns; /* 0: not yet; event: the first of any kind */
	int64_t first_ns, last_ns;             /* first and last content event; 0: not yet */
	int64_t since_ns;                      /* moment from which its times count */
	int64_t asked_ns;                      /* when it was sent the last time */
	struct kvb_http *server;               /* server that got it the last time */
	/* timer at which its client leaves; owned; NULL: never */
	struct event *patience;
	int64_t contents;                      /* number of content events */
	int status;
	int64_t retry_after_s; /* time from Retry-After of its answer; < 0: it had none */
	int64_t retries;       /* how often it was sent again */
	bool waited; /* it waited for the cap: an answer's end started it, not its own time */
	bool broken; /* an event was not JSON */
	struct kvb_sse sse;
	struct kvb_answer answer;
};

struct kvb_run {
	struct event_base *base;
	const struct kvb_options *options;
	struct kvb_http *servers[KVB_MAX_TEXTS];
	size_t next_server;
	char *model; /* the model's name, from the server's list */
	struct kvb_tally tally;
	STAILQ_HEAD(, call) queue;
	uint64_t retried;
	uint64_t random; /* random state for the pauses of clients that come back */
	uint64_t total, submitted, under_way, ended;
	int64_t first_sent_ns, last_end_ns;
	struct event *progress;
};

static void on_event(void *arg, const char *data, size_t len)
{
	struct call *call = arg;
	int64_t now;
	bool content;

	if (kvb_answer_read(&call->answer, data, len, &content) != KVW_OK) {
		call->broken = true;
		return;
	}
	if (!content && call->event_ns != 0)
		return;
	now = kvw_clock_ns();
	if (call->event_ns == 0)
		call->event_ns = now;
	if (!content)
		return;
	call->contents++;
	if (call->first_ns == 0)
		call->first_ns = now;
	else
		kvb_tally_add_gap(&call->run->tally, now - call->last_ns);
	call->last_ns = now;
}

static void on_written(void *arg)
{
	((struct call *)arg)->written_ns = kvw_clock_ns();
}

static void on_head(void *arg, int status)
{
	((struct call *)arg)->status = status;
}

static void on_retry_after(void *arg, int64_t seconds)
{
	((struct call *)arg)->retry_after_s = seconds;
}

static void on_body(void *arg, const char *data, size_t len)
{
	struct call *call = arg;

	if (call->status == 200)
		kvb_sse_feed(&call->sse, data, len, on_event, call);
}

/* The kind of failure, "" if there was none. */
static const char *failure(
	const struct call *call, enum kvb_http_end how, int error, char *room, size_t size)
{
	static const char *const kinds[] = {
		[KVB_HTTP_DONE] = "",
		[KVB_HTTP_CONNECT] = "connect",
		[KVB_HTTP_CLOSED] = "closed without an answer",
		[KVB_HTTP_CUT] = "answer cut short",
		[KVB_HTTP_TIMEOUT] = "timeout",
		[KVB_HTTP_PROTOCOL] = "answer is not HTTP",
	};

	if (how == KVB_HTTP_CONNECT && error != 0) {
		snprintf(room, size, "connect: %s", strerror(error));
		return room;
	}
	if (how != KVB_HTTP_DONE)
		return kinds[how];
	if (call->status != 200) {
		snprintf(room, size, "status %d", call->status);
		return room;
	}
	if (call->answer.failed) {
		snprintf(room, size, "stream: %.50s", call->answer.error);
		return room;
	}
	if (call->broken)
		return "event is not JSON";
	if (!call->answer.done)
		return "stream without [DONE]";
	return call->first_ns == 0 ? "no output" : "";
}

/*
 * An answer whose tokens made no text (the only one ended it) has no content event: its first event
 * is then the nearest to the first token.
 */
static void settle_first(struct call *call)
{
	if (call->first_ns == 0 && call->answer.usage_known && call->answer.completion_tokens > 0)
		call->first_ns = call->event_ns;
}

static void send_waiting(struct kvb_run *run);
static void call_post(struct call *call);

static void on_pause_over(evutil_socket_t fd, short what, void *arg)
{
	struct call *call = arg;

	(void)fd;
	(void)what;
	call_post(call);
}

static struct timeval interval(double seconds)
{
	return (struct timeval){.tv_sec = (time_t)seconds,
		.tv_usec = (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};
}

static struct timeval comes_back_after(struct call *call)
{
	struct kvb_run *run = call->run;
	double more = run->options->retry_spread * kvb_random_unit(&run->random);

	return interval((double)call->retry_after_s * (1 + more));
}

/* Sends a refused request again after its pause, as often as it may. Returns false if it has
 * ended. */
static bool call_again(struct call *call, enum kvb_http_end how)
{
	struct kvb_run *run = call->run;
	struct timeval pause;

	if (how != KVB_HTTP_DONE || (call->status != 429 && call->status != 503))
		return false;
	kvb_tally_add_refusal(&run->tally, kvw_clock_ns() - call->asked_ns, call->retry_after_s >= 0);
	if (call->retry_after_s < 0 || call->retries >= run->options->retries || call->request.leaves)
		return false;
	pause = comes_back_after(call);
	call->retries++;
	run->retried++;
	kvb_sse_finish(&call->sse);
	kvb_answer_finish(&call->answer);
	call->sse = (struct kvb_sse){0};
	call->answer = (struct kvb_answer){0};
	event_base_once(run->base, -1, EV_TIMEOUT, on_pause_over, call, &pause);
	return true;
}

/* Its end, for good. error: "" if there was none. */
static void call_end(struct call *call, const char *error)
{
	struct kvb_run *run = call->run;
	const struct kvb_answer *answer = &call->answer;
	struct kvb_record record;

	record = (struct kvb_record){
		.error = error,
		.late_ns = call->sent_ns - (call->request.due_ns - call->request.lead_ns),
		.ttft_ns = call->first_ns - call->since_ns,
		.tries_ns = call->retries > 0 ? call->asked_ns - call->since_ns : 0,
		.prompt_tokens =
			answer->usage_known ? answer->prompt_tokens : call->request.planned_tokens,
		.completion_tokens =
			answer->usage_known ? answer->completion_tokens : call->contents,
		.cached_known = answer->cached_known,
		.cached_tokens = answer->cached_tokens,
		.sent_ns = call->sent_ns,
		.written_ns = call->written_ns,
		.first_ns = call->first_ns,
		.end_ns = kvw_clock_ns(),
	};

	run->last_end_ns = record.end_ns;
	record.ok = record.error[0] == '\0';
	record.e2e_ns = run->last_end_ns - call->since_ns;
	kvb_tally_add(&run->tally, &record);
	run->under_way--;
	run->ended++;
	call->request.done(call->request.arg, &record, &answer->text);
	kvb_sse_finish(&call->sse);
	kvb_answer_finish(&call->answer);
	kvb_buf_finish(&call->request.body);
	if (call->patience != NULL)
		event_free(call->patience);
	free(call);
	send_waiting(run);
	if (run->ended >= run->total)
		event_base_loopbreak(run->base);
}

static void on_end(void *arg, enum kvb_http_end how, int error)
{
	struct call *call = arg;
	char room[64];

	if (call_again(call, how))
		return;
	settle_first(call);
	call_end(call, failure(call, how, error, room, sizeof(room)));
}

/* Has the client leave, unless an answer has begun. */
static void on_impatience(evutil_socket_t fd, short what, void *arg)
{
	struct call *call = arg;

	(void)fd;
	(void)what;
	if (call->status != 0 || !kvb_http_leave(call->server, call))
		return;
	kvb_samples_add(&call->run->tally.left_late_s,
		(double)(kvw_clock_ns() - call->asked_ns) / 1e9 -
			call->run->options->leave_after_s / call->run->options->speed);
	call_end(call, "left");
}

static const struct kvb_http_handler handler = {
	.written = on_written, .head = on_head, .retry_after = on_retry_after, .body = on_body, .end = on_end};

/*
 * A request sent early counts as sent when it is due. This program's own lateness is added as it
 * would be at the clock's speed, not multiplied by it; kvsim does the same, from the header
 * x-sim-due.
 */
static void add_due(struct call *call, struct kvb_buf *headers)
{
	const struct kvb_request *request = &call->request;
	int64_t late_ns = call->sent_ns - (request->due_ns - request->lead_ns);

	call->since_ns = request->due_ns + (int64_t)((double)late_ns / call->run->options->speed);
	kvb_buf_printf(headers, "x-sim-due: %lld %lld\r\n", (long long)request->due_ns,
		(long long)request->lead_ns);
}

/* Passes a simulated worker the time when the client leaves; the worker counts requests that reach
 * it later. */
static void add_leave(struct call *call, struct kvb_buf *headers)
{
	const struct kvb_options *options = call->run->options;
	double after_s = options->leave_after_s / options->speed;
	struct timeval after = interval(after_s);

	call->patience = event_new(call->run->base, -1, EV_TIMEOUT, on_impatience, call);
	event_add(call->patience, &after);
	kvb_buf_printf(headers, "x-sim-leave: %lld\r\n", (long long)(call->asked_ns + (int64_t)(after_s * 1e9)));
}

/* Sends a call's request, for the first time or again. */
static void call_post(struct call *call)
{
	struct kvb_run *run = call->run;
	const struct kvb_options *options = run->options;
	struct kvb_http *server = run->servers[run->next_server++ % options->urls.count];
	const char *key = getenv("OPENAI_API_KEY");
	struct kvb_buf headers = {0};
	struct kvb_buf body = {0};

	if (call->retries < options->retries) {
		kvb_buf_add(&body, call->request.body.data, call->request.body.len);
	} else {
		body = call->request.body;
		call->request.body = (struct kvb_buf){0};
	}
	call->status = 0;
	call->retry_after_s = -1;
	call->asked_ns = kvw_clock_ns();
	call->server = server;
	if (key != NULL && key[0] != '\0')
		kvb_buf_printf(&headers, "Authorization: Bearer %s\r\n", key);
	if (call->request.session != 0 && options->session_header[0] != '\0')
		kvb_buf_printf(&headers, "%s: s%llu\r\n", options->session_header,
			(unsigned long long)call->request.session);
	if (call->request.lead_ns > 0 && !call->waited && call->retries == 0)
		add_due(call, &headers);
	if (call->request.leaves)
		add_leave(call, &headers);
	kvb_http_send(server, "POST",
		options->api == KVB_API_CHAT ? "/v1/chat/completions" : "/v1/completions",
		kvb_buf_str(&headers), &body, &handler, call);
	kvb_buf_finish(&headers);
}

/* Sends a call for the first time; its times count from here on, however often it is refused. */
static void call_send(struct call *call)
{
	struct kvb_run *run = call->run;

	run->under_way++;
	call->sent_ns = call->since_ns = kvw_clock_ns();
	if (run->first_sent_ns == 0)
		run->first_sent_ns = call->sent_ns;
	call_post(call);
}

static bool room_for_more(const struct kvb_run *run)
{
	return run->options->concurrency == 0 ||
	       run->under_way < (uint64_t)run->options->concurrency;
}

static void send_waiting(struct kvb_run *run)
{
	while (!STAILQ_EMPTY(&run->queue) && room_for_more(run)) {
		struct call *call = STAILQ_FIRST(&run->queue);

		STAILQ_REMOVE_HEAD(&run->queue, waiting);
		call_send(call);
	}
}

void kvb_run_submit(struct kvb_run *run, struct kvb_request *request_take)
{
	struct call *call = kvb_alloc(1, sizeof(*call));

	call->run = run;
	call->request = *request_take;
	request_take->body = (struct kvb_buf){0};
	run->submitted++;
	call->waited = !STAILQ_EMPTY(&run->queue) || !room_for_more(run);
	STAILQ_INSERT_TAIL(&run->queue, call, waiting);
	send_waiting(run);
}

static void on_progress(evutil_socket_t fd, short what, void *arg)
{
	struct kvb_run *run = arg;
	double seconds = (double)(kvw_clock_ns() - run->first_sent_ns) / 1e9 * run->tally.speed;

	(void)fd;
	(void)what;
	if (run->first_sent_ns == 0)
		return;
	fprintf(stderr,
		"\r%s: %llu of %llu done, %llu running, %llu failed, mean TTFT %.2f s, "
		"%.0f s%s   ",
		run->options->label, (unsigned long long)run->ended, (unsigned long long)run->total,
		(unsigned long long)run->under_way, (unsigned long long)run->tally.failed,
		kvb_samples_mean(&run->tally.ttft_s) * run->tally.speed, seconds,
		run->tally.speed != 1 ? " simulated" : "");
}

enum kvw_err kvb_run_create(
	struct event_base *base, const struct kvb_options *options, struct kvb_run **out)
{
	struct kvb_run *run = kvb_alloc(1, sizeof(*run));
	enum kvw_err err = KVW_OK;

	run->base = base;
	run->options = options;
	run->random = options->seed;
	run->tally.speed = options->speed;
	run->tally.slo = (struct kvb_slo){.ttft_s = options->slo_ttft_s,
		.ttft_tokens_per_s = options->slo_ttft_tokens_per_s,
		.tpot_s = options->slo_tpot_s};
	STAILQ_INIT(&run->queue);
	for (size_t i = 0; i < options->urls.count && err == KVW_OK; i++)
		err = kvb_http_create(
			base, options->urls.items[i], options->timeout_s, &run->servers[i], stderr);
	if (err != KVW_OK) {
		kvb_run_destroy(run);
		return err;
	}
	*out = run;
	return KVW_OK;
}

const char *kvb_run_model(struct kvb_run *run)
{
	struct kvb_fetched models;
	const char *name;
	json_t *list;

	if (run->options->model != NULL)
		return run->options->model;
	if (run->model != NULL)
		return run->model;
	kvb_fetch(run->base, run->servers[0], "/v1/models", &models);
	list = json_loadb(models.text.data ? models.text.data : "", models.text.len, 0, NULL);
	name = json_string_value(
		json_object_get(json_array_get(json_object_get(list, "data"), 0), "id"));
	if (models.how == KVB_HTTP_DONE && models.status == 200 && name != NULL)
		run->model = kvb_strdup(name);
	else if (models.error != 0)
		fprintf(stderr, "kvbench: %s/v1/models: %s\n", run->options->urls.items[0],
			strerror(models.error));
	else
		fprintf(stderr, "kvbench: %s/v1/models names no model (status %d); use --model\n",
			run->options->urls.items[0], models.status);
	json_decref(list);
	kvb_buf_finish(&models.text);
	return run->model;
}

void kvb_run_expect(struct kvb_run *run, uint64_t total)
{
	run->total = total;
}

void kvb_run_wait(struct kvb_run *run)
{
	struct timeval half = {.tv_usec = 500000};

	if (isatty(STDERR_FILENO)) {
		run->progress = event_new(run->base, -1, EV_PERSIST, on_progress, run);
		event_add(run->progress, &half);
	}
	if (run->ended < run->total)
		event_base_dispatch(run->base);
	if (run->progress != NULL)
		fputs("\r\033[K", stderr);
}

struct kvb_tally *kvb_run_tally(struct kvb_run *run)
{
	return &run->tally;
}

void kvb_run_measure(struct kvb_run *run)
{
	struct kvb_tally fresh = {.speed = run->tally.speed, .slo = run->tally.slo};

	kvb_tally_finish(&run->tally);
	run->tally = fresh;
	run->first_sent_ns = run->last_end_ns = 0;
}

struct kvb_http *kvb_run_server(struct kvb_run *run)
{
	return run->servers[0];
}

int64_t kvb_run_duration_ns(const struct kvb_run *run)
{
	return run->last_end_ns - run->first_sent_ns;
}

uint64_t kvb_run_stale(const struct kvb_run *run)
{
	uint64_t stale = 0;

	for (size_t i = 0; i < run->options->urls.count; i++)
		stale += kvb_http_stale(run->servers[i]);
	return stale;
}

uint64_t kvb_run_retried(const struct kvb_run *run)
{
	return run->retried;
}

void kvb_run_destroy(struct kvb_run *run)
{
	if (run == NULL)
		return;
	for (size_t i = 0; i < KVB_MAX_TEXTS; i++)
		kvb_http_destroy(run->servers[i]);
	if (run->progress != NULL)
		event_free(run->progress);
	kvb_tally_finish(&run->tally);
	free(run->model);
	free(run);
}
