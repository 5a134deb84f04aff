/*
 * lmcache_chunks.c - see lmcache_chunks.h.
 */
#include "wire/lmcache_chunks.h"

#include <string.h>

#define AT_ONCE 256u /* tokens */

static void put_tokens(struct kvw_blake3 *state, const uint32_t *tokens, size_t count)
{
	uint8_t bytes[4 * AT_ONCE];

	while (count > 0) {
		size_t now = count < AT_ONCE ? count : AT_ONCE;

		for (size_t i = 0; i < now; i++)
			for (size_t byte = 0; byte < 4; byte++)
				bytes[4 * i + byte] = (uint8_t)(tokens[i] >> (24 - 8 * byte));
		kvw_blake3_put(state, bytes, 4 * now);
		tokens += now;
		count -= now;
	}
}

void kvw_lmcache_chunks_start(struct kvw_lmcache_chunks *chunks)
{
	static const uint8_t zeros[12];
	struct kvw_blake3 state;

	kvw_blake3_start(&state);
	kvw_blake3_put(&state, zeros, sizeof(zeros));
	kvw_blake3_finish(&state, chunks->hash);
}

void kvw_lmcache_chunks_next(
	struct kvw_lmcache_chunks *chunks, const uint32_t *tokens, size_t count)
{
	struct kvw_blake3 state;

	kvw_blake3_start(&state);
	kvw_blake3_put(&state, chunks->hash, sizeof(chunks->hash));
	put_tokens(&state, tokens, count);
	kvw_blake3_finish(&state, chunks->hash);
}
