/*
 * explain_http.h - serves POST /explain on the admin address. Private to src/router/admin.
 */
#ifndef KVW_EXPLAIN_HTTP_H
#define KVW_EXPLAIN_HTTP_H

#include "admin/explain.h"

struct event_base;
struct kvw_auth;
struct kvw_conn;

/* Parts that an explanation needs: the explainer, and where answers about tokens arrive. */
struct kvw_explain_desk {
	const struct kvw_explainer *explainer; /* NULL: kvway is still starting */
	struct event_base *base;
	struct kvw_tokens_box *box; /* NULL: explanations do without tokens */
	int64_t wait_ms;            /* longest wait for an answer */
	struct kvw_auth *auth;      /* keys of clients, for ?key=; NULL: there are none */
};

/*
 * Serves one request. Its body is a request's body as a client would send it; ?path= names the
 * path, which is otherwise found from the content. Fields that a client would send in its head may
 * come as headers or cookies of this request. ?key= is the name of the client's key. Called on the
 * control thread.
 */
void kvw_explain_http(const struct kvw_explain_desk *desk, struct kvw_conn *conn, int64_t now_ns);

/* --- explain_wait.c --- */
/* Answers now, or when the prompt's tokens have come, or after a time limit without them. False:
 * out of memory. */
bool kvw_explain_begin(const struct kvw_explain_desk *desk, struct kvw_conn *conn,
	const struct kvw_explain_query *query, int64_t now_ns);

/* --- explain_http.c --- */
void kvw_explain_http_answer(const struct kvw_explainer *explainer, struct kvw_conn *conn,
	struct kvw_dry_run *run, int64_t now_ns);

#endif
