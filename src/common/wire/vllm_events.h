/*
 * vllm_events.h - what a vLLM engine publishes about its KV cache, decoded.
 *
 * A batch is one msgpack payload: [time, [event, ...], data-parallel rank]. Events are arrays by
 * position up to vLLM 0.23 (["BlockStored", hashes, parent, tokens, block size, ...]) and maps
 * from 0.24 on ({"type": "BlockStored", "block_hashes": ...}); both are read, member by member,
 * and so is a batch that is itself a map. What we do not know is passed over: members, events,
 * media.
 *
 * A batch is walked through once before its first event is given out. So bytes that are broken
 * refuse the whole batch and change nothing, and the caller can treat it like a lost one (ask for
 * a replay, else forget the worker).
 *
 * Source: vllm/distributed/kv_events.py; bytes recorded from vLLM 0.32 are in the tests.
 */
#ifndef KVW_VLLM_EVENTS_H
#define KVW_VLLM_EVENTS_H

#include "kvway/err.h"
#include "kvway/kv_event.h"
#include "wire/msgpack.h"

#define KVW_VLLM_PAYLOAD_MAX (16u << 20) /* bytes of one batch */
#define KVW_VLLM_BLOCKS_MAX  (1u << 20)  /* blocks of one event */
#define KVW_VLLM_TOKENS_MAX  (1u << 22)  /* token ids of one event */

/*
 * Reads batches, one after another. Keeps the arrays that events point into, which grow with the
 * largest event and never past the limits above (32 MiB). One thread.
 */
struct kvw_vllm_reader {
	struct kvw_mp mp;       /* in the events of the current batch */
	uint32_t left;          /* events of it still to read */
	double time_s;          /* when the engine sent the batch, Unix time */
	bool has_rank;          /* the batch names its data-parallel rank */
	uint32_t rank;          /* 0 if it does not */
	uint64_t events;        /* given out, since init */
	uint64_t unknown_types; /* events passed over because their type is unknown here */
	uint64_t unknown_media; /* ... or the place where the blocks lie */
	uint64_t bad_events;    /* ... or because their members do not fit together */
	const char *error;      /* static text: the last refusal of a batch or bad event */
	const char *field;      /* member that it was about; NULL: none in particular */

	uint64_t *hashes, *extra; /* owned; a pair of hash_room each */
	uint32_t *tokens;         /* owned */
	size_t hash_room, extra_room, token_room;
};

void kvw_vllm_reader_init(struct kvw_vllm_reader *reader);
void kvw_vllm_reader_finish(struct kvw_vllm_reader *reader);

/*
 * Begins a batch; the payload must stay until its last event was read. A batch left in the middle
 * is forgotten. KVW_EPROTO or KVW_ELIMIT: refused, see error; then it has no events.
 */
enum kvw_err kvw_vllm_begin(
	struct kvw_vllm_reader *reader, const void *payload, size_t len) KVW_MUST_CHECK;

/*
 * Next event, valid until the next call. KVW_ENOTFOUND: that was all. KVW_ENOMEM: this event was
 * passed over for want of memory; more may follow, but the view has a hole, as it has when
 * bad_events grew.
 */
enum kvw_err kvw_vllm_next(
	struct kvw_vllm_reader *reader, struct kvw_kv_event *event) KVW_MUST_CHECK;

#endif
