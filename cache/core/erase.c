/*
 * erase.c - makes chunks unreachable, waits for the tiers, and pins chunks.
 *
 * An erase takes effect as soon as it begins: chunks leave L1, their loads and stores under way
 * have no result, and a tomb hides each key that a lower tier may still show. The wait afterwards
 * (barrier.c) is only for durability.
 */
#include <stdlib.h>

#include "core/barrier.h"
#include "core/generations.h"
#include "core/loads.h"
#include "core/lower.h"
#include "core/moves.h"
#include "core/refused.h"
#include "core/step.h"
#include "core/stores.h"
#include "core/tombs.h"
#include "core/versions.h"

#define RESET_WAIT_NS 10000000000u

/* The chunks to be erased. */
struct victims {
	const struct kvt_key *keys; /* NULL: all chunks of a tenant, or all */
	size_t n;
	const struct kvt_tenant *tenant;
	bool local; /* all chunks, except those in tiers that other machines share */
	const uint32_t *slot; /* not NULL: nothing but this slot's generation changes */
};

/* --- erasing; under lock ---------------------------------------------------------------------- */

/* Counts these chunks that any tier has. */
static uint64_t count_there(struct kvt *k, const struct kvt_key *keys, size_t n)
{
	struct kvt_tier_known known;
	uint64_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += kvt_l1_match(k->l1, &keys[i], 1) == 1 ||
			 kvt_lower_holding(k, &keys[i], KVT_ALL_TIERS, true, &known) != NULL;
	return count;
}

/* Makes these keys unreadable at once. */
static void erase_keys(struct kvt *k, struct kvt_barrier *b, const struct kvt_key *keys, size_t n)
{
	uint64_t count = count_there(k, keys, n);
	bool bad;

	kvt_loads_erase(k, keys, n, NULL);
	kvt_stores_erase(k, keys, n, NULL);
	kvt_barrier_hide(k, b);
	kvt_l1_erase(k->l1, keys, n);
	bad = kvt_barrier_erase_lower(k, b);
	kvt_barrier_begun(k, b, count, bad);
}

/* Counts chunks that a tier still holds although they are erased, since its answer to an ERASE
 * request is outstanding. */
static size_t count_hidden(struct kvt_lower *b, const struct kvt_tenant *tenant)
{
	struct kvt *k = b->k;
	struct kvt_tier_known known;
	size_t count = 0;

	for (size_t i = 0; i < KVT_KEYED_LISTS; i++) {
		struct kvt_keyed *at = k->tombs.by_key.lists[i];

		for (; at != NULL; at = at->next) {
			bool first = kvt_keyed_find(&k->tombs.by_key, &at->key) == at &&
				     kvt_tomb_covers(b, &at->key, true);

			if (first && kvt_lower_knows(b, &at->key, &known))
				count += tenant == NULL ||
					 memcmp(&known.tenant, tenant, sizeof(*tenant)) == 0;
		}
	}
	return count;
}

/* Erases all chunks, or a tenant's. Where a shared tier has a table of generations, the tenant gets
 * a new generation; otherwise each tier erases at once, so that no tombs are needed. A chunk may
 * lie in several tiers: the count is that of the tier with most. */
static void erase_many(struct kvt *k, struct kvt_barrier *b, const struct victims *of)
{
	struct kvt_lower *home = k->generations.home;
	const struct kvt_tenant *tenant = of->tenant;
	bool bad = false;
	size_t most;

	kvt_loads_erase(k, NULL, 0, tenant);
	kvt_stores_erase(k, NULL, 0, tenant);
	most = tenant != NULL ? kvt_l1_erase_tenant(k->l1, tenant) : kvt_l1_erase_all(k->l1);
	for (size_t i = 0; i < k->lower_count; i++) {
		struct kvt_tier *tier = k->lower[i].tier;
		enum kvt_status status;
		size_t count = 0, hidden;

		/* erasing in this process alone cannot reach other processes' chunks */
		if (tier == NULL && home == NULL && !of->local)
			bad |= kvt_refused_erase_tenant(&k->lower[i], tenant);
		if (tier == NULL || &k->lower[i] == home || (of->local && tier->ops->unsure != NULL))
			continue;
		hidden = count_hidden(&k->lower[i], tenant);
		status = tenant != NULL ? tier->ops->erase_tenant(tier, tenant, &count)
					: tier->ops->erase_all(tier, &count);
		if (status != KVT_OK)
			bad = true;
		count -= hidden < count ? hidden : count;
		if (count > most)
			most = count;
	}
	if (home != NULL && !of->local)
		kvt_barrier_raise(k, b,
			tenant != NULL ? kvt_tenant_slot(tenant) : kvt_version_slot(&k->config.fingerprint), tenant);
	kvt_barrier_begun(k, b, most, bad);
}

static void raise_slot(struct kvt *k, struct kvt_barrier *b, uint32_t slot)
{
	kvt_barrier_raise(k, b, slot, NULL);
	kvt_barrier_begun(k, b, 0, false);
}

static void drain(struct kvt *k, struct kvt_barrier *b)
{
	kvt_barrier_await_stores(k, b);
	kvt_barrier_begun(k, b, 0, false);
}

/* --- operations ------------------------------------------------------------------------------- */

/* Begins an erase, or a drain if victims is NULL. A synchronous operation is stored in *op, for
 * kvt_op_wait; an asynchronous one may be gone already and must not be touched. KVT_BUSY,
 * KVT_ENOMEM. */
static enum kvt_status begin(struct kvt *k, const struct victims *victims, uint64_t timeout_ns,
	const struct kvt_op_want *want, struct kvt_op **op)
{
	static const struct victims none;
	const struct victims *of = victims != NULL ? victims : &none;
	uint32_t kind = victims != NULL ? KVT_OP_ERASE : KVT_OP_DRAIN;
	int64_t deadline_ns = kvt_deadline(k, timeout_ns);
	struct kvt_barrier *b = kvt_barrier_create(of->keys, of->n);
	enum kvt_status status;

	if (b == NULL)
		return KVT_ENOMEM;
	pthread_mutex_lock(&k->lock);
	status = kvt_barrier_begin(k, b, kind, want, deadline_ns, op);
	if (status == KVT_OK) {
		if (victims == NULL)
			drain(k, b);
		else if (victims->slot != NULL)
			raise_slot(k, b, *victims->slot);
		else if (victims->keys != NULL)
			erase_keys(k, b, victims->keys, victims->n);
		else
			erase_many(k, b, victims);
		kvt_pump(k);
	}
	pthread_mutex_unlock(&k->lock);
	if (status != KVT_OK)
		kvt_barrier_destroy(b);
	return status;
}

/* Begins an operation and waits for it; sets *count (may be NULL) unless the operation failed. */
static enum kvt_status run(
	struct kvt *k, const struct victims *victims, uint64_t timeout_ns, size_t *count)
{
	struct kvt_op_want want = {.id = NULL};
	enum kvt_status status;
	struct kvt_op *op;

	status = begin(k, victims, timeout_ns, &want, &op);
	if (status != KVT_OK)
		return status;
	kvt_op_wait(k, op);
	status = (enum kvt_status)op->status;
	if (count != NULL && (status == KVT_OK || status == KVT_MISS))
		*count = (size_t)op->count;
	free(op);
	return status;
}

static enum kvt_status begin_for(struct kvt *k, const struct victims *victims, uint64_t timeout_ns,
	uint64_t user, uint64_t *op_id)
{
	struct kvt_op_want want = {.id = op_id, .user = user};
	struct kvt_op *op;

	return begin(k, victims, timeout_ns, &want, &op);
}

/* --- public ----------------------------------------------------------------------------------- */

enum kvt_status kvt_erase(
	struct kvt *k, const struct kvt_key *keys, size_t n, uint64_t timeout_ns, size_t *erased)
{
	struct victims victims = {.keys = keys, .n = n};
	enum kvt_status status = kvt_usable(k);

	if (status != KVT_OK || keys == NULL || n == 0)
		return status != KVT_OK ? status : KVT_EINVAL;
	return run(k, &victims, timeout_ns, erased);
}

enum kvt_status kvt_erase_tenant(
	struct kvt *k, const struct kvt_tenant *tenant, uint64_t timeout_ns, size_t *erased)
{
	struct victims victims = {.tenant = tenant};
	enum kvt_status status = kvt_usable(k);

	if (status != KVT_OK || tenant == NULL)
		return status != KVT_OK ? status : KVT_EINVAL;
	return run(k, &victims, timeout_ns, erased);
}

enum kvt_status kvt_table_raise(struct kvt *k, uint32_t slot, uint64_t timeout_ns)
{
	struct victims victims = {.slot = &slot};
	enum kvt_status status;

	if (k->generations.home == NULL)
		return KVT_ENOTSUP;
	status = run(k, &victims, timeout_ns, NULL);
	/* the shared table has changed; a local disk may follow later */
	return status == KVT_MISS ? KVT_OK : status;
}

/* Removes the store of another fingerprint under this handle's path and rank. Other processes'
 * stores learn the new generation from the shared table, and so does the owner of a locked
 * store. */
static enum kvt_status erase_other_version(struct kvt *k, const struct kvt_fingerprint *fingerprint,
	uint64_t timeout_ns, size_t *erased)
{
	enum kvt_status status = kvt_version_remove(k, fingerprint, erased);
	bool gone = status == KVT_OK || status == KVT_MISS || status == KVT_ELOCKED;

	if (k->generations.home == NULL || !gone)
		return status;
	if (erased != NULL)
		*erased = 0;
	return kvt_table_raise(k, kvt_version_slot(fingerprint), timeout_ns);
}

enum kvt_status kvt_erase_version(struct kvt *k, const struct kvt_fingerprint *fingerprint,
	uint64_t timeout_ns, size_t *erased)
{
	struct victims victims = {.keys = NULL};
	enum kvt_status status = kvt_usable(k);

	if (status != KVT_OK || fingerprint == NULL)
		return status != KVT_OK ? status : KVT_EINVAL;
	if (memcmp(fingerprint, &k->config.fingerprint, sizeof(*fingerprint)) != 0)
		return erase_other_version(k, fingerprint, timeout_ns, erased);
	return run(k, &victims, timeout_ns, erased);
}

enum kvt_status kvt_reset(struct kvt *k)
{
	struct victims victims = {.keys = NULL};
	enum kvt_status status = kvt_usable(k);

	return status != KVT_OK ? status : run(k, &victims, RESET_WAIT_NS, NULL);
}

enum kvt_status kvt_forget(struct kvt *k, uint64_t timeout_ns)
{
	struct victims victims = {.local = true};
	enum kvt_status status = kvt_usable(k);

	return status != KVT_OK ? status : run(k, &victims, timeout_ns, NULL);
}

enum kvt_status kvt_erase_begin(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint64_t timeout_ns, uint64_t user, uint64_t *op)
{
	struct victims victims = {.keys = keys, .n = n};
	enum kvt_status status = kvt_usable(k);

	if (status != KVT_OK || keys == NULL || n == 0 || op == NULL)
		return status != KVT_OK ? status : KVT_EINVAL;
	return begin_for(k, &victims, timeout_ns, user, op);
}

enum kvt_status kvt_drain(struct kvt *k, uint64_t timeout_ns)
{
	enum kvt_status status = kvt_usable(k);

	return status != KVT_OK ? status : run(k, NULL, timeout_ns, NULL);
}

enum kvt_status kvt_drain_begin(struct kvt *k, uint64_t timeout_ns, uint64_t user, uint64_t *op)
{
	enum kvt_status status = kvt_usable(k);

	if (status != KVT_OK || op == NULL)
		return status != KVT_OK ? status : KVT_EINVAL;
	return begin_for(k, NULL, timeout_ns, user, op);
}

/* --- pins ------------------------------------------------------------------------------------- */

static enum kvt_status pin(
	struct kvt *k, const struct kvt_key *keys, size_t n, bool on, size_t *changed)
{
	enum kvt_status status = kvt_usable(k);
	size_t count = 0;

	if (status != KVT_OK || (keys == NULL && n != 0))
		return status != KVT_OK ? status : KVT_EINVAL;
	for (size_t i = 0; i < n; i++) {
		size_t there = kvt_l1_pin(k->l1, &keys[i], 1, on);

		for (size_t j = 0; j < k->lower_count; j++) {
			struct kvt_lower *b = &k->lower[j];

			/* A chunk that is being erased in a tier is not pinned. */
			if (b->tier != NULL && !kvt_tomb_covers(b, &keys[i], false))
				there += kvt_lower_pin(b, &keys[i], on);
		}
		count += there != 0;
	}
	if (changed != NULL)
		*changed = count;
	return KVT_OK;
}

enum kvt_status kvt_pin(struct kvt *k, const struct kvt_key *keys, size_t n, size_t *changed)
{
	return pin(k, keys, n, true, changed);
}

enum kvt_status kvt_unpin(struct kvt *k, const struct kvt_key *keys, size_t n, size_t *changed)
{
	return pin(k, keys, n, false, changed);
}
