/*
 * group.c - refuses a request whose model is divided into groups, where it can have none of them.
 */
#include "proxy/step.h"

#include <stdio.h>

#include "proxy/groups.h"
#include "proxy/guard.h"
#include "proxy/loop.h"
#include "proxy/reply.h"

/* Refuses a request for a group that does not exist, or one into whose body the group's name for
 * the model cannot be written. */
static bool refuse_group(struct kvw_exchange *x)
{
	struct kvw_slice wish = x->division.wish;
	char message[512];
	int status;

	if (x->division.fault == KVW_GROUP_GOOD &&
		(x->division.group != NULL || kvw_groups_take(x)))
		return false;
	if (x->division.fault == KVW_GROUP_UNKNOWN) {
		(void)snprintf(message, sizeof(message), "%s: the model has no group `%.*s`",
			x->config->groups_header, (int)(wish.len < 128 ? wish.len : 128),
			wish.data);
		kvw_reply_error_code(x, 400, NULL, "model_group", NULL, message);
		return true;
	}
	if (x->division.fault == KVW_GROUP_NO_MEMORY) {
		kvw_reply_error_as(x, 503, NULL, NULL, "retry-after: 1\r\n", "out of memory");
		return true;
	}
	(void)snprintf(message, sizeof(message),
		"the groups of this model have other names for it: it must stand once in a body "
		"that can be read, on a path of "
		"inference, no larger than %llu bytes, not in the URL",
		(unsigned long long)x->config->routing_scan_limit);
	status = kvw_upload_exceeds(&x->upload, x->config->routing_scan_limit) ? 413 : 400;
	kvw_reply_error_code(x, status, NULL, "model_group", NULL, message);
	return true;
}

static enum kvw_stepped group_run(struct kvw_exchange *x, struct kvw_way *way)
{
	(void)way;
	return refuse_group(x) ? KVW_STEP_ANSWERED : KVW_STEP_ON;
}

static bool group_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)loop;
	return config->model_group_count > 0;
}

const struct kvw_step kvw_step_group = {
	.name = "group",
	.needed = group_needed,
	.run = group_run,
};
