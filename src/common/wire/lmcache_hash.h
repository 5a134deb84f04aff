/*
 * lmcache_hash.h - LMCache's chunk hashes from token ids, as in-process LMCache 0.3 to 0.5 makes
 * them.
 *
 * 	h_0 = NONE_HASH = H(PYTHONHASHSEED as a string)
 * 	h_i = H((h_{i-1}, (token, token, ...), extra))	for each chunk
 *
 * LMCache sends a controller these 64-bit numbers and no tokens, so the router must compute them
 * the same way to recognize them. What differs between installations is the recipe. Numbers are bit
 * patterns: `builtin` gives signed ones (Python and msgpack print (int64_t)key), digests unsigned
 * ones.
 *
 * Pure functions: any thread, nothing is kept. The server mode of LMCache (blake3) is not covered;
 * it has no controller of this kind.
 */
#ifndef KVW_LMCACHE_HASH_H
#define KVW_LMCACHE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/siphash.h"

#include "kvway/err.h"
#include "kvway/slice.h"

/* H. Names as in LMCache's pre_caching_hash_algorithm. */
enum kvw_lmcache_algorithm {
	KVW_LMCACHE_BUILTIN = 0, /* Python's hash() */
	KVW_LMCACHE_SHA256_CBOR, /* also "sha256_cbor_64bit" */
	KVW_LMCACHE_SHA256,      /* of a pickle */
	KVW_LMCACHE_XXHASH_CBOR,
	KVW_LMCACHE_XXHASH, /* of a pickle */
};

/* The third member of the tuple. */
enum kvw_lmcache_extra {
	KVW_LMCACHE_EXTRA_EMPTY = 0, /* (): LMCache 0.4 and later */
	KVW_LMCACHE_EXTRA_NONE,      /* None: up to 0.3.12 */
};

/* Which 64 bits of a digest count. */
enum kvw_lmcache_fold {
	KVW_LMCACHE_FOLD_FIRST = 0, /* LMCache 0.4 and later */
	KVW_LMCACHE_FOLD_LAST, /* sha256_cbor_64bit of vLLM before 0.10.2, which folded itself */
};

/* Where h_0 comes from. */
enum kvw_lmcache_root {
	KVW_LMCACHE_ROOT_SEED = 0, /* PYTHONHASHSEED, by vLLM's recipe */
	KVW_LMCACHE_ROOT_NUMBER,   /* none_hash; 0 where LMCache runs without vLLM */
};

/* How one installation hashes. Zeroed, then chunk_size and seed set, it is LMCache's default. */
struct kvw_lmcache_recipe {
	enum kvw_lmcache_algorithm algorithm;
	enum kvw_siphash_variant siphash; /* of the engines' Python; `builtin` from a seed only */
	enum kvw_lmcache_extra extra;
	enum kvw_lmcache_fold fold;
	enum kvw_lmcache_root root;
	const char *seed;    /* borrowed; the text of PYTHONHASHSEED, NULL if not set */
	uint64_t none_hash;  /* of ROOT_NUMBER; LMCache logs it as "Initialized NONE_HASH=" */
	uint32_t chunk_size; /* tokens, 1 to KVW_LMCACHE_CHUNK_MAX; LMCache's default is 256 */
	bool partial_chunk; /* save_unfull_chunk: tokens after the last full chunk have a key too */
};

#define KVW_LMCACHE_CHUNK_MAX 8192u

/*
 * What a name in LMCache's configuration means. LMCache takes every name that it does not know for
 * `builtin`, with no more than a warning; so does this, and returns false.
 */
bool kvw_lmcache_algorithm_parse(struct kvw_slice name, enum kvw_lmcache_algorithm *algorithm);

/* As parsed; static. */
const char *kvw_lmcache_algorithm_name(enum kvw_lmcache_algorithm algorithm);

/* Why no one outside of the engine's process can compute this recipe, as a sentence;
 * NULL: one can. */
const char *kvw_lmcache_recipe_fault(const struct kvw_lmcache_recipe *recipe);

/*
 * h_0, which is what a chain's state begins with. KVW_EINVAL: the recipe has a fault.
 * KVW_ENOMEM.
 */
KVW_MUST_CHECK enum kvw_err kvw_lmcache_begin(
	const struct kvw_lmcache_recipe *recipe, uint64_t *state);

/*
 * Keys of tokens[0..count), which follow those that *state stands for.
 *
 * keys[i] is of tokens[i * chunk_size] on; at most `cap` are written and *key_count says how many.
 * *state moves past full chunks only, so a caller that gets more tokens later goes on with the
 * first one that is in no full chunk; a partial chunk's key comes last. keys may be NULL if cap is
 * 0.
 *
 * KVW_EINVAL: a fault. KVW_ENOMEM; *state is then that of the *key_count keys that are done.
 * Digests allocate once a call, `builtin` never.
 */
KVW_MUST_CHECK enum kvw_err kvw_lmcache_hash(const struct kvw_lmcache_recipe *recipe,
	uint64_t *state, const uint32_t *tokens, size_t count, uint64_t *keys, size_t cap,
	size_t *key_count);

#endif
