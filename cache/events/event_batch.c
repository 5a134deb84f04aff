/*
 * event_batch.c - encodes events with msgpack-c's packer, which is all inline functions.
 */
#include <stdlib.h>
#include <string.h>

#include <msgpack/pack.h>

#include "events/event_batch.h"

#define TEXT_MAX 1024u /* most bytes of an adapter's name in an event */

void kvt_packed_finish(struct kvt_packed *packed)
{
	free(packed->data);
	*packed = (struct kvt_packed){0};
}

static int append(void *self, const char *bytes, size_t len)
{
	struct kvt_packed *packed = self;

	if (packed->failed)
		return -1;
	if (packed->size - packed->len < len) {
		size_t size = packed->size == 0 ? 4096 : packed->size;
		uint8_t *grown;

		while (size - packed->len < len)
			size *= 2;
		grown = realloc(packed->data, size);
		if (grown == NULL) {
			packed->failed = true;
			return -1;
		}
		packed->data = grown;
		packed->size = size;
	}
	memcpy(packed->data + packed->len, bytes, len);
	packed->len += len;
	return 0;
}

static void put_text(msgpack_packer *pk, const char *text)
{
	size_t len = strlen(text);

	msgpack_pack_str(pk, len);
	msgpack_pack_str_body(pk, text, len);
}

/* Returns the length of the UTF-8 character at `at`, at most up to `end`; 0: there is no valid
 * one. */
static size_t utf8_length(const uint8_t *at, const uint8_t *end)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t len = at[0] < 0x80       ? 1
		     : at[0] >> 5 == 6  ? 2
		     : at[0] >> 4 == 14 ? 3
		     : at[0] >> 3 == 30 ? 4
					: 0;
	uint32_t code;

	if (len < 2)
		return len;
	if ((size_t)(end - at) < len)
		return 0;
	code = at[0] & (0x7fu >> len);
	for (size_t i = 1; i < len; i++) {
		if (at[i] >> 6 != 2)
			return 0;
		code = code << 6 | (at[i] & 0x3fu);
	}
	return code < least[len] || code > 0x10ffff || code >> 11 == 0x1b ? 0 : len;
}

/* Writes text that may not be UTF-8: for one wrong byte a decoder would refuse the whole batch. */
static void put_foreign_text(msgpack_packer *pk, const char *text)
{
	char clean[TEXT_MAX];
	size_t len = strnlen(text, sizeof(clean)), at = 0;

	memcpy(clean, text, len);
	while (at < len) {
		size_t step =
			utf8_length((const uint8_t *)clean + at, (const uint8_t *)clean + len);

		if (step == 0)
			clean[at] = '?';
		at += step == 0 ? 1 : step;
	}
	msgpack_pack_str(pk, len);
	msgpack_pack_str_body(pk, clean, len);
}

static void put_hash(msgpack_packer *pk, const uint8_t *hash, uint32_t bytes)
{
	uint64_t number = 0;

	if (bytes != 8) {
		msgpack_pack_bin(pk, bytes);
		msgpack_pack_bin_body(pk, hash, bytes);
		return;
	}
	for (uint32_t i = 0; i < 8; i++)
		number = number << 8 | hash[i];
	msgpack_pack_uint64(pk, number);
}

static void put_hashes(msgpack_packer *pk, const struct kvt_event *event)
{
	put_text(pk, "block_hashes");
	msgpack_pack_array(pk, event->count);
	for (uint32_t i = 0; i < event->count; i++)
		put_hash(pk, event->hashes + (size_t)i * event->hash_bytes, event->hash_bytes);
}

static const char *locality_of(uint32_t tier)
{
	return tier == KVT_TIER_NVME ? "LOCAL" : tier == KVT_TIER_L2 ? "REMOTE" : NULL;
}

static void put_medium(msgpack_packer *pk, uint32_t tier)
{
	put_text(pk, "medium");
	put_text(pk, tier == KVT_TIER_L1 ? "CPU" : "STORAGE");
}

static void put_locality(msgpack_packer *pk, uint32_t tier)
{
	if (locality_of(tier) == NULL)
		return;
	put_text(pk, "locality");
	put_text(pk, locality_of(tier));
}

static void put_stored(msgpack_packer *pk, const struct kvt_event *event)
{
	size_t tokens = event->tokens == NULL ? 0 : (size_t)event->count * event->block_size;

	put_text(pk, "BlockStored");
	put_hashes(pk, event);
	put_text(pk, "parent_block_hash");
	if (event->parent == NULL)
		msgpack_pack_nil(pk);
	else
		put_hash(pk, event->parent, event->hash_bytes);
	put_text(pk, "token_ids");
	msgpack_pack_array(pk, tokens);
	for (size_t i = 0; i < tokens; i++)
		msgpack_pack_uint32(pk, event->tokens[i]);
	put_text(pk, "block_size");
	msgpack_pack_uint32(pk, event->block_size);
	put_text(pk, "lora_id");
	msgpack_pack_nil(pk);
	put_medium(pk, event->tier);
	put_text(pk, "lora_name");
	if (event->lora_name == NULL)
		msgpack_pack_nil(pk);
	else
		put_foreign_text(pk, event->lora_name);
}

static void put_event(msgpack_packer *pk, const struct kvt_event *event)
{
	size_t last = locality_of(event->tier) != NULL;

	msgpack_pack_map(pk, last + (event->kind == KVT_EVENT_STORED           ? 8
					    : event->kind == KVT_EVENT_REMOVED ? 3
									       : 2));
	put_text(pk, "type");
	switch ((enum kvt_event_kind)event->kind) {
	case KVT_EVENT_STORED:
		put_stored(pk, event);
		break;
	case KVT_EVENT_REMOVED:
		put_text(pk, "BlockRemoved");
		put_hashes(pk, event);
		put_medium(pk, event->tier);
		break;
	case KVT_EVENT_CLEARED:
		put_text(pk, "AllBlocksCleared");
		put_medium(pk, event->tier);
		break;
	}
	put_locality(pk, event->tier);
}

enum kvt_status kvt_event_batch_pack(
	struct kvt_packed *packed, int64_t wall_ns, const struct kvt_event *events, size_t count)
{
	const int64_t second = 1000000000;
	msgpack_packer pk;

	packed->len = 0;
	packed->failed = false;
	msgpack_packer_init(&pk, packed, append);
	msgpack_pack_array(&pk, 3);
	msgpack_pack_double(
		&pk, (double)(wall_ns / second) + (double)(wall_ns % second) / (double)second);
	msgpack_pack_array(&pk, count);
	for (size_t i = 0; i < count; i++)
		put_event(&pk, &events[i]);
	msgpack_pack_uint32(&pk, 0);
	return packed->failed ? KVT_ENOMEM : KVT_OK;
}
