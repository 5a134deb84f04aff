/*
 * guard.c - checks keys and paths.
 *
 * The guard first checks the key, so that a stranger learns nothing; then the path, against the
 * list of all and that of the key. It compares the lists with the path as a careless server might
 * read it (openai/api_path.h); a path that careful and careless servers read differently counts as
 * nonexistent.
 *
 * Steps check the body (steps/key_*.c).
 */
#include "proxy/guard.h"

#include <stdio.h>
#include <string.h>

#include "admin/explanation.h"
#include "auth/auth.h"
#include "auth/credential.h"
#include "auth/jwt_gate.h"
#include "proxy/reply.h"

void kvw_guard_refuse(struct kvw_exchange *x, int status, enum kvw_counter counter,
	const char *code, const char *message)
{
	kvw_metrics_add(x->loop->metrics, counter, 1);
	kvw_reply_error_code(x, status, NULL, code,
		status == 401 ? "www-authenticate: Bearer\r\n" : NULL, message);
}

/* --- what a path is --- */

/* Returns the path to compare with the lists. A client that may see the list of models may see each
 * of its entries, too. */
static struct kvw_slice asked_path(const struct kvw_exchange *x)
{
	return x->path.model_card ? KVW_SLICE("/v1/models") : x->target;
}

static bool is_path_listed(const struct kvw_exchange *x, const struct kvw_strings *paths)
{
	return kvw_path_listed(asked_path(x), (const char *const *)paths->items, paths->count);
}

static bool is_guarded(const struct kvw_exchange *x)
{
	return x->path.kind == KVW_PATH_ENGINE_CONTROL || x->path.kind == KVW_PATH_LORA;
}

static bool is_exposed(const struct kvw_exchange *x)
{
	const struct kvw_strings *paths = &x->config->expose_paths;

	if (is_guarded(x)) /* guarded paths have keys of their own */
		return true;
	if (paths->count > 0)
		return is_path_listed(x, paths);
	return x->loop->auth == NULL ||
	       kvw_path_listed(asked_path(x), kvw_inference_paths, kvw_inference_path_count);
}

/* Returns whether a worker may answer this preflight although it has no key: such an answer shows
 * only that a path of inference exists. */
static bool is_open_preflight(const struct kvw_exchange *x)
{
	return x->page.preflight && kvw_path_straight(asked_path(x)) && !is_guarded(x) &&
	       is_exposed(x);
}

/* --- the key --- */

static void look_for_keys(struct kvw_loop *loop)
{
	if (loop->keyring != NULL && kvw_auth_version(loop->auth) == loop->keyring_version)
		return;
	kvw_keyring_unref(loop->keyring);
	loop->keyring = kvw_auth_take(loop->auth, &loop->keyring_version);
}

static bool refuse_credential(struct kvw_exchange *x, enum kvw_credential shown)
{
	switch (shown) {
	case KVW_CREDENTIAL_FOUND:
		return false;
	case KVW_CREDENTIAL_MISSING:
		kvw_guard_refuse(x, 401, KVW_COUNT_AUTH_MISSING, "missing_api_key",
			"no API key: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`");
		break;
	case KVW_CREDENTIAL_SCHEME:
		kvw_guard_refuse(x, 401, KVW_COUNT_AUTH_SCHEME, "invalid_api_key",
			"no API key: Authorization has another scheme than Bearer");
		break;
	case KVW_CREDENTIAL_TWICE:
		kvw_guard_refuse(x, 400, KVW_COUNT_AUTH_TWICE, "ambiguous_api_key",
			"more than one API key: send one, in one header field");
		break;
	case KVW_CREDENTIAL_QUERY:
		kvw_guard_refuse(x, 400, KVW_COUNT_AUTH_QUERY, "api_key_in_query",
			"an API key in the URL, where it gets into logs: replace that key, and "
			"send it as "
			"`Authorization: Bearer KEY`");
		break;
	}
	return true;
}

/* Takes a key's own limits of size and time, where they are lower than the general ones. */
static void take_limits(struct kvw_exchange *x)
{
	const struct kvw_client_key *key = x->caller.key;
	int64_t most_ms = x->config->timeout_request_ms;

	if (key->max_body > 0 && key->max_body < x->upload.body.limit)
		x->upload.body.limit = key->max_body;
	if (key->timeout_ms > 0 && (most_ms == 0 || key->timeout_ms < most_ms))
		kvw_timer_set(&x->loop->timers, &x->deadline, KVW_TIMER_KEY,
			x->start_ns + key->timeout_ms * KVW_NS_PER_MS);
}

/* A JSON web token, read before its bytes are overwritten. */
struct token {
	struct kvw_jwt_gate *gate; /* NULL: clients need no tokens */
	int64_t now_s;
	bool shown; /* the request shows a token */
	enum kvw_jwt_verdict verdict;
	struct kvw_keyring *ring; /* KVW_JWT_GOOD: a reference to the keyring */
};

static void look_at_token(void *arg, struct kvw_slice shown, const struct kvw_digest *digest)
{
	struct token *token = arg;

	token->shown = token->gate != NULL && kvw_jwt_looks(shown);
	if (token->shown)
		token->verdict =
			kvw_jwt_gate_check(token->gate, shown, digest, token->now_s, &token->ring);
}

/* Refuses a token (RFC 6750). A token that cannot be judged yet gets another answer than a wrong
 * one, so that clients try again by themselves. */
static void refuse_token(struct kvw_exchange *x, enum kvw_jwt_verdict verdict)
{
	const char *text = kvw_jwt_verdict_text(verdict);
	char extra[192];
	bool later = verdict == KVW_JWT_NO_KEYS || verdict == KVW_JWT_NO_MEMORY;

	if (later)
		(void)snprintf(extra, sizeof(extra), "retry-after: 1\r\n");
	else
		(void)snprintf(extra, sizeof(extra),
			"www-authenticate: Bearer error=\"invalid_token\", "
			"error_description=\"%s\"\r\n",
			text);
	kvw_reply_error_code(x, later ? 503 : 401, NULL,
		later                        ? "token_keys_unavailable"
		: verdict == KVW_JWT_EXPIRED ? "expired_token"
					     : "invalid_token",
		extra, text);
}

static bool refuse_bearer(
	struct kvw_exchange *x, const struct token *token, const struct kvw_digest *digest)
{
	if (token->verdict != KVW_JWT_GOOD) {
		refuse_token(x, token->verdict);
		return true;
	}
	x->caller.keyring = token->ring;
	x->caller.key = kvw_keyring_find(token->ring, digest);
	take_limits(x);
	x->pin = x->division.wish = (struct kvw_slice){NULL, 0};
	if (kvw_slice_of(x->caller.key->tenant).len > 0)
		kvw_auth_saw_tenant(x->loop->auth);
	return false;
}

static bool refuse_stranger(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;
	struct token token = {.gate = kvw_auth_jwt(loop->auth), .now_s = x->wall_ns / KVW_NS_PER_S};
	const struct kvw_client_key *key;
	struct kvw_digest digest;
	enum kvw_credential shown =
		kvw_credential_take_seen(&loop->request_head, &digest, look_at_token, &token);

	/* Browsers send no key with a preflight, and vLLM requires none. */
	if (shown == KVW_CREDENTIAL_MISSING && is_open_preflight(x)) {
		x->pin = x->division.wish = (struct kvw_slice){NULL, 0};
		return false;
	}
	if (refuse_credential(x, shown))
		return true;
	if (token.shown)
		return refuse_bearer(x, &token, &digest);
	look_for_keys(loop);
	key = kvw_keyring_find(loop->keyring, &digest);
	if (key == NULL) {
		kvw_guard_refuse(x, 401, KVW_COUNT_AUTH_UNKNOWN, "invalid_api_key",
			"this API key is not known");
		return true;
	}
	kvw_keyring_ref(loop->keyring);
	x->caller.keyring = loop->keyring;
	x->caller.key = key;
	take_limits(x);
	if (!key->trusted)
		x->pin = x->division.wish = (struct kvw_slice){NULL, 0};
	if (kvw_client_key_lives(key, x->wall_ns / KVW_NS_PER_S))
		return false;
	kvw_guard_refuse(
		x, 401, KVW_COUNT_AUTH_EXPIRED, "expired_api_key", "this API key has expired");
	return true;
}

/* --- the path --- */

/* Returns whether the key lists the path. A pattern of a whole folder does not include guarded
 * paths, which must be named. */
static bool key_lists(const struct kvw_exchange *x)
{
	const struct kvw_strings *paths = &x->caller.key->paths;

	if (paths->count == 0)
		return !is_guarded(x);
	if (!is_guarded(x))
		return is_path_listed(x, paths);
	for (size_t i = 0; i < paths->count; i++) {
		const char *path = paths->items[i];

		if (path[strlen(path) - 1] != '*' && kvw_path_listed(x->target, &path, 1))
			return true;
	}
	return false;
}

static bool refuse_path(struct kvw_exchange *x)
{
	if (!kvw_path_straight(asked_path(x)) || !is_exposed(x)) {
		kvw_guard_refuse(
			x, 404, KVW_COUNT_PATHS_REFUSED, "path_not_found", "there is no such path");
		return true;
	}
	if (x->caller.key == NULL || key_lists(x))
		return false;
	kvw_guard_refuse(x, 403, KVW_COUNT_AUTH_PATH, "path_not_allowed",
		"this API key may not use this path");
	return true;
}

/* Returns whether the path is for probes of load balancers: they need no key, whatever is
 * exposed. */
static bool is_open_path(const struct kvw_exchange *x)
{
	static const char *const open[] = {"/health", "/ready", "/ping"};

	return x->path.kind == KVW_PATH_LOCAL &&
	       kvw_path_listed(x->target, open, sizeof(open) / sizeof(open[0]));
}

/* A dry run shows no key: takes the key that its question names. */
static void take_named(struct kvw_exchange *x)
{
	if (x->dry->key == NULL)
		return;
	if (x->dry->keyring != NULL)
		kvw_keyring_ref(x->dry->keyring);
	x->caller.keyring = x->dry->keyring;
	x->caller.key = x->dry->key;
	take_limits(x);
	if (!x->caller.key->trusted)
		x->pin = x->division.wish = (struct kvw_slice){NULL, 0};
}

bool kvw_guard_head(struct kvw_exchange *x)
{
	if ((x->loop->auth == NULL && x->config->expose_paths.count == 0) || is_open_path(x))
		return false;
	if (x->dry != NULL)
		take_named(x);
	else if (x->loop->auth != NULL && refuse_stranger(x))
		return true;
	return refuse_path(x);
}
