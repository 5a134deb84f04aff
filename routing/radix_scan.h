/*
 * radix_scan.h - looking through the holders in one slot of the prefix tree.
 *
 * A node that many prompts share has dozens of holders, and a prompt's path has several such nodes:
 * these loops are where a pick spends its time.
 *
 * `words` are a slot's first `used` (at most KVW_NODE_WORDS) words, windows those of the views. All
 * are read word by word as they change; a word of 0 is no holder.
 */
#ifndef KVW_RADIX_SCAN_H
#define KVW_RADIX_SCAN_H

#include <stdatomic.h>
#include <stdint.h>

#include "routing/radix.h"

/* Which words are this worker's, bit i for word i. */
uint32_t kvw_scan_of_worker(const _Atomic uint64_t *words, unsigned used, uint32_t worker);

/* Which words hold nothing, or nothing any more. */
uint32_t kvw_scan_dead(
	const _Atomic uint64_t *words, unsigned used, const _Atomic uint64_t *windows);

/* Empties a reach whose limit is set. */
void kvw_scan_reach_none(struct kvw_radix_reach *reach);

/* Holders whose reach comes up to a step that begins at chunk `start` carry on through `length`
 * chunks of it at most. A holder of nothing of the step at 0 is not reached. */
void kvw_scan_reach(const _Atomic uint64_t *words, unsigned used, const _Atomic uint64_t *windows,
	uint32_t start, uint32_t length, struct kvw_radix_reach *reach);

/* No slot follows: sets reach->chunks. */
void kvw_scan_reach_done(struct kvw_radix_reach *reach);

#endif
