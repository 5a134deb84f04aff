/*
 * event_batch.h - events as vLLM publishes them: one MessagePack value.
 *
 *   [time since 1970 in s (float), [event, ...], data-parallel rank (integer)]
 *   {"type": "BlockStored", "block_hashes": [...], "parent_block_hash": hash or nil,
 *    "token_ids": [...], "block_size": n, "lora_id": nil, "medium": "CPU" | "STORAGE",
 *    "lora_name": text or nil, "locality": "LOCAL" | "REMOTE"}
 *   {"type": "BlockRemoved", "block_hashes": [...], "medium": ..., "locality": ...}
 *   {"type": "AllBlocksCleared", "medium": ..., "locality": ...}
 *
 * Members and their order are those of vllm/distributed/kv_events.py (EventBatch, BlockStored,
 * BlockRemoved, AllBlocksCleared), maps as vLLM sends them from 0.24 on, decoded by msgspec into
 * those classes. L1 is medium CPU; NVMe is STORAGE at locality LOCAL, a shared tier STORAGE at
 * REMOTE; locality is left out where it adds nothing. token_ids is empty where they are not
 * published, as in events of vLLM's own offloading connector. A hash of 8 bytes goes as an integer,
 * any other as bytes. vLLM's AllBlocksCleared has no medium: a consumer that ignores the medium
 * forgets more than it must, which costs hits and no correctness.
 *
 * The rank is always 0: a cache's publisher represents no engine's rank.
 */
#ifndef KVT_EVENT_BATCH_H
#define KVT_EVENT_BATCH_H

#include <stdbool.h>

#include "kvtier/kvtier.h"

/* A growing buffer. */
struct kvt_packed {
	uint8_t *data; /* owned */
	size_t len, size;
	bool failed; /* memory was short, so the contents are incomplete */
};

void kvt_packed_finish(struct kvt_packed *packed);

/* Writes one batch, which replaces the former contents. KVT_ENOMEM. */
enum kvt_status kvt_event_batch_pack(struct kvt_packed *packed, int64_t wall_ns,
	const struct kvt_event *events, size_t count) KVT_MUST_CHECK;

#endif
