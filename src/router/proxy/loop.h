/*
 * loop.h - one event loop and everything that belongs to it alone.
 *
 * Nothing is freed inside its own callback: what ends goes onto a list and is freed or recycled
 * when the loop has turned (kvw_loop_after_turn), so a function may look at `dead` or `ended` of an
 * object that a function it called has just ended.
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

/* Kinds of timer; each has one duration (timer.h). Their names: words.c. */
enum kvw_timer_kind {
	KVW_TIMER_CLIENT_IDLE,
	KVW_TIMER_HEAD,
	KVW_TIMER_BODY,       /* until timeouts.body */
	KVW_TIMER_BODY_RATE,  /* then looked at every second */
	KVW_TIMER_WRITE,      /* the client takes nothing */
	KVW_TIMER_LINGER,     /* discarding what a client still sends after its answer */
	KVW_TIMER_CONNECT,
	KVW_TIMER_FIRST_TOKEN,
	KVW_TIMER_ATTEMPT,    /* the same, for one worker */
	KVW_TIMER_REQUEST,    /* all of it */
	KVW_TIMER_KEY,        /* all of it, of keys with a time of their own */
	KVW_TIMER_STREAM_IDLE,
	KVW_TIMER_PARK,       /* waiting for a model list */
	KVW_TIMER_WAKE,       /* waiting for a worker of its model */
	KVW_TIMER_TOKENS,     /* waiting for the prompt's tokens */
	KVW_TIMER_SHADOW,     /* all of a copy */
	KVW_TIMER_PREFILL,    /* waiting for the prompt to be prefilled elsewhere */
	KVW_TIMER_LEASE,      /* of what was prefilled */
	KVW_TIMER_SILENCE,    /* http.keep_alive_comments */
};

#define KVW_LOOP_SPARES  3               /* large blocks offered to one read besides the tail */
#define KVW_LOOP_SCRATCH ((size_t)64 << 10) /* bytes read from a worker at once */
#define KVW_LOOP_IOV     64
#define KVW_LOOP_SCANS   64              /* idle scans kept for the next requests ... */
#define KVW_LOOP_SCANS_BYTES ((size_t)4 << 20) /* ... and what they may hold together */

struct kvw_leg; /* leg.h */
TAILQ_HEAD(kvw_leg_list, kvw_leg);
struct kvw_shadow; /* shadow.c */
TAILQ_HEAD(kvw_shadow_list, kvw_shadow);
TAILQ_HEAD(kvw_client_list, kvw_client);
TAILQ_HEAD(kvw_exchange_list, kvw_exchange);

struct kvw_loop {
	size_t index;
	struct kvw_shared *shared; /* by all loops */
	struct kvw_in_force *in_force;        /* what requests that begin now get */
	struct kvw_in_force *in_force_before; /* what older requests have, by which it is dropped */
	const struct kvw_config *config;      /* in force in this turn */
	struct kvw_auth *auth; /* borrowed; NULL: clients need no keys, likewise the next two */
	struct kvw_keyring *keyring; /* a reference: as the last request found them */
	uint64_t keyring_version;
	struct kvw_fleet *fleet;
	struct kvw_metrics_shard *metrics;
	struct kvw_access_log *access_log;
	struct kvw_admin *admin;
	struct kvw_trace_ring *trace; /* NULL: requests are not traced */
	struct kvw_tls *tls; /* of clients; borrowed; NULL: plain */

	/* Of a strategy that asks for exact tokens; sources NULL: it does not. */
	struct kvw_sources *sources;
	struct kvw_tokens_box *token_box;
	struct kvw_io token_io;
	struct kvw_kvchains chains; /* of the prompt routed last */

	struct kvw_io_set sockets; /* of clients and workers, and these two */
	struct kvw_listener *listeners; /* owned; listener_count */
	size_t listener_count;
	struct kvw_io wake_io;
	int wake_fd;
	int64_t tick_ns; /* when the next tick is due */
	pthread_t thread;
	bool started;

	_Atomic int64_t *turn_ns; /* when it turned last, for /health; INT64_MAX: ended */
	int64_t now_ns; /* monotonic, of the event being handled */
	int64_t wall_offset_ns; /* what makes now_ns the time of day; as of the last tick */
	struct kvw_timers timers;
	struct kvw_block_pool blocks;
	struct kvw_links links;
	struct kvw_block *spares[KVW_LOOP_SPARES];
	char *scratch;                  /* KVW_LOOP_SCRATCH */
	struct kvw_head request_head;   /* of head_owner, parsed last */
	struct kvw_exchange *head_owner; /* whose head request_head shows; NULL: none */
	struct kvw_head response_head;
	size_t head_room; /* fields for which both have room; each request sets its own limit */
	struct kvw_fleet_table candidates;
	struct kvw_date_cache date;
	/* idle ones, made by the settings in force; up to KVW_LOOP_SCANS */
	struct kvw_scan **scans;
	size_t scan_count, scan_bytes;
	uint64_t request_id_prefix, request_id_next;
	uint32_t unpaid; /* requests not yet paid in at shared->repeats */

	struct kvw_client_list clients; /* all that live */
	struct kvw_client_list dead;
	struct kvw_exchange_list parked; /* waiting for a model list */
	/* waiting for a worker of their model, in the order in which they came */
	struct kvw_exchange_list waking;
	uint64_t woken_changes; /* of the fleet when it was last looked whether they have one */
	int64_t woken_ns;       /* when */
	struct kvw_gates gates; /* of requests that wait for room */
	struct kvw_exchange_list want_metrics; /* waiting for the control thread's text */
	struct kvw_exchange_list ended, free_exchanges;
	struct kvw_shadow_list shadows, ended_shadows; /* copies of requests (shadow.h) */
	struct kvw_leg_list ended_legs; /* prefills elsewhere (leg.h) */
	size_t client_count, free_exchange_count;
	int64_t idle_gauge, busy_gauge; /* of links, as metrics have them */
	int64_t looked_for_gone_ns; /* when clients were looked at last for those that vanished */
	int64_t failover_ns; /* when kvw_exchange_fail_over was called last */
	bool letting_go; /* workers are GONE: after this turn it is looked at what refers to them */
	bool draining; /* each answer ends its connection */
	/* another process accepts: no client comes any more, idle ones are let go after
	 * drain.settle, and when the last has gone the loop ends */
	bool handed;
	bool closed;   /* no client comes any more, and idle ones are let go at once */
	bool settled;  /* handed: drain.settle is over */
	int64_t settle_until_ns, drain_deadline_ns;
};

/* Makes the loop ready; takes the listening sockets, also when it fails. */
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
