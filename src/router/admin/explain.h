/*
 * explain.h - the interface by which a question is answered that asks where a request would go, and
 * why, without sending it.
 *
 * The proxy answers the question (proxy/dry.h): it makes a request of it and runs the steps of any
 * request. Their decisions stand in struct kvw_explanation (explanation.h), which explain_page.c
 * prints.
 */
#ifndef KVW_EXPLAIN_H
#define KVW_EXPLAIN_H

#include "admin/admin.h"
#include "http/head.h"

struct kvw_client_key;
struct kvw_keyring;
struct kvw_tokens_box;

/* Largest request body that is explained, whatever limits.body says. */
#define KVW_EXPLAIN_BODY_MAX ((size_t)64 << 20)

/* A request as a client would send it. All borrowed, until kvw_explainer.begin returns. */
struct kvw_explain_query {
	struct kvw_slice target; /* path and query; len 0: found from the body's content */
	/* The head's fields count as a client's would; x-kvway-tenant names the tenant of the
	 * question's key. */
	const struct kvw_head *head;
	struct kvw_keyring *keyring;      /* of key */
	/* the key with which the request would come; NULL: none */
	const struct kvw_client_key *key;
	struct kvw_slice body;
};

/* How an answer about the prompt's tokens returns to the asking thread. */
struct kvw_explain_tokens {
	struct kvw_tokens_box *box; /* NULL: the explanation does without exact tokens */
	void (*done)(void *user);   /* called on the thread that reads the box */
	void *user;
};

struct kvw_dry_run; /* a question under way */

/* The part that answers questions. Threads: all functions of an explainer are called on one thread:
 * the control thread, or, if only one thread uses the fleet, that thread. */
struct kvw_explainer {
	void *arg;
	/* Begins to answer. *waits: the prompt's tokens were asked for, and done will be called,
	 * unless expire or end is called before. */
	enum kvw_err (*begin)(void *arg, const struct kvw_explain_query *query,
		const struct kvw_explain_tokens *tokens, int64_t now_ns, struct kvw_dry_run **out,
		bool *waits);
	/* Ends the wait: the answer is made without the tokens. */
	void (*expire)(struct kvw_dry_run *run, int64_t now_ns);
	/* Makes the answer: an explanation (status 200), or the error that the request would get,
	 * in OpenAI's form. KVW_ENOMEM. */
	enum kvw_err (*answer)(
		struct kvw_dry_run *run, int64_t now_ns, struct kvw_local_answer *out);
	void (*end)(struct kvw_dry_run *run);
};

/* Makes an error in OpenAI's form. param, code: NULL if there is none. */
enum kvw_err kvw_explain_error(int status, const char *param, const char *code, const char *message,
	struct kvw_local_answer *out) KVW_MUST_CHECK;

#endif
