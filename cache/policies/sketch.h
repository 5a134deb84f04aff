/*
 * sketch.h - estimates how often a name was seen lately, in at most 4 bytes per entry of the tier.
 *
 * A count-min sketch of 4-bit counters: a name has one counter in each of four rows, and the least
 * of them is the answer, too high where names collide, never too low. After four times as many
 * sightings as entries all counters are halved, so that former popularity fades.
 */
#ifndef KVT_SKETCH_H
#define KVT_SKETCH_H

#include "policies/policy.h"

#define KVT_SKETCH_MOST 15

struct kvt_sketch {
	uint64_t *words; /* owned; 16 counters each */
	uint64_t mask;   /* mask of the words */
	uint64_t seen;   /* number of sightings since the last halving */
	uint64_t period;
	uint64_t bytes; /* allocated */
};

enum kvt_status kvt_sketch_init(struct kvt_sketch *s, uint64_t entries) KVT_MUST_CHECK;
void kvt_sketch_finish(struct kvt_sketch *s);
void kvt_sketch_add(struct kvt_sketch *s, uint64_t name);
unsigned kvt_sketch_count(const struct kvt_sketch *s, uint64_t name);

#endif
