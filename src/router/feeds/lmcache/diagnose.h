/*
 * diagnose.h - checks that routed prompts appear among the keys of their worker's instance.
 *
 * A worker that serves a prompt stores its chunks, LMCache reports their keys, and the router knows
 * what the first key must be. If the key is found at the worker's own instance, the instance's keys
 * are understood. If it is found twice at an instance without a worker, that instance is this
 * worker's. If it is never found although the instance stores chunks, the instance hashes in
 * another way, and all known ways are tried on the prompt's tokens.
 *
 * Threads: kvw_lmdiag_routed from any; the rest belongs to the feed's thread.
 */
#ifndef KVW_LMCACHE_DIAGNOSE_H
#define KVW_LMCACHE_DIAGNOSE_H

#include "feeds/kvspace.h"
#include "feeds/lmcache/registry.h"

#define KVW_LMDIAG_PROMPT   2048u /* tokens */
#define KVW_LMDIAG_PENDING  32    /* prompts being searched */
#define KVW_LMDIAG_ENOUGH   3     /* prompts found, after which an instance is no longer checked */
#define KVW_LMDIAG_MISSES   5     /* prompts missed without a found one that show a fault */
#define KVW_LMDIAG_HINTS    2     /* prompts found that map an instance to a worker */
/* age of a missed prompt after which other recipes are tried on it */
#define KVW_LMDIAG_STORE_NS (INT64_C(1) * 1000000000)
/* age after which a prompt that was not found counts as missed */
#define KVW_LMDIAG_WAIT_NS  (INT64_C(15) * 1000000000)
/* least time between two searches for a recipe */
#define KVW_LMDIAG_PAUSE_NS (INT64_C(1) * 1000000000)

struct kvw_lmdiag;

struct kvw_lmdiag_options {
	struct kvw_lmreg *reg;                       /* borrowed */
	struct kvw_kvspaces *spaces;                 /* borrowed */
	const struct kvw_lmcache_recipe *configured; /* borrowed */
	bool detect;
};

enum kvw_err kvw_lmdiag_create(
	const struct kvw_lmdiag_options *options, struct kvw_lmdiag **out) KVW_MUST_CHECK;
void kvw_lmdiag_destroy(struct kvw_lmdiag *diag); /* NULL is allowed */

/* Records a routed prompt; see kvw_lmcache_routed. */
void kvw_lmdiag_routed(struct kvw_lmdiag *diag, uint32_t worker, const uint32_t *tokens,
	size_t count, int64_t now_ns);

/* Checks recorded prompts. Called about every 100 ms. */
void kvw_lmdiag_tick(struct kvw_lmdiag *diag, int64_t now_ns);

#endif
