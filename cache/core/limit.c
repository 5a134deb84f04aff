/*
 * limit.c - how much of each tier one tenant may hold.
 *
 * Each local tier's index has its own limits. A shared tier has no such limit, since other
 * processes store there, too.
 */
#include "core/put.h"
#include "core/refused.h"

bool kvt_put_is_limited(struct kvt *k, const struct kvt_item *item)
{
	return kvt_usable(k) == KVT_OK && kvt_l1_is_limited(k->l1, item);
}

enum kvt_status kvt_limit_tenant(
	struct kvt *k, const struct kvt_tenant *tenant, uint64_t l1_bytes, uint64_t nvme_bytes)
{
	enum kvt_status status = kvt_usable(k);

	if (status != KVT_OK || tenant == NULL)
		return status != KVT_OK ? status : KVT_EINVAL;
	status = kvt_l1_limit_tenant(k->l1, tenant, l1_bytes);
	for (size_t i = 0; i < k->lower_count && status == KVT_OK; i++) {
		struct kvt_tier *tier;

		pthread_mutex_lock(&k->lock);
		tier = k->lower[i].tier;
		status = kvt_refused_limit(&k->lower[i], tenant, nvme_bytes);
		pthread_mutex_unlock(&k->lock);
		if (status == KVT_OK && tier != NULL && tier->ops->limit_tenant != NULL)
			status = tier->ops->limit_tenant(tier, tenant, nvme_bytes);
	}
	return status;
}
