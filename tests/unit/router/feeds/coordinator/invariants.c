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

const char *coordinator_fault(const struct kvw_cd *cd)
{
	uint64_t objects = 0, count[KVW_CE_TIERS] = {0}, bytes[KVW_CE_TIERS] = {0};
	uint64_t placements = 0, instances = 0, used = used_by(&cd->pools), reported = 0;
	const struct kvw_cd_instance *instance;
	const struct kvw_cd_placement *at;
	const struct kvw_cd_object *object;

	TAILQ_FOREACH(object, &cd->objects, entry)
	{
		objects++;
		if (STAILQ_EMPTY(&object->placements))
			return "an object without a placement";
		STAILQ_FOREACH(at, &object->placements, entry)
		{
			if (at->object != object)
				return "a placement of another object";
			count[at->tier]++;
			bytes[at->tier] += at->size_bytes;
			placements++;
		}
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
	return NULL;
}
