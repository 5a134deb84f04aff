/*
 * run.h - requests under way: sends them when due, reads the streams, counts what happened.
 *
 * A workload (chat.c, replay.c, engine.c) decides what is asked and when; the run sends, keeps to the cap on
 * concurrency, takes times and reports each end to the workload. One thread, one libevent loop.
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

/* What is asked of a server. */
struct kvb_request {
	struct kvb_buf body;    /* JSON; the run takes it */
	uint64_t session;       /* sent in the session header; 0: none */
	int64_t planned_tokens; /* of the prompt, for answers without usage */
	int64_t due_ns;
	bool leaves;     /* its client waits for options->leave_after_s only, and does not come back */
	int64_t lead_ns; /* it is submitted so long before due_ns, for kvsim to hold; 0: when due */
	/*
	 * The end, also when it failed: record->ok says which. Both are borrowed for the call, which
	 * may submit further requests; text is the answer's.
	 */
	void (*done)(void *arg, const struct kvb_record *record, const struct kvb_buf *text);
	void *arg;
};

/* Connects to nothing yet. options are borrowed. KVW_EINVAL, KVW_ENOTFOUND: said on stderr. */
enum kvw_err kvb_run_create(struct event_base *base, const struct kvb_options *options,
	struct kvb_run **out) KVW_MUST_CHECK;
/* Model to ask for: the option's, else the first of /v1/models. NULL: said on stderr why not. */
const char *kvb_run_model(struct kvb_run *run);
/* total: how many requests there will be, for the progress line. */
void kvb_run_expect(struct kvb_run *run, uint64_t total);
/* Sends now, or as soon as the cap allows. */
void kvb_run_submit(struct kvb_run *run, struct kvb_request *request_take);
/* Serves the loop until as many requests have ended as were expected. */
void kvb_run_wait(struct kvb_run *run);
struct kvb_tally *kvb_run_tally(struct kvb_run *run);
/* Forgets what the tally has seen so far: what comes now is measured. */
void kvb_run_measure(struct kvb_run *run);
/* The client of the first server, for requests of the caller's own. */
struct kvb_http *kvb_run_server(struct kvb_run *run);
/* Real time from the first request sent to the last answer. */
int64_t kvb_run_duration_ns(const struct kvb_run *run);
/* Kept-alive connections that the server had closed meanwhile. */
uint64_t kvb_run_stale(const struct kvb_run *run);
/* Answers 429 and 503 after which the request was sent again. */
uint64_t kvb_run_retried(const struct kvb_run *run);
void kvb_run_destroy(struct kvb_run *run);

/* The workloads: submit everything and wait for its end. */
enum kvw_err kvb_chat(struct kvb_run *run, struct event_base *base,
	const struct kvb_options *options) KVW_MUST_CHECK;
enum kvw_err kvb_replay(struct kvb_run *run, struct event_base *base,
	const struct kvb_options *options) KVW_MUST_CHECK;

#endif
