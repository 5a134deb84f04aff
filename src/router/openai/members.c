/*
 * members.c - finds the top-level members of a JSON object in its text.
 */
#include "openai/members.h"

#include <stdint.h>
#include <string.h>

#define DEPTH_MOST 64

struct walk {
	const char *at, *end;
};

static void skip_space(struct walk *w)
{
	while (w->at < w->end &&
		(*w->at == ' ' || *w->at == '\t' || *w->at == '\n' || *w->at == '\r'))
		w->at++;
}

static bool take(struct walk *w, char c)
{
	skip_space(w);
	if (w->at == w->end || *w->at != c)
		return false;
	w->at++;
	return true;
}

/* Skips to behind the quote that ends the string; its opening quote was taken. False: there is
 * none. */
static bool skip_string(struct walk *w)
{
	while (w->at < w->end) {
		const char *quote = memchr(w->at, '"', (size_t)(w->end - w->at));
		size_t backslashes = 0;

		if (quote == NULL)
			return false;
		while (quote - backslashes > w->at && quote[-1 - (ptrdiff_t)backslashes] == '\\')
			backslashes++;
		w->at = quote + 1;
		if (backslashes % 2 == 0)
			return true;
	}
	return false;
}

static bool is_scalar(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       c == '-' || c == '+' || c == '.';
}

/* Skips a number or a word. False: there is neither. */
static bool skip_scalar(struct walk *w)
{
	const char *from = w->at;

	while (w->at < w->end && is_scalar(*w->at))
		w->at++;
	return w->at > from;
}

/* Skips an object or array without looking at its members. */
static bool skip_nested(struct walk *w)
{
	/* one bit for each open bracket, set for a brace; the innermost is bit 0 */
	uint64_t objects = 0;
	unsigned depth = 0;

	do {
		char c = *w->at++;

		if (c == '"') {
			if (!skip_string(w))
				return false;
		} else if (c == '{' || c == '[') {
			if (depth++ == DEPTH_MOST)
				return false;
			objects = objects << 1 | (c == '{');
		} else if (c == '}' || c == ']') {
			if ((objects & 1) != (c == '}'))
				return false;
			objects >>= 1;
			depth--;
		}
	} while (depth > 0 && w->at < w->end);
	return depth == 0;
}

static bool skip_value(struct walk *w, struct kvw_slice *value)
{
	const char *from;
	bool good;

	skip_space(w);
	if (w->at == w->end)
		return false;
	from = w->at;
	if (*from == '{' || *from == '[') {
		good = skip_nested(w);
	} else if (*from == '"') {
		w->at++;
		good = skip_string(w);
	} else {
		good = skip_scalar(w);
	}
	*value = (struct kvw_slice){from, (size_t)(w->at - from)};
	return good;
}

static bool take_member(struct walk *w, struct kvw_member *out)
{
	const char *from;

	if (!take(w, '"'))
		return false;
	from = w->at;
	if (!skip_string(w))
		return false;
	out->name = (struct kvw_slice){from, (size_t)(w->at - 1 - from)};
	out->escaped = memchr(out->name.data, '\\', out->name.len) != NULL;
	return take(w, ':') && skip_value(w, &out->value);
}

enum kvw_err kvw_members_walk(
	struct kvw_slice text, kvw_member_fn *fn, void *arg, size_t *open, size_t *count)
{
	struct walk w = {text.data, text.data + text.len};
	struct kvw_member member;

	*count = 0;
	if (!take(&w, '{'))
		return KVW_EPROTO;
	*open = (size_t)(w.at - text.data);
	if (take(&w, '}'))
		return KVW_OK;
	do {
		if (!take_member(&w, &member))
			return KVW_EPROTO;
		++*count;
		if (!fn(arg, &member))
			return KVW_OK;
	} while (take(&w, ','));
	return take(&w, '}') ? KVW_OK : KVW_EPROTO;
}
