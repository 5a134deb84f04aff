/*
 * keyset.c - a hash set with linear probing. A removal closes its hole, so that no markers of
 * removed keys accumulate in tables that live for weeks.
 */
#include "feeds/lmcache/keyset.h"

#include <stdint.h>
#include <stdlib.h>

#define FIRST_ROOM 64

static size_t home(const struct kvw_keyset *set, uint64_t key)
{
	uint64_t h = (key ^ set->seed) * UINT64_C(0x9e3779b97f4a7c15);

	h ^= h >> 32;
	h *= UINT64_C(0xd6e8feb86659fd93);
	return (size_t)(h >> 32) & (set->room - 1);
}

/* Returns the key's slot, or the free slot for it. There is always a free slot. */
static size_t find_place(const struct kvw_keyset *set, uint64_t key)
{
	size_t at = home(set, key);

	while (set->slots[at] != 0 && set->slots[at] != key)
		at = (at + 1) & (set->room - 1);
	return at;
}

static bool widen(struct kvw_keyset *set, size_t room)
{
	struct kvw_keyset wider = *set;

	wider.room = room;
	wider.slots = calloc(wider.room, sizeof(wider.slots[0]));
	if (wider.slots == NULL)
		return false;
	for (size_t i = 0; i < set->room; i++)
		if (set->slots[i] != 0)
			wider.slots[find_place(&wider, set->slots[i])] = set->slots[i];
	free(set->slots);
	*set = wider;
	return true;
}

static size_t next_room(size_t room)
{
	return room == 0 ? FIRST_ROOM : room * 2;
}

enum kvw_err kvw_keyset_reserve(struct kvw_keyset *set, size_t count)
{
	size_t room = set->room;

	while (count > room / 4 * 3 && room <= SIZE_MAX / 4)
		room = next_room(room);
	return room == set->room || widen(set, room) ? KVW_OK : KVW_ENOMEM;
}

enum kvw_err kvw_keyset_add(struct kvw_keyset *set, uint64_t key)
{
	size_t at;

	if (kvw_keyset_has(set, key))
		return KVW_EAGAIN;
	if (key == 0) {
		set->zero = true;
		set->count++;
		return KVW_OK;
	}
	if (set->count + 1 > set->room / 4 * 3 && !widen(set, next_room(set->room)))
		return KVW_ENOMEM;
	at = find_place(set, key);
	set->slots[at] = key;
	set->count++;
	return KVW_OK;
}

bool kvw_keyset_has(const struct kvw_keyset *set, uint64_t key)
{
	if (key == 0)
		return set->zero;
	return set->room > 0 && set->slots[find_place(set, key)] == key;
}

/* Moves keys behind `hole` back, if they were placed there only because the hole's slot was
 * taken. */
static void close_hole(struct kvw_keyset *set, size_t hole)
{
	size_t mask = set->room - 1;

	for (size_t at = (hole + 1) & mask; set->slots[at] != 0; at = (at + 1) & mask) {
		size_t wanted = home(set, set->slots[at]);

		if (((at - wanted) & mask) < ((at - hole) & mask))
			continue;
		set->slots[hole] = set->slots[at];
		hole = at;
	}
	set->slots[hole] = 0;
}

bool kvw_keyset_remove(struct kvw_keyset *set, uint64_t key)
{
	if (!kvw_keyset_has(set, key))
		return false;
	if (key == 0)
		set->zero = false;
	else
		close_hole(set, find_place(set, key));
	set->count--;
	return true;
}

size_t kvw_keyset_list(const struct kvw_keyset *set, size_t *at, uint64_t *keys, size_t cap)
{
	size_t count = 0;

	if (*at == 0 && cap > 0) {
		if (set->zero)
			keys[count++] = 0;
		*at = 1;
	}
	for (; *at > 0 && *at <= set->room && count < cap; ++*at)
		if (set->slots[*at - 1] != 0)
			keys[count++] = set->slots[*at - 1];
	return count;
}

void kvw_keyset_clear(struct kvw_keyset *set)
{
	free(set->slots);
	*set = (struct kvw_keyset){.seed = set->seed};
}
