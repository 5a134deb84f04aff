/*
 * radix_scan.h - scans the holders in one slot of the prefix tree.
 *
 * A node that many prompts share has dozens of holders, and a prompt's path has several such nodes:
 * a pick spends most of its time in these loops.
 *
 * `words` are a slot's first `used` (at most KVW_NODE_WORDS) words, `windows` the views' windows.
 * Both may change meanwhile and are read word by word; a word of 0 is no holder.
 */
#ifndef KVW_RADIX_SCAN_H
#define KVW_RADIX_SCAN_H

#include <stdatomic.h>
#include <stdint.h>

#include "routing/radix.h"

/* Returns the words of this worker, bit i for word i. */
uint32_t kvw_scan_of_worker(const _Atomic uint64_t *words, unsigned used, uint32_t worker);

/* Returns the words that are empty or dead, bit i for word i. */
uint32_t kvw_scan_dead(
	const _Atomic uint64_t *words, unsigned used, const _Atomic uint64_t *windows);

/* Empties a reach whose limit is set. */
void kvw_scan_reach_none(struct kvw_radix_reach *reach);

/* Extends the reach of those holders whose reach ends at this step's first chunk, `start`, by at
 * most `length` chunks. A worker that holds no chunk of the step at 0 is not reached. */
void kvw_scan_reach(const _Atomic uint64_t *words, unsigned used, const _Atomic uint64_t *windows,
	uint32_t start, uint32_t length, struct kvw_radix_reach *reach);

/* Called after the last slot: sets reach->chunks. */
void kvw_scan_reach_done(struct kvw_radix_reach *reach);

#endif
