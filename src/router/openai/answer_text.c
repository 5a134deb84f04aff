/*
 * answer_text.c - extracts the generated text from an answer.
 *
 * A string's depth below `choices` and its key decide its meaning:
 *
 *	{"choices":[{"index":0,"text":"..."                                                depth 3
 *	             "message" or "delta":{"content":"...","reasoning":"..."               depth 4
 *	                       "tool_calls":[{"function":{"name":"...","arguments":"..."}  depth 7
 *
 * Any string may be a key until a colon follows. Between events, at depth 0, only an opening brace
 * counts.
 */
#include "openai/answer_text.h"

#include <string.h>

#include "openai/text.h"

enum state { STATE_BETWEEN, STATE_STRING, STATE_ESCAPE, STATE_HEX };

/* Meaning of the next value. */
enum meaning { MEANS_NOTHING, MEANS_TEXT, MEANS_INDEX, MEANS_ERROR };

static bool key_is(const struct kvw_answer_text *a, const char *word)
{
	return strlen(word) == a->key_len && memcmp(a->key, word, a->key_len) == 0;
}

static enum meaning meaning_of_key(struct kvw_answer_text *a)
{
	if (a->depth == 1) {
		a->in_choices = key_is(a, "choices");
		return key_is(a, "error") ? MEANS_ERROR : MEANS_NOTHING;
	}
	if (!a->in_choices)
		return MEANS_NOTHING;
	if (a->depth == 3 && key_is(a, "index"))
		return MEANS_INDEX;
	if ((a->depth == 3 && key_is(a, "text")) ||
		(a->depth == 7 && (key_is(a, "name") || key_is(a, "arguments"))) ||
		(a->depth == 4 && (key_is(a, "content") || key_is(a, "reasoning") ||
					  key_is(a, "reasoning_content"))))
		return MEANS_TEXT;
	return MEANS_NOTHING;
}

/* Takes a byte outside of strings. */
static void between(struct kvw_answer_text *a, char c)
{
	switch (c) {
	case '"':
		if (a->depth == 0)
			return;
		a->failed = a->failed || a->meaning == MEANS_ERROR;
		a->state = STATE_STRING;
		a->key_len = 0;
		a->high = 0;
		return;
	case ':':
		a->meaning = (uint8_t)meaning_of_key(a);
		return;
	case '[':
	case '{':
		if (a->depth > 0 || c == '{')
			a->depth++;
		a->failed = a->failed || a->meaning == MEANS_ERROR;
		break;
	case ']':
	case '}':
		a->depth -= a->depth > 0;
		break;
	case ',':
		break;
	default:
		a->several = a->several || (a->meaning == MEANS_INDEX && c >= '1' && c <= '9');
		return;
	}
	a->meaning = MEANS_NOTHING;
}

/* Takes the plain bytes of a string at p: reports them as text, or keeps them as a key. Returns the
 * first byte after them. */
static const char *take_run(struct kvw_answer_text *a, const char *p, const char *end,
	kvw_answer_text_fn *fn, void *user)
{
	const char *from = p;
	size_t len, room = KVW_ANSWER_KEY - a->key_len;

	while (p < end && *p != '"' && *p != '\\')
		p++;
	len = (size_t)(p - from);
	if (a->meaning == MEANS_TEXT) {
		a->high = len > 0 ? 0 : a->high;
		if (len > 0)
			fn(user, from, len);
		return p;
	}
	len = len < room ? len : room;
	memcpy(a->key + a->key_len, from, len);
	a->key_len += len;
	return p;
}

static void put_code(struct kvw_answer_text *a, uint32_t code, kvw_answer_text_fn *fn, void *user)
{
	unsigned char out[4];

	if (a->meaning != MEANS_TEXT)
		return;
	if (a->high != 0 && code >= 0xdc00 && code < 0xe000) {
		code = 0x10000 + ((a->high - 0xd800) << 10) + (code - 0xdc00);
	} else if (code >= 0xd800 && code < 0xdc00) {
		a->high = code;
		return;
	}
	a->high = 0;
	fn(user, (const char *)out, kvw_text_utf8(out, code));
}

static void escape(struct kvw_answer_text *a, char c, kvw_answer_text_fn *fn, void *user)
{
	static const char letters[] = "bfnrt", meant[] = "\b\f\n\r\t";
	const char *at = c == '\0' ? NULL : strchr(letters, c);

	a->state = c == 'u' ? STATE_HEX : STATE_STRING;
	a->code = 0;
	a->digits = 4;
	if (c != 'u')
		put_code(a, (unsigned char)(at != NULL ? meant[at - letters] : c), fn, user);
}

static void hex(struct kvw_answer_text *a, char c, kvw_answer_text_fn *fn, void *user)
{
	a->code = a->code << 4 | (uint32_t)(c <= '9' ? c & 15 : (c & 7) + 9);
	if (--a->digits > 0)
		return;
	a->state = STATE_STRING;
	put_code(a, a->code, fn, user);
}

void kvw_answer_text_feed(
	struct kvw_answer_text *a, const char *data, size_t len, kvw_answer_text_fn *fn, void *user)
{
	const char *p = data, *end = data + len;

	while (p < end) {
		switch ((enum state)a->state) {
		case STATE_BETWEEN:
			between(a, *p++);
			break;
		case STATE_STRING:
			p = take_run(a, p, end, fn, user);
			if (p < end)
				a->state = *p++ == '"' ? STATE_BETWEEN : STATE_ESCAPE;
			break;
		case STATE_ESCAPE:
			escape(a, *p++, fn, user);
			break;
		case STATE_HEX:
			hex(a, *p++, fn, user);
			break;
		}
	}
}
