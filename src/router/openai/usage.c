/*
 * usage.c - token counts out of an answer that streams by.
 *
 * The member name `"usage"`, both quotes included, cannot stand inside a JSON string, where its
 * quotes would be escaped. It is searched in each piece; what a piece's end may have cut, six bytes
 * at most, is kept. Behind it the object is read where it is if the piece holds all of it; else it is
 * copied until its braces are even, then read. A null, or anything else that is not an object, ends
 * the copy at once: servers write `"usage":null` into every event.
 *
 * Names, as recorded from vLLM 0.32:
 *
 *	completions, chat  prompt_tokens, completion_tokens, prompt_tokens_details.cached_tokens
 *	responses          input_tokens, output_tokens, input_tokens_details.cached_tokens
 *	messages           input_tokens, output_tokens, cache_read_input_tokens,
 *	                   cache_creation_input_tokens; the first excludes the last two
 */
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "openai/usage.h"

static const char marker[] = "\"usage\"";
#define MARKER_LEN (sizeof(marker) - 1)

void kvw_usage_init(struct kvw_usage *usage)
{
	/* The window needs no clearing: only window_len bytes of it are ever read. */
	memset(usage, 0, offsetof(struct kvw_usage, window));
	usage->window_len = 0;
}

/* The first marker in [p, end), or NULL. */
static const char *find_marker(const char *p, const char *end)
{
#ifdef __SSE2__
	const __m128i quote = _mm_set1_epi8('"'), letter = _mm_set1_epi8('g');

	for (; end - p >= 16 + (ptrdiff_t)MARKER_LEN - 1; p += 16) {
		__m128i first = _mm_loadu_si128((const __m128i *)p);
		__m128i fifth = _mm_loadu_si128((const __m128i *)(p + 4));
		__m128i last = _mm_loadu_si128((const __m128i *)(p + MARKER_LEN - 1));
		__m128i both =
			_mm_and_si128(_mm_cmpeq_epi8(first, quote), _mm_cmpeq_epi8(last, quote));
		unsigned hits = (unsigned)_mm_movemask_epi8(
			_mm_and_si128(both, _mm_cmpeq_epi8(fifth, letter)));

		for (; hits != 0; hits &= hits - 1) {
			const char *at = p + __builtin_ctz(hits);

			if (memcmp(at, marker, MARKER_LEN) == 0)
				return at;
		}
	}
#endif
	return end - p < (ptrdiff_t)MARKER_LEN ? NULL
					       : memmem(p, (size_t)(end - p), marker, MARKER_LEN);
}

/* The counts of one usage object. */
struct reader {
	uint64_t prompt, input, completion, cached, created;
	bool has_prompt, has_input, has_completion, has_cached, has_created;
	bool anthropic; /* `input` excludes what was cached */
};

static bool key_is(const char *key, size_t len, const char *name)
{
	return len == strlen(name) && memcmp(key, name, len) == 0;
}

static void take_count(
	struct reader *reader, const char *key, size_t len, bool in_details, uint64_t count)
{
	if (in_details) {
		if (key_is(key, len, "cached_tokens")) {
			reader->cached = count;
			reader->has_cached = true;
		}
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

/* Digits at p, not more than fit. Returns false if there is no plain count. */
static bool read_count(const char *p, const char *end, uint64_t *count)
{
	const char *from = p;
	uint64_t value = 0;

	for (; p < end && *p >= '0' && *p <= '9' && p - from < 11; p++)
		value = value * 10 + (uint64_t)(*p - '0');
	if (p == from || value > UINT32_MAX ||
		(p < end && *p != ',' && *p != '}' && *p != ' ' && *p != '\n' && *p != '\r' &&
			*p != '\t'))
		return false;
	*count = value;
	return true;
}

/* Skips a string; p behind its opening quote. Returns its closing quote, or end. */
static const char *string_end(const char *p, const char *end)
{
#ifdef __SSE2__
	const __m128i quote = _mm_set1_epi8('"'), escape = _mm_set1_epi8('\\');

	/* As far as nothing is escaped. */
	for (; end - p >= 16; p += 16) {
		__m128i bytes = _mm_loadu_si128((const __m128i *)p);
		unsigned hits = (unsigned)_mm_movemask_epi8(_mm_or_si128(
			_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, escape)));

		if (hits == 0)
			continue;
		p += __builtin_ctz(hits);
		break;
	}
#endif
	for (; p < end && *p != '"'; p++)
		p += *p == '\\' && p + 1 < end;
	return p;
}

static const char *skip_space(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
		p++;
	return p;
}

/* Reads keys with counts out of an object; p at its brace. Returns the first byte behind it; NULL: it is
 * not whole. */
static const char *read_object(struct reader *reader, const char *p, const char *end)
{
	unsigned depth = 0;
	bool details = false; /* the member of depth 1 read last holds the details of the prompt */

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
			details = key_is(key, (size_t)(key_end - key), "prompt_tokens_details") ||
				  key_is(key, (size_t)(key_end - key), "input_tokens_details");
		if ((depth == 1 || (depth == 2 && details)) && read_count(value, end, &count))
			take_count(reader, key, (size_t)(key_end - key), depth == 2, count);
	}
	return NULL;
}

static void take_counts(struct kvw_usage *usage, const struct reader *reader)
{
	if (reader->has_prompt || reader->has_input) {
		uint64_t prompt = reader->has_prompt ? reader->prompt : reader->input;

		if (!reader->has_prompt && reader->anthropic)
			prompt += reader->cached;
		if (!reader->has_prompt && reader->has_created)
			prompt += reader->created;
		usage->prompt_known = prompt <= UINT32_MAX;
		usage->prompt_tokens = usage->prompt_known ? (uint32_t)prompt : 0;
		/* More cached than there is would be nonsense: unknown then. */
		usage->cached_known =
			reader->has_cached && usage->prompt_known && reader->cached <= prompt;
		usage->cached_tokens = usage->cached_known ? (uint32_t)reader->cached : 0;
	}
	if (reader->has_completion) {
		usage->completion_known = true;
		usage->completion_tokens = (uint32_t)reader->completion;
	}
}

/* p: behind what may be spaces and a colon, at the value. */
static const char *value_after(const char *p, const char *end)
{
	while (p < end && (*p == ':' || *p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
		p++;
	return p;
}

/* The window holds `"usage"` and a whole object. */
static void take_object(struct kvw_usage *usage)
{
	const char *end = usage->window + usage->window_len;
	struct reader reader = {0};

	(void)read_object(&reader, value_after(usage->window + MARKER_LEN, end), end);
	take_counts(usage, &reader);
}

/* An object that a piece holds whole; p behind the marker. Returns the first byte behind it; NULL: it
 * is none, or is to be copied. */
static const char *take_in_place(struct kvw_usage *usage, const char *p, const char *end)
{
	size_t room = sizeof(usage->window) - MARKER_LEN;
	const char *last = (size_t)(end - p) > room ? p + room : end;
	const char *value = value_after(p, last);
	struct reader reader = {0};

	if (value == last || *value != '{')
		return NULL;
	last = read_object(&reader, value, last);
	if (last != NULL)
		take_counts(usage, &reader);
	return last;
}

/* Where an object is: what of its bytes decides where it ends. */
struct place {
	uint32_t depth;
	bool in_string, escaped;
};

/* What a byte of a usage member means for the code that copies it. */
enum step { STEP_ON, STEP_WHOLE, STEP_NONE };

static inline enum step step(struct place *at, char c)
{
	if (at->in_string) {
		at->in_string = at->escaped || c != '"';
		at->escaped = !at->escaped && c == '\\';
	} else if (c == '{' || c == '[') {
		at->depth++;
	} else if (c == '}' || c == ']') {
		at->depth -= at->depth > 0;
		return at->depth == 0 ? STEP_WHOLE : STEP_ON;
	} else if (c == '"' && at->depth > 0) {
		at->in_string = true;
	} else if (at->depth == 0 && c != ':' && c != ' ' && c != '\n' && c != '\r' && c != '\t') {
		return STEP_NONE; /* null, or no member at all */
	}
	return STEP_ON;
}

/* Goes on copying an object. Returns the first byte behind it, or what ended it. */
static const char *collect(struct kvw_usage *usage, const char *p, const char *end)
{
	size_t room = sizeof(usage->window) - usage->window_len;
	const char *from = p, *last = (size_t)(end - p) > room ? p + room : end;
	struct place at = {usage->depth, usage->in_string, usage->escaped};
	enum step what = STEP_ON;

	while (p < last && what == STEP_ON)
		what = step(&at, *p++);
	memcpy(usage->window + usage->window_len, from, (size_t)(p - from));
	usage->window_len += (size_t)(p - from);
	usage->depth = at.depth;
	usage->in_string = at.in_string;
	usage->escaped = at.escaped;
	usage->collecting = what == STEP_ON && p == end; /* else whole, none, or too large */
	if (what == STEP_WHOLE)
		take_object(usage);
	return what == STEP_NONE ? p - 1 : p;
}

static void begin_object(struct kvw_usage *usage)
{
	memcpy(usage->window, marker, MARKER_LEN);
	usage->window_len = MARKER_LEN;
	usage->collecting = true;
	usage->in_string = usage->escaped = false;
	usage->depth = 0;
}

/* A marker that the last piece cut: goes on with it. Returns where the search goes on. */
static const char *join_marker(struct kvw_usage *usage, const char *p, const char *end)
{
	size_t have = usage->window_len, more = MARKER_LEN - have;
	size_t len = (size_t)(end - p) < more ? (size_t)(end - p) : more;

	usage->window_len = 0;
	if (memcmp(p, marker + have, len) != 0)
		return p;
	if (len == more) {
		begin_object(usage);
		return p + len;
	}
	memcpy(usage->window, marker, have + len);
	usage->window_len = have + len;
	return end;
}

/* Keeps what may be a marker's beginning at the end of a piece. */
static void keep_tail(struct kvw_usage *usage, const char *p, const char *end)
{
	size_t most = (size_t)(end - p) < MARKER_LEN - 1 ? (size_t)(end - p) : MARKER_LEN - 1;

	for (size_t len = most; len > 0; len--) {
		if (end[-(ptrdiff_t)len] == '"' && memcmp(end - len, marker, len) == 0) {
			memcpy(usage->window, marker, len);
			usage->window_len = len;
			return;
		}
	}
}

void kvw_usage_feed(struct kvw_usage *usage, const char *data, size_t len)
{
	const char *p = data, *end = data + len;

	if (len == 0)
		return;
	if (!usage->collecting && usage->window_len > 0)
		p = join_marker(usage, p, end);
	while (p < end) {
		const char *found;

		if (usage->collecting) {
			p = collect(usage, p, end);
			if (!usage->collecting)
				usage->window_len = 0;
			continue;
		}
		found = find_marker(p, end);
		if (found == NULL) {
			keep_tail(usage, p, end);
			return;
		}
		p = take_in_place(usage, found + MARKER_LEN, end);
		if (p != NULL)
			continue;
		begin_object(usage);
		p = found + MARKER_LEN;
	}
}

void kvw_usage_finish(struct kvw_usage *usage)
{
	usage->collecting = false;
	usage->window_len = 0;
}
