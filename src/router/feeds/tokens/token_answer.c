/*
 * token_answer.c - reads the token ids of an answer of /tokenize.
 *
 * A prompt of 100,000 tokens is answered with 700 KB of digits. A tree of them would take a hundred
 * times the memory of the list, so the digits are read in place. Unwanted members are skipped, by
 * strings and brackets alone; wanted members are parsed strictly.
 */
#include "feeds/tokens/token_answer.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 64

struct reader {
	const char *at, *end;
	struct kvw_token_list *list; /* the list being filled; owned until it is returned */
	bool count_known;
	uint64_t count;
};

static void skip_space(struct reader *r)
{
	while (r->at < r->end &&
		(*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t'))
		r->at++;
}

/* Skips white space and takes a required character. */
static bool take_char(struct reader *r, char wanted)
{
	skip_space(r);
	if (r->at == r->end || *r->at != wanted)
		return false;
	r->at++;
	return true;
}

/* Takes a string; [*begin, *end) is its content, with unchanged escapes. */
static bool take_string(struct reader *r, const char **begin, const char **end)
{
	if (!take_char(r, '"'))
		return false;
	for (*begin = r->at; r->at < r->end && *r->at != '"'; r->at++) {
		if ((unsigned char)*r->at < 0x20)
			return false;
		if (*r->at == '\\' && ++r->at == r->end)
			return false;
	}
	if (r->at == r->end)
		return false;
	*end = r->at++;
	return true;
}

static bool take_id(struct reader *r, uint64_t *id)
{
	const char *begin;

	skip_space(r);
	begin = r->at;
	*id = 0;
	while (r->at < r->end && *r->at >= '0' && *r->at <= '9' && r->at - begin < 11)
		*id = *id * 10 + (uint64_t)(*r->at++ - '0');
	return r->at > begin && *id <= UINT32_MAX && (*begin != '0' || r->at == begin + 1);
}

static bool is_plain(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       c == '-' || c == '+' || c == '.';
}

/* Skips any value. */
static bool skip_value(struct reader *r)
{
	const char *begin, *end;
	char open[DEPTH_MAX];
	size_t depth = 0;

	do {
		skip_space(r);
		if (r->at == r->end)
			return false;
		switch (*r->at) {
		case '{':
		case '[':
			if (depth == DEPTH_MAX)
				return false;
			open[depth++] = *r->at++ == '{' ? '}' : ']';
			continue;
		case '}':
		case ']':
			if (depth == 0 || open[--depth] != *r->at)
				return false;
			r->at++;
			continue;
		case ',':
		case ':':
			if (depth == 0)
				return false;
			r->at++;
			continue;
		case '"':
			if (!take_string(r, &begin, &end))
				return false;
			continue;
		default:
			if (!is_plain(*r->at))
				return false;
			while (r->at < r->end && is_plain(*r->at))
				r->at++;
		}
	} while (depth > 0);
	return true;
}

/* Returns an upper bound for the numbers in a list: the commas before the closing bracket, plus
 * one. 0: the list has no end. */
static size_t most_ids(const struct reader *r)
{
	const char *close = memchr(r->at, ']', (size_t)(r->end - r->at));
	size_t most = close == NULL ? 0 : 1;

	for (const char *c = r->at; close != NULL && c < close; c++)
		most += *c == ',';
	return most;
}

static enum kvw_err take_list(struct reader *r)
{
	uint64_t id;
	size_t most;

	if (r->list != NULL || !take_char(r, '['))
		return KVW_EPROTO;
	most = most_ids(r);
	if (most == 0)
		return KVW_EPROTO;
	r->list = kvw_token_list_create(most);
	if (r->list == NULL)
		return KVW_ENOMEM;
	r->list->count = 0;
	if (take_char(r, ']'))
		return KVW_OK;
	do {
		if (!take_id(r, &id))
			return KVW_EPROTO;
		r->list->ids[r->list->count++] = (uint32_t)id;
	} while (take_char(r, ','));
	return take_char(r, ']') ? KVW_OK : KVW_EPROTO;
}

static enum kvw_err take_member(struct reader *r)
{
	const char *key, *end;

	if (!take_string(r, &key, &end) || !take_char(r, ':'))
		return KVW_EPROTO;
	if (end - key == 6 && memcmp(key, "tokens", 6) == 0)
		return take_list(r);
	if (end - key == 5 && memcmp(key, "count", 5) == 0) {
		r->count_known = true;
		return take_id(r, &r->count) ? KVW_OK : KVW_EPROTO;
	}
	return skip_value(r) ? KVW_OK : KVW_EPROTO;
}

static enum kvw_err read_object(struct reader *r)
{
	enum kvw_err err;

	if (!take_char(r, '{'))
		return KVW_EPROTO;
	do {
		err = take_member(r);
	} while (err == KVW_OK && take_char(r, ','));
	if (err != KVW_OK)
		return err;
	if (!take_char(r, '}') || r->list == NULL || (r->count_known && r->count != r->list->count))
		return KVW_EPROTO;
	skip_space(r);
	return r->at == r->end ? KVW_OK : KVW_EPROTO;
}

enum kvw_err kvw_token_answer_read(const char *text, size_t len, struct kvw_token_list **out)
{
	struct reader r = {.at = text, .end = text + len};
	enum kvw_err err = read_object(&r);

	if (err == KVW_OK)
		*out = r.list;
	else
		kvw_token_list_put(r.list);
	return err;
}
