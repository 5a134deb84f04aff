/*
 * explain_http.h - POST /explain on the admin address. Private to src/admin.
 */
#ifndef KVW_EXPLAIN_HTTP_H
#define KVW_EXPLAIN_HTTP_H

#include "explain.h"

struct evhttp_request;

/*
 * Answers one request: the body as a client would send it; ?path= says where to, else its content
 * does; a session key may come by header or cookie as with a client. On the control thread.
 */
void kvw_explain_http(
	const struct kvw_explain_source *source, struct evhttp_request *request, int64_t now_ns);

#endif
