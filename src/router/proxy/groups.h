/*
 * groups.h - the group of workers that serves a request, where its model is divided (model_groups).
 *
 * The group is chosen once, after the scan of the body, by weight and a hash of the session
 * (routing/group_choice.h); the strategy then sees only the group's workers, and so do repeats.
 * Only if none of these workers is usable and untried, another group gets the request
 * (groups.no_worker). Workers may know the model by another name, which kvway writes into the body
 * like an alias's model (rewrite.h).
 */
#ifndef KVW_PROXY_GROUPS_H
#define KVW_PROXY_GROUPS_H

#include "fleet/fleet.h"
#include "http/head.h"
#include "proxy/exchange.h"

/* Removes workers that this request has tried from a set. */
typedef void kvw_groups_untried_fn(const struct kvw_exchange *x, struct kvw_fleet_table *table);

/* Returns the group that the head names in groups.header, if the client may choose. Borrowed from
 * the head. */
struct kvw_slice kvw_groups_wish(const struct kvw_exchange *x, const struct kvw_head *head);

/* Removes that header from the head for a worker. */
void kvw_groups_hide(const struct kvw_exchange *x, struct kvw_head *head);

/* Chooses a group after the scan of the body. Afterwards x->route has the group's name for the
 * model. */
void kvw_groups_divide(struct kvw_exchange *x);

/* Chooses a group for a request whose body cannot be changed. False: its model is divided, and no
 * group serves it under the body's name, or the wished group does not exist (x->division.fault). */
bool kvw_groups_take(struct kvw_exchange *x);

/* Like kvw_fleet_read for x->route.model, limited to the exchange's group. */
void kvw_groups_read(const struct kvw_exchange *x, struct kvw_fleet_table *table, bool *known,
	struct kvw_model **model);
/* Keeps only the workers of the exchange's group in a set. */
void kvw_groups_keep(const struct kvw_exchange *x, struct kvw_fleet_table *table);

/* Reads the workers of another group, but only if the group is known; otherwise the table becomes
 * empty. */
void kvw_groups_read_of(const struct kvw_exchange *x, const struct kvw_model_group *group,
	struct kvw_fleet_table *table);

/* Returns the group that would take the request over from its own. NULL: no group has a usable
 * worker that was not tried, or a change of group is not allowed. Uses the loop's candidates. */
const struct kvw_model_group *kvw_groups_other(
	const struct kvw_exchange *x, kvw_groups_untried_fn *untried);
/* Counts the request in its group's metrics, once the group is chosen. */
void kvw_groups_count(const struct kvw_exchange *x);

/* Returns the model's name that the client sees, whatever name the group's workers use. */
static inline struct kvw_slice kvw_groups_model(const struct kvw_exchange *x)
{
	return x->division.group != NULL ? kvw_slice_of(x->division.group->model) : x->route.model;
}

/* Returns the label of the request's group in metrics, if it has a group. */
static inline uint8_t kvw_groups_label(const struct kvw_exchange *x)
{
	return x->division.group == NULL
		       ? 0
		       : x->in_force->group_labels[x->division.group - x->config->model_groups];
}

#endif
