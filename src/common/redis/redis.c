/*
 * redis.c - the client's public functions: create, step, statistics.
 *
 * In a step all links send and receive, commands with an answer or from lost links are handled,
 * late ones end, the topology runs its step, and commands for which there is room are sent. If
 * there was nothing to do, the step waits for events and repeats that once; then it calls done for
 * all ended commands. Links are polled in turn, not by event: there are few, and an idle link costs
 * some nanoseconds.
 */
#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/random.h"
#include "redis/client.h"
#include "redis/info.h"
#include "redis/wire.h"

#define EVENTS 64 /* most events taken by one call of epoll_wait */

/* --- making ----------------------------------------------------------------------------------- */

static const char *first_given(const char *a, const char *b)
{
	return a != NULL && a[0] != '\0' ? a : b;
}

/* Copies the options, except for file names, which are not needed later. */
static enum kvw_err take_options(struct kvw_redis *r, const struct kvw_redis_options *options)
{
	const char *const from[] = {
		first_given(options->username, options->url->username),
		first_given(options->password, options->url->password),
		options->service != NULL ? options->service : "",
	};

	r->url = *options->url;
	r->options = *options;
	r->options.url = &r->url;
	r->options.tls_ca = r->options.tls_certificate = r->options.tls_key = NULL;
	for (size_t i = 0; i < sizeof(from) / sizeof(from[0]); i++) {
		r->texts[i] = strdup(from[i]);
		if (r->texts[i] == NULL)
			return KVW_ENOMEM;
	}
	r->options.username = r->texts[0];
	r->options.password = r->texts[1];
	r->options.service = r->texts[2];
	return KVW_OK;
}

static enum kvw_err make_tls(
	struct kvw_redis *r, const struct kvw_redis_options *options, char *why)
{
	const struct kvw_redis_wire_tls_options files = {.ca = options->tls_ca,
		.certificate = options->tls_certificate,
		.key = options->tls_key};
	char text[KVW_REDIS_WIRE_WHY];

	if (!options->url->tls)
		return KVW_OK;
	r->settings.tls = kvw_redis_wire_tls_create(&files, text);
	if (r->settings.tls != NULL)
		return KVW_OK;
	snprintf(why, KVW_REDIS_REASON, "%.*s", KVW_REDIS_REASON - 1, text);
	return KVW_EINVAL;
}

static enum kvw_err make_descriptors(struct kvw_redis *r, char *why)
{
	struct epoll_event event = {.events = EPOLLIN};

	r->epoll = epoll_create1(EPOLL_CLOEXEC);
	r->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->epoll >= 0 && r->wake >= 0 &&
		epoll_ctl(r->epoll, EPOLL_CTL_ADD, r->wake, &event) == 0)
		return KVW_OK;
	snprintf(why, KVW_REDIS_REASON, "redis: %s", strerror(errno));
	return KVW_EIO;
}

static const struct kvw_redis_topology_ops *topology_of(enum kvw_redis_kind kind)
{
	switch (kind) {
	case KVW_REDIS_CLUSTER:
		return &kvw_redis_topology_cluster;
	case KVW_REDIS_SENTINEL:
		return &kvw_redis_topology_sentinel;
	case KVW_REDIS_SINGLE:
	case KVW_REDIS_UNIX:
		break;
	}
	return &kvw_redis_topology_single;
}

static enum kvw_err start_thread(
	struct kvw_redis *r, const struct kvw_redis_options *options, char *why)
{
	const struct kvw_redis_topology_ops *ops = topology_of(options->url->kind);
	enum kvw_err status = take_options(r, options);

	if (status == KVW_OK)
		status = make_tls(r, options, why);
	if (status == KVW_OK)
		status = make_descriptors(r, why);
	if (status != KVW_OK)
		return status;
	r->settings.env = &r->options.env;
	r->settings.epoll = r->epoll;
	r->settings.wake = r->wake;
	r->settings.connections = options->connections > 0 ? options->connections : 1;
	r->settings.connect_ns = (int64_t)options->connect_ns;
	for (size_t i = 0; i < KVW_REDIS_SERVER_ROLES; i++)
		r->settings.logins[i] =
			(struct kvw_redis_link_login){.username = r->options.username,
				.password = r->options.password,
				.database = i == KVW_REDIS_SERVER_DATA ? r->url.database : 0,
				.optional = i == KVW_REDIS_SERVER_SENTINEL};
	r->settings.random = (uint64_t)kvw_redis_now(&r->options.env) ^ (uint64_t)getpid() << 40;
	status = ops->create(r, &r->options, &r->topology);
	if (status == KVW_EINVAL)
		snprintf(why, KVW_REDIS_REASON,
			"the name that Sentinels know is missing or too long");
	return status;
}

enum kvw_err kvw_redis_create(
	const struct kvw_redis_options *options, char *why, struct kvw_redis **out)
{
	struct kvw_redis *r = calloc(1, sizeof(*r));
	enum kvw_err status;

	snprintf(why, KVW_REDIS_REASON, "out of memory");
	if (r == NULL)
		return KVW_ENOMEM;
	r->epoll = r->wake = -1;
	r->deadline_ns = r->look_ns = INT64_MAX;
	r->note_ns = INT64_MIN;
	pthread_mutex_init(&r->lock, NULL);
	snprintf(r->stats.mode, sizeof(r->stats.mode), "redis");
	r->shown = r->stats;
	status = start_thread(r, options, why);
	if (status != KVW_OK) {
		kvw_redis_destroy(r);
		return status;
	}
	why[0] = '\0';
	*out = r;
	return KVW_OK;
}

/* --- ending ----------------------------------------------------------------------------------- */

/* Calls done for all ended commands, also for those that end during the calls. */
static size_t call_done(struct kvw_redis *r)
{
	struct kvw_redis_command *c;
	size_t n = 0;

	for (; (c = kvw_redis_commands_take(&r->finished)) != NULL; n++)
		c->done(c);
	return n;
}

static void free_server(struct kvw_redis *r, struct kvw_redis_server *server)
{
	struct kvw_redis_server_stats last = {0};

	kvw_redis_server_stats(server, &last);
	r->gone.reconnects += last.reconnects;
	r->gone.sent_bytes += last.sent_bytes;
	r->gone.received_bytes += last.received_bytes;
	kvw_redis_server_discard(server);
}

static void free_servers(struct kvw_redis *r, bool wanted_too)
{
	struct kvw_redis_server **at = &r->servers, *server;

	while ((server = *at) != NULL) {
		if (!wanted_too && !server->unwanted) {
			at = &server->next;
			continue;
		}
		*at = server->next;
		free_server(r, server);
	}
}

static void cancel_all(struct kvw_redis *r)
{
	struct kvw_redis_commands returned = {0};
	struct kvw_redis_command *c;

	for (struct kvw_redis_server *server = r->servers; server != NULL; server = server->next)
		kvw_redis_server_close(server, &returned, "the client ends");
	while ((c = kvw_redis_commands_take(&returned)) != NULL)
		kvw_redis_line_finish(r, c, KVW_ECLOSED, "the client ends");
	kvw_redis_line_cancel(r);
}

void kvw_redis_destroy(struct kvw_redis *r)
{
	if (r == NULL)
		return;
	r->closing = true;
	cancel_all(r);
	(void)call_done(r);
	if (r->topology != NULL)
		r->topology->ops->destroy(r->topology);
	free_servers(r, true);
	SSL_CTX_free(r->settings.tls);
	if (r->epoll >= 0)
		close(r->epoll);
	if (r->wake >= 0)
		close(r->wake);
	for (size_t i = 0; i < sizeof(r->texts) / sizeof(r->texts[0]); i++) {
		if (r->texts[i] != NULL)
			OPENSSL_cleanse(r->texts[i], strlen(r->texts[i]));
		free(r->texts[i]);
	}
	OPENSSL_cleanse(&r->url, sizeof(r->url));
	pthread_mutex_destroy(&r->lock);
	free(r);
}

/* --- commands --------------------------------------------------------------------------------- */

static void begin_command(struct kvw_redis *r, struct kvw_redis_command *command)
{
	r->stats.commands++;
	command->status = KVW_OK;
	command->reply = KVW_REDIS_NONE;
	command->found = NULL;
	command->element_count = 0;
	command->text[0] = '\0';
	if (r->closing)
		kvw_redis_line_finish(r, command, KVW_ECLOSED, "the client ends");
	else if (command->part_count == 0 || command->part_count > KVW_REDIS_MAX_PARTS ||
		 command->into_count > KVW_REDIS_MAX_PARTS)
		kvw_redis_line_finish(r, command, KVW_EINVAL, "too many pieces");
	else
		kvw_redis_line_add(r, command);
}

void kvw_redis_submit(struct kvw_redis *r, struct kvw_redis_command *command)
{
	command->progress = (struct kvw_redis_progress){0};
	begin_command(r, command);
}

void kvw_redis_client_send(
	struct kvw_redis *r, struct kvw_redis_server *server, struct kvw_redis_command *command)
{
	command->progress = (struct kvw_redis_progress){.to = server, .exact = true};
	begin_command(r, command);
}

/* --- what topologies ask for ------------------------------------------------------------------ */

struct kvw_redis_server *kvw_redis_client_server(
	struct kvw_redis *r, const char *host, uint16_t port, enum kvw_redis_server_role role)
{
	struct kvw_redis_server *server;

	for (server = r->servers; server != NULL; server = server->next)
		if (server->port == port && server->role == role && !server->unwanted &&
			strcmp(server->host, host) == 0)
			return server;
	server = kvw_redis_server_create(&r->settings, host, port, role);
	if (server == NULL)
		return NULL;
	server->next = r->servers;
	r->servers = server;
	return server;
}

void kvw_redis_client_drop_server(struct kvw_redis *r, struct kvw_redis_server *server)
{
	struct kvw_redis_commands returned = {0}, none = {0};

	server->unwanted = true;
	kvw_redis_server_close(server, &returned, "not in use any more");
	kvw_redis_line_settle(r, server, kvw_redis_now(&r->options.env), &none, &returned, false);
	kvw_redis_line_forget(r, server);
}

void kvw_redis_client_renew(struct kvw_redis *r, struct kvw_redis_server *server)
{
	kvw_redis_server_renew(server);
	r->again = true; /* the next turn takes back the commands of the server's links */
}

void kvw_redis_client_rerouted(struct kvw_redis *r)
{
	r->again = true;
	r->mode_at = UINT64_MAX; /* the topology's text for stats may have changed */
}

bool kvw_redis_client_busy(const struct kvw_redis *r)
{
	return r->line.count > 0 || r->in_flight > 0;
}

uint32_t kvw_redis_client_random(struct kvw_redis *r, uint32_t limit)
{
	return kvw_random_below(&r->settings.random, limit);
}

const struct kvw_redis_env *kvw_redis_client_env(struct kvw_redis *r)
{
	return &r->options.env;
}

/* --- stepping --------------------------------------------------------------------------------- */

static void report_news(struct kvw_redis *r, struct kvw_redis_server *server, unsigned news)
{
	const struct kvw_redis_topology_ops *ops = r->topology->ops;

	if (news == 0 || server->unwanted)
		return;
	r->again = true;
	if (news & KVW_REDIS_SERVER_WENT_DOWN) {
		snprintf(r->stats.reason, sizeof(r->stats.reason), "%s", server->why);
		server->patient = ops->down(r->topology, server, server->why);
	}
	if ((news & KVW_REDIS_SERVER_WENT_UP) && ops->up != NULL)
		ops->up(r->topology, server);
}

static void turn_all(struct kvw_redis *r, int64_t now_ns, int64_t *next_ns)
{
	for (struct kvw_redis_server *server = r->servers; server != NULL; server = server->next) {
		struct kvw_redis_commands answered = {0}, returned = {0};
		unsigned news;

		if (server->unwanted)
			continue;
		news = kvw_redis_server_turn(server, now_ns, &answered, &returned, next_ns);
		kvw_redis_line_settle(r, server, now_ns, &answered, &returned, true);
		report_news(r, server, news);
	}
}

/* Runs all parts of the client once, without waiting. Lowers *next_ns. */
static void go_round(struct kvw_redis *r, int64_t *next_ns)
{
	int64_t now_ns = kvw_redis_now(&r->options.env);

	turn_all(r, now_ns, next_ns);
	kvw_redis_line_expire(r, now_ns);
	if (r->topology->ops->step != NULL)
		r->topology->ops->step(r->topology, now_ns, next_ns);
	if (kvw_redis_line_send(r, now_ns, next_ns))
		turn_all(r, now_ns, next_ns);
	if (r->again)
		*next_ns = now_ns;
	if (r->deadline_ns < *next_ns)
		*next_ns = r->deadline_ns;
}

static int timeout_ms(const struct kvw_redis *r, int64_t wait_ns, int64_t next_ns)
{
	int64_t left_ns =
		next_ns == INT64_MAX ? INT64_MAX : next_ns - kvw_redis_now(&r->options.env);

	if (left_ns > wait_ns)
		left_ns = wait_ns;
	if (left_ns <= 0)
		return 0;
	left_ns = left_ns / 1000000 + (left_ns % 1000000 != 0);
	return left_ns > 60000 ? 60000 : (int)left_ns;
}

/* Passes epoll's events to the links. Returns their number. */
static size_t take_events(struct kvw_redis *r, int wait_ms)
{
	struct epoll_event events[EVENTS];
	int n = epoll_wait(r->epoll, events, EVENTS, wait_ms);
	uint64_t count;

	for (int i = 0; i < n; i++) {
		if (events[i].data.ptr != NULL)
			kvw_redis_link_event(events[i].data.ptr, events[i].events);
		else
			(void)!read(r->wake, &count, sizeof(count));
	}
	return n > 0 ? (size_t)n : 0;
}

static void show_stats(struct kvw_redis *r)
{
	struct kvw_redis_server_stats sums = r->gone;
	const char *info = "";
	char product[24], kind[32] = "";

	r->stats.servers = 0;
	for (struct kvw_redis_server *server = r->servers; server != NULL; server = server->next) {
		kvw_redis_server_stats(server, &sums);
		r->stats.servers += !server->unwanted;
		if (server->role == KVW_REDIS_SERVER_DATA && info[0] == '\0')
			info = kvw_redis_server_info(server);
	}
	r->stats.reconnects = sums.reconnects;
	r->stats.sent_bytes = sums.sent_bytes;
	r->stats.received_bytes = sums.received_bytes;
	r->stats.connections = sums.connections;
	r->stats.waiting = r->line.count + r->control.count;
	r->stats.in_flight = r->in_flight;
	r->stats.in_flight_bytes = r->in_flight_bytes;
	if (r->mode_at != (sums.reconnects << 32 | sums.connections)) {
		r->mode_at = sums.reconnects << 32 | sums.connections;
		kvw_redis_info_product(info, product, sizeof(product));
		r->topology->ops->describe(r->topology, kind, sizeof(kind));
		snprintf(r->stats.mode, sizeof(r->stats.mode), "%s %.*s", product,
			(int)(sizeof(r->stats.mode) - strlen(product) - 2), kind);
	}
	pthread_mutex_lock(&r->lock);
	r->shown = r->stats;
	pthread_mutex_unlock(&r->lock);
}

size_t kvw_redis_step(struct kvw_redis *r, int64_t wait_ns, int64_t *next_ns)
{
	int64_t next = INT64_MAX;
	size_t done;

	free_servers(r, false);
	go_round(r, &next);
	done = take_events(r, r->finished.count > 0 ? 0 : timeout_ms(r, wait_ns, next));
	next = INT64_MAX;
	go_round(r, &next);
	show_stats(r);
	done += call_done(r);
	if (next < *next_ns)
		*next_ns = next;
	return done;
}

void kvw_redis_wake(struct kvw_redis *r)
{
	uint64_t one = 1;

	/* a write to a full counter fails, but then the reader wakes anyway */
	(void)!write(r->wake, &one, sizeof(one));
}

void kvw_redis_stats(struct kvw_redis *r, struct kvw_redis_stats *out)
{
	pthread_mutex_lock(&r->lock);
	*out = r->shown;
	pthread_mutex_unlock(&r->lock);
}
