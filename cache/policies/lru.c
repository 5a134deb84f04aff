/*
 * lru.c - evicts the chunk that was used longest ago.
 *
 * The other policies are measured against this one. 8 bytes per entry, every call O(1).
 */
#include <stdlib.h>

#include "policies/entry_list.h"
#include "policies/policies.h"

struct lru {
	struct kvt_policy base;
	struct kvt_entry_list list;
	uint64_t own; /* bytes allocated */
	struct kvt_links links[];
};

static enum kvt_status lru_create(const struct kvt_policy_options *options, struct kvt_policy **out)
{
	const uint64_t own =
		sizeof(struct lru) + (uint64_t)options->max_entries * sizeof(struct kvt_links);
	struct lru *lru = calloc(1, own);

	if (lru == NULL)
		return KVT_ENOMEM;
	lru->base.ops = &kvt_policy_lru;
	lru->own = own;
	*out = &lru->base;
	return KVT_OK;
}

static void lru_added(struct kvt_policy *p, uint32_t entry, const struct kvt_policy_item *item)
{
	struct lru *lru = (struct lru *)p;

	(void)item;
	kvt_entry_list_add(&lru->list, lru->links, entry);
}

static void lru_used(struct kvt_policy *p, uint32_t entry)
{
	struct lru *lru = (struct lru *)p;

	kvt_entry_list_renew(&lru->list, lru->links, entry);
}

static void lru_removed(struct kvt_policy *p, uint32_t entry, bool evicted)
{
	struct lru *lru = (struct lru *)p;

	(void)evicted;
	kvt_entry_list_remove(&lru->list, lru->links, entry);
}

static uint32_t lru_victim(
	struct kvt_policy *p, bool (*may)(void *self, uint32_t entry), void *self)
{
	struct lru *lru = (struct lru *)p;

	return kvt_entry_list_victim(&lru->list, lru->links, may, self);
}

static void lru_memory(const struct kvt_policy *p, uint64_t *own, uint64_t *ghosts)
{
	*own = ((const struct lru *)p)->own;
	*ghosts = 0;
}

static void lru_destroy(struct kvt_policy *p)
{
	free(p);
}

const struct kvt_policy_ops kvt_policy_lru = {
	.name = "lru",
	.create = lru_create,
	.added = lru_added,
	.used = lru_used,
	.removed = lru_removed,
	.victim = lru_victim,
	.memory = lru_memory,
	.destroy = lru_destroy,
};
