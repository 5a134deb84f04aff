/*
 * fragments.h - predicts cached text that is not a prefix, from the texts lately sent to each
 * worker.
 *
 * A worker that blends (struct kvw_candidate.blends) reuses a text that it computed before wherever
 * the text stands. Workers do not report such texts, so a text routed to a worker counts as held
 * there, until as many tokens of other texts were routed to it as it is assumed to hold.
 *
 * One table of fixed size: sets of eight entries in two cache lines, each a text and a worker. A
 * full set drops the entry whose worker got most tokens since. Any thread, without locks: an entry
 * is two words, the first is the text's hash XOR the second, so that a torn entry matches no text.
 * At worst a prediction is wrong. Moving a floor forgets all entries of a worker at once.
 */
#ifndef KVW_FRAGMENTS_H
#define KVW_FRAGMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "kvway/err.h"

#define KVW_FRAGMENT_HOLDERS 8 /* limit of known workers for one text */

struct kvw_fragments;

/* bytes: limit of the table's memory; at least a few KiB. */
enum kvw_err kvw_fragments_create(uint64_t bytes, struct kvw_fragments **out) KVW_MUST_CHECK;
void kvw_fragments_destroy(struct kvw_fragments *fragments); /* NULL is allowed */

/* Records that this text of so many tokens was sent to a worker, which holds at most
 * `held_tokens`. */
void kvw_fragments_teach(struct kvw_fragments *fragments, uint64_t hash, uint32_t tokens,
	uint32_t worker, uint64_t held_tokens);
/* Returns the number of workers that are assumed to hold the text, at most KVW_FRAGMENT_HOLDERS,
 * and their ids, each once. */
uint32_t kvw_fragments_find(const struct kvw_fragments *fragments, uint64_t hash,
	uint64_t held_tokens, uint32_t *workers);
/* Forgets the texts of a worker that lost its cache. */
void kvw_fragments_purge(struct kvw_fragments *fragments, uint32_t worker);

/* Entries ever used, capacity and bytes of the table. */
void kvw_fragments_stats(
	const struct kvw_fragments *fragments, uint64_t *used, uint64_t *most, uint64_t *bytes);

#endif
