/*
 * slots.c - finds the changes of a table of generations that an asker does not know yet.
 */
#include "chunk/slots.h"

#include <stdlib.h>

static int by_number(const void *a, const void *b)
{
	const struct kvt_slot_change *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

void kvt_slots_collect(const uint64_t numbers[KVT_SLOTS], uint64_t after, struct kvt_table_ask *ask)
{
	uint64_t limit = UINT64_MAX;

	ask->change_count = 0;
	ask->more = false;
	ask->sum = 0;
	for (uint32_t slot = 0; slot < KVT_SLOTS; slot++) {
		ask->sum += (uint32_t)numbers[slot];
		if (numbers[slot] <= after || numbers[slot] >= limit)
			continue;
		/* there is no room for the later half, which is dropped */
		if (ask->change_count == KVT_CHANGES_MOST) {
			qsort(ask->changes, ask->change_count, sizeof(ask->changes[0]), by_number);
			ask->change_count = KVT_CHANGES_MOST / 2;
			limit = ask->changes[ask->change_count].number;
			ask->more = true;
			if (numbers[slot] >= limit)
				continue;
		}
		ask->changes[ask->change_count++] = (struct kvt_slot_change){slot, numbers[slot]};
	}
	qsort(ask->changes, ask->change_count, sizeof(ask->changes[0]), by_number);
}
