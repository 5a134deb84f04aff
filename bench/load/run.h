/*
 * run.h - sends requests when they are due, reads the streams, and counts the results.
 *
 * A workload (chat.c, replay.c, engine.c) decides which requests are sent, and when; the run sends
 * them within the limit on concurrency, measures times and reports each end to the workload. One
 * thread, one libevent loop.
 */
#ifndef KVB_RUN_H
#define KVB_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/load/answer.h"
#include "kvway/err.h"
#include "bench/load/mem.h"
#include "bench/load/options.h"
#include "bench/load/outcome.h"

struct event_base;
struct kvb_http;
struct kvb_run;

/* A request to a server. */
struct kvb_request {
	struct kvb_buf body;    /* JSON; the run becomes its owner */
	uint64_t session;       /* value of the session header; 0: none */
	int64_t planned_tokens; /* tokens of the prompt, used if the answer has no usage */
	int64_t due_ns;
	bool leaves; /* its client waits for options->leave_after_s only, and does not come back */
	/* it is sent so long before due_ns, and kvsim holds it until then; 0: it is sent when
	 * due */
	int64_t lead_ns;
	/*
	 * Called at the end, also after a failure; record->ok says which. The record and the
	 * answer's text are borrowed for the call, which may submit further requests.
	 */
	void (*done)(void *arg, const struct kvb_record *record, const struct kvb_buf *text);
	void *arg;
};

/* Does not connect yet. options are borrowed. KVW_EINVAL, KVW_ENOTFOUND: a message was written to
 * stderr. */
enum kvw_err kvb_run_create(struct event_base *base, const struct kvb_options *options,
	struct kvb_run **out) KVW_MUST_CHECK;
/* Returns the model for requests: the option's, else the first in /v1/models. NULL: the reason was
 * written to stderr. */
const char *kvb_run_model(struct kvb_run *run);
/* Sets the number of requests that will be submitted, for the progress line. */
void kvb_run_expect(struct kvb_run *run, uint64_t total);
/* Sends the request now, or as soon as the limit on concurrency allows. */
void kvb_run_submit(struct kvb_run *run, struct kvb_request *request_take);
/* Runs the loop until as many requests have ended as were expected. */
void kvb_run_wait(struct kvb_run *run);
struct kvb_tally *kvb_run_tally(struct kvb_run *run);
/* Clears the tally: requests from now on are measured. */
void kvb_run_measure(struct kvb_run *run);
/* Returns the HTTP client of the first server, for the caller's own requests. */
struct kvb_http *kvb_run_server(struct kvb_run *run);
/* Returns the real time from the first request to the last answer. */
int64_t kvb_run_duration_ns(const struct kvb_run *run);
/* Returns the number of kept connections that the server had closed in the meantime. */
uint64_t kvb_run_stale(const struct kvb_run *run);
/* Returns the number of answers 429 and 503 after which the request was sent again. */
uint64_t kvb_run_retried(const struct kvb_run *run);
void kvb_run_destroy(struct kvb_run *run);

/* The workloads: each submits all its requests and waits until they have ended. */
enum kvw_err kvb_chat(struct kvb_run *run, struct event_base *base,
	const struct kvb_options *options) KVW_MUST_CHECK;
enum kvw_err kvb_replay(struct kvb_run *run, struct event_base *base,
	const struct kvb_options *options) KVW_MUST_CHECK;

#endif
