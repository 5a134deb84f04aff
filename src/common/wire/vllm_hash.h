/*
 * vllm_hash.h - vLLM's block hashes from token ids, as vLLM 0.32 makes them.
 *
 *	none   = H(PYTHONHASHSEED as a string)
 *	digest = H((parent's digest or none, (token, token, ...), extra keys or None))
 *
 * An index of cached blocks should not be built on these: the recipe changed between versions and
 * will again, and events carry the token ids (block_key.h is the router's own). They are good for two
 * things: to check at the first event whether seed and algorithm of an engine are what was configured,
 * and to find a prompt in events that carry no token ids.
 *
 * Extra keys of images and of prompt embeddings are not covered. Pure functions, any thread.
 */
#ifndef KVW_VLLM_HASH_H
#define KVW_VLLM_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/object_hash.h"

#include "kvway/err.h"
#include "kvway/slice.h"

/* A block's hash in full. */
struct kvw_vllm_digest {
	uint8_t size; /* 32, or 16 for the XXH3 algorithms */
	uint8_t bytes[KVW_DIGEST_MAX];
};

/* How one engine hashes, and what of a request besides its tokens counts. Slices are borrowed. */
struct kvw_vllm_recipe {
	enum kvw_object_hash hash; /* --prefix-caching-hash-algo; vLLM's default is sha256 */
	const char *seed;          /* the text of PYTHONHASHSEED, NULL if not set */
	uint32_t block_size;       /* tokens, 1 to KVW_VLLM_BLOCK_MAX */
	bool lora;                 /* the request goes to an adapter */
	struct kvw_slice lora_name, lora_path;
	struct kvw_slice cache_salt; /* empty: none. Enters a prompt's first block only */
};

#define KVW_VLLM_BLOCK_MAX 8192u

/* Where a chain stands. To go on behind a known block: its digest, and started true. */
struct kvw_vllm_chain {
	struct kvw_vllm_digest parent;
	bool started; /* parent is a block's, not the one of no block */
};

/*
 * The chain before a prompt's first block. KVW_EINVAL: block_size. KVW_ENOTFOUND: the XXH3
 * algorithms begin at random in each process as long as PYTHONHASHSEED is not set. KVW_ENOMEM.
 */
KVW_MUST_CHECK enum kvw_err kvw_vllm_chain_begin(
	const struct kvw_vllm_recipe *recipe, struct kvw_vllm_chain *chain);

/*
 * Digests of the full blocks in tokens[0..count), which follow the chain; at most `cap`, and
 * *digest_count says how many. The chain moves past them. Tokens after the last full block have no
 * hash in vLLM.
 *
 * KVW_EINVAL: block_size. KVW_ELIMIT: block and strings together exceed 64 KiB of pickle.
 * KVW_ENOMEM. The chain is then that of the *digest_count that are done.
 */
KVW_MUST_CHECK enum kvw_err kvw_vllm_hash(const struct kvw_vllm_recipe *recipe,
	struct kvw_vllm_chain *chain, const uint32_t *tokens, size_t count,
	struct kvw_vllm_digest *digests, size_t cap, size_t *digest_count);

/* The number by which events call a block: the digest's last 8 bytes, big-endian. */
uint64_t kvw_vllm_event_hash(const struct kvw_vllm_digest *digest);

#endif
