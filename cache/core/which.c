/*
 * which.c - erases by any known property of a chunk: tenant, fingerprint, key, or several of them.
 *
 * The count covers the chunks that each tier knows when the erase begins. A chunk that is put
 * meanwhile may be erased and not counted. A key's hash contains its tenant, so that all tiers
 * agree on a key's tenant: one tier that knows the key decides for all. A key with a tenant that no
 * tier knows, and about which a shared tier gives no answer, stays and makes the erase fail, since
 * the tier may have it.
 *
 * With a key its end chunks (kvt_key_ends) are erased, too: further objects with bytes of the same
 * tokens, whose keys the caller need not know.
 */
#include <stdlib.h>

#include "core/lower.h"

#define KEYS_MOST 4096

/* --- keys ------------------------------------------------------------------------------------- */

/* Returns whether a shared tier may have this key, because it was not asked or did not answer. */
static bool is_unsure(struct kvt *k, const struct kvt_key *key)
{
	for (size_t i = 0; i < k->lower_count; i++) {
		if (k->lower[i].tier != NULL && kvt_lower_unsure(&k->lower[i], key))
			return true;
	}
	return false;
}

/* Asks shared tiers whether they have the keys. */
static void ask_shared(struct kvt *k, const struct kvt_which *w, int64_t deadline_ns)
{
	for (size_t i = 0; i < w->key_count; i++) {
		int64_t now_ns = kvt_clock(k);
		struct kvt_lookup found;

		if (now_ns >= deadline_ns)
			return;
		if (is_unsure(k, &w->keys[i]))
			(void)!kvt_find(k, &w->keys[i], 1, KVT_IN(KVT_TIER_L2),
				(uint64_t)(deadline_ns - now_ns), NULL, &found);
	}
}

/* Reads what a tier knows of a key: tier 0 is L1, lower ones follow. */
static bool known_by(
	struct kvt *k, size_t tier, const struct kvt_key *key, struct kvt_tier_known *out)
{
	struct kvt_entry_info info;

	*out = (struct kvt_tier_known){.bytes = 0};
	if (tier > 0) {
		struct kvt_lower *lower = &k->lower[tier - 1];

		return lower->tier != NULL && kvt_lower_knows(lower, key, out);
	}
	if (kvt_l1_known(k->l1, key, &info) != KVT_OK)
		return false;
	out->bytes = info.bytes;
	out->tenant = info.tenant;
	return true;
}

static uint32_t id_of(const struct kvt *k, size_t tier)
{
	return tier == 0 ? KVT_TIER_L1 : k->lower[tier - 1].id;
}

/* Returns whether the key is the tenant's, as far as any tier knows. Sets *open if no tier knows,
 * and one has not answered. */
static bool is_of_tenant(struct kvt *k, const struct kvt_key *key,
	const struct kvt_tenant *tenant, bool *open)
{
	struct kvt_tier_known known;

	for (size_t tier = 0; tenant != NULL && tier <= k->lower_count; tier++)
		if (known_by(k, tier, key, &known))
			return memcmp(&known.tenant, tenant, sizeof(*tenant)) == 0;
	*open |= tenant != NULL && is_unsure(k, key);
	return tenant == NULL;
}

static void count_key(struct kvt *k, const struct kvt_key *key, struct kvt_erased *sum)
{
	struct kvt_tier_known known;

	for (size_t tier = 0; tier <= k->lower_count; tier++) {
		if (!known_by(k, tier, key, &known))
			continue;
		sum->tiers[id_of(k, tier)].chunks++;
		sum->tiers[id_of(k, tier)].bytes += known.bytes;
	}
}

/* Returns twice as many keys: of each chunk and of its end chunks. NULL: out of memory. */
static struct kvt_key *with_ends(const struct kvt_key *keys, size_t n)
{
	struct kvt_key *both = calloc(n, 2 * sizeof(*both));

	for (size_t i = 0; both != NULL && i < n; i++) {
		both[2 * i] = keys[i];
		kvt_key_ends(&keys[i], &both[2 * i + 1]);
	}
	return both;
}

/* Erases the keys of *w without changing their list. */
static enum kvt_status erase_these(
	struct kvt *k, const struct kvt_which *w, uint64_t timeout_ns, struct kvt_erased *sum)
{
	int64_t deadline_ns = kvt_deadline(k, timeout_ns);
	struct kvt_key *keys = calloc(w->key_count, sizeof(*keys));
	enum kvt_status status = KVT_OK;
	int64_t left_ns;
	bool open = false;
	size_t n = 0;

	if (keys == NULL)
		return KVT_ENOMEM;
	ask_shared(k, w, deadline_ns);
	for (size_t i = 0; i < w->key_count; i++) {
		if (is_unsure(k, &w->keys[i]))
			sum->tiers[KVT_TIER_L2].counted = KVT_COUNTED_UNKNOWN;
		if (!is_of_tenant(k, &w->keys[i], w->tenant, &open))
			continue;
		count_key(k, &w->keys[i], sum);
		keys[n++] = w->keys[i];
	}
	left_ns = deadline_ns - kvt_clock(k);
	if (n > 0 && w->dry_run == 0)
		status = kvt_erase(k, keys, n, left_ns > 0 ? (uint64_t)left_ns : 0, NULL);
	free(keys);
	return status == KVT_OK && open && w->dry_run == 0 ? KVT_EIO : status;
}

static enum kvt_status erase_keys(
	struct kvt *k, const struct kvt_which *w, uint64_t timeout_ns, struct kvt_erased *sum)
{
	struct kvt_key *keys = with_ends(w->keys, w->key_count);
	struct kvt_which all = *w;
	enum kvt_status status;

	if (keys == NULL)
		return KVT_ENOMEM;
	all.keys = keys;
	all.key_count = 2 * w->key_count;
	status = erase_these(k, &all, timeout_ns, sum);
	free(keys);
	return status;
}

/* --- many ------------------------------------------------------------------------------------- */

static enum kvt_status erase_many(
	struct kvt *k, const struct kvt_which *w, uint64_t timeout_ns, struct kvt_erased *sum)
{
	kvt_l1_tally(
		k->l1, w->tenant, &sum->tiers[KVT_TIER_L1].chunks, &sum->tiers[KVT_TIER_L1].bytes);
	for (size_t i = 0; i < k->lower_count; i++) {
		struct kvt_tier *tier = k->lower[i].tier;
		uint32_t id = k->lower[i].id;

		if (tier == NULL)
			continue;
		if (tier->ops->tally == NULL)
			sum->tiers[id].counted = KVT_COUNTED_UNKNOWN;
		else
			tier->ops->tally(
				tier, w->tenant, &sum->tiers[id].chunks, &sum->tiers[id].bytes);
	}
	if (w->dry_run != 0)
		return KVT_OK;
	return w->tenant != NULL ? kvt_erase_tenant(k, w->tenant, timeout_ns, NULL)
				 : kvt_erase_version(k, &k->config.fingerprint, timeout_ns, NULL);
}

static bool is_valid(const struct kvt_which *w, const struct kvt_erased *out)
{
	if (w == NULL || w->size < sizeof(*w) || out == NULL || out->size < sizeof(*out))
		return false;
	if ((w->keys == NULL) != (w->key_count == 0) || w->key_count > KEYS_MOST)
		return false;
	return w->tenant != NULL || w->fingerprint != NULL || w->keys != NULL;
}

enum kvt_status kvt_erase_which(
	struct kvt *k, const struct kvt_which *which, uint64_t timeout_ns, struct kvt_erased *out)
{
	struct kvt_erased sum = {.size = sizeof(sum)};
	enum kvt_status status = kvt_usable(k);

	if (status != KVT_OK || !is_valid(which, out))
		return status != KVT_OK ? status : KVT_EINVAL;
	sum.tiers[KVT_TIER_L1].counted = KVT_COUNTED;
	for (size_t i = 0; i < k->lower_count; i++)
		if (k->lower[i].tier != NULL)
			sum.tiers[k->lower[i].id].counted = KVT_COUNTED;
	if (which->fingerprint == NULL || memcmp(which->fingerprint, &k->config.fingerprint,
						  sizeof(k->config.fingerprint)) == 0)
		status = which->keys != NULL ? erase_keys(k, which, timeout_ns, &sum)
					     : erase_many(k, which, timeout_ns, &sum);
	*out = sum;
	return status;
}
