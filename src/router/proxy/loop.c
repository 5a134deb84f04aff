/*
 * loop.c - runs an event loop: its thread, its tick, and the work between two turns.
 */
#include "proxy/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include "auth/keyring.h"
#include "base/log.h"
#include "base/peer.h"
#include "fleet/epoch.h"
#include "proxy/admit_turn.h"
#include "proxy/advance.h"
#include "proxy/leg.h"
#include "proxy/listener.h"
#include "proxy/prepare.h"
#include "proxy/receive.h"
#include "proxy/shadow.h"
#include "usage/ledger.h"

#define TICK_NS             (20 * KVW_NS_PER_MS)
#define LOOK_FOR_GONE_NS    KVW_NS_PER_S
/* time between two passes over all clients while a worker is down */
#define FAILOVER_NS         (100 * KVW_NS_PER_MS)
#define FREE_EXCHANGES_KEPT 1024

static void sync_link_gauges(struct kvw_loop *loop)
{
	int64_t idle = (int64_t)loop->links.idle_total, busy = (int64_t)loop->links.busy_total;

	kvw_metrics_gauge(loop->metrics, KVW_GAUGE_UPSTREAM_IDLE, idle - loop->idle_gauge);
	kvw_metrics_gauge(loop->metrics, KVW_GAUGE_UPSTREAM_BUSY, busy - loop->busy_gauge);
	loop->idle_gauge = idle;
	loop->busy_gauge = busy;
}

/* Takes connections that have arrived, and their requests. */
static void take_arrived_clients(struct kvw_loop *loop)
{
	size_t before;

	do {
		before = loop->client_count;
		kvw_listeners_run(loop);
	} while (loop->client_count > before);
	for (size_t seen = 0; seen <= loop->client_count; seen += KVW_IO_EVENTS_AT_ONCE)
		kvw_io_set_dispatch(&loop->sockets);
}

static void let_idle_go(struct kvw_loop *loop)
{
	struct kvw_client *client, *next;

	for (client = TAILQ_FIRST(&loop->clients); client != NULL; client = next) {
		next = TAILQ_NEXT(client, entry);
		if (kvw_client_idle(client))
			kvw_client_lose(client, false);
		else if (client->exchange == NULL)
			kvw_io_again(&client->io);
	}
}

/* Stops accepting and lets idle clients go. */
static void close_listener(struct kvw_loop *loop)
{
	loop->closed = true;
	loop->drain_deadline_ns =
		loop->now_ns + loop->config->drain_timeout_ms * KVW_NS_PER_MS;
	take_arrived_clients(loop);
	kvw_listeners_stop(loop);
	let_idle_go(loop);
}

/*
 * Another process accepts from the same sockets: clients that wait there belong to that process. An
 * idle client may be about to send its next request, whose answer then says `close`; the client has
 * drain.settle for that.
 */
static void hand_clients_over(struct kvw_loop *loop)
{
	loop->handed = true;
	loop->drain_deadline_ns = loop->settle_until_ns +
				  loop->config->drain_timeout_ms * KVW_NS_PER_MS;
	kvw_listeners_stop(loop);
}

static void drain_handed(struct kvw_loop *loop)
{
	if (!loop->settled && loop->now_ns >= loop->settle_until_ns) {
		loop->settled = true;
		let_idle_go(loop);
	}
	loop->closed = loop->now_ns >= loop->drain_deadline_ns;
}

/* Cuts all clients when the time to finish is over. A client that does not take its answer at once
 * loses the answer in the next tick. */
static void cut_all(struct kvw_loop *loop)
{
	struct kvw_client *client, *next;

	for (client = TAILQ_FIRST(&loop->clients); client != NULL; client = next) {
		next = TAILQ_NEXT(client, entry);
		if (client->exchange != NULL)
			kvw_exchange_shut_down(client->exchange);
		else
			kvw_client_lose(client, client->reset);
	}
}

static void drain_clients(struct kvw_loop *loop)
{
	if (!loop->draining) {
		enum kvw_drain how = loop->shared->drain;
		int64_t settle_ms = how == KVW_DRAIN_NOW ? 0 : loop->config->drain_settle_ms;

		loop->draining = true;
		loop->settle_until_ns = loop->now_ns + settle_ms * KVW_NS_PER_MS;
		if (loop->index == 0)
			kvw_info("proxy", "draining settle_ms=%lld limit_ms=%lld",
				(long long)settle_ms, (long long)loop->config->drain_timeout_ms);
		if (how == KVW_DRAIN_HANDED)
			hand_clients_over(loop);
	}
	if (loop->handed)
		drain_handed(loop);
	else if (!loop->closed && loop->now_ns >= loop->settle_until_ns)
		close_listener(loop);
	if (loop->closed && loop->now_ns >= loop->drain_deadline_ns)
		cut_all(loop);
}

static void close_all(struct kvw_loop *loop)
{
	struct kvw_client *client;

	while ((client = TAILQ_FIRST(&loop->clients)) != NULL)
		kvw_receive_drop(client, false);
}

/* Drops clients that vanished. Keepalive finds those to which no bytes are sent; this function
 * checks answers on their way. */
static void drop_vanished(struct kvw_loop *loop)
{
	struct kvw_client *client, *next;

	if (loop->now_ns - loop->looked_for_gone_ns < LOOK_FOR_GONE_NS)
		return;
	loop->looked_for_gone_ns = loop->now_ns;
	for (client = TAILQ_FIRST(&loop->clients); client != NULL; client = next) {
		next = TAILQ_NEXT(client, entry);
		if (client->exchange != NULL &&
			kvw_peer_vanished(client->io.fd, loop->config->timeout_peer_gone_ms)) {
			kvw_trace_client(
				client->exchange->trace, loop->now_ns, KVW_TRACE_CLIENT_VANISHED);
			kvw_receive_drop(client, true);
		}
	}
}

static void loop_tick(struct kvw_loop *loop)
{
	loop->wall_offset_ns = kvw_clock_wall_ns() - kvw_clock_ns();
	kvw_timers_run(&loop->timers, loop->now_ns);
	kvw_listeners_tick(loop);
	kvw_links_sweep(&loop->links, loop->now_ns);
	if (!TAILQ_EMPTY(&loop->parked) || !TAILQ_EMPTY(&loop->want_metrics))
		kvw_exchange_unpark(loop);
	if (!TAILQ_EMPTY(&loop->waking))
		kvw_exchange_wake(loop);
	if ((atomic_load_explicit(&loop->fleet->down, memory_order_relaxed) > 0 ||
		    atomic_load_explicit(&loop->fleet->leaving, memory_order_acquire) > 0) &&
		loop->now_ns - loop->failover_ns >= FAILOVER_NS) {
		loop->failover_ns = loop->now_ns;
		kvw_exchange_fail_over(loop);
	}
	drop_vanished(loop);
	/* The turn after this one lets workers go: ended exchanges refer to their workers until the
	 * turn is over. */
	loop->letting_go = atomic_load_explicit(&loop->fleet->leaving, memory_order_acquire) > 0;
	sync_link_gauges(loop);
	kvw_usage_turn(loop->usage);
	if (atomic_load_explicit(&loop->shared->draining, memory_order_acquire))
		drain_clients(loop);
	kvw_shadow_look(loop);
}

static void loop_woken(struct kvw_io *io)
{
	struct kvw_loop *loop =
		(struct kvw_loop *)((char *)io - offsetof(struct kvw_loop, wake_io));
	uint64_t count;

	(void)!read(loop->wake_fd, &count, sizeof(count));
	loop->tick_ns = 0; /* at once */
}

void kvw_loop_wake(struct kvw_loop *loop)
{
	uint64_t one = 1;

	(void)!write(loop->wake_fd, &one, sizeof(one));
}

static void reap(struct kvw_loop *loop)
{
	struct kvw_exchange *x;
	struct kvw_client *client;

	while ((x = TAILQ_FIRST(&loop->ended)) != NULL) {
		TAILQ_REMOVE(&loop->ended, x, entry);
		kvw_in_force_release(loop, x->in_force);
		free(x->pd);
		if (loop->free_exchange_count >= FREE_EXCHANGES_KEPT) {
			free(x);
			continue;
		}
		TAILQ_INSERT_HEAD(&loop->free_exchanges, x, entry);
		loop->free_exchange_count++;
	}
	while ((client = TAILQ_FIRST(&loop->dead)) != NULL) {
		TAILQ_REMOVE(&loop->dead, client, entry);
		free(client->certificate);
		free(client);
	}
	kvw_shadow_reap(loop);
	kvw_leg_reap(loop);
	kvw_links_reap(&loop->links);
	if (loop->letting_go)
		kvw_links_let_go(&loop->links);
	loop->letting_go = false;
}

static void after_turn(struct kvw_loop *loop)
{
	reap(loop);
	kvw_epochs_turn(loop->fleet->epochs, loop->index);
	atomic_store_explicit(loop->turn_ns, loop->now_ns, memory_order_relaxed);
}

/* Returns the milliseconds until the tick, rounded up, so that the loop does not wake before the
 * tick is due. */
static int ms_until_tick(const struct kvw_loop *loop)
{
	int64_t left = loop->tick_ns - loop->now_ns;
	int64_t admit = kvw_admit_sleep_ns(loop);

	if (admit >= 0 && admit < left)
		left = admit;

	if (left <= 0)
		return 0;
	return (int)((left + KVW_NS_PER_MS - 1) / KVW_NS_PER_MS);
}

/* False: the loop cannot wait for its sockets. */
static bool take_turn(struct kvw_loop *loop)
{
	if (!kvw_io_set_wait(&loop->sockets, ms_until_tick(loop)))
		return false;
	loop->now_ns = kvw_clock_ns();
	kvw_in_force_look(loop);
	if (loop->now_ns >= loop->tick_ns) {
		/* After a pause (a stopped process, a busy machine) the loop sees what has come
		 * meanwhile before a timeout says that it did not come. */
		if (loop->now_ns - loop->tick_ns > TICK_NS && !kvw_io_set_wait(&loop->sockets, 0))
			return false;
		loop->tick_ns = loop->now_ns + TICK_NS;
		loop_tick(loop);
	}
	kvw_admit_turn(loop);
	after_turn(loop);
	return true;
}

void *kvw_loop_main(void *arg)
{
	struct kvw_loop *loop = arg;
	char name[16];

	(void)snprintf(name, sizeof(name), "kvway-loop-%zu", loop->index);
	(void)pthread_setname_np(pthread_self(), name);
	while ((!loop->closed && !loop->handed) || loop->client_count > 0) {
		if (!take_turn(loop)) {
			kvw_error("proxy", "event loop failed loop=%zu why=\"%s\"", loop->index,
				strerror(errno));
			break;
		}
	}
	atomic_store_explicit(loop->turn_ns, INT64_MAX, memory_order_relaxed);
	return NULL;
}

static void init_lists(struct kvw_loop *loop)
{
	TAILQ_INIT(&loop->clients);
	TAILQ_INIT(&loop->dead);
	TAILQ_INIT(&loop->parked);
	TAILQ_INIT(&loop->waking);
	TAILQ_INIT(&loop->want_metrics);
	TAILQ_INIT(&loop->ended);
	TAILQ_INIT(&loop->shadows);
	TAILQ_INIT(&loop->ended_shadows);
	TAILQ_INIT(&loop->ended_legs);
	TAILQ_INIT(&loop->free_exchanges);
	kvw_timers_init(&loop->timers);
}

static enum kvw_err init_memory(struct kvw_loop *loop)
{
	const struct kvw_config *config = loop->config;

	loop->scratch = aligned_alloc(64, KVW_LOOP_SCRATCH);
	loop->candidates.items =
		calloc(KVW_MAX_WORKERS, sizeof(loop->candidates.items[0]));
	loop->scans = calloc(KVW_LOOP_SCANS, sizeof(loop->scans[0]));
	if (loop->scratch == NULL || loop->candidates.items == NULL || loop->scans == NULL ||
		kvw_head_init(&loop->request_head, (size_t)config->limits_headers) != KVW_OK ||
		kvw_head_init(&loop->response_head, (size_t)config->limits_headers) != KVW_OK)
		return KVW_ENOMEM;
	if (loop->auth != NULL) /* the buffers may contain keys */
		kvw_head_remember_none(&loop->request_head);
	loop->head_room = (size_t)config->limits_headers;
	return KVW_OK;
}

static enum kvw_err init_loop_events(struct kvw_loop *loop)
{
	loop->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (loop->wake_fd < 0 || kvw_io_set_init(&loop->sockets) != KVW_OK ||
		kvw_listeners_watch(loop) != KVW_OK ||
		kvw_io_watch(&loop->wake_io, &loop->sockets, loop->wake_fd, loop_woken) != KVW_OK)
		return KVW_EIO;
	return kvw_links_init(&loop->links, &loop->sockets, loop->fleet);
}

static enum kvw_err init_tokens(struct kvw_loop *loop, const struct kvw_proxy_deps *deps)
{
	enum kvw_err err;

	if (deps->sources == NULL)
		return KVW_OK;
	err = kvw_tokens_box_create(&loop->token_box);
	if (err == KVW_OK)
		err = kvw_io_watch(&loop->token_io, &loop->sockets,
			kvw_tokens_box_fd(loop->token_box), kvw_prepare_box);
	if (err != KVW_OK)
		return err;
	loop->sources = deps->sources;
	return KVW_OK;
}

enum kvw_err kvw_loop_init(struct kvw_loop *loop, struct kvw_shared *shared, size_t index,
	const struct kvw_proxy_deps *deps, const int *listen_fds, size_t listen_count)
{
	enum kvw_err err;

	memset(loop, 0, sizeof(*loop));
	loop->wake_fd = loop->sockets.fd = -1;
	loop->index = index;
	loop->shared = shared;
	loop->config = deps->config;
	loop->fleet = deps->fleet;
	loop->metrics = kvw_metrics_shard(deps->metrics, index);
	loop->access_log = deps->access_log;
	loop->admin = deps->admin;
	loop->trace = kvw_trace_ring(deps->trace, index);
	loop->usage = kvw_ledger_shard(deps->ledger, index);
	loop->joins = kvw_trace_joins(loop->trace);
	loop->auth = deps->auth;
	loop->turn_ns = &deps->loop_turn_ns[index];
	loop->now_ns = kvw_clock_ns();
	loop->tick_ns = loop->now_ns + TICK_NS;
	loop->wall_offset_ns = kvw_clock_wall_ns() - loop->now_ns;
	init_lists(loop);
	if (getrandom(&loop->request_id_prefix, sizeof(loop->request_id_prefix), 0) < 0)
		loop->request_id_prefix = (uint64_t)kvw_clock_wall_ns() ^ index << 56;
	err = kvw_listeners_init(loop, listen_fds, listen_count);
	if (err == KVW_OK)
		err = init_memory(loop);
	if (err == KVW_OK)
		err = init_loop_events(loop);
	if (err == KVW_OK)
		err = init_tokens(loop, deps);
	if (err == KVW_OK)
		err = kvw_in_force_begin(loop, deps->config, deps->strategy);
	if (err != KVW_OK)
		kvw_loop_finish(loop);
	return err;
}

void kvw_loop_finish(struct kvw_loop *loop)
{
	struct kvw_exchange *x;

	close_all(loop);
	kvw_shadow_finish(loop);
	kvw_leg_reap(loop);
	reap(loop);
	kvw_gates_finish(&loop->gates);
	kvw_in_force_end(loop);
	kvw_keyring_unref(loop->keyring);
	kvw_tokens_box_close(loop->token_box);
	kvw_kvchains_finish(&loop->chains);
	kvw_links_finish(&loop->links);
	while ((x = TAILQ_FIRST(&loop->free_exchanges)) != NULL) {
		TAILQ_REMOVE(&loop->free_exchanges, x, entry);
		free(x);
	}
	while (loop->scan_count > 0)
		kvw_scan_destroy(loop->scans[--loop->scan_count]);
	for (size_t i = 0; i < KVW_LOOP_SPARES; i++) {
		kvw_block_put(&loop->blocks, loop->spares[i]);
		loop->spares[i] = NULL;
	}
	kvw_block_pool_finish(&loop->blocks);
	kvw_listeners_finish(loop);
	kvw_io_set_finish(&loop->sockets);
	if (loop->wake_fd >= 0)
		close(loop->wake_fd);
	kvw_head_finish(&loop->request_head);
	kvw_head_finish(&loop->response_head);
	free(loop->scratch);
	free(loop->candidates.items);
	free(loop->scans);
}
