/*
 * explain.h - predicts the fate of a request, and why, without sending it anywhere: the question,
 * and the interface of the part that answers it.
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
	struct kvw_slice target; /* path and query; len 0: by what the body holds */
	/* The head's fields count as a client's would; x-kvway-tenant: that of the question's
	 * key. */
	const struct kvw_head *head;
	struct kvw_keyring *keyring;      /* of key */
	const struct kvw_client_key *key; /* by which it would come; NULL: by none */
	struct kvw_slice body;
};

/* Where an answer about the prompt's tokens comes back to. */
struct kvw_explain_tokens {
	struct kvw_tokens_box *box; /* NULL: nowhere, the explanation does without */
	void (*done)(void *user);   /* on the thread that reads the box */
	void *user;
};

struct kvw_dry_run; /* a question under way */

/* Threads: all functions of one run on one thread, the control thread or where the fleet belongs
 * to one thread alone. */
struct kvw_explainer {
	void *arg;
	/* *waits: the prompt's tokens were asked for, and done will be called, unless expire or
	 * end is before. */
	enum kvw_err (*begin)(void *arg, const struct kvw_explain_query *query,
		const struct kvw_explain_tokens *tokens, int64_t now_ns, struct kvw_dry_run **out,
		bool *waits);
	/* The question waits no longer. */
	void (*expire)(struct kvw_dry_run *run, int64_t now_ns);
	/* *out is an explanation (status 200), or the error that the request would get, in
	 * OpenAI's form. KVW_ENOMEM. */
	enum kvw_err (*answer)(
		struct kvw_dry_run *run, int64_t now_ns, struct kvw_local_answer *out);
	void (*end)(struct kvw_dry_run *run);
};

/* An error in OpenAI's form. param, code: NULL is none. */
enum kvw_err kvw_explain_error(int status, const char *param, const char *code, const char *message,
	struct kvw_local_answer *out) KVW_MUST_CHECK;

#endif
