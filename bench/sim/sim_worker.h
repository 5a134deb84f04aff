/*
 * sim_worker.h - one simulated worker: a server, an engine and the timer between them.
 *
 * A worker belongs to one event loop and is touched by that loop's thread only. Workers share
 * nothing but the options, which are read-only by then.
 */
#ifndef KVB_SIM_WORKER_H
#define KVB_SIM_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "bench/sim/sim_clock.h"
#include "bench/sim/sim_engine.h"
#include "bench/sim/sim_fail.h"
#include "bench/sim/sim_http.h"
#include "bench/sim/sim_metrics.h"
#include "bench/sim/sim_nixl.h"
#include "bench/sim/sim_options.h"

struct event;
struct event_base;
struct kvb_exchange;
struct kvb_fixed;
struct kvb_store;
struct kvb_reporter;
TAILQ_HEAD(kvb_exchange_list, kvb_exchange);

#define KVB_RESPONSES_KEPT 64

/* One response that GET /v1/responses/ID gives back. */
struct kvb_kept_response {
	char id[104]; /* with its prefix */
	struct kvb_buf body;
};

#define KVB_TIMES_KEPT 16384

/* What one answer took, simulated. */
struct kvb_time {
	int64_t submit_ns, first_ns, end_ns;
	uint32_t prompt_len, cached_len, generated;
};

struct kvb_worker {
	const struct kvb_options *options;
	uint32_t index;
	/* Data-parallel ranks: engines behind one server. The first has the server and all others,
	 * which have none of their own; without ranks a worker is its only one. */
	struct kvb_worker *first;
	struct kvb_worker **ranks; /* the first's, [options->ranks], itself included; owned */
	uint32_t rank;             /* in the server */
	uint32_t global_rank;      /* in the deployment */
	uint32_t next_rank;        /* the first's: takes the next request without a rank */
	struct event_base *base; /* borrowed */
	struct kvb_http *http;
	struct kvb_engine *engine;
	struct kvb_reporter *reporter; /* of its caches; NULL: nothing */
	struct kvb_store *store;       /* the tiers below the device; NULL: none */
	struct kvb_nixl nixl;          /* transfers of KV to other workers */
	struct kvb_fixed *fixed;       /* NULL unless --fixed-response or --fixed-stream */

	struct kvb_sim_clock clock;
	struct event *ev_timer;
	bool step_running;
	bool held;       /* the next step waits for a tier; ev_timer ends the patience with it */
	int64_t held_ns; /* simulated; when that step begins */
	int64_t step_begin_ns, step_end_ns; /* simulated; of the last step that was planned */
	uint64_t prefilled, decoded;        /* tokens, up to that step */
	int64_t latest_ns;                  /* real time by which a step ended too late, at worst */
	double late_sum_ns;                 /* the sum over all timers */
	uint64_t timers;                    /* steps that ended by timer */

	struct kvb_exchange_list exchanges;
	struct kvb_exchange_list coming; /* by arrival; linked by `coming` */
	uint64_t early;                  /* requests that came with x-sim-due */
	uint64_t missed; /* of those, which came when a later step had begun already */
	uint64_t leavers;       /* requests that came with x-sim-leave */
	uint64_t left_before;   /* of those, which came after that */
	int64_t left_before_ns; /* real; by so much at most */
	uint32_t load;   /* generating requests that are not answered yet */
	struct kvb_metrics metrics;
	struct kvb_time *times; /* the latest KVB_TIMES_KEPT, a ring; owned */
	uint64_t times_count;   /* ever */
	struct kvb_kept_response responses[KVB_RESPONSES_KEPT]; /* a ring */
	uint32_t responses_next;
	double start_s; /* wall clock, seconds since 1970 */
	uint64_t id_state;
	char fingerprint[32];

	int health_status;
	bool sleeping, paused;
	int sleep_level;
	struct kvb_fail fail; /* set by /sim/fail */
	int64_t fail_left;    /* POSTs it still applies to; -1: all */
};

/* NULL with a message on standard error. `zmq`: a ZeroMQ context. `port` 0: a free one. */
struct kvb_worker *kvb_worker_create(struct event_base *base, void *zmq,
	const struct kvb_options *options, uint32_t index, uint16_t port);
void kvb_worker_destroy(struct kvb_worker *worker);

/* The rank that gets a request: the one that its header names, else the one with the fewest
 * requests. NULL: the header names none, and *wrong has its number. */
struct kvb_worker *kvb_worker_rank(
	struct kvb_worker *first, const struct kvb_request *request, uint64_t *wrong);
/* There may be something to compute: begins a step unless one is running. */
void kvb_worker_kick(struct kvb_worker *worker);
/* The same once x->arrival_ns has come; until then the exchange is not in the engine. */
void kvb_worker_expect(struct kvb_worker *worker, struct kvb_exchange *x);
int64_t kvb_worker_sim_ns(const struct kvb_worker *worker); /* simulated time, now */
uint64_t kvb_worker_random(struct kvb_worker *worker);      /* for ids */
/* A new engine and counters at 0, as after a restart; running requests are cut. What lies on NVMe
 * or in a shared tier stays. Waits for the tiers to close and open. */
bool kvb_worker_restart(struct kvb_worker *worker);
/* Remembers a response; its id comes without "resp_". The oldest one is forgotten. */
void kvb_worker_keep_response(
	struct kvb_worker *worker, const char *id, const char *body, size_t len);
/* The body of a remembered response, or NULL; the id with its prefix. */
const struct kvb_buf *kvb_worker_response(const struct kvb_worker *worker, const char *id);
/* The text that is one token; NULL: none. */
const char *kvb_worker_separator(const struct kvb_worker *worker);
/* Returns whether the model is served; *lora says whether it is an adapter. */
bool kvb_worker_serves(const struct kvb_worker *worker, const char *model, bool *lora);

#endif
