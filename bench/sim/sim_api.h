/*
 * sim_api.h - what the files that write answers (sim_api_*.c) share among themselves.
 */
#ifndef KVB_SIM_API_H
#define KVB_SIM_API_H

#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_openai.h"

bool kvb_read_n(struct kvb_exchange *x, struct kvb_error *error); /* the field n */
/* A default length, unlike one that was asked for, gives way to the longest context. */
void kvb_clip_default(struct kvb_exchange *x);

const char *kvb_finish_reason(const struct kvb_exchange *x);

/* "usage":{...} of a plain answer; `chat` has created_cache_tokens. */
void kvb_add_usage_plain(struct kvb_exchange *x, bool chat);
/* ,"usage":{...} of one event, with continuous_usage_stats. choice NULL: before its tokens. */
void kvb_add_usage_running(struct kvb_exchange *x, const struct kvb_choice *choice, bool chat);
/* ,"usage":{...},"system_fingerprint":...}\n\n of the last event. */
void kvb_add_usage_last(struct kvb_exchange *x, bool chat);
/* ,"system_fingerprint":... in the last event of a stream without usage. */
void kvb_add_fingerprint_at_end(struct kvb_exchange *x);

#endif
