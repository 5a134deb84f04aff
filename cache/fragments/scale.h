/* scale.h - computes the frequencies of a rotary model from the numbers of its configuration. */
#ifndef KVT_FRAGMENTS_SCALE_H
#define KVT_FRAGMENTS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

/* How a model was adapted to longer texts than those of its training. */
enum kvt_rope_scheme {
	KVT_ROPE_PLAIN,
	KVT_ROPE_LINEAR, /* positions are divided by the factor */
	KVT_ROPE_NTK,    /* theta is increased by a power of the factor */
	/* fast pairs are not changed, slow ones are divided, with a ramp between them */
	KVT_ROPE_YARN,
	KVT_ROPE_LLAMA3, /* like YARN, but with a ramp over wave lengths */
};

/* Numbers of a configuration. Each scheme reads only the numbers that it names. */
struct kvt_rope_scale {
	enum kvt_rope_scheme scheme;
	double theta;            /* over 1 */
	double factor;           /* at least 1; not used for PLAIN */
	double original; /* YARN, LLAMA3: number of positions in the model's training, at least 1 */
	/* YARN: a pair with at least so many turns over `original` is not changed */
	double beta_fast;
	double beta_slow;        /* YARN: a pair with at most so many turns is divided */
	bool truncate;           /* YARN: the ends of the ramp are rounded to whole pairs */
	/* LLAMA3: `original` divided by wave lengths: the ramp is from low to high */
	double low, high;
};

/* Writes frequency[rotated / 2], as vLLM computes them. */
void kvt_rope_scale(const struct kvt_rope_scale *scale, uint32_t rotated, float *frequency);

#endif
