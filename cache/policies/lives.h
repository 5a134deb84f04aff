/*
 * lives.h - keeps statistics of how long chunks wait until they are used again, and how often.
 *
 * A life begins when a chunk is inserted or used, and ends when the chunk is used again, or is
 * forgotten without a use. Lives have a class, which the policy chooses, and an age, measured in
 * epochs: an epoch is the time in which an eighth of the tier's capacity is inserted, so age runs
 * with the pressure on the tier and not with the clock. For each class and age the statistics count
 * how long lives have had this age and how many ended with a use; the quotient is the hazard, the
 * chance of a use in the next epoch. Open lives count too, so that a flood of chunks that are never
 * used shows before the first of them is forgotten.
 *
 * The worth of keeping a chunk of some class and age is the highest rate of uses that waiting can
 * give: the maximum, over all times at which one might give up, of expected uses divided by
 * expected epochs until the use or the giving up (Gittins' index; with a fixed time to give up it
 * is the hit density of Beckmann, Chen, Cherniack and Sanchez, "LHD", NSDI 2018). Worths are only
 * compared with each other.
 *
 * Without knowledge the hazard falls as one divided by age, times a weight that grows with the uses
 * of a class: a mixture of LRU and LFU. Counts fade by 2 % an epoch.
 *
 * Cost: 10 KiB per tier, and some microseconds per epoch.
 */
#ifndef KVT_LIVES_H
#define KVT_LIVES_H

#include "policies/policy.h"

#define KVT_LIFE_CLASSES   8
#define KVT_LIFE_EPOCHS    128 /* number of ages that are distinguished; a power of two */
#define KVT_LIFE_STEPS     14 /* number of groups of ages: single epochs first, then half octaves */
#define KVT_LIFE_EPOCH_PER 8   /* epochs in the time in which the whole capacity is inserted once */

struct kvt_lives {
	uint64_t length;    /* length of an epoch, in the policy's units; at least 1 */
	uint64_t passed;    /* passed part of the present epoch */
	uint32_t epoch;     /* wraps */
	const float *prior; /* weight of each class while nothing is known; borrowed */
	/* lives that began in an epoch and have not ended */
	uint32_t open[KVT_LIFE_CLASSES][KVT_LIFE_EPOCHS];
	float stood[KVT_LIFE_CLASSES][KVT_LIFE_STEPS];    /* lives times epochs */
	float used[KVT_LIFE_CLASSES][KVT_LIFE_STEPS];
	float worth[KVT_LIFE_CLASSES][KVT_LIFE_STEPS];
};

/* prior: KVT_LIFE_CLASSES weights, static. */
void kvt_lives_init(struct kvt_lives *l, uint64_t capacity_units, const float *prior);

/* Notes that `units` units were inserted; entries: chunks in the tier. */
void kvt_lives_pass(struct kvt_lives *l, uint64_t units, uint32_t entries);

/* Begins a life of this class in the present epoch; the caller keeps l->epoch for the life's
 * end. */
void kvt_lives_begin(struct kvt_lives *l, unsigned class_);
void kvt_lives_end(struct kvt_lives *l, unsigned class_, uint32_t began, bool with_use);

float kvt_lives_worth(const struct kvt_lives *l, unsigned class_, uint32_t began);

#endif
