/*
 * sim_worker.h - one simulated worker: a server, an engine and the timer between them.
 *
 * A worker belongs to one event loop, and only that loop's thread uses it. Workers share only the
 * options, which do not change any more.
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

/* A response that GET /v1/responses/ID returns. */
struct kvb_kept_response {
	char id[104]; /* the response's id, with its prefix */
	struct kvb_buf body;
};

#define KVB_TIMES_KEPT 16384

/* Simulated times of one answer. */
struct kvb_time {
	int64_t submit_ns, first_ns, end_ns;
	uint32_t prompt_len, cached_len, generated;
};

struct kvb_worker {
	const struct kvb_options *options;
	uint32_t index;
	/* Data-parallel ranks are several engines with one server. The first rank has the server,
	 * and the others refer to it; without ranks a worker is its only one. */
	struct kvb_worker *first;
	/* owned by the first rank: options->ranks entries, itself included */
	struct kvb_worker **ranks;
	uint32_t rank;             /* number of the rank in the server */
	uint32_t global_rank;      /* number of the rank in the deployment */
	/* in the first rank: the rank that gets the next request without a rank */
	uint32_t next_rank;
	struct event_base *base; /* borrowed */
	struct kvb_http *http;
	struct kvb_engine *engine;
	/* reports changes of the caches; NULL: nothing is reported */
	struct kvb_reporter *reporter;
	struct kvb_store *store;       /* the tiers below the device; NULL: there are none */
	struct kvb_nixl nixl;          /* transfers of KV to other workers */
	struct kvb_fixed *fixed;       /* NULL unless --fixed-response or --fixed-stream */

	struct kvb_sim_clock clock;
	struct event *ev_timer;
	bool step_running;
	bool held;       /* the next step waits for a tier; ev_timer limits the wait */
	int64_t held_ns; /* simulated time when that step begins */
	int64_t step_begin_ns, step_end_ns; /* simulated times of the last step that was planned */
	uint64_t prefilled, decoded;        /* numbers of tokens up to that step */
	int64_t latest_ns;                  /* longest real time by which a step ended too late */
	double late_sum_ns;                 /* sum of these times over all timers */
	uint64_t timers;                    /* number of steps that a timer ended */

	struct kvb_exchange_list exchanges;
	struct kvb_exchange_list coming; /* in the order of arrival; linked by `coming` */
	uint64_t early;                  /* number of requests with x-sim-due */
	uint64_t missed; /* those of them that came when a later step had begun already */
	uint64_t leavers;       /* number of requests with x-sim-leave */
	uint64_t left_before;   /* those of them that came after their client had left */
	int64_t left_before_ns; /* real time: by how much at most */
	uint32_t load;   /* number of generating requests that are not answered yet */
	struct kvb_metrics metrics;
	struct kvb_time *times; /* a ring of the latest KVB_TIMES_KEPT; owned */
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
	int64_t fail_left;    /* number of POSTs to which it still applies; -1: all */
};

/* Returns NULL on failure, with a message on standard error. `zmq` is a ZeroMQ context. `port` 0: a
 * free one. */
struct kvb_worker *kvb_worker_create(struct event_base *base, void *zmq,
	const struct kvb_options *options, uint32_t index, uint16_t port);
void kvb_worker_destroy(struct kvb_worker *worker);

/* Returns the rank that gets a request: the one that its header names, else the one with the fewest
 * requests. NULL: there is no rank with the number in the header, which is in *wrong. */
struct kvb_worker *kvb_worker_rank(
	struct kvb_worker *first, const struct kvb_request *request, uint64_t *wrong);
/* Called when there may be something to compute: begins a step unless one is running. */
void kvb_worker_kick(struct kvb_worker *worker);
/* Does the same at x->arrival_ns; until then the exchange is not in the engine. */
void kvb_worker_expect(struct kvb_worker *worker, struct kvb_exchange *x);
int64_t kvb_worker_sim_ns(const struct kvb_worker *worker); /* simulated time, now */
uint64_t kvb_worker_random(struct kvb_worker *worker);      /* for ids */
/* Starts a new engine with counters at 0, as after a restart; running requests are cut. Chunks on
 * NVMe or in a shared tier stay. Waits until the tiers are closed and open again. */
bool kvb_worker_restart(struct kvb_worker *worker);
/* Keeps a response; its id is passed without "resp_". The oldest one is dropped. */
void kvb_worker_keep_response(
	struct kvb_worker *worker, const char *id, const char *body, size_t len);
/* Returns the body of a kept response, or NULL; the id is passed with its prefix. */
const struct kvb_buf *kvb_worker_response(const struct kvb_worker *worker, const char *id);
/* Returns the text that is a single token; NULL: none. */
const char *kvb_worker_separator(const struct kvb_worker *worker);
/* Returns whether the model is served; *lora says whether it is an adapter. */
bool kvb_worker_serves(const struct kvb_worker *worker, const char *model, bool *lora);

#endif
