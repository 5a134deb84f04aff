/*
 * kvtier_fragments.h - cached text that is not a prefix: fragments of prompts, found again wherever
 * they stand.
 *
 * A fragment is a run of a prompt's tokens, such as a document, that is named by its tokens alone.
 * Its keys and values were computed behind another text and at other positions. Put into a new
 * prompt, its keys are turned to their new positions, but what its tokens saw before them stays
 * another text's: answers differ from exact ones, by nature. Computing a share of its tokens again
 * (kvt_blend_choose) brings them nearer. So this is off unless a caller asks for it, and nothing
 * here can be mistaken for exact: names of fragments are a domain of their own, that no
 * kvt_key_make reaches, and what was blended is refused by every put (KVT_ITEM_BLENDED,
 * kvt_fragment_text.blended).
 *
 * In the cache a fragment is a chain of chunks like any other: all tiers, leases, checksums,
 * encryption, limits and erases of tenants hold for it. Each chunk begins with a header that says
 * for which model, layout and position it was computed, under the same checksum as the rest. Behind
 * it lie, for each layer, the keys of all its tokens, [token][head][value], and then their values,
 * whatever the layout of the engine that computed them. Of a model with latent keys (MLA,
 * kv_lora_rank) a token has one vector, of no position but for the rotary key at its end, and no
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
	KVT_CUT_BOUNDS = 2,    /* where the caller says: messages, documents */
	/* Where a hash of the last tokens says: same text, same cuts, wherever it stands. */
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
	/* CONTENT: 2 * average_tokens to 2^20; else: longer fragments are cut; 0: none is. */
	uint32_t max_tokens;
	uint32_t reserved;
};

/* Tokens [first, first + count) of a prompt. */
struct kvt_fragment {
	uint32_t first, count;
};

/*
 * Cuts a prompt into fragments that follow each other and cover it; a separator is the end of the
 * fragment before it. *found is how many there are, which may be more than `most`: the first `most`
 * are in `out`. A fragment depends on the tokens of its own and, by CONTENT, until the first cut
 * that the text itself makes, on where the text begins. KVT_EINVAL. Cost: some nanoseconds a token.
 */
KVT_API enum kvt_status kvt_fragments_cut(const struct kvt_cut *cut, const uint32_t *tokens,
	size_t count, struct kvt_fragment *out, size_t most, size_t *found) KVT_MUST_CHECK;

/* What the configuration's section `fragments` says. The text belongs to the configuration. */
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

/* What a value of keys and values is. */
enum kvt_fragment_values { KVT_FRAGMENT_F32 = 0, KVT_FRAGMENT_BF16 = 1, KVT_FRAGMENT_F16 = 2 };

/* Bytes that hold any reason of kvt_fragments_create, its NUL included. */
#define KVT_FRAGMENT_WHY 160

struct kvt_fragments_config {
	/* sizeof(struct kvt_fragments_config), by kvt_fragments_config_init. */
	uint32_t size;
	uint32_t values;        /* enum kvt_fragment_values */
	const char *model;      /* the model's config.json */
	size_t model_bytes;
	uint32_t layers;        /* of this rank, 1 to 1024 */
	uint32_t heads;         /* KV heads of this rank, 1 to 1024; latent keys: 1 */
	/* Values of a head's key; what config.json says;
	 * latent: kv_lora_rank + qk_rope_head_dim. */
	uint32_t head;
	uint32_t value_head;    /* values of a head's value; latent: 0 */
	uint32_t chunk_tokens;  /* 1 to 65536; 256 */
	uint32_t rank;          /* as in struct kvt_key_parts */
	/* Of model, weights and type; layout and positions are added here. */
	struct kvt_fingerprint fingerprint;
	uint64_t lease_ns;      /* how long a load may wait for tiers; 5 s */
};

KVT_API void kvt_fragments_config_init(struct kvt_fragments_config *config, size_t size);

struct kvt_fragments;

/*
 * KVT_ENOTSUP: keys of this model cannot be moved (no rotary positions, or such as depend on the
 * text's length), or the model is not known; KVT_EINVAL; KVT_ENOMEM. why[KVT_FRAGMENT_WHY] (NULL is
 * allowed) has a sentence then. *k is borrowed until destroy.
 */
KVT_API enum kvt_status kvt_fragments_create(struct kvt *k,
	const struct kvt_fragments_config *config, struct kvt_fragments **out,
	char *why) KVT_MUST_CHECK;
KVT_API void kvt_fragments_destroy(struct kvt_fragments *f); /* NULL is allowed */

/* Bytes of a stored chunk of so many tokens, its header included. */
KVT_API uint64_t kvt_fragments_chunk_bytes(const struct kvt_fragments *f, uint32_t tokens);

struct kvt_fragment_text;

/* Storage keys of a fragment's chunks in order, for kvt_erase, kvt_pin, kvt_prefetch and the like.
 * *found is how many there are; the first `most` are in `out`. */
KVT_API enum kvt_status kvt_fragments_keys(const struct kvt_fragments *f,
	const struct kvt_fragment_text *text, struct kvt_key *out, size_t most,
	size_t *found) KVT_MUST_CHECK;

/*
 * Where keys, or values, lie: value i of head h of token t in block b of layer l is at
 * layers[l] + b * block + t * token + h * head + i * value, all in bytes.
 */
struct kvt_fragment_plane {
	void *const *layers; /* as many as the model has */
	int64_t block, token, head, value;
};

/* An engine's paged cache in memory of this machine, and where in it the tokens of a text lie. */
struct kvt_fragment_place {
	uint32_t size; /* sizeof(struct kvt_fragment_place) */
	uint32_t block_tokens;
	/* values: not read where there are none (latent keys). */
	struct kvt_fragment_plane keys, values;
	uint64_t block_count;   /* ids are below it */
	const int64_t *blocks;  /* ids, in the order of the text */
	size_t blocks_listed;
	/* Of the fragment's first token: block blocks[slot / block_tokens], then the next. */
	uint64_t slot;
};

/* A fragment: its tokens, tenant and adapter, and where it stands. */
struct kvt_fragment_text {
	uint32_t size; /* sizeof(struct kvt_fragment_text) */
	/* Not 0: its keys and values are not exact for the text before it: refused by store. */
	uint32_t blended;
	const uint32_t *tokens;
	size_t count;
	const void *lora; /* what names the adapter by content; NULL: the model itself */
	size_t lora_bytes;
	struct kvt_tenant tenant;
	uint64_t position; /* of its first token, in the text that it stands in */
};

/*
 * Stores what of a fragment is not there yet. *stored (NULL is allowed): tokens now there from its
 * beginning on. Copies out of `place` before it returns. KVT_EINVAL also: it is blended. KVT_FULL:
 * no room for all of it.
 */
KVT_API enum kvt_status kvt_fragments_store(struct kvt_fragments *f,
	const struct kvt_fragment_text *text, const struct kvt_fragment_place *place,
	size_t *stored) KVT_MUST_CHECK;

/* How many tokens of a fragment, from its beginning on, are there;
 * timeout_ns 0: shared tiers are not asked. */
KVT_API enum kvt_status kvt_fragments_find(struct kvt_fragments *f,
	const struct kvt_fragment_text *text, uint64_t timeout_ns, size_t *tokens) KVT_MUST_CHECK;

/*
 * Puts a fragment's keys and values into `place`, keys turned to text->position, from token number
 * `from` of it on. *loaded: tokens from its beginning on that are in place (those before `from`
 * count); fewer than there are where a chunk is missing, late or fails a check. KVT_MISS: none.
 * Waits up to config.lease_ns.
 */
KVT_API enum kvt_status kvt_fragments_load(struct kvt_fragments *f,
	const struct kvt_fragment_text *text, size_t from, const struct kvt_fragment_place *place,
	size_t *loaded) KVT_MUST_CHECK;

/*
 * The same for callers that reserve, get and release by themselves, such as connectors that wait
 * for nothing: one chunk, its tokens [first, first + tokens) of a fragment, the first of which
 * stands at `position` and at place->slot.
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
/* Puts a chunk of a lease into `place`.
 * KVT_ECORRUPT: it is not what it has to be; nothing was written, erase it. */
KVT_API enum kvt_status kvt_fragments_unpack(struct kvt_fragments *f,
	const struct kvt_fragment_piece *piece, const struct kvt_fragment_place *place,
	const struct kvt_segment *segments, size_t count) KVT_MUST_CHECK;

/* --- a chunk at a time, on a device ----------------------------------------------------------- */

struct kvt_gpu; /* kvtier_cuda.h */

/*
 * Makes the tokens of an engine's paged cache known to the `g` that copies its blocks: `place` says
 * where keys and values lie in the memory of g's device; its blocks and slot are not read. *view
 * names it below, for as long as g lives.
 * KVT_ENOTSUP: keys cannot be turned on this device (libkvtier_cuda.so was built without nvcc),
 * keys and values have different strides, or heads of different sizes. KVT_FULL: g has 8 views.
 * KVT_EINVAL, KVT_EIO, KVT_ENOMEM.
 */
KVT_API enum kvt_status kvt_fragments_view(struct kvt_fragments *f, struct kvt_gpu *g,
	const struct kvt_fragment_place *place, uint32_t *view) KVT_MUST_CHECK;

/* One chunk between a device and memory of this machine. */
struct kvt_fragment_copy {
	uint32_t size;  /* sizeof(struct kvt_fragment_copy) */
	uint32_t view;
	uint32_t order; /* enum kvt_gpu_order: what it has to come after; */
	uint32_t reserved;
	void *after;    /* event or stream */
	const struct kvt_fragment_piece *piece;
	/* As the view was made with; no block is listed twice for a scatter. */
	const struct kvt_fragment_place *place;
	const struct kvt_segment *segments;
	size_t segment_count;
};

/*
 * As kvt_fragments_pack and kvt_fragments_unpack, begun: over when kvt_gpu_poll or kvt_gpu_wait of
 * g says so for *op; until then the segments' memory and the event have to stay, all else is
 * copied. Keys turn on the device, behind their bytes. What was gathered is committed if that says
 * KVT_OK, and not else; blocks of a scatter that says KVT_EIO are computed. A scatter of no token
 * (skip is end) is KVT_EINVAL. KVT_ECORRUPT of a scatter: as of unpack, and nothing was begun.
 * KVT_BUSY, KVT_EIO as of kvt_gpu_scatter_begin; KVT_ENOMEM. Counts are made at the begin.
 */
KVT_API enum kvt_status kvt_fragments_gather_begin(struct kvt_fragments *f, struct kvt_gpu *g,
	const struct kvt_fragment_copy *copy, uint64_t *op) KVT_MUST_CHECK;
KVT_API enum kvt_status kvt_fragments_scatter_begin(struct kvt_fragments *f, struct kvt_gpu *g,
	const struct kvt_fragment_copy *copy, uint64_t *op) KVT_MUST_CHECK;

/* Why something was refused. */
enum kvt_fragment_refusal {
	KVT_FRAGMENT_BLENDED = 0, /* a store of what was blended */
	KVT_FRAGMENT_HEADER = 1,  /* a chunk whose header is not one, or of another version */
	KVT_FRAGMENT_MODEL = 2,   /* ... is of another model, layout, type or way of turning keys */
	/* ... has another number of tokens, or stands elsewhere in its fragment. */
	KVT_FRAGMENT_TOKENS = 3,
	KVT_FRAGMENT_FULL = 4,    /* no room */
	KVT_FRAGMENT_REFUSALS = 5,
};

/* Counts since create; kvt_metrics has those of all of a cache's. */
struct kvt_fragments_stats {
	uint32_t size; /* set by the caller */
	uint32_t reserved;
	uint64_t stores, stored_chunks, stored_tokens, stored_bytes;
	uint64_t loads, hit_tokens, missed_tokens, loaded_bytes;
	uint64_t moved_bytes; /* of keys that were turned */
	uint64_t refused[KVT_FRAGMENT_REFUSALS];
};
KVT_API enum kvt_status kvt_fragments_stats(
	const struct kvt_fragments *f, struct kvt_fragments_stats *out) KVT_MUST_CHECK;

/* --- which tokens to compute again ------------------------------------------------------------ */

#define KVT_BLEND_SHARE_MOST 0.3

struct kvt_blend {
	uint32_t size;         /* sizeof(struct kvt_blend) */
	uint32_t first_tokens; /* of each fragment, first of all */
	/* Of all tokens of the fragments, 0 to KVT_BLEND_SHARE_MOST, rounded down. */
	double share;
};

/*
 * Adds to each token's deviation the squared distance between what was computed and what was
 * loaded, `count` values of a layer's keys or values for each of `tokens` tokens, contiguous
 * (CacheBlend's measure, arXiv 2405.16444).
 */
KVT_API enum kvt_status kvt_blend_deviation(uint32_t values, const void *computed,
	const void *loaded, size_t tokens, size_t count, float *deviation) KVT_MUST_CHECK;

/*
 * Chooses the tokens of loaded fragments that are computed again: the first ones of each, the first
 * of all fragments before the second of any, then those that deviate most
 * (deviation[prompt_tokens], NULL: none; not a number counts as most), until the share is used up.
 * chosen[prompt_tokens] becomes 1 or 0; *count (NULL is allowed): how many. Fragments ascend and do
 * not overlap. KVT_EINVAL, KVT_ENOMEM.
 */
KVT_API enum kvt_status kvt_blend_choose(const struct kvt_blend *blend,
	const struct kvt_fragment *fragments, size_t n, const float *deviation,
	size_t prompt_tokens, uint8_t *chosen, size_t *count) KVT_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
