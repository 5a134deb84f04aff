/*
 * lmcache_detect.h - finds the hash recipe of workers that do not use the configured one.
 *
 * LMCache's keys do not name their recipe. But a worker admits the chunks of a prompt soon after
 * the prompt was routed to it: so the key of the first chunk by the right recipe is among its keys,
 * the key by any other recipe is not. 64 bits do not agree by chance.
 */
#ifndef KVW_LMCACHE_DETECT_H
#define KVW_LMCACHE_DETECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/lmcache_hash.h"

/* Returns whether a worker has admitted this key. */
typedef bool kvw_lmcache_known_fn(void *context, uint64_t key);

/*
 * Tries the configured recipe, then those that differ from it by algorithm, SipHash variant, extra,
 * fold, seed (not set, 0, LMCache without vLLM) and chunk size (powers of two from 16 to 2048), in
 * all combinations, then common seeds, with all else as configured, on the beginning of one prompt.
 * *found borrows the same texts as `configured`.
 *
 * KVW_ENOTFOUND: no recipe matches; perhaps the seed is none of these, or the worker's tokens are
 * others. KVW_ENOMEM. Takes some 3 ms for a prompt of 2,048 tokens: not for an event loop. It is no
 * error if `configured` itself is faulty.
 */
KVW_MUST_CHECK enum kvw_err kvw_lmcache_detect(const struct kvw_lmcache_recipe *configured,
	const uint32_t *tokens, size_t count, kvw_lmcache_known_fn *known, void *context,
	struct kvw_lmcache_recipe *found);

/*
 * Writes the changes from `configured` to `found`, such as "hash algorithm sha256_cbor (configured:
 * builtin), chunk size 64 (configured: 256)"; the text is empty if there are none. Returns its
 * length. The text is cut if size, which must not be 0, is too small, and always ends with a NUL.
 */
size_t kvw_lmcache_difference(const struct kvw_lmcache_recipe *configured,
	const struct kvw_lmcache_recipe *found, char *text, size_t size);

#endif
