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

/* Open connections at most; a client beyond them is closed at once.
 * A connection without a request has 30 seconds. */
#define KVW_ADMIN_CONNECTIONS_MOST 512

/* For metrics. Any thread may read it. */
struct kvw_admin_http_state {
	const _Atomic uint32_t *open;
	_Atomic uint64_t refused; /* since start */
};

/* Answers the request in conn->clients->head, at once or by kvw_conn_await;
 * its body is kvw_conn_body. */
typedef void (*kvw_admin_request_fn)(struct kvw_conn *conn, void *arg);

/* May the request in conn->clients->head be served, whose body has not come? False:
 * it is answered. */
typedef bool (*kvw_admin_admit_fn)(struct kvw_conn *conn, void *arg);

/* Serves clients that listen_fd accepts (-1: none, until kvw_admin_http_listen_take), bodies up to
 * body_most. admit may be NULL. Takes listen_fd, also when it fails. */
enum kvw_err kvw_admin_http_create(struct event_base *base, int listen_fd, uint64_t body_most,
	kvw_admin_admit_fn admit, kvw_admin_request_fn request, void *arg,
	struct kvw_admin_http **out) KVW_MUST_CHECK;
/* Accepts from this socket, which it takes, also when it fails; it had none. */
enum kvw_err kvw_admin_http_listen_take(struct kvw_admin_http *http, int listen_fd) KVW_MUST_CHECK;
const struct kvw_admin_http_state *kvw_admin_http_state(const struct kvw_admin_http *http);
/* Accepts no more; clients without a request have settle_ns to send one,
 * the others 30 seconds more. */
void kvw_admin_http_drain(struct kvw_admin_http *http, int64_t settle_ns);
/* Does the server drain, and have all its clients gone? Any thread. */
bool kvw_admin_http_is_done(const struct kvw_admin_http *http);
/* Sets the limit for requests whose head arrives from now on. */
void kvw_admin_http_set_body_most(struct kvw_admin_http *http, uint64_t body_most);
/* Clients speak TLS, which is borrowed until the server is destroyed.
 * Before the base's first dispatch. */
void kvw_admin_http_set_tls(struct kvw_admin_http *http, struct kvw_tls *tls);
/* Closes all connections: nothing waits for an answer any more. After the base's last dispatch. */
void kvw_admin_http_cut(struct kvw_admin_http *http);
/* Delivers the remaining mail, frees; before the base is freed. NULL is allowed, here and above. */
void kvw_admin_http_destroy(struct kvw_admin_http *http);
struct kvw_server_loop *kvw_admin_http_loop(struct kvw_admin_http *http);

/* {"error":{"message":"...","code":N}}, whatever characters the message has; extra: whole field
 * lines, "": none. */
void kvw_admin_http_error(
	struct kvw_conn *conn, int status, const char *extra, const char *message);

/* The target without its query. */
struct kvw_slice kvw_admin_http_path(const struct kvw_head *head);
/* *value is the query's first parameter of that name, decoded, to be freed; NULL: there is none.
 * False: the query cannot be read. */
bool kvw_admin_http_parameter(
	const struct kvw_head *head, const char *name, char **value) KVW_MUST_CHECK;
/* %XX decoded, and '+' as a space if `plus`; to be freed. NULL: it cannot be read (%00 neither), or
 * no memory. */
char *kvw_admin_http_decode(struct kvw_slice coded, bool plus);

/* Answers with `body`, which it takes; NULL: 500. extra: at most 400 characters. */
void kvw_admin_http_json_take(struct kvw_conn *conn, int status, const char *extra, json_t *body);

/* Checks of a request. False: it is answered. */

/* allowed: as in the Allow field, "GET, POST". */
bool kvw_admin_http_method(struct kvw_conn *conn, const char *allowed) KVW_MUST_CHECK;
/* The query has these parameters at most; names ends with NULL. */
bool kvw_admin_http_query_is(struct kvw_conn *conn, const struct kvw_head *head,
	const char *const *names) KVW_MUST_CHECK;
/* ?name=true or false, which is the default. */
bool kvw_admin_http_flag(struct kvw_conn *conn, const struct kvw_head *head, const char *name,
	bool *set) KVW_MUST_CHECK;

#endif
