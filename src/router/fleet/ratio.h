/*
 * ratio.h - estimates the tokens of a prompt's text, learned from prompts with the same beginning.
 *
 * One ratio of bytes to tokens per model is good for prose and bad for all else: source code,
 * Chinese or a list of tools has up to four times as many tokens per byte. But a prefix that is
 * cached was a prompt before, and its answer reported how many tokens it had. So answers teach a
 * ratio for their prompt's beginnings of 1, 2, 4, 8 ... chunks, by the chain hash there, and a
 * prompt gets the ratio of its longest known beginning: for a conversation's next turn or a
 * document's next question that is nearly exact.
 *
 * Many prompts may share a beginning (a system prompt): each teaches its ratio, weighted by the
 * beginning's share of the prompt.
 *
 * The table is one for all models, since a chain's hash begins with the model's name. An entry is
 * overwritten by the next beginning that hashes to its place.
 *
 * Cost: 1 MiB, and at most ten reads of it per request. Threads: any; an entry is two words written
 * without a lock, and two concurrent writers may combine one's key with the other's ratio, which is
 * as harmless as any wrong estimate.
 */
#ifndef KVW_RATIO_H
#define KVW_RATIO_H

#include <stdatomic.h>

#include "kvway/err.h"
#include "kvway/route_request.h"

#define KVW_RATIO_BEGINNINGS 10 /* up to 512 chunks */

/* Hashes of a prompt's beginnings; kept until its answer. Plain data. */
struct kvw_ratio_keys {
	uint64_t hashes[KVW_RATIO_BEGINNINGS];
	uint32_t units[KVW_RATIO_BEGINNINGS]; /* bytes of each beginning */
	uint32_t count;                       /* 0: nothing to find or learn */
	uint32_t total;                       /* bytes of the whole prompt */
};

struct kvw_ratios;

enum kvw_err kvw_ratios_create(struct kvw_ratios **out) KVW_MUST_CHECK;
void kvw_ratios_destroy(struct kvw_ratios *ratios); /* NULL is allowed */

/* Fills the keys of a single prompt of text; prompts of token ids, which need no ratio, and lists
 * of prompts have none. */
void kvw_ratio_keys_of(const struct kvw_route_request *request, struct kvw_ratio_keys *keys);

/* Returns the tokens per byte of the longest known beginning; 0: none is known. */
float kvw_ratios_find(const struct kvw_ratios *ratios, const struct kvw_ratio_keys *keys);

/* Learns from an answer's number of prompt tokens. */
void kvw_ratios_learn(
	struct kvw_ratios *ratios, const struct kvw_ratio_keys *keys, uint32_t prompt_tokens);

#endif
