/*
 * sim_api.h - functions that the files which write answers (sim_api_*.c) share.
 */
#ifndef KVB_SIM_API_H
#define KVB_SIM_API_H

#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_openai.h"

bool kvb_read_n(struct kvb_exchange *x, struct kvb_error *error); /* the field n */
/* Lowers a default length to the longest context; a length that the request has is an error if it
 * is too long. */
void kvb_clip_default(struct kvb_exchange *x);

const char *kvb_finish_reason(const struct kvb_exchange *x);

/* Writes token ids, or null where they are not wanted. */
void kvb_add_ids(struct kvb_exchange *x, bool wanted, const uint32_t *ids, size_t count);
/* Sends the event that ends a stream. */
void kvb_send_done(struct kvb_exchange *x);

/* Writes "usage":{...} of a plain answer; `chat` adds created_cache_tokens. */
void kvb_add_usage_plain(struct kvb_exchange *x, bool chat);
/* Writes ,"usage":{...} of one event, for continuous_usage_stats. choice NULL: before its
 * tokens. */
void kvb_add_usage_running(struct kvb_exchange *x, const struct kvb_choice *choice, bool chat);
/* Writes ,"usage":{...},"system_fingerprint":...}\n\n of the last event. */
void kvb_add_usage_last(struct kvb_exchange *x, bool chat);
/* Writes ,"system_fingerprint":... of the last event in a stream without usage. */
void kvb_add_fingerprint_at_end(struct kvb_exchange *x);

#endif
