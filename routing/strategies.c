/*
 * strategies.c - finds a strategy by its name, and names reasons of decisions and what they knew.
 */
#include "routing/strategies.h"

#include <string.h>

const struct kvw_strategy_ops *const kvw_strategies[] = {
#define KVW_STRATEGY(name) &kvw_##name##_ops,
#include "routing/strategies.def"
#undef KVW_STRATEGY
	NULL,
};

_Static_assert(KVW_STRATEGY_COUNT <= KVW_STRATEGIES_MOST, "raise KVW_STRATEGIES_MOST");

/* Reasons that several strategies share, or that the proxy sets. */
static const struct kvw_reason_text shared_reasons[KVW_REASON_OWN] = {
	[KVW_REASON_TURN] = {"turn", "it is its turn"},
	[KVW_REASON_PREFIX] = {"prefix",
		"it costs least, with the prompt's beginning in its cache"},
	[KVW_REASON_LOAD] = {"load", "it costs least; no cached prefix decided"},
	[KVW_REASON_NO_CONTENT] = {"no_content",
		"the prompt is not understood, and it has least to do"},
	[KVW_REASON_ONLY] = {"only", "no other can"},
	[KVW_REASON_OWNER] = {"owner", "it keeps the response that the request names"},
	[KVW_REASON_BOUND] = {"bound", "a cheaper worker has too many requests in flight"},
	[KVW_REASON_SLOW_START] = {"slow_start",
		"a cheaper worker is new, has just returned, or has a small weight"},
	[KVW_REASON_KVAWARE] = {"kvaware",
		"it costs least, and holds the prompt's beginning by its own word"},
	[KVW_REASON_TRIAL] = {"trial", "it was ejected after bad answers and is tried again"},
	[KVW_REASON_PINNED] = {"pinned", "the request names it"},
	[KVW_REASON_SPLIT] = {"split",
		"it decodes what another worker prefills, which costs least"},
	[KVW_REASON_PREFILLER] = {"prefiller",
		"its part is to prefill, but even so the whole request costs least there"},
};

#define KNOWLEDGE(degree, reason, why) {degree, reason, degree "/" reason, why}

static const struct kvw_knowledge_text knowledges[KVW_KNOWLEDGE_COUNT] = {
	[KVW_KNOWS_ALL] = KNOWLEDGE("exact", "all",
		"it and all others that could serve the request report all that they hold"),
	[KVW_KNOWS_OTHERS] = KNOWLEDGE("degraded", "others",
		"it reports all that it holds, another that could serve the request does not: see "
		"`wrong` of that one in /workers"),
	[KVW_KNOWS_PART] = KNOWLEDGE("degraded", "part",
		"either its engine or its LMCache reports all, and reports of the other were "
		"missed: see `wrong` in /workers"),
	[KVW_KNOWS_MISSED] = KNOWLEDGE("degraded", "missed",
		"some of its reports were missed: see `wrong` in /workers"),
	[KVW_KNOWS_NO_TOKENS] = KNOWLEDGE("degraded", "no_tokens",
		"it reports all that it holds, but the prompt's tokens are not known: see "
		"kvway_kvaware_prompts_total"),
	[KVW_KNOWS_NO_REPORTS] = KNOWLEDGE("fallback", "no_reports",
		"it reports nothing of its cache: start it with KV events, or LMCache with kvway "
		"as its coordinator"),
	[KVW_KNOWS_NO_CHOICE] = KNOWLEDGE("fallback", "no_choice",
		"it alone can serve the request, so that nothing had to be known"),
};

static const char *const verdict_names[KVW_VERDICT_COUNT] = {
	[KVW_VERDICT_CHOSEN] = "chosen",
	[KVW_VERDICT_COSTS_MORE] = "costs_more",
	[KVW_VERDICT_TIE] = "tie",
	[KVW_VERDICT_BOUND] = "bound",
	[KVW_VERDICT_SLOW_START] = "slow_start",
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

/* Returns the text of a reason. NULL: there is no such reason. */
static const struct kvw_reason_text *text_of(enum kvw_reason reason)
{
	unsigned own = (unsigned)reason - KVW_REASON_OWN;
	const struct kvw_reason_text *reasons;

	if ((unsigned)reason < KVW_REASON_OWN)
		return &shared_reasons[reason];
	if (own / KVW_OWN_REASONS >= KVW_STRATEGY_COUNT)
		return NULL;
	reasons = kvw_strategies[own / KVW_OWN_REASONS]->reasons;
	for (unsigned i = 0; reasons != NULL && reasons[i].name != NULL; i++)
		if (i == own % KVW_OWN_REASONS)
			return &reasons[i];
	return NULL;
}

const char *kvw_reason_name(enum kvw_reason reason)
{
	const struct kvw_reason_text *text = text_of(reason);

	return text != NULL ? text->name : "unknown";
}

const char *kvw_reason_why(enum kvw_reason reason)
{
	const struct kvw_reason_text *text = text_of(reason);

	return text != NULL ? text->why : "for a reason without a name";
}

bool kvw_reason_of(const struct kvw_strategy_ops *ops, enum kvw_reason reason)
{
	unsigned own = (unsigned)reason - KVW_REASON_OWN;

	return text_of(reason) != NULL && ((unsigned)reason < KVW_REASON_OWN ||
						  kvw_strategies[own / KVW_OWN_REASONS] == ops);
}

const struct kvw_knowledge_text *kvw_knowledge_text(enum kvw_knowledge knowledge)
{
	if (knowledge == KVW_KNOWS_NOT_ASKED || (unsigned)knowledge >= KVW_KNOWLEDGE_COUNT)
		return NULL;
	return &knowledges[knowledge];
}

const char *kvw_verdict_name(enum kvw_verdict verdict)
{
	if ((unsigned)verdict >= KVW_VERDICT_COUNT)
		return "unknown";
	return verdict_names[verdict];
}
