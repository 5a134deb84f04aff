/*
 * explain.h - what would become of a request, and why, without sending it anywhere.
 *
 * The same steps as for a request that is served: its body is scanned, the workers of its model are
 * looked up, the strategy weighs them. The strategy's explain() stands where its pick() would: no
 * prompt is remembered, no load is taken, no counter moves.
 *
 * Threads: kvw_explain reads the fleet's view. It runs on the control thread, which alone replaces
 * that view and therefore cannot do so meanwhile, or where the fleet belongs to one thread alone.
 */
#ifndef KVW_EXPLAIN_H
#define KVW_EXPLAIN_H

#include "admin/admin.h"
#include "auth/tenants.h"
#include "feeds/tokens/tokens.h"
#include "http/head.h"
#include "rates/rates.h"

/* Largest request body that is explained, whatever limits.body says. */
#define KVW_EXPLAIN_BODY_MAX ((size_t)64 << 20)

/* What an explanation reads and calls. All borrowed. */
struct kvw_explain_source {
	const struct kvw_config *config;
	const struct kvw_fleet *fleet;
	struct kvw_strategy *strategy;
	kvw_owner_fn owner_of; /* NULL: no session has an owner */
	void *owner_arg;
	struct kvw_admission *admission; /* only looked at; NULL: nothing is said of it */
	const struct kvw_metrics *metrics; /* NULL: none */
	const struct kvw_tenants *tenants; /* NULL: tenants are not kept apart */
	struct kvw_rate_table *rates; /* only looked at; NULL: nothing is said of limits */
	bool cold; /* made from a file, nothing runs: workers without a list serve every model */

	/* Of a strategy that wants exact tokens; else NULL. */
	struct kvw_tokens *tokens;
	struct kvw_kvspaces *spaces;
	struct kvw_feed *feed;
};

/* A request as a client would send it. All borrowed. */
struct kvw_explain_query {
	struct kvw_slice target;  /* path and query; len 0: by what the body holds */
	struct kvw_slice session; /* session key from a header or cookie; len 0: none */
	struct kvw_slice tenant;  /* x-kvway-tenant: of the key that it would come by; len 0: none */
	struct kvw_slice key;     /* the name of the one that it would come by; len 0: none */
	struct kvw_rate_limits key_limits;
	struct kvw_slice group;   /* groups.header, where it counts; len 0: none */
	struct kvw_slice id;      /* x-request-id; len 0: none */
	struct kvw_slice pin;     /* x-kvway-pin, where http.pin lets it count; len 0: none */
	struct kvw_slice body;
	size_t class_index; /* in admission_classes */
	bool impatient;     /* x-kvway-do-not-queue */
	int64_t deadline_ns; /* after it came, x-kvway-deadline-ms; 0: none */
	uint64_t program;   /* that it names, as kvw_program_named says; 0: none */

	/* The prompt's tokens, where they were asked for: kvw_explain_ask_tokens. */
	bool tokens_seen;
	const char *tokens_from; /* static text */
	struct kvw_token_result tokens;
};

/* Asks for the prompt's tokens as the data plane would, if it would. True: done will be called on box's
 * thread, unless *job is forgotten. False: what was found at once is in *query. */
bool kvw_explain_ask_tokens(const struct kvw_explain_source *source, struct kvw_explain_query *query,
	int64_t now_ns, const struct kvw_token_ask *like, struct kvw_token_job **job);

/*
 * *out is an explanation (status 200) or an error in OpenAI's form: 400 a body or path that no
 * worker would take, 403 a path that is not exposed, 404 unknown model, 413, 501 a strategy that
 * cannot explain, 503 no usable worker. KVW_ENOMEM.
 */
enum kvw_err kvw_explain(const struct kvw_explain_source *source,
	const struct kvw_explain_query *query, int64_t now_ns,
	struct kvw_local_answer *out) KVW_MUST_CHECK;

/* The session key where the data plane looks for it, in the same order: headers, then cookies. Borrowed
 * from head; len 0: none. */
struct kvw_slice kvw_explain_session(
	const struct kvw_config *config, const struct kvw_head *head);

/* The tenant that is asked about: clients' requests have it by their key. */
struct kvw_slice kvw_explain_tenant(const struct kvw_head *head);

/* The worker that the request names, likewise. */
struct kvw_slice kvw_explain_pin(const struct kvw_config *config, const struct kvw_head *head);

/* What of the head counts for admission, likewise. key: by which the request would come; NULL: by none. */
void kvw_explain_class(const struct kvw_config *config, const struct kvw_head *head,
	const struct kvw_client_key *key, struct kvw_explain_query *query);

/* An error in OpenAI's form. */
enum kvw_err kvw_explain_error(int status, const char *param, const char *message,
	struct kvw_local_answer *out) KVW_MUST_CHECK;

#endif
