/*
 * read.c - copies of records, made by any thread while a loop writes.
 *
 * trace.c says why a copy is one request's, and complete.
 */
#include "trace/trace_internal.h"

#include <string.h>

size_t kvw_trace_loops(const struct kvw_trace *trace)
{
	return trace->options.loops;
}

size_t kvw_trace_records(const struct kvw_trace *trace)
{
	return trace->records;
}

int64_t kvw_trace_born_ns(const struct kvw_trace *trace)
{
	return trace->born_ns;
}

uint64_t kvw_trace_ended(const struct kvw_trace *trace, size_t loop)
{
	return atomic_load_explicit(&trace->rings[loop]->ended, memory_order_acquire);
}

static void decode_note(const uint64_t *words, struct kvw_trace_note *out)
{
	*out = (struct kvw_trace_note){
		.at_us = (uint32_t)words[0],
		.kind = (uint8_t)(words[0] >> 32),
		.code = (uint8_t)(words[0] >> 40),
		.text_word = (uint8_t)(words[0] >> 48),
		.text_len = (uint8_t)(words[0] >> 56),
		.number = (uint32_t)words[1],
		.more = (uint32_t)(words[1] >> 32),
	};
}

static void decode_context(const uint64_t *words, struct kvw_trace_story *out)
{
	uint64_t known = words[WORD_EXPORT] >> 16;

	out->path_word = (uint8_t)(words[WORD_NAMES] >> 32);
	out->path_len = (uint8_t)(words[WORD_NAMES] >> 40);
	out->asked_word = (uint8_t)(words[WORD_NAMES] >> 48);
	out->asked_len = (uint8_t)(words[WORD_NAMES] >> 56);
	out->context = (struct kvw_trace_context){
		.trace = {words[WORD_TRACE], words[WORD_TRACE + 1]},
		.parent = words[WORD_PARENT],
		.span = words[WORD_SPAN],
		.flags = (uint8_t)(words[WORD_EXPORT] >> 8),
	};
	out->export = (enum kvw_trace_export)(words[WORD_EXPORT] & 0xff);
	out->outcome = (struct kvw_trace_outcome){
		.prompt_known = (known & 1) != 0,
		.completion_known = (known & 2) != 0,
		.cached_known = (known & 4) != 0,
		.stream = (known & 8) != 0,
		.prompt = (uint32_t)words[WORD_TOKENS],
		.completion = (uint32_t)(words[WORD_TOKENS] >> 32),
		.cached = (uint32_t)words[WORD_CACHED],
		.strategy = known == 0 ? NULL : (const char *)(uintptr_t)words[WORD_STRATEGY],
	};
}

static void decode(const uint64_t *words, struct kvw_trace_story *out)
{
	out->ended = words[WORD_ENDED];
	out->wall_ns = (int64_t)words[WORD_WALL];
	out->start_ns = (int64_t)words[WORD_START];
	out->total_ns = out->ended == 0 ? 0 : (int64_t)words[WORD_TOTAL];
	out->status = (int)(words[WORD_RESULT] & 0xffff);
	out->end = (enum kvw_end)(words[WORD_RESULT] >> 16 & 0xff);
	out->failed = (words[WORD_RESULT] >> 24 & 1) != 0;
	out->api = (enum kvw_api)(words[WORD_RESULT] >> 32);
	out->skipped = (uint32_t)(words[WORD_STATE] >> 16 & 0xffff);
	out->note_count = words[WORD_STATE] & 0xff;
	out->id_word = (uint8_t)words[WORD_NAMES];
	out->id_len = (uint8_t)(words[WORD_NAMES] >> 8);
	out->model_word = (uint8_t)(words[WORD_NAMES] >> 16);
	out->model_len = (uint8_t)(words[WORD_NAMES] >> 24);
	decode_context(words, out);
	for (size_t i = 0; i < out->note_count; i++)
		decode_note(words + WORD_NOTES + 2 * i, &out->notes[i]);
	memcpy(out->text, words + WORD_TEXT, KVW_TRACE_TEXT);
}

uint64_t kvw_trace_record_ended(const struct kvw_trace *trace, size_t loop, size_t record)
{
	return load(&trace->rings[loop]->words[record * WORDS + WORD_ENDED]);
}

uint64_t kvw_trace_prefix(const struct kvw_trace_story *story, const struct kvw_trace_note *note)
{
	struct kvw_slice text = kvw_trace_story_text(story, note->text_word, note->text_len);
	uint64_t prefix = 0;

	if (note->kind == KVW_TRACE_ATTEMPT && text.len >= sizeof(prefix))
		memcpy(&prefix, text.data, sizeof(prefix));
	return prefix;
}

struct kvw_slice kvw_trace_knowledge(
	const struct kvw_trace_story *story, const struct kvw_trace_note *note)
{
	struct kvw_slice text = kvw_trace_story_text(story, note->text_word, note->text_len);

	if (note->kind != KVW_TRACE_ATTEMPT || text.len <= sizeof(uint64_t))
		return (struct kvw_slice){NULL, 0};
	return (struct kvw_slice){text.data + sizeof(uint64_t), text.len - sizeof(uint64_t)};
}

bool kvw_trace_read(
	const struct kvw_trace *trace, size_t loop, size_t record, struct kvw_trace_story *out)
{
	const word *from = trace->rings[loop]->words + record * WORDS;
	uint64_t words[WORDS];

	if (load(&from[WORD_VERSION]) == 0)
		return false;
	for (size_t i = 0; i < WORDS; i++)
		words[i] = load(&from[i]);
	if (words[WORD_VERSION] == 0 || words[WORD_VERSION] % 2 != 0 ||
		load(&from[WORD_VERSION]) != words[WORD_VERSION])
		return false;
	decode(words, out);
	return true;
}

const char *kvw_trace_kind_name(enum kvw_trace_kind kind)
{
	static const char *const names[KVW_TRACE_KINDS] = {
		[KVW_TRACE_REQUEST] = "request",
		[KVW_TRACE_RESPONSE] = "response",
		[KVW_TRACE_STEP] = "step",
		[KVW_TRACE_WAIT] = "wait",
		[KVW_TRACE_ATTEMPT] = "attempt",
		[KVW_TRACE_ATTEMPT_END] = "attempt_end",
		[KVW_TRACE_FAILED] = "failed",
		[KVW_TRACE_GRADE] = "grade",
		[KVW_TRACE_FIRST_TOKEN] = "first_token",
		[KVW_TRACE_TIMER] = "timer",
		[KVW_TRACE_CLIENT] = "client",
		[KVW_TRACE_ANSWER] = "answer",
		[KVW_TRACE_LEG] = "prefill",
		[KVW_TRACE_PREFILLED] = "prefilled",
		[KVW_TRACE_DECODE] = "decode",
		[KVW_TRACE_END] = "end",
	};

	return kind < KVW_TRACE_KINDS ? names[kind] : "unknown";
}

static const char *name_in(const struct kvw_trace_words *words, unsigned code)
{
	return code < words->count ? words->names[code] : NULL;
}

const char *kvw_trace_code_name(
	const struct kvw_trace *trace, enum kvw_trace_kind kind, unsigned code)
{
	static const char *const clients[KVW_TRACE_CLIENTS] = {"left", "reset", "slow", "vanished"};

	if (kind == KVW_TRACE_CLIENT)
		return code < KVW_TRACE_CLIENTS ? clients[code] : NULL;
	return kind < KVW_TRACE_KINDS ? name_in(&trace->options.words[kind], code) : NULL;
}
