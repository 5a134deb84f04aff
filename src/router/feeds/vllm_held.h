/*
 * vllm_held.h - live batches that wait while the batches before them are being replayed.
 *
 * A queue bounded in batches and bytes. A batch that does not fit is refused; the stream later
 * finds its number missing and requests it again. Zeroed is empty. One thread.
 */
#ifndef KVW_VLLM_HELD_H
#define KVW_VLLM_HELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <zmq.h>

#define KVW_VLLM_HELD_BATCHES 8192u
#define KVW_VLLM_HELD_BYTES   (64u << 20)

struct kvw_vllm_held_batch {
	uint64_t sequence;
	zmq_msg_t payload; /* owned */
};

struct kvw_vllm_held {
	struct kvw_vllm_held_batch *items; /* owned; [room], a ring */
	size_t room, first, count;
	size_t bytes;
};

/* Appends a batch and takes the payload's content. False: no room, and the payload is unchanged. */
bool kvw_vllm_held_push(struct kvw_vllm_held *held, uint64_t sequence, zmq_msg_t *payload);

/* Returns the oldest batch; NULL: empty. Valid until the next call. */
struct kvw_vllm_held_batch *kvw_vllm_held_first(struct kvw_vllm_held *held);
void kvw_vllm_held_drop_first(struct kvw_vllm_held *held);

void kvw_vllm_held_finish(struct kvw_vllm_held *held);

#endif
