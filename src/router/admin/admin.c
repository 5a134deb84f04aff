/*
 * admin.c - the control thread and its small HTTP server.
 *
 * The server (http.h) shares one event base with the prober, so that everything that changes worker
 * state (the prober) and everything that publishes it runs on this one thread; only `draining` and
 * the table of owners come from outside. The thread is ended by an eventfd, which needs no locking
 * in libevent.
 */
#include "admin/admin.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <event2/event.h>
#include <jansson.h>

#include "admin/answer.h"
#include "admin/broadcast.h"
#include "auth/auth.h"
#include "sharing/sharing.h"
#include "state/rest.h"
#include "state/state.h"
#include "takeover/state.h"
#include "auth/jwt_gate.h"
#include "base/clock.h"
#include "admin/explain_http.h"
#include "feeds/tokens/tokens.h"
#include "admin/groups_http.h"
#include "admin/http.h"
#include "admin/reload.h"
#include "admin/metrics_copy.h"
#include "admin/open_metrics.h"
#include "admin/openapi.h"
#include "admin/permit.h"
#include "admin/trace_http.h"
#include "admin/usage_http.h"
#include "admin/workers.h"
#include "base/log.h"
#include "base/notify.h"
#include "base/thread.h"
#include "fleet/discovery/source.h"
#include "fleet/members.h"
#include "fleet/probe.h"
#include "fleet/resolver.h"
#include "fleet/wake/waker.h"
#include "server/listen.h"
#include "server/sockets.h"
#include "tls/tls.h"
#include "http/target.h"

/* A body of /explain up to this much above the limit is refused with a text of its own; a larger
 * one is refused by the server. Bodies of GET and HEAD are read and ignored. */
#define BODY_BYTES_SPARE ((size_t)1 << 20)

struct kvw_admin {
	struct kvw_admin_deps deps;
	_Atomic bool draining;
	const struct kvw_explainer *_Atomic explainer; /* NULL: not set yet */
	struct kvw_metrics_copy copy;        /* text of /metrics, for loops */
	int64_t created_s;
	char address[KVW_SOCKET_TEXT]; /* as bound */

	/* The following members are used only by the control thread after the start. */
	struct event_base *base;
	struct kvw_admin_http *http;
	struct kvw_tls *tls; /* NULL: plain HTTP */
	struct event *tick, *quit, *ask; /* ask: of copy */
	bool rest_read; /* no more comes of what the process before this one has counted */
	struct kvw_prober *prober;
	struct kvw_resolver *resolver;
	struct kvw_members *members;
	struct kvw_waker *waker;
	struct kvw_source *sources[KVW_SOURCE_COUNT]; /* [source_count] sources that run */
	size_t source_count;
	struct kvw_reload *reload;
	struct event *reload_event;
	int reload_fd; /* descriptor that other threads write to, to request a reload */
	struct kvw_broadcaster *broadcaster;
	struct kvw_explain_desk desk;
	struct event *box; /* of the desk */
	struct kvw_admin_permit permit;
	struct kvw_mail listen; /* message of kvw_admin_listen, used with the next member */
	int listen_fd;          /* socket that waits for that message; -1: none does */
	int quit_fd;

	pthread_t thread;
	bool started;
};

enum kvw_err kvw_admin_answer(struct kvw_admin *admin, struct kvw_slice path,
	const struct kvw_client_key *key, int64_t now_ns, struct kvw_local_answer *out)
{
	struct kvw_answer_state state = {
		.deps = &admin->deps,
		.draining = atomic_load_explicit(&admin->draining, memory_order_relaxed),
		.created_s = admin->created_s,
		.reload = admin->reload == NULL ? NULL : kvw_reload_state(admin->reload),
		.listings = admin->members == NULL ? NULL : kvw_members_listings(admin->members),
	};

	return kvw_answer(&state, path, key, now_ns, out);
}

static void answer_explain(struct kvw_admin *admin, struct kvw_conn *conn)
{
	admin->desk.explainer = atomic_load_explicit(&admin->explainer, memory_order_acquire);
	admin->desk.wait_ms = admin->deps.fleet->config->kvaware_tokens_timeout_ms;
	admin->desk.auth = admin->deps.auth;
	kvw_explain_http(&admin->desk, conn, kvw_clock_ns());
}

static uint64_t body_limit(const struct kvw_config *config)
{
	size_t most = config->limits_body < KVW_EXPLAIN_BODY_MAX ? (size_t)config->limits_body
								 : KVW_EXPLAIN_BODY_MAX;

	return most + BODY_BYTES_SPARE;
}

/* Applies the configuration in force, which a reload may have changed. */
static void follow_config(struct kvw_admin *admin)
{
	kvw_admin_http_set_body_most(admin->http, body_limit(admin->deps.fleet->config));
	kvw_admin_permit_follow(&admin->permit, admin->deps.fleet->config);
}

/* Reads files again that belong to the configuration, whether that has changed or not. */
static void reload_files(struct kvw_admin *admin)
{
	kvw_tls_watch_look(&admin->deps.fleet->certificates, true, kvw_clock_ns());
	if (admin->permit.auth != NULL)
		kvw_auth_reload(admin->permit.auth);
}

/* POST /reload */
static void answer_reload(struct kvw_admin *admin, struct kvw_conn *conn)
{
	json_t *answer = NULL;
	char *body;
	int status;

	if (!kvw_slice_equal(conn->clients->head.method, KVW_SLICE("POST"))) {
		kvw_admin_http_error(conn, 405, "Allow: POST\r\n", "only POST");
		return;
	}
	reload_files(admin);
	status = kvw_reload_run(admin->reload, "admin", &answer);
	follow_config(admin);
	body = answer == NULL ? NULL : json_dumps(answer, JSON_INDENT(1));
	json_decref(answer);
	kvw_admin_http_answer(conn, status, "application/json", kvw_slice_of(body));
	free(body);
}

static void on_reload(evutil_socket_t fd, short what, void *arg)
{
	struct kvw_admin *admin = arg;
	json_t *answer = NULL;
	uint64_t count;

	(void)what;
	(void)!read(fd, &count, sizeof(count));
	kvw_notify_reloading();
	reload_files(admin);
	(void)kvw_reload_run(admin->reload, "SIGHUP", &answer);
	kvw_notify("READY=1");
	follow_config(admin);
	json_decref(answer);
}

void kvw_admin_reload(struct kvw_admin *admin)
{
	uint64_t one = 1;

	if (write(admin->reload_fd, &one, sizeof(one)) < 0)
		kvw_error("admin", "cannot wake the control thread error=%s", strerror(errno));
}

static bool about_workers(struct kvw_admin *admin, struct kvw_conn *conn)
{
	const struct kvw_workers_desk desk = {.base = admin->base,
		.fleet = admin->deps.fleet,
		.members = admin->members,
		.metrics = admin->deps.metrics};

	return kvw_workers_http(&desk, conn);
}

static void answer_openapi(struct kvw_conn *conn)
{
	if (kvw_admin_http_method(conn, "GET, HEAD"))
		kvw_admin_http_answer(conn, 200, "application/json",
			(struct kvw_slice){kvw_openapi, kvw_openapi_len});
}

static void answer_open_metrics(struct kvw_admin *admin, struct kvw_conn *conn)
{
	char *text = NULL;
	size_t len = 0;
	bool made;

	if (!kvw_admin_http_method(conn, "GET, HEAD"))
		return;
	made = kvw_metrics_render(admin->deps.metrics, kvw_clock_ns(), true, &text, &len) == KVW_OK;
	kvw_admin_http_answer(
		conn, 200, KVW_OPEN_METRICS_TYPE, (struct kvw_slice){made ? text : NULL, len});
	free(text);
}

static struct kvw_admin_facts facts_of(const struct kvw_admin *admin)
{
	return (struct kvw_admin_facts){
		.deps = &admin->deps,
		.members = admin->members,
		.listings = kvw_members_listings(admin->members),
		.reload = kvw_reload_state(admin->reload),
		.draining = atomic_load_explicit(&admin->draining, memory_order_relaxed),
	};
}

static bool serve_pages(const struct kvw_admin *admin, struct kvw_conn *conn)
{
	const struct kvw_admin_pages *pages = &admin->deps.pages;
	struct kvw_admin_facts facts = facts_of(admin);

	return pages->serve != NULL && pages->serve(pages->arg, &facts, conn, kvw_clock_ns());
}

static bool on_head(struct kvw_conn *conn, void *arg)
{
	struct kvw_admin *admin = arg;

	return kvw_admin_permit(&admin->permit, admin->deps.fleet->config, conn);
}

static void on_request(struct kvw_conn *conn, void *arg)
{
	struct kvw_admin *admin = arg;
	const struct kvw_head *head = &conn->clients->head;
	struct kvw_slice path = kvw_target_path(head->target);
	struct kvw_local_answer answer = {.body = NULL};
	enum kvw_err err;

	if (kvw_slice_equal(path, KVW_SLICE("/explain"))) {
		answer_explain(admin, conn);
		return;
	}
	if (kvw_slice_equal(path, KVW_SLICE("/reload"))) {
		answer_reload(admin, conn);
		return;
	}
	if (kvw_slice_equal(path, KVW_SLICE("/openapi.json"))) {
		answer_openapi(conn);
		return;
	}
	if (kvw_slice_equal(path, KVW_SLICE("/metrics")) && kvw_open_metrics_wanted(head)) {
		answer_open_metrics(admin, conn);
		return;
	}
	if (about_workers(admin, conn) || kvw_groups_http(admin->deps.fleet, conn) ||
		kvw_trace_http(admin->deps.trace, admin->deps.fleet, conn) ||
		kvw_usage_http(admin->deps.ledger, conn) ||
		kvw_broadcast_http(admin->broadcaster, conn) || serve_pages(admin, conn))
		return;
	if (!head->get_method && !head->head_method) {
		kvw_admin_http_error(conn, 405, "Allow: GET, HEAD\r\n", "only GET and HEAD");
		return;
	}
	err = kvw_admin_answer(admin, path, NULL, kvw_clock_ns(), &answer);
	if (err == KVW_ENOTFOUND) {
		kvw_admin_http_error(conn, 404, "",
			"not found; here are /health /ready /metrics /v1/models /explain /trace "
			"/usage /reload /workers /groups /broadcast /status /ui /openapi.json");
		return;
	}
	kvw_admin_http_answer(conn, answer.status, answer.content_type,
		(struct kvw_slice){answer.body, answer.len});
	free(answer.body);
}

static void take_rest(void *arg, enum kvw_keep_kind kind, const uint8_t *record, size_t len)
{
	struct kvw_admin *admin = arg;

	if (kind == KVW_KEPT_USAGE)
		kvw_ledger_recall(
			admin->deps.ledger, record, len, kvw_clock_wall_ns() / KVW_NS_PER_S);
}

/* Adds what loops have counted, and what the process before this one has counted to its end. */
static void collect_usage(struct kvw_admin *admin)
{
	const struct kvw_config *config = admin->deps.config;
	int64_t before = 0;

	kvw_ledger_collect(admin->deps.ledger, kvw_clock_wall_ns() / KVW_NS_PER_S);
	if (admin->deps.takeover != NULL)
		before = atomic_load(&admin->deps.takeover->forebear);
	if (before != 0 && !admin->rest_read && config->state_file[0] != '\0')
		admin->rest_read = kvw_state_rest_read(config->state_file, before,
			(uint64_t)config->state_max_bytes, take_rest, admin);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct kvw_admin *admin = arg;
	const struct kvw_admin_pages *pages = &admin->deps.pages;
	struct kvw_admin_facts facts = facts_of(admin);

	(void)fd;
	(void)what;
	collect_usage(admin);
	kvw_metrics_tick(admin->deps.metrics, kvw_clock_ns());
	kvw_tls_watch_look(&admin->deps.fleet->certificates, false, kvw_clock_ns());
	if (admin->deps.state != NULL)
		kvw_state_tick(admin->deps.state, kvw_clock_ns());
	if (pages->tick != NULL)
		pages->tick(pages->arg, &facts, kvw_clock_ns());
	follow_config(admin); /* config.watch may have reloaded meanwhile */
}

static void on_ask(evutil_socket_t fd, short what, void *arg)
{
	struct kvw_admin *admin = arg;

	(void)fd;
	(void)what;
	kvw_metrics_copy_renew(&admin->copy, admin->deps.metrics, kvw_clock_ns());
	if (admin->deps.state != NULL)
		kvw_state_tick(admin->deps.state, kvw_clock_ns());
}

void kvw_admin_wake(struct kvw_admin *admin)
{
	uint64_t one = 1;

	if (write(admin->copy.ask_fd, &one, sizeof(one)) < 0)
		kvw_error("admin", "cannot wake the control thread error=%s", strerror(errno));
}

struct kvw_metrics_text *kvw_admin_metrics(struct kvw_admin *admin, int64_t now_ns)
{
	return kvw_metrics_copy_get(&admin->copy, now_ns);
}

static void on_quit(evutil_socket_t fd, short what, void *arg)
{
	struct kvw_admin *admin = arg;

	(void)fd;
	(void)what;
	event_base_loopbreak(admin->base);
}

static void on_box(evutil_socket_t fd, short what, void *arg)
{
	struct kvw_admin *admin = arg;

	(void)fd;
	(void)what;
	kvw_tokens_box_read(admin->desk.box);
}

static void *control_main(void *arg)
{
	struct kvw_admin *admin = arg;

	(void)pthread_setname_np(pthread_self(), "kvway-control");
	on_tick(-1, 0, admin);
	if (event_base_dispatch(admin->base) < 0)
		kvw_error("admin", "the control thread's event loop failed");
	return NULL;
}

static enum kvw_err create_tls(struct kvw_admin *admin, FILE *errors)
{
	const struct kvw_config *config = admin->deps.config;
	const struct kvw_tls_server_options options = {
		.certificate = config->admin_tls_certificate,
		.key = config->admin_tls_key,
		.more = (const char *const *)config->admin_tls_certificates.items,
		.more_count = config->admin_tls_certificates.count,
		.client_ca = config->admin_tls_client_ca,
		.client_asked =
			config->admin_tls_client_certificate == KVW_CLIENT_CERTIFICATE_ASKED,
		.wipe = true,
		.only_1_3 = config->admin_tls_min_version == KVW_TLS_1_3,
		.ciphers = config->admin_tls_ciphers,
		.ciphersuites = config->admin_tls_ciphersuites,
	};
	char why[256] = "";
	enum kvw_err err;

	if (options.certificate[0] == '\0')
		return KVW_OK;
	err = kvw_tls_server_create(&options, why, sizeof(why), &admin->tls);
	if (err == KVW_EINVAL)
		fprintf(errors, "kvway: admin.tls: %s\n", why);
	if (err == KVW_OK)
		kvw_tls_watch_add(&admin->deps.fleet->certificates, admin->tls, "admin");
	return err;
}

static enum kvw_err open_server(struct kvw_admin *admin, FILE *errors)
{
	const struct kvw_config *config = admin->deps.config;
	struct kvw_sockets *sockets = admin->deps.sockets;
	enum kvw_err err = create_tls(admin, errors);
	char why[384];
	int fd;

	if (err != KVW_OK)
		return err;
	if (sockets != NULL &&
		kvw_sockets_adopt(sockets, KVW_SOCKET_ADMIN, config->admin_listen, &fd, 1) == 1) {
		kvw_socket_address(fd, admin->address);
	} else if (kvw_listen(config->admin_listen, KVW_LISTEN_ALONE, &fd, admin->address, why,
			   sizeof(why)) != KVW_OK) {
		fprintf(errors, "admin.listen: %s\n", why);
		return KVW_EIO;
	} else if (sockets != NULL) {
		kvw_sockets_note(sockets, KVW_SOCKET_ADMIN, fd);
	}
	admin->permit = (struct kvw_admin_permit){
		.auth = admin->deps.admin_auth, .off_host = !kvw_admin_bound_to_host(fd)};
	if (admin->deps.waits) {
		admin->listen_fd = fd;
		fd = -1;
	}
	err = kvw_admin_http_create(
		admin->base, fd, body_limit(config), on_head, on_request, admin, &admin->http);
	if (err == KVW_OK)
		kvw_admin_http_set_tls(admin->http, admin->tls);
	return err;
}

static enum kvw_err add_events(struct kvw_admin *admin)
{
	const struct timeval second = {.tv_sec = 1};

	admin->quit_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (admin->quit_fd < 0 || kvw_metrics_copy_init(&admin->copy) != KVW_OK)
		return KVW_EIO;
	admin->ask =
		event_new(admin->base, admin->copy.ask_fd, EV_READ | EV_PERSIST, on_ask, admin);
	admin->quit = event_new(admin->base, admin->quit_fd, EV_READ, on_quit, admin);
	admin->tick = event_new(admin->base, -1, EV_PERSIST, on_tick, admin);
	if (admin->quit == NULL || admin->tick == NULL || admin->ask == NULL ||
		event_add(admin->ask, NULL) != 0 || event_add(admin->quit, NULL) != 0 ||
		event_add(admin->tick, &second) != 0)
		return KVW_ENOMEM;
	return KVW_OK;
}

/* Makes the box in which tokens arrive for prompts that are to be explained. */
static enum kvw_err open_desk(struct kvw_admin *admin)
{
	enum kvw_err err;

	if (admin->deps.tokens == NULL)
		return KVW_OK;
	err = kvw_tokens_box_create(&admin->desk.box);
	if (err != KVW_OK)
		return err;
	admin->desk.base = admin->base;
	admin->desk.wait_ms = admin->deps.config->kvaware_tokens_timeout_ms;
	admin->box = event_new(admin->base, kvw_tokens_box_fd(admin->desk.box),
		EV_READ | EV_PERSIST, on_box, admin);
	return admin->box != NULL && event_add(admin->box, NULL) == 0 ? KVW_OK : KVW_ENOMEM;
}

static enum kvw_err start_thread(struct kvw_admin *admin, FILE *errors)
{
	int failed = kvw_thread_start(&admin->thread, control_main, admin);

	if (failed != 0) {
		fprintf(errors, "admin: cannot start the control thread: %s\n", strerror(failed));
		return KVW_EIO;
	}
	admin->started = true;
	return KVW_OK;
}

static enum kvw_member_source member_source(const struct kvw_source_ops *ops)
{
	int source = 0;

	while (source < KVW_SOURCE_COUNT - 1 &&
		strcmp(kvw_member_source_name((enum kvw_member_source)source), ops->name) != 0)
		source++;
	return (enum kvw_member_source)source;
}

static void on_found(void *arg, const struct kvw_source_ops *ops,
	const struct kvw_worker_config *workers, size_t count, bool partial, const char *why)
{
	struct kvw_admin *admin = arg;
	struct kvw_members_change change;

	if (why == NULL && kvw_members_set(admin->members, member_source(ops), workers, count,
				   &change) != KVW_OK)
		kvw_error("fleet", "out of memory: not all workers are known source=%s", ops->name);
	kvw_members_unreadable(admin->members, member_source(ops), why != NULL || partial);
}

/* Starts the sources of workers other than the configuration. */
static enum kvw_err start_sources(struct kvw_admin *admin)
{
	const struct kvw_config *config = admin->deps.config;
	enum kvw_err err = KVW_OK;

	for (size_t i = 0; kvw_sources[i] != NULL && err == KVW_OK; i++) {
		if (!kvw_sources[i]->configured(config))
			continue;
		err = kvw_sources[i]->start(admin->base, config, on_found, admin,
			&admin->sources[admin->source_count]);
		if (err == KVW_OK)
			admin->source_count++;
	}
	return err;
}

static enum kvw_err start_reload(struct kvw_admin *admin)
{
	const struct kvw_reload_deps deps = {
		.path = admin->deps.config_path,
		.fleet = admin->deps.fleet,
		.members = admin->members,
		.tokens = admin->deps.tokens,
		.sources = admin->deps.sources,
		.feed = admin->deps.feed,
		.auth = admin->deps.auth,
	};
	enum kvw_err err = kvw_reload_create(admin->base, &deps, &admin->reload);

	if (err != KVW_OK)
		return err;
	admin->reload_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (admin->reload_fd < 0)
		return KVW_EIO;
	admin->reload_event = event_new(
		admin->base, admin->reload_fd, EV_READ | EV_PERSIST, on_reload, admin);
	return admin->reload_event != NULL && event_add(admin->reload_event, NULL) == 0
		       ? KVW_OK
		       : KVW_ENOMEM;
}

/* Starts the parts that watch the fleet's workers. */
static enum kvw_err start_fleet(struct kvw_admin *admin, FILE *errors)
{
	struct kvw_fleet *fleet = admin->deps.fleet;
	enum kvw_err err = kvw_resolver_create(admin->base, NULL, &admin->resolver);

	if (err != KVW_OK) {
		fprintf(errors, "kvway: host names cannot be looked up on this machine\n");
		return err;
	}
	err = kvw_prober_create(admin->base, fleet, &admin->prober);
	if (err != KVW_OK)
		return err;
	err = kvw_members_create(
		admin->base, fleet, admin->prober, admin->resolver, &admin->members);
	if (err == KVW_OK)
		err = start_sources(admin);
	if (err == KVW_OK)
		err = kvw_waker_create(admin->base, fleet, &admin->waker);
	if (err == KVW_OK)
		err = kvw_broadcaster_create(
			admin->base, fleet, admin->members, admin->prober, &admin->broadcaster);
	return err == KVW_OK ? start_reload(admin) : err;
}

enum kvw_err kvw_admin_start(
	const struct kvw_admin_deps *deps, FILE *errors, struct kvw_admin **out)
{
	struct kvw_metrics_sources sources = {
		.loop_turn_ns = deps->loop_turn_ns,
		.loop_count = deps->loop_count,
		.access_log = deps->access_log,
		.memory = deps->memory,
		.ledger = deps->ledger,
		.tokens = deps->tokens,
		.feed = deps->feed,
	};
	struct kvw_admin *admin = calloc(1, sizeof(*admin));
	enum kvw_err err = KVW_ENOMEM;

	if (admin == NULL)
		return KVW_ENOMEM;
	admin->deps = *deps;
	admin->quit_fd = admin->copy.ask_fd = admin->listen_fd = -1;
	admin->created_s = kvw_clock_wall_ns() / KVW_NS_PER_S;
	admin->base = event_base_new();
	if (admin->base == NULL)
		goto out;
	err = open_server(admin, errors);
	if (err != KVW_OK)
		goto out;
	err = add_events(admin);
	if (err != KVW_OK)
		goto out;
	err = open_desk(admin);
	if (err != KVW_OK)
		goto out;
	err = start_fleet(admin, errors);
	if (err != KVW_OK)
		goto out;
	sources.reload = kvw_reload_state(admin->reload);
	sources.auth = deps->auth == NULL ? NULL : kvw_auth_state(deps->auth);
	sources.state = deps->state == NULL || !kvw_state_has_file(deps->state)
				? NULL
				: kvw_state_status(deps->state);
	sources.sharing = deps->sharing == NULL ? NULL : kvw_sharing_state(deps->sharing);
	sources.load =
		deps->load_sharing == NULL ? NULL : kvw_sharing_load_state(deps->load_sharing);
	if (deps->auth != NULL && kvw_auth_jwt(deps->auth) != NULL)
		sources.jwt = kvw_jwt_gate_state(kvw_auth_jwt(deps->auth));
	sources.takeover = deps->takeover;
	sources.otel = deps->otel;
	sources.admin = kvw_admin_http_state(admin->http);
	sources.broadcasts = kvw_broadcaster_state(admin->broadcaster);
	sources.listings = kvw_members_listings(admin->members);
	sources.discovery = admin->sources;
	sources.discovery_count = admin->source_count;
	kvw_metrics_set_sources(deps->metrics, &sources);
	err = start_thread(admin, errors);
out:
	if (err == KVW_OK) {
		*out = admin;
		return KVW_OK;
	}
	kvw_admin_stop(admin);
	return err;
}

void kvw_admin_set_explainer(struct kvw_admin *admin, const struct kvw_explainer *explainer)
{
	atomic_store_explicit(&admin->explainer, explainer, memory_order_release);
}

void kvw_admin_set_draining(struct kvw_admin *admin)
{
	atomic_store_explicit(&admin->draining, true, memory_order_relaxed);
}

static bool is_known(struct kvw_worker *worker)
{
	enum kvw_health health = atomic_load_explicit(&worker->health, memory_order_relaxed);

	return health == KVW_HEALTH_DOWN ||
	       (health == KVW_HEALTH_UP &&
		       atomic_load_explicit(&worker->models_known, memory_order_relaxed));
}

bool kvw_admin_workers_known(const struct kvw_admin *admin)
{
	const struct kvw_member_listing *listings = kvw_members_listings(admin->members);
	struct kvw_fleet *fleet = admin->deps.fleet;

	for (size_t i = 0; i < admin->source_count; i++) {
		const struct kvw_member_listing *listing =
			&listings[member_source(admin->sources[i]->ops)];

		if (atomic_load(&listing->listed_s) == 0 && !atomic_load(&listing->unreadable))
			return false;
	}
	for (size_t i = 0; i < fleet->count; i++) {
		struct kvw_worker *worker = kvw_fleet_worker(fleet, i);
		bool known;

		if (worker == NULL || !kvw_worker_hold(worker))
			continue;
		known = is_known(worker);
		kvw_worker_let_go(worker);
		if (!known)
			return false;
	}
	return true;
}

static void start_listening(struct kvw_mail *mail, struct kvw_server_loop *loop)
{
	struct kvw_admin *admin =
		(struct kvw_admin *)((char *)mail - offsetof(struct kvw_admin, listen));

	if (loop->ended)
		return; /* kvw_admin_stop closes what was opened */
	if (kvw_admin_http_listen_take(admin->http, admin->listen_fd) != KVW_OK)
		kvw_error("admin", "cannot accept on the admin address error=%s", strerror(errno));
	admin->listen_fd = -1;
}

void kvw_admin_listen(struct kvw_admin *admin)
{
	admin->listen.deliver = start_listening;
	kvw_server_loop_post(kvw_admin_http_loop(admin->http), &admin->listen);
}

void kvw_admin_hand_over(struct kvw_admin *admin)
{
	kvw_admin_http_drain(admin->http, admin->deps.config->drain_settle_ms * KVW_NS_PER_MS);
}

bool kvw_admin_handed_over(const struct kvw_admin *admin)
{
	return kvw_admin_http_is_done(admin->http);
}

void kvw_admin_stop(struct kvw_admin *admin)
{
	uint64_t one = 1;

	if (admin == NULL)
		return;
	if (admin->started) {
		if (write(admin->quit_fd, &one, sizeof(one)) < 0)
			kvw_error("admin", "cannot wake the control thread error=%s",
				strerror(errno));
		pthread_join(admin->thread, NULL);
	}
	if (admin->reload_event != NULL)
		event_free(admin->reload_event);
	if (admin->reload_fd >= 0)
		close(admin->reload_fd);
	kvw_reload_destroy(admin->reload);
	while (admin->source_count > 0) {
		struct kvw_source *source = admin->sources[--admin->source_count];

		source->ops->stop(source);
	}
	kvw_waker_destroy(admin->waker);
	kvw_members_destroy(admin->members);
	kvw_resolver_destroy(admin->resolver);
	kvw_prober_destroy(admin->prober);
	kvw_admin_http_cut(admin->http); /* then nothing waits */
	kvw_broadcaster_destroy(admin->broadcaster);
	if (admin->tick != NULL)
		event_free(admin->tick);
	if (admin->quit != NULL)
		event_free(admin->quit);
	if (admin->ask != NULL)
		event_free(admin->ask);
	kvw_metrics_copy_finish(&admin->copy);
	kvw_admin_http_destroy(admin->http);
	kvw_tls_watch_remove(&admin->deps.fleet->certificates, admin->tls);
	kvw_tls_destroy(admin->tls);
	if (admin->listen_fd >= 0)
		close(admin->listen_fd);
	kvw_admin_permit_finish(&admin->permit);
	if (admin->box != NULL)
		event_free(admin->box);
	kvw_tokens_box_close(admin->desk.box);
	if (admin->base != NULL)
		event_base_free(admin->base);
	if (admin->quit_fd >= 0)
		close(admin->quit_fd);
	free(admin);
}

const char *kvw_admin_address(const struct kvw_admin *admin)
{
	return admin->address;
}
