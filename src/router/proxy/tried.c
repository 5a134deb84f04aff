/*
 * tried.c - see tried.h.
 */
#include "proxy/tried.h"

#include "proxy/groups.h"

void kvw_tried_drop(const struct kvw_exchange *x, struct kvw_fleet_table *table)
{
	struct kvw_candidate *items = table->items;
	size_t count = table->count;
	bool usable = false;

	if (x->tried.count == 0)
		return;
	table->version = 0;
	table->count = 0;
	for (size_t i = 0; i < count; i++) {
		bool tried = false;

		for (uint32_t t = 0; t < x->tried.count && !tried; t++)
			tried = x->tried.ids[t] == items[i].id &&
				x->tried.uses[t] == x->loop->fleet->workers[items[i].id]->use;
		if (tried)
			continue;
		usable = usable || items[i].usable;
		items[table->count++] = items[i];
	}
	if (!usable)
		kvw_fleet_use_ejected(x->loop->fleet, items, table->count);
}

void kvw_tried_read_others(const struct kvw_exchange *x, struct kvw_fleet_table *table)
{
	struct kvw_model *model;
	bool known;

	kvw_fleet_read(x->loop->fleet,
		kvw_slice_of(x->model == NULL ? NULL : x->model->name), table, &known, &model);
	kvw_groups_keep(x, table);
	kvw_tried_drop(x, table);
}
