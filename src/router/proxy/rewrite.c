/*
 * rewrite.c - see rewrite.h.
 *
 * A body is seldom copied: an edit moves the bytes behind it within the block of 8 or 64 KiB in which it lies, and all
 * other blocks stay as they were received. Of a chunked body the framing is taken out first, block by block, so that it
 * goes on with its length.
 */
#include "proxy/rewrite.h"

#include <string.h>

#include "auth/auth.h"
#include "openai/engine_fields.h"

struct kvw_slice kvw_rewrite_tenant(const struct kvw_exchange *x)
{
	if (x->key == NULL || kvw_auth_tenants(x->loop->auth) == NULL)
		return (struct kvw_slice){NULL, 0};
	return kvw_slice_of(x->key->tenant);
}

uint32_t kvw_rewrite_fields(const struct kvw_exchange *x)
{
	uint32_t fields = KVW_ENGINE_FIELDS_ALL;

	if (x->key == NULL || x->key->trusted || !kvw_exchange_computes(x))
		return 0;
	for (size_t i = 0; i < x->key->engine_fields.count; i++) {
		const char *name = x->key->engine_fields.items[i];
		uint32_t field = kvw_engine_field(name, strlen(name));

		if (field != UINT32_MAX)
			fields &= ~(UINT32_C(1) << field);
	}
	return fields;
}

void kvw_rewrite_session(struct kvw_exchange *x)
{
	struct kvw_slice tenant = kvw_rewrite_tenant(x);

	if (tenant.len > 0)
		x->route.tenant = kvw_tenants_number(kvw_auth_tenants(x->loop->auth), tenant);
}

/* --- before the scan's end --- */

static bool set_salt(struct kvw_exchange *x, struct kvw_slice tenant)
{
	char salt[KVW_TENANT_SALT];
	struct kvw_slice own;
	bool there;

	own = kvw_scan_salt(x->scan, &there);
	kvw_tenants_salt(kvw_auth_tenants(x->loop->auth), tenant, there, own, salt);
	return kvw_scan_set_salt(x->scan, (struct kvw_slice){salt, sizeof(salt)});
}

void kvw_rewrite_scan(struct kvw_exchange *x)
{
	struct kvw_slice tenant = kvw_rewrite_tenant(x);

	/* Without memory the scan has failed. */
	if (x->adapter.len > 0 &&
		!kvw_scan_set_model(x->scan, x->renamed ? kvw_slice_of(x->rename_to) : x->adapter))
		return;
	if (x->salted || x->renamed || !x->whole)
		return; /* it has them, or will have none */
	x->alias = kvw_config_alias(x->config, kvw_scan_model(x->scan));
	if (x->alias != NULL) {
		x->rename_to = x->alias->target;
		x->renamed = kvw_scan_set_model(x->scan, kvw_slice_of(x->rename_to));
	}
	if (tenant.len > 0 && kvw_exchange_computes(x) && !x->path.unsalted)
		x->salted = set_salt(x, tenant);
}

/* --- chunked framing --- */

struct payload {
	struct kvw_block *block;
	uint32_t end; /* of what the block keeps */
};

static void keep_payload(void *arg, const char *data, size_t len)
{
	struct payload *payload = arg;

	memmove(payload->block->data + payload->end, data, len);
	payload->end += (uint32_t)len;
}

/* The body was read once: it is good. */
static void drop_framing(struct kvw_exchange *x)
{
	struct payload payload = {x->in.first, x->head_offset + (uint32_t)x->head_len};
	struct kvw_body body;

	kvw_body_begin(&body, x->framing, 0, 0);
	for (struct kvw_block *block = x->in.first; block != NULL; block = block->next) {
		uint32_t from = block == x->in.first ? payload.end : block->begin;
		size_t used;

		payload = (struct payload){block, from};
		if (kvw_body_feed(&body, block->data + from, block->end - from, keep_payload, &payload, &used) !=
			KVW_OK)
			break; /* cannot be */
		x->in.bytes -= block->end - payload.end;
		block->end = payload.end;
	}
	x->framing = KVW_FRAME_LENGTH;
	x->content_length = body.payload_bytes;
	x->body_received = body.payload_bytes;
}

/* --- the body --- */

static struct kvw_cursor place(const struct kvw_exchange *x, uint64_t at)
{
	struct kvw_cursor cursor = {x->in.first, x->head_offset + (uint32_t)x->head_len};

	kvw_cursor_advance(&cursor, (size_t)at);
	return cursor;
}

/* From the last edit to the first: places before it do not move. */
enum kvw_err kvw_rewrite_apply(struct kvw_exchange *x, const struct kvw_splice *splice)
{
	enum kvw_err err = KVW_OK;

	if (x->framing == KVW_FRAME_CHUNKED)
		drop_framing(x);
	for (uint32_t i = splice->count; i > 0 && err == KVW_OK; i--) {
		const struct kvw_splice_edit *edit = &splice->edits[i - 1];
		struct kvw_cursor cursor = place(x, edit->at);

		err = kvw_chain_replace(
			&x->in, &x->loop->blocks, &cursor, (size_t)edit->removed, edit->text);
	}
	if (err == KVW_OK) {
		x->content_length = (uint64_t)((int64_t)x->content_length + splice->growth);
		x->body_received = x->content_length;
	}
	x->feed = (struct kvw_cursor){x->in.last, x->in.last->end};
	return err;
}

static void count(const struct kvw_exchange *x)
{
	if (x->salted)
		kvw_metrics_add(x->loop->metrics, KVW_COUNT_BODY_SALTED, 1);
	if (x->renamed)
		kvw_metrics_add(x->loop->metrics, KVW_COUNT_BODY_RENAMED, 1);
	if (kvw_scan_places(x->scan)->fields)
		kvw_metrics_add(x->loop->metrics, KVW_COUNT_BODY_STRIPPED, 1);
}

enum kvw_err kvw_rewrite_body(struct kvw_exchange *x)
{
	struct kvw_splice splice;
	struct kvw_slice salt = {NULL, 0}, model = {NULL, 0};
	bool there;
	enum kvw_err err = KVW_EINVAL;

	x->stripped = x->scanned;
	if (!x->salted && !x->renamed && (x->scan == NULL || !kvw_scan_places(x->scan)->fields))
		return KVW_OK;
	if (x->salted)
		salt = kvw_scan_salt(x->scan, &there);
	if (x->renamed)
		model = kvw_slice_of(x->rename_to);
	if (x->scanned)
		err = kvw_splice_plan(x->scan, salt, model, &splice);
	if (err == KVW_OK)
		err = kvw_rewrite_apply(x, &splice);
	if (err == KVW_OK)
		count(x);
	else
		x->salted = x->renamed = x->stripped = false;
	if (err != KVW_OK && x->group != NULL && strcmp(x->group->serves, x->group->model) != 0)
		x->division.fault = KVW_GROUP_UNWRITTEN;
	return err == KVW_ENOMEM ? err : KVW_OK; /* what cannot be changed is refused before it is routed */
}
