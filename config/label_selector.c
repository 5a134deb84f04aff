/*
 * label_selector.c - checks a label selector, and applies it to labels.
 *
 * The same pass does both: without labels it only checks.
 */
#include "config/label_selector.h"

#include <stddef.h>
#include <string.h>

#define NAME_MOST   63
#define PREFIX_MOST 253

struct reader {
	const char *at, *end;
	kvw_label_fn *label; /* returns a label's value; NULL: only the grammar is checked */
	const void *arg;
};

static bool is_alnum(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_inner(char c)
{
	return is_alnum(c) || c == '-' || c == '_' || c == '.';
}

static bool is_name(const char *data, size_t len, size_t most)
{
	if (len == 0 || len > most || !is_alnum(data[0]) || !is_alnum(data[len - 1]))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!is_inner(data[i]))
			return false;
	return true;
}

bool kvw_label_key_is_valid(struct kvw_slice text)
{
	const char *slash = text.len == 0 ? NULL : memchr(text.data, '/', text.len);
	size_t prefix = slash == NULL ? 0 : (size_t)(slash - text.data);

	if (slash == NULL)
		return is_name(text.data, text.len, NAME_MOST);
	return is_name(text.data, prefix, PREFIX_MOST) &&
	       is_name(slash + 1, text.len - prefix - 1, NAME_MOST);
}

static void skip_blanks(struct reader *r)
{
	while (r->at < r->end && (*r->at == ' ' || *r->at == '\t'))
		r->at++;
}

static bool take(struct reader *r, char c)
{
	skip_blanks(r);
	if (r->at == r->end || *r->at != c)
		return false;
	r->at++;
	return true;
}

/* Reads a run of characters that keys and values may have; it may be empty. */
static struct kvw_slice word(struct reader *r)
{
	const char *start;

	skip_blanks(r);
	start = r->at;
	while (r->at < r->end && (is_inner(*r->at) || *r->at == '/'))
		r->at++;
	return (struct kvw_slice){start, (size_t)(r->at - start)};
}

static bool is_value(struct kvw_slice text)
{
	return text.len == 0 || is_name(text.data, text.len, NAME_MOST);
}

/* Reads `(a, b)`; *in: the value is one of those in the list. */
static bool read_set(struct reader *r, struct kvw_slice value, bool *in)
{
	*in = false;
	if (!take(r, '('))
		return false;
	do {
		struct kvw_slice one = word(r);

		if (!is_value(one))
			return false;
		*in = *in || (value.data != NULL && kvw_slice_equal(one, value));
	} while (take(r, ','));
	return take(r, ')');
}

/* Reads the relation after a key. Returns false if it is malformed. */
static bool read_relation(struct reader *r, struct kvw_slice value, bool *holds)
{
	struct kvw_slice operand;
	bool not = false, in;

	*holds = value.data != NULL;
	skip_blanks(r);
	if (r->at == r->end || *r->at == ',')
		return true;
	if (*r->at == '=' || *r->at == '!') {
		not = *r->at++ == '!';
		if (r->at < r->end && *r->at == '=')
			r->at++;
		else if (not)
			return false;
		operand = word(r);
		*holds = (value.data != NULL && kvw_slice_equal(operand, value)) != not;
		return is_value(operand);
	}
	operand = word(r);
	not = kvw_slice_equal(operand, KVW_SLICE("notin"));
	if ((!not && !kvw_slice_equal(operand, KVW_SLICE("in"))) || !read_set(r, value, &in))
		return false;
	*holds = in != not;
	return true;
}

/* Returns false if the text is malformed. */
static bool read_requirement(struct reader *r, bool *holds)
{
	bool absent = take(r, '!');
	struct kvw_slice key = word(r), value = {0};

	if (!kvw_label_key_is_valid(key))
		return false;
	if (r->label != NULL)
		value = r->label(r->arg, key);
	if (!absent)
		return read_relation(r, value, holds);
	*holds = value.data == NULL;
	return true;
}

static bool read_all(struct reader *r, bool *hold)
{
	bool one;

	*hold = true;
	do {
		if (!read_requirement(r, &one))
			return false;
		*hold = *hold && one;
	} while (take(r, ','));
	skip_blanks(r);
	return r->at == r->end;
}

bool kvw_label_selector_is_valid(struct kvw_slice text)
{
	struct reader r = {.at = text.data, .end = text.data + text.len};
	bool hold;

	return text.len > 0 && read_all(&r, &hold);
}

bool kvw_label_selector_matches(struct kvw_slice text, kvw_label_fn *label, const void *arg)
{
	struct reader r = {
		.at = text.data, .end = text.data + text.len, .label = label, .arg = arg};
	bool hold;

	return read_all(&r, &hold) && hold;
}
