/*
 * fuzz_spans.c - spans of records with any notes, in any order, with any bytes as texts: the JSON
 * is JSON, and has as many spans as the set.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "otel/otlp.h"

/* Takes bytes of the input; zeroes once it is used up. */
struct input {
	const unsigned char *at;
	size_t left;
};

static void take(struct input *input, void *out, size_t size)
{
	size_t n = size < input->left ? size : input->left;

	memset(out, 0, size);
	memcpy(out, input->at, n);
	input->at += n;
	input->left -= n;
}

static unsigned byte_of(struct input *input)
{
	unsigned char byte;

	take(input, &byte, 1);
	return byte;
}

static size_t worker_url(void *arg, uint32_t worker, char *out, size_t room)
{
	static const char *const urls[] = {"", "http://[::1]:8000/v1", "http://a:1@2", "x", "://:"};
	size_t len = strlen(urls[worker % 5]);

	(void)arg;
	len = len < room ? len : room;
	memcpy(out, urls[worker % 5], len);
	return len;
}

/* Places a text somewhere in the record. */
static void text_of(struct input *input, uint8_t *at, uint8_t *len)
{
	*at = (uint8_t)(byte_of(input) % (KVW_TRACE_TEXT / 8));
	*len = (uint8_t)(byte_of(input) % (KVW_TRACE_TEXT - 8 * *at + 1));
	if (*len > 160)
		*len = 160;
}

static void make_story(struct input *input, struct kvw_trace_story *story)
{
	*story = (struct kvw_trace_story){.wall_ns = INT64_C(1700000000000000000),
		.total_ns = (int64_t)byte_of(input) << 24,
		.status = (int)byte_of(input) * 4,
		.end = (enum kvw_end)(byte_of(input) % KVW_END_COUNT),
		.failed = byte_of(input) % 2 != 0,
		.api = (enum kvw_api)(byte_of(input) % KVW_API_COUNT),
		.context = {.trace = {1, 2},
			.parent = byte_of(input) % 2,
			.span = UINT64_C(1) << 63},
		.export = (enum kvw_trace_export)(byte_of(input) % 4)};

	story->outcome.stream = byte_of(input) % 2 != 0;
	text_of(input, &story->id_word, &story->id_len);
	text_of(input, &story->model_word, &story->model_len);
	text_of(input, &story->path_word, &story->path_len);
	text_of(input, &story->asked_word, &story->asked_len);
	story->model_len %= KVW_TRACE_MODEL_MOST + 1;
	story->asked_len %= KVW_TRACE_MODEL_MOST + 1;
	story->note_count = byte_of(input) % (KVW_TRACE_NOTES + 1);
	for (size_t i = 0; i < story->note_count; i++) {
		struct kvw_trace_note *note = &story->notes[i];

		take(input, note, sizeof(*note));
		note->kind %= KVW_TRACE_KINDS;
		note->code %= KVW_REASON_COUNT;
		text_of(input, &note->text_word, &note->text_len);
	}
	take(input, story->text, sizeof(story->text));
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	static struct kvw_trace *trace;
	static struct kvw_spans set; /* too large for the stack */
	static char name[] = "kvway";
	struct kvw_otel_settings settings = {.service_name = name};
	const struct kvw_otlp_sender sender = {&settings, "here"};
	const struct kvw_trace_options options = {.loops = 1, .requests = 1};
	struct input input = {data, size};
	struct kvw_trace_story story;
	struct kvw_page batch = {0}, message = {0};
	json_t *root;

	if (trace == NULL && kvw_trace_create(&options, &trace) != KVW_OK)
		return 0;
	make_story(&input, &story);
	kvw_spans_make(
		&set, &(struct kvw_span_facts){.trace = trace, .worker = worker_url}, &story);
	kvw_otlp_json.spans(&batch, &set);
	kvw_otlp_json.request(&message, &sender, &batch);
	root = json_loadb(message.data, message.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	if (root == NULL ||
		json_array_size(json_object_get(
			json_array_get(
				json_object_get(
					json_array_get(json_object_get(root, "resourceSpans"), 0),
					"scopeSpans"),
				0),
			"spans")) != set.count)
		abort();
	json_decref(root);
	batch.len = message.len = 0;
	kvw_otlp_protobuf.spans(&batch, &set);
	kvw_otlp_protobuf.request(&message, &sender, &batch);
	free(batch.data);
	free(message.data);
	return 0;
}
