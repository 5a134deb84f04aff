/*
 * regroup.c - see regroup.h.
 */
#include "proxy/regroup.h"

#include <string.h>

#include "proxy/understand.h"

/* The body that is there, understood again: where an earlier scan saw the model's name it may be no longer. */
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

/* Tokens of another model's vocabulary say nothing of this one's blocks. */
static void forget_tokens(struct kvw_exchange *x)
{
	kvw_token_list_put(x->exact.list);
	x->exact.list = NULL;
	if (x->exact.seen && x->exact.inexact == KVW_INEXACT_NOT && !x->exact.in_body)
		x->exact.inexact = KVW_INEXACT_NO_TOKENS;
}

enum kvw_err kvw_regroup(struct kvw_exchange *x, kvw_groups_untried_fn *untried)
{
	const struct kvw_model_group *group = kvw_groups_other(x, untried);

	if (group == NULL)
		return KVW_ENOWORKER;
	if (strcmp(group->serves, x->division.group->serves) != 0) {
		enum kvw_err err = write_model(x, group->serves);

		if (err != KVW_OK)
			return err;
		forget_tokens(x);
	}
	x->division.group = group;
	x->division.by = KVW_GROUP_BY_FALLBACK;
	kvw_groups_count(x);
	return KVW_OK;
}
