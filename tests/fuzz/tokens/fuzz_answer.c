/*
 * fuzz_answer.c - the bytes are what /tokenize answers: whatever jansson reads as such an answer, we read
 * alike; what we read is bounded by the bytes.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "feeds/tokens/token_answer.h"

#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition))                                                                  \
			abort();                                                                   \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The same list, as a tree has it? */
static int agrees(const json_t *json, const struct kvw_token_list *list)
{
	const json_t *tokens = json_object_get(json, "tokens");

	if (!json_is_array(tokens) || json_array_size(tokens) != list->count)
		return 0;
	for (size_t i = 0; i < list->count; i++)
		if (json_integer_value(json_array_get(tokens, i)) != (json_int_t)list->ids[i])
			return 0;
	return 1;
}

/* Would vLLM write this? Only then we owe an answer. */
static int is_answer(const json_t *json)
{
	const json_t *tokens = json_object_get(json, "tokens"), *token;
	const json_t *count = json_object_get(json, "count");
	size_t i;

	if (!json_is_array(tokens) || json_object_size(json) > 4)
		return 0;
	if (count != NULL && (!json_is_integer(count) ||
				     (size_t)json_integer_value(count) != json_array_size(tokens)))
		return 0;
	json_array_foreach (tokens, i, token)
		if (!json_is_integer(token) || json_integer_value(token) < 0 ||
			json_integer_value(token) > UINT32_MAX)
			return 0;
	return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvw_token_list *list = NULL;
	enum kvw_err err = kvw_token_answer_read((const char *)data, size, &list);
	json_t *json = NULL;

	if (size > 0 && memchr(data, 0, size) == NULL) /* jansson takes a NUL for the end */
		json = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);

	MUST((err == KVW_OK) == (list != NULL));
	MUST(list == NULL || list->count <= size);
	if (json != NULL && list != NULL && memchr(data, '\\', size) == NULL)
		MUST(agrees(json, list));
	/* An escape in a name, a minus before a zero and deep nesting are not vLLM's way. */
	if (json != NULL && is_answer(json) && memchr(data, '\\', size) == NULL &&
		memchr(data, '-', size) == NULL && size < 64)
		MUST(err == KVW_OK);
	json_decref(json);
	kvw_token_list_put(list);
	return 0;
}
