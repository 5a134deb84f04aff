/*
 * rewrite.c - changes a request's body: the salt of its tenant, the model of an alias or of its
 * group, and members that direct the engine, which a key may send only if its entry allows them.
 */
#include "proxy/rewrite.h"

#include <string.h>

#include "auth/auth.h"
#include "openai/engine_fields.h"

struct kvw_slice kvw_rewrite_tenant(const struct kvw_exchange *x)
{
	if (x->caller.key == NULL || kvw_auth_tenants(x->loop->auth) == NULL)
		return (struct kvw_slice){NULL, 0};
	return kvw_slice_of(x->caller.key->tenant);
}

uint32_t kvw_rewrite_fields(const struct kvw_exchange *x)
{
	uint32_t fields = KVW_ENGINE_FIELDS_ALL;

	if (x->caller.key == NULL || x->caller.key->trusted || !kvw_exchange_computes(x))
		return 0;
	for (size_t i = 0; i < x->caller.key->engine_fields.count; i++) {
		const char *name = x->caller.key->engine_fields.items[i];
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

	/* If memory is out the scan fails, which is seen later. */
	if (x->sagemaker.adapter.len > 0 &&
		!kvw_scan_set_model(x->scan, x->rewrite.rename_to != NULL
						     ? kvw_slice_of(x->rewrite.rename_to)
						     : x->sagemaker.adapter))
		return;
	if (x->rewrite.salted || x->rewrite.rename_to != NULL || !x->whole)
		return; /* the body has its final names already, or gets them now */
	x->rewrite.alias = kvw_config_alias(x->config, kvw_scan_model(x->scan));
	if (x->rewrite.alias != NULL &&
		kvw_scan_set_model(x->scan, kvw_slice_of(x->rewrite.alias->target)))
		x->rewrite.rename_to = x->rewrite.alias->target;
	if (tenant.len > 0 && kvw_exchange_computes(x) && !x->path.unsalted)
		x->rewrite.salted = set_salt(x, tenant);
}

/* --- the body --- */

static void count_changes(const struct kvw_exchange *x)
{
	if (x->rewrite.salted)
		kvw_metrics_add(x->loop->metrics, KVW_COUNT_BODY_SALTED, 1);
	if (x->rewrite.rename_to != NULL)
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

	x->rewrite.stripped = x->scanned;
	if (!x->rewrite.salted && x->rewrite.rename_to == NULL &&
		(x->scan == NULL || !kvw_scan_places(x->scan)->fields))
		return KVW_OK;
	if (x->rewrite.salted)
		salt = kvw_scan_salt(x->scan, &there);
	if (x->rewrite.rename_to != NULL)
		model = kvw_slice_of(x->rewrite.rename_to);
	if (x->scanned)
		err = kvw_splice_plan(x->scan, salt, model, &splice);
	if (err == KVW_OK)
		err = kvw_upload_change(&x->upload, &x->loop->blocks, &splice);
	if (err == KVW_OK) {
		count_changes(x);
	} else {
		x->rewrite.salted = x->rewrite.stripped = false;
		x->rewrite.rename_to = NULL;
	}
	if (err != KVW_OK && x->division.group != NULL &&
		strcmp(x->division.group->serves, x->division.group->model) != 0)
		x->division.fault = KVW_GROUP_UNWRITTEN;
	/* a body that cannot be changed is refused before it is routed */
	return err == KVW_ENOMEM ? err : KVW_OK;
}
