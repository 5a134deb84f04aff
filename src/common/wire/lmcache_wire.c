/*
 * lmcache_wire.c - reads LMCache's messages by a table of members and a table of types.
 *
 * A member of a given name has the same form in all messages, so members can be read in any order,
 * before the type is known; a bit for each member records that it was there. The type then decides
 * which bits must be set. A JSON message is first converted to msgpack and read the same way.
 */
#include <stdlib.h>
#include <string.h>

#include "wire/json_msgpack.h"
#include "wire/lmcache_wire.h"

enum member {
	TYPE,
	INSTANCE_ID,
	WORKER_ID,
	IP,
	PORT,
	PEER_INIT_URL,
	DISTRIBUTED_URL,
	LOCATION,
	OPERATIONS,
	KEY,
	SEQ_NUM,
	HASHES,
	SYNC_ID,
	TOTAL_KEYS,
	BATCH_COUNT,
	BATCH_ID,
	KEYS,
	ACTUAL_TOTAL_KEYS,
	OP_TYPE,
	MEMBERS, /* also: an unknown name */
};

static const struct kvw_slice names[MEMBERS] = {
	[TYPE] = {"type", 4},
	[INSTANCE_ID] = {"instance_id", 11},
	[WORKER_ID] = {"worker_id", 9},
	[IP] = {"ip", 2},
	[PORT] = {"port", 4},
	[PEER_INIT_URL] = {"peer_init_url", 13},
	[DISTRIBUTED_URL] = {"distributed_url", 15},
	[LOCATION] = {"location", 8},
	[OPERATIONS] = {"operations", 10},
	[KEY] = {"key", 3},
	[SEQ_NUM] = {"seq_num", 7},
	[HASHES] = {"hashes", 6},
	[SYNC_ID] = {"sync_id", 7},
	[TOTAL_KEYS] = {"total_keys", 10},
	[BATCH_COUNT] = {"batch_count", 11},
	[BATCH_ID] = {"batch_id", 8},
	[KEYS] = {"keys", 4},
	[ACTUAL_TOTAL_KEYS] = {"actual_total_keys", 17},
	[OP_TYPE] = {"op_type", 7},
};

#define BIT(member) (1u << (member))
#define WORKER      (BIT(INSTANCE_ID) | BIT(WORKER_ID))
#define ADDRESS     (WORKER | BIT(IP) | BIT(PORT))
#define SYNC        (WORKER | BIT(SYNC_ID))

/* Message types by name, with the members that each must have. */
static const struct {
	struct kvw_slice name;
	enum kvw_lmc_type type;
	uint32_t required;
} types[] = {
	{{"RegisterMsg", 11}, KVW_LMC_REGISTER, ADDRESS},
	{{"HeartbeatMsg", 12}, KVW_LMC_HEARTBEAT, ADDRESS},
	{{"DeRegisterMsg", 13}, KVW_LMC_DEREGISTER, ADDRESS},
	{{"BatchedKVOperationMsg", 21}, KVW_LMC_OPERATIONS,
		WORKER | BIT(LOCATION) | BIT(OPERATIONS)},
	{{"KVAdmitMsg", 10}, KVW_LMC_OPERATIONS, WORKER | BIT(LOCATION) | BIT(KEY)},
	{{"KVEvictMsg", 10}, KVW_LMC_OPERATIONS, WORKER | BIT(LOCATION) | BIT(KEY)},
	{{"BatchedP2PLookupMsg", 19}, KVW_LMC_P2P_LOOKUP, WORKER | BIT(HASHES)},
	{{"FullSyncStartMsg", 16}, KVW_LMC_SYNC_START,
		SYNC | BIT(LOCATION) | BIT(TOTAL_KEYS) | BIT(BATCH_COUNT)},
	{{"FullSyncBatchMsg", 16}, KVW_LMC_SYNC_BATCH,
		SYNC | BIT(LOCATION) | BIT(BATCH_ID) | BIT(KEYS)},
	{{"FullSyncEndMsg", 14}, KVW_LMC_SYNC_END, SYNC | BIT(LOCATION) | BIT(ACTUAL_TOTAL_KEYS)},
	{{"FullSyncStatusMsg", 17}, KVW_LMC_SYNC_STATUS, SYNC},
};
#define TYPES (sizeof(types) / sizeof(types[0]))

/* The message being read. */
struct draft {
	struct kvw_lmc_message message;
	uint64_t key, number; /* members of a KVAdmitMsg or KVEvictMsg */
	uint32_t seen;        /* BIT() of each member that was there */
};

void kvw_lmc_reader_init(struct kvw_lmc_reader *reader)
{
	*reader = (struct kvw_lmc_reader){0};
}

void kvw_lmc_reader_finish(struct kvw_lmc_reader *reader)
{
	free(reader->json);
	free(reader->admits);
	free(reader->numbers);
	free(reader->keys);
	*reader = (struct kvw_lmc_reader){0};
}

static enum kvw_err refuse_message(struct kvw_lmc_reader *reader, const char *error)
{
	reader->error = error;
	return KVW_EPROTO;
}

/* --- shapes of members ---------------------------------------------------------------------- */

/* Returns the length of the UTF-8 sequence at `at`; 0: it is invalid, or a control character. */
static size_t printable(const uint8_t *at, size_t left)
{
	size_t len = at[0] < 0x80 ? 1 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
	uint32_t code = len == 1 ? at[0] : at[0] & (0x7fu >> len);

	if ((at[0] >= 0x80 && at[0] < 0xc2) || at[0] > 0xf4 || left < len)
		return 0;
	for (size_t i = 1; i < len; i++) {
		if ((at[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (at[i] & 63);
	}
	if (code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0xd800 && code < 0xe000))
		return 0;
	if ((len == 3 && code < 0x800) || (len == 4 && (code < 0x10000 || code > 0x10ffff)))
		return 0;
	return len;
}

/* A name, address or id. */
static enum kvw_err take_text(
	struct kvw_lmc_reader *reader, struct kvw_mp *mp, struct kvw_slice *text)
{
	struct kvw_slice got;
	enum kvw_err err = kvw_mp_str(mp, &got);
	size_t at = 0, len = 1;

	if (err != KVW_OK)
		return err;
	if (got.len > KVW_LMC_TEXT_MAX) {
		reader->error = "a text that is too long";
		return KVW_ELIMIT;
	}
	for (; at < got.len && len > 0; at += len)
		len = printable((const uint8_t *)got.data + at, got.len - at);
	if (len == 0)
		return refuse_message(reader, "a text that is not printable UTF-8");
	*text = got;
	return KVW_OK;
}

static enum kvw_err take_name(
	struct kvw_lmc_reader *reader, struct kvw_mp *mp, struct kvw_slice *text)
{
	enum kvw_err err = take_text(reader, mp, text);

	return err == KVW_OK && text->len == 0 ? refuse_message(reader, "an empty text") : err;
}

static enum kvw_err take_uint32(struct kvw_mp *mp, uint32_t *number)
{
	uint64_t value;
	enum kvw_err err = kvw_mp_uint(mp, INT32_MAX, &value);

	if (err == KVW_OK)
		*number = (uint32_t)value;
	return err;
}

static enum kvw_err take_port(struct kvw_mp *mp, uint16_t *port)
{
	uint64_t value;
	enum kvw_err err = kvw_mp_uint(mp, UINT16_MAX, &value);

	if (err == KVW_OK)
		*port = (uint16_t)value;
	return err;
}

/* Makes room for this number of keys, with number and kind of each; old contents are lost. */
static enum kvw_err make_room(struct kvw_lmc_reader *reader, size_t count)
{
	size_t want = reader->room == 0 ? 64 : reader->room;
	uint64_t *keys, *numbers;
	bool *admits;

	if (count > KVW_LMC_KEYS_MAX) {
		reader->error = "too many keys";
		return KVW_ELIMIT;
	}
	if (count <= reader->room)
		return KVW_OK;
	while (want < count)
		want *= 2;
	keys = malloc(want * sizeof(*keys));
	numbers = malloc(want * sizeof(*numbers));
	admits = malloc(want * sizeof(*admits));
	if (keys == NULL || numbers == NULL || admits == NULL) {
		free(admits);
		free(numbers);
		free(keys);
		reader->error = "out of memory";
		return KVW_ENOMEM;
	}
	free(reader->keys);
	free(reader->numbers);
	free(reader->admits);
	reader->keys = keys;
	reader->numbers = numbers;
	reader->admits = admits;
	reader->room = want;
	return KVW_OK;
}

static enum kvw_err take_keys(
	struct kvw_lmc_reader *reader, struct kvw_mp *mp, struct kvw_lmc_message *message)
{
	uint32_t count;
	enum kvw_err err = kvw_mp_array(mp, &count);

	if (err == KVW_OK)
		err = make_room(reader, count);
	for (uint32_t i = 0; err == KVW_OK && i < count; i++)
		err = kvw_mp_bits(mp, &reader->keys[i]);
	if (err != KVW_OK)
		return err;
	message->keys = reader->keys;
	message->key_count = count;
	return KVW_OK;
}

/* --- operations ----------------------------------------------------------------------------- */

static enum member member_named(struct kvw_slice name)
{
	enum member member = TYPE;

	while (member < MEMBERS && !kvw_slice_equal(name, names[member]))
		member++;
	return member;
}

static enum kvw_err take_op_type(struct kvw_lmc_reader *reader, struct kvw_mp *mp, bool *admit)
{
	struct kvw_slice text;
	enum kvw_err err = kvw_mp_str(mp, &text);

	if (err != KVW_OK)
		return err;
	*admit = kvw_slice_equal(text, KVW_SLICE("admit"));
	if (!*admit && !kvw_slice_equal(text, KVW_SLICE("evict")))
		return refuse_message(reader, "neither admit nor evict");
	return KVW_OK;
}

/* Reads one operation {op_type, key, seq_num} into place i. If it has no number, sets *numbered to
 * false. */
static enum kvw_err take_operation(
	struct kvw_lmc_reader *reader, struct kvw_mp *mp, size_t i, bool *numbered)
{
	struct kvw_slice name;
	uint32_t pairs, seen = 0;
	enum member member;
	enum kvw_err err = kvw_mp_map(mp, &pairs);

	for (; err == KVW_OK && pairs > 0; pairs--) {
		err = kvw_mp_str(mp, &name);
		if (err != KVW_OK)
			return err;
		member = member_named(name);
		if (member == KEY)
			err = kvw_mp_bits(mp, &reader->keys[i]);
		else if (member == SEQ_NUM)
			err = kvw_mp_uint(mp, UINT64_MAX, &reader->numbers[i]);
		else if (member == OP_TYPE)
			err = take_op_type(reader, mp, &reader->admits[i]);
		else
			err = kvw_mp_skip(mp);
		seen |= member < MEMBERS ? BIT(member) : 0;
	}
	if (err != KVW_OK)
		return err;
	if ((seen & BIT(KEY)) == 0 || (seen & BIT(OP_TYPE)) == 0)
		return refuse_message(reader, "an operation without op_type or key");
	*numbered = *numbered && (seen & BIT(SEQ_NUM)) != 0;
	return KVW_OK;
}

static enum kvw_err take_operations(
	struct kvw_lmc_reader *reader, struct kvw_mp *mp, struct kvw_lmc_message *message)
{
	bool numbered = true;
	uint32_t count;
	enum kvw_err err = kvw_mp_array(mp, &count);

	if (err == KVW_OK)
		err = make_room(reader, count);
	for (uint32_t i = 0; err == KVW_OK && i < count; i++)
		err = take_operation(reader, mp, i, &numbered);
	if (err != KVW_OK)
		return err;
	message->keys = reader->keys;
	message->admits = reader->admits;
	message->numbers = numbered ? reader->numbers : NULL;
	message->key_count = count;
	return KVW_OK;
}

/* --- the message ---------------------------------------------------------------------------- */

static enum kvw_err take_member(
	struct kvw_lmc_reader *reader, struct kvw_mp *mp, enum member member, struct draft *draft)
{
	struct kvw_lmc_message *message = &draft->message;

	switch (member) {
	case TYPE:
		return take_text(reader, mp, &reader->type);
	case INSTANCE_ID:
		return take_name(reader, mp, &message->instance_id);
	case WORKER_ID:
		return take_uint32(mp, &message->worker_id);
	case IP:
		return take_text(reader, mp, &message->ip);
	case PORT:
		return take_port(mp, &message->port);
	case PEER_INIT_URL:
	case DISTRIBUTED_URL:
		return kvw_mp_take_nil(mp) ? KVW_OK : take_text(reader, mp, &message->p2p);
	case LOCATION:
		return take_name(reader, mp, &message->location);
	case OPERATIONS:
		return take_operations(reader, mp, message);
	case KEY:
		return kvw_mp_bits(mp, &draft->key);
	case SEQ_NUM:
		return kvw_mp_uint(mp, UINT64_MAX, &draft->number);
	case HASHES:
	case KEYS:
		return take_keys(reader, mp, message);
	case SYNC_ID:
		return take_name(reader, mp, &message->sync_id);
	case TOTAL_KEYS:
	case ACTUAL_TOTAL_KEYS:
		return kvw_mp_uint(mp, INT64_MAX, &message->total_keys);
	case BATCH_COUNT:
		return take_uint32(mp, &message->batch_count);
	case BATCH_ID:
		return take_uint32(mp, &message->batch_id);
	case OP_TYPE: /* a member of operations only */
	case MEMBERS:
		break;
	}
	return kvw_mp_skip(mp);
}

static enum kvw_err take_members(
	struct kvw_lmc_reader *reader, struct kvw_mp *mp, struct draft *draft)
{
	struct kvw_slice name;
	enum member member;
	uint32_t pairs;
	enum kvw_err err = kvw_mp_map(mp, &pairs);

	for (; err == KVW_OK && pairs > 0; pairs--) {
		reader->field = NULL;
		err = kvw_mp_str(mp, &name);
		if (err != KVW_OK)
			break;
		member = member_named(name);
		reader->field = member < MEMBERS ? names[member].data : NULL;
		err = take_member(reader, mp, member, draft);
		draft->seen |= member < MEMBERS ? BIT(member) : 0;
	}
	if (err == KVW_OK)
		reader->field = NULL;
	if (err == KVW_OK && kvw_mp_left(mp) != 0)
		err = refuse_message(reader, "bytes after the end of a message");
	if (err != KVW_OK && reader->error == NULL)
		reader->error = mp->error;
	return err;
}

/* Reads a message of an old version, which has a single operation. */
static enum kvw_err single_operation(struct kvw_lmc_reader *reader, struct draft *draft, bool admit)
{
	enum kvw_err err = make_room(reader, 1);

	if (err != KVW_OK)
		return err;
	reader->keys[0] = draft->key;
	reader->admits[0] = admit;
	draft->message.keys = reader->keys;
	draft->message.admits = reader->admits;
	draft->message.numbers = NULL;
	draft->message.key_count = 1;
	return KVW_OK;
}

/* Decides the type of the draft, and checks that it has all members of that type. */
static enum kvw_err judge(struct kvw_lmc_reader *reader, struct draft *draft)
{
	uint32_t missing;
	size_t i = 0;

	if ((draft->seen & BIT(TYPE)) == 0)
		return refuse_message(reader, "a message without a type");
	while (i < TYPES && !kvw_slice_equal(reader->type, types[i].name))
		i++;
	if (i == TYPES) {
		reader->error = "a message of an unknown type";
		return KVW_ENOTFOUND;
	}
	missing = types[i].required & ~draft->seen;
	if (missing != 0) {
		reader->field = names[__builtin_ctz(missing)].data;
		return refuse_message(reader, "a member is missing");
	}
	draft->message.type = types[i].type;
	if (types[i].required & BIT(KEY))
		return single_operation(
			reader, draft, kvw_slice_equal(reader->type, KVW_SLICE("KVAdmitMsg")));
	return KVW_OK;
}

/* Converts a message in JSON to msgpack, in the reader's own buffer. */
static enum kvw_err rewrite_json(struct kvw_lmc_reader *reader, struct kvw_slice *frame)
{
	size_t want = KVW_JSON_ROOM(frame->len);
	struct kvw_mp_out out;
	uint8_t *grown;
	enum kvw_err err;

	if (frame->len > KVW_LMC_JSON_MAX) {
		reader->error = "a JSON message larger than 1 MiB";
		return KVW_ELIMIT;
	}
	if (want > reader->json_room) {
		grown = realloc(reader->json, want);
		if (grown == NULL) {
			reader->error = "out of memory";
			return KVW_ENOMEM;
		}
		reader->json = grown;
		reader->json_room = want;
	}
	kvw_mp_out_init(&out, reader->json, reader->json_room);
	err = kvw_json_to_msgpack(*frame, &out, &reader->error);
	if (err == KVW_OK)
		*frame = (struct kvw_slice){(const char *)out.data, out.len};
	return err;
}

enum kvw_err kvw_lmc_read(
	struct kvw_lmc_reader *reader, struct kvw_slice frame, struct kvw_lmc_message *message)
{
	struct draft draft = {0};
	struct kvw_mp mp;
	enum kvw_err err = KVW_OK;

	reader->error = reader->field = NULL;
	reader->type = (struct kvw_slice){0};
	if (frame.len > KVW_LMC_MESSAGE_MAX) {
		reader->error = "a message larger than 16 MiB";
		return KVW_ELIMIT;
	}
	/* no message in msgpack begins with '{', which would be the number 123 */
	if (frame.len > 0 && frame.data[0] == '{')
		err = rewrite_json(reader, &frame);
	if (err != KVW_OK)
		return err;
	kvw_mp_init(&mp, frame.data, frame.len);
	err = take_members(reader, &mp, &draft);
	if (err == KVW_OK)
		err = judge(reader, &draft);
	if (err == KVW_OK)
		*message = draft.message;
	return err;
}

enum kvw_err kvw_lmc_request(
	const struct kvw_slice *frames, size_t count, struct kvw_slice *message, size_t *envelope)
{
	if (count != 3 || frames[0].len == 0 || frames[1].len != 0)
		return KVW_EPROTO;
	*message = frames[2];
	*envelope = 2;
	return KVW_OK;
}

enum kvw_tier kvw_lmc_tier(struct kvw_slice location)
{
	if (kvw_slice_equal(location, KVW_SLICE("LocalCPUBackend")))
		return KVW_TIER_HOST;
	if (kvw_slice_equal(location, KVW_SLICE("LocalDiskBackend")) ||
		kvw_slice_equal(location, KVW_SLICE("GdsBackend")))
		return KVW_TIER_DISK;
	return KVW_TIER_REMOTE;
}
