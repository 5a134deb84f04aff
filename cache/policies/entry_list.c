/* entry_list.c - lists of entries in order; see entry_list.h. */
#include "policies/entry_list.h"

void kvt_entry_list_add(struct kvt_entry_list *list, struct kvt_links *links, uint32_t entry)
{
	links[entry] = (struct kvt_links){.older = list->newest};
	if (list->newest != 0)
		links[list->newest - 1].newer = entry + 1;
	else
		list->oldest = entry + 1;
	list->newest = entry + 1;
	list->count++;
}

void kvt_entry_list_remove(struct kvt_entry_list *list, struct kvt_links *links, uint32_t entry)
{
	const struct kvt_links at = links[entry];

	if (at.newer != 0)
		links[at.newer - 1].older = at.older;
	else
		list->newest = at.older;
	if (at.older != 0)
		links[at.older - 1].newer = at.newer;
	else
		list->oldest = at.newer;
	list->count--;
}

void kvt_entry_list_renew(struct kvt_entry_list *list, struct kvt_links *links, uint32_t entry)
{
	if (list->newest == entry + 1)
		return;
	kvt_entry_list_remove(list, links, entry);
	kvt_entry_list_add(list, links, entry);
}

/* Moves the `count` oldest entries, from `list->oldest` to `last`, as many places towards the newer
 * end, in reverse order. The list has an entry newer than `last`. */
static void postpone(
	struct kvt_entry_list *list, struct kvt_links *links, uint32_t last, uint32_t count)
{
	uint32_t entry = list->oldest;
	uint32_t place = links[last - 1].newer; /* the entry before which they will be */

	list->oldest = place;
	links[place - 1].older = 0;
	for (uint32_t i = 1; i < count && links[place - 1].newer != 0; i++)
		place = links[place - 1].newer;

	/* The run's first entry becomes its newest. */
	uint32_t newer = links[place - 1].newer;

	for (uint32_t i = 0; i < count; i++) {
		const uint32_t next = links[entry - 1].newer;

		links[entry - 1].newer = newer;
		if (newer != 0)
			links[newer - 1].older = entry;
		else
			list->newest = entry;
		newer = entry;
		entry = next;
	}
	links[newer - 1].older = place;
	links[place - 1].newer = newer;
}

uint32_t kvt_entry_list_victim(struct kvt_entry_list *list, struct kvt_links *links,
	bool (*may)(void *self, uint32_t entry), void *self)
{
	uint32_t skipped = 0;
	uint32_t last = 0;

	for (uint32_t at = list->oldest; at != 0; at = links[at - 1].newer) {
		if (may(self, at - 1)) {
			if (skipped > 0)
				postpone(list, links, last, skipped);
			return at - 1;
		}
		last = at;
		skipped++;
	}
	return KVT_NO_ENTRY;
}
