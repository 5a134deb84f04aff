/*
 * strategies.c - finds a strategy by its name, and names the reasons of decisions.
 */
#include "routing/strategies.h"

#include <string.h>

const struct kvw_strategy_ops *const kvw_strategies[] = {
#define KVW_STRATEGY(name) &kvw_##name##_ops,
#include "routing/strategies.def"
#undef KVW_STRATEGY
	NULL,
};

static const char *const reason_names[KVW_REASON_COUNT] = {
	[KVW_REASON_TURN] = "turn",
	[KVW_REASON_PREFIX] = "prefix",
	[KVW_REASON_LOAD] = "load",
	[KVW_REASON_SESSION] = "session",
	[KVW_REASON_SESSION_NEW] = "session_new",
	[KVW_REASON_SESSION_MOVED] = "session_moved",
	[KVW_REASON_NO_SESSION] = "no_session",
	[KVW_REASON_NO_CONTENT] = "no_content",
	[KVW_REASON_ONLY] = "only",
	[KVW_REASON_OWNER] = "owner",
	[KVW_REASON_BOUND] = "bound",
	[KVW_REASON_SLOW_START] = "slow_start",
	[KVW_REASON_KV_FULL] = "kv_full",
	[KVW_REASON_KVAWARE] = "kvaware",
};

static const char *const verdict_names[KVW_VERDICT_COUNT] = {
	[KVW_VERDICT_CHOSEN] = "chosen",
	[KVW_VERDICT_COSTS_MORE] = "costs_more",
	[KVW_VERDICT_TIE] = "tie",
	[KVW_VERDICT_BOUND] = "bound",
	[KVW_VERDICT_SLOW_START] = "slow_start",
	[KVW_VERDICT_KV_FULL] = "kv_full",
	[KVW_VERDICT_UNUSABLE] = "unusable",
	[KVW_VERDICT_NOT_ITS_TURN] = "not_its_turn",
};

const struct kvw_strategy_ops *kvw_strategy_find(const char *name)
{
	for (size_t i = 0; kvw_strategies[i] != NULL; i++)
		if (strcmp(kvw_strategies[i]->name, name) == 0)
			return kvw_strategies[i];
	return NULL;
}

const char *kvw_reason_name(enum kvw_reason reason)
{
	if ((unsigned)reason >= KVW_REASON_COUNT || reason_names[reason] == NULL)
		return "unknown";
	return reason_names[reason];
}

const char *kvw_verdict_name(enum kvw_verdict verdict)
{
	if ((unsigned)verdict >= KVW_VERDICT_COUNT)
		return "unknown";
	return verdict_names[verdict];
}
