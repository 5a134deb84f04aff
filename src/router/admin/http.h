/*
 * http.h - the admin address's HTTP server: clients of src/common/server on the control thread.
 * Private to src/router/admin.
 *
 * The control thread's loop is libevent's, for the prober. The server's sockets are one descriptor
 * in it; when that has news the server's loop turns once.
 *
 * Threads: the base's.
 */
#ifndef KVW_ADMIN_HTTP_H
#define KVW_ADMIN_HTTP_H

#include <jansson.h>

#include "server/connection.h"

struct event_base;
struct kvw_tls;
struct kvw_admin_http;

/* Limits of open connections; a client beyond them is closed at once. A connection without a
 * request is closed after 30 seconds. */
#define KVW_ADMIN_CONNECTIONS_MOST 512

/* For metrics. Any thread may read it. */
struct kvw_admin_http_state {
	const _Atomic uint32_t *open;
	_Atomic uint64_t refused; /* counted since the start */
};

/* Answers the request in conn->clients->head, at once or later by kvw_conn_await; its body is
 * kvw_conn_body. */
typedef void (*kvw_admin_request_fn)(struct kvw_conn *conn, void *arg);

/* Returns whether the request in conn->clients->head, whose body has not come yet, may be served.
 * False: it was answered. */
typedef bool (*kvw_admin_admit_fn)(struct kvw_conn *conn, void *arg);

/* Serves clients that listen_fd accepts (-1: none until kvw_admin_http_listen_take), with bodies up
 * to body_most. admit may be NULL. Takes listen_fd, also on failure. */
enum kvw_err kvw_admin_http_create(struct event_base *base, int listen_fd, uint64_t body_most,
	kvw_admin_admit_fn admit, kvw_admin_request_fn request, void *arg,
	struct kvw_admin_http **out) KVW_MUST_CHECK;
/* Accepts from this socket, which it takes, also on failure; the server must not have one yet. */
enum kvw_err kvw_admin_http_listen_take(struct kvw_admin_http *http, int listen_fd) KVW_MUST_CHECK;
const struct kvw_admin_http_state *kvw_admin_http_state(const struct kvw_admin_http *http);
/* Stops accepting; clients without a request have settle_ns to send one, the others 30 seconds
 * more. */
void kvw_admin_http_drain(struct kvw_admin_http *http, int64_t settle_ns);
/* Returns whether the server drains and all its clients have left. Any thread. */
bool kvw_admin_http_is_done(const struct kvw_admin_http *http);
/* Sets the limit for requests whose head arrives from now on. */
void kvw_admin_http_set_body_most(struct kvw_admin_http *http, uint64_t body_most);
/* Makes clients speak TLS; tls is borrowed until the server is destroyed. Called before the base's
 * first dispatch. */
void kvw_admin_http_set_tls(struct kvw_admin_http *http, struct kvw_tls *tls);
/* Closes all connections, so that none waits for an answer any more. Called after the base's last
 * dispatch. */
void kvw_admin_http_cut(struct kvw_admin_http *http);
/* Delivers posted answers that remain, and frees the server, before the base is freed. NULL is
 * allowed, also for the functions above. */
void kvw_admin_http_destroy(struct kvw_admin_http *http);
struct kvw_server_loop *kvw_admin_http_loop(struct kvw_admin_http *http);

/* Answers {"error":{"message":"...","code":N}}; the message is escaped. extra: whole header lines;
 * "": none. */
void kvw_admin_http_error(
	struct kvw_conn *conn, int status, const char *extra, const char *message);

/* Answers with a text that no cache may keep. body: data NULL: 500, out of memory. */
void kvw_admin_http_answer(
	struct kvw_conn *conn, int status, const char *type, struct kvw_slice body);

/* Sets *value to the query's first parameter of that name, decoded, which the caller frees; NULL:
 * there is none. False: the query cannot be read. */
bool kvw_admin_http_parameter(
	const struct kvw_head *head, const char *name, char **value) KVW_MUST_CHECK;
/* Decodes %XX, and '+' as a space if `plus`; the caller frees the result. NULL: it cannot be read
 * (or has %00), or out of memory. */
char *kvw_admin_http_decode(struct kvw_slice coded, bool plus);

/* Answers with `body`, which it takes; NULL: 500. extra: at most 400 characters. */
void kvw_admin_http_json_take(struct kvw_conn *conn, int status, const char *extra, json_t *body);

/* The following functions check a request. False: it was refused. */

/* Checks the method. allowed: as in the Allow field, "GET, POST". */
bool kvw_admin_http_method(struct kvw_conn *conn, const char *allowed) KVW_MUST_CHECK;
/* Checks that the query has no parameters other than these; names ends with NULL. */
bool kvw_admin_http_query_is(struct kvw_conn *conn, const struct kvw_head *head,
	const char *const *names) KVW_MUST_CHECK;
/* Reads ?name=true or false. Without the parameter it is false. */
bool kvw_admin_http_flag(struct kvw_conn *conn, const struct kvw_head *head, const char *name,
	bool *set) KVW_MUST_CHECK;

#endif
