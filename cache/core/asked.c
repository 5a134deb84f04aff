/*
 * asked.c - answers requests of other processes to this cache, on the socket in its store's folder.
 */
#include "core/asked.h"

#include <stdio.h>
#include <string.h>

#include "admin/admin_text.h"
#include "core/ops.h"
#include "core/versions.h"

static void list_tenants(struct kvt *k, size_t most, char *out)
{
	struct kvt_tenant_list list;

	kvt_l1_tenants(k->l1, most, &list);
	kvt_admin_write_listed(&list, out, KVT_ADMIN_LINE);
}

static void tell_reused(const struct kvt *k, char *out)
{
	struct kvt_fragments_stats stats = {.size = sizeof(stats)};

	kvt_fragment_counters_read(&k->counters.fragments, &stats);
	kvt_admin_write_reused(&stats, out, KVT_ADMIN_LINE);
}

/* Writes the tenants that have a limit in the shared tier, as JSON. */
static void list_shared(struct kvt *k, size_t most, char *out)
{
	struct kvt_tenant_list list = {.count = 0};

	for (size_t i = 0; i < k->lower_count && k->config.tenant_l2_bytes != 0; i++) {
		struct kvt_tier *tier = k->lower[i].tier;

		if (k->lower[i].id == KVT_TIER_L2 && tier != NULL && tier->ops->tenants != NULL)
			tier->ops->tenants(tier, most, &list);
	}
	kvt_admin_write_listed(&list, out, KVT_ADMIN_LINE);
}

static void erase_asked(struct kvt *k, const struct kvt_admin_erase *erase, char *out)
{
	struct kvt_erased erased = {.size = sizeof(erased)};
	enum kvt_status status;

	status = kvt_erase_which(k, &erase->which, erase->timeout_ns, &erased);
	if (erase->which.dry_run == 0)
		kvt_note(&k->surroundings, KVT_LOG_INFO,
			"admin: erased on request: %s; l1 %llu, nvme %llu chunks",
			kvt_status_text(status),
			(unsigned long long)erased.tiers[KVT_TIER_L1].chunks,
			(unsigned long long)erased.tiers[KVT_TIER_NVME].chunks);
	kvt_admin_write_erased(status, &erased, out, KVT_ADMIN_LINE);
}

static void answer(void *self, const char *request, char *out)
{
	struct kvt *k = self;
	struct kvt_admin_erase erase;
	size_t most;

	if (kvt_admin_read_erase(request, &erase))
		erase_asked(k, &erase, out);
	else if (kvt_admin_read_tenants(request, &most))
		list_tenants(k, most, out);
	else if (strcmp(request, KVT_ADMIN_FRAGMENTS) == 0)
		tell_reused(k, out);
	else if (kvt_admin_read_shared(request, &most))
		list_shared(k, most, out);
	else if (!kvt_trace_answer(k, request, out, KVT_ADMIN_LINE))
		(void)snprintf(out, KVT_ADMIN_LINE, "refused kvtier %s knows no such request",
			kvt_version());
}

void kvt_asked_start(struct kvt *k)
{
	struct kvt_admin *admin = NULL;
	bool stored = false, closing;
	char folder[4096];

	for (size_t i = 0; i < k->lower_count; i++)
		stored |= k->lower[i].id == KVT_TIER_NVME && k->lower[i].tier != NULL;
	if (!stored || k->nvme_path == NULL || k->config.io != NULL ||
		k->config.threads == KVT_THREADS_CALLER)
		return;
	if (!kvt_version_folder(k, &k->config.fingerprint, folder, sizeof(folder)))
		return;
	/* Two threads may call this at once: the one that opens the cache, and the one that opens a
	 * store later. */
	if (!k->opened || atomic_exchange(&k->admin_begun, true) ||
		kvt_admin_create(folder, &k->surroundings, answer, k, &admin) != KVT_OK)
		return;
	pthread_mutex_lock(&k->lock);
	closing = k->closing;
	if (!closing)
		k->admin = admin;
	pthread_mutex_unlock(&k->lock);
	if (closing)
		kvt_admin_destroy(admin);
}

/* An erase under way is broken off: the chunks that it erased stay unreadable, and the client that
 * asked hears that the erase was not completed. */
void kvt_asked_stop(struct kvt *k)
{
	struct kvt_admin *admin;

	pthread_mutex_lock(&k->lock);
	admin = k->admin;
	if (k->opened)
		k->closing = true; /* no admin socket is made from here on */
	if (admin != NULL)
		kvt_ops_stop(k);
	pthread_mutex_unlock(&k->lock);
	kvt_admin_destroy(admin);
	k->admin = NULL;
}
