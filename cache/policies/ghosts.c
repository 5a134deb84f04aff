/* ghosts.c - names of evicted chunks, so that a policy recognises them when they come back. */
#include <stdlib.h>

#include "policies/ghosts.h"

struct kvt_ghost {
	uint64_t name;
	uint32_t note;
	uint32_t next; /* next slot + 1, in its chain of the table or among the free slots */
	uint32_t units : 31;
	uint32_t list : 1;
};

/* Memory of a ghost: a slot with its links, and at most two places of the table. */
#define GHOST_BYTES (sizeof(struct kvt_ghost) + sizeof(struct kvt_links) + 2 * sizeof(uint32_t))

enum kvt_status kvt_ghosts_init(struct kvt_ghosts *g, uint64_t max_bytes, uint64_t wanted)
{
	uint64_t limit = max_bytes / GHOST_BYTES;
	uint64_t places = 1;

	*g = (struct kvt_ghosts){0};
	if (limit > wanted)
		limit = wanted;
	if (limit > UINT32_MAX / 4)
		limit = UINT32_MAX / 4;
	if (limit == 0)
		return KVT_OK;
	while (places < limit)
		places *= 2;
	g->items = calloc(limit, sizeof(*g->items));
	g->links = calloc(limit, sizeof(*g->links));
	g->table = calloc(places, sizeof(*g->table));
	if (g->items == NULL || g->links == NULL || g->table == NULL) {
		kvt_ghosts_finish(g);
		return KVT_ENOMEM;
	}
	g->limit = (uint32_t)limit;
	g->mask = (uint32_t)(places - 1);
	g->bytes = limit * (sizeof(*g->items) + sizeof(*g->links)) + places * sizeof(*g->table);
	return KVT_OK;
}

void kvt_ghosts_finish(struct kvt_ghosts *g)
{
	free(g->items);
	free(g->links);
	free(g->table);
	*g = (struct kvt_ghosts){0};
}

/* Returns the chain of a name. Names are bits of a hash, or small numbers in a simulation. */
static uint32_t *chain_of(struct kvt_ghosts *g, uint64_t name)
{
	return &g->table[(name * 0x9e3779b97f4a7c15u >> 32) & g->mask];
}

/* Removes a ghost from list and table; `at` points to it in its chain. */
static void drop(struct kvt_ghosts *g, uint32_t *at)
{
	const uint32_t slot = *at - 1;
	struct kvt_ghost *ghost = &g->items[slot];

	*at = ghost->next;
	kvt_entry_list_remove(&g->lists[ghost->list], g->links, slot);
	g->units[ghost->list] -= ghost->units;
	ghost->next = g->free;
	g->free = slot + 1;
}

static void drop_oldest(struct kvt_ghosts *g, unsigned list)
{
	const uint32_t oldest = g->lists[list].oldest;
	uint32_t *at = chain_of(g, g->items[oldest - 1].name);

	while (*at != oldest)
		at = &g->items[*at - 1].next;
	drop(g, at);
	if (g->forgotten != NULL)
		g->forgotten(g->self, g->items[oldest - 1].note);
}

void kvt_ghosts_remember(
	struct kvt_ghosts *g, unsigned list, uint64_t name, uint32_t units, uint32_t note)
{
	uint32_t slot;

	if (g->limit == 0) {
		if (g->forgotten != NULL)
			g->forgotten(g->self, note);
		return;
	}
	if (g->free == 0 && g->fresh == g->limit)
		drop_oldest(g, g->lists[1].count > g->lists[0].count);
	if (g->free != 0) {
		slot = g->free - 1;
		g->free = g->items[slot].next;
	} else {
		slot = g->fresh++;
	}

	uint32_t *chain = chain_of(g, name);

	g->items[slot] = (struct kvt_ghost){.name = name,
		.note = note,
		.next = *chain,
		.units = units & INT32_MAX,
		.list = list & 1};
	*chain = slot + 1;
	g->units[list] += units;
	kvt_entry_list_add(&g->lists[list], g->links, slot);
}

int kvt_ghosts_recall(struct kvt_ghosts *g, uint64_t name, uint32_t *note)
{
	if (g->limit == 0)
		return -1;
	for (uint32_t *at = chain_of(g, name); *at != 0; at = &g->items[*at - 1].next) {
		if (g->items[*at - 1].name != name)
			continue;

		const int list = (int)g->items[*at - 1].list;

		*note = g->items[*at - 1].note;
		drop(g, at);
		return list;
	}
	return -1;
}

void kvt_ghosts_trim(struct kvt_ghosts *g, unsigned list, uint64_t units)
{
	while (g->units[list] > units)
		drop_oldest(g, list);
}
