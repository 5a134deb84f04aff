/*
 * engine.c - runs a workload (workload.h) against an engine: `kvbench engine`.
 *
 * warm-up: one request after the other -> pause, if the workload wants one -> measurement
 *
 * In the measurement the workload is asked again whenever a request has ended, and when the moment
 * has come that it named; no polling. Failures are counted and nothing is sent twice: a client that
 * retries by itself hides exactly what is to be measured. SIGINT ends the asking, requests under
 * way are waited for, and the report says that it is a part; a second one does not wait.
 *
 * Memory: what is under way, five figures per finished request, and what the workload keeps.
 */
#include "bench/load/engine.h"

#include <event2/event.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/load/fetch.h"
#include "bench/load/run.h"
#include "bench/load/workload.h"

#define SPARE_DESCRIPTORS 32 /* descriptors that the program needs besides connections */
#define BURST             4  /* most requests sent in a row before the loop reads answers */

enum phase { WARM_UP, PAUSE, MEASURE, OVER };

struct engine {
	struct event_base *base;
	struct kvb_engine_options options; /* the options, completed by the servers' answers */
	struct kvb_options run_options;
	char *url; /* with http:// */
	struct kvb_run *run;
	struct kvb_workload *workload;
	struct kvb_engine_stats stats;
	struct event *timer, *interrupt, *progress;
	enum phase phase;
	int64_t start_ns, end_ns; /* begin of the measurement, on the clock */
	int64_t wall_ns;          /* time since 1970 minus the clock's time */
	uint64_t warmed, warm_failed;
	uint64_t asked, under_way;
	bool stopping;
};

/* A request under way. */
struct flight {
	struct engine *engine;
	uint64_t tag;
	bool warm_up;
	char id[64];
};

static void go_on(struct engine *engine);

static void on_done(void *arg, const struct kvb_record *record, const struct kvb_buf *text)
{
	struct flight *flight = arg;
	struct engine *engine = flight->engine;

	engine->under_way--;
	if (flight->warm_up) {
		engine->warm_failed += !record->ok;
	} else {
		struct kvb_engine_request request = kvb_engine_request_of(
			record, flight->id, engine->options.speed, engine->wall_ns);

		kvb_engine_stats_add(&engine->stats, &request);
		kvb_workload_ended(
			engine->workload, flight->tag, record->ok, text->data, text->len);
	}
	free(flight);
	go_on(engine);
}

static void add_body(const struct engine *engine, const struct kvb_ask *ask, struct kvb_buf *body)
{
	kvb_buf_text(body, "{\"messages\":[");
	kvb_buf_add(body, ask->messages.data, ask->messages.len);
	kvb_buf_text(body, "],\"model\":\"");
	kvb_buf_json_text(body, engine->options.model, strlen(engine->options.model));
	kvb_buf_printf(body,
		"\",\"max_tokens\":%lld,\"stream\":true,\"stream_options\":{\"include_usage\":"
		"true},\"temperature\":0.0%s}",
		(long long)ask->max_tokens,
		engine->options.ignore_eos ? ",\"ignore_eos\":true" : "");
}

static void submit(struct engine *engine, struct kvb_ask *ask_take, int64_t due_ns)
{
	struct flight *flight = kvb_alloc(1, sizeof(*flight));
	struct kvb_request request = {
		.session = ask_take->session, .due_ns = due_ns, .done = on_done, .arg = flight};

	flight->engine = engine;
	flight->tag = ask_take->tag;
	flight->warm_up = engine->phase == WARM_UP;
	memcpy(flight->id, ask_take->id, sizeof(flight->id));
	add_body(engine, ask_take, &request.body);
	kvb_buf_finish(&ask_take->messages);
	engine->under_way++;
	kvb_run_submit(engine->run, &request);
}

/* Has go_on() called again after so much simulated time. */
static void wake_after(struct engine *engine, int64_t simulated_ns)
{
	int64_t ns = (int64_t)((double)simulated_ns / engine->options.speed) + 1000;
	struct timeval wait = {.tv_sec = (time_t)(ns / KVW_NS_PER_S),
		.tv_usec = (suseconds_t)(ns % KVW_NS_PER_S / 1000)};

	event_add(engine->timer, &wait);
}

static void begin(struct engine *engine)
{
	engine->phase = MEASURE;
	kvb_run_measure(engine->run);
	engine->start_ns = kvw_clock_ns();
}

static void end(struct engine *engine)
{
	engine->phase = OVER;
	engine->end_ns = kvw_clock_ns();
	event_base_loopbreak(engine->base);
}

/* Sends the next request of the warm-up, or begins the measurement if there is none. */
static void warm_up(struct engine *engine)
{
	struct kvb_workload *workload = engine->workload;
	struct kvb_ask ask;

	if (engine->under_way > 0)
		return;
	if (engine->stopping) {
		end(engine);
	} else if (!engine->options.warm_up || engine->warmed == workload->warm_count) {
		engine->phase = PAUSE;
		wake_after(engine, engine->options.warm_up ? workload->settle_ns : 0);
	} else {
		workload->ops->warm(workload, engine->warmed++, &ask);
		submit(engine, &ask, kvw_clock_ns());
	}
}

/* Sends what the workload wants now; at most BURST requests, so that the loop reads answers in
 * between. */
static void measure(struct engine *engine)
{
	static const struct timeval at_once = {0};
	struct kvb_workload *workload = engine->workload;
	double speed = engine->options.speed;
	enum kvb_turn turn = KVB_ASK;
	int64_t now_ns = 0, wake_ns = KVB_NEVER;
	struct kvb_ask ask;

	for (int i = 0; i < BURST && turn == KVB_ASK && !engine->stopping; i++) {
		now_ns = (int64_t)((double)(kvw_clock_ns() - engine->start_ns) * speed);
		turn = kvb_workload_next(workload, now_ns, &ask, &wake_ns);
		if (turn == KVB_ASK) {
			engine->asked++;
			submit(engine, &ask,
				engine->start_ns + (int64_t)((double)ask.due_ns / speed));
		}
	}
	if (turn == KVB_ASK && !engine->stopping)
		event_add(engine->timer, &at_once);
	if (turn == KVB_WAIT && wake_ns != KVB_NEVER)
		wake_after(engine, wake_ns - now_ns);
	if ((turn == KVB_DONE || engine->stopping) && engine->under_way == 0)
		end(engine);
}

static void go_on(struct engine *engine)
{
	if (engine->phase == WARM_UP)
		warm_up(engine);
	else if (engine->phase == MEASURE)
		measure(engine);
	else if (engine->phase == PAUSE && engine->stopping)
		end(engine);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct engine *engine = arg;

	(void)fd;
	(void)what;
	if (engine->phase == PAUSE && !engine->stopping)
		begin(engine);
	go_on(engine);
}

static void on_interrupt(evutil_socket_t fd, short what, void *arg)
{
	struct engine *engine = arg;

	(void)fd;
	(void)what;
	if (engine->stopping)
		end(engine);
	engine->stopping = true;
	if (engine->phase != OVER)
		go_on(engine);
}

static void on_progress(evutil_socket_t fd, short what, void *arg)
{
	struct engine *engine = arg;
	const struct kvb_engine_stats *stats = &engine->stats;

	(void)fd;
	(void)what;
	if (engine->phase == WARM_UP)
		fprintf(stderr, "\r%s: warm-up, %llu of %llu sent   ", engine->options.workload,
			(unsigned long long)engine->warmed,
			(unsigned long long)engine->workload->warm_count);
	else if (engine->phase == MEASURE)
		fprintf(stderr,
			"\r%s: %llu of %llu done, %llu running, %llu failed, mean TTFT %.1f ms, "
			"%.0f s%s   ",
			engine->options.workload, (unsigned long long)(stats->ok + stats->failed),
			(unsigned long long)engine->workload->planned,
			(unsigned long long)engine->under_way, (unsigned long long)stats->failed,
			kvb_samples_mean(&stats->ttft_ms),
			(double)(kvw_clock_ns() - engine->start_ns) / 1e9 * engine->options.speed,
			engine->options.speed != 1 ? " simulated" : "");
}

static char *with_scheme(const char *url)
{
	struct kvb_buf whole = {0};
	char *copy;

	kvb_buf_printf(&whole, "%s%s", strstr(url, "://") == NULL ? "http://" : "", url);
	copy = kvb_strdup(kvb_buf_str(&whole));
	kvb_buf_finish(&whole);
	return copy;
}

static enum kvw_err ask_lmcache(struct engine *engine)
{
	char *url = with_scheme(engine->options.lmcache_url);
	struct kvb_fetched status = {0};
	struct kvb_http *http = NULL;
	enum kvw_err err = kvb_http_create(engine->base, url, 10, &http, stderr);

	if (err != KVW_OK)
		goto out;
	kvb_fetch(engine->base, http, "/status", &status);
	if (status.how != KVB_HTTP_DONE || status.status != 200) {
		fprintf(stderr, "kvbench: %s/status: %s (status %d)\n", url,
			status.error != 0 ? strerror(status.error) : "no answer of use",
			status.status);
		err = KVW_ENOTFOUND;
		goto out;
	}
	err = kvb_status_tokens_per_gb(kvb_buf_str(&status.text), status.text.len,
		engine->options.model, &engine->options.tokens_per_gb, stderr);
out:
	kvb_buf_finish(&status.text);
	kvb_http_destroy(http);
	free(url);
	return err;
}

/* Warns before the run of too few descriptors: open-loop load needs a connection per request under
 * way. */
static enum kvw_err check_descriptors(const struct kvb_workload *workload)
{
	struct rlimit limit;
	uint64_t needed =
		workload->at_once < workload->planned ? workload->at_once : workload->planned;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
		needed + SPARE_DESCRIPTORS <= limit.rlim_cur)
		return KVW_OK;
	fprintf(stderr,
		"kvbench: %llu requests at once need as many descriptors, the limit is "
		"%llu; see ulimit -n\n",
		(unsigned long long)needed, (unsigned long long)limit.rlim_cur);
	return KVW_ELIMIT;
}

/* Connects to the servers, finds the model and makes the workload. */
static enum kvw_err prepare(struct engine *engine)
{
	struct kvb_engine_options *o = &engine->options;
	const struct kvb_workload_ops *ops = kvb_workload_find(o->workload);
	enum kvw_err err;

	kvb_options_init(&engine->run_options);
	engine->url = with_scheme(o->engine_url);
	engine->run_options.urls.items[engine->run_options.urls.count++] = engine->url;
	engine->run_options.model = o->model;
	engine->run_options.label = o->workload;
	engine->run_options.api = KVB_API_CHAT;
	engine->run_options.timeout_s = o->timeout_s;
	engine->run_options.speed = o->speed;
	engine->run_options.session_header = o->session_header ? o->session_header : "";
	err = kvb_run_create(engine->base, &engine->run_options, &engine->run);
	if (err != KVW_OK)
		return err;
	o->model = kvb_run_model(engine->run);
	if (o->model == NULL)
		return KVW_ENOTFOUND;
	if (o->tokens_per_gb == 0 && ops->needs_volume)
		err = ask_lmcache(engine);
	if (err == KVW_OK)
		err = ops->create(o, &engine->workload, stderr);
	return err == KVW_OK ? check_descriptors(engine->workload) : err;
}

static enum kvw_err open_csv(struct engine *engine)
{
	struct kvb_buf path = {0};
	enum kvw_err err;

	if (!engine->options.csv)
		return KVW_OK;
	kvb_buf_printf(&path, "%s/bench_results.csv", engine->options.output_dir);
	err = kvb_engine_stats_open_csv(&engine->stats, kvb_buf_str(&path), stderr);
	kvb_buf_finish(&path);
	return err;
}

static void perform(struct engine *engine)
{
	struct timeval half = {.tv_usec = 500000};
	struct timespec wall;
	bool shown = !engine->options.quiet && isatty(STDERR_FILENO);

	clock_gettime(CLOCK_REALTIME, &wall);
	engine->wall_ns = (int64_t)wall.tv_sec * KVW_NS_PER_S + wall.tv_nsec - kvw_clock_ns();
	kvb_run_expect(engine->run, UINT64_MAX); /* the end is ours to say */
	engine->timer = event_new(engine->base, -1, 0, on_timer, engine);
	engine->interrupt = evsignal_new(engine->base, SIGINT, on_interrupt, engine);
	engine->progress = event_new(engine->base, -1, EV_PERSIST, on_progress, engine);
	event_add(engine->interrupt, NULL);
	if (shown)
		event_add(engine->progress, &half);
	wake_after(engine, 0);
	event_base_dispatch(engine->base);
	if (shown)
		fputs("\r\033[K", stderr);
}

static enum kvw_err report(struct engine *engine, bool *failed)
{
	const struct kvb_engine_options *o = &engine->options;
	struct kvb_engine_outcome outcome = {.options = o,
		.stats = &engine->stats,
		.tally = kvb_run_tally(engine->run),
		.result = kvb_tally_result(kvb_run_tally(engine->run), 0),
		.elapsed_s = (double)(engine->end_ns - engine->start_ns) / 1e9 * o->speed,
		.planned = engine->workload->planned,
		.asked = engine->asked,
		.warm_up = engine->warmed,
		.warm_up_failed = engine->warm_failed,
		.stale = kvb_run_stale(engine->run),
		.interrupted = engine->stopping};
	bool to_stdout = o->summary != NULL && strcmp(o->summary, "-") == 0;
	enum kvw_err err = kvb_engine_stats_close_csv(&engine->stats);

	if (err != KVW_OK)
		fprintf(stderr, "kvbench: %s/bench_results.csv could not be written\n",
			o->output_dir);
	*failed = engine->stats.failed > 0 || engine->stopping;
	if (engine->start_ns == 0)
		return KVW_ECLOSED; /* the run was interrupted before it measured anything */
	if (!o->quiet)
		kvb_engine_print(&outcome, to_stdout ? stderr : stdout);
	return kvb_engine_write(&outcome) != KVW_OK ? KVW_EIO : err;
}

static void release(struct engine *engine)
{
	if (engine->timer != NULL)
		event_free(engine->timer);
	if (engine->interrupt != NULL)
		event_free(engine->interrupt);
	if (engine->progress != NULL)
		event_free(engine->progress);
	if (engine->workload != NULL)
		engine->workload->ops->destroy(engine->workload);
	kvb_run_destroy(engine->run);
	kvb_engine_stats_finish(&engine->stats);
	free(engine->url);
}

enum kvw_err kvb_engine(
	struct event_base *base, const struct kvb_engine_options *options, bool *failed)
{
	struct engine engine = {.base = base, .options = *options, .phase = WARM_UP};
	enum kvw_err err = prepare(&engine);

	if (err == KVW_OK)
		err = open_csv(&engine);
	if (err != KVW_OK)
		goto out;
	if (!options->quiet) {
		fprintf(stderr, "%s, model %s\n", engine.options.workload, engine.options.model);
		engine.workload->ops->describe(engine.workload, stderr);
	}
	perform(&engine);
	err = report(&engine, failed);
out:
	release(&engine);
	return err;
}
