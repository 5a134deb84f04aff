/*
 * explain_group.c - which group of its model's workers would serve a request, as proxy/groups.c chooses it.
 *
 * Without a session, a chat and an x-request-id chance decides: then the group of the largest weight is explained.
 */
#include <stdatomic.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "admin/explanation.h"
#include "admin/metrics.h"
#include "fleet/pin.h"
#include "routing/group_choice.h"

static bool in_group(const struct kvw_explanation *e, const struct kvw_model_group *group, uint32_t id)
{
	const struct kvw_worker *worker = e->source->fleet->workers[id];

	return kvw_group_has(group, worker->group_key, worker->url_key);
}

static bool has_worker(const struct kvw_explanation *e, const struct kvw_model_group *group)
{
	struct kvw_model *model;
	bool known;
	size_t count = kvw_fleet_candidates(
		e->source->fleet, kvw_slice_of(group->serves), e->items, &known, &model);

	for (size_t i = 0; known && i < count; i++)
		if (e->items[i].usable && in_group(e, group, e->items[i].id))
			return true;
	return false;
}

/* The groups in the order in which the request prefers them. */
static size_t order_of(struct kvw_explanation *e, struct kvw_model_groups groups, uint8_t *order)
{
	struct kvw_group_share shares[KVW_GROUPS_MOST];
	bool sticky = e->source->config->groups_sticky == KVW_GROUP_STICKY_SESSION;
	struct kvw_slice text = sticky ? e->route.session : (struct kvw_slice){NULL, 0};
	uint64_t opening = sticky && text.len == 0 && e->whole ? kvw_scan_opening(e->scan) : 0;
	enum kvw_group_by by = text.len > 0   ? KVW_GROUP_BY_SESSION
			       : opening != 0 ? KVW_GROUP_BY_CONVERSATION
					      : KVW_GROUP_BY_REQUEST;
	size_t largest = 0;

	for (size_t i = 0; i < groups.count; i++) {
		shares[i] = (struct kvw_group_share){groups.items[i].hash, atomic_load(groups.items[i].weight_now)};
		largest = shares[i].weight > shares[largest].weight ? i : largest;
	}
	e->group_by = kvw_group_by_name(by);
	if (by == KVW_GROUP_BY_REQUEST)
		text = e->query->id;
	if (by == KVW_GROUP_BY_REQUEST && text.len == 0)
		for (size_t i = 0; i < groups.count; i++)
			shares[i].weight = i == largest ? 1 : 0;
	return kvw_group_order(shares, groups.count, opening != 0 ? opening : XXH3_64bits(text.data, text.len), order);
}

/* The worker that keeps the response which the request goes on with, or that it names, is the group's, and can be
 * sent it. */
static bool has_wanted(struct kvw_explanation *e, const struct kvw_model_group *group, bool owned, uint32_t owner)
{
	struct kvw_model *model;
	bool known;
	size_t count = kvw_fleet_candidates(
		e->source->fleet, kvw_slice_of(group->serves), e->items, &known, &model);
	struct kvw_candidates set = {.items = e->items};
	char why[320];
	size_t pos;

	for (size_t i = 0; known && i < count; i++)
		if (in_group(e, group, e->items[i].id))
			e->items[set.count++] = e->items[i];
	if (e->query->pin.len > 0)
		return kvw_pin_find(e->source->fleet, &set, e->query->pin, true, &pos, why, sizeof(why)) == KVW_OK;
	for (size_t i = 0; owned && i < set.count; i++)
		if (e->items[i].id == owner)
			return e->items[i].usable || kvw_worker_rests(e->source->fleet->workers[owner]);
	return false;
}

/* As groups.c of the proxy has it. */
static const struct kvw_model_group *of_wanted(
	struct kvw_explanation *e, struct kvw_model_groups groups, const uint8_t *order, size_t count)
{
	struct kvw_slice id = e->path.made_id.len > 0 ? e->path.made_id : e->route.previous_id;
	uint32_t owner = 0;
	bool owned = id.len > 0 && e->source->owner_of != NULL &&
		     e->source->owner_of(e->source->owner_arg, id, e->query->tenant, &owner);

	if (!owned && e->query->pin.len == 0)
		return NULL;
	for (size_t i = 0; i < count + groups.count; i++) {
		const struct kvw_model_group *group = &groups.items[i < count ? order[i] : i - count];

		if ((e->whole || strcmp(group->serves, group->model) == 0) && has_wanted(e, group, owned, owner))
			return group;
	}
	return NULL;
}

static void choose(struct kvw_explanation *e, struct kvw_model_groups groups)
{
	bool falls = e->source->config->groups_no_worker == KVW_GROUP_FALLBACK_OTHERS && !e->source->cold;
	uint8_t order[KVW_GROUPS_MOST];
	size_t count = order_of(e, groups, order);
	const struct kvw_model_group *first = NULL;

	e->group = of_wanted(e, groups, order, count);
	if (e->group != NULL)
		e->group_by = kvw_group_by_name(KVW_GROUP_BY_WORKER);
	for (size_t i = 0; i < count && e->group == NULL; i++) {
		const struct kvw_model_group *group = &groups.items[order[i]];

		if (strcmp(group->serves, group->model) != 0 && !e->whole)
			continue;
		if (falls && !has_worker(e, group)) {
			first = first == NULL ? group : first;
			continue;
		}
		e->group = group;
		if (first != NULL)
			e->group_by = kvw_group_by_name(KVW_GROUP_BY_FALLBACK);
	}
	if (e->group == NULL)
		e->group = first;
}

static enum kvw_err refuse(struct kvw_explanation *e, const char *why)
{
	e->status = 400;
	e->param = "model";
	(void)snprintf(e->message, sizeof(e->message), "%s", why);
	return KVW_EINVAL;
}

enum kvw_err kvw_explanation_divide(struct kvw_explanation *e)
{
	struct kvw_model_groups groups = kvw_config_groups(e->source->config, e->route.model);
	struct kvw_route_request before = e->route;

	if (groups.count == 0)
		return KVW_OK;
	for (size_t i = 0; i < groups.count && e->query->group.len > 0; i++)
		if (kvw_slice_equal(kvw_slice_of(groups.items[i].group), e->query->group))
			e->group = &groups.items[i];
	e->group_by = kvw_group_by_name(KVW_GROUP_BY_HEADER);
	if (e->group == NULL && e->query->group.len > 0)
		return refuse(e, "the model has no group of the name in groups.header");
	if (e->group == NULL)
		choose(e, groups);
	if (e->group == NULL)
		return refuse(e, "the groups of this model have other names for it, which cannot be written into this body");
	if (strcmp(e->group->serves, e->group->model) == 0)
		return KVW_OK;
	if (!e->whole)
		return refuse(e, "the group has another name for the model, which cannot be written into this body");
	if (!kvw_scan_set_model(e->scan, kvw_slice_of(e->group->serves)) ||
		kvw_scan_finish(e->scan, &e->route) != KVW_OK)
		return KVW_ENOMEM;
	e->route.session = before.session;
	e->route.tenant = before.tenant;
	return KVW_OK;
}

size_t kvw_explanation_keep(const struct kvw_explanation *e, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++)
		if (e->group == NULL || in_group(e, e->group, e->items[i].id))
			e->items[kept++] = e->items[i];
	return kept;
}

bool kvw_explanation_other_group(const struct kvw_explanation *e, const struct kvw_worker *worker)
{
	return e->group != NULL && !kvw_group_has(e->group, worker->group_key, worker->url_key);
}

struct kvw_slice kvw_explanation_model(const struct kvw_explanation *e)
{
	return e->group != NULL ? kvw_slice_of(e->group->model) : e->route.model;
}
