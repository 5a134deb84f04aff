/*
 * vllm_held.c - a bounded queue of live batches.
 */
#include "feeds/vllm_held.h"

#include <stdlib.h>

static bool grow(struct kvw_vllm_held *held)
{
	size_t room = held->room == 0 ? 16 : 2 * held->room;
	struct kvw_vllm_held_batch *items;

	if (held->count == KVW_VLLM_HELD_BATCHES)
		return false;
	items = calloc(room, sizeof(*items));
	if (items == NULL)
		return false;
	/* Moved one by one by ZeroMQ's own function, since a message may contain pointers into
	 * itself. */
	for (size_t i = 0; i < held->count; i++) {
		struct kvw_vllm_held_batch *from = &held->items[(held->first + i) % held->room];

		items[i].sequence = from->sequence;
		zmq_msg_init(&items[i].payload);
		zmq_msg_move(&items[i].payload, &from->payload);
		zmq_msg_close(&from->payload);
	}
	free(held->items);
	held->items = items;
	held->room = room;
	held->first = 0;
	return true;
}

bool kvw_vllm_held_push(struct kvw_vllm_held *held, uint64_t sequence, zmq_msg_t *payload)
{
	size_t bytes = zmq_msg_size(payload);
	struct kvw_vllm_held_batch *item;

	if (bytes > KVW_VLLM_HELD_BYTES - held->bytes)
		return false;
	if (held->count == held->room && !grow(held))
		return false;
	item = &held->items[(held->first + held->count) % held->room];
	item->sequence = sequence;
	zmq_msg_init(&item->payload);
	zmq_msg_move(&item->payload, payload);
	held->count++;
	held->bytes += bytes;
	return true;
}

struct kvw_vllm_held_batch *kvw_vllm_held_first(struct kvw_vllm_held *held)
{
	return held->count == 0 ? NULL : &held->items[held->first];
}

void kvw_vllm_held_drop_first(struct kvw_vllm_held *held)
{
	struct kvw_vllm_held_batch *item = &held->items[held->first];

	held->bytes -= zmq_msg_size(&item->payload);
	zmq_msg_close(&item->payload);
	held->first = (held->first + 1) % held->room;
	held->count--;
}

void kvw_vllm_held_finish(struct kvw_vllm_held *held)
{
	while (held->count > 0)
		kvw_vllm_held_drop_first(held);
	free(held->items);
	*held = (struct kvw_vllm_held){.items = NULL};
}
