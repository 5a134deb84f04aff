/*
 * kv_event.h - a change of a worker's cache, as feeds report it to the exact index.
 *
 * Decoders turn vLLM's KV events into this record, so that the index does not know vLLM's format.
 * Plain data: the decoder that filled the record owns everything that it points at, which is valid
 * until the decoder's next call.
 *
 * Hashes are 64-bit names of blocks, given by the engine. vLLM sends either the last 8 bytes of its
 * digest as an integer or the whole digest (16 or 32 bytes), and both may occur in one stream; a
 * digest is therefore folded to its last 8 bytes, big-endian, as vLLM itself does by default. A
 * name is used within one worker only, to find the block that a later event removes. Among a
 * million blocks two share a name with probability 3e-8; an attacker that searches for a pair (2^32
 * hashes) makes the index forget one block early or keep it too long. Either way one hit is
 * predicted wrongly; the engine compares its own whole digests, so that an answer is never wrong.
 */
#ifndef KVW_KV_EVENT_H
#define KVW_KV_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/route.h"
#include "kvway/slice.h"

enum kvw_kv_kind {
	KVW_KV_STORED,  /* the tier has one more copy of each block: count copies */
	KVW_KV_REMOVED, /* the tier lost one copy of each block */
	KVW_KV_CLEARED, /* the tier is empty */
};

struct kvw_kv_event {
	enum kvw_kv_kind kind;
	enum kvw_tier tier;
	uint32_t rank; /* data-parallel */

	const uint64_t *hashes; /* names of the blocks, in the order of the prompt when stored */
	size_t hash_count;      /* 0 when cleared */
	uint32_t hash_bytes;    /* width of the first hash as sent: 8 for an integer, 16, 32 */

	/* The members below are set for stored blocks only; otherwise they are zero. */
	bool has_parent; /* false: the first block begins a prompt */
	uint64_t parent; /* name of the block before the first block */
	const uint32_t *tokens; /* token ids of all blocks one after another */
	/* hash_count * block_size; 0: the engine sent no tokens (offloaded blocks) */
	size_t token_count;
	uint32_t block_size;    /* tokens per block, > 0 when stored */
	const uint64_t *extra;  /* one per block: kvw_kv_extra_*(); NULL: all are 0 */
	struct kvw_slice lora;  /* name of the LoRA adapter; len 0: none */
	struct kvw_slice salt;  /* cache_salt, sent where a prompt begins; len 0: none */
	/* extra comes only from lora and salt, not from images or embeddings */
	bool extra_is_plain;
	bool has_lora_id;
	int64_t lora_id; /* the engine's number of the adapter; old versions send only this */
	bool has_group;             /* a hybrid model: a hit needs every group of layers */
	uint32_t group;             /* group_idx; 0 if not sent. Also set for removals */
	struct kvw_slice spec_kind; /* "full_attention", "sliding_window", ... or len 0 */
	uint32_t sliding_window;    /* tokens; 0: none */
};

/*
 * kvw_kv_extra_*() fold everything besides tokens and parent that distinguishes a block into one
 * number; 0: there is nothing. The event's extra_keys are folded in their order. vLLM's order is:
 * LoRA name, multimodal items, cache salt (in the first block of a prompt only), digest of
 * embeddings; so a request with a salt has kvw_kv_extra_text(0, salt) in its first block and 0 in
 * the others. The function is FNV-1a with a final mix: texts are short, and both sides have to
 * agree without a shared library.
 */
static inline uint64_t kvw_kv_extra_fold(uint64_t extra, char what, const void *data, size_t len)
{
	const unsigned char *bytes = (const unsigned char *)data;
	uint64_t h = UINT64_C(0xcbf29ce484222325) ^ extra;

	h = (h ^ (unsigned char)what) * UINT64_C(0x100000001b3);
	h = (h ^ len) * UINT64_C(0x100000001b3);
	for (size_t i = 0; i < len; i++)
		h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
	h ^= h >> 32;
	h *= UINT64_C(0x9e3779b97f4a7c15);
	h ^= h >> 29;
	return h == 0 ? 1 : h;
}

static inline uint64_t kvw_kv_extra_text(uint64_t extra, struct kvw_slice text)
{
	return kvw_kv_extra_fold(extra, 't', text.data, text.len);
}

static inline uint64_t kvw_kv_extra_int(uint64_t extra, uint64_t bits)
{
	unsigned char bytes[8];

	for (int i = 0; i < 8; i++)
		bytes[i] = (unsigned char)(bits >> (8 * i));
	return kvw_kv_extra_fold(extra, 'i', bytes, sizeof(bytes));
}

#endif
