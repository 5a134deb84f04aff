/*
 * table.c - adds and removes slots of the table, and grows it.
 *
 * The table grows by half when three quarters are used, so that an entry costs 11 to 16 bytes.
 * Growth copies the whole table with the owner's mutex held, some 5 ms for a million entries;
 * readers use the old table meanwhile.
 */
#include "index/table.h"

#define FIRST_SLOTS 256u

/* Returns how many slots `most` entries need, if at most three quarters are used. */
static uint32_t slots_for(uint32_t most)
{
	uint64_t slots = (uint64_t)most + most / 3 + 8;

	return slots > UINT32_MAX ? UINT32_MAX : (uint32_t)slots;
}

static void put_slot(struct kvt_slots *s, uint32_t at, uint64_t slot)
{
	atomic_store_explicit(&s->slot[at], slot, memory_order_release);
}

static uint64_t get_slot(const struct kvt_slots *s, uint32_t at)
{
	return atomic_load_explicit(&s->slot[at], memory_order_relaxed);
}

static void insert(struct kvt_slots *s, uint64_t slot)
{
	uint32_t at = kvt_slots_home(s, (uint32_t)(slot >> 32));

	while (get_slot(s, at) != 0)
		at = at + 1 == s->count ? 0 : at + 1;
	put_slot(s, at, slot);
}

static enum kvt_status start_size(struct kvt_table *t, uint32_t count)
{
	struct kvt_slots *s = &t->all[t->sizes];
	const struct kvt_slots *before = t->sizes > 0 ? s - 1 : NULL;
	enum kvt_status status = kvt_region_init(&s->memory, (size_t)count * sizeof(*s->slot));

	if (status != KVT_OK)
		return status;
	status = kvt_region_grow(&s->memory, (size_t)count * sizeof(*s->slot));
	if (status != KVT_OK) {
		kvt_region_finish(&s->memory);
		return status;
	}
	s->slot = s->memory.base;
	s->count = count;
	for (uint32_t i = 0; before != NULL && i < before->count; i++)
		if (get_slot(before, i) != 0)
			insert(s, get_slot(before, i));
	t->sizes++;
	return KVT_OK;
}

enum kvt_status kvt_table_init(struct kvt_table *t, uint32_t most)
{
	uint32_t count = slots_for(most) < FIRST_SLOTS ? slots_for(most) : FIRST_SLOTS;
	enum kvt_status status;

	*t = (struct kvt_table){.most = most};
	status = start_size(t, count);
	if (status == KVT_OK)
		atomic_store_explicit(&t->now, &t->all[0], memory_order_release);
	return status;
}

void kvt_table_finish(struct kvt_table *t)
{
	for (uint32_t i = 0; i < t->sizes; i++)
		kvt_region_finish(&t->all[i].memory);
	t->sizes = 0;
}

enum kvt_status kvt_table_make_room(struct kvt_table *t)
{
	struct kvt_slots *s = &t->all[t->sizes - 1];
	uint64_t more = (uint64_t)s->count + s->count / 2;
	enum kvt_status status;

	if (t->used < s->count / 4 * 3 || s->count == slots_for(t->most))
		return KVT_OK;
	if (more > slots_for(t->most))
		more = slots_for(t->most);
	status = t->sizes < KVT_TABLE_SIZES ? start_size(t, (uint32_t)more) : KVT_ENOMEM;
	if (status != KVT_OK)
		/* without memory to grow, probes only get longer */
		return t->used < s->count - 1 ? KVT_OK : status;
	atomic_store_explicit(&t->now, s + 1, memory_order_release);
	atomic_fetch_add_explicit(&t->moves, 2, memory_order_acq_rel);
	kvt_region_clear(&s->memory);
	return KVT_OK;
}

void kvt_table_add(struct kvt_table *t, uint32_t hash, uint32_t number)
{
	insert(&t->all[t->sizes - 1], (uint64_t)hash << 32 | (number + 1));
	t->used++;
}

/* Returns the number of slots from one place to another, around the end. */
static uint32_t distance(const struct kvt_slots *s, uint32_t from, uint32_t to)
{
	return to >= from ? to - from : to + s->count - from;
}

void kvt_table_remove(struct kvt_table *t, uint32_t hash, uint32_t number)
{
	struct kvt_slots *s = &t->all[t->sizes - 1];
	uint32_t hole = kvt_slots_home(s, hash), at;
	bool moving = false;
	uint64_t slot;

	while (get_slot(s, hole) != ((uint64_t)hash << 32 | (number + 1)))
		hole = hole + 1 == s->count ? 0 : hole + 1;
	at = hole;
	for (;;) {
		at = at + 1 == s->count ? 0 : at + 1;
		slot = get_slot(s, at);
		if (slot == 0)
			break;
		if (distance(s, kvt_slots_home(s, (uint32_t)(slot >> 32)), at) <
			distance(s, hole, at))
			continue; /* the slot's home lies after the hole, so that it stays */
		if (!moving)
			atomic_fetch_add_explicit(&t->moves, 1, memory_order_acq_rel);
		moving = true;
		put_slot(s, hole, slot);
		hole = at;
	}
	put_slot(s, hole, 0);
	if (moving)
		atomic_fetch_add_explicit(&t->moves, 1, memory_order_acq_rel);
	t->used--;
}

uint64_t kvt_table_bytes(const struct kvt_table *t)
{
	return t->sizes > 0 ? t->all[t->sizes - 1].memory.usable : 0;
}
