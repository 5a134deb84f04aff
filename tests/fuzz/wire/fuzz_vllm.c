/*
 * fuzz_vllm.c - the bytes are a batch of KV events, and what is true of every event given out.
 */
#include <string.h>

#include "must.h"
#include "wire/vllm_events.h"
#include "wire/vllm_frames.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads all that a slice or array shows, for the sanitizer to see. */
static uint64_t touch(const void *data, size_t len)
{
	const volatile uint8_t *bytes = data;
	uint64_t sum = 0;

	for (size_t i = 0; i < len; i++)
		sum += bytes[i];
	return sum;
}

static void check(const struct kvw_kv_event *event, size_t size)
{
	MUST(event->tier < KVW_TIER_COUNT);
	MUST(event->hash_count <= size && event->token_count <= size);
	touch(event->hashes, event->hash_count * sizeof(event->hashes[0]));
	touch(event->lora.data, event->lora.len);
	touch(event->spec_kind.data, event->spec_kind.len);
	if (event->kind == KVW_KV_CLEARED || event->kind == KVW_KV_REMOVED)
		return;
	MUST(event->block_size > 0);
	MUST(event->token_count == 0 ||
		event->token_count == (uint64_t)event->hash_count * event->block_size);
	touch(event->tokens, event->token_count * sizeof(event->tokens[0]));
	if (event->extra != NULL)
		touch(event->extra, event->hash_count * sizeof(event->extra[0]));
}

static void read_frames(const uint8_t *data, size_t size)
{
	struct kvw_slice frames[5];
	struct kvw_vllm_message message;
	size_t count = size == 0 ? 0 : data[0] % 6, at = 1;

	for (size_t i = 0; i < count; i++) { /* each begins with its length */
		size_t len = at < size ? data[at] % 12 : 0;

		at += at < size;
		len = len > size - at ? size - at : len;
		frames[i] = (struct kvw_slice){(const char *)data + at, len};
		at += len;
	}
	if (kvw_vllm_published(frames, count, &message) == KVW_OK)
		MUST(count == 3 && message.payload.data == frames[2].data);
	if (kvw_vllm_replayed(frames, count, &message) == KVW_OK)
		MUST(count >= 3 && message.payload.data == frames[count - 1].data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvw_vllm_reader reader;
	struct kvw_kv_event event;
	uint32_t total;
	enum kvw_err err;

	kvw_vllm_reader_init(&reader);
	for (int round = 0; round < 2; round++) { /* the second with arrays that have grown */
		err = kvw_vllm_begin(&reader, data, size);
		total = reader.left;
		MUST((err == KVW_OK) == (reader.error == NULL));
		MUST(err == KVW_OK || total == 0);
		MUST(total <= size);
		reader.events = reader.unknown_types = 0;
		reader.unknown_media = reader.bad_events = 0;
		while ((err = kvw_vllm_next(&reader, &event)) == KVW_OK)
			check(&event, size);
		MUST(err == KVW_ENOTFOUND);
		MUST(reader.events + reader.unknown_types + reader.unknown_media +
				reader.bad_events ==
			total);
	}
	kvw_vllm_reader_finish(&reader);
	read_frames(data, size);
	return 0;
}
