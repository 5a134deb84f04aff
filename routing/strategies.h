/*
 * strategies.h - declares the strategies of strategies.def.
 */
#ifndef KVW_STRATEGIES_H
#define KVW_STRATEGIES_H

#include "kvway/route.h"

#define KVW_STRATEGY(name) extern const struct kvw_strategy_ops kvw_##name##_ops;
#include "routing/strategies.def"
#undef KVW_STRATEGY

/* Indices in the list. */
enum kvw_strategy_index {
#define KVW_STRATEGY(name) KVW_STRATEGY_##name,
#include "routing/strategies.def"
#undef KVW_STRATEGY
	KVW_STRATEGY_COUNT
};

/* The enum kvw_reason of the i-th of a strategy's own `reasons`. */
#define KVW_OWN_REASON(strategy, i)                                                                \
	((enum kvw_reason)(KVW_REASON_OWN + KVW_STRATEGY_##strategy * KVW_OWN_REASONS + (i)))

#endif
