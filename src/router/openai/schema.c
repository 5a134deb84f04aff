/*
 * schema.c - handles each value of a request body, by its meaning.
 *
 * A value's container and key have decided its meaning (keys.c). A value of a wrong type ends the
 * scan, since a worker's reading of `"stream": "yes"` is unknown. null means absent, except inside
 * tools and other opaque values.
 *
 * Of duplicate keys the last one counts, at every level, as in the workers' own parser.
 */
#include <stdlib.h>
#include <string.h>

#include "openai/scan_state.h"

/* Ends a value that is only hashed. */
static bool value_done(struct kvw_scan *scan, struct value value)
{
	struct frame *frame = scan_top(scan);

	switch ((enum node)frame->member) {
	case NODE_VALUE:
		if (!frame->list)
			return value_member(scan, frame, value);
		frame->value = kvw_mix(frame->value, value.hash);
		frame->units += value.units;
		return true;
	case NODE_SETTING:
		scan->settings[frame->argument] = value.hash;
		return true;
	case NODE_TOOL:
		kvw_text_push(&scan->text, value.hash, value.units);
		return true;
	case NODE_ROLE:
		scan->message->role = value.hash;
		return true;
	case NODE_ITEM_TYPE:
		scan->message->type = value.hash == scan->hash_message ? 0 : value.hash;
		return true;
	case NODE_CALLS:
		scan->message->calls[frame->argument] = value;
		return true;
	case NODE_PART_TYPE:
		scan->part_type = value.hash;
		return true;
	default:
		return true;
	}
}

/* Begins a string that is content: first notes where its pieces begin. */
static bool content_begin(struct kvw_scan *scan, struct frame *frame)
{
	switch ((enum node)frame->member) {
	case NODE_PROMPT:
		prompt_begin(scan);
		break;
	case NODE_PROMPT_ITEM:
		if (frame->kind != PROMPT_NONE && frame->kind != PROMPT_STRINGS)
			return false;
		frame->kind = PROMPT_STRINGS;
		break;
	case NODE_INPUT:
		prompt_messages_begin(scan);
		if (!prompt_message_open(scan, scan->hash_user))
			return false;
		break;
	case NODE_SYSTEM:
		prompt_system_open(scan);
		break;
	case NODE_CONTENT:
		prompt_content_begin(scan);
		break;
	case NODE_PART:
		prompt_part_open(scan);
		break;
	case NODE_PART_TEXT:
		prompt_part_text(scan);
		break;
	default:
		return false;
	}
	kvw_text_begin(&scan->text, KVW_TEXT_PIECES);
	scan->matching = scan->message == &scan->system && scan->api != KVW_API_RESPONSES &&
			 (frame->member == NODE_PART || frame->member == NODE_PART_TEXT);
	scan->matched = 0;
	return true;
}

bool schema_string_begin(struct kvw_scan *scan)
{
	struct frame *frame = scan_top(scan);

	scan->sink = SINK_TEXT;
	scan->matching = false;
	switch ((enum node)frame->member) {
	case NODE_UNKNOWN:
		scan->unknown |= (uint8_t)(1u << frame->argument);
		__attribute__((fallthrough));
	case NODE_SKIP:
	case NODE_SAMPLING:
	case NODE_KV_PARAMS:
	case NODE_FRAGMENTS:
		kvw_text_begin(&scan->text, KVW_TEXT_NOTHING);
		return true;
	case NODE_SLOT:
		scan->sink = SINK_SLOT;
		scan->slots[frame->argument] = (struct range){(uint32_t)scan->held.len, 0};
		return true;
	case NODE_VALUE:
	case NODE_SETTING:
	case NODE_ROLE:
	case NODE_ITEM_TYPE:
	case NODE_CALLS:
	case NODE_PART_TYPE:
		kvw_text_begin(&scan->text, KVW_TEXT_VALUE);
		return true;
	default:
		return content_begin(scan, frame);
	}
}

bool schema_string_end(struct kvw_scan *scan)
{
	struct frame *frame = scan_top(scan);
	struct value value;

	if (scan->sink == SINK_SLOT) {
		struct range *slot = &scan->slots[frame->argument];

		slot->count = (uint32_t)scan->held.len - slot->first;
		return true;
	}
	if (frame->member == NODE_SKIP || frame->member == NODE_UNKNOWN ||
		frame->member == NODE_SAMPLING || frame->member == NODE_KV_PARAMS ||
		frame->member == NODE_FRAGMENTS)
		return true;
	value.hash = kvw_text_end(&scan->text);
	value.units = scan->text.units;
	if (scan->text.mode == KVW_TEXT_VALUE)
		return value_done(scan, value);
	switch ((enum node)frame->member) {
	case NODE_PROMPT:
	case NODE_PROMPT_ITEM:
		return prompt_chain_end(scan);
	case NODE_PART:
		prompt_part_close(scan, (struct value){0, 0});
		return true;
	case NODE_PART_TEXT:
		return true;
	default:
		prompt_content_end(scan);
		return true;
	}
}

static bool keep_id(struct kvw_scan *scan, uint32_t id)
{
	return buffer_append(scan, &scan->ids, (const char *)&id, sizeof(id));
}

/* Takes a token id of which all digits have come. */
static bool take_id(struct kvw_scan *scan, const char *text, size_t len)
{
	uint64_t id = 0;

	if (len == 2 && memcmp(text, "-0", 2) == 0) {
		text++;
		len = 1;
	}
	if (len > 10)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		id = id * 10 + (uint64_t)(text[i] - '0');
	}
	if (id > UINT32_MAX)
		return false;
	kvw_text_put_id(&scan->text, (uint32_t)id);
	return !scan->keep_ids || keep_id(scan, (uint32_t)id);
}

bool schema_keep_ids(struct kvw_scan *scan, const char *p, const char *end)
{
	uint32_t id = 0;

	for (; p < end; p++) {
		if (*p >= '0' && *p <= '9')
			id = id * 10 + (uint32_t)(*p - '0');
		if (*p != ',')
			continue;
		if (!keep_id(scan, id))
			return false;
		id = 0;
	}
	return true;
}

/* Reads a requested number of answers or tokens; 0: not a valid number, which the worker
 * refuses. */
static uint32_t number_of(const char *text, size_t len, size_t most_digits)
{
	uint32_t n = 0;

	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9' || len > most_digits)
			return 0;
		n = n * 10 + (uint32_t)(text[i] - '0');
	}
	return n;
}

/* Returns whether vLLM samples greedily at this temperature, which it does below 1e-5. */
static bool is_greedy(const char *text, size_t len)
{
	char copy[32];

	if (len >= sizeof(copy))
		return false;
	memcpy(copy, text, len);
	copy[len] = '\0';
	return strtod(copy, NULL) < 1e-5;
}

bool schema_number(struct kvw_scan *scan, const char *text, size_t len)
{
	struct frame *frame = scan_top(scan);

	switch ((enum node)frame->member) {
	case NODE_UNKNOWN:
		scan->unknown |= (uint8_t)(1u << frame->argument);
		return true;
	case NODE_SKIP:
		if (frame->node != NODE_ROOT && frame->node != NODE_SAMPLING)
			return true;
		if (frame->argument == SKIP_TEMPERATURE)
			scan->greedy = is_greedy(text, len);
		else if (frame->argument != SKIP_ALL)
			*scan_skipped(scan, frame->argument) =
				number_of(text, len, frame->argument == SKIP_CHOICES ? 5 : 9);
		return true;
	case NODE_SAMPLING:
	case NODE_KV_PARAMS:
	case NODE_FRAGMENTS:
		return true;
	case NODE_SLOT: /* a session field must be a string, and is ignored otherwise */
		scan->slots[frame->argument].first = UINT32_MAX;
		return frame->argument >= SLOT_SESSION;
	case NODE_VALUE:
	case NODE_SETTING:
		return value_done(scan, value_number(text, len));
	case NODE_PROMPT_ITEM:
		if (frame->kind != PROMPT_NONE)
			return false;
		frame->kind = PROMPT_IDS;
		frame->member = NODE_ID;
		scan->prompt_ids = true;
		kvw_text_begin(&scan->text, KVW_TEXT_PIECES);
		return take_id(scan, text, len);
	case NODE_ID:
		return take_id(scan, text, len);
	default:
		return false;
	}
}

/* Handles null as if the member was absent. */
static bool take_null(struct kvw_scan *scan, struct frame *frame)
{
	bool opaque = frame->node != NODE_MESSAGE && frame->node != NODE_PART;

	switch ((enum node)frame->member) {
	case NODE_SLOT:
		scan->slots[frame->argument].first = UINT32_MAX;
		return true;
	case NODE_STREAM:
		scan->stream = false;
		return true;
	case NODE_STREAM_OPTIONS:
	case NODE_INCLUDE_USAGE:
		scan->include_usage = false;
		return true;
	case NODE_KV_PARAMS:
	case NODE_FRAGMENTS:
		scan->exact_only = false;
		return true;
	case NODE_SETTING:
	case NODE_ROLE:
	case NODE_ITEM_TYPE:
	case NODE_CALLS:
	case NODE_PART_TYPE:
		return value_done(scan, (struct value){0, 0});
	case NODE_VALUE:
		return value_done(scan, (struct value){opaque ? KVW_TAG_NULL : 0, opaque ? 4 : 0});
	case NODE_TOOLS:
		scan->tools.count = 0;
		return true;
	case NODE_FUNCTIONS:
		scan->functions.count = 0;
		return true;
	case NODE_SYSTEM:
		scan->has_system = false;
		return true;
	case NODE_INPUT:
	case NODE_MESSAGES:
		scan->has_messages = false;
		return true;
	case NODE_CONTENT:
		prompt_content_begin(scan);
		return true;
	case NODE_PART_TEXT:
		prompt_part_text(scan);
		return true;
	case NODE_PROMPT:
		scan->prompts &= (uint8_t) ~(1u << frame->argument);
		return true;
	case NODE_UNKNOWN:
		scan->unknown &= (uint8_t) ~(1u << frame->argument);
		return true;
	case NODE_SAMPLING:
	case NODE_SKIP:
		return true;
	default:
		return false;
	}
}

bool schema_literal(struct kvw_scan *scan, char first)
{
	struct frame *frame = scan_top(scan);

	if (first == 'n')
		return take_null(scan, frame);
	switch ((enum node)frame->member) {
	case NODE_STREAM:
		scan->stream = first == 't';
		return true;
	case NODE_INCLUDE_USAGE:
		scan->include_usage = first == 't';
		return true;
	case NODE_FRAGMENTS:
		scan->exact_only = first == 'f';
		return true;
	case NODE_SAMPLING:
	case NODE_KV_PARAMS:
		return true; /* the worker may refuse it */
	case NODE_VALUE:
	case NODE_SETTING:
		return value_done(
			scan, (struct value){first == 't' ? KVW_TAG_TRUE : KVW_TAG_FALSE, 4});
	case NODE_SLOT:
		scan->slots[frame->argument].first = UINT32_MAX;
		return frame->argument >= SLOT_SESSION;
	case NODE_UNKNOWN:
		scan->unknown |= (uint8_t)(1u << frame->argument);
		return true;
	default:
		return frame->member == NODE_SKIP;
	}
}

/* Pushes a frame. member: the meaning of a list's elements. */
static bool push_node(struct kvw_scan *scan, bool list, enum node node, enum node member)
{
	struct frame *frame = &scan->frames[scan->depth++];

	*frame = (struct frame){.value = KVW_TAG_ARRAY,
		.first = scan->member_count,
		.node = (uint8_t)node,
		.member = (uint8_t)member,
		.list = list};
	return true;
}

/* Opens a container that can only be a list. */
static bool open_list(struct kvw_scan *scan, struct frame *frame)
{
	uint32_t pieces = (uint32_t)scan->text.piece_count;

	switch ((enum node)frame->member) {
	case NODE_TOOLS:
		scan->tools.first = pieces;
		return push_node(scan, true, NODE_TOOLS, NODE_TOOL);
	case NODE_FUNCTIONS:
		scan->functions.first = pieces;
		return push_node(scan, true, NODE_FUNCTIONS, NODE_TOOL);
	case NODE_SYSTEM:
		prompt_system_open(scan);
		return push_node(scan, true, NODE_CONTENT, NODE_PART);
	case NODE_CONTENT:
		prompt_content_begin(scan);
		return push_node(scan, true, NODE_CONTENT, NODE_PART);
	case NODE_INPUT:
	case NODE_MESSAGES:
		prompt_messages_begin(scan);
		return push_node(scan, true, NODE_MESSAGES, NODE_MESSAGE);
	case NODE_PROMPT:
		prompt_begin(scan);
		return push_node(scan, true, NODE_PROMPT, NODE_PROMPT_ITEM);
	case NODE_PROMPT_ITEM:
		if (frame->kind != PROMPT_NONE && frame->kind != PROMPT_LISTS)
			return false;
		frame->kind = PROMPT_LISTS;
		scan->prompt_ids = true;
		kvw_text_begin(&scan->text, KVW_TEXT_PIECES);
		return push_node(scan, true, NODE_IDS, NODE_ID);
	default:
		return false;
	}
}

bool schema_open(struct kvw_scan *scan, bool list)
{
	struct frame *frame;

	if (scan->depth == 0)
		return push_node(scan, false, NODE_ROOT, NODE_SKIP);
	frame = scan_top(scan);
	switch ((enum node)frame->member) {
	case NODE_UNKNOWN:
		scan->unknown |= (uint8_t)(1u << frame->argument);
		return push_node(scan, list, NODE_SKIP, NODE_SKIP);
	case NODE_SLOT:
		scan->slots[frame->argument].first = UINT32_MAX;
		if (frame->argument < SLOT_SESSION)
			return false;
		__attribute__((fallthrough));
	case NODE_SKIP:
		(void)push_node(scan, list, NODE_SKIP, NODE_SKIP);
		scan_top(scan)->holds = frame->node == NODE_ROOT && frame->holds;
		scan_top(scan)->inside = list ? 0 : frame->within;
		return true;
	case NODE_VALUE:
	case NODE_SETTING:
	case NODE_CALLS:
		return push_node(scan, list, NODE_VALUE, NODE_VALUE);
	case NODE_KV_PARAMS:
		scan->exact_only = false;
		return push_node(scan, list, list ? NODE_SKIP : NODE_KV_PARAMS, NODE_SKIP);
	case NODE_FRAGMENTS:
		return push_node(scan, list, NODE_SKIP, NODE_SKIP);
	case NODE_SAMPLING:
		return push_node(scan, list, list ? NODE_SKIP : NODE_SAMPLING, NODE_SKIP);
	case NODE_STREAM_OPTIONS:
		scan->include_usage = false;
		return !list && push_node(scan, false, NODE_STREAM_OPTIONS, NODE_SKIP);
	case NODE_TOOL:
		return !list && push_node(scan, false, NODE_TOOL, NODE_VALUE);
	case NODE_MESSAGE:
		if (scan->api == KVW_API_CHAT_BATCH && frame->node != NODE_TALK)
			return list && push_node(scan, true, NODE_TALK, NODE_MESSAGE);
		return !list && prompt_message_open(scan, 0) &&
		       push_node(scan, false, NODE_MESSAGE, NODE_VALUE);
	case NODE_PART:
		if (list)
			return false;
		prompt_part_open(scan);
		return push_node(scan, false, NODE_PART, NODE_VALUE);
	default:
		return list && open_list(scan, frame);
	}
}

static bool close_prompt(struct kvw_scan *scan, const struct frame *frame)
{
	if (frame->node == NODE_PROMPT)
		scan->prompt_kind = frame->kind;
	if (frame->node == NODE_IDS || frame->kind == PROMPT_IDS)
		kvw_text_end_ids(&scan->text);
	else if (frame->kind != PROMPT_NONE)
		return true; /* its elements have become chains already */
	return prompt_chain_end(scan);
}

bool schema_close(struct kvw_scan *scan)
{
	const struct frame *frame = scan_top(scan);
	uint32_t pieces = (uint32_t)scan->text.piece_count;
	struct value value = {frame->value, frame->units};

	scan->depth--;
	switch ((enum node)frame->node) {
	case NODE_VALUE:
	case NODE_TOOL:
		if (!frame->list)
			value = value_take_members(scan, frame);
		if (value.hash == 0) /* {} is not absent */
			value.hash = KVW_TAG_OBJECT;
		return value_done(scan, value);
	case NODE_TOOLS:
		scan->tools.count = pieces - scan->tools.first;
		return true;
	case NODE_FUNCTIONS:
		scan->functions.count = pieces - scan->functions.first;
		return true;
	case NODE_MESSAGE:
		scan->message->extra = value_take_members(scan, frame);
		return true;
	case NODE_TALK:
		return prompt_talk_end(scan);
	case NODE_CONTENT:
		prompt_content_end(scan);
		return true;
	case NODE_PART:
		prompt_part_close(scan, value_take_members(scan, frame));
		return true;
	case NODE_PROMPT:
	case NODE_IDS:
		return close_prompt(scan, frame);
	default:
		return true;
	}
}
