/*
 * explain_http.h - POST /explain on the admin address. Private to src/router/admin.
 */
#ifndef KVW_EXPLAIN_HTTP_H
#define KVW_EXPLAIN_HTTP_H

#include "admin/explain.h"

struct event_base;
struct kvw_auth;
struct kvw_conn;

/* Where answers about tokens come back to. Zeroed: nowhere, explanations do without. */
struct kvw_explain_desk {
	struct event_base *base;
	struct kvw_tokens_box *box;
	int64_t wait_ms; /* for one answer */
	struct kvw_auth *auth; /* keys of clients, for ?key=; NULL: there are none */
	bool keys;       /* clients have keys of ours: what a request shows is for no worker */
};

/*
 * Answers one request: the body as a client would send it; ?path= says where to, else its content
 * does; a session key may come by header or cookie as with a client. ?key= is the name of the client's key by which
 * it would come. On the control thread.
 */
void kvw_explain_http(const struct kvw_explain_source *source,
	const struct kvw_explain_desk *desk, struct kvw_conn *conn, int64_t now_ns);

/* --- explain_wait.c --- */
/* Asks for the prompt's tokens. True: the request is answered when they have come, or in time without
 * them, by kvw_explain_http_answer. False: query holds what there is. */
bool kvw_explain_wait(const struct kvw_explain_source *source, const struct kvw_explain_desk *desk,
	struct kvw_conn *conn, struct kvw_explain_query *query, int64_t now_ns);

/* --- explain_http.c --- */
void kvw_explain_http_answer(const struct kvw_explain_source *source, struct kvw_conn *conn,
	const struct kvw_explain_query *query, int64_t now_ns);

#endif
