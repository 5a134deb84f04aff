/*
 * kvtier_fragments.h - cached text that is not a prefix: fragments of prompts, found again wherever
 * they stand.
 *
 * A fragment is a run of a prompt's tokens, such as a document, that is named by its tokens alone.
 * Its keys and values were computed behind another text and at other positions. For a new prompt
 * its keys are rotated to their new positions, but its tokens attended to another text before them:
 * so answers differ from exact ones. Recomputing a share of the tokens (kvt_blend_choose) reduces
 * the difference. So fragments are off unless a caller asks for them, and cannot be mistaken for
 * exact chunks: their names are a hash domain of their own, apart from kvt_key_make's, and every
 * put refuses blended chunks (KVT_ITEM_BLENDED, kvt_fragment_text.blended).
 *
 * In the cache a fragment is a chain of chunks like any other: all tiers, leases, checksums,
 * encryption, limits and erases of tenants apply to it. Each chunk begins with a header with the
 * model, layout and position it was computed for, under the same checksum as the rest. After the
 * header follow, for each layer, the keys of all its tokens, [token][head][value], and then their
 * values, for any layout of the engine that computed them. In a model with latent keys (MLA,
 * kv_lora_rank) a token has one vector, without position but for the rotary key at its end, and no
 * values.
 *
 * Threads, errors, ownership and growth as in kvtier.h. A struct kvt_fragments may be used by any
 * number of threads.
 */
#ifndef KVTIER_FRAGMENTS_H
#define KVTIER_FRAGMENTS_H

#include "kvtier/kvtier.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- where fragments begin and end ------------------------------------------------------------ */

enum kvt_cut_by {
	KVT_CUT_SEPARATOR = 1, /* behind each run of the separator's tokens */
	KVT_CUT_BOUNDS = 2,    /* at the caller's bounds: messages, documents */
	/* Where a hash of the last tokens matches: a text has the same cuts at any position. */
	KVT_CUT_CONTENT = 3,
};

#define KVT_CUT_SEPARATOR_MOST 64      /* tokens */
#define KVT_CUT_TOKENS_MOST    (1u << 24) /* tokens of a prompt */

/* How to cut. Arrays are borrowed during the call. */
struct kvt_cut {
	uint32_t size; /* sizeof(struct kvt_cut) */
	uint32_t by;   /* enum kvt_cut_by */
	const uint32_t *separator; /* SEPARATOR: 1 to KVT_CUT_SEPARATOR_MOST tokens */
	size_t separator_count;
	const uint32_t *bounds; /* BOUNDS: first token of each segment but the first, ascending */
	size_t bound_count;
	uint32_t min_tokens;     /* CONTENT: 16 to average_tokens */
	uint32_t average_tokens; /* CONTENT: to 65536 */
	/* CONTENT: 2 * average_tokens to 2^20; else: longer fragments are cut; 0: no limit. */
	uint32_t max_tokens;
	uint32_t reserved;
};

/* Tokens [first, first + count) of a prompt. */
struct kvt_fragment {
	uint32_t first, count;
};

/*
 * Cuts a prompt into fragments that follow each other and cover it; a separator is the end of the
 * fragment before it. *found is their number, which may exceed `most`: the first `most` are in
 * `out`. A fragment depends on its own tokens and, by CONTENT, up to the text's first cut by hash,
 * on where the text begins. KVT_EINVAL. Cost: some nanoseconds a token.
 */
KVT_API enum kvt_status kvt_fragments_cut(const struct kvt_cut *cut, const uint32_t *tokens,
	size_t count, struct kvt_fragment *out, size_t most, size_t *found) KVT_MUST_CHECK;

/* The configuration's section `fragments`. The configuration owns the text. */
struct kvt_fragments_settings {
	uint32_t size; /* set by the caller */
	uint32_t enabled;
	uint32_t by; /* enum kvt_cut_by */
	uint32_t min_tokens, average_tokens, max_tokens; /* as struct kvt_cut takes them */
	uint32_t first_tokens, check_layer;
	double share;
	const char *separator; /* to be encoded by the engine's tokenizer, without special tokens */
};
KVT_API enum kvt_status kvt_fragments_settings(
	const struct kvt_config *config, struct kvt_fragments_settings *out) KVT_MUST_CHECK;

/* --- names ------------------------------------------------------------------------------------ */

/*
 * Chain id of a chunk of a fragment: SHA-256 over the domain "kvtier fragment chain 1", the id of
 * the chunk before it in the fragment (NULL: first), a text that names the LoRA adapter by content
 * (NULL: none), and the tokens.
 */
KVT_API void kvt_fragment_chain_id(const uint8_t parent[32], const void *lora, size_t lora_bytes,
	const uint32_t *tokens, size_t count, uint8_t out[32]);

/* Storage key of a chunk of a fragment: as kvt_key_make, over the domain "kvtier fragment key 1".
 * Its last four bytes are "frag", by which `kvtier stat` counts them. kvt_put_reserve refuses such
 * a key in an item that has an engine's block hashes: kvtier publishes no fragment as an exact
 * block. */
#define KVT_FRAGMENT_MARK "frag"
KVT_API enum kvt_status kvt_fragment_key(
	const struct kvt_key_parts *parts, struct kvt_key *out) KVT_MUST_CHECK;

/* --- a model's fragments ---------------------------------------------------------------------- */

/* Type of the numbers in keys and values. */
enum kvt_fragment_values { KVT_FRAGMENT_F32 = 0, KVT_FRAGMENT_BF16 = 1, KVT_FRAGMENT_F16 = 2 };

/* Bytes that hold any reason of kvt_fragments_create, its NUL included. */
#define KVT_FRAGMENT_WHY 160

struct kvt_fragments_config {
	/* sizeof(struct kvt_fragments_config), by kvt_fragments_config_init. */
	uint32_t size;
	uint32_t values;        /* enum kvt_fragment_values */
	const char *model;      /* the model's config.json */
	size_t model_bytes;
	uint32_t layers;        /* layers of this rank, 1 to 1024 */
	uint32_t heads;         /* KV heads of this rank, 1 to 1024; latent keys: 1 */
	/* Values of a head's key, as in config.json; latent: kv_lora_rank + qk_rope_head_dim. */
	uint32_t head;
	uint32_t value_head;    /* values of a head's value; latent: 0 */
	uint32_t chunk_tokens;  /* 1 to 65536; 256 */
	uint32_t rank;          /* as in struct kvt_key_parts */
	/* Fingerprint of model, weights and type; the library adds layout and positions. */
	struct kvt_fingerprint fingerprint;
	uint64_t lease_ns;      /* how long a load may wait for tiers; 5 s */
};

KVT_API void kvt_fragments_config_init(struct kvt_fragments_config *config, size_t size);

struct kvt_fragments;

/*
 * KVT_ENOTSUP: keys of this model cannot be moved (no rotary positions, or positions that depend on
 * the text's length), or the model is unknown; KVT_EINVAL; KVT_ENOMEM. After an error
 * why[KVT_FRAGMENT_WHY] (NULL is allowed) has a sentence on it. *k is borrowed until destroy.
 */
KVT_API enum kvt_status kvt_fragments_create(struct kvt *k,
	const struct kvt_fragments_config *config, struct kvt_fragments **out,
	char *why) KVT_MUST_CHECK;
KVT_API void kvt_fragments_destroy(struct kvt_fragments *f); /* NULL is allowed */

/* Bytes of a stored chunk of so many tokens, its header included. */
KVT_API uint64_t kvt_fragments_chunk_bytes(const struct kvt_fragments *f, uint32_t tokens);

struct kvt_fragment_text;

/* Storage keys of a fragment's chunks in order, for kvt_erase, kvt_pin, kvt_prefetch and the like.
 * *found is their number; the first `most` are in `out`. */
KVT_API enum kvt_status kvt_fragments_keys(const struct kvt_fragments *f,
	const struct kvt_fragment_text *text, struct kvt_key *out, size_t most,
	size_t *found) KVT_MUST_CHECK;

/*
 * Addresses of keys, or of values: value i of head h of token t in block b of layer l is at
 * layers[l] + b * block + t * token + h * head + i * value, all in bytes.
 */
struct kvt_fragment_plane {
	void *const *layers; /* one address for each layer of the model */
	int64_t block, token, head, value;
};

/* An engine's paged cache in memory of this machine, and the place of a text's tokens in it. */
struct kvt_fragment_place {
	uint32_t size; /* sizeof(struct kvt_fragment_place) */
	uint32_t block_tokens;
	/* values: not read if the model has none (latent keys). */
	struct kvt_fragment_plane keys, values;
	uint64_t block_count;   /* ids are below it */
	const int64_t *blocks;  /* ids, in the order of the text */
	size_t blocks_listed;
	/* Slot of the fragment's first token, in block blocks[slot / block_tokens]; the others
	 * follow. */
	uint64_t slot;
};

/* A fragment: its tokens, tenant, adapter and position. */
struct kvt_fragment_text {
	uint32_t size; /* sizeof(struct kvt_fragment_text) */
	/* Not 0: its keys and values are not exact for the text before it; store refuses it. */
	uint32_t blended;
	const uint32_t *tokens;
	size_t count;
	const void *lora; /* name of the adapter by content; NULL: the model itself */
	size_t lora_bytes;
	struct kvt_tenant tenant;
	uint64_t position; /* position of its first token in the text */
};

/*
 * Stores the chunks of a fragment that are not stored yet. *stored (NULL is allowed): tokens stored
 * now, from its beginning on. Copies out of `place` before it returns. KVT_EINVAL also: the
 * fragment is blended. KVT_FULL: no room for all of it.
 */
KVT_API enum kvt_status kvt_fragments_store(struct kvt_fragments *f,
	const struct kvt_fragment_text *text, const struct kvt_fragment_place *place,
	size_t *stored) KVT_MUST_CHECK;

/* Number of stored tokens of a fragment, from its beginning on; timeout_ns 0: shared tiers are not
 * asked. */
KVT_API enum kvt_status kvt_fragments_find(struct kvt_fragments *f,
	const struct kvt_fragment_text *text, uint64_t timeout_ns, size_t *tokens) KVT_MUST_CHECK;

/*
 * Puts a fragment's keys and values into `place`, keys rotated to text->position, from token number
 * `from` of the fragment on. *loaded: tokens from its beginning on that are in place (those before
 * `from` count); fewer than all if a chunk is missing, late or fails a check. KVT_MISS: none. Waits
 * up to config.lease_ns.
 */
KVT_API enum kvt_status kvt_fragments_load(struct kvt_fragments *f,
	const struct kvt_fragment_text *text, size_t from, const struct kvt_fragment_place *place,
	size_t *loaded) KVT_MUST_CHECK;

/*
 * Copies for callers that reserve, get and release by themselves, such as connectors that never
 * wait: one chunk, its tokens [first, first + tokens) of a fragment, the first of which stands at
 * `position` and at place->slot.
 */
struct kvt_fragment_piece {
	uint32_t size; /* sizeof(struct kvt_fragment_piece) */
	uint32_t tokens;
	uint64_t first, position;
	uint32_t skip; /* unpack: tokens before this number are left alone ... */
	/* ... and from this number on, so that `place` need not hold them; at most `tokens`. */
	uint32_t end;
};

/* Storage key of a chunk, from its chain id (kvt_fragment_chain_id). */
KVT_API enum kvt_status kvt_fragments_chunk_key(const struct kvt_fragments *f,
	const struct kvt_tenant *tenant, const uint8_t chain[32],
	struct kvt_key *out) KVT_MUST_CHECK;
/* Fills a reserved chunk from `place`; the caller commits it. */
KVT_API enum kvt_status kvt_fragments_pack(struct kvt_fragments *f,
	const struct kvt_fragment_piece *piece, const struct kvt_fragment_place *place,
	const struct kvt_segment *segments, size_t count) KVT_MUST_CHECK;
/* Puts a chunk of a lease into `place`. KVT_ECORRUPT: the chunk's header does not fit; nothing was
 * written, the caller should erase it. */
KVT_API enum kvt_status kvt_fragments_unpack(struct kvt_fragments *f,
	const struct kvt_fragment_piece *piece, const struct kvt_fragment_place *place,
	const struct kvt_segment *segments, size_t count) KVT_MUST_CHECK;

/* --- a chunk at a time, on a device ----------------------------------------------------------- */

struct kvt_gpu; /* kvtier_cuda.h */

/*
 * Registers an engine's paged cache with the `g` that copies its blocks: `place` has the addresses
 * of keys and values in the memory of g's device; its blocks and slot are not read. *view is the
 * cache's number for the calls below, until g is destroyed. KVT_ENOTSUP: keys cannot be rotated on
 * this device (libkvtier_cuda.so was built without nvcc), keys and values have different strides,
 * or heads of different sizes. KVT_FULL: g has 8 views. KVT_EINVAL, KVT_EIO, KVT_ENOMEM.
 */
KVT_API enum kvt_status kvt_fragments_view(struct kvt_fragments *f, struct kvt_gpu *g,
	const struct kvt_fragment_place *place, uint32_t *view) KVT_MUST_CHECK;

/* One chunk between a device and memory of this machine. */
struct kvt_fragment_copy {
	uint32_t size;  /* sizeof(struct kvt_fragment_copy) */
	uint32_t view;
	uint32_t order; /* enum kvt_gpu_order: work that has to precede it; */
	uint32_t reserved;
	void *after;    /* event or stream */
	const struct kvt_fragment_piece *piece;
	/* As for kvt_fragments_view; a scatter lists no block twice. */
	const struct kvt_fragment_place *place;
	const struct kvt_segment *segments;
	size_t segment_count;
};

/*
 * As kvt_fragments_pack and kvt_fragments_unpack, but asynchronous: kvt_gpu_poll or kvt_gpu_wait of
 * g says when *op is over; until then the segments' memory and the event have to stay, all else is
 * copied. The device rotates the keys after their bytes have arrived. The caller commits a gathered
 * chunk only if the operation ends with KVT_OK, and computes the blocks of a scatter that ends with
 * KVT_EIO. A scatter of no token (skip is end) is KVT_EINVAL. KVT_ECORRUPT of a scatter: as of
 * unpack, and no copy was begun. KVT_BUSY, KVT_EIO as of kvt_gpu_scatter_begin; KVT_ENOMEM. The
 * call counts in the statistics at once.
 */
KVT_API enum kvt_status kvt_fragments_gather_begin(struct kvt_fragments *f, struct kvt_gpu *g,
	const struct kvt_fragment_copy *copy, uint64_t *op) KVT_MUST_CHECK;
KVT_API enum kvt_status kvt_fragments_scatter_begin(struct kvt_fragments *f, struct kvt_gpu *g,
	const struct kvt_fragment_copy *copy, uint64_t *op) KVT_MUST_CHECK;

/* Why a call refused a chunk. */
enum kvt_fragment_refusal {
	KVT_FRAGMENT_BLENDED = 0, /* a store of a blended fragment */
	KVT_FRAGMENT_HEADER = 1,  /* a chunk without valid header, or of another version */
	KVT_FRAGMENT_MODEL = 2,   /* ... of another model, layout, type or rotation of keys */
	/* ... of another number of tokens, or of another place in its fragment. */
	KVT_FRAGMENT_TOKENS = 3,
	KVT_FRAGMENT_FULL = 4,    /* no room */
	KVT_FRAGMENT_REFUSALS = 5,
};

/* Counts since create; kvt_metrics has the sums over all of a cache's fragments. */
struct kvt_fragments_stats {
	uint32_t size; /* set by the caller */
	uint32_t reserved;
	uint64_t stores, stored_chunks, stored_tokens, stored_bytes;
	uint64_t loads, hit_tokens, missed_tokens, loaded_bytes;
	uint64_t moved_bytes; /* bytes of rotated keys */
	uint64_t refused[KVT_FRAGMENT_REFUSALS];
};
KVT_API enum kvt_status kvt_fragments_stats(
	const struct kvt_fragments *f, struct kvt_fragments_stats *out) KVT_MUST_CHECK;

/* --- which tokens to compute again ------------------------------------------------------------ */

#define KVT_BLEND_SHARE_MOST 0.3

struct kvt_blend {
	uint32_t size;         /* sizeof(struct kvt_blend) */
	uint32_t first_tokens; /* first tokens of each fragment, chosen first */
	/* Share of all tokens of the fragments, 0 to KVT_BLEND_SHARE_MOST, rounded down. */
	double share;
};

/*
 * Adds to each token's deviation the squared distance between computed and loaded numbers: `count`
 * values of a layer's keys or values for each of `tokens` tokens, contiguous (CacheBlend's measure,
 * arXiv 2405.16444).
 */
KVT_API enum kvt_status kvt_blend_deviation(uint32_t values, const void *computed,
	const void *loaded, size_t tokens, size_t count, float *deviation) KVT_MUST_CHECK;

/*
 * Chooses the tokens of loaded fragments that are computed again: the first tokens of each, the
 * first of all fragments before the second of any, then the tokens that deviate most
 * (deviation[prompt_tokens], NULL: none; NaN counts as most), until the share is used up.
 * chosen[prompt_tokens] becomes 1 or 0; *count (NULL is allowed): number of ones. Fragments ascend
 * and do not overlap. KVT_EINVAL, KVT_ENOMEM.
 */
KVT_API enum kvt_status kvt_blend_choose(const struct kvt_blend *blend,
	const struct kvt_fragment *fragments, size_t n, const float *deviation,
	size_t prompt_tokens, uint8_t *chosen, size_t *count) KVT_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
