/*
 * chase.h - a lock-free pointer chase: what two threads could gain at most where every step waits
 * for memory.
 *
 * A ring of all cache lines of a mapping in random order, read by dependent loads and never
 * written, with large pages asked for as the prefix tree does.
 */
#ifndef KVB_CHASE_H
#define KVB_CHASE_H

#include <stdint.h>

struct kvb_chase {
	uint64_t *memory; /* word 0 of each line: index of the next one */
	uint64_t lines;
};

/* Maps and orders `bytes`. Returns 0, or -1 without memory. */
int kvb_chase_init(struct kvb_chase *chase, uint64_t bytes, uint64_t seed);
void kvb_chase_finish(struct kvb_chase *chase); /* also if init failed */

/* Follows `steps` links from line `from`. Returns where it ended: use it, or nothing is done. Any
 * thread. */
uint64_t kvb_chase_run(const struct kvb_chase *chase, uint64_t from, uint64_t steps);

#endif
