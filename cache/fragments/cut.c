/*
 * cut.c - cuts a prompt into fragments.
 *
 * A cut by content depends only on a hash of the last 16 tokens, so that the same text has the same
 * candidates anywhere. Because of the least length, the last cut decides which candidates count, so
 * two readings of one text may begin differently; from their first common cut on they agree.
 */
#include <stdbool.h>
#include <string.h>

#include "kvtier/kvtier_fragments.h"

#define LEAST_TOKENS   16u
#define AVERAGE_MOST   65536u
#define LONGEST_MOST   (1u << 20)
/* the window's hash is shifted by this many bits for each token, so the window has 64 / 4 tokens */
#define BITS_OF_TOKEN  4
#define WINDOW_TOKENS  16u

/* The fragments found so far. */
struct list {
	struct kvt_fragment *out;
	size_t most, found;
	uint32_t longest; /* 0: no limit */
};

static void add(struct list *l, size_t first, size_t count)
{
	while (count > 0) {
		size_t n = l->longest != 0 && count > l->longest ? l->longest : count;

		if (l->found < l->most)
			l->out[l->found] = (struct kvt_fragment){(uint32_t)first, (uint32_t)n};
		l->found++;
		first += n;
		count -= n;
	}
}

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdu;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53u;
	return x ^ x >> 33;
}

static void by_separator(const struct kvt_cut *cut, const uint32_t *tokens, size_t count, struct list *l)
{
	size_t n = cut->separator_count, first = 0;

	for (size_t at = 0; at + n <= count;) {
		if (memcmp(tokens + at, cut->separator, n * sizeof(*tokens)) != 0) {
			at++;
			continue;
		}
		do
			at += n;
		while (at + n <= count && memcmp(tokens + at, cut->separator, n * sizeof(*tokens)) == 0);
		add(l, first, at - first);
		first = at;
	}
	add(l, first, count - first);
}

static void by_bounds(const struct kvt_cut *cut, size_t count, struct list *l)
{
	size_t first = 0;

	for (size_t i = 0; i < cut->bound_count; i++) {
		add(l, first, cut->bounds[i] - first);
		first = cut->bounds[i];
	}
	add(l, first, count - first);
}

static void by_content(const struct kvt_cut *cut, const uint32_t *tokens, size_t count, struct list *l)
{
	uint64_t below = UINT64_MAX / (cut->average_tokens - cut->min_tokens + 1), window = 0;
	size_t first = 0;

	for (size_t at = 0; at < count; at++) {
		size_t length = at + 1 - first;

		window = (window << BITS_OF_TOKEN) + mix(tokens[at] + 1);
		if (length < cut->min_tokens || (length < cut->max_tokens && (at + 1 < WINDOW_TOKENS || mix(window) > below)))
			continue;
		add(l, first, length);
		first = at + 1;
	}
	add(l, first, count - first);
}

static bool bounds_ascend(const struct kvt_cut *cut, size_t count)
{
	uint32_t before = 0;

	for (size_t i = 0; i < cut->bound_count; i++) {
		if (cut->bounds[i] <= before || cut->bounds[i] >= count)
			return false;
		before = cut->bounds[i];
	}
	return true;
}

static bool is_right(const struct kvt_cut *cut, size_t count)
{
	switch (cut->by) {
	case KVT_CUT_SEPARATOR:
		return cut->separator != NULL && cut->separator_count > 0 &&
		       cut->separator_count <= KVT_CUT_SEPARATOR_MOST && cut->max_tokens <= LONGEST_MOST;
	case KVT_CUT_BOUNDS:
		return (cut->bounds != NULL || cut->bound_count == 0) && cut->max_tokens <= LONGEST_MOST &&
		       bounds_ascend(cut, count);
	case KVT_CUT_CONTENT:
		return cut->min_tokens >= LEAST_TOKENS && cut->average_tokens >= cut->min_tokens &&
		       cut->average_tokens <= AVERAGE_MOST && cut->max_tokens >= 2 * cut->average_tokens &&
		       cut->max_tokens <= LONGEST_MOST;
	default:
		return false;
	}
}

enum kvt_status kvt_fragments_cut(const struct kvt_cut *cut, const uint32_t *tokens, size_t count,
	struct kvt_fragment *out, size_t most, size_t *found)
{
	struct list list = {.out = out, .most = most};

	if (cut == NULL || cut->size < sizeof(*cut) || (tokens == NULL && count > 0) || (out == NULL && most > 0) ||
		found == NULL || count > KVT_CUT_TOKENS_MOST || !is_right(cut, count))
		return KVT_EINVAL;
	list.longest = cut->by == KVT_CUT_CONTENT ? 0 : cut->max_tokens;
	if (cut->by == KVT_CUT_SEPARATOR)
		by_separator(cut, tokens, count, &list);
	else if (cut->by == KVT_CUT_BOUNDS)
		by_bounds(cut, count, &list);
	else
		by_content(cut, tokens, count, &list);
	*found = list.found;
	return KVT_OK;
}
