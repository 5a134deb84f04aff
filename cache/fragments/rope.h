/*
 * rope.h - how a model turns its keys by their position, and keys moved to another position.
 *
 * A rotary model turns pairs of values of each key by the angle position * frequency, a frequency for each pair.
 * Turning by a and then by b is turning by a + b, so the key of a token that was computed at position p becomes
 * its key at position q by a further turn of (q - p) * frequency; values ("V") have no position. A factor that
 * YaRN multiplies into keys stays in them.
 *
 * Sources of the formulas: RoFormer (arXiv 2104.09864), YaRN (arXiv 2309.00071), and for what configurations
 * mean, vLLM's model_executor/layers/rotary_embedding and transformers' modeling_rope_utils.
 *
 * Nothing here allocates but kvt_rope_read, and everything may be called from any number of threads.
 */
#ifndef KVT_FRAGMENTS_ROPE_H
#define KVT_FRAGMENTS_ROPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvtier/kvtier.h"

#define KVT_ROPE_HEAD_MAX 1024 /* values of a head */
#define KVT_ROPE_TEXT     160  /* bytes that hold any reason of kvt_rope_read, its NUL included */

/* Which two values make pair i of n. */
enum kvt_rope_layout {
	KVT_ROPE_HALVES, /* i and i + n: Llama and most others ("NeoX style") */
	KVT_ROPE_PAIRS,  /* 2 i and 2 i + 1: GPT-J, Cohere, GLM */
};

/* What a value of the KV cache is. */
enum kvt_rope_values {
	KVT_ROPE_F32,
	KVT_ROPE_BF16,
	KVT_ROPE_F16,
};

/* How a model turns a head. A plain value: no ownership. */
struct kvt_rope {
	uint32_t head;    /* values of a head, 2 to KVT_ROPE_HEAD_MAX */
	uint32_t offset;  /* the first of them that has a position: 0 unless latent */
	uint32_t rotated; /* from there on so many have positions: even, 2 to head - offset */
	bool latent;      /* a token has one vector of no position, a rotary key behind it, and no values (MLA) */
	enum kvt_rope_layout layout;
	float frequency[KVT_ROPE_HEAD_MAX / 2]; /* [rotated / 2], radians a position */
};

/* A turn by one distance, the same for every token of a fragment. A plain value. */
struct kvt_rope_turn {
	uint32_t head, offset, rotated; /* of the rope */
	enum kvt_rope_layout layout;
	bool vectors; /* this machine has AVX2, FMA and F16C */
	float cosine[KVT_ROPE_HEAD_MAX / 2], sine[KVT_ROPE_HEAD_MAX / 2]; /* [rotated / 2] */
};

/*
 * Reads the config.json of a model, `bytes` bytes of JSON. KVT_ENOTSUP: the model has no rotary positions, or such
 * as no turn can move, or is not known; KVT_EINVAL: the text is wrong. Both leave *out alone and put a sentence
 * for people into why[KVT_ROPE_TEXT], which names the key or the model. KVT_ENOMEM.
 */
enum kvt_status kvt_rope_read(const char *json, size_t bytes, struct kvt_rope *out, char *why);

/* The turn that moves a key `distance` positions on, backwards where it is negative. */
void kvt_rope_turn_by(const struct kvt_rope *rope, int64_t distance, struct kvt_rope_turn *out);

/*
 * Turns `heads` heads that follow each other. `to` may be `from`; otherwise they do not overlap. Both are aligned to
 * the size of a value. Rounds to nearest, ties to even; NaN stays NaN. Values without a position are copied bit by bit.
 */
void kvt_rope_move(const struct kvt_rope_turn *turn, enum kvt_rope_values values, void *to, const void *from,
	size_t heads);

/* The same without instructions that not every machine has: what kvt_rope_move does where there are none. */
void kvt_rope_move_portable(const struct kvt_rope_turn *turn, enum kvt_rope_values values, void *to,
	const void *from, size_t heads);

/* A number in half precision. */
float kvt_rope_half_to_float(uint16_t half);

#endif
