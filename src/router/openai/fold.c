/*
 * fold.c - folds pieces, in the order of the body, into the chain, in the order of the prompt.
 *
 * h0 = format, kind of prompt, model, salt, settings of the template. Then tools, system, messages;
 * within a message role and type, members other than content, content, calls. A piece of no units
 * changes all later hashes but is no chunk of its own.
 *
 * LoRA adapters are named by the model field, so the model's name covers them.
 */
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "openai/scan_state.h"

/* How far the fold has come. */
struct fold {
	uint64_t hash;
	uint32_t units;
	struct kvw_chunk *next; /* where the next chunk is written; its room was reserved before */
};

static inline void fold_pieces(struct fold *fold, const struct kvw_piece *pieces, uint32_t count)
{
	uint64_t changed = fold->hash ^ KVW_MIX_FIRST;
	struct kvw_chunk *next = fold->next;
	uint32_t units = fold->units;

	for (uint32_t i = 0; i < count; i++) {
		if (pieces[i].hash == 0 && pieces[i].units == 0)
			continue;
		changed = kvw_mix_on(changed, pieces[i].hash);
		units += pieces[i].units;
		*next = (struct kvw_chunk){changed ^ KVW_MIX_FIRST, units, 0};
		/* a piece without units makes no chunk: the next one overwrites it */
		next += pieces[i].units > 0;
	}
	*fold = (struct fold){changed ^ KVW_MIX_FIRST, units, next};
}

static inline void fold_piece(struct fold *fold, uint64_t hash, uint32_t units)
{
	fold_pieces(fold, &(struct kvw_piece){.hash = hash, .units = units}, 1);
}

static void fold_range(const struct kvw_scan *scan, struct fold *fold, struct range range)
{
	if (range.count > 0) /* otherwise `pieces` may be NULL */
		fold_pieces(fold, scan->text.pieces + range.first, range.count);
}

static void fold_tools(
	const struct kvw_scan *scan, struct fold *fold, uint64_t tag, struct range tools)
{
	if (tools.count == 0)
		return;
	fold->hash = kvw_mix(fold->hash, tag);
	fold_range(scan, fold, tools);
}

static void fold_message(
	const struct kvw_scan *scan, struct fold *fold, const struct message *message)
{
	uint64_t head = kvw_mix(kvw_mix(KVW_TAG_MESSAGE, message->role), message->type);

	fold->hash = kvw_mix(fold->hash, head);
	fold->units += KVW_MESSAGE_UNITS;
	fold_piece(fold, message->extra.hash, message->extra.units);
	fold_range(scan, fold, message->content);
	fold_piece(fold, message->calls[0].hash, message->calls[0].units);
	fold_piece(fold, message->calls[1].hash, message->calls[1].units);
}

static uint64_t slot_hash(const struct kvw_scan *scan, enum slot slot)
{
	struct range range = scan->slots[slot];

	if (range.first == UINT32_MAX)
		return 0;
	if (range.count == 0) /* then the buffer may be empty, too */
		return XXH3_64bits("", 0);
	return XXH3_64bits(scan->held.data + range.first, range.count);
}

/* Returns whether an explicit setting equals the default, so that it counts as absent. */
static bool is_default(const struct kvw_scan *scan, unsigned setting, bool talk)
{
	uint64_t value = scan->settings[setting];

	switch (setting) {
	case SETTING_ADD_GENERATION_PROMPT:
		return value == KVW_TAG_TRUE;
	case SETTING_CONTINUE_FINAL_MESSAGE:
		return value == KVW_TAG_FALSE;
	case SETTING_ADD_SPECIAL_TOKENS:
		return value == (talk ? KVW_TAG_FALSE : KVW_TAG_TRUE);
	default:
		return value == 0;
	}
}

static uint64_t seed_of(const struct kvw_scan *scan, bool talk)
{
	uint64_t hash = kvw_mix(KVW_TAG_SEED, KVW_CHAIN_VERSION);

	hash = kvw_mix(hash, talk ? KVW_TAG_TALK : KVW_TAG_TEXT);
	hash = kvw_mix(hash, slot_hash(scan, SLOT_MODEL));
	hash = kvw_mix(hash, slot_hash(scan, SLOT_SALT));
	for (unsigned i = 0; i < SETTING_COUNT; i++) {
		if (scan->settings[i] != 0 && !is_default(scan, i, talk))
			hash = kvw_mix(kvw_mix(hash, i + 1), scan->settings[i]);
	}
	return hash;
}

/* Makes room for the chunks, and for at least some even if there are none. */
static enum kvw_err reserve(struct kvw_scan *scan, uint32_t count)
{
	uint32_t capacity = count + count / 2 + 16;
	struct kvw_chunk *chunks;

	if (scan->chunks != NULL && count <= scan->chunk_capacity)
		return KVW_OK;
	chunks = realloc(scan->chunks, capacity * sizeof(*chunks));
	if (chunks == NULL)
		return KVW_ENOMEM;
	scan->chunks = chunks;
	scan->chunk_capacity = capacity;
	return KVW_OK;
}

static enum kvw_err fold_prompts(struct kvw_scan *scan, struct kvw_route_request *out)
{
	uint32_t count = (uint32_t)scan->text.piece_count - scan->prompt_first, from = 0;
	enum kvw_err err = reserve(scan, count);

	if (err != KVW_OK)
		return err;
	for (uint32_t c = 0; c < scan->chain_count; c++) {
		struct fold fold = {out->seed, 0, scan->chunks + from};

		fold_range(scan, &fold,
			(struct range){scan->prompt_first + from, scan->chain_ends[c] - from});
		from = scan->chain_ends[c];
	}
	out->chunk_count = from;
	out->token_ids = scan->prompt_ids;
	return KVW_OK;
}

/* Folds the messages [from, end) after the parts that all chats have in common. */
static void fold_one_talk(
	const struct kvw_scan *scan, struct fold *fold, uint32_t from, uint32_t end)
{
	fold_tools(scan, fold, KVW_TAG_TOOLS, scan->tools);
	fold_tools(scan, fold, KVW_TAG_FUNCTIONS, scan->functions);
	if (scan->has_system)
		fold_message(scan, fold, &scan->system);
	for (uint32_t i = from; i < end; i++)
		fold_message(scan, fold, &scan->messages[i]);
}

static enum kvw_err fold_talks(struct kvw_scan *scan, struct kvw_route_request *out)
{
	uint32_t room = scan->tools.count + scan->functions.count +
			(scan->has_system ? scan->system.content.count + 3 : 0);
	struct kvw_chunk *next;
	uint32_t from = 0;
	enum kvw_err err;

	if (!scan->batch)
		scan->chain_count = 0;
	else if (room > 0)
		/* Workers accept no tools on this path, and each chat would repeat them. */
		return KVW_EPROTO;
	if (scan->chain_count == 0 && !prompt_talk_end(scan))
		return KVW_ENOMEM;
	for (uint32_t i = 0; i < scan->message_count; i++)
		room += scan->messages[i].content.count + 3;
	err = reserve(scan, room);
	if (err != KVW_OK)
		return err;
	next = scan->chunks;
	for (uint32_t c = 0; c < scan->chain_count; c++) {
		struct fold fold = {out->seed, 0, next};

		fold_one_talk(scan, &fold, from, scan->chain_ends[c]);
		from = scan->chain_ends[c];
		next = fold.next;
		scan->chain_ends[c] = (uint32_t)(next - scan->chunks);
	}
	out->chunk_count = (uint32_t)(next - scan->chunks);
	return KVW_OK;
}

static uint64_t mix_range(const struct kvw_scan *scan, uint64_t hash, struct range range)
{
	for (uint32_t i = 0; i < range.count; i++)
		hash = kvw_mix_on(hash, scan->text.pieces[range.first + i].hash);
	return hash;
}

/* Hashes without model, salt and settings, so that the hash is the same wherever the conversation
 * is sent. */
uint64_t kvw_scan_opening(const struct kvw_scan *scan)
{
	uint64_t hash = KVW_TAG_TALK ^ KVW_MIX_FIRST;

	if (!scan->has_messages || scan->text.fields_only || scan->unknown != 0)
		return 0;
	if (scan->has_system)
		hash = mix_range(scan, hash, scan->system.content);
	for (uint32_t i = 0; i < scan->message_count; i++) {
		const struct message *message = &scan->messages[i];

		hash = mix_range(scan, kvw_mix_on(hash, message->role), message->content);
		if (message->role == scan->hash_user)
			return hash ^ KVW_MIX_FIRST;
	}
	return 0;
}

enum kvw_err fold_chain(struct kvw_scan *scan, struct kvw_route_request *out)
{
	struct kvw_route_request result = *out;
	enum kvw_err err;

	result.seed = seed_of(scan, scan->has_messages);
	result.teaches = scan->api == KVW_API_COMPLETIONS || scan->api == KVW_API_CHAT ||
			 scan->api == KVW_API_RESPONSES || scan->api == KVW_API_MESSAGES;
	/* With a previous response, the text before it is on its worker, not in this body. */
	result.content_known = !scan->text.fields_only &&
			       (scan->prompts != 0) != scan->has_messages && scan->unknown == 0 &&
			       scan->slots[SLOT_PREVIOUS].first == UINT32_MAX;
	if (result.content_known) {
		err = scan->prompts != 0 ? fold_prompts(scan, &result) : fold_talks(scan, &result);
		if (err != KVW_OK)
			return err;
		result.chunks = scan->chunks;
		result.chain_ends = scan->chain_ends;
		result.chain_count = scan->chain_count;
	}
	if (scan->cutting && result.content_known)
		cuts_segments(scan,
			kvw_mix(slot_hash(scan, SLOT_MODEL), slot_hash(scan, SLOT_SALT)), &result);
	*out = result;
	return KVW_OK;
}
