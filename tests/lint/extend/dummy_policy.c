/*
 * dummy_policy.c - becomes cache/policies/dummy.c: the lowest entry number goes first, but never the
 * entry that came first of all.
 */
#include <stdlib.h>

#include "policies/policies.h"

struct dummy {
	struct kvt_policy base;
	uint32_t max_entries;
	uint32_t first; /* entry + 1 of the first chunk; 0: none came yet */
	bool present[];
};

static enum kvt_status dummy_create(
	const struct kvt_policy_options *options, struct kvt_policy **out)
{
	struct dummy *dummy = calloc(1, sizeof(*dummy) + options->max_entries);

	if (dummy == NULL)
		return KVT_ENOMEM;
	dummy->base.ops = &kvt_policy_dummy;
	dummy->max_entries = options->max_entries;
	*out = &dummy->base;
	return KVT_OK;
}

static void dummy_added(struct kvt_policy *p, uint32_t entry, const struct kvt_policy_item *item)
{
	struct dummy *dummy = (struct dummy *)p;

	(void)item;
	if (dummy->first == 0)
		dummy->first = entry + 1;
	dummy->present[entry] = true;
}

static void dummy_used(struct kvt_policy *p, uint32_t entry)
{
	(void)p;
	(void)entry;
}

static void dummy_removed(struct kvt_policy *p, uint32_t entry, bool evicted)
{
	(void)evicted;
	((struct dummy *)p)->present[entry] = false;
}

static uint32_t dummy_victim(
	struct kvt_policy *p, bool (*may)(void *self, uint32_t entry), void *self)
{
	const struct dummy *dummy = (const struct dummy *)p;

	for (uint32_t i = 0; i < dummy->max_entries; i++)
		if (dummy->present[i] && i + 1 != dummy->first && may(self, i))
			return i;
	return KVT_NO_ENTRY;
}

static void dummy_memory(const struct kvt_policy *p, uint64_t *own, uint64_t *ghosts)
{
	const struct dummy *dummy = (const struct dummy *)p;

	*own = sizeof(*dummy) + dummy->max_entries;
	*ghosts = 0;
}

static void dummy_destroy(struct kvt_policy *p)
{
	free(p);
}

const struct kvt_policy_ops kvt_policy_dummy = {
	.name = "dummy",
	.create = dummy_create,
	.added = dummy_added,
	.used = dummy_used,
	.removed = dummy_removed,
	.victim = dummy_victim,
	.memory = dummy_memory,
	.destroy = dummy_destroy,
};
