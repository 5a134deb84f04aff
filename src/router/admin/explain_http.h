/*
 * explain_http.h - POST /explain on the admin address. Private to src/router/admin.
 */
#ifndef KVW_EXPLAIN_HTTP_H
#define KVW_EXPLAIN_HTTP_H

#include "admin/explain.h"

struct event_base;
struct evhttp_request;

/* Where answers about tokens come back to. Zeroed: nowhere, explanations do without. */
struct kvw_explain_desk {
	struct event_base *base;
	struct kvw_tokens_box *box;
	int64_t wait_ms; /* for one answer */
};

/*
 * Answers one request: the body as a client would send it; ?path= says where to, else its content
 * does; a session key may come by header or cookie as with a client. On the control thread.
 */
void kvw_explain_http(const struct kvw_explain_source *source,
	const struct kvw_explain_desk *desk, struct evhttp_request *request, int64_t now_ns);

/* --- explain_wait.c --- */
/* Asks for the prompt's tokens. True: the request is answered when they have come, or in time without
 * them, by kvw_explain_http_answer. False: query holds what there is. */
bool kvw_explain_wait(const struct kvw_explain_source *source, const struct kvw_explain_desk *desk,
	struct evhttp_request *request, struct kvw_explain_query *query, int64_t now_ns);

/* --- explain_http.c --- */
/* Fills target, session and body of *query, as the request has them. target_text: the caller's to free.
 * False: it was refused, an answer was sent. */
bool kvw_explain_http_query(const struct kvw_config *config, struct evhttp_request *request,
	struct kvw_explain_query *query, char **target_text);
void kvw_explain_http_answer(const struct kvw_explain_source *source,
	struct evhttp_request *request, const struct kvw_explain_query *query, int64_t now_ns);

#endif
