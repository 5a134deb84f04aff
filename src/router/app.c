/*
 * app.c - makes the parts of the router, runs them, and takes them down.
 *
 * Parts are made in the order of struct kvw_app (app_parts.h) and taken down in reverse; in between
 * the main thread waits (app_wait.c).
 *
 * A process that takes over makes all its parts but those that accept, waits until it knows its
 * workers, then accepts, and only then lets the one before it go.
 */
#include "app.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/access_log.h"
#include "admin/admin.h"
#include "admin/metrics_totals.h"
#include "app_parts.h"
#include "auth/auth.h"
#include "auth/jwt_gate.h"
#include "base/clock.h"
#include "feeds/coordinator/coordinator.h"
#include "feeds/feed.h"
#include "feeds/kvspace.h"
#include "feeds/lmcache/lmcache.h"
#include "feeds/sources.h"
#include "base/log.h"
#include "base/notify.h"
#include "proxy/proxy.h"
#include "sharing/sharing.h"
#include "state/rest.h"
#include "state/state.h"
#include "status/status.h"
#include "takeover/activation.h"
#include "takeover/giver.h"
#include "takeover/taker.h"
#include "trace/trace.h"
#include "usage/ledger.h"
#include "feeds/vllm_feed.h"

/* The protocols by which workers report their caches. */
static const struct kvw_feed_deps feed_modules = {
	.modules = {&kvw_vllm_feed, &kvw_lmcache_module, &kvw_coordinator_module},
};

/* Warns if no worker can report its cache: then kvaware does what prefixaware does, with more
 * effort. */
static void warn_if_deaf(const struct kvw_config *config)
{
	bool events = config->kvaware_events_discover ||
		      config->kvaware_events_endpoint[0] != '\0' ||
		      config->kvaware_events_bind[0] != '\0';

	for (size_t i = 0; i < config->worker_count && !events; i++)
		events = config->workers[i].events_endpoint[0] != '\0';
	if (!events && config->kvaware_lmcache_pull[0] == '\0' &&
		config->kvaware_lmcache_coordinator[0] == '\0')
		kvw_warn("app", "strategy kvaware, but nothing to listen to: set kvaware.events or "
				"kvaware.lmcache; until then it routes like prefixaware");
}

/* Starts the feeds and the tokenizer for a strategy that asks for exact tokens; it also has a view
 * for feeds to fill. */
static enum kvw_err start_exact(struct kvw_app *app)
{
	struct kvw_strategy *strategy = app->fleet->strategy;
	const struct kvw_strategy_ops *ops = strategy->ops;
	struct kvw_feed_deps deps = feed_modules;
	enum kvw_err err;

	if (ops->prepare < KVW_PREPARE_TOKENS || ops->exact == NULL)
		return KVW_OK;
	warn_if_deaf(app->config);
	err = kvw_kvspaces_create(&app->spaces);
	if (err != KVW_OK)
		return err;
	deps.config = app->config;
	deps.fleet = app->fleet;
	deps.exact = ops->exact(strategy);
	deps.spaces = app->spaces;
	deps.sockets = &app->sockets;
	deps.waits = app->taker != NULL;
	deps.coordinating = app->load_sharing != NULL ? &app->coordinating : NULL;
	err = kvw_feed_start(&deps, stderr, &app->feed);
	if (err != KVW_OK)
		return err;
	err = kvw_tokens_start(app->config, app->fleet, &app->memory, &app->tokens);
	if (err != KVW_OK)
		return err;
	return kvw_sources_create(
		&(struct kvw_sources_deps){
			.config = app->config,
			.fleet = app->fleet,
			.feed = app->feed,
			.tokens = app->tokens,
			.spaces = app->spaces,
			.exact = deps.exact,
		},
		&app->sources);
}

/* Called by the control thread when a worker has left. */
static void forget_worker(void *arg, uint32_t worker)
{
	struct kvw_app *app = arg;
	struct kvw_strategy *strategy = app->fleet->strategy;
	const struct kvw_strategy_ops *ops = strategy->ops;
	struct kvw_proxy *proxy = app->proxy;

	if (ops->left != NULL)
		ops->left(strategy, worker);
	else if (ops->purge != NULL)
		ops->purge(strategy, worker);
	if (app->tokens != NULL)
		kvw_tokens_forget(app->tokens, worker);
	if (app->sources != NULL)
		kvw_sources_forget(app->sources, worker);
	kvw_metrics_totals_keep(app->metrics, worker);
	kvw_metrics_forget(app->metrics, worker);
	if (proxy != NULL)
		kvw_proxy_forget_worker(proxy, worker);
}

/* Starts the checks of clients: of their keys, tokens and tenants. */
static enum kvw_err start_auth(struct kvw_app *app)
{
	const struct kvw_config *config = app->config;
	struct kvw_jwt_gate *gate = NULL;
	enum kvw_err err;

	if (config->auth_keys_file[0] == '\0' && !kvw_jwt_wanted(config))
		return KVW_OK;
	err = kvw_auth_start(config->auth_keys_file, stderr, &app->auth);
	if (err == KVW_OK && config->auth_isolate_tenants)
		err = kvw_auth_isolate(app->auth, config->auth_tenant_secret_file, stderr);
	if (err != KVW_OK || !kvw_jwt_wanted(config))
		return err;
	err = kvw_jwt_gate_start(config, stderr, &gate);
	if (err == KVW_OK)
		kvw_auth_take_jwt(app->auth, gate);
	return err;
}

static enum kvw_err keep_proxy(void *proxy, const struct kvw_keep_out *out)
{
	return kvw_proxy_keep(proxy, out);
}

static void recall_proxy(void *proxy, const struct kvw_keep_in *in)
{
	kvw_proxy_recall(proxy, in);
}

static void offer_explain(struct kvw_app *app, struct kvw_proxy *proxy)
{
	app->dry = (struct kvw_dry_deps){
		.proxy = {.config = app->config,
			.fleet = app->fleet,
			.strategy = app->fleet->strategy,
			.metrics = app->metrics,
			.auth = app->auth,
			.sources = app->sources},
		.shared = kvw_proxy_shared(proxy),
		.feed = app->feed,
	};
	app->explainer = kvw_dry_explainer(&app->dry);
	kvw_admin_set_explainer(app->admin, &app->explainer);
}

/* Called before the loops run, so that /explain answers as soon as they do. */
static void prepare_loops(void *arg, struct kvw_proxy *proxy)
{
	struct kvw_app *app = arg;
	const struct kvw_state_part part = {
		.keep = keep_proxy, .recall = recall_proxy, .arg = proxy};

	offer_explain(app, proxy);
	if (app->state != NULL)
		kvw_state_recall_part(app->state, &part);
}

/* Restores the snapshot before kvway asks workers and serves clients. Without state.file only an
 * upgrade brings a snapshot, from the process before. */
static enum kvw_err recall_state(struct kvw_app *app)
{
	enum kvw_err err;

	err = kvw_state_create(
		app->config, app->fleet, app->snapshot, app->recall_until_ns, &app->state);
	app->snapshot = -1;
	if (err != KVW_OK)
		return err;
	kvw_state_rest(app->state, true); /* no snapshots until this process is in charge */
	kvw_state_recall(app->state);
	return KVW_OK;
}

/* One connection is shared if both use the same Redis. */
static enum kvw_err create_sharing(struct kvw_app *app)
{
	const struct kvw_config *config = app->config;
	bool rates = config->rate_sharing_redis[0] != '\0',
	     load = config->replicas_redis[0] != '\0';
	bool both = rates && load &&
		    strcmp(config->rate_sharing_redis, config->replicas_redis) == 0 &&
		    strcmp(config->rate_sharing_service, config->replicas_service) == 0;
	enum kvw_err err = KVW_OK;

	/* Usage goes with limits, which have keys, too, or else with load. */
	if (rates)
		err = kvw_sharing_create(config,
			KVW_SHARED_RATES | KVW_SHARED_USAGE | (both ? KVW_SHARED_LOAD : 0), stderr,
			&app->sharing);
	if (err == KVW_OK && both)
		app->load_sharing = app->sharing;
	else if (err == KVW_OK && load)
		err = kvw_sharing_create(config, KVW_SHARED_LOAD | (rates ? 0 : KVW_SHARED_USAGE),
			stderr, &app->load_sharing);
	if (err == KVW_OK && load && config->kvaware_lmcache_coordinator[0] != '\0')
		err = kvw_sharing_agree(
			app->load_sharing, config, "coordinator", &app->coordinating);
	return err;
}

static enum kvw_err start_sharing(struct kvw_app *app)
{
	struct kvw_rate_table *rates = kvw_proxy_rates(app->proxy);
	struct kvw_admission *admission = kvw_proxy_admission(app->proxy);
	enum kvw_err err = KVW_OK;

	if (app->sharing != NULL)
		err = kvw_sharing_start(
			app->sharing, rates, app->fleet, admission, app->ledger);
	if (err == KVW_OK && app->load_sharing != NULL && app->load_sharing != app->sharing)
		err = kvw_sharing_start(
			app->load_sharing, NULL, app->fleet, admission, app->ledger);
	return err;
}

/* Ends the start: the process before this one has refused after all and goes on serving, so that
 * this one must not. */
static enum kvw_err refused(const char *why)
{
	fprintf(stderr, "kvway: --takeover: the running kvway serves on: %s\n", why);
	return KVW_EIO;
}

/* Asks for the keys by which clients resume their TLS sessions, before any TLS context is made. */
static enum kvw_err ask_for_tickets(struct kvw_app *app)
{
	char why[256];

	return kvw_taker_tickets(app->taker, &app->fleet->certificates, why) ? KVW_OK
									     : refused(why);
}

static const char *variable(const char *name)
{
	return getenv(name);
}

/* Makes the records of requests, and starts the export of spans that are made from them. */
static enum kvw_err start_trace(struct kvw_app *app)
{
	enum kvw_err err = kvw_otel_settings_make(
		app->config, app->loop_count, variable, &app->tracing);

	if (err == KVW_OK)
		err = kvw_proxy_create_trace(
			app->config, &app->tracing.sampling, app->loop_count, &app->trace);
	if (err != KVW_OK || app->tracing.endpoint == NULL)
		return err;
	return kvw_otel_start(
		&(struct kvw_otel_deps){
			.settings = &app->tracing,
			.trace = app->trace,
			.fleet = app->fleet,
			.made = kvw_metrics_made,
			.arg = app->metrics,
		},
		&app->otel);
}

/* Creates the parts that note requests: access log, trace, usage. */
static enum kvw_err create_records(struct kvw_app *app)
{
	const struct kvw_config *config = app->config;
	const struct kvw_ledger_options options = {
		.loops = app->loop_count,
		.entries = (size_t)config->usage_entries,
		.hours = (size_t)config->usage_hours,
		.named = (size_t)config->usage_metrics,
		.shared = app->sharing != NULL || app->load_sharing != NULL,
	};
	enum kvw_err err = kvw_access_log_create(config->log_access, app->loop_count,
		config->log_ring, stderr, &app->access_log);

	if (err == KVW_OK)
		err = start_trace(app);
	return err == KVW_OK ? kvw_ledger_create(&options, &app->ledger) : err;
}

/* Starts all parts except those that accept clients of `listen`. */
static enum kvw_err start_parts(struct kvw_app *app)
{
	const struct kvw_config *config = app->config;
	struct kvw_settings *settings;
	struct kvw_strategy *strategy;
	enum kvw_err err;

	app->loop_count = config->loops > 0 ? (size_t)config->loops : kvw_proxy_default_loops();
	app->loop_turn_ns = calloc(app->loop_count, sizeof(app->loop_turn_ns[0]));
	if (app->loop_turn_ns == NULL)
		return KVW_ENOMEM;
	for (size_t i = 0; i < app->loop_count; i++)
		atomic_store(&app->loop_turn_ns[i], kvw_clock_ns());
	err = start_auth(app);
	if (err != KVW_OK)
		return err;
	err = create_sharing(app);
	if (err != KVW_OK)
		return err;
	if (config->admin_keys_file[0] != '\0') {
		err = kvw_auth_start(config->admin_keys_file, stderr, &app->admin_auth);
		if (err != KVW_OK)
			return err;
	}
	err = kvw_settings_strategy(config, NULL, &strategy);
	if (err != KVW_OK)
		return err;
	err = kvw_settings_first(config, strategy, &settings);
	if (err != KVW_OK)
		return err;
	err = kvw_fleet_create(config, app->loop_count, stderr, &app->fleet);
	if (err != KVW_OK) {
		kvw_settings_destroy(settings);
		return err;
	}
	kvw_fleet_set_settings(app->fleet, settings);
	app->fleet->freed = forget_worker;
	app->fleet->freed_arg = app;
	err = recall_state(app);
	if (err == KVW_OK && app->taker != NULL)
		err = ask_for_tickets(app);
	if (err != KVW_OK)
		return err;
	kvw_account_set_most(&app->memory, config->limits_body_memory);
	err = start_exact(app);
	if (err == KVW_OK)
		err = kvw_metrics_create(app->loop_count, app->fleet, &app->metrics);
	if (err == KVW_OK)
		err = create_records(app);
	if (err == KVW_OK)
		err = kvw_status_create(&app->status);
	if (err != KVW_OK)
		return err;
	return kvw_admin_start(
		&(struct kvw_admin_deps){
			.config = config,
			.config_path = app->config_path,
			.fleet = app->fleet,
			.metrics = app->metrics,
			.memory = &app->memory,
			.access_log = app->access_log,
			.trace = app->trace,
			.ledger = app->ledger,
			.otel = app->otel == NULL ? NULL : kvw_otel_state(app->otel),
			.auth = app->auth,
			.sharing = app->sharing,
			.state = app->state,
			.load_sharing = app->load_sharing,
			.admin_auth = app->admin_auth,
			.loop_turn_ns = app->loop_turn_ns,
			.loop_count = app->loop_count,
			.tokens = app->tokens,
			.feed = app->feed,
			.sources = app->sources,
			.sockets = &app->sockets,
			.waits = app->taker != NULL,
			.takeover = &app->takeover,
			.pages = kvw_status_pages(app->status),
		},
		stderr, &app->admin);
}

/* Starts the loops, which accept at once. */
static enum kvw_err start_proxy(struct kvw_app *app)
{
	const struct kvw_config *config = app->config;
	struct kvw_proxy *proxy;
	enum kvw_err err = kvw_proxy_start(
		&(struct kvw_proxy_deps){
			.config = config,
			.fleet = app->fleet,
			.strategy = app->fleet->strategy,
			.metrics = app->metrics,
			.memory = &app->memory,
			.access_log = app->access_log,
			.admin = app->admin,
			.trace = app->trace,
			.ledger = app->ledger,
			.auth = app->auth,
			.loop_count = app->loop_count,
			.loop_turn_ns = app->loop_turn_ns,
			.sources = app->sources,
			.sockets = &app->sockets,
			.before_loops = prepare_loops,
			.before_loops_arg = app,
		},
		stderr, &proxy);
	if (err != KVW_OK) {
		kvw_admin_set_explainer(app->admin, NULL);
		return err;
	}
	app->proxy = proxy;
	err = app->state == NULL ? KVW_OK : kvw_state_start(app->state);
	if (err != KVW_OK)
		return err;
	return start_sharing(app);
}

static uint32_t usable_workers(void *arg)
{
	struct kvw_app *app = arg;

	return (uint32_t)kvw_fleet_usable_count(app->fleet);
}

/* Returns whether workers have answered, and reported what they hold. */
static bool is_warm(const struct kvw_app *app)
{
	return kvw_admin_workers_known(app->admin) &&
	       (app->feed == NULL || kvw_feed_settled(app->feed));
}

/*
 * Waits until the workers and what they hold are known, for at most half of takeover.timeout, since
 * the process before this one gives up after all of it. Workers that cannot be reached are no
 * failure, unless they are all of them and the process before reached some.
 */
static enum kvw_err wait_for_workers(struct kvw_app *app)
{
	const struct timespec pause = {.tv_nsec = 10 * KVW_NS_PER_MS};
	int64_t until_ns = kvw_clock_ns() + app->config->takeover_timeout_ms / 2 * KVW_NS_PER_MS;
	char why[256];
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	while (!is_warm(app) && kvw_clock_ns() < until_ns) {
		if (sigtimedwait(&set, NULL, &pause) > 0) {
			kvw_info("app", "ended by a signal before it was ready");
			return KVW_ECLOSED;
		}
		if (!kvw_taker_may_go_on(app->taker, why))
			return refused(why);
	}
	if (app->feed != NULL && !kvw_feed_settled(app->feed))
		kvw_warn("takeover",
			"goes on although not all workers have reported what they hold");
	if (usable_workers(app) > 0 || kvw_taker_usable_before(app->taker) == 0)
		return KVW_OK;
	fprintf(stderr,
		"kvway: --takeover: the running kvway serves on: no worker can be reached from "
		"here, and %u from there\n",
		kvw_taker_usable_before(app->taker));
	return KVW_EIO;
}

/* Closes sockets that were handed over and that this configuration does not name. */
static void drop_sockets(struct kvw_app *app)
{
	const struct kvw_socket *socket;
	uint32_t adopted = 0;

	while ((socket = kvw_sockets_waiting(&app->sockets)) != NULL) {
		kvw_warn("takeover",
			"not adopted: this configuration does not listen there use=%s address=%s",
			kvw_socket_use_name(socket->use), socket->address);
		if (socket->use == KVW_SOCKET_TAKEOVER)
			(void)unlink(socket->address);
		kvw_sockets_drop(&app->sockets, socket);
	}
	for (size_t n = 0; (socket = kvw_sockets_used(&app->sockets, n)) != NULL; n++) {
		if (!socket->handed && atomic_load(&app->takeover.forebear) != 0)
			kvw_info("takeover", "bound, not adopted use=%s address=%s",
				kvw_socket_use_name(socket->use), socket->address);
		adopted += socket->handed;
	}
	atomic_store(&app->takeover.adopted, adopted);
}

/* Says that this process accepts, so that the process before it stops. */
static enum kvw_err finish_takeover(struct kvw_app *app)
{
	char why[256];
	int caches;

	kvw_admin_listen(app->admin);
	if (!kvw_taker_ready(app->taker, &caches, why))
		return refused(why);
	if (app->feed != NULL)
		kvw_feed_listen(app->feed, caches);
	else if (caches >= 0)
		close(caches);
	kvw_taker_destroy(app->taker);
	app->taker = NULL;
	kvw_info("takeover", "done pid=%lld ms=%lld",
		(long long)atomic_load(&app->takeover.forebear),
		(long long)(atomic_load(&app->takeover.took_ns) / KVW_NS_PER_MS));
	return KVW_OK;
}

/* Asks the former process for a snapshot of what it knows now. A quarter of the time is for that,
 * and half for reading it. */
static enum kvw_err ask_for_snapshot(struct kvw_app *app)
{
	int64_t timeout_ns = app->config->takeover_timeout_ms * KVW_NS_PER_MS;
	char why[256];

	app->recall_until_ns = kvw_clock_ns() + timeout_ns / 2;
	return kvw_taker_snapshot(app->taker, timeout_ns / 4, &app->snapshot, why) ? KVW_OK
										   : refused(why);
}

static enum kvw_err start_app(struct kvw_app *app, const char *takeover_from)
{
	const struct kvw_config *config = app->config;
	enum kvw_err err = KVW_OK;

	kvw_activation_take(&app->sockets);
	if (takeover_from != NULL)
		err = kvw_taker_create(
			takeover_from, &app->sockets, &app->takeover, stderr, &app->taker);
	if (err == KVW_OK && app->taker != NULL)
		err = ask_for_snapshot(app);
	if (err == KVW_OK)
		err = start_parts(app);
	if (err == KVW_OK && app->taker != NULL)
		err = wait_for_workers(app);
	if (err == KVW_OK)
		err = kvw_giver_create(
			&(struct kvw_giver_deps){
				.path = config->takeover_socket,
				.timeout_ns = config->takeover_timeout_ms * KVW_NS_PER_MS,
				.sockets = &app->sockets,
				.state = &app->takeover,
				.usable = usable_workers,
				.usable_arg = app,
				.keeps = true,
				.certificates = &app->fleet->certificates,
			},
			stderr, &app->giver);
	if (err == KVW_OK)
		err = start_proxy(app);
	if (err == KVW_OK && app->taker != NULL)
		err = finish_takeover(app);
	if (err == KVW_OK)
		drop_sockets(app);
	if (app->fleet != NULL)
		kvw_tls_watch_disinherit(&app->fleet->certificates);
	if (err == KVW_OK) {
		kvw_giver_begin(app->giver);
		if (app->state != NULL)
			kvw_state_rest(app->state, false);
	} else if (app->proxy != NULL) {
		kvw_proxy_drain(app->proxy, KVW_DRAIN_NOW);
	}
	return err;
}

static enum kvw_err keep_rest(void *ledger, const struct kvw_keep_out *out)
{
	return kvw_ledger_keep_rest(ledger, out);
}

/* Called when the loops have ended. Usage that was counted since a process that has taken over was
 * given a snapshot goes to it through a file. */
static void settle_usage(struct kvw_app *app)
{
	const struct kvw_config *config = app->config;

	if (app->ledger == NULL || app->proxy == NULL)
		return;
	kvw_ledger_settle(app->ledger, kvw_clock_wall_ns() / KVW_NS_PER_S);
	if (atomic_load(&app->takeover.handed) && config->state_file[0] != '\0' &&
		app->sharing == NULL && app->load_sharing == NULL)
		kvw_state_rest_write(config->state_file, getpid(),
			(uint64_t)config->state_max_bytes, keep_rest, app->ledger);
}

static void stop(struct kvw_app *app)
{
	kvw_taker_destroy(app->taker);
	if (app->proxy != NULL)
		kvw_proxy_join(app->proxy); /* it was drained */
	settle_usage(app);
	kvw_admin_stop(app->admin);
	kvw_status_destroy(app->status);
	if (app->load_sharing != app->sharing)
		kvw_sharing_stop(app->load_sharing);
	kvw_sharing_stop(app->sharing);
	/* writes the last snapshot while everything that it contains still exists */
	kvw_state_stop(app->state);
	kvw_proxy_destroy(app->proxy); /* closes the boxes to which the tokenizer sends answers */
	kvw_sources_destroy(app->sources);
	kvw_tokens_stop(app->tokens);
	kvw_feed_stop(app->feed);
	kvw_kvspaces_destroy(app->spaces);
	kvw_access_log_destroy(app->access_log);
	kvw_otel_stop(app->otel);
	kvw_otel_settings_finish(&app->tracing);
	kvw_trace_destroy(app->trace);
	kvw_ledger_destroy(app->ledger);
	kvw_metrics_destroy(app->metrics);
	kvw_fleet_destroy(app->fleet);
	kvw_auth_stop(app->admin_auth);
	kvw_auth_stop(app->auth);
	kvw_giver_destroy(app->giver);
	if (app->snapshot >= 0)
		close(app->snapshot);
	kvw_sockets_finish(&app->sockets);
	free((void *)app->loop_turn_ns);
}

/* Lets the service manager keep the listening sockets, so that a crash refuses no client; the next
 * process gets them by LISTEN_FDS. */
static void store_sockets(struct kvw_app *app)
{
	static const enum kvw_socket_use uses[] = {
		KVW_SOCKET_CLIENTS, KVW_SOCKET_ADMIN, KVW_SOCKET_TAKEOVER, KVW_SOCKET_EVENTS};
	const struct kvw_socket *socket;
	char forget[64];

	/* Removes descriptors that another process has stored under these names and this
	 * configuration does not use. */
	for (size_t i = 0; i < sizeof(uses) / sizeof(uses[0]); i++) {
		(void)snprintf(forget, sizeof(forget), "FDSTOREREMOVE=1\nFDNAME=%s",
			kvw_socket_use_name(uses[i]));
		kvw_notify(forget);
	}
	for (size_t n = 0; (socket = kvw_sockets_used(&app->sockets, n)) != NULL; n++)
		kvw_notify_store(kvw_socket_use_name(socket->use), &socket->fd, 1);
}

int kvw_app_run(const struct kvw_config *config, const char *config_path, const char *takeover_from,
	const struct kvw_successor *successor)
{
	struct kvw_app app = {.config = config,
		.config_path = config_path,
		.successor = successor,
		.snapshot = -1};
	enum kvw_err err;

	kvw_log_set_level((enum kvw_log_level)config->log_level);
	err = start_app(&app, takeover_from);
	if (err == KVW_ENOMEM)
		fprintf(stderr, "kvway: out of memory\n");
	if (err == KVW_OK) {
		kvw_info("app", "kvway %s listens on %s admin=%s strategy=%s workers=%zu loops=%zu",
			KVW_VERSION, kvw_proxy_address(app.proxy), kvw_admin_address(app.admin),
			config->routing_strategy, (size_t)app.fleet->live, app.loop_count);
		kvw_notify("READY=1");
		store_sockets(&app);
		kvw_app_wait(&app);
		kvw_info("app", "drained, leaving");
	}
	stop(&app);
	return err == KVW_OK ? 0 : 1;
}
