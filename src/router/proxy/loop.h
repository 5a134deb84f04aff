/*
 * loop.h - one event loop and everything that belongs to it alone.
 *
 * No object is freed inside its own callback: an ended object goes onto a list and is freed or
 * recycled when the loop has turned (kvw_loop_after_turn), so a caller may read `dead` or `ended`
 * of an object that its callee has just ended.
 */
#ifndef KVW_LOOP_H
#define KVW_LOOP_H

#include <pthread.h>

#include "openai/api_path.h"
#include "base/block.h"
#include "base/clock.h"
#include "http/head.h"
#include "base/io.h"
#include "fleet/link.h"
#include "proxy/gates.h"
#include "proxy/in_force.h"
#include "proxy/proxy.h"
#include "proxy/shared.h"
#include "openai/scan.h"
#include "proxy/listener.h"
#include "base/timer.h"
#include "http/write.h"

struct kvw_auth;
struct kvw_client;
struct kvw_exchange;
struct kvw_keyring;
struct kvw_trace_ring;
struct kvw_usage_shard;

/* Kinds of timer; each has one duration (timer.h). words.c has their names. */
enum kvw_timer_kind {
	KVW_TIMER_CLIENT_IDLE,
	KVW_TIMER_HEAD,
	KVW_TIMER_BODY,       /* until timeouts.body */
	KVW_TIMER_BODY_RATE,  /* KVW_TIMER_BODY_RATE: the speed of a body, checked every second */
	KVW_TIMER_WRITE,      /* the client takes no bytes */
	KVW_TIMER_LINGER,     /* discards a client's bytes after its answer */
	KVW_TIMER_CONNECT,
	KVW_TIMER_FIRST_TOKEN,
	KVW_TIMER_ATTEMPT,    /* time to first token at one worker */
	KVW_TIMER_REQUEST,    /* all of it */
	KVW_TIMER_KEY,        /* the whole request, for keys with a time limit of their own */
	KVW_TIMER_STREAM_IDLE,
	KVW_TIMER_PARK,       /* the wait for newer lists of models */
	KVW_TIMER_WAKE,       /* the wait for a worker of the model */
	KVW_TIMER_TOKENS,     /* the wait for the prompt's tokens */
	KVW_TIMER_SHADOW,     /* the whole of a copy */
	KVW_TIMER_PREFILL,    /* the wait until another worker has prefilled the prompt */
	KVW_TIMER_LEASE,      /* half of the lease of a prefilled prompt */
	KVW_TIMER_SILENCE,    /* http.keep_alive_comments */
};

#define KVW_LOOP_SPARES  3               /* large blocks offered to one read besides the tail */
#define KVW_LOOP_SCRATCH ((size_t)64 << 10) /* bytes read from a worker at once */
#define KVW_LOOP_IOV     64
#define KVW_LOOP_SCANS   64              /* idle scans kept for further requests ... */
/* ... and the most bytes that they may have together */
#define KVW_LOOP_SCANS_BYTES ((size_t)4 << 20)

struct kvw_leg; /* leg.h */
TAILQ_HEAD(kvw_leg_list, kvw_leg);
struct kvw_shadow; /* shadow.c */
TAILQ_HEAD(kvw_shadow_list, kvw_shadow);
TAILQ_HEAD(kvw_client_list, kvw_client);
TAILQ_HEAD(kvw_exchange_list, kvw_exchange);

struct kvw_loop {
	size_t index;
	struct kvw_shared *shared; /* by all loops */
	struct kvw_in_force *in_force;        /* the settings of requests that begin now */
	/* settings of older requests, released with the last of these */
	struct kvw_in_force *in_force_before;
	const struct kvw_config *config;      /* configuration in force in this turn */
	/* borrowed; NULL: clients need no keys, and the next two members are unused */
	struct kvw_auth *auth;
	struct kvw_keyring *keyring; /* a reference to the keyring that the last request used */
	uint64_t keyring_version;
	struct kvw_fleet *fleet;
	struct kvw_metrics_shard *metrics;
	struct kvw_access_log *access_log;
	struct kvw_admin *admin;
	struct kvw_trace_ring *trace; /* NULL: requests are not traced */
	struct kvw_usage_shard *usage; /* NULL: usage is not counted */
	bool joins; /* requests have a place in a distributed trace (tracing.h) */
	struct kvw_tls *tls; /* TLS for clients; borrowed; NULL: plain HTTP */

	/* For a strategy that wants exact tokens; sources NULL: the strategy wants none. */
	struct kvw_sources *sources;
	struct kvw_tokens_box *token_box;
	struct kvw_io token_io;
	struct kvw_kvchains chains; /* the keys of the prompt that was routed last */

	/* sockets of clients and workers, and the descriptors of the next two members */
	struct kvw_io_set sockets;
	struct kvw_listener *listeners; /* owned; listener_count */
	size_t listener_count;
	struct kvw_io wake_io;
	int wake_fd;
	int64_t tick_ns; /* when the next tick is due */
	pthread_t thread;
	bool started;

	/* time of the last turn, for /health; INT64_MAX: the loop has ended */
	_Atomic int64_t *turn_ns;
	int64_t now_ns; /* monotonic, of the event being handled */
	int64_t wall_offset_ns; /* wall clock minus now_ns; set by the last tick */
	struct kvw_timers timers;
	struct kvw_block_pool blocks;
	struct kvw_links links;
	struct kvw_block *spares[KVW_LOOP_SPARES];
	char *scratch;                  /* KVW_LOOP_SCRATCH */
	/* the head of head_owner, which was parsed last: not that of any request whose body has
	 * arrived or which has waited (kvw_request_field, kvw_request_own_head) */
	struct kvw_head request_head;
	/* the exchange whose head request_head holds; NULL: none */
	struct kvw_exchange *head_owner;
	struct kvw_head response_head;
	/* number of fields for which both heads have room; each request sets its own limit */
	size_t head_room;
	struct kvw_fleet_table candidates;
	struct kvw_date_cache date;
	/* idle scans, made by the settings in force; up to KVW_LOOP_SCANS */
	struct kvw_scan **scans;
	size_t scan_count, scan_bytes;
	uint64_t request_id_prefix, request_id_next;
	uint32_t unpaid; /* requests that have not been paid in at shared->repeats yet */

	struct kvw_client_list clients; /* all that live */
	struct kvw_client_list dead;
	struct kvw_exchange_list parked; /* exchanges that wait for a model list */
	/* exchanges that wait for a worker of their model, in order of arrival */
	struct kvw_exchange_list waking;
	/* the fleet's count of changes when the loop last looked for workers for them */
	uint64_t woken_changes;
	int64_t woken_ns;       /* when the loop last looked */
	struct kvw_gates gates; /* gates of requests that wait for room */
	/* exchanges that wait for the control thread's text */
	struct kvw_exchange_list want_metrics;
	struct kvw_exchange_list ended, free_exchanges;
	struct kvw_shadow_list shadows, ended_shadows; /* copies of requests (shadow.h) */
	struct kvw_leg_list ended_legs; /* prefills elsewhere (leg.h) */
	size_t client_count, free_exchange_count;
	int64_t idle_gauge, busy_gauge; /* counts of idle and busy links that the metrics show */
	int64_t looked_for_gone_ns; /* when the loop last looked for vanished clients */
	int64_t failover_ns; /* time of the last call of kvw_exchange_fail_over */
	/* workers are GONE: after this turn the loop releases those that it no longer refers to */
	bool letting_go;
	bool draining; /* each answer ends its connection */
	/* another process accepts: no client arrives any more, idle clients are closed after
	 * drain.settle, and the loop ends with its last client */
	bool handed;
	bool closed;   /* no client arrives any more, and idle clients are closed at once */
	bool settled;  /* handed, and drain.settle is over */
	int64_t settle_until_ns, drain_deadline_ns;
};

/* Makes the loop ready; it then owns the listening sockets, even if the call fails. */
enum kvw_err kvw_loop_init(struct kvw_loop *loop, struct kvw_shared *shared, size_t index,
	const struct kvw_proxy_deps *deps, const int *listen_fds,
	size_t listen_count) KVW_MUST_CHECK;
void kvw_loop_finish(struct kvw_loop *loop);
void *kvw_loop_main(void *arg); /* thread function; arg is the loop */
void kvw_loop_wake(struct kvw_loop *loop);

/* Starts timer with a duration in milliseconds. */
static inline void kvw_loop_timer(struct kvw_loop *loop, struct kvw_timer *timer,
	enum kvw_timer_kind kind, int64_t duration_ms)
{
	kvw_timer_set(
		&loop->timers, timer, (uint8_t)kind, loop->now_ns + duration_ms * KVW_NS_PER_MS);
}

#endif
