/*
 * suggest.c - finds the known word that is nearest to a misspelt one.
 *
 * The distance is computed with three rows of its matrix, for words up to KVW_SUGGEST_MAX: at most
 * 4,096 steps for a candidate, and only when a mistake is printed.
 */
#include "settings/suggest.h"

#include <string.h>

static char folded(char c)
{
	if (c == '-')
		return '_';
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static size_t least_of(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Computes the distance of two words, both at most KVW_SUGGEST_MAX long. */
static size_t distance_between(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t rows[3][KVW_SUGGEST_MAX + 1];
	size_t *before = rows[0], *above = rows[1], *row = rows[2];

	for (size_t j = 0; j <= b_len; j++)
		above[j] = j;
	for (size_t i = 1; i <= a_len; i++) {
		size_t *oldest = before;

		row[0] = i;
		for (size_t j = 1; j <= b_len; j++) {
			char x = folded(a[i - 1]), y = folded(b[j - 1]);
			size_t cost = x == y ? 0 : 1;

			row[j] = least_of(least_of(above[j], row[j - 1]) + 1, above[j - 1] + cost);
			if (i > 1 && j > 1 && x == folded(b[j - 2]) && y == folded(a[i - 2]))
				row[j] = least_of(row[j], before[j - 2] + 1);
		}
		before = above;
		above = row;
		row = oldest;
	}
	return above[b_len];
}

void kvw_suggest_start(struct kvw_suggest *suggest, const char *wanted)
{
	*suggest = (struct kvw_suggest){.wanted = wanted};
}

void kvw_suggest_offer(struct kvw_suggest *suggest, const char *word, const char *candidate)
{
	size_t wanted_len = strlen(suggest->wanted);
	size_t word_len = strlen(word);
	size_t most = least_of(wanted_len < 3 ? 1 : wanted_len / 3, 3);
	size_t distance;

	if (wanted_len == 0 || wanted_len > KVW_SUGGEST_MAX || word_len > KVW_SUGGEST_MAX)
		return;
	distance = distance_between(suggest->wanted, wanted_len, word, word_len);
	if (distance > most || distance >= word_len)
		return;
	if (suggest->best == NULL || distance < suggest->distance) {
		suggest->best = candidate;
		suggest->distance = distance;
	}
}
