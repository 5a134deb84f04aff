/*
 * usage.c - reads token counts from an answer as it streams through.
 *
 * A usage object counts only where the protocols put it: an answer echoes members of its request
 * (`tools`, `metadata`, `kv_transfer_params`), and a client must not control its own charges. So it
 * has to be a member of the top level, or of the `response`, `message` or `delta` there:
 *
 * 	{"usage":{...}}                                        whole answers, chunks, message_delta
 * 	{"type":"response.completed","response":{"usage":{...}}}
 * 	{"type":"message_start","message":{"usage":{...}}}
 * 	{"type":"message-end","delta":{"usage":{...}}}         Cohere's chat
 * 	{"meta":{"billed_units":{...}}}                        Cohere's embeddings, no event
 *
 * Brackets and strings are tracked to know the place. Most events have no usage, or null, which
 * some servers write into every event: a piece of whole events without another `"usage"` only costs
 * that search. The member name, both quotes included, cannot stand inside a JSON string, where its
 * quotes would be escaped.
 *
 * An object is read in place if the piece has all of it; else it is copied until its braces
 * balance, then read.
 *
 * Names, as recorded from vLLM 0.32:
 *
 * 	completions, chat  prompt_tokens, completion_tokens, prompt_tokens_details.cached_tokens
 * 	responses          input_tokens, output_tokens, input_tokens_details.cached_tokens
 * 	messages           input_tokens, output_tokens, cache_read_input_tokens,
 * 	                   cache_creation_input_tokens; the first excludes the last two
 * 	Cohere             cached_tokens; input_tokens, output_tokens and image_tokens of
 * 	                   billed_units, or of tokens, which follow; the first excludes the
 * 	                   last. May be 12.0
 */
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "openai/usage.h"

#include "base/find.h"
#include "kvway/slice.h"

static const struct kvw_slice marker = KVW_SLICE("\"usage\"");

void kvw_usage_init(struct kvw_usage *usage)
{
	/* The window needs no clearing: only window_len bytes of it are ever read. */
	memset(usage, 0, offsetof(struct kvw_usage, window));
	usage->window_len = 0;
}

/* Reads the counts of one usage object. */
struct reader {
	uint64_t prompt, input, completion, cached, created, images;
	bool has_prompt, has_input, has_completion, has_cached, has_created;
	bool anthropic; /* `input` does not include cached tokens */
	bool cohere;    /* billed units were read, and cached_tokens comes after them */
};

static bool key_is(const char *key, size_t len, const char *name)
{
	return len == strlen(name) && memcmp(key, name, len) == 0;
}

/* Which members of an object count. */
enum counted { COUNTS_ALL, COUNTS_CACHED, COUNTS_UNITS, COUNTS_NOTHING };

static enum counted counted_in(const char *key, size_t len)
{
	if (key_is(key, len, "prompt_tokens_details") || key_is(key, len, "input_tokens_details"))
		return COUNTS_CACHED;
	return key_is(key, len, "billed_units") || key_is(key, len, "tokens") ? COUNTS_UNITS
									      : COUNTS_NOTHING;
}

static void take_count(
	struct reader *reader, const char *key, size_t len, enum counted counted, uint64_t count)
{
	if (counted == COUNTS_NOTHING)
		return;
	reader->cohere = reader->cohere || counted == COUNTS_UNITS;
	if (counted == COUNTS_CACHED || (counted == COUNTS_ALL && reader->cohere)) {
		if (key_is(key, len, "cached_tokens")) {
			reader->cached = count;
			reader->has_cached = true;
		}
	} else if (counted == COUNTS_UNITS && key_is(key, len, "image_tokens")) {
		reader->images = count;
	} else if (key_is(key, len, "prompt_tokens")) {
		reader->prompt = count;
		reader->has_prompt = true;
	} else if (key_is(key, len, "input_tokens")) {
		reader->input = count;
		reader->has_input = true;
	} else if (key_is(key, len, "completion_tokens") || key_is(key, len, "output_tokens")) {
		reader->completion = count;
		reader->has_completion = true;
	} else if (key_is(key, len, "cache_read_input_tokens")) {
		reader->cached = count;
		reader->has_cached = reader->anthropic = true;
	} else if (key_is(key, len, "cache_creation_input_tokens")) {
		reader->created = count;
		reader->has_created = true;
	}
}

/* Reads digits at p, as many as fit. Returns false if it is not a plain count. */
static bool read_count(const char *p, const char *end, uint64_t *count)
{
	const char *from = p;
	uint64_t value = 0;

	for (; p < end && *p >= '0' && *p <= '9' && p - from < 11; p++)
		value = value * 10 + (uint64_t)(*p - '0');
	if (p > from && p < end && *p == '.')
		do
			p++;
		while (p < end && *p == '0');
	if (p == from || value > UINT32_MAX ||
		(p < end && *p != ',' && *p != '}' && *p != ' ' && *p != '\n' && *p != '\r' &&
			*p != '\t'))
		return false;
	*count = value;
	return true;
}

/* Returns the first quote or backslash in [p, end), or end. */
static const char *plain_end(const char *p, const char *end)
{
#ifdef __SSE2__
	const __m128i quote = _mm_set1_epi8('"'), escape = _mm_set1_epi8('\\');

	for (; end - p >= 16; p += 16) {
		__m128i bytes = _mm_loadu_si128((const __m128i *)p);
		unsigned hits = (unsigned)_mm_movemask_epi8(_mm_or_si128(
			_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, escape)));

		if (hits != 0)
			return p + __builtin_ctz(hits);
	}
#endif
	while (p < end && *p != '"' && *p != '\\')
		p++;
	return p;
}

/* Skips a string; p is after its opening quote. Returns its closing quote, or end. */
static const char *string_end(const char *p, const char *end)
{
	while ((p = plain_end(p, end)) < end && *p != '"')
		p = end - p > 2 ? p + 2 : end;
	return p;
}

static const char *skip_space(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
		p++;
	return p;
}

/* Reads the counts of an object; p is at its brace. Returns the first byte after the object; NULL:
 * it is incomplete. */
static const char *read_object(struct reader *reader, const char *p, const char *end)
{
	unsigned depth = 0;
	/* which members count inside the member of depth 1 that was read last */
	enum counted inner = COUNTS_NOTHING;

	for (; p < end; p++) {
		const char *key = p + 1, *key_end, *value;
		uint64_t count;

		if (*p == '{' || *p == '[')
			depth++;
		else if ((*p == '}' || *p == ']') && --depth == 0)
			return p + 1;
		if (*p != '"')
			continue;
		key_end = string_end(key, end);
		value = skip_space(key_end < end ? key_end + 1 : end, end);
		p = key_end;
		if (value == end || *value != ':')
			continue;
		value = skip_space(value + 1, end);
		if (depth == 1)
			inner = counted_in(key, (size_t)(key_end - key));
		if (depth <= 2 && read_count(value, end, &count))
			take_count(reader, key, (size_t)(key_end - key),
				depth == 1 ? COUNTS_ALL : inner, count);
	}
	return NULL;
}

static void take_counts(struct kvw_usage *usage, const struct reader *reader)
{
	if (reader->has_prompt || reader->has_input) {
		uint64_t prompt =
			reader->has_prompt ? reader->prompt : reader->input + reader->images;

		if (!reader->has_prompt && reader->anthropic)
			prompt += reader->cached;
		if (!reader->has_prompt && reader->has_created)
			prompt += reader->created;
		usage->prompt_known = prompt <= UINT32_MAX;
		usage->prompt_tokens = usage->prompt_known ? (uint32_t)prompt : 0;
		/* More cached than prompt tokens cannot be: then the number of cached tokens is
		 * unknown. */
		usage->cached_known =
			reader->has_cached && usage->prompt_known && reader->cached <= prompt;
		usage->cached_tokens = usage->cached_known ? (uint32_t)reader->cached : 0;
	}
	if (reader->has_completion) {
		usage->completion_known = true;
		usage->completion_tokens = (uint32_t)reader->completion;
	}
}

/* --- an object --- */

/* Reads a usage object from its brace at p, if this piece has all of it. Returns the first byte
 * after it; NULL: it is incomplete, and the caller must copy it. */
static const char *take_in_place(struct kvw_usage *usage, const char *p, const char *end)
{
	struct reader reader = {0};
	const char *last = read_object(
		&reader, p, (size_t)(end - p) > KVW_USAGE_WINDOW ? p + KVW_USAGE_WINDOW : end);

	if (last != NULL)
		take_counts(usage, &reader);
	return last;
}

/* Nesting within an object, to find its end. */
struct place {
	uint32_t depth;
	bool in_string, escaped;
};

static inline void step(struct place *at, char c)
{
	if (at->in_string) {
		at->in_string = at->escaped || c != '"';
		at->escaped = !at->escaped && c == '\\';
	} else if (c == '{' || c == '[') {
		at->depth++;
	} else if (c == '}' || c == ']') {
		at->depth--;
	} else if (c == '"') {
		at->in_string = true;
	}
}

/* Continues to copy an object; its brace is in the window already, or first in p. Returns the first
 * byte after the object, or after the bytes for which there is room. */
static const char *collect_usage(struct kvw_usage *usage, const char *p, const char *end)
{
	size_t room = sizeof(usage->window) - usage->window_len;
	const char *from = p, *last = (size_t)(end - p) > room ? p + room : end;
	struct place at = {usage->inside, usage->in_string, usage->escaped};
	struct reader reader = {0};

	do
		step(&at, *p++);
	while (p < last && at.depth > 0);
	memcpy(usage->window + usage->window_len, from, (size_t)(p - from));
	usage->window_len += (size_t)(p - from);
	usage->inside = at.depth;
	usage->in_string = at.in_string;
	usage->escaped = at.escaped;
	usage->collecting = at.depth > 0 && usage->window_len < sizeof(usage->window);
	if (usage->collecting)
		return p;
	if (at.depth == 0 &&
		read_object(&reader, usage->window, usage->window + usage->window_len) != NULL)
		take_counts(usage, &reader);
	usage->held = usage->held && usage->depth == 2;
	usage->depth += at.depth; /* the rest of an object that is too long is skipped */
	return p;
}

/* --- its place --- */

/* Meaning of the next value. */
enum meaning { MEANS_NOTHING, MEANS_USAGE, MEANS_HOLDER };

/* Returns whether keys count at this place. */
static bool counts(const struct kvw_usage *usage)
{
	return usage->depth == 1 || (usage->depth == 2 && usage->held);
}

static enum meaning meaning_of_key(const struct kvw_usage *usage, const char *key, size_t len)
{
	if (key_is(key, len, "usage") ||
		(usage->in_body && usage->depth == 1 && key_is(key, len, "meta")))
		return MEANS_USAGE;
	return usage->depth == 1 && (key_is(key, len, "response") || key_is(key, len, "message") ||
					    key_is(key, len, "delta"))
		       ? MEANS_HOLDER
		       : MEANS_NOTHING;
}

/* Continues a string that spans pieces, or whose colon is in the next piece. At a depth where keys
 * matter, the string may be a key. */
static const char *take_string(struct kvw_usage *usage, const char *p, const char *end)
{
	const char *from = p;
	size_t room = sizeof(usage->key) - usage->key_len, len;

	p += usage->escaped; /* p < end */
	usage->escaped = false;
	while ((p = plain_end(p, end)) < end && *p != '"') {
		usage->escaped = end - p == 1;
		p = usage->escaped ? end : p + 2;
	}
	len = (size_t)(p - from) < room ? (size_t)(p - from) : room;
	memcpy(usage->key + usage->key_len, from, len);
	usage->key_len += (uint8_t)len;
	usage->in_string = p == end;
	usage->string_ended = p < end && counts(usage);
	return p == end ? end : p + 1;
}

/* Called after a string that may be a key, which it is if a colon follows. */
static const char *take_colon(struct kvw_usage *usage, const char *p, const char *end)
{
	p = skip_space(p, end);
	if (p == end)
		return end;
	if (*p == ':')
		usage->meaning = (uint8_t)meaning_of_key(usage, usage->key, usage->key_len);
	usage->string_ended = false;
	return p;
}

/* Takes a string; p is at its opening quote. Between events, at depth 0, there is none. */
static const char *open_string(struct kvw_usage *usage, const char *p, const char *end)
{
	const char *text = p + 1, *last;

	if (usage->depth == 0)
		return text;
	last = plain_end(text, end);
	/* The string is complete in this piece, and so is the byte that shows whether it is a
	 * key. */
	if (end - last > 1 && *last == '"' &&
		(last[1] == ':' || last[1] == ',' || !counts(usage))) {
		if (last[1] == ':' && counts(usage))
			usage->meaning = (uint8_t)meaning_of_key(
				usage, text, (size_t)(last - text));
		return last + 1;
	}
	usage->key_len = 0;
	usage->in_string = text == end;
	return text == end ? end : take_string(usage, text, end);
}

/* Returns the first byte in [p, end) that is a bracket or a quote, or end. */
static const char *structure(const char *p, const char *end)
{
#ifdef __SSE2__
	const __m128i quote = _mm_set1_epi8('"'), bit = _mm_set1_epi8(0x20),
		      open = _mm_set1_epi8('{'), close = _mm_set1_epi8('}');

	for (; end - p >= 16; p += 16) {
		__m128i bytes = _mm_loadu_si128((const __m128i *)p);
		__m128i braces = _mm_or_si128(bytes, bit); /* '[' becomes '{', and ']' '}' */
		__m128i either = _mm_or_si128(
			_mm_cmpeq_epi8(braces, open), _mm_cmpeq_epi8(braces, close));
		unsigned hits = (unsigned)_mm_movemask_epi8(
			_mm_or_si128(_mm_cmpeq_epi8(bytes, quote), either));

		if (hits != 0)
			return p + __builtin_ctz(hits);
	}
#endif
	while (p < end && *p != '"' && (*p | 0x20) != '{' && (*p | 0x20) != '}')
		p++;
	return p;
}

/* Takes an opening bracket at p. Between events, at depth 0, only that of an object counts. */
static const char *open_container(struct kvw_usage *usage, const char *p, const char *end)
{
	enum meaning meaning = (enum meaning)usage->meaning;
	const char *behind;

	usage->meaning = MEANS_NOTHING;
	if (*p == '[' && usage->depth == 0)
		return p + 1;
	if (*p == '{' && meaning == MEANS_USAGE) {
		behind = take_in_place(usage, p, end);
		if (behind != NULL)
			return behind;
		usage->collecting = true;
		usage->inside = 0;
		usage->window_len = 0;
		return collect_usage(usage, p, end);
	}
	usage->depth++;
	if (usage->depth == 2)
		usage->held = *p == '{' && meaning == MEANS_HOLDER;
	return p + 1;
}

/* Takes bytes outside of strings. */
static const char *take_structure(struct kvw_usage *usage, const char *p, const char *end)
{
	p = structure(p, end);
	if (p == end)
		return end;
	switch (*p) {
	case '"':
		return open_string(usage, p, end);
	case '{':
	case '[':
		return open_container(usage, p, end);
	default:
		usage->meaning = MEANS_NOTHING;
		usage->depth -= usage->depth > 0;
		usage->in_body = usage->in_body && usage->depth > 0;
	}
	return p + 1;
}

/* Returns whether the bytes are whole events without a usage object. */
static bool says_nothing(const char *p, const char *end)
{
	if (*p == '{' || *p == '[' || end - p < 2 || end[-1] != '\n' || end[-2] != '\n')
		return false;
	while ((p = kvw_find(p, (size_t)(end - p), marker)) != NULL) {
		p = skip_space(p + marker.len, end);
		p = skip_space(p < end && *p == ':' ? p + 1 : end, end);
		if (end - p < 4 || memcmp(p, "null", 4) != 0)
			return false;
	}
	return true;
}

void kvw_usage_feed(struct kvw_usage *usage, const char *data, size_t len)
{
	const char *p = data, *end = data + len;

	if (len == 0)
		return;
	if (!usage->begun) {
		const char *first = skip_space(p, end);

		usage->begun = first < end;
		usage->in_body = first < end && *first == '{';
	}
	if (usage->depth == 0 && !usage->collecting && !usage->in_body && says_nothing(p, end))
		return;
	while (p < end) {
		if (usage->collecting)
			p = collect_usage(usage, p, end);
		else if (usage->in_string)
			p = take_string(usage, p, end);
		else if (usage->string_ended)
			p = take_colon(usage, p, end);
		else
			p = take_structure(usage, p, end);
	}
}

void kvw_usage_finish(struct kvw_usage *usage)
{
	usage->collecting = false;
	usage->window_len = 0;
}
