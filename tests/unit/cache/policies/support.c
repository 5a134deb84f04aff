/* support.c - a tier of entries in chains, as a policy sees one, and a strict watch over it. */
#include "support.h"

uint64_t test_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

void tier_open(struct tier *t, const char *policy, uint32_t max, uint64_t max_ghost_bytes)
{
	const struct kvt_policy_options options = {
		.max_entries = max, .capacity_bytes = max, .max_ghost_bytes = max_ghost_bytes};

	*t = (struct tier){.max = max, .max_ghost_bytes = max_ghost_bytes};
	t->entries = calloc(max, sizeof(*t->entries));
	ck_assert_ptr_nonnull(t->entries);
	ck_assert_int_eq(kvt_policy_named(policy)->create(&options, &t->policy), KVT_OK);
}

void tier_close(struct tier *t)
{
	t->policy->ops->destroy(t->policy);
	free(t->entries);
}

uint32_t tier_find(const struct tier *t, uint64_t name)
{
	for (uint32_t e = 0; e < t->max; e++)
		if (t->entries[e].there && t->entries[e].name == name)
			return e;
	return KVT_NO_ENTRY;
}

static bool may_go(void *self, uint32_t entry)
{
	struct tier *t = self;

	t->asked++;
	EXPECT(entry < t->max);
	EXPECT(t->entries[entry].there);
	return t->entries[entry].children == 0 && !t->entries[entry].pinned;
}

static void leave(struct tier *t, uint32_t entry, bool evicted)
{
	struct tier_entry *e = &t->entries[entry];
	uint64_t own, ghosts;

	if (e->parent != KVT_NO_ENTRY)
		t->entries[e->parent].children--;
	e->there = false;
	t->count--;
	t->policy->ops->removed(t->policy, entry, evicted);
	t->policy->ops->memory(t->policy, &own, &ghosts);
	EXPECT(ghosts <= t->max_ghost_bytes);
}

uint64_t tier_evict(struct tier *t)
{
	const uint32_t victim = t->policy->ops->victim(t->policy, may_go, t);
	struct tier_entry *e = NULL;

	if (victim == KVT_NO_ENTRY)
		return NO_NAME;
	EXPECT(victim < t->max);
	e = &t->entries[victim];
	EXPECT(e->there && e->children == 0 && !e->pinned);
	leave(t, victim, true);
	t->evictions++;
	return e->name;
}

void tier_erase(struct tier *t, uint32_t entry)
{
	leave(t, entry, false);
}

uint32_t tier_add(struct tier *t, uint64_t name, uint32_t parent)
{
	struct kvt_policy_item item = {.name = name, .bytes = 1};
	uint32_t entry = 0;

	if (t->count == t->max && tier_evict(t) == NO_NAME)
		return KVT_NO_ENTRY;
	while (t->entries[entry].there)
		entry++;
	t->entries[entry] = (struct tier_entry){.name = name, .parent = parent, .there = true};
	if (parent != KVT_NO_ENTRY) {
		t->entries[parent].children++;
		item.parent = parent + 1;
	}
	t->count++;
	t->policy->ops->added(t->policy, entry, &item);
	return entry;
}

size_t tier_ask(struct tier *t, const uint64_t *names, size_t count)
{
	uint32_t entries[64], above = KVT_NO_ENTRY;
	size_t hit = 0;

	EXPECT(count <= sizeof(entries) / sizeof(entries[0]));
	while (hit < count && (entries[hit] = tier_find(t, names[hit])) != KVT_NO_ENTRY)
		hit++;
	for (size_t i = hit; i-- > 0;)
		t->policy->ops->used(t->policy, entries[i]);
	if (hit > 0)
		above = entries[hit - 1];
	for (size_t i = hit; i < count; i++) {
		/* The request in flight holds what it has. */
		if (above != KVT_NO_ENTRY)
			t->entries[above].pinned = true;
		entries[i] = tier_add(t, names[i], above);
		if (above != KVT_NO_ENTRY)
			t->entries[above].pinned = false;
		if (entries[i] == KVT_NO_ENTRY)
			break;
		above = entries[i];
	}
	return hit;
}
