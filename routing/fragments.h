/*
 * fragments.h - which worker was sent which text lately: cached text that is not a prefix, as it is
 * predicted.
 *
 * A worker that blends (struct kvw_candidate.blends) reuses a text that it computed before wherever
 * the text stands. Workers do not report such texts, so what was routed to a worker counts as held
 * there, until so many tokens of other texts were routed to it as it is believed to hold.
 *
 * One table of fixed size: sets of eight entries in two cache lines, each a text and a worker.
 * Within a set the entry goes whose worker took in most since. Any thread, without locks: an entry
 * is two words, the first the text's hash changed with the second, so that a torn one is no entry
 * of that text. At worst a prediction is wrong, as it may be anyway. A worker's entries are
 * forgotten at once by moving a floor.
 */
#ifndef KVW_FRAGMENTS_H
#define KVW_FRAGMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "kvway/err.h"

#define KVW_FRAGMENT_HOLDERS 8 /* workers of one text that are known at most */

struct kvw_fragments;

/* bytes: hard limit of the table's memory; at least a few KiB. */
enum kvw_err kvw_fragments_create(uint64_t bytes, struct kvw_fragments **out) KVW_MUST_CHECK;
void kvw_fragments_destroy(struct kvw_fragments *fragments); /* NULL is allowed */

/* A worker that holds `held_tokens` at most was sent this text of so many tokens. */
void kvw_fragments_teach(struct kvw_fragments *fragments, uint64_t hash, uint32_t tokens,
	uint32_t worker, uint64_t held_tokens);
/* Workers believed to hold the text, at most KVW_FRAGMENT_HOLDERS of them, each once;
 * returns how many. */
uint32_t kvw_fragments_find(const struct kvw_fragments *fragments, uint64_t hash,
	uint64_t held_tokens, uint32_t *workers);
/* The worker has lost what it held. */
void kvw_fragments_purge(struct kvw_fragments *fragments, uint32_t worker);

/* Entries in use by now, of how many there may be; bytes of the table. */
void kvw_fragments_stats(
	const struct kvw_fragments *fragments, uint64_t *used, uint64_t *most, uint64_t *bytes);

#endif
