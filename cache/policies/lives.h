/*
 * lives.h - what was learned about chunks that came, waited and were used again or not.
 *
 * A life begins when a chunk comes or is used, and ends when it is used again, or is forgotten
 * without. Lives are of a class, which the policy chooses, and have an age, measured in epochs: an
 * epoch is the time in which an eighth of the tier's capacity comes in, so age runs with the
 * pressure on the tier and not with the clock. For each class and age this counts how long lives
 * stood there and how many ended with a use; their quotient is the hazard, the chance of a use in
 * the next epoch. What is open counts too, so that a flood of chunks that are never used is seen
 * before the first of them is forgotten.
 *
 * The worth of keeping a chunk of some class and age is the best use per room and time that
 * waiting can give: the largest, over all times to give up, of expected uses by expected epochs
 * until the use or the giving up (Gittins' index; with a fixed time to give up it is the hit density
 * of Beckmann, Chen, Cherniack and Sanchez, "LHD", NSDI 2018). It only serves to compare.
 *
 * Where nothing is known the hazard falls with one by age, times a weight that grows with the uses
 * a class stands for: a mixture of LRU and LFU. Counts fade by 2 % an epoch.
 *
 * Cost: 10 KiB per tier, and some microseconds per epoch.
 */
#ifndef KVT_LIVES_H
#define KVT_LIVES_H

#include "policies/policy.h"

#define KVT_LIFE_CLASSES   8
#define KVT_LIFE_EPOCHS    128 /* ages that are told apart; a power of two */
#define KVT_LIFE_STEPS     14  /* groups of ages: single epochs first, then half octaves */
#define KVT_LIFE_EPOCH_PER 8   /* epochs in the time in which the capacity comes in once */

struct kvt_lives {
	uint64_t length;    /* of an epoch, in the policy's units; at least 1 */
	uint64_t passed;    /* of the current one */
	uint32_t epoch;     /* wraps */
	const float *prior; /* per class, the weight; borrowed */
	uint32_t open[KVT_LIFE_CLASSES][KVT_LIFE_EPOCHS]; /* begun in an epoch, not yet ended */
	float stood[KVT_LIFE_CLASSES][KVT_LIFE_STEPS];    /* lives times epochs */
	float used[KVT_LIFE_CLASSES][KVT_LIFE_STEPS];
	float worth[KVT_LIFE_CLASSES][KVT_LIFE_STEPS];
};

/* `prior`: KVT_LIFE_CLASSES weights, static. */
void kvt_lives_init(struct kvt_lives *l, uint64_t capacity_units, const float *prior);

/* So much came in, and so many chunks are there now. */
void kvt_lives_pass(struct kvt_lives *l, uint64_t units, uint32_t entries);

/* A life of this class begins in the current epoch; keep l->epoch for its end. */
void kvt_lives_begin(struct kvt_lives *l, unsigned class_);
void kvt_lives_end(struct kvt_lives *l, unsigned class_, uint32_t began, bool with_use);

float kvt_lives_worth(const struct kvt_lives *l, unsigned class_, uint32_t began);

#endif
