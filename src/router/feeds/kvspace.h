/*
 * kvspace.h - the key spaces of this fleet's blocks, and a prompt's keys in all of them.
 *
 * Keys of the exact index are comparable within a space: all engines of one block size share a
 * space, because their keys are the router's own (block_key.h), and so do all LMCache workers with
 * one hash recipe. Feeds add the spaces that they find; a loop computes the keys of a prompt in
 * every space. Spaces are never removed; there are few, because a fleet's workers are configured
 * alike.
 *
 * A third kind is by position: reports to the coordinator (coordinator/README.md) have the tokens
 * of a chunk and its place in the prompt, but not the chunks before it. A key then covers only
 * tokens and place, so that two prompts that agree in one chunk, but not before it, share this
 * chunk's key. A hit needs all chunks from the first on, so that a wrong hit is possible only at a
 * worker that holds parts of both prompts.
 *
 * A fourth kind is by hash: where reports have no tokens, a key covers the chunk's hash. kvway
 * computes the hashes of a prompt as LMCache's servers do (wire/lmcache_chunks.h).
 *
 * Threads: the feed's thread alone adds. Everything else may be called from any thread; a space is
 * immutable once it is published.
 */
#ifndef KVW_KVSPACE_H
#define KVW_KVSPACE_H

#include <stdbool.h>

#include "kvway/err.h"
#include "kvway/exact.h"
#include "kvway/slice.h"
#include "wire/lmcache_chunks.h"
#include "wire/lmcache_hash.h"

#define KVW_KVSPACE_BLOCK_MAX      8192u /* largest block of an engine, in tokens */
/* Limit of spaces by position: a server's reports may show any chunk size, and all feeds share the
 * table. */
#define KVW_KVSPACE_POSITIONS_MOST 4u

struct kvw_kvspace {
	enum kvw_reporter reporter;
	uint32_t number; /* the number in the index, equal to the position in the table */
	uint32_t block_tokens; /* tokens of an engine's block, or the recipe's chunk_size */
	bool by_position; /* LMCache's chunks, with keys from kvw_kvspace_position_key ... */
	bool by_hash;     /* ... or from kvw_kvspace_hash_key */
	struct kvw_lmcache_recipe recipe;  /* LMCache's recipe; its seed is owned by the table */
};

struct kvw_kvspaces;

enum kvw_err kvw_kvspaces_create(struct kvw_kvspaces **out) KVW_MUST_CHECK;
void kvw_kvspaces_destroy(struct kvw_kvspaces *spaces); /* NULL is allowed */

/* --- feed thread --- */

/* Finds the space of engines with this block size, or adds it. KVW_ELIMIT: KVW_EXACT_CHAINS spaces
 * exist. KVW_EINVAL: block size 0 or above KVW_KVSPACE_BLOCK_MAX. */
enum kvw_err kvw_kvspaces_engine(
	struct kvw_kvspaces *spaces, uint32_t block_tokens, uint32_t *space) KVW_MUST_CHECK;

/* Finds the space of LMCache workers with this recipe, or adds it (copied). KVW_EINVAL: the recipe
 * has a fault. */
enum kvw_err kvw_kvspaces_lmcache(struct kvw_kvspaces *spaces,
	const struct kvw_lmcache_recipe *recipe, uint32_t *space) KVW_MUST_CHECK;

/* Finds the space of LMCache's chunks of this size by position, or adds it. Errors are those of
 * kvw_kvspaces_engine; KVW_ELIMIT also if KVW_KVSPACE_POSITIONS_MOST of them exist. */
enum kvw_err kvw_kvspaces_positions(
	struct kvw_kvspaces *spaces, uint32_t chunk_tokens, uint32_t *space) KVW_MUST_CHECK;

/* Finds the space of LMCache's chunks of this size by hash, or adds it. Errors are those of
 * kvw_kvspaces_engine. */
enum kvw_err kvw_kvspaces_hashes(
	struct kvw_kvspaces *spaces, uint32_t chunk_tokens, uint32_t *space) KVW_MUST_CHECK;

/* --- any thread --- */

size_t kvw_kvspaces_count(const struct kvw_kvspaces *spaces);
const struct kvw_kvspace *kvw_kvspaces_get(const struct kvw_kvspaces *spaces, size_t space);

/* Returns the key that precedes an engine's first block of a prompt, from which the keys of all
 * blocks follow. It does not include the model: holders are looked up among workers that serve the
 * model. */
uint64_t kvw_kvspace_engine_root(
	uint32_t block_tokens, struct kvw_slice lora, struct kvw_slice cache_salt);

/* Returns the key of the nth chunk of a prompt (from 0) in a space by position; root: from
 * kvw_kvspace_engine_root. */
uint64_t kvw_kvspace_position_key(
	uint64_t root, uint32_t nth, const uint32_t *tokens, uint32_t count);

/* Returns the key of the chunk with this hash in a space by hash; root as above. */
uint64_t kvw_kvspace_hash_key(uint64_t root, const uint8_t hash[KVW_BLAKE3_BYTES]);

/* A prompt whose tokens are known. Borrowed during the call. */
struct kvw_kvprompt {
	const uint32_t *tokens;
	size_t count;
	struct kvw_slice lora;       /* name of the request's LoRA adapter; empty: none */
	struct kvw_slice cache_salt; /* empty: none */
};

/* The keys of a prompt in every space, reused for one prompt after another. Zeroed is empty; owns
 * arrays that grow up to the longest prompt seen. One thread. */
struct kvw_kvchains {
	struct kvw_exact_chain chains[KVW_EXACT_CHAINS]; /* their keys point into `keys` */
	uint32_t count;
	uint64_t *keys;
	size_t room;
};

/* Computes chains->chains and count. KVW_ENOMEM: count is 0. */
enum kvw_err kvw_kvchains_fill(struct kvw_kvchains *chains, const struct kvw_kvspaces *spaces,
	const struct kvw_kvprompt *prompt) KVW_MUST_CHECK;
void kvw_kvchains_finish(struct kvw_kvchains *chains);

#endif
