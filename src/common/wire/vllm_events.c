/*
 * vllm_events.c - decodes batches of KV events, with members by position or by name.
 *
 * Both encodings lead to take_member(): one table maps positions to members, another names, and
 * then each member is read in one way. Members may come in any order (the type, too); an event is
 * checked after all its members were read.
 *
 * An event of a known type whose members do not fit (five hashes with four blocks of tokens, a text
 * as block size) is not guessed at: the reader skips and counts it, and still returns the other
 * events of the batch.
 *
 * Cost: two passes over the bytes (begin() proves that they are whole), no allocation once the
 * arrays have grown to the usual size.
 */
#include <stdlib.h>
#include <string.h>

#include "wire/vllm_events.h"

enum member {
	TYPE,
	HASHES,
	PARENT,
	TOKENS,
	BLOCK_SIZE,
	LORA_ID,
	MEDIUM,
	LORA_NAME,
	EXTRA_KEYS,
	GROUP,
	SPEC_KIND,
	SLIDING_WINDOW,
	LOCALITY,
	UNKNOWN, /* no known member; also the number of known members */
};

/* Names of members, in the order of enum member, which is also their order in BlockStored. */
static const struct kvw_slice names[UNKNOWN] = {
	[TYPE] = {"type", 4},
	[HASHES] = {"block_hashes", 12},
	[PARENT] = {"parent_block_hash", 17},
	[TOKENS] = {"token_ids", 9},
	[BLOCK_SIZE] = {"block_size", 10},
	[LORA_ID] = {"lora_id", 7},
	[MEDIUM] = {"medium", 6},
	[LORA_NAME] = {"lora_name", 9},
	[EXTRA_KEYS] = {"extra_keys", 10},
	[GROUP] = {"group_idx", 9},
	[SPEC_KIND] = {"kv_cache_spec_kind", 18},
	[SLIDING_WINDOW] = {"kv_cache_spec_sliding_window", 28},
	[LOCALITY] = {"locality", 8},
};

/* Order of the members of BlockRemoved. AllBlocksCleared has only its type. */
static const enum member removed_order[] = {TYPE, HASHES, MEDIUM, GROUP};
#define REMOVED_MEMBERS (sizeof(removed_order) / sizeof(removed_order[0]))
#define STORED_MEMBERS  ((uint32_t)SLIDING_WINDOW + 1)

/* Members of an event for which struct kvw_kv_event has no place. */
struct details {
	bool has_type, known_type, has_hashes;
	struct kvw_slice medium, locality; /* len 0: not given */
	size_t extra_count;
	/* the first two members of the first block's extra keys, if they are texts */
	struct kvw_slice first[2];
	uint32_t first_count;      /* number of those members */
	bool later_same;           /* the other blocks' extra keys have nothing but first[0] */
	bool later_any;            /* another block than the first has extra keys */
};

void kvw_vllm_reader_init(struct kvw_vllm_reader *reader)
{
	*reader = (struct kvw_vllm_reader){0};
}

void kvw_vllm_reader_finish(struct kvw_vllm_reader *reader)
{
	free(reader->tokens);
	free(reader->extra);
	free(reader->hashes);
	*reader = (struct kvw_vllm_reader){0};
}

static enum kvw_err refuse_batch(struct kvw_vllm_reader *reader, const char *error)
{
	reader->error = error;
	return KVW_EPROTO;
}

/* --- the batch ------------------------------------------------------------------------------ */

static enum kvw_err take_rank(struct kvw_vllm_reader *reader)
{
	uint64_t rank;
	enum kvw_err err;

	if (kvw_mp_take_nil(&reader->mp))
		return KVW_OK;
	err = kvw_mp_uint(&reader->mp, UINT16_MAX, &rank);
	if (err == KVW_OK) {
		reader->has_rank = true;
		reader->rank = (uint32_t)rank;
	}
	return err;
}

/* Reads one of the three members of a batch. *events is set to the start of the list of events. */
static enum kvw_err take_batch_member(
	struct kvw_vllm_reader *reader, uint32_t position, struct kvw_mp *events)
{
	struct kvw_mp *mp = &reader->mp;

	switch (position) {
	case 0:
		return kvw_mp_real(mp, &reader->time_s);
	case 1:
		*events = *mp;
		return kvw_mp_skip(mp);
	case 2:
		return take_rank(reader);
	default:
		return kvw_mp_skip(mp);
	}
}

static uint32_t batch_position(struct kvw_slice name)
{
	if (kvw_slice_equal(name, KVW_SLICE("ts")))
		return 0;
	if (kvw_slice_equal(name, KVW_SLICE("events")))
		return 1;
	if (kvw_slice_equal(name, KVW_SLICE("data_parallel_rank")) ||
		kvw_slice_equal(name, KVW_SLICE("attn_dp_rank")))
		return 2;
	return 3;
}

static enum kvw_err take_batch(struct kvw_vllm_reader *reader, struct kvw_mp *events)
{
	struct kvw_mp *mp = &reader->mp;
	struct kvw_mp_value head;
	struct kvw_slice name;
	enum kvw_err err = kvw_mp_next(mp, &head);

	if (err != KVW_OK)
		return err;
	if (head.type != KVW_MP_ARRAY && head.type != KVW_MP_MAP)
		return refuse_batch(reader, "a batch is neither an array nor a map");
	for (uint32_t i = 0; i < head.count && err == KVW_OK; i++) {
		if (head.type == KVW_MP_ARRAY) {
			err = take_batch_member(reader, i, events);
			continue;
		}
		err = kvw_mp_str(mp, &name);
		if (err == KVW_OK)
			err = take_batch_member(reader, batch_position(name), events);
	}
	return err;
}

enum kvw_err kvw_vllm_begin(struct kvw_vllm_reader *reader, const void *payload, size_t len)
{
	struct kvw_mp events = {0};
	enum kvw_err err;

	reader->left = 0;
	reader->time_s = 0;
	reader->has_rank = false;
	reader->rank = 0;
	reader->error = reader->field = NULL;
	if (len > KVW_VLLM_PAYLOAD_MAX) {
		reader->error = "a batch larger than 16 MiB";
		return KVW_ELIMIT;
	}
	kvw_mp_init(&reader->mp, payload, len);
	err = take_batch(reader, &events);
	if (err != KVW_OK) {
		if (reader->error == NULL)
			reader->error = reader->mp.error;
		return err;
	}
	if (events.at == NULL)
		return refuse_batch(reader, "a batch without a list of events");
	if (kvw_mp_left(&reader->mp) != 0)
		return refuse_batch(reader, "bytes after the end of a batch");
	reader->mp = events;
	err = kvw_mp_array(&reader->mp, &reader->left);
	if (err != KVW_OK)
		reader->error = reader->mp.error;
	return err;
}

/* --- members of an event -------------------------------------------------------------------- */

/* Makes room for `count` items; old contents are lost. */
static enum kvw_err make_room(void **array, size_t *room, size_t count, size_t size)
{
	size_t want = *room == 0 ? 64 : *room;
	void *grown;

	if (count <= *room)
		return KVW_OK;
	while (want < count)
		want *= 2;
	grown = malloc(want * size);
	if (grown == NULL)
		return KVW_ENOMEM;
	free(*array);
	*array = grown;
	*room = want;
	return KVW_OK;
}

/* Reads a hash: an integer, or bytes, of which the last 8 are used, big-endian. */
static enum kvw_err take_hash(struct kvw_mp *mp, uint64_t *hash, uint32_t *width)
{
	struct kvw_mp_value value;
	enum kvw_err err = kvw_mp_next(mp, &value);
	uint64_t bits = 0;

	if (err != KVW_OK)
		return err;
	if (value.type == KVW_MP_UINT || value.type == KVW_MP_NEGATIVE) {
		*hash = value.bits;
		*width = 8;
		return KVW_OK;
	}
	if (value.type != KVW_MP_BIN || value.bytes.len == 0 || value.bytes.len > 64) {
		mp->error = "a hash is an integer or 1 to 64 bytes";
		return KVW_EPROTO;
	}
	for (size_t i = value.bytes.len < 8 ? 0 : value.bytes.len - 8; i < value.bytes.len; i++)
		bits = bits << 8 | (uint8_t)value.bytes.data[i];
	*hash = bits;
	*width = (uint32_t)value.bytes.len;
	return KVW_OK;
}

static enum kvw_err take_hashes(struct kvw_vllm_reader *reader, struct kvw_kv_event *event)
{
	uint32_t count = 0, width;
	enum kvw_err err = kvw_mp_array(&reader->mp, &count);

	if (err == KVW_OK && count > KVW_VLLM_BLOCKS_MAX)
		return refuse_batch(reader, "too many blocks");
	if (err == KVW_OK)
		err = make_room((void **)&reader->hashes, &reader->hash_room, count,
			sizeof(reader->hashes[0]));
	for (uint32_t i = 0; i < count && err == KVW_OK; i++) {
		err = take_hash(&reader->mp, &reader->hashes[i], &width);
		if (i == 0 && err == KVW_OK)
			event->hash_bytes = width;
	}
	event->hashes = reader->hashes;
	event->hash_count = count;
	return err;
}

static enum kvw_err take_parent(struct kvw_vllm_reader *reader, struct kvw_kv_event *event)
{
	uint32_t width;

	if (kvw_mp_take_nil(&reader->mp))
		return KVW_OK;
	event->has_parent = true;
	return take_hash(&reader->mp, &event->parent, &width);
}

static enum kvw_err take_tokens(struct kvw_vllm_reader *reader, struct kvw_kv_event *event)
{
	uint32_t count = 0;
	uint64_t token;
	enum kvw_err err;

	if (kvw_mp_take_nil(&reader->mp))
		return KVW_OK;
	err = kvw_mp_array(&reader->mp, &count);
	if (err == KVW_OK && count > KVW_VLLM_TOKENS_MAX)
		return refuse_batch(reader, "too many tokens");
	if (err == KVW_OK)
		err = make_room((void **)&reader->tokens, &reader->token_room, count,
			sizeof(reader->tokens[0]));
	for (uint32_t i = 0; i < count && err == KVW_OK; i++) {
		err = kvw_mp_uint(&reader->mp, UINT32_MAX, &token);
		if (err == KVW_OK)
			reader->tokens[i] = (uint32_t)token;
	}
	event->tokens = count == 0 ? NULL : reader->tokens;
	event->token_count = count;
	return err;
}

/* Hashes one member of a block's extra keys into *extra. The member may be a text, a number, or of
 * a type that later versions have. */
static enum kvw_err fold_extra(struct kvw_mp *mp, uint64_t *extra)
{
	const uint8_t *start = mp->at;
	struct kvw_mp_value value;
	enum kvw_err err = kvw_mp_next(mp, &value);

	if (err != KVW_OK)
		return err;
	switch (value.type) {
	case KVW_MP_NIL:
		return KVW_OK;
	case KVW_MP_STR:
		*extra = kvw_kv_extra_text(*extra, value.bytes);
		return KVW_OK;
	case KVW_MP_UINT:
	case KVW_MP_NEGATIVE:
		*extra = kvw_kv_extra_int(*extra, value.bits);
		return KVW_OK;
	default: /* a pair (identifier, offset), or bytes: hashed as encoded */
		mp->at = start;
		err = kvw_mp_skip(mp);
		if (err == KVW_OK)
			*extra = kvw_kv_extra_fold(*extra, 'm', start, (size_t)(mp->at - start));
		return err;
	}
}

/* Called before member m of block i is hashed: notes whether it is a text, and the same as in the
 * first block. */
static void note_extra(const struct kvw_mp *mp, uint32_t i, uint32_t m, struct details *details)
{
	struct kvw_mp look = *mp;
	struct kvw_slice got = {0};
	bool is_text = kvw_mp_str(&look, &got) == KVW_OK;

	if (i == 0) {
		details->first_count = m + 1;
		if (m < 2)
			details->first[m] = is_text ? got : (struct kvw_slice){0};
		return;
	}
	details->later_any = true;
	if (!is_text || m > 0 || !kvw_slice_equal(got, details->first[0]))
		details->later_same = false;
}

/* Reads a list that has nil, or a list, for each block. */
static enum kvw_err take_extra(
	struct kvw_vllm_reader *reader, struct kvw_kv_event *event, struct details *details)
{
	uint32_t count = 0, members;
	uint64_t any = 0;
	enum kvw_err err;

	details->first_count = 0;
	details->later_same = true;
	details->later_any = false;
	if (kvw_mp_take_nil(&reader->mp))
		return KVW_OK;
	err = kvw_mp_array(&reader->mp, &count);
	if (err == KVW_OK && count > KVW_VLLM_BLOCKS_MAX)
		return refuse_batch(reader, "too many blocks");
	if (err == KVW_OK)
		err = make_room((void **)&reader->extra, &reader->extra_room, count,
			sizeof(reader->extra[0]));
	for (uint32_t i = 0; i < count && err == KVW_OK; i++) {
		reader->extra[i] = 0;
		if (kvw_mp_take_nil(&reader->mp))
			continue;
		err = kvw_mp_array(&reader->mp, &members);
		for (uint32_t m = 0; err == KVW_OK && m < members; m++) {
			note_extra(&reader->mp, i, m, details);
			err = fold_extra(&reader->mp, &reader->extra[i]);
		}
		any |= reader->extra[i];
	}
	event->extra = any == 0 ? NULL : reader->extra;
	details->extra_count = count;
	return err;
}

static enum kvw_err take_type(
	struct kvw_vllm_reader *reader, struct kvw_kv_event *event, struct details *details)
{
	struct kvw_slice type;
	enum kvw_err err = kvw_mp_str(&reader->mp, &type);

	if (err != KVW_OK)
		return err;
	details->has_type = details->known_type = true;
	if (kvw_slice_equal(type, KVW_SLICE("BlockStored")))
		event->kind = KVW_KV_STORED;
	else if (kvw_slice_equal(type, KVW_SLICE("BlockRemoved")))
		event->kind = KVW_KV_REMOVED;
	else if (kvw_slice_equal(type, KVW_SLICE("AllBlocksCleared")))
		event->kind = KVW_KV_CLEARED;
	else
		details->known_type = false;
	return KVW_OK;
}

/* A text or nil. */
static enum kvw_err take_text(struct kvw_mp *mp, struct kvw_slice *text)
{
	return kvw_mp_take_nil(mp) ? KVW_OK : kvw_mp_str(mp, text);
}

/* Reads an integer that fits into 32 bits, or nil. */
static enum kvw_err take_number(struct kvw_mp *mp, bool *has, uint32_t *number)
{
	uint64_t value;
	enum kvw_err err;

	*has = false;
	if (kvw_mp_take_nil(mp))
		return KVW_OK;
	err = kvw_mp_uint(mp, UINT32_MAX, &value);
	if (err == KVW_OK) {
		*has = true;
		*number = (uint32_t)value;
	}
	return err;
}

static enum kvw_err take_lora_id(struct kvw_mp *mp, struct kvw_kv_event *event)
{
	uint64_t bits;
	enum kvw_err err;

	if (kvw_mp_take_nil(mp))
		return KVW_OK;
	err = kvw_mp_bits(mp, &bits);
	if (err == KVW_OK) {
		event->has_lora_id = true;
		event->lora_id = (int64_t)bits;
	}
	return err;
}

static enum kvw_err take_member(struct kvw_vllm_reader *reader, enum member member,
	struct kvw_kv_event *event, struct details *details)
{
	struct kvw_mp *mp = &reader->mp;
	bool has;

	reader->field = member < UNKNOWN ? names[member].data : NULL;
	switch (member) {
	case TYPE:
		return take_type(reader, event, details);
	case HASHES:
		details->has_hashes = true;
		return take_hashes(reader, event);
	case PARENT:
		return take_parent(reader, event);
	case TOKENS:
		return take_tokens(reader, event);
	case BLOCK_SIZE:
		return take_number(mp, &has, &event->block_size);
	case LORA_ID:
		return take_lora_id(mp, event);
	case MEDIUM:
		return take_text(mp, &details->medium);
	case LORA_NAME:
		return take_text(mp, &event->lora);
	case EXTRA_KEYS:
		return take_extra(reader, event, details);
	case GROUP:
		return take_number(mp, &event->has_group, &event->group);
	case SPEC_KIND:
		return take_text(mp, &event->spec_kind);
	case SLIDING_WINDOW:
		return take_number(mp, &has, &event->sliding_window);
	case LOCALITY:
		return take_text(mp, &details->locality);
	case UNKNOWN:
		break;
	}
	return kvw_mp_skip(mp);
}

/* --- one event ------------------------------------------------------------------------------ */

/* Engines write members in the order of the table, so the entry at the same position is tried
 * first. */
static enum member member_named(struct kvw_slice name, uint32_t position)
{
	enum member member = TYPE;

	if (position < UNKNOWN && kvw_slice_equal(name, names[position]))
		return (enum member)position;
	while (member < UNKNOWN && !kvw_slice_equal(name, names[member]))
		member++;
	return member;
}

static enum member member_at(enum kvw_kv_kind kind, uint32_t position)
{
	if (position == 0)
		return TYPE;
	if (kind == KVW_KV_STORED && position < STORED_MEMBERS)
		return (enum member)position;
	if (kind == KVW_KV_REMOVED && position < REMOVED_MEMBERS)
		return removed_order[position];
	return UNKNOWN;
}

/* Reads the members of one event. Stops at an unknown type. */
static enum kvw_err take_event(
	struct kvw_vllm_reader *reader, struct kvw_kv_event *event, struct details *details)
{
	struct kvw_mp *mp = &reader->mp;
	struct kvw_mp_value head;
	struct kvw_slice name;
	enum member member;
	enum kvw_err err = kvw_mp_next(mp, &head);

	if (err != KVW_OK)
		return err;
	if (head.type != KVW_MP_ARRAY && head.type != KVW_MP_MAP)
		return refuse_batch(reader, "an event is neither an array nor a map");
	for (uint32_t i = 0; i < head.count && err == KVW_OK; i++) {
		member = head.type == KVW_MP_ARRAY ? member_at(event->kind, i) : UNKNOWN;
		if (head.type == KVW_MP_MAP) {
			err = kvw_mp_str(mp, &name);
			member = err == KVW_OK ? member_named(name, i) : UNKNOWN;
		}
		if (err == KVW_OK)
			err = take_member(reader, member, event, details);
		if (details->has_type && !details->known_type)
			break;
	}
	return err;
}

/* Finds the tier that a medium of vLLM or SGLang means. Returns false if the medium is unknown. */
static bool tier_of(struct kvw_slice medium, struct kvw_slice locality, enum kvw_tier *tier)
{
	bool remote = kvw_slice_equal_nocase(locality, KVW_SLICE("REMOTE"));

	if (medium.len == 0 || kvw_slice_equal(medium, KVW_SLICE("GPU")))
		*tier = KVW_TIER_DEVICE; /* versions that have only one medium do not send it */
	else if (kvw_slice_equal(medium, KVW_SLICE("CPU")) ||
		 kvw_slice_equal(medium, KVW_SLICE("CPU_PINNED")))
		*tier = KVW_TIER_HOST;
	else if (kvw_slice_equal(medium, KVW_SLICE("STORAGE")) ||
		 kvw_slice_equal(medium, KVW_SLICE("DISK")))
		*tier = remote ? KVW_TIER_REMOTE : KVW_TIER_DISK;
	else if (kvw_slice_equal(medium, KVW_SLICE("EXTERNAL")))
		*tier = KVW_TIER_REMOTE;
	else
		return false;
	return true;
}

/* Finds the salt in the extra keys (LoRA's name, then the salt), and whether they have anything
 * else. */
static void find_salt(struct kvw_kv_event *event, const struct details *details)
{
	bool named = details->first_count > 0 && event->lora.len > 0 &&
		     kvw_slice_equal(details->first[0], event->lora);
	uint32_t left = details->first_count - named;

	if (left == 1 && !event->has_parent && details->first[named].len > 0) {
		event->salt = details->first[named];
		left = 0;
	}
	event->extra_is_plain =
		event->extra == NULL ||
		(left == 0 && (!details->later_any || (named && details->later_same)));
}

/* Checks that the members of an event fit together. */
static enum kvw_err judge(struct kvw_vllm_reader *reader, const struct kvw_kv_event *event,
	const struct details *details)
{
	reader->field = NULL;
	if (!details->has_type)
		return refuse_batch(reader, "an event without a type");
	if (event->kind == KVW_KV_CLEARED)
		return KVW_OK;
	if (!details->has_hashes)
		return refuse_batch(reader, "an event without block hashes");
	if (event->kind == KVW_KV_REMOVED)
		return KVW_OK;
	if (event->block_size == 0)
		return refuse_batch(reader, "stored blocks without a block size");
	if (event->token_count != 0 &&
		event->token_count != (uint64_t)event->hash_count * event->block_size)
		return refuse_batch(reader, "stored blocks and their tokens differ in number");
	if (details->extra_count != 0 && details->extra_count != event->hash_count)
		return refuse_batch(reader, "stored blocks and their extra keys differ in number");
	return KVW_OK;
}

/* Reads one event and moves the cursor past it, even if the event is bad. Returns false if it was
 * skipped. */
static enum kvw_err read_event(
	struct kvw_vllm_reader *reader, struct kvw_kv_event *event, bool *good)
{
	struct kvw_mp start = reader->mp;
	struct details details = {0};
	enum kvw_err err, skipped;

	*event = (struct kvw_kv_event){.rank = reader->rank};
	*good = false;
	reader->mp.error = NULL;
	err = take_event(reader, event, &details);
	if (err != KVW_OK && reader->mp.error != NULL)
		reader->error = reader->mp.error;
	if (err == KVW_OK && details.has_type && !details.known_type) {
		reader->unknown_types++;
	} else if (err == KVW_OK) {
		err = judge(reader, event, &details);
		find_salt(event, &details);
		*good = err == KVW_OK && tier_of(details.medium, details.locality, &event->tier);
		reader->unknown_media += err == KVW_OK && !*good;
	}
	if (*good)
		return KVW_OK;
	reader->bad_events += err != KVW_OK;
	reader->mp = start;
	skipped = kvw_mp_skip(&reader->mp);
	/* kvw_vllm_begin() has skipped over this event once, so it is complete */
	if (skipped != KVW_OK) {
		reader->left = 0;
		return skipped;
	}
	return err == KVW_ENOMEM ? KVW_ENOMEM : KVW_OK;
}

enum kvw_err kvw_vllm_next(struct kvw_vllm_reader *reader, struct kvw_kv_event *event)
{
	struct kvw_kv_event read;
	enum kvw_err err;
	bool good = false;

	while (reader->left > 0) {
		reader->left--;
		err = read_event(reader, &read, &good);
		if (err != KVW_OK)
			return err;
		if (good) {
			reader->events++;
			*event = read;
			return KVW_OK;
		}
	}
	return KVW_ENOTFOUND;
}
