/*
 * vllm_frames.h - parses the messages in which vLLM sends its batches: published ones and replayed
 * ones.
 *
 *   PUB:     [topic] [sequence, 8 bytes big-endian, from 0] [payload]
 *   replay:  a DEALER sends   [""] [first sequence wanted, 8 bytes big-endian]
 *            and receives     [""] [topic] [sequence] [payload]   each kept batch (from 0.25 on)
 *                        or   [""] [sequence] [payload]           (before)
 *            at last          ... [ff x 8] [""]
 *
 * Without the empty first frame of the request the engine does not answer. The engine keeps
 * buffer_steps batches; if the first replayed sequence is above the requested one, the batches
 * between are lost. Source: ZmqEventPublisher in vllm/distributed/kv_events.py. Pure functions, any
 * thread.
 */
#ifndef KVW_VLLM_FRAMES_H
#define KVW_VLLM_FRAMES_H

#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"
#include "kvway/slice.h"

#define KVW_VLLM_FRAMES_MAX 4 /* most frames of a message */

/* One batch with its number. The slices are those of the frames. */
struct kvw_vllm_message {
	/* len 0: there is none, or it is a replay by a version before 0.25 */
	struct kvw_slice topic;
	uint64_t sequence;
	struct kvw_slice payload; /* to be passed to kvw_vllm_begin() */
};

/* Parses a message from the PUB socket. KVW_EPROTO: it is not of that form. */
enum kvw_err kvw_vllm_published(const struct kvw_slice *frames, size_t count,
	struct kvw_vllm_message *message) KVW_MUST_CHECK;

/* Writes the second frame of a replay request; the first one is empty. */
void kvw_vllm_replay_request(uint64_t first, uint8_t frame[8]);

/* Parses a message from the replay socket. KVW_ENOTFOUND: it is the end marker; KVW_EPROTO: it is
 * invalid. */
enum kvw_err kvw_vllm_replayed(const struct kvw_slice *frames, size_t count,
	struct kvw_vllm_message *message) KVW_MUST_CHECK;

#endif
