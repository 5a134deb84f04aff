/*
 * sim_kv_events.h - KV cache events as a vLLM engine encodes them.
 *
 * Events are appended to a buffer as they happen; a batch wraps what has come together. Two
 * encodings: arrays by position, as vLLM up to 0.23 sends, and maps by name, from 0.24 on. A hash
 * goes as an integer or, as with VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0, as a digest of 32 bytes
 * whose last 8 are that integer. Pure functions.
 */
#ifndef KVB_SIM_KV_EVENTS_H
#define KVB_SIM_KV_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/load/mem.h"

struct kvb_kv_style {
	bool arrays; /* else maps */
	bool bytes;  /* true: hashes are 32 bytes; false: integers */
	uint32_t rank; /* number of the data-parallel rank in the deployment */
};

/* Blocks that follow each other in one sequence. All borrowed during the call. */
struct kvb_kv_stored {
	const uint64_t *hashes; /* one per block */
	uint32_t count;         /* at least 1 */
	uint32_t block_size;    /* tokens */
	const uint32_t *tokens; /* count * block_size token ids; NULL: left out */
	/* hash of the block before the first one; NULL: it begins a prompt */
	const uint64_t *parent;
	const char *lora;       /* name of the adapter; NULL: there is none */
	int64_t lora_id;        /* with an adapter */
	const char *salt;       /* salt of a prompt that these blocks begin; NULL: none */
	const char *medium;     /* NULL: the device, "GPU" */
	/* locality of storage; NULL: left out. Arrays do not have this member */
	const char *locality;
};

void kvb_kv_put_stored(
	struct kvb_buf *out, const struct kvb_kv_style *style, const struct kvb_kv_stored *stored);
void kvb_kv_put_removed(struct kvb_buf *out, const struct kvb_kv_style *style,
	const uint64_t *hashes, uint32_t count);
/* Writes the removal of blocks from a medium that is not the device. */
void kvb_kv_put_removed_from(struct kvb_buf *out, const struct kvb_kv_style *style,
	const char *medium, const char *locality, const uint64_t *hashes, uint32_t count);
void kvb_kv_put_cleared(struct kvb_buf *out, const struct kvb_kv_style *style);

/* Writes [time, [the events], rank]; `time_s` is in seconds since 1970. */
void kvb_kv_put_batch(struct kvb_buf *out, const struct kvb_kv_style *style, double time_s,
	const struct kvb_buf *events, uint32_t event_count);

#endif
