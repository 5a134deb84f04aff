/*
 * tried.c - remembers the workers that have failed a request, and finds those that are left for it.
 */
#include "proxy/tried.h"

#include <stdio.h>
#include <string.h>

#include "proxy/groups.h"

void kvw_tried_note(
	struct kvw_tried *tried, const struct kvw_worker *worker, const char *why, bool named)
{
	size_t len = strlen(tried->text), room = sizeof(tried->text) - len;
	char *end = tried->text + len;

	if (tried->count < KVW_TRIED_MAX) {
		tried->ids[tried->count] = worker->id;
		tried->uses[tried->count] = worker->use;
		tried->lead_ids[tried->count] = worker->lead->id;
		tried->lead_uses[tried->count++] = worker->lead->use;
	}
	if (named)
		(void)snprintf(end, room, "%s%s: %s", len == 0 ? "" : "; ", worker->url, why);
	else
		(void)snprintf(end, room, "%s: %s", len == 0 ? "one" : "; another", why);
}

static bool has_failed(const struct kvw_tried *tried, const struct kvw_worker *worker)
{
	for (uint32_t i = 0; i < tried->count; i++)
		if (tried->ids[i] == worker->id && tried->uses[i] == worker->use)
			return true;
	return false;
}

/* Returns whether another data-parallel rank of the worker's server has failed the request. */
static bool server_has_failed(const struct kvw_exchange *x, const struct kvw_worker *worker)
{
	for (uint32_t i = 0; worker->rank != KVW_RANK_NONE && i < x->tried.count; i++)
		if (x->tried.lead_ids[i] == worker->lead->id &&
			x->tried.lead_uses[i] == worker->lead->use)
			return true;
	return false;
}

/* Returns whether a worker is usable whose server has not failed the request. */
static bool has_other_server(const struct kvw_exchange *x, const struct kvw_fleet_table *table)
{
	for (size_t i = 0; i < table->count; i++) {
		const struct kvw_worker *worker = x->loop->fleet->workers[table->items[i].id];

		if (table->items[i].usable && !has_failed(&x->tried, worker) &&
			!server_has_failed(x, worker))
			return true;
	}
	return false;
}

void kvw_tried_drop(const struct kvw_exchange *x, struct kvw_fleet_table *table)
{
	struct kvw_candidate *items = table->items;
	size_t count = table->count;
	bool usable = false, others;

	if (x->tried.count == 0)
		return;
	others = !x->tried.full && has_other_server(x, table);
	table->version = 0;
	table->count = 0;
	for (size_t i = 0; i < count; i++) {
		const struct kvw_worker *worker = x->loop->fleet->workers[items[i].id];

		if (has_failed(&x->tried, worker) ||
			(others && server_has_failed(x, worker)))
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
