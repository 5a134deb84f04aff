/* scale.h - frequencies of a rotary model from the numbers of its configuration. */
#ifndef KVT_FRAGMENTS_SCALE_H
#define KVT_FRAGMENTS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

/* How a model was adapted to longer texts than those of its training. */
enum kvt_rope_scheme {
	KVT_ROPE_PLAIN,
	KVT_ROPE_LINEAR, /* positions are divided by the factor */
	KVT_ROPE_NTK,    /* theta grows with the factor */
	KVT_ROPE_YARN,   /* fast pairs stay, slow ones are divided, a ramp between them */
	KVT_ROPE_LLAMA3, /* likewise, with a ramp over wave lengths */
};

/* Numbers of a configuration. Each scheme reads only the numbers that it names. */
struct kvt_rope_scale {
	enum kvt_rope_scheme scheme;
	double theta;            /* over 1 */
	double factor;           /* all but PLAIN: at least 1 */
	double original;         /* YARN, LLAMA3: positions of the model's training, at least 1 */
	double beta_fast;        /* YARN: turns over `original` from which a pair stays */
	double beta_slow;        /* YARN: turns up to which a pair is divided */
	bool truncate;           /* YARN: the ramp's ends are whole pairs */
	double low, high;        /* LLAMA3: `original` over wave lengths, low to high */
};

/* Writes frequency[rotated / 2], as vLLM computes them. */
void kvt_rope_scale(const struct kvt_rope_scale *scale, uint32_t rotated, float *frequency);

#endif
