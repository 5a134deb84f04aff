/*
 * fuzz_answer.c - answers, paths and messages of any bytes.
 *
 * Usage counts, of events whose objects are JSON, and the model's text must not depend on how the answer was cut; a path
 * must mean the same with another slash in front; an error must be valid JSON whatever its message.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "openai/answer_text.h"
#include "openai/api_path.h"
#include "openai/error_body.h"
#include "openai/usage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns the length of the object that begins the bytes, by its brackets and strings; 0: it has no end. */
static size_t object_len(const char *data, size_t size)
{
	bool in_string = false, escaped = false;
	size_t depth = 0;

	for (size_t i = 0; i < size; i++) {
		char c = data[i];

		if (in_string) {
			in_string = escaped || c != '"';
			escaped = !escaped && c == '\\';
		} else if (c == '"') {
			in_string = true;
		} else if (c == '{' || c == '[') {
			depth++;
		} else if ((c == '}' || c == ']') && --depth == 0) {
			return i + 1;
		}
	}
	return 0;
}

/* Returns whether an event may have this object: it is JSON, and no blank line ends the event within it. */
static bool is_event_object(const char *data, size_t len)
{
	json_t *root;

	if (memchr(data, '\0', len) != NULL || memmem(data, len, "\n\n", 2) != NULL)
		return false;
	root = json_loadb(data, len, JSON_ALLOW_NUL, NULL);
	json_decref(root);
	return root != NULL;
}

/* Copies the bytes without the objects that no event may have. Returns the number of bytes in out. */
static size_t keep_event_objects(const char *data, size_t size, char *out)
{
	size_t kept = 0;

	for (size_t at = 0; at < size;) {
		size_t len = data[at] == '{' ? object_len(data + at, size - at) : 1;
		bool keep = len > 0 && (data[at] != '{' || is_event_object(data + at, len));

		len = len > 0 ? len : 1;
		if (keep) {
			memcpy(out + kept, data + at, len);
			kept += len;
		}
		at += len;
	}
	return kept;
}

static void read_usage(const char *data, size_t size, size_t piece, struct kvw_usage *usage)
{
	kvw_usage_init(usage);
	for (size_t at = 0; at < size; at += piece) {
		size_t len = size - at < piece ? size - at : piece;
		char *copy = malloc(len);

		memcpy(copy, data + at, len);
		kvw_usage_feed(usage, copy, len);
		free(copy);
	}
	kvw_usage_finish(usage);
	if (usage->cached_tokens > usage->prompt_tokens)
		abort();
}

static void check_usage(const char *data, size_t size, size_t piece)
{
	struct kvw_usage whole, cut;
	char *events = malloc(size + 1);
	size_t len = keep_event_objects(data, size, events);

	read_usage(data, size, piece, &cut); /* for faults of memory alone */
	read_usage(events, len, len, &whole);
	read_usage(events, len, piece, &cut);
	if (whole.prompt_known != cut.prompt_known || whole.cached_known != cut.cached_known ||
		whole.completion_known != cut.completion_known ||
		whole.prompt_tokens != cut.prompt_tokens ||
		whole.cached_tokens != cut.cached_tokens ||
		whole.completion_tokens != cut.completion_tokens)
		abort();
	free(events);
}

/* Folds the text, and checks that no piece is empty. */
static void fold_text(void *user, const char *text, size_t len)
{
	uint64_t *hash = user;

	if (len == 0)
		abort();
	for (size_t i = 0; i < len; i++)
		*hash = (*hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
}

static void check_text(const char *data, size_t size, size_t piece)
{
	struct kvw_answer_text whole = {0}, cut = {0};
	uint64_t all = 1, pieces = 1;

	kvw_answer_text_feed(&whole, data, size, fold_text, &all);
	for (size_t at = 0; at < size; at += piece) {
		size_t len = size - at < piece ? size - at : piece;
		char *copy = malloc(len);

		memcpy(copy, data + at, len);
		kvw_answer_text_feed(&cut, copy, len, fold_text, &pieces);
		free(copy);
	}
	if (all != pieces || whole.failed != cut.failed || whole.several != cut.several)
		abort();
}

static void check_path(const char *data, size_t size)
{
	struct kvw_path_info one = kvw_path_classify((struct kvw_slice){data, size}), other;
	char *longer = malloc(size + 1);

	longer[0] = '/';
	memcpy(longer + 1, data, size);
	other = kvw_path_classify((struct kvw_slice){longer, size + 1});
	if (size > 0 && data[0] == '/' && (one.kind != other.kind || one.api != other.api))
		abort();
	free(longer);
}

static void check_error(const char *data, size_t size, unsigned choice)
{
	char *message = malloc(size + 1), buf[512];
	json_t *root;
	size_t len;

	memcpy(message, data, size);
	message[size] = '\0';
	len = kvw_error_body(buf, sizeof(buf), (enum kvw_api)(choice % KVW_API_COUNT),
		400 + (int)choice, NULL, choice & 1 ? message : NULL, message);
	root = json_loadb(buf, len, 0, NULL);
	if (root == NULL || len >= sizeof(buf))
		abort();
	json_decref(root);
	free(message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;

	if (size < 1)
		return 0;
	check_usage(text, size - 1, data[0] % 40 + 1u);
	check_text(text, size - 1, data[0] % 40 + 1u);
	check_path(text, size - 1);
	check_error(text, size - 1, data[0]);
	return 0;
}
