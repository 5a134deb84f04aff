/*
 * event_record.c - writes and reads records. Layout: head, tokens, hashes, parent, LoRA's name with its final
 * 0. Tokens come first because only they need alignment.
 */
#include <string.h>

#include "events/event_record.h"

struct head {
	uint8_t kind, tier, hash_bytes, has_parent;
	uint32_t count, block_size;
	uint32_t tokens;     /* number of token ids; 0: not given */
	uint32_t lora_bytes; /* with its final 0; 0: there is no adapter */
	uint32_t unused;
};

#define BLOCKS_MAX (1u << 20)

/* Returns the head of the record for these blocks; all zero if they make no event. */
static struct head head_of(enum kvt_event_kind kind, uint32_t tier, const struct kvt_blocks *blocks)
{
	struct head head = {.kind = (uint8_t)kind, .tier = (uint8_t)tier};
	uint64_t tokens;

	if (kind == KVT_EVENT_CLEARED)
		return head;
	if (blocks == NULL || blocks->hashes == NULL || blocks->count == 0 ||
		blocks->count > BLOCKS_MAX ||
		(blocks->hash_bytes != 8 && blocks->hash_bytes != 16 && blocks->hash_bytes != 32))
		return (struct head){0};
	head.hash_bytes = (uint8_t)blocks->hash_bytes;
	head.count = blocks->count;
	if (kind == KVT_EVENT_REMOVED)
		return head;
	tokens = (uint64_t)blocks->count * blocks->block_size;
	if (blocks->tokens != NULL && tokens > KVT_EVENT_RECORD_MAX)
		return (struct head){0};
	head.block_size = blocks->block_size;
	head.tokens = blocks->tokens == NULL ? 0 : (uint32_t)tokens;
	head.has_parent = blocks->parent != NULL;
	if (blocks->lora_name != NULL) {
		size_t len = strnlen(blocks->lora_name, KVT_EVENT_RECORD_MAX);

		head.lora_bytes = (uint32_t)len + 1;
	}
	return head;
}

static uint64_t bytes_of(const struct head *head)
{
	return sizeof(*head) + (uint64_t)head->tokens * sizeof(uint32_t) +
	       ((uint64_t)head->count + head->has_parent) * head->hash_bytes + head->lora_bytes;
}

size_t kvt_event_record_size(enum kvt_event_kind kind, const struct kvt_blocks *blocks)
{
	struct head head = head_of(kind, 0, blocks);
	uint64_t bytes = bytes_of(&head);

	return head.kind == 0 || bytes > KVT_EVENT_RECORD_MAX ? 0 : (size_t)bytes;
}

void kvt_event_record_write(
	void *to, enum kvt_event_kind kind, uint32_t tier, const struct kvt_blocks *blocks)
{
	struct head head = head_of(kind, tier, blocks);
	uint8_t *at = (uint8_t *)to + sizeof(head);

	memcpy(to, &head, sizeof(head));
	if (head.tokens > 0) {
		memcpy(at, blocks->tokens, head.tokens * sizeof(uint32_t));
		at += head.tokens * sizeof(uint32_t);
	}
	if (head.count > 0) {
		memcpy(at, blocks->hashes, (size_t)head.count * head.hash_bytes);
		at += (size_t)head.count * head.hash_bytes;
	}
	if (head.has_parent) {
		memcpy(at, blocks->parent, head.hash_bytes);
		at += head.hash_bytes;
	}
	if (head.lora_bytes > 0) {
		memcpy(at, blocks->lora_name, head.lora_bytes - 1);
		at[head.lora_bytes - 1] = 0;
	}
}

void kvt_event_record_read(const void *record, uint64_t sequence, struct kvt_event *event)
{
	const struct head *head = record;
	const uint8_t *tokens = (const uint8_t *)record + sizeof(*head);
	const uint8_t *hashes = tokens + head->tokens * sizeof(uint32_t);
	const uint8_t *parent = hashes + (size_t)head->count * head->hash_bytes;
	const uint8_t *lora = parent + (head->has_parent ? head->hash_bytes : 0);

	*event = (struct kvt_event){
		.sequence = sequence,
		.kind = head->kind,
		.tier = head->tier,
		.hashes = head->count > 0 ? hashes : NULL,
		.hash_bytes = head->hash_bytes,
		.count = head->count,
		.parent = head->has_parent ? parent : NULL,
		.tokens = head->tokens > 0 ? (const uint32_t *)(const void *)tokens : NULL,
		.block_size = head->block_size,
		.lora_name = head->lora_bytes > 0 ? (const char *)lora : NULL,
	};
}
