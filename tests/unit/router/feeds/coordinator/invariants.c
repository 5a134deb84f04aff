/*
 * invariants.c - what always holds of a directory, for its tests and the fuzz target.
 */
#include "tests/unit/router/feeds/coordinator/invariants.h"

#include <stdlib.h>

static uint64_t used_by(const struct kvw_cd_modules *modules)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < modules->count; i++)
		sum += modules->items[i].bytes;
	return sum;
}

static const char *instance_fault(const struct kvw_cd_instance *instance)
{
	const struct kvw_cd_placement *placement;

	LIST_FOREACH(placement, &instance->l1, l1_entry)
	if (placement->instance != instance || placement->tier != KVW_CE_L1)
		return "a placement in the list of another instance";
	if (!instance->registered && !instance->has_cursor && !instance->declares &&
		instance->placements == 0)
		return "an instance that nothing refers to";
	if (instance->l1_objects > instance->placements)
		return "more L1 objects than placements";
	return NULL;
}

/* The lists of a salt, and its sums. */
static const char *salt_fault(const struct kvw_cd_salt *salt, uint64_t *listed)
{
	const struct kvw_cd_l2 *l2;

	if (salt->objects == 0 && !salt->limited)
		return "a salt that nothing refers to";
	if (salt->asked_bytes > salt->bytes[KVW_CE_L2])
		return "more bytes of a salt on their way out than there are";
	TAILQ_FOREACH(l2, &salt->l2, of_salt)
	{
		if (l2->object->salt != salt || l2->asked != NULL)
			return "an entry in the list of another salt";
		(*listed)++;
	}
	return NULL;
}

static const char *salts_fault(const struct kvw_cd *cd)
{
	uint64_t bytes[KVW_CE_TIERS] = {0}, asked = 0, listed = 0, all = 0, on_way = 0, held = 0;
	uint64_t asked_by_salts = 0, objects = 0, salts = 0;
	const struct kvw_cd_salt *salt;
	const struct kvw_cd_l2 *l2;
	const struct kvw_cd_object *object;

	TAILQ_FOREACH(salt, &cd->salts.list, entry)
	{
		const char *fault = salt_fault(salt, &listed);

		if (fault != NULL)
			return fault;
		salts++;
		objects += salt->objects;
		asked_by_salts += salt->asked_bytes;
		for (int tier = 0; tier < KVW_CE_TIERS; tier++)
			bytes[tier] += salt->bytes[tier];
	}
	TAILQ_FOREACH(l2, &cd->salts.all, of_all)
	all++;
	TAILQ_FOREACH(l2, &cd->salts.asked, of_all)
	{
		on_way++;
		asked += l2->asked_bytes;
		if (l2->asked == NULL || l2->asked->object != l2->object ||
			l2->asked->size_bytes != l2->asked_bytes)
			return "a deletion of another placement";
	}
	TAILQ_FOREACH(object, &cd->objects, entry)
	held += object->l2 != NULL;
	if (bytes[0] != cd->tier_bytes[0] || bytes[1] != cd->tier_bytes[1])
		return "salts do not add up to the tiers";
	if (salts != cd->salts.count || objects != cd->object_count)
		return "a wrong count of salts, or of their objects";
	if (listed != all || all + on_way != held)
		return "entries of L2 that are in no list, or in two";
	if (asked != cd->salts.asked_bytes || asked != asked_by_salts ||
		cd->salts.asked_shared > asked)
		return "a wrong sum of deletions";
	return NULL;
}

const char *coordinator_fault(const struct kvw_cd *cd)
{
	uint64_t objects = 0, count[KVW_CE_TIERS] = {0}, bytes[KVW_CE_TIERS] = {0};
	uint64_t cold, placements = 0, instances = 0, used = used_by(&cd->pools), reported = 0;
	const struct kvw_cd_instance *instance;
	const struct kvw_cd_placement *at;
	const struct kvw_cd_object *object;

	TAILQ_FOREACH(object, &cd->objects, entry)
	{
		objects++;
		if (STAILQ_EMPTY(&object->placements))
			return "an object without a placement";
		cold = 0;
		STAILQ_FOREACH(at, &object->placements, entry)
		{
			if (at->object != object)
				return "a placement of another object";
			cold += at->tier == KVW_CE_L2;
			count[at->tier]++;
			bytes[at->tier] += at->size_bytes;
			placements++;
		}
		if (cold != (object->l2 == NULL ? 0 : object->l2->placements))
			return "a wrong count of placements in L2";
	}
	TAILQ_FOREACH(instance, &cd->instances, entry)
	{
		const char *fault = instance_fault(instance);

		if (fault != NULL)
			return fault;
		instances++;
		used += used_by(&instance->used);
		reported += instance->placements;
	}
	if (objects != cd->object_count || instances != cd->instance_count)
		return "a wrong count of objects or instances";
	for (int tier = 0; tier < KVW_CE_TIERS; tier++)
		if (count[tier] != cd->tier_count[tier] || bytes[tier] != cd->tier_bytes[tier])
			return "a wrong total of a tier";
	if (used != bytes[KVW_CE_L1] + bytes[KVW_CE_L2])
		return "compartments do not add up to the placements";
	if (reported != placements)
		return "instances do not add up to the placements";
	if (cd->bytes > cd->options.bytes)
		return "more memory than allowed";
	if (objects == 0 && cd->bytes != 0)
		return "memory of an empty directory";
	return salts_fault(cd);
}
