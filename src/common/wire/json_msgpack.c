/*
 * json_msgpack.c - reads JSON, and writes it as MessagePack at the same time.
 *
 * MessagePack puts the number of members before the members. So each array or map first gets a head
 * with a 32-bit count of 0, which is overwritten when its bracket closes. There is no recursion:
 * open brackets are kept on a small stack.
 *
 * Room: per byte of JSON at most 2.5 are written ("[]" is five bytes of head, "1e1," nine of a
 * double), and as much again for each bracket that is still open.
 */
#include <stdlib.h>
#include <string.h>

#include "wire/json_msgpack.h"

/* One open bracket. */
struct level {
	size_t head;    /* offset in the output of the bracket's head */
	uint32_t count; /* number of values (array) or pairs (map) that have begun */
	bool map;
};

struct reader {
	const char *at, *end;
	struct kvw_mp_out *out;
	struct level levels[KVW_MP_DEPTH];
	size_t depth;
	const char *error;
};

static enum kvw_err refuse_json(struct reader *r, const char *error)
{
	r->error = error;
	return KVW_EPROTO;
}

static void skip_blanks(struct reader *r)
{
	while (r->at < r->end &&
		(*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
		r->at++;
}

static bool digit(const struct reader *r)
{
	return r->at < r->end && *r->at >= '0' && *r->at <= '9';
}

/* --- texts ---------------------------------------------------------------------------------- */

static enum kvw_err hex4(struct reader *r, uint32_t *unit)
{
	uint32_t value = 0;
	char c;

	if (r->end - r->at < 4)
		return refuse_json(r, "JSON cut off inside an escape");
	for (int i = 0; i < 4; i++) {
		c = *r->at++;
		if (c >= '0' && c <= '9')
			value = value << 4 | (uint32_t)(c - '0');
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			value = value << 4 | (uint32_t)((c | 32) - 'a' + 10);
		else
			return refuse_json(r, "JSON with a bad \\u escape");
	}
	*unit = value;
	return KVW_OK;
}

/* Writes a code point to `to` as UTF-8; returns the number of bytes. */
static size_t utf8(uint32_t code, char *to)
{
	if (code < 0x80) {
		to[0] = (char)code;
		return 1;
	}
	if (code < 0x800) {
		to[0] = (char)(0xc0 | code >> 6);
		to[1] = (char)(0x80 | (code & 63));
		return 2;
	}
	if (code < 0x10000) {
		to[0] = (char)(0xe0 | code >> 12);
		to[1] = (char)(0x80 | (code >> 6 & 63));
		to[2] = (char)(0x80 | (code & 63));
		return 3;
	}
	to[0] = (char)(0xf0 | code >> 18);
	to[1] = (char)(0x80 | (code >> 12 & 63));
	to[2] = (char)(0x80 | (code >> 6 & 63));
	to[3] = (char)(0x80 | (code & 63));
	return 4;
}

/* Reads the code point after "\u"; a surrogate pair has two such escapes. */
static enum kvw_err unicode(struct reader *r, char *to, size_t *len)
{
	uint32_t code, low;
	enum kvw_err err = hex4(r, &code);

	if (err != KVW_OK)
		return err;
	if (code >= 0xdc00 && code < 0xe000)
		return refuse_json(r, "JSON with half a surrogate pair");
	if (code >= 0xd800 && code < 0xdc00) {
		if (r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u')
			return refuse_json(r, "JSON with half a surrogate pair");
		r->at += 2;
		err = hex4(r, &low);
		if (err != KVW_OK)
			return err;
		if (low < 0xdc00 || low >= 0xe000)
			return refuse_json(r, "JSON with half a surrogate pair");
		code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
	}
	*len = utf8(code, to);
	return KVW_OK;
}

/* Reads an escape, from after its backslash. */
static enum kvw_err escape(struct reader *r, char *to, size_t *len)
{
	static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
	const char *found;

	if (r->at == r->end)
		return refuse_json(r, "JSON cut off inside an escape");
	if (*r->at == 'u') {
		r->at++;
		return unicode(r, to, len);
	}
	found = *r->at == '\0' ? NULL : strchr(from, *r->at);
	if (found == NULL)
		return refuse_json(r, "JSON with an unknown escape");
	r->at++;
	to[0] = into[found - from];
	*len = 1;
	return KVW_OK;
}

/* Reads a text, from its quote on. Its head has a 32-bit length, because the text becomes shorter
 * when escapes are replaced. */
static enum kvw_err text(struct reader *r)
{
	struct kvw_mp_out *out = r->out;
	size_t head = out->len, n, len;
	char bytes[4];
	enum kvw_err err;

	if (out->full || out->size - out->len < 5 ||
		out->size - out->len - 5 < (size_t)(r->end - r->at)) {
		out->full = true; /* replacing escapes never makes a text longer */
		return KVW_ELIMIT;
	}
	out->data[head] = 0xdb;
	out->len += 5;
	r->at++;
	while (r->at < r->end && *r->at != '"') {
		n = 1;
		bytes[0] = *r->at++;
		if ((unsigned char)bytes[0] < 0x20)
			return refuse_json(r, "JSON with a control character in a text");
		if (bytes[0] == '\\') {
			err = escape(r, bytes, &n);
			if (err != KVW_OK)
				return err;
		}
		memcpy(out->data + out->len, bytes, n);
		out->len += n;
	}
	if (r->at == r->end)
		return refuse_json(r, "JSON cut off inside a text");
	r->at++;
	len = out->len - head - 5;
	for (int i = 0; i < 4; i++)
		out->data[head + 1 + i] = (uint8_t)(len >> (24 - 8 * i));
	return KVW_OK;
}

/* --- numbers and words ---------------------------------------------------------------------- */

/* Reads the digits of an integer. Returns false if the number is above 2^64-1. */
static bool magnitude(const char *at, const char *end, uint64_t *value)
{
	uint64_t sum = 0;

	for (; at < end; at++) {
		if (__builtin_mul_overflow(sum, 10u, &sum) ||
			__builtin_add_overflow(sum, (uint64_t)(*at - '0'), &sum))
			return false;
	}
	*value = sum;
	return true;
}

static enum kvw_err real(struct reader *r, const char *start)
{
	char copy[64];
	size_t len = (size_t)(r->at - start);

	if (len >= sizeof(copy))
		return refuse_json(r, "JSON with a number of more than 63 characters");
	memcpy(copy, start, len);
	copy[len] = '\0';
	kvw_mp_put_real(r->out, strtod(copy, NULL));
	return KVW_OK;
}

static enum kvw_err number(struct reader *r)
{
	const char *start = r->at, *digits;
	bool whole = true, negative = *r->at == '-';
	uint64_t value;

	r->at += negative;
	digits = r->at;
	while (digit(r))
		r->at++;
	if (r->at == digits || (*digits == '0' && r->at - digits > 1))
		return refuse_json(r, "JSON with a bad number");
	if (r->at < r->end && *r->at == '.') {
		whole = false;
		r->at++;
		if (!digit(r))
			return refuse_json(r, "JSON with a bad number");
		while (digit(r))
			r->at++;
	}
	if (r->at < r->end && (*r->at | 32) == 'e') {
		whole = false;
		r->at++;
		r->at += r->at < r->end && (*r->at == '+' || *r->at == '-');
		if (!digit(r))
			return refuse_json(r, "JSON with a bad number");
		while (digit(r))
			r->at++;
	}
	if (!whole)
		return real(r, start);
	if (!magnitude(digits, r->at, &value) || (negative && value > UINT64_C(1) << 63))
		return refuse_json(r, "JSON with an integer of more than 64 bits");
	if (negative)
		kvw_mp_put_int(r->out, (int64_t)(0 - value));
	else
		kvw_mp_put_uint(r->out, value);
	return KVW_OK;
}

static bool word(struct reader *r, struct kvw_slice expected)
{
	if ((size_t)(r->end - r->at) < expected.len ||
		memcmp(r->at, expected.data, expected.len) != 0)
		return false;
	r->at += expected.len;
	return true;
}

/* --- structure ------------------------------------------------------------------------------ */

static enum kvw_err open_level(struct reader *r, bool map)
{
	struct kvw_mp_out *out = r->out;

	if (r->depth == KVW_MP_DEPTH) {
		r->error = "JSON nested too deep";
		return KVW_ELIMIT;
	}
	if (out->full || out->size - out->len < 5) {
		out->full = true;
		return KVW_ELIMIT;
	}
	r->levels[r->depth++] = (struct level){.head = out->len, .map = map};
	memset(out->data + out->len, 0, 5);
	out->data[out->len] = map ? 0xdf : 0xdd;
	out->len += 5;
	r->at++;
	return KVW_OK;
}

static void close_level(struct reader *r)
{
	const struct level *level = &r->levels[--r->depth];

	for (int i = 0; i < 4; i++)
		r->out->data[level->head + 1 + i] = (uint8_t)(level->count >> (24 - 8 * i));
	r->at++;
}

/* Reads a value, or the bracket that opens one. */
static enum kvw_err value(struct reader *r)
{
	if (r->at == r->end)
		return refuse_json(r, "JSON ends where a value should begin");
	switch (*r->at) {
	case '{':
	case '[':
		return open_level(r, *r->at == '{');
	case '"':
		return text(r);
	case 't':
		kvw_mp_put_bool(r->out, true);
		return word(r, KVW_SLICE("true")) ? KVW_OK
						  : refuse_json(r, "JSON with an unknown word");
	case 'f':
		kvw_mp_put_bool(r->out, false);
		return word(r, KVW_SLICE("false")) ? KVW_OK
						   : refuse_json(r, "JSON with an unknown word");
	case 'n':
		kvw_mp_put_nil(r->out);
		return word(r, KVW_SLICE("null")) ? KVW_OK
						  : refuse_json(r, "JSON with an unknown word");
	default:
		if (*r->at == '-' || digit(r))
			return number(r);
		return refuse_json(r, "JSON with a character that begins no value");
	}
}

/* Reads the name of the next member of a map, and the colon after it. */
static enum kvw_err name(struct reader *r)
{
	enum kvw_err err;

	if (r->at == r->end || *r->at != '"')
		return refuse_json(r, "JSON without a member's name");
	err = text(r);
	if (err != KVW_OK)
		return err;
	skip_blanks(r);
	if (r->at == r->end || *r->at != ':')
		return refuse_json(r, "JSON without a colon");
	r->at++;
	skip_blanks(r);
	return KVW_OK;
}

/* Reads the end of the innermost bracket, or the bracket's next member. */
static enum kvw_err member(struct reader *r)
{
	struct level *level = &r->levels[r->depth - 1];
	enum kvw_err err = KVW_OK;

	if (r->at < r->end && *r->at == (level->map ? '}' : ']')) {
		close_level(r);
		return KVW_OK;
	}
	if (level->count > 0) {
		if (r->at == r->end || *r->at != ',')
			return refuse_json(r, "JSON without a comma");
		r->at++;
		skip_blanks(r);
	}
	level->count++;
	if (level->map)
		err = name(r);
	return err == KVW_OK ? value(r) : err;
}

enum kvw_err kvw_json_to_msgpack(struct kvw_slice json, struct kvw_mp_out *out, const char **error)
{
	struct reader r = {.at = json.data, .end = json.data, .out = out};
	enum kvw_err err;

	if (json.len > 0)
		r.end += json.len;
	skip_blanks(&r);
	err = value(&r);
	skip_blanks(&r);
	while (err == KVW_OK && r.depth > 0) {
		err = member(&r);
		skip_blanks(&r);
	}
	if (err == KVW_OK && r.at != r.end)
		err = refuse_json(&r, "JSON with something after its end");
	if (err == KVW_OK && out->full)
		err = KVW_ELIMIT;
	if (err != KVW_OK)
		*error = r.error == NULL ? "JSON too large" : r.error;
	return err;
}
