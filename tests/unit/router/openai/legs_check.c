/*
 * legs_check.c - the two bodies of a request that is prefilled elsewhere, held against a tree of
 * jansson.
 */
#include "legs_check.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define PARAMS "{ \"do_remote_prefill\":true,\"remote_block_ids\":[[1,2],[]],\"x\":\"}]\\\"{\",\"f\":1e3 }"

#define ASK "{\"do_remote_decode\":true,\"remote_engine_id\":null,\"x\":[{}]}"

/* jansson skips a NUL byte after a word or a number, which is no JSON. */
static json_t *load(const char *text, size_t len)
{
	if (memchr(text, '\0', len) != NULL)
		return NULL;
	return json_loadb(text, len, JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, NULL);
}

static json_t *load_text(const char *text)
{
	return load(text, strlen(text));
}

static json_t *written(const struct kvw_splice *splice, struct kvw_slice body)
{
	size_t room = (size_t)((int64_t)body.len + splice->growth);
	char *out = malloc(room + 1);
	json_t *root = NULL;

	if (out != NULL && kvw_splice_write(splice, body, out) == room)
		root = load(out, room);
	free(out);
	return root;
}

/* Takes the value. */
static void set_if_there(json_t *root, const char *name, const char *value)
{
	if (json_object_get(root, name) != NULL)
		json_object_set_new(root, name, json_loads(value, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL));
}

static json_t *expected_prefill(const json_t *body, enum kvw_api api)
{
	static const char *const ones[] = {"max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of"};
	json_t *root = json_copy((json_t *)body);

	for (size_t i = 0; i < sizeof(ones) / sizeof(ones[0]); i++)
		set_if_there(root, ones[i], "1");
	set_if_there(root, "min_tokens", "0");
	set_if_there(root, "min_completion_tokens", "0");
	set_if_there(root, "stream", "false");
	set_if_there(root, "store", "false");
	set_if_there(root, "stream_options", "null");
	json_object_set_new(
		root, api == KVW_API_RESPONSES ? "max_output_tokens" : "max_tokens", json_real(1));
	json_object_set_new(root, "kv_transfer_params",
		load_text(ASK));
	return root;
}

static json_t *expected_decode(const json_t *body)
{
	json_t *root = json_copy((json_t *)body);

	json_object_set_new(root, "kv_transfer_params", load_text(PARAMS));
	return root;
}

/* Takes both trees. */
static bool equal(json_t *a, json_t *b)
{
	bool same = a != NULL && b != NULL && json_equal(a, b);

	json_decref(a);
	json_decref(b);
	return same;
}

/* Brackets may nest more deeply than a walk goes. */
static bool is_deep(struct kvw_slice text)
{
	size_t open = 0;

	for (size_t i = 0; i < text.len; i++)
		open += text.data[i] == '{' || text.data[i] == '[';
	return open >= 64;
}

const char *legs_check(enum kvw_api api, const char *body, size_t len, bool *split)
{
	struct kvw_slice text = {body, len}, params = KVW_SLICE(PARAMS), ask = KVW_SLICE(ASK);
	struct kvw_splice prefill, decode;
	enum kvw_err first = kvw_leg_prefill(text, api, ask, &prefill), second = kvw_leg_decode(text, params, &decode);
	json_t *root = load(body, len);
	const char *problem = NULL;

	*split = first == KVW_OK && second == KVW_OK && json_is_object(root);
	if (first == KVW_EPROTO && json_is_object(root) && !is_deep(text))
		problem = "an object is taken for none";
	if (*split && !equal(written(&prefill, text), expected_prefill(root, api)))
		problem = "the prefiller's body is wrong";
	if (*split && !equal(written(&decode, text), expected_decode(root)))
		problem = "the decoder's body is wrong";
	json_decref(root);
	return problem;
}
