/*
 * kvspace.h - the key spaces of this fleet's blocks, and a prompt's keys in all of them.
 *
 * Keys of the exact index are comparable within a space: all engines of one block size share a
 * space, because their keys are the router's own (block_key.h), and so do all LMCache workers with
 * one hash recipe. Feeds add the spaces that they find; a loop computes the keys of a prompt in
 * every space. Spaces are never removed; there are few, because a fleet's workers are configured
 * alike.
 *
 * A third kind are positions: the coordinator (coordinator/README.md) is sent the tokens of a chunk
 * and its place, but not the chunks before it. Its key is of the tokens and the place alone, so
 * two prompts that agree in one chunk, but not before it, share this chunk's key. A hit needs all
 * chunks from the first on, so a wrong one needs a worker that holds both prompts' parts.
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
#include "wire/lmcache_hash.h"

#define KVW_KVSPACE_BLOCK_MAX      8192u /* tokens of an engine's block */
/* Spaces by positions: a server's reports may show any chunk size, and feeds share the table. */
#define KVW_KVSPACE_POSITIONS_MOST 4u

struct kvw_kvspace {
	enum kvw_reporter reporter;
	uint32_t number;                   /* in the index: its position in the table */
	uint32_t block_tokens;             /* of an engine, or the recipe's chunk_size */
	bool by_position;                  /* LMCache's chunks, named by kvw_kvspace_position_key */
	struct kvw_lmcache_recipe recipe;  /* of LMCache; its seed is owned by the table */
};

struct kvw_kvspaces;

enum kvw_err kvw_kvspaces_create(struct kvw_kvspaces **out) KVW_MUST_CHECK;
void kvw_kvspaces_destroy(struct kvw_kvspaces *spaces); /* NULL is allowed */

/* --- feed thread --- */

/* The space of engines with this block size, added if it is new. KVW_ELIMIT: KVW_EXACT_CHAINS
 * spaces exist. KVW_EINVAL: block size 0 or above KVW_KVSPACE_BLOCK_MAX. */
enum kvw_err kvw_kvspaces_engine(
	struct kvw_kvspaces *spaces, uint32_t block_tokens, uint32_t *space) KVW_MUST_CHECK;

/* The space of LMCache workers with this recipe, added (copied) if it is new. KVW_EINVAL: the
 * recipe has a fault. */
enum kvw_err kvw_kvspaces_lmcache(struct kvw_kvspaces *spaces,
	const struct kvw_lmcache_recipe *recipe, uint32_t *space) KVW_MUST_CHECK;

/* The space of LMCache's chunks of this size by their positions, added if it is new. Errors are
 * those of kvw_kvspaces_engine; KVW_ELIMIT also beyond KVW_KVSPACE_POSITIONS_MOST of them. */
enum kvw_err kvw_kvspaces_positions(
	struct kvw_kvspaces *spaces, uint32_t chunk_tokens, uint32_t *space) KVW_MUST_CHECK;

/* --- any thread --- */

size_t kvw_kvspaces_count(const struct kvw_kvspaces *spaces);
const struct kvw_kvspace *kvw_kvspaces_get(const struct kvw_kvspaces *spaces, size_t space);

/* The key before an engine's first block of a prompt, from which the keys of all blocks follow. It
 * does not include the model: holders are looked up among workers that serve the model. */
uint64_t kvw_kvspace_engine_root(
	uint32_t block_tokens, struct kvw_slice lora, struct kvw_slice cache_salt);

/* The key of the nth chunk of a prompt (from 0) in a space by positions; root: of
 * kvw_kvspace_engine_root. */
uint64_t kvw_kvspace_position_key(
	uint64_t root, uint32_t nth, const uint32_t *tokens, uint32_t count);

/* A prompt whose tokens are known. Borrowed during the call. */
struct kvw_kvprompt {
	const uint32_t *tokens;
	size_t count;
	struct kvw_slice lora;       /* name of the request's adapter; empty: none */
	struct kvw_slice cache_salt; /* empty: none */
};

/* Keys of one prompt after another, in every space. Zeroed is empty; owns arrays that grow up to
 * the longest prompt seen. One thread. */
struct kvw_kvchains {
	struct kvw_exact_chain chains[KVW_EXACT_CHAINS]; /* keys point into `keys` */
	uint32_t count;
	uint64_t *keys;
	size_t room;
};

/* Fills chains->chains and count. KVW_ENOMEM: count is 0. */
enum kvw_err kvw_kvchains_fill(struct kvw_kvchains *chains, const struct kvw_kvspaces *spaces,
	const struct kvw_kvprompt *prompt) KVW_MUST_CHECK;
void kvw_kvchains_finish(struct kvw_kvchains *chains);

#endif
