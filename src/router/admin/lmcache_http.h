/*
 * lmcache_http.h - what scripts ask LMCache's controller by HTTP, on the admin address. Private to
 * src/router/admin.
 *
 * POST /lookup /query_instance /query_worker_info /clear /pin /health, GET /controller/workers and
 * /controller/key-stats: requests and answers are those of LMCache's own controller (0.5). POST /move
 * /compress /decompress /check_finish are refused with 501.
 */
#ifndef KVW_LMCACHE_HTTP_H
#define KVW_LMCACHE_HTTP_H

#include <stdbool.h>

#include "kvway/err.h"

struct kvw_conn;
struct kvw_feed;
struct kvw_lmcache_http;
struct kvw_server_loop;

/* loop is that of the clients. feed may be NULL: then all is answered with 503. Both are borrowed until
 * destroy. */
enum kvw_err kvw_lmcache_http_create(struct kvw_server_loop *loop, struct kvw_feed *feed,
	struct kvw_lmcache_http **out) KVW_MUST_CHECK;

/* When no connection waits any more, before the loop is finished. NULL is allowed. */
void kvw_lmcache_http_destroy(struct kvw_lmcache_http *http);

/* True: the request is one of these, and is answered, now or later. On the control thread. */
bool kvw_lmcache_http(struct kvw_lmcache_http *http, struct kvw_conn *conn);

#endif
