/*
 * sim_prompt.h - makes the tokens of a prompt from the JSON of a request.
 *
 * The simulated chat template writes each message as START role HEADER_END content END and ends
 * with the beginning of the assistant's message. So a longer conversation extends the tokens of a
 * shorter one, generated answer included, just as real templates do. Tools come first.
 */
#ifndef KVB_SIM_PROMPT_H
#define KVB_SIM_PROMPT_H

#include <jansson.h>
#include <stdbool.h>

#include "bench/sim/sim_token.h"

/* Each appends to `out`. Returns false if the JSON has a type that cannot be rendered. */
bool kvb_prompt_message(struct kvb_tokens *out, const char *role, const json_t *message);
bool kvb_prompt_messages(struct kvb_tokens *out, const json_t *messages);
bool kvb_prompt_content(struct kvb_tokens *out, const json_t *content);
void kvb_prompt_role(struct kvb_tokens *out, const char *role, const json_t *name);
void kvb_prompt_tools(struct kvb_tokens *out, const json_t *tools);
void kvb_prompt_generation(struct kvb_tokens *out); /* the assistant's message begins */
/* Reads a list of token ids. On failure *bad is the first id that is no token, or -1. */
bool kvb_prompt_ids(struct kvb_tokens *out, const json_t *ids, json_int_t *bad);

#endif
