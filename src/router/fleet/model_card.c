/*
 * model_card.c - copies and merges what workers say of a model.
 */
#include "fleet/model_card.h"

#include <stdlib.h>
#include <string.h>

static bool copy_text(char **to, const char *from)
{
	*to = from == NULL ? NULL : strdup(from);
	return from == NULL || *to != NULL;
}

enum kvw_err kvw_model_card_copy(struct kvw_model_card *to, const struct kvw_model_card *from)
{
	*to = (struct kvw_model_card){
		.created_s = from->created_s, .max_model_len = from->max_model_len};
	if (copy_text(&to->root, from->root) && copy_text(&to->parent, from->parent) &&
		copy_text(&to->owned_by, from->owned_by))
		return KVW_OK;
	kvw_model_card_finish(to);
	return KVW_ENOMEM;
}

void kvw_model_card_finish(struct kvw_model_card *card)
{
	free(card->root);
	free(card->parent);
	free(card->owned_by);
	*card = (struct kvw_model_card){0};
}

static bool text_equal(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

bool kvw_model_card_equal(const struct kvw_model_card *a, const struct kvw_model_card *b)
{
	return a->max_model_len == b->max_model_len && text_equal(a->root, b->root) &&
	       text_equal(a->parent, b->parent) && text_equal(a->owned_by, b->owned_by);
}

void kvw_model_card_add(struct kvw_model_card *card, const struct kvw_model_card *other)
{
	uint32_t least = kvw_model_len_least(card->max_model_len, other->max_model_len);

	if (card->root == NULL)
		*card = *other;
	card->max_model_len = least;
}
