/*
 * dummy_strategy.c - becomes routing/dummy.c: every request goes to the worker at one position.
 *
 * The position is the strategy's own setting, its reason is its own, too.
 */
#include <stdlib.h>

#include "routing/strategies.h"

struct dummy {
	struct kvw_strategy base;
	size_t position;
};

enum { WORKER, SETTINGS }; /* its settings */
enum { FIXED, REASONS };   /* its reasons */

static enum kvw_err dummy_create(
	const struct kvw_strategy_options *options, struct kvw_strategy **out)
{
	struct dummy *dummy = calloc(1, sizeof(*dummy));

	if (dummy == NULL)
		return KVW_ENOMEM;
	dummy->base.ops = &kvw_dummy_ops;
	dummy->position = (size_t)options->own[WORKER].integer;
	*out = &dummy->base;
	return KVW_OK;
}

static enum kvw_err dummy_pick(struct kvw_strategy *self, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct kvw_decision *out)
{
	size_t pos = ((struct dummy *)self)->position;

	(void)request;
	(void)now_ns;
	if (pos >= set->count || !set->items[pos].usable)
		return KVW_ENOWORKER;
	*out = (struct kvw_decision){
		.pos = pos,
		.reason = KVW_OWN_REASON(dummy, FIXED),
		.worker_id = set->items[pos].id,
	};
	return KVW_OK;
}

static enum kvw_err dummy_explain(struct kvw_strategy *self,
	const struct kvw_route_request *request, const struct kvw_candidates *set, int64_t now_ns,
	struct kvw_cost *costs, struct kvw_decision *out)
{
	enum kvw_err err = dummy_pick(self, request, set, now_ns, out);

	for (size_t i = 0; err == KVW_OK && i < set->count; i++)
		costs[i] = (struct kvw_cost){
			.verdict = i == out->pos ? KVW_VERDICT_CHOSEN : KVW_VERDICT_NOT_ITS_TURN};
	return err;
}

static void dummy_destroy(struct kvw_strategy *self)
{
	free(self);
}

static const struct kvw_own_setting settings[] = {
	[WORKER] = {"worker", KVW_SETTING_INT, "0", "0", "1023", true,
		"Position of the worker that serves everything."},
	[SETTINGS] = {.name = NULL},
};

static const struct kvw_reason_text reasons[] = {
	[FIXED] = {"dummy_fixed", "it is the configured one"},
	[REASONS] = {.name = NULL},
};

const struct kvw_strategy_ops kvw_dummy_ops = {
	.name = "dummy",
	.help = "always the worker at one position",
	.settings = settings,
	.reasons = reasons,
	.prepare = KVW_PREPARE_FIELDS,
	.create = dummy_create,
	.pick = dummy_pick,
	.explain = dummy_explain,
	.destroy = dummy_destroy,
};
