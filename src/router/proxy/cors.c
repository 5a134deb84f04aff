/*
 * cors.c - lets web pages of other origins use kvway.
 *
 * A browser asks by a preflight, which never carries a key, whether a page may send a request, and
 * shows the page only answers that name the page's origin. vLLM allows no origin by default, before
 * 0.32 all (--allowed-origins).
 *
 * If http.allowed_origins is empty, workers decide: preflights reach them without a key, on paths
 * of inference, and their answers pass unchanged. Pages of any origin may read kvway's own answers
 * (errors, /v1/models) if they may read a worker's: kvway learns that from answers to pages, and
 * asks for /v1/models as a page would, so that it knows at once. If http.allowed_origins names
 * origins, kvway decides: it answers every preflight, and adds its fields to answers that have
 * none. The answer to a preflight is the same on all paths, so that a stranger learns nothing of
 * the exposed paths. kvway never sends Access-Control-Allow-Credentials, so cookies play no part.
 */
#include "proxy/cors.h"

#include <string.h>

#define ORIGIN_MOST  256
#define HEADERS_MOST 512 /* longest list of header names in a preflight, in bytes */

static struct kvw_slice cors_field(const struct kvw_head *head, const char *name)
{
	const struct kvw_field *field = kvw_head_find(head, kvw_slice_of(name));

	return field == NULL ? (struct kvw_slice){NULL, 0} : field->value;
}

void kvw_cors_note(struct kvw_exchange *x, const struct kvw_head *head)
{
	x->page.origin = cors_field(head, "origin");
	if (x->page.origin.len > ORIGIN_MOST)
		x->page.origin.len = 0;
	x->page.preflight =
		x->page.origin.len > 0 && kvw_slice_equal(head->method, KVW_SLICE("OPTIONS")) &&
		cors_field(head, "access-control-request-method").len > 0 &&
		(head->framing == KVW_FRAME_NONE ||
			(head->framing == KVW_FRAME_LENGTH && head->content_length == 0));
}

/* Returns whether all pages may read workers' answers, by the last answer that said so. */
static bool workers_allow_any(const struct kvw_fleet *fleet)
{
	for (size_t i = 0; i < fleet->count; i++) {
		const struct kvw_worker *worker = kvw_fleet_worker(fleet, i);

		if (worker != NULL &&
			atomic_load_explicit(&worker->any_origin, memory_order_relaxed))
			return true;
	}
	return false;
}

/* Returns whether pages of the request's origin may read the answer. *any: pages of all origins
 * may. */
static bool allows(const struct kvw_exchange *x, bool *any)
{
	const struct kvw_strings *list = &x->config->http_allowed_origins;

	*any = list->count == 0 && workers_allow_any(x->loop->fleet);
	for (size_t i = 0; i < list->count && !*any; i++) {
		*any = strcmp(list->items[i], "*") == 0;
		if (kvw_slice_equal_nocase(kvw_slice_of(list->items[i]), x->page.origin))
			return true;
	}
	return *any;
}

void kvw_cors_write(const struct kvw_exchange *x, struct kvw_writer *w)
{
	bool any;

	if (x->page.origin.len == 0 || !allows(x, &any))
		return;
	kvw_write_field(
		w, KVW_SLICE("access-control-allow-origin"), any ? KVW_SLICE("*") : x->page.origin);
	if (!any)
		kvw_write_literal(w, "vary: Origin\r\n");
}

bool kvw_cors_own_preflight(const struct kvw_exchange *x)
{
	return x->page.preflight &&
	       (x->config->http_allowed_origins.count > 0 || x->path.kind == KVW_PATH_LOCAL);
}

bool kvw_cors_preflight(const struct kvw_exchange *x, const struct kvw_head *head, char *buf)
{
	struct kvw_slice wanted = cors_field(head, "access-control-request-headers");
	struct kvw_writer w = KVW_WRITER(buf, KVW_CORS_ROOM - 1);
	bool any;

	if (wanted.len > HEADERS_MOST || !allows(x, &any))
		return false;
	kvw_write_literal(&w,
		"access-control-allow-methods: DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT\r\n"
		"access-control-max-age: 600\r\n");
	if (wanted.len > 0)
		kvw_write_field(&w, KVW_SLICE("access-control-allow-headers"), wanted);
	buf[w.len] = '\0';
	return true;
}

void kvw_cors_answered(
	const struct kvw_exchange *x, const struct kvw_head *answer, struct kvw_writer *w)
{
	struct kvw_slice said;

	if (x->page.origin.len == 0)
		return;
	said = cors_field(answer, "access-control-allow-origin");
	if (x->config->http_allowed_origins.count == 0)
		atomic_store_explicit(&x->attempt.worker->any_origin,
			kvw_slice_equal(said, KVW_SLICE("*")), memory_order_relaxed);
	else if (said.len == 0)
		kvw_cors_write(x, w);
}
