/*
 * feed.h - the thread that reads the workers' reports about their caches.
 *
 * One thread with one ZeroMQ context; it alone writes the exact index. Each protocol is a module:
 * vLLM's event streams (vllm_feed.h) and LMCache's controller protocol (lmcache/lmcache.h). A
 * module registers sockets and timers, and is called on this thread only. A module must not block.
 *
 * Each turn handles at most KVW_FEED_BURST messages of a socket before the others, so that one busy
 * worker cannot starve the rest. Other threads give it work by kvw_feed_post.
 */
#ifndef KVW_FEED_H
#define KVW_FEED_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "fleet/fleet.h"
#include "feeds/kvspace.h"
#include "server/sockets.h"
#include "kvway/exact.h"
#include "kvway/keep.h"
#include "kvway/route.h"

#define KVW_FEED_BURST   64
#define KVW_FEED_POSTS   1024 /* limit of waiting calls from kvw_feed_post */
#define KVW_FEED_MODULES 4

struct kvw_duty; /* base/duty.h */
struct kvw_feed;

/* A protocol in which workers report their caches. Static. */
struct kvw_feed_module {
	const char *name;

	/* Called by kvw_feed_start, before the thread runs: opens the configured sockets. Sets
	 * *state, to NULL if none is configured. On failure, the cause is printed to `errors` and
	 * nothing stays open. */
	enum kvw_err (*start)(struct kvw_feed *feed, FILE *errors, void **state) KVW_MUST_CHECK;

	/* Optional, feed thread: called after these workers' caches were lost and purged from the
	 * index. */
	void (*purged)(void *state, const uint32_t *workers, size_t count);

	/* Optional, feed thread, with deps->waits: called when engines may connect. */
	void (*listen)(void *state);
	/* Optional, feed thread: another process listens now. Closes the sockets to which engines
	 * connect. */
	void (*hand_over)(void *state);
	/* Optional, feed thread, after hand_over: writes the state from which the next process can
	 * continue without asking the workers again. */
	enum kvw_err (*keep)(void *state, const struct kvw_keep_out *out);
	/* Optional, feed thread, before listen: recall takes one record of the former process, of
	 * any module; recalled is called after the last record; all_came: no record is missing. */
	void (*recall)(void *state, enum kvw_keep_kind kind, const uint8_t *record, size_t len);
	void (*recalled)(void *state, bool all_came);
	/* Optional, feed thread: returns whether every reachable worker has reported its cache, or
	 * shown that it will not. */
	bool (*settled)(void *state);

	/* Called after the thread has ended: closes the module's sockets. Only if start set a
	 * state. */
	void (*stop)(void *state);
};

/* All members are borrowed, and must outlive the feed. */
struct kvw_feed_deps {
	const struct kvw_config *config;
	struct kvw_fleet *fleet;
	struct kvw_exact *exact;
	struct kvw_kvspaces *spaces;
	/* Used only during kvw_feed_start; NULL: no socket is inherited or passed on. */
	struct kvw_sockets *sockets;
	/* Engines may connect only after kvw_feed_listen, since another process still listens. */
	bool waits;
	/* the task of LMCache's coordinator, on which replicas agree; NULL: this process alone */
	struct kvw_duty *coordinating;
	/* the modules, up to the first NULL */
	const struct kvw_feed_module *modules[KVW_FEED_MODULES + 1];
};

/* Makes the thread and starts its modules. KVW_EINVAL: an address is invalid or cannot be bound;
 * `errors` has the address and the cause. */
enum kvw_err kvw_feed_start(
	const struct kvw_feed_deps *deps, FILE *errors, struct kvw_feed **out) KVW_MUST_CHECK;
void kvw_feed_stop(struct kvw_feed *feed); /* NULL is allowed; joins the thread */

/* --- any thread --- */

/* Ends deps.waits, since the former process has stopped listening. Takes `handed`, a memory file
 * with the records of its modules; -1: none. A fault in the file is logged, and the records are
 * lost. */
void kvw_feed_listen(struct kvw_feed *feed, int handed);
/* Hands over: from now on engines connect to another process. Waits until the sockets are closed
 * and, with `reads`, the modules' records are written, but at most wait_ns. Returns a memory file
 * with the records, which the caller owns; -1: none. */
int kvw_feed_hand_over(struct kvw_feed *feed, int64_t wait_ns, bool reads);
/* Returns whether all modules were settled at the last tick. */
bool kvw_feed_settled(const struct kvw_feed *feed);

/* Runs fn(arg) on the feed's thread, soon. KVW_ELIMIT: KVW_FEED_POSTS posts wait already;
 * KVW_ECLOSED: the feed stops. kvw_feed_stop calls the functions that still wait, with
 * kvw_feed_stopped(feed) true, so that they can free arg. */
typedef void kvw_feed_fn(struct kvw_feed *feed, void *arg);
enum kvw_err kvw_feed_post(struct kvw_feed *feed, kvw_feed_fn *fn, void *arg) KVW_MUST_CHECK;
bool kvw_feed_stopped(const struct kvw_feed *feed);

/* Returns the state that this module's start set; NULL: none, or the feed does not have the
 * module. */
void *kvw_feed_module_state(const struct kvw_feed *feed, const struct kvw_feed_module *module);

/* Counters since start. */
enum kvw_feed_counter {
	KVW_FEED_MESSAGES,         /* received from workers */
	KVW_FEED_BYTES,            /* of them */
	KVW_FEED_BATCHES,          /* applied */
	KVW_FEED_EVENTS,           /* applied */
	KVW_FEED_REFUSED,          /* messages that are malformed or cannot be read */
	KVW_FEED_GAPS,             /* gaps in the sequence numbers of workers */
	KVW_FEED_REPLAYS,          /* requested */
	KVW_FEED_REPLAYED_BATCHES, /* batches applied from replays; counted in BATCHES, too */
	KVW_FEED_LOST_BATCHES,     /* batches that no replay could recover */
	/* events dropped, at least one per lost batch; and events of unknown types */
	KVW_FEED_DROPPED_EVENTS,
	KVW_FEED_RESTARTS,         /* restarts of engines, found by their sequence numbers */
	KVW_FEED_POSTS_REFUSED,
	KVW_FEED_COUNTERS
};

/* Returns a counter's label for metrics, for example "messages". */
const char *kvw_feed_counter_name(enum kvw_feed_counter counter);

/* Upper bounds of the lag's histogram, in seconds; a last bucket counts greater values. */
#define KVW_FEED_LAGS 13
extern const double kvw_feed_lag_bounds[KVW_FEED_LAGS];

struct kvw_feed_stats {
	uint64_t counts[KVW_FEED_COUNTERS];
	/* live batches since the start by lag, each in one bucket */
	uint64_t lags[KVW_FEED_LAGS + 1];
	double lag_sum_s;                 /* of them */
	/* Lag of live batches in the last 30 to 60 s: the time from the engine's own time stamp
	 * until a batch was applied; negative: there was no batch. Differing clocks show here. */
	double lag_p50_ms, lag_p99_ms;
	int64_t cpu_ns;                       /* CPU time of the feed's thread */
	uint32_t sockets;                     /* watched */
	/* Time from listening in the former process's place until an engine was heard; 0: none
	 * was. */
	int64_t handover_ns;
	uint32_t coverages[KVW_REPORTER_COUNT][3]; /* number of workers by enum kvw_coverage */
};

/* Fills *out. */
void kvw_feed_stats(struct kvw_feed *feed, struct kvw_feed_stats *out);

/* Status of one worker, by one kind of reporter. */
struct kvw_feed_status {
	enum kvw_coverage coverage;
	uint32_t sources;  /* streams of events */
	uint64_t sequence; /* number of the last message of any of its ranks */
	int64_t lag_ns;    /* lag of that message; negative: unknown */
	int64_t heard_ns;  /* when that message arrived, monotonic; 0: none did */
	/* Why the coverage is not FULL, and what helps; empty: it is. */
	char wrong[256];
};

/* Fills *out. KVW_ENOTFOUND: no such worker. */
enum kvw_err kvw_feed_worker_status(struct kvw_feed *feed, uint32_t worker,
	enum kvw_reporter reporter, struct kvw_feed_status *out) KVW_MUST_CHECK;

/* Returns how much is known of an existing worker's cache by its own reports. */
enum kvw_knowledge kvw_feed_knowledge(const struct kvw_feed *feed, uint32_t worker);

/* --- for modules, on the feed's thread or in start --- */

const struct kvw_feed_deps *kvw_feed_deps(const struct kvw_feed *feed);
void *kvw_feed_context(struct kvw_feed *feed);     /* ZeroMQ's */
int64_t kvw_feed_now(const struct kvw_feed *feed); /* start of this turn, monotonic ns */

/* Has fn called while the socket can be read: fn reads one message, and returns false when there
 * was none. KVW_ENOMEM. */
typedef bool kvw_feed_read_fn(void *socket, void *ctx);
enum kvw_err kvw_feed_watch(
	struct kvw_feed *feed, void *socket, kvw_feed_read_fn *fn, void *ctx) KVW_MUST_CHECK;
void kvw_feed_unwatch(struct kvw_feed *feed, void *socket); /* may be called from within fn */

/* The same for the descriptor of an event loop, such as struct kvw_io_set's. fn is called with
 * `handle`, which also names the watch for kvw_feed_unwatch, and returns false when the loop has
 * nothing more to do. KVW_ENOMEM. */
enum kvw_err kvw_feed_watch_fd(struct kvw_feed *feed, int fd, void *handle, kvw_feed_read_fn *fn,
	void *ctx) KVW_MUST_CHECK;

/* Calls fn about every interval until the feed stops. KVW_ENOMEM. */
enum kvw_err kvw_feed_every(
	struct kvw_feed *feed, int64_t interval_ns, kvw_feed_fn *fn, void *ctx) KVW_MUST_CHECK;

/* Called when a message arrived on a socket to which engines connect. */
void kvw_feed_heard_there(struct kvw_feed *feed);

void kvw_feed_count(struct kvw_feed *feed, enum kvw_feed_counter counter, uint64_t n);

/* Records that a message of a worker was applied. sent_ns: the message's own time stamp, wall
 * clock; 0: it has none, or its age means nothing. */
void kvw_feed_heard(struct kvw_feed *feed, uint32_t worker, enum kvw_reporter reporter,
	uint64_t sequence, int64_t sent_ns);

/* Sets a reporter's coverage of a worker, in the exact view and in the worker's status; wrong: the
 * reason, cut if too long; "": none. */
void kvw_feed_set_coverage(struct kvw_feed *feed, uint32_t worker, enum kvw_reporter reporter,
	enum kvw_coverage coverage, uint32_t sources, const char *wrong);

#endif
