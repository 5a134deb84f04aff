/*
 * lmcache_hash.h - LMCache's chunk hashes from token ids, as in-process LMCache 0.3 to 0.5 makes
 * them.
 *
 *	h_0 = NONE_HASH = H(PYTHONHASHSEED as a string)
 *	h_i = H((h_{i-1}, (token, token, ...), extra))	for each chunk
 *
 * LMCache sends a controller these 64-bit numbers and no tokens, so the router must compute them
 * the same way to recognize them. The recipe differs between installations. Numbers are bit
 * patterns: `builtin` gives signed ones (Python and msgpack print (int64_t)key), digests unsigned
 * ones.
 *
 * Pure functions, for any thread. The server mode of LMCache (blake3) is not covered; it has no
 * controller of this kind.
 */
#ifndef KVW_LMCACHE_HASH_H
#define KVW_LMCACHE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/siphash.h"

#include "kvway/err.h"
#include "kvway/slice.h"

/* The hash function H, by the names in LMCache's pre_caching_hash_algorithm. */
enum kvw_lmcache_algorithm {
	KVW_LMCACHE_BUILTIN = 0, /* Python's hash() */
	KVW_LMCACHE_SHA256_CBOR, /* also "sha256_cbor_64bit" */
	KVW_LMCACHE_SHA256,      /* of a pickle */
	KVW_LMCACHE_XXHASH_CBOR,
	KVW_LMCACHE_XXHASH, /* of a pickle */
};

/* Which value the third member of the tuple has. */
enum kvw_lmcache_extra {
	KVW_LMCACHE_EXTRA_EMPTY = 0, /* (): LMCache 0.4 and later */
	KVW_LMCACHE_EXTRA_NONE,      /* None: up to 0.3.12 */
};

/* Which 64 bits of a digest are the key. */
enum kvw_lmcache_fold {
	KVW_LMCACHE_FOLD_FIRST = 0, /* LMCache 0.4 and later */
	/* sha256_cbor_64bit in vLLM before 0.10.2, which shortened the digest itself */
	KVW_LMCACHE_FOLD_LAST,
};

/* Source of h_0. */
enum kvw_lmcache_root {
	KVW_LMCACHE_ROOT_SEED = 0, /* PYTHONHASHSEED, by vLLM's recipe */
	KVW_LMCACHE_ROOT_NUMBER,   /* the recipe's none_hash; 0 where LMCache runs without vLLM */
};

/* All properties of one installation on which its hashes depend. LMCache's default is all zeroes,
 * with chunk_size and seed set. */
struct kvw_lmcache_recipe {
	enum kvw_lmcache_algorithm algorithm;
	/* variant in the engines' Python; used for `builtin` with a seed */
	enum kvw_siphash_variant siphash;
	enum kvw_lmcache_extra extra;
	enum kvw_lmcache_fold fold;
	enum kvw_lmcache_root root;
	const char *seed;    /* text of PYTHONHASHSEED, borrowed; NULL: it is not set */
	uint64_t none_hash; /* used with ROOT_NUMBER; LMCache logs it as "Initialized NONE_HASH=" */
	uint32_t chunk_size; /* in tokens, 1 to KVW_LMCACHE_CHUNK_MAX; LMCache's default is 256 */
	bool partial_chunk; /* LMCache's save_unfull_chunk: a partial last chunk has a key, too */
};

#define KVW_LMCACHE_CHUNK_MAX 8192u

/*
 * Parses a name of LMCache's configuration. LMCache treats an unknown name as `builtin`, with only
 * a warning; so does this function, and returns false.
 */
bool kvw_lmcache_algorithm_parse(struct kvw_slice name, enum kvw_lmcache_algorithm *algorithm);

/* Returns the name of an algorithm; static. */
const char *kvw_lmcache_algorithm_name(enum kvw_lmcache_algorithm algorithm);

/* Returns a sentence that says why only the engine's own process can compute this recipe's hashes;
 * NULL: other processes can. */
const char *kvw_lmcache_recipe_fault(const struct kvw_lmcache_recipe *recipe);

/*
 * Begins a chain: sets *state to h_0. KVW_EINVAL: the recipe has a fault. KVW_ENOMEM.
 */
KVW_MUST_CHECK enum kvw_err kvw_lmcache_begin(
	const struct kvw_lmcache_recipe *recipe, uint64_t *state);

/*
 * Computes keys of tokens[0..count), which continue the chain of *state.
 *
 * keys[i] is the key of the chunk that begins at tokens[i * chunk_size]; at most `cap` are written,
 * *key_count is their number. *state advances by full chunks only, so a caller with more tokens
 * later continues at the first token that is in no full chunk; a partial chunk's key comes last.
 * keys may be NULL if cap is 0.
 *
 * KVW_EINVAL: a fault. KVW_ENOMEM: *state is that after the *key_count finished keys. Digests
 * allocate once a call, `builtin` never.
 */
KVW_MUST_CHECK enum kvw_err kvw_lmcache_hash(const struct kvw_lmcache_recipe *recipe,
	uint64_t *state, const uint32_t *tokens, size_t count, uint64_t *keys, size_t cap,
	size_t *key_count);

#endif
