/*
 * strategies.h - the strategies by symbol, made from strategies.def.
 */
#ifndef KVW_STRATEGIES_H
#define KVW_STRATEGIES_H

#include "kvway/route.h"

#define KVW_STRATEGY(name) extern const struct kvw_strategy_ops kvw_##name##_ops;
#include "routing/strategies.def"
#undef KVW_STRATEGY

#endif
