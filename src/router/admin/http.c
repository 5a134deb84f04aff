/*
 * http.c - the admin address's HTTP server: clients of src/common/server on the control thread.
 */
#include "admin/http.h"

#include <event2/event.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "http/target.h"
#include "tls/tls.h"

#define TIME_NS (30 * KVW_NS_PER_S) /* each limit of time */

struct kvw_admin_http {
	struct kvw_clients clients; /* first */
	struct kvw_server server;
	struct kvw_tls *tls; /* TLS for clients; borrowed; NULL: plain HTTP */
	struct kvw_admin_http_state state;
	kvw_admin_admit_fn admit;
	kvw_admin_request_fn request;
	void *arg;
	struct event *news, *tick;
	/* Timer of the next turn, after the base's other events. */
	struct event *again;
};

/* Returns the bytes before the first of `stops`, or before the end. */
static size_t strcspn_in(const char *at, const char *end, const char *stops)
{
	const char *from = at;

	while (at < end && strchr(stops, *at) == NULL)
		at++;
	return (size_t)(at - from);
}

/* --- the query -------------------------------------------------------------------------------- */

char *kvw_admin_http_decode(struct kvw_slice coded, bool plus)
{
	char *text = malloc(coded.len + 1);
	size_t len;

	if (text != NULL && kvw_target_decode(coded, plus, text, coded.len + 1, &len))
		return text;
	free(text);
	return NULL;
}

bool kvw_admin_http_parameter(const struct kvw_head *head, const char *name, char **value)
{
	struct kvw_slice coded;

	*value = NULL;
	if (!kvw_target_query(head->target, name, &coded))
		return false;
	if (coded.data != NULL)
		*value = kvw_admin_http_decode(coded, true);
	return coded.data == NULL || *value != NULL;
}

bool kvw_admin_http_query_is(
	struct kvw_conn *conn, const struct kvw_head *head, const char *const *names)
{
	struct kvw_slice path = kvw_target_path(head->target);
	const char *at = path.data + path.len + 1, *end = head->target.data + head->target.len;
	char message[256];

	while (at < end) {
		size_t len = strcspn_in(at, end, "=&"), i = 0;

		while (names[i] != NULL &&
			!kvw_slice_equal(kvw_slice_of(names[i]), (struct kvw_slice){at, len}))
			i++;
		if (names[i] == NULL) {
			int used = snprintf(message, sizeof(message),
				"found the parameter `%.*s`, expected %s",
				(int)(len < 64 ? len : 64), at, names[0] == NULL ? "none" : "only");

			for (i = 0; names[i] != NULL && used < (int)sizeof(message); i++)
				used += snprintf(message + used, sizeof(message) - (size_t)used,
					" %s", names[i]);
			kvw_admin_http_error(conn, 400, "", message);
			return false;
		}
		at += strcspn_in(at, end, "&") + 1;
	}
	return true;
}

bool kvw_admin_http_flag(
	struct kvw_conn *conn, const struct kvw_head *head, const char *name, bool *set)
{
	char message[128], *value;
	bool read = kvw_admin_http_parameter(head, name, &value);

	*set = read && value != NULL && strcmp(value, "true") == 0;
	if (read && (value == NULL || *set || strcmp(value, "false") == 0)) {
		free(value);
		return true;
	}
	(void)snprintf(message, sizeof(message), "%s: found `%.40s`, expected true or false", name,
		read ? value : "a query that cannot be read");
	kvw_admin_http_error(conn, 400, "", message);
	free(value);
	return false;
}

bool kvw_admin_http_method(struct kvw_conn *conn, const char *allowed)
{
	struct kvw_slice method = conn->clients->head.method;
	char extra[80], message[96];

	for (const char *at = allowed; *at != '\0'; at += strspn(at, ", ")) {
		size_t len = strcspn(at, ",");

		if (kvw_slice_equal(method, (struct kvw_slice){at, len}))
			return true;
		at += len;
	}
	(void)snprintf(extra, sizeof(extra), "Allow: %s\r\n", allowed);
	(void)snprintf(message, sizeof(message), "found %.*s, expected %s",
		(int)(method.len < 16 ? method.len : 16), method.data, allowed);
	kvw_admin_http_error(conn, 405, extra, message);
	return false;
}

/* --- clients ---------------------------------------------------------------------------------- */

void kvw_admin_http_error(struct kvw_conn *conn, int status, const char *extra, const char *message)
{
	struct kvw_page text = {0};

	kvw_page_string(&text, "{\"error\":{\"message\":");
	kvw_page_json(&text, kvw_slice_of(message));
	kvw_page_string(&text, ",\"code\":");
	kvw_page_i64(&text, status);
	kvw_page_string(&text, "}}\n");
	kvw_conn_answer(conn, &(struct kvw_http_answer){.status = status,
				      .type = "application/json",
				      .body = {text.data, text.failed ? 0 : text.len},
				      .extra = kvw_slice_of(extra)});
	free(text.data);
}

void kvw_admin_http_answer(
	struct kvw_conn *conn, int status, const char *type, struct kvw_slice body)
{
	if (body.data == NULL)
		kvw_admin_http_error(conn, 500, "", "out of memory");
	else
		kvw_conn_answer(conn, &(struct kvw_http_answer){.status = status,
					      .type = type,
					      .body = body,
					      .extra = KVW_SLICE("Cache-Control: no-store\r\n")});
}

void kvw_admin_http_json_take(struct kvw_conn *conn, int status, const char *extra, json_t *body)
{
	char *text = body == NULL ? NULL : json_dumps(body, JSON_COMPACT | JSON_REAL_PRECISION(9)),
	     fields[512];
	struct kvw_slice slice = kvw_slice_of(text);

	json_decref(body);
	if (text == NULL) {
		kvw_admin_http_error(conn, 500, "", "out of memory");
		return;
	}
	(void)snprintf(fields, sizeof(fields), "%sCache-Control: no-store\r\n", extra);
	kvw_conn_answer(conn, &(struct kvw_http_answer){.status = status,
				      .type = "application/json",
				      .body = slice,
				      .extra = kvw_slice_of(fields)});
	free(text);
}

static bool on_head(struct kvw_conn *conn)
{
	struct kvw_admin_http *http = (struct kvw_admin_http *)conn->clients;

	return http->admit == NULL || http->admit(conn, http->arg);
}

static void on_request(struct kvw_conn *conn)
{
	struct kvw_admin_http *http = (struct kvw_admin_http *)conn->clients;

	http->request(conn, http->arg);
}

static void refuse_question(
	struct kvw_conn *conn, enum kvw_conn_refusal what, int status, const char *message)
{
	(void)what;
	kvw_admin_http_error(conn, status,
		status == 405 ? "Allow: GET, HEAD, POST\r\n" : "", message);
}

static void turn_away_take(struct kvw_clients *clients, int fd, enum kvw_refusal why)
{
	struct kvw_admin_http *http = (struct kvw_admin_http *)clients;

	(void)why;
	atomic_fetch_add_explicit(&http->state.refused, 1, memory_order_relaxed);
	close(fd);
}

/* The handshake gets the time of an idle connection. */
static bool opened(struct kvw_conn *conn)
{
	const struct kvw_admin_http *http = (struct kvw_admin_http *)conn->clients;

	return http->tls == NULL || kvw_tls_server_start(&conn->io, http->tls) == KVW_OK;
}

static const struct kvw_clients_ops ops = {.request = on_request,
	.refuse = refuse_question,
	.turn_away_take = turn_away_take,
	.admit = on_head,
	.opened = opened};

/* --- the loop --------------------------------------------------------------------------------- */

/* Runs one turn. While there is more to do, a timer comes back: libevent would run an event that
 * makes itself active again and again, and nothing else. */
static void turn(evutil_socket_t fd, short what, void *arg)
{
	const struct timeval at_once = {0};
	struct kvw_admin_http *http = arg;

	(void)fd;
	(void)what;
	if (!kvw_server_loop_turn(&http->clients.loop, false))
		kvw_error("admin", "the event loop failed why=\"%s\"", strerror(errno));
	if (kvw_io_set_busy(&http->clients.loop.sockets))
		(void)event_add(http->again, &at_once); /* if this fails, the tick calls turn() */
}

static enum kvw_err add_events(struct kvw_admin_http *http, struct event_base *base)
{
	const struct timeval second = {.tv_sec = 1};

	http->news =
		event_new(base, http->clients.loop.sockets.fd, EV_READ | EV_PERSIST, turn, http);
	http->tick = event_new(base, -1, EV_PERSIST, turn, http); /* a tick for the timers */
	http->again = event_new(base, -1, 0, turn, http);
	if (http->news == NULL || http->tick == NULL || http->again == NULL ||
		event_add(http->news, NULL) != 0 || event_add(http->tick, &second) != 0)
		return KVW_ENOMEM;
	return KVW_OK;
}

enum kvw_err kvw_admin_http_create(struct event_base *base, int listen_fd, uint64_t body_most,
	kvw_admin_admit_fn admit, kvw_admin_request_fn request, void *arg,
	struct kvw_admin_http **out)
{
	const struct kvw_clients_options options = {
		.ops = &ops,
		.limits = {.idle_ns = TIME_NS,
			.head_ns = TIME_NS,
			.write_ns = TIME_NS,
			.body_ns = TIME_NS,
			.body_pauses = true,
			.body_most = body_most},
		.conn_bytes = sizeof(struct kvw_conn),
		.date = true,
		.wipe = true,
	};
	struct kvw_admin_http *http = calloc(1, sizeof(*http));
	enum kvw_err err;

	if (http == NULL) {
		if (listen_fd >= 0)
			close(listen_fd);
		return KVW_ENOMEM;
	}
	http->server.most = KVW_ADMIN_CONNECTIONS_MOST;
	http->state.open = &http->server.connections;
	http->server.drain_ns = TIME_NS;
	http->admit = admit;
	http->request = request;
	http->arg = arg;
	err = kvw_clients_init(&http->clients, &http->server, &options, listen_fd);
	if (err == KVW_OK)
		err = add_events(http, base);
	if (err == KVW_OK)
		*out = http;
	else
		kvw_admin_http_destroy(http);
	return err;
}

const struct kvw_admin_http_state *kvw_admin_http_state(const struct kvw_admin_http *http)
{
	return &http->state;
}

enum kvw_err kvw_admin_http_listen_take(struct kvw_admin_http *http, int listen_fd)
{
	return kvw_server_loop_listen_take(&http->clients.loop, listen_fd);
}

bool kvw_admin_http_is_done(const struct kvw_admin_http *http)
{
	const struct kvw_server_loop *loop = &http->clients.loop;

	return atomic_load(&loop->draining) && atomic_load(&loop->conn_count) == 0;
}

void kvw_admin_http_drain(struct kvw_admin_http *http, int64_t settle_ns)
{
	http->server.settle_ns = (uint64_t)settle_ns;
	atomic_store(&http->server.draining, true);
	kvw_server_loop_wake(&http->clients.loop);
}

void kvw_admin_http_set_body_most(struct kvw_admin_http *http, uint64_t body_most)
{
	http->clients.options.limits.body_most = body_most;
}

void kvw_admin_http_set_tls(struct kvw_admin_http *http, struct kvw_tls *tls)
{
	http->tls = tls;
}

void kvw_admin_http_cut(struct kvw_admin_http *http)
{
	if (http != NULL)
		kvw_clients_cut(&http->clients);
}

void kvw_admin_http_destroy(struct kvw_admin_http *http)
{
	if (http == NULL)
		return;
	if (http->again != NULL)
		event_free(http->again);
	if (http->tick != NULL)
		event_free(http->tick);
	if (http->news != NULL)
		event_free(http->news);
	kvw_clients_finish(&http->clients);
	free(http);
}

struct kvw_server_loop *kvw_admin_http_loop(struct kvw_admin_http *http)
{
	return &http->clients.loop;
}
