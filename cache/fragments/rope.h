/*
 * rope.h - rotary positions: how a model turns its keys, and how keys are moved to another
 * position.
 *
 * A rotary model turns pairs of values of each key by the angle position * frequency, a frequency
 * for each pair. Turning by a and then by b is turning by a + b, so the key of a token that was
 * computed at position p becomes its key at position q by a further turn of (q - p) * frequency;
 * values ("V") have no position. A factor that YaRN multiplies into keys stays there.
 *
 * Sources of the formulas: RoFormer (arXiv 2104.09864), YaRN (arXiv 2309.00071), and for the
 * meaning of configurations, vLLM's model_executor/layers/rotary_embedding and transformers'
 * modeling_rope_utils.
 *
 * Only kvt_rope_read allocates; all functions may be called from any number of threads.
 */
#ifndef KVT_FRAGMENTS_ROPE_H
#define KVT_FRAGMENTS_ROPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvtier/kvtier.h"

#define KVT_ROPE_HEAD_MAX 1024 /* values of a head */
#define KVT_ROPE_TEXT     160  /* room for any reason that kvt_rope_read gives, with its NUL */

/* Which two values are pair i of n. */
enum kvt_rope_layout {
	KVT_ROPE_HALVES, /* values i and i + n: Llama and most others ("NeoX style") */
	KVT_ROPE_PAIRS,  /* 2 i and 2 i + 1: GPT-J, Cohere, GLM */
};

/* Type of the values in the KV cache. */
enum kvt_rope_values {
	KVT_ROPE_F32,
	KVT_ROPE_BF16,
	KVT_ROPE_F16,
};

/* A model's rotation of a head. A plain value: no ownership. */
struct kvt_rope {
	uint32_t head;    /* number of values of a head, 2 to KVT_ROPE_HEAD_MAX */
	uint32_t offset;  /* index of the first value that has a position: 0 unless latent */
	/* number of values from there on that have positions: even, 2 to head - offset */
	uint32_t rotated;
	/* MLA: a token has one vector without a position, then a rotary key, and no values */
	bool latent;
	enum kvt_rope_layout layout;
	float frequency[KVT_ROPE_HEAD_MAX / 2]; /* [rotated / 2], radians a position */
};

/* A turn by one distance, the same for every token of a fragment. A plain value. */
struct kvt_rope_turn {
	uint32_t head, offset, rotated; /* as in the rope */
	enum kvt_rope_layout layout;
	bool vectors; /* this machine has AVX2, FMA and F16C, so the faster kernel is used */
	float cosine[KVT_ROPE_HEAD_MAX / 2], sine[KVT_ROPE_HEAD_MAX / 2]; /* [rotated / 2] */
};

/*
 * Reads the config.json of a model, `bytes` bytes of JSON. KVT_ENOTSUP: the model has no rotary
 * positions, or some that no turn can move, or is unknown; KVT_EINVAL: the text is wrong. Both
 * leave *out unchanged and put a sentence that names the key or the model into why[KVT_ROPE_TEXT].
 * KVT_ENOMEM.
 */
enum kvt_status kvt_rope_read(const char *json, size_t bytes, struct kvt_rope *out, char *why);

/* Makes the turn that moves a key `distance` positions forwards, or backwards if negative. */
void kvt_rope_turn_by(const struct kvt_rope *rope, int64_t distance, struct kvt_rope_turn *out);

/*
 * Turns `heads` consecutive heads. `to` may be `from`; otherwise they do not overlap. Both are
 * aligned to the size of a value. Rounds to nearest, ties to even; NaN stays NaN. Values without a
 * position are copied bit by bit.
 */
void kvt_rope_move(const struct kvt_rope_turn *turn, enum kvt_rope_values values, void *to, const void *from,
	size_t heads);

/* Turns with instructions that every machine has; kvt_rope_move uses it where the faster ones are
 * missing. */
void kvt_rope_move_portable(const struct kvt_rope_turn *turn, enum kvt_rope_values values, void *to,
	const void *from, size_t heads);

/* Converts a number in half precision. */
float kvt_rope_half_to_float(uint16_t half);

#endif
