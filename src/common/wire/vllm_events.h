/*
 * vllm_events.h - decodes the events that a vLLM engine publishes about its KV cache.
 *
 * A batch is one msgpack payload: [time, [event, ...], data-parallel rank]. Events are arrays by
 * position up to vLLM 0.23 (["BlockStored", hashes, parent, tokens, block size, ...]) and maps from
 * 0.24 on ({"type": "BlockStored", "block_hashes": ...}); both are read, member by member, and so
 * is a batch that is itself a map. Unknown members, events and media are skipped.
 *
 * The reader first walks through the whole batch, before it returns the first event. So a malformed
 * batch is refused whole and changes no state, and the caller can treat it like a lost one (request
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
#define KVW_VLLM_TOKENS_MAX  (1u << 22)  /* most token ids of one event */

/*
 * Reads batches, one after another. Keeps the arrays into which events point; they grow with the
 * largest event, up to the limits above (32 MiB). One thread.
 */
struct kvw_vllm_reader {
	struct kvw_mp mp;       /* position in the events of the current batch */
	uint32_t left;          /* number of events of the batch that were not read yet */
	double time_s;          /* Unix time when the engine sent the batch */
	bool has_rank;          /* the batch has a data-parallel rank */
	uint32_t rank;          /* 0 if not named */
	uint64_t events;        /* events returned since init */
	uint64_t unknown_types; /* number of events skipped because their type is unknown */
	uint64_t unknown_media; /* ... for an unknown medium */
	uint64_t bad_events;    /* ... for inconsistent members */
	/* static text: why the last batch was refused, or the last event was bad */
	const char *error;
	const char *field;      /* the member that caused it; NULL: no single member did */

	uint64_t *hashes, *extra; /* owned; both have room for hash_room items */
	uint32_t *tokens;         /* owned */
	size_t hash_room, extra_room, token_room;
};

void kvw_vllm_reader_init(struct kvw_vllm_reader *reader);
void kvw_vllm_reader_finish(struct kvw_vllm_reader *reader);

/*
 * Begins a batch. The payload must stay until its last event was read. If the batch before is
 * incomplete, its rest is dropped. KVW_EPROTO or KVW_ELIMIT: the batch is refused, `error` has the
 * reason, and the batch has no events.
 */
enum kvw_err kvw_vllm_begin(
	struct kvw_vllm_reader *reader, const void *payload, size_t len) KVW_MUST_CHECK;

/*
 * Reads the next event, which is valid until the next call. KVW_ENOTFOUND: there are no more
 * events. KVW_ENOMEM: memory was too short for this event, and it was skipped. More events may
 * follow, but the caller now lacks one, as it does after bad_events has increased.
 */
enum kvw_err kvw_vllm_next(
	struct kvw_vllm_reader *reader, struct kvw_kv_event *event) KVW_MUST_CHECK;

#endif
