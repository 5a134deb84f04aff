/*
 * suggest.h - finds the known word that is nearest to a misspelt one, for "did you mean `x`?".
 *
 * Distance: insertions, deletions, replacements and swaps of neighbours (optimal string alignment);
 * case and '-' against '_' count for nothing. A candidate is near if at most a third of the wanted
 * word's characters, and at most three, would have to change.
 */
#ifndef KVW_CONFIG_SUGGEST_H
#define KVW_CONFIG_SUGGEST_H

#include <stddef.h>

#define KVW_SUGGEST_MAX 64 /* for a longer word there are no suggestions */

/* The search for the nearest word. Plain data; words are borrowed. */
struct kvw_suggest {
	const char *wanted;
	const char *best; /* NULL: no word near enough was offered */
	size_t distance;  /* distance of `best` */
};

void kvw_suggest_start(struct kvw_suggest *suggest, const char *wanted);

/* Compares `word` with the wanted word; if it is the nearest so far, `candidate` becomes the
 * result. The two differ if only the last part of a candidate is compared. */
void kvw_suggest_offer(struct kvw_suggest *suggest, const char *word, const char *candidate);

#endif
