/*
 * forward.c - finds the workers that can have a request, and decides whether another may follow one
 * that failed.
 */
#include "proxy/forward.h"

#include <string.h>

#include "proxy/busy.h"
#include "proxy/fits.h"
#include "proxy/gates.h"
#include "proxy/groups.h"
#include "proxy/pd.h"
#include "proxy/retry.h"
#include "proxy/tried.h"
#include "proxy/understand.h"
#include "proxy/whose.h"

bool kvw_request_has_choice(const struct kvw_exchange *x)
{
	struct kvw_fleet_table *table = &x->loop->candidates;

	if (x->pin.len > 0)
		return false;
	kvw_tried_read_others(x, table);
	for (size_t i = 0; i < table->count; i++)
		if (table->items[i].usable && table->items[i].id != x->attempt.worker->id)
			return true;
	return x->division.group != NULL && kvw_groups_other(x, kvw_tried_drop) != NULL;
}

bool kvw_request_may_leave(struct kvw_exchange *x, uint32_t suspicions)
{
	return (x->path.repeatable || kvw_exchange_is_idempotent(x)) && x->whole &&
	       x->tried.count < (uint32_t)x->config->retry_attempts &&
	       suspicions < KVW_RETRY_SUSPICIONS && kvw_request_has_choice(x) &&
	       kvw_attempt_pay_repeat(x);
}

bool kvw_request_may_find_room(struct kvw_exchange *x)
{
	if (!(x->path.repeatable || kvw_exchange_is_idempotent(x)) || !x->whole ||
		x->tried.count == KVW_TRIED_MAX || x->pin.len > 0 ||
		x->attempt.decision.reason == KVW_REASON_OWNER)
		return false;
	if (kvw_request_has_choice(x) && kvw_busy_other_has_room(x, &x->loop->candidates))
		return true;
	return kvw_gates_want(x) && kvw_busy_any_will_have_room(x, &x->loop->candidates);
}

bool kvw_request_has_owner(
	const struct kvw_exchange *x, const struct kvw_candidate *items, size_t count, size_t *pos)
{
	uint32_t owner;

	if (!kvw_whose_worker(x, &owner))
		return false;
	for (*pos = 0; *pos < count; ++*pos)
		if (items[*pos].id == owner)
			return items[*pos].usable ||
			       kvw_worker_rests(x->loop->fleet->workers[owner]);
	return false;
}

enum kvw_err kvw_request_pick(struct kvw_exchange *x, const struct kvw_candidates *set)
{
	struct kvw_attempt *a = &x->attempt;
	enum kvw_err err = x->strategy->ops->pick(
		x->strategy, &x->route, set, x->loop->now_ns, &a->decision);

	a->picked = err == KVW_OK;
	return err;
}

/* Reads the workers of the request's model and group into the loop's candidates. False: the model
 * is unknown. */
static bool read_candidates(struct kvw_exchange *x)
{
	struct kvw_model *model;
	bool known;

	kvw_groups_read(x, &x->loop->candidates, &known, &model);
	kvw_model_hold(model);
	kvw_model_let_go(x->model);
	x->model = model;
	if (known)
		kvw_tried_drop(x, &x->loop->candidates);
	return known;
}

/* --- another group of workers --- */

/* Scans the body once more, since the place of the model's name may have moved since an earlier
 * scan. */
static bool scan_anew(struct kvw_exchange *x)
{
	kvw_request_scan_release(x);
	kvw_request_scan_again(x);
	return x->scan != NULL && x->scanned;
}

static enum kvw_err write_model(struct kvw_exchange *x, const char *model)
{
	struct kvw_splice splice;
	enum kvw_err err;

	if (!scan_anew(x))
		return KVW_ENOMEM;
	err = kvw_splice_plan(x->scan, (struct kvw_slice){NULL, 0}, kvw_slice_of(model), &splice);
	if (err == KVW_OK)
		err = kvw_upload_change(&x->upload, &x->loop->blocks, &splice);
	if (err != KVW_OK)
		return err;
	kvw_metrics_add(x->loop->metrics, KVW_COUNT_BODY_RENAMED, 1);
	x->rewrite.rename_to = model;
	return scan_anew(x) ? KVW_OK : KVW_ENOMEM;
}

/* Forgets the prompt's tokens: those of another model's vocabulary do not describe blocks of this
 * model. */
static void forget_tokens(struct kvw_exchange *x)
{
	kvw_token_list_put(x->exact.list);
	x->exact.list = NULL;
	if (x->exact.seen && x->exact.inexact == KVW_INEXACT_NOT && !x->exact.in_body)
		x->exact.inexact = KVW_INEXACT_NO_TOKENS;
}

/* Moves the request to the group that kvw_groups_other names, and writes the group's name for the
 * model into the body. Uses the loop's candidates. KVW_ENOWORKER: there is no such group.
 * KVW_EINVAL: the name cannot be written into this body, which is unchanged. KVW_ENOMEM: the body
 * must not be sent. */
static enum kvw_err regroup(struct kvw_exchange *x)
{
	const struct kvw_model_group *group = kvw_groups_other(x, kvw_tried_drop);

	if (group == NULL)
		return KVW_ENOWORKER;
	if (strcmp(group->serves, x->division.group->serves) != 0) {
		enum kvw_err err = write_model(x, group->serves);

		if (err != KVW_OK)
			return err;
		forget_tokens(x);
	}
	kvw_pd_forget(x);
	x->division.group = group;
	x->division.by = KVW_GROUP_BY_FALLBACK;
	kvw_groups_count(x);
	return KVW_OK;
}

/* Moves the request to another group, if one can have it; the caller then reads the candidates
 * again. False: the request must be refused, which its step does. A request that its own group has
 * failed goes on as if no other group existed: its answer names the workers tried. */
static bool try_other_group(struct kvw_exchange *x)
{
	enum kvw_err err = regroup(x);

	if (err == KVW_ENOMEM)
		x->division.fault = KVW_GROUP_NO_MEMORY;
	else if (err == KVW_EINVAL && x->tried.count == 0)
		x->division.fault = KVW_GROUP_UNWRITTEN;
	return x->division.fault == KVW_GROUP_GOOD;
}

bool kvw_request_candidates(struct kvw_exchange *x, struct kvw_candidates *set)
{
	struct kvw_loop *loop = x->loop;
	size_t pos;
	bool known;

	kvw_request_scan_again(x);
	known = read_candidates(x);
	if (x->division.group != NULL && (!known || !kvw_fleet_any_usable(&loop->candidates)) &&
		!(known && kvw_request_has_owner(
				   x, loop->candidates.items, loop->candidates.count, &pos)))
		known = try_other_group(x) && read_candidates(x);
	if (!known)
		return false;
	*set = (struct kvw_candidates){
		.items = loop->candidates.items,
		.count = loop->candidates.count,
		.board = loop->fleet->loads,
		.version = loop->candidates.version,
	};
	x->route.tokens_per_unit =
		kvw_fleet_tokens_per_unit(loop->fleet, x->model, &x->route, &x->measure.keys);
	if (loop->sources != NULL)
		kvw_request_add_tokens(x);
	if (x->pin.len == 0 &&
		!kvw_request_has_owner(x, loop->candidates.items, loop->candidates.count, &pos)) {
		kvw_fits_keep(x, &loop->candidates);
		kvw_pd_keep(x, &loop->candidates);
		if (kvw_busy_any(x))
			kvw_busy_avoid(x, &loop->candidates);
	}
	set->version = loop->candidates.version;
	return true;
}
