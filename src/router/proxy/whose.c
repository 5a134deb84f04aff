/*
 * whose.c - finds the worker and the tenant of an object that one worker alone keeps and clients
 * request by id.
 */
#include "proxy/whose.h"

#include <string.h>

#include "auth/auth.h"
#include "proxy/shared.h"

static uint64_t tenant_of(const struct kvw_exchange *x)
{
	return x->caller.key == NULL ? 0 : kvw_owners_tenant(kvw_slice_of(x->caller.key->tenant));
}

/* --- ids of answers --- */

bool kvw_whose_makes(const struct kvw_exchange *x, const struct kvw_head *head)
{
	if (!head->post_method || x->path.made_id.len > 0 || x->path.kind != KVW_PATH_FORWARD)
		return false;
	return x->path.api == KVW_API_RESPONSES || x->path.api == KVW_API_OTHER;
}

void kvw_whose_take(const struct kvw_exchange *x, struct kvw_slice id)
{
	kvw_owners_set(x->loop->shared->owners, id, tenant_of(x), x->attempt.worker->id);
}

/* Returns the id in the bytes that have arrived; len 0: it is not there yet, or there is none. */
static struct kvw_slice seek_id(
	struct kvw_made *made, const char *data, size_t len, struct kvw_slice prefix)
{
	size_t room = sizeof(made->text) - made->len;
	struct kvw_slice id;

	if (len > room)
		len = room;
	memcpy(made->text + made->len, data, len);
	made->len += len;
	id = kvw_owners_id_in(made->text, made->len, prefix);
	made->sought = id.len == 0 && made->len < sizeof(made->text);
	return id;
}

void kvw_whose_note(struct kvw_exchange *x, const char *data, size_t len)
{
	bool response = x->path.api == KVW_API_RESPONSES;
	struct kvw_slice id =
		seek_id(&x->made, data, len, response ? KVW_SLICE("resp") : KVW_SLICE(""));

	if (id.len > 0)
		kvw_whose_take(x, id);
}

void kvw_whose_forget(struct kvw_made *made)
{
	made->sought = made->sought || made->len > 0;
	made->len = 0;
}

/* --- whose it is --- */

enum kvw_owned kvw_whose(const struct kvw_exchange *x, uint32_t *worker)
{
	struct kvw_slice id = kvw_exchange_kept(x);

	if (id.len == 0)
		return KVW_OWNED_UNKNOWN;
	return kvw_owners_find(x->loop->shared->owners, id, tenant_of(x), worker);
}

bool kvw_whose_worker(const struct kvw_exchange *x, uint32_t *worker)
{
	return kvw_whose(x, worker) == KVW_OWNED_KNOWN;
}

bool kvw_whose_response(const struct kvw_exchange *x)
{
	return x->path.response || x->route.previous_id.len > 0;
}

bool kvw_whose_tenants(const struct kvw_exchange *x)
{
	return tenant_of(x) != 0 || kvw_keyring_has_tenants(x->caller.keyring) ||
	       (kvw_auth_jwt(x->loop->auth) != NULL && x->config->auth_jwt_tenant_claim[0] != '\0');
}
