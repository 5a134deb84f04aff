/*
 * prompt.c - records the pieces of messages, their parts, and plain prompts.
 *
 * A message remembers the range of its content's pieces, so that messages can be folded in their
 * own order with role and name first, at whatever place in the body those were. A part of content
 * begins with a mark, a piece of no units that is filled once the part's type is known:
 *
 *	first part, plain text   0, folded as nothing: one text part means the same as a string
 *	later part, plain text   "a part begins"
 *	any other                its type
 *
 * Everything in a part that is not text becomes one piece after its text.
 */
#include <stdlib.h>

#include "openai/scan_state.h"

void prompt_begin(struct kvw_scan *scan)
{
	scan->prompts |= (uint8_t)(1u << scan->frames[0].argument);
	scan->prompt_ids = false;
	scan->prompt_first = (uint32_t)scan->text.piece_count;
	scan->chain_count = 0;
	scan->prompt_kind = PROMPT_NONE;
	scan->ids.len = 0;
}

static bool add_end(struct kvw_scan *scan, uint32_t end)
{
	if (scan->chain_count == scan->chain_capacity) {
		uint32_t capacity = scan->chain_capacity == 0 ? 16 : scan->chain_capacity * 2;
		uint32_t *ends;

		if (scan->chain_count >= SCAN_MAX_CHAINS)
			return false;
		ends = realloc(scan->chain_ends, capacity * sizeof(*ends));
		if (ends == NULL) {
			scan->no_memory = true;
			return false;
		}
		scan->chain_ends = ends;
		scan->chain_capacity = capacity;
	}
	scan->chain_ends[scan->chain_count++] = end;
	return true;
}

bool prompt_chain_end(struct kvw_scan *scan)
{
	return add_end(scan, (uint32_t)scan->text.piece_count - scan->prompt_first);
}

bool prompt_talk_end(struct kvw_scan *scan)
{
	return add_end(scan, scan->message_count);
}

void prompt_messages_begin(struct kvw_scan *scan)
{
	scan->has_messages = true;
	scan->message_count = scan->chain_count = 0;
}

bool prompt_message_open(struct kvw_scan *scan, uint64_t role)
{
	if (scan->message_count == scan->message_capacity) {
		uint32_t capacity = scan->message_capacity == 0 ? 16 : scan->message_capacity * 2;
		struct message *messages;

		if (scan->message_count >= SCAN_MAX_MESSAGES)
			return false;
		messages = realloc(scan->messages, capacity * sizeof(*messages));
		if (messages == NULL) {
			scan->no_memory = true;
			return false;
		}
		scan->messages = messages;
		scan->message_capacity = capacity;
	}
	scan->message = &scan->messages[scan->message_count++];
	*scan->message =
		(struct message){.role = role, .content = {(uint32_t)scan->text.piece_count, 0}};
	return true;
}

void prompt_system_open(struct kvw_scan *scan)
{
	scan->has_system = true;
	scan->message = &scan->system;
	scan->system = (struct message){
		.role = scan->hash_system, .content = {(uint32_t)scan->text.piece_count, 0}};
}

void prompt_content_begin(struct kvw_scan *scan)
{
	scan->text.piece_count = scan->message->content.first;
	scan->message->content.count = 0;
}

void prompt_content_end(struct kvw_scan *scan)
{
	scan->message->content.count =
		(uint32_t)scan->text.piece_count - scan->message->content.first;
}

void prompt_part_open(struct kvw_scan *scan)
{
	scan->part = (uint32_t)scan->text.piece_count;
	scan->part_type = 0;
	scan->part_dropped = false;
	kvw_text_push(&scan->text, 0, 0);
}

void prompt_part_text(struct kvw_scan *scan)
{
	scan->part_dropped = false;
	/* If pieces were lost, the mark itself may be missing. */
	if (scan->text.piece_count > scan->part)
		scan->text.piece_count = scan->part + 1;
}

void prompt_part_close(struct kvw_scan *scan, struct value members)
{
	bool plain = scan->part_type == 0;
	uint64_t mark;

	if (scan->part_dropped) {
		scan->text.piece_count = scan->part;
		return;
	}
	for (size_t i = 0; i < sizeof(scan->hash_text) / sizeof(scan->hash_text[0]); i++)
		plain = plain || scan->part_type == scan->hash_text[i];
	if (!plain || members.hash != 0)
		scan->other_parts = true;
	if (!plain)
		mark = kvw_mix(KVW_TAG_PART, scan->part_type);
	else
		mark = scan->part == scan->message->content.first ? 0 : KVW_TAG_PART;
	if (scan->text.piece_count > scan->part)
		scan->text.pieces[scan->part].hash = mark;
	if (members.hash != 0)
		kvw_text_push(&scan->text, members.hash, members.units);
}
