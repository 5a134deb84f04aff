/*
 * erase.c - making chunks unreachable, and waiting for what is on its way: the public functions
 * over barrier.c, and pins.
 */
#include <stdlib.h>

#include "core/barrier.h"
#include "core/lower.h"
#include "core/versions.h"

#define RESET_WAIT_NS 10000000000u

/* Begins and waits; *count (may be NULL) is set unless it failed. */
static enum kvt_status run(
	struct kvt *k, const struct kvt_victims *victims, uint64_t timeout_ns, size_t *count)
{
	struct kvt_op_want want = {.id = NULL};
	enum kvt_status status;
	struct kvt_op *op;

	status = kvt_barrier_begin(k, victims, timeout_ns, &want, &op);
	if (status != KVT_OK)
		return status;
	kvt_op_wait(k, op);
	status = (enum kvt_status)op->status;
	if (count != NULL && (status == KVT_OK || status == KVT_MISS))
		*count = (size_t)op->count;
	free(op);
	return status;
}

static enum kvt_status begin(struct kvt *k, const struct kvt_victims *victims, uint64_t timeout_ns,
	uint64_t user, uint64_t *op_id)
{
	struct kvt_op_want want = {.id = op_id, .user = user};
	struct kvt_op *op;

	return kvt_barrier_begin(k, victims, timeout_ns, &want, &op);
}

enum kvt_status kvt_erase(
	struct kvt *k, const struct kvt_key *keys, size_t n, uint64_t timeout_ns, size_t *erased)
{
	struct kvt_victims victims = {.keys = keys, .n = n};
	enum kvt_status status = kvt_usable(k);

	if (status != KVT_OK || keys == NULL || n == 0)
		return status != KVT_OK ? status : KVT_EINVAL;
	return run(k, &victims, timeout_ns, erased);
}

enum kvt_status kvt_erase_tenant(
	struct kvt *k, const struct kvt_tenant *tenant, uint64_t timeout_ns, size_t *erased)
{
	struct kvt_victims victims = {.tenant = tenant};
	enum kvt_status status = kvt_usable(k);

	if (status != KVT_OK || tenant == NULL)
		return status != KVT_OK ? status : KVT_EINVAL;
	return run(k, &victims, timeout_ns, erased);
}

enum kvt_status kvt_erase_version(struct kvt *k, const struct kvt_fingerprint *fingerprint,
	uint64_t timeout_ns, size_t *erased)
{
	struct kvt_victims victims = {.keys = NULL};
	enum kvt_status status = kvt_usable(k);

	if (status != KVT_OK || fingerprint == NULL)
		return status != KVT_OK ? status : KVT_EINVAL;
	if (memcmp(fingerprint, &k->config.fingerprint, sizeof(*fingerprint)) != 0)
		return kvt_version_remove(k, fingerprint, erased);
	return run(k, &victims, timeout_ns, erased);
}

enum kvt_status kvt_reset(struct kvt *k)
{
	struct kvt_victims victims = {.keys = NULL};
	enum kvt_status status = kvt_usable(k);

	return status != KVT_OK ? status : run(k, &victims, RESET_WAIT_NS, NULL);
}

enum kvt_status kvt_erase_begin(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint64_t timeout_ns, uint64_t user, uint64_t *op)
{
	struct kvt_victims victims = {.keys = keys, .n = n};
	enum kvt_status status = kvt_usable(k);

	if (status != KVT_OK || keys == NULL || n == 0 || op == NULL)
		return status != KVT_OK ? status : KVT_EINVAL;
	return begin(k, &victims, timeout_ns, user, op);
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
	return begin(k, NULL, timeout_ns, user, op);
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
		bool erased = kvt_tomb_covers(k, &keys[i], false); /* what tiers have of it is going */

		for (size_t j = 0; j < k->lower_count; j++) {
			struct kvt_tier *tier = k->lower[j].tier;

			if (tier != NULL && !erased)
				there += tier->ops->pin(tier, &keys[i], 1, on);
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
