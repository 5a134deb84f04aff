/*
 * groups.h - the group of workers that serves a request, where its model is divided (model_groups).
 *
 * Chosen once, when the body is understood, by weight and a hash of the session
 * (routing/group_choice.h); the strategy then sees the group's workers alone, and so do repeats.
 * Only where none of these is usable, or left untried, another group gets the request
 * (groups.no_worker). Workers may know the model by another name, which is written into the body as
 * that of an alias is (rewrite.h).
 */
#ifndef KVW_PROXY_GROUPS_H
#define KVW_PROXY_GROUPS_H

#include "fleet/fleet.h"
#include "http/head.h"
#include "proxy/exchange.h"

/* Takes workers out of a set that this request has tried. */
typedef void kvw_groups_untried_fn(const struct kvw_exchange *x, struct kvw_fleet_table *table);

/* The group that the head names, if it may: the value of groups.header. Borrowed from the head. */
struct kvw_slice kvw_groups_wish(const struct kvw_exchange *x, const struct kvw_head *head);

/* That header goes to no worker. */
void kvw_groups_hide(const struct kvw_exchange *x, struct kvw_head *head);

/* The scan has understood the body: chooses a group. x->route then has its name for the model. */
void kvw_groups_divide(struct kvw_exchange *x);

/* The same for a request whose body cannot be changed. False: its model is divided, and no group
 * serves it by the name that it has, or it wishes for one that there is not (x->division.fault). */
bool kvw_groups_take(struct kvw_exchange *x);

/* kvw_fleet_read for x->route.model, of the exchange's group alone. */
void kvw_groups_read(const struct kvw_exchange *x, struct kvw_fleet_table *table, bool *known,
	struct kvw_model **model);
/* Of a set, those of the exchange's group. */
void kvw_groups_keep(const struct kvw_exchange *x, struct kvw_fleet_table *table);

/* Workers of any group, known ones only: empty where there is none. */
void kvw_groups_read_of(const struct kvw_exchange *x, const struct kvw_model_group *group,
	struct kvw_fleet_table *table);

/* The group that would take the request from its own; NULL: none has a usable worker that was not
 * tried, or none may. Uses the loop's candidates. */
const struct kvw_model_group *kvw_groups_other(
	const struct kvw_exchange *x, kvw_groups_untried_fn *untried);
/* In metrics, once it has a group. */
void kvw_groups_count(const struct kvw_exchange *x);

/* The model as its client knows it, whatever the group's workers call it. */
static inline struct kvw_slice kvw_groups_model(const struct kvw_exchange *x)
{
	return x->division.group != NULL ? kvw_slice_of(x->division.group->model) : x->route.model;
}

/* Its label in metrics, if it has a group. */
static inline uint8_t kvw_groups_label(const struct kvw_exchange *x)
{
	return x->division.group == NULL
		       ? 0
		       : x->in_force->group_labels[x->division.group - x->config->model_groups];
}

#endif
