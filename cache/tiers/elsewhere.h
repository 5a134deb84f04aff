/*
 * elsewhere.h - what other processes erased in a shared tier, until this one has erased it, too.
 *
 * A bounded list; what does not fit in counts as all. Its owner guards it.
 */
#ifndef KVT_ELSEWHERE_H
#define KVT_ELSEWHERE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "kvtier/kvtier.h"

#define KVT_ELSEWHERE_MOST 64

/* How far it goes. */
enum kvt_elsewhere_depth {
	KVT_ELSEWHERE_NOTHING,
	/* It was erased before this handle first looked: only what was put before that look may be of before
	 * the erase, which is in memory or waits to be stored. */
	KVT_ELSEWHERE_MEMORY,
	KVT_ELSEWHERE_ALL, /* this handle's own tiers below, too */
};

struct kvt_elsewhere {
	struct kvt_tenant tenants[KVT_ELSEWHERE_MOST];
	enum kvt_elsewhere_depth depths[KVT_ELSEWHERE_MOST];
	size_t count;
	enum kvt_elsewhere_depth all;
};

/* tenant NULL: all. */
static inline void kvt_elsewhere_note(
	struct kvt_elsewhere *list, const struct kvt_tenant *tenant, enum kvt_elsewhere_depth depth)
{
	size_t i = 0;

	while (tenant != NULL && i < list->count &&
		memcmp(&list->tenants[i], tenant, sizeof(*tenant)) != 0)
		i++;
	if (tenant == NULL || i == KVT_ELSEWHERE_MOST) {
		list->all = depth > list->all ? depth : list->all;
		return;
	}
	if (i == list->count) {
		list->tenants[i] = *tenant;
		list->depths[i] = KVT_ELSEWHERE_NOTHING;
		list->count++;
	}
	list->depths[i] = depth > list->depths[i] ? depth : list->depths[i];
}

#endif
