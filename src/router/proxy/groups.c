/*
 * groups.c - chooses the group of workers for a request.
 *
 * A request of a divided model costs a read of its group's workers, a hash of its session, and,
 * where the group has another name for the model, a second fold of the chain, whose seed is that
 * name: prompts of two groups share no prefix where their models differ.
 */
#include "proxy/groups.h"

#include <stdatomic.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "admin/explanation.h"
#include "fleet/pin.h"
#include "proxy/shared.h"
#include "proxy/whose.h"
#include "routing/group_choice.h"

_Static_assert(KVW_MAX_MODEL_GROUPS <= KVW_GROUPS_MOST, "all may be one model's");

/* --- the head --- */

static bool is_header(const struct kvw_exchange *x, struct kvw_slice name)
{
	return kvw_slice_equal_nocase(name, kvw_slice_of(x->config->groups_header));
}

struct kvw_slice kvw_groups_wish(const struct kvw_exchange *x, const struct kvw_head *head)
{
	const struct kvw_field *field = NULL;

	if (x->config->model_group_count > 0 && x->config->groups_header[0] != '\0')
		field = kvw_head_find(head, kvw_slice_of(x->config->groups_header));
	return field == NULL ? (struct kvw_slice){NULL, 0} : field->value;
}

void kvw_groups_hide(const struct kvw_exchange *x, struct kvw_head *head)
{
	if (x->config->groups_header[0] == '\0')
		return;
	for (size_t i = 0; i < head->field_count; i++)
		if (is_header(x, head->fields[i].name))
			head->fields[i].hop_by_hop = true;
}

/* --- workers of a group --- */

static void keep_group(const struct kvw_fleet *fleet, const struct kvw_model_group *group,
	struct kvw_fleet_table *table)
{
	size_t count = table->count;

	if (group->workers.count == 0)
		return;
	table->version = 0;
	table->count = 0;
	for (size_t i = 0; i < count; i++) {
		const struct kvw_worker *worker = fleet->workers[table->items[i].id];

		if (kvw_group_has(group, worker->group_key, worker->url_key))
			table->items[table->count++] = table->items[i];
	}
}

void kvw_groups_keep(const struct kvw_exchange *x, struct kvw_fleet_table *table)
{
	if (x->division.group != NULL)
		keep_group(x->loop->fleet, x->division.group, table);
}

/* For explain from a file, where no worker runs: treats workers as usable that are configured with
 * the model, or without a list of models. */
static void presume(const struct kvw_fleet *fleet, struct kvw_fleet_table *table, bool *known)
{
	bool listed[KVW_MAX_WORKERS] = {false};
	struct kvw_model *model;
	size_t count;

	for (size_t i = 0; *known && i < table->count; i++)
		listed[table->items[i].id] = true;
	kvw_fleet_read(fleet, (struct kvw_slice){NULL, 0}, table, known, &model);
	count = table->count;
	table->version = 0;
	table->count = 0;
	for (size_t i = 0; i < count; i++)
		if (listed[table->items[i].id] || !fleet->workers[table->items[i].id]->models_given)
			table->items[table->count++] = table->items[i];
	*known = table->count > 0;
}

void kvw_groups_read(const struct kvw_exchange *x, struct kvw_fleet_table *table, bool *known,
	struct kvw_model **model)
{
	kvw_fleet_read(x->loop->fleet, x->route.model, table, known, model);
	if (x->dry != NULL && x->dry->cold)
		presume(x->loop->fleet, table, known);
	if (*known)
		kvw_groups_keep(x, table);
}

void kvw_groups_read_of(const struct kvw_exchange *x, const struct kvw_model_group *group,
	struct kvw_fleet_table *table)
{
	struct kvw_model *model;
	bool known;

	kvw_fleet_read(x->loop->fleet, kvw_slice_of(group->serves), table, &known, &model);
	if (known)
		keep_group(x->loop->fleet, group, table);
	else
		table->count = 0;
}

static bool group_has_worker(const struct kvw_exchange *x, const struct kvw_model_group *group,
	kvw_groups_untried_fn *untried)
{
	struct kvw_fleet_table *table = &x->loop->candidates;

	kvw_groups_read_of(x, group, table);
	if (untried != NULL)
		untried(x, table);
	return kvw_fleet_any_usable(table);
}

/* --- the choice --- */

/* Finds the hash by which the group is drawn, and which property of the request it came from. */
static void find_group_key(struct kvw_exchange *x)
{
	struct kvw_slice text = x->route.session;
	uint64_t opening = 0;

	x->division.by = KVW_GROUP_BY_SESSION;
	if (x->config->groups_sticky != KVW_GROUP_STICKY_SESSION || text.len == 0) {
		if (x->config->groups_sticky == KVW_GROUP_STICKY_SESSION && x->scan != NULL &&
			x->scanned)
			opening = kvw_scan_opening(x->scan);
		x->division.by = opening != 0 ? KVW_GROUP_BY_CONVERSATION : KVW_GROUP_BY_REQUEST;
		text = x->request_id;
	}
	x->division.key = opening != 0 ? opening : XXH3_64bits(text.data, text.len);
}

/* Keeps only the group with the largest share, where the draw is random. */
static void keep_largest(struct kvw_group_share *shares, size_t count)
{
	size_t largest = 0;

	for (size_t i = 1; i < count; i++)
		if (shares[i].weight > shares[largest].weight)
			largest = i;
	for (size_t i = 0; i < count; i++)
		shares[i].weight = i == largest ? 1 : 0;
}

static size_t order_by(const struct kvw_exchange *x, struct kvw_model_groups groups, bool file,
	uint8_t order[KVW_GROUPS_MOST])
{
	struct kvw_group_share shares[KVW_GROUPS_MOST];

	for (size_t i = 0; i < groups.count; i++)
		shares[i] = (struct kvw_group_share){groups.items[i].hash,
			file ? groups.items[i].weight
			     : atomic_load_explicit(
				       groups.items[i].weight_now, memory_order_acquire)};
	if (x->dry != NULL && x->dry->by_chance && x->division.by == KVW_GROUP_BY_REQUEST)
		keep_largest(shares, groups.count);
	return kvw_group_order(shares, groups.count, x->division.key, order);
}

/* Writes the groups in the request's order of preference. Returns how many get requests, at least
 * one. The weights are read one by one, so during a change of several all of them can appear to be
 * 0. Then they are read again; if all are 0 again, the weights of the file are used. */
static size_t order_of(const struct kvw_exchange *x, struct kvw_model_groups groups,
	uint8_t order[KVW_GROUPS_MOST])
{
	size_t count = order_by(x, groups, false, order);

	if (count == 0)
		count = order_by(x, groups, false, order);
	return count > 0 ? count : order_by(x, groups, true, order);
}

static bool renames(const struct kvw_model_group *group)
{
	return strcmp(group->serves, group->model) != 0;
}

/* Returns the group of this name. NULL: there is none. */
static const struct kvw_model_group *group_named(
	struct kvw_model_groups groups, struct kvw_slice name)
{
	for (size_t i = 0; i < groups.count; i++)
		if (kvw_slice_equal(kvw_slice_of(groups.items[i].group), name))
			return &groups.items[i];
	return NULL;
}

/* Returns whether the group has the worker that the request must go to (named, or keeping its
 * response or session), and that worker can be sent the request. */
static bool has_wanted(const struct kvw_exchange *x, const struct kvw_model_group *group,
	bool owned, uint32_t owner)
{
	struct kvw_fleet_table *table = &x->loop->candidates;
	struct kvw_candidates set;
	char why[320];
	size_t pos;

	kvw_groups_read_of(x, group, table);
	set = (struct kvw_candidates){.items = table->items, .count = table->count};
	if (x->pin.len > 0)
		return kvw_pin_find(x->loop->fleet, &set, x->pin, kvw_exchange_computes(x), &pos,
			       why, sizeof(why)) == KVW_OK;
	for (size_t i = 0; owned && i < table->count; i++)
		if (table->items[i].id == owner)
			return table->items[i].usable ||
			       kvw_worker_rests(x->loop->fleet->workers[owner]);
	return false;
}

/* Returns the group of the worker that the request must go to, whatever the group's weight; of
 * several, the first in the order. NULL: the request may go to any worker, or its worker is in no
 * group. */
static const struct kvw_model_group *of_wanted(const struct kvw_exchange *x,
	struct kvw_model_groups groups, const uint8_t *order, size_t count, bool writable)
{
	uint32_t owner = 0;
	bool owned = kvw_whose_worker(x, &owner);

	if (!owned && x->pin.len == 0)
		return NULL;
	for (size_t i = 0; i < count + groups.count; i++) {
		const struct kvw_model_group *group =
			&groups.items[i < count ? order[i] : i - count];

		if ((writable || !renames(group)) && has_wanted(x, group, owned, owner))
			return group;
	}
	return NULL;
}

/* Chooses a group: that of the only worker that may serve the request, else the first in the order
 * that has a worker. If no group has one, or groups do not help each other, the first in the order.
 * writable: another name for the model can be written into the body. */
static const struct kvw_model_group *choose_group(
	struct kvw_exchange *x, struct kvw_model_groups groups, bool writable)
{
	uint8_t order[KVW_GROUPS_MOST];
	const struct kvw_model_group *first, *wanted;
	size_t count;

	find_group_key(x);
	count = order_of(x, groups, order);
	wanted = of_wanted(x, groups, order, count, writable);
	if (wanted != NULL) {
		x->division.by = KVW_GROUP_BY_WORKER;
		return wanted;
	}
	first = NULL;
	for (size_t i = 0; i < count; i++) {
		const struct kvw_model_group *group = &groups.items[order[i]];

		if (renames(group) && !writable)
			continue;
		if (first == NULL)
			first = group;
		if (x->config->groups_no_worker != KVW_GROUP_FALLBACK_OTHERS ||
			(x->dry != NULL && x->dry->cold))
			break;
		if (!group_has_worker(x, group, NULL))
			continue;
		if (group != first)
			x->division.by = KVW_GROUP_BY_FALLBACK;
		return group;
	}
	return first;
}

static void take_group(struct kvw_exchange *x, struct kvw_model_groups groups, bool writable)
{
	if (x->division.wish.len == 0) {
		x->division.group = choose_group(x, groups, writable);
		return;
	}
	find_group_key(x); /* the key also draws the worker of copies */
	x->division.group = group_named(groups, x->division.wish);
	x->division.by = KVW_GROUP_BY_HEADER;
	if (x->division.group == NULL) {
		x->division.fault = KVW_GROUP_UNKNOWN;
	} else if (renames(x->division.group) && !writable) {
		x->division.group = NULL;
		x->division.fault = KVW_GROUP_UNWRITTEN;
	}
}

void kvw_groups_count(const struct kvw_exchange *x)
{
	if (x->division.group != NULL)
		kvw_metrics_group_chosen(x->loop->metrics, kvw_groups_label(x), x->division.by);
}

void kvw_groups_divide(struct kvw_exchange *x)
{
	struct kvw_model_groups groups;
	struct kvw_route_request route = x->route;

	if (x->division.group != NULL || x->division.fault != KVW_GROUP_GOOD || !x->whole)
		return;
	groups = kvw_config_groups(x->config, x->route.model);
	if (groups.count == 0)
		return;
	/* A body without the member has no place for another name. */
	take_group(x, groups, kvw_scan_model(x->scan).len > 0);
	if (x->division.group == NULL)
		return;
	if (renames(x->division.group)) {
		const char *model = x->division.group->serves;
		bool renamed = kvw_scan_set_model(x->scan, kvw_slice_of(model)) &&
			       kvw_scan_finish(x->scan, &x->route) == KVW_OK;

		x->rewrite.rename_to = renamed ? model : NULL;
		x->route.session = route.session;
		x->route.tenant = route.tenant;
		if (!renamed) { /* out of memory */
			x->division.group = NULL;
			x->division.fault = KVW_GROUP_UNWRITTEN;
			return;
		}
	}
	kvw_groups_count(x);
}

bool kvw_groups_take(struct kvw_exchange *x)
{
	struct kvw_model_groups groups = kvw_config_groups(x->config, x->route.model);

	if (groups.count == 0)
		return true;
	take_group(x, groups, false);
	kvw_groups_count(x);
	return x->division.group != NULL;
}

/* --- another group --- */

const struct kvw_model_group *kvw_groups_other(
	const struct kvw_exchange *x, kvw_groups_untried_fn *untried)
{
	struct kvw_model_groups groups =
		kvw_config_groups(x->config, kvw_slice_of(x->division.group->model));
	uint8_t order[KVW_GROUPS_MOST];
	size_t count;

	if (x->config->groups_no_worker != KVW_GROUP_FALLBACK_OTHERS ||
		x->division.by == KVW_GROUP_BY_HEADER || x->pin.len > 0)
		return NULL;
	count = order_of(x, groups, order);
	for (size_t i = 0; i < count; i++) {
		const struct kvw_model_group *group = &groups.items[order[i]];
		bool writes = strcmp(group->serves, x->division.group->serves) != 0;

		if (group != x->division.group &&
			(!writes || (x->whole && x->scanned && !x->named.absent)) &&
			group_has_worker(x, group, untried))
			return group;
	}
	return NULL;
}
