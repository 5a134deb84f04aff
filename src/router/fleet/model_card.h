/*
 * model_card.h - what a worker's /v1/models says of a model besides its name; kvway's own list
 * repeats it.
 */
#ifndef KVW_MODEL_CARD_H
#define KVW_MODEL_CARD_H

#include <stdbool.h>
#include <stdint.h>

#include "kvway/err.h"

/* Zeroed: nothing is stated. */
struct kvw_model_card {
	/* Owned, or borrowed where a comment says so; NULL: not stated. parent: the base model of
	 * an adapter. */
	char *root, *parent, *owned_by;
	/* 0: not stated. vLLM states the time of the request, which is not compared. */
	int64_t created_s;
	uint32_t max_model_len;  /* tokens of prompt and answer; 0: not stated */
};

/* Copies a card; *to is overwritten and owns its texts. KVW_ENOMEM: *to is zeroed. */
enum kvw_err kvw_model_card_copy(
	struct kvw_model_card *to, const struct kvw_model_card *from) KVW_MUST_CHECK;
void kvw_model_card_finish(struct kvw_model_card *card);
bool kvw_model_card_equal(const struct kvw_model_card *a, const struct kvw_model_card *b);

/* Returns the smaller of two lengths, where 0 means that none is stated. */
static inline uint32_t kvw_model_len_least(uint32_t a, uint32_t b)
{
	return a == 0 || (b != 0 && b < a) ? b : a;
}

/* Merges another worker's card of the same model: texts of the first worker that states any,
 * borrowed; the smallest max_model_len, which a prompt fits on every worker. */
void kvw_model_card_add(struct kvw_model_card *card, const struct kvw_model_card *other);

#endif
