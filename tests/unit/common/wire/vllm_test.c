/*
 * vllm_test.c - vLLM's KV events: recorded from a real engine, constructed for older versions.
 */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "support.h"
#include "tests/unit/suite.h"
#include "wire/vllm_events.h"
#include "wire/vllm_frames.h"

static struct kvw_vllm_reader reader;
static struct text text;

static void setup(void)
{
	kvw_vllm_reader_init(&reader);
}

static void teardown(void)
{
	kvw_vllm_reader_finish(&reader);
	text_free(&text);
}

/* An event as the files in data/ write it. */
static const char *render(const struct kvw_kv_event *event)
{
	static const char *const kinds[] = {"stored", "removed", "cleared"};
	static const char *const tiers[] = {"GPU", "CPU", "DISK", "REMOTE"};

	text_clear(&text);
	text_add(&text, "%s %s rank=%u", kinds[event->kind], tiers[event->tier], event->rank);
	if (event->kind == KVW_KV_CLEARED)
		return text.data;
	text_add(&text, " width=%u group=%u hashes=", event->hash_bytes, event->group);
	for (size_t i = 0; i < event->hash_count; i++)
		text_add(&text, "%s%" PRIu64, i == 0 ? "" : ",", event->hashes[i]);
	if (event->kind == KVW_KV_REMOVED)
		return text.data;
	if (event->has_parent)
		text_add(&text, " parent=%" PRIu64, event->parent);
	else
		text_add(&text, " parent=none");
	text_add(&text, " size=%u lora=%.*s kind=%.*s extra=", event->block_size,
		(int)event->lora.len, event->lora.data, (int)event->spec_kind.len,
		event->spec_kind.data);
	for (size_t i = 0; event->extra != NULL && i < event->hash_count; i++)
		text_add(&text, "%s%" PRIx64, i == 0 ? "" : ",", event->extra[i]);
	text_add(&text, "%s tokens=", event->extra == NULL ? "none" : "");
	for (size_t i = 0; i < event->token_count; i++)
		text_add(&text, "%s%u", i == 0 ? "" : ",", event->tokens[i]);
	return text.data;
}

/* Three frames in hex. */
static struct kvw_vllm_message message_of(const char *line, struct bytes frames[3])
{
	struct kvw_vllm_message message;
	struct kvw_slice slices[3];
	char *copy = strdup(line), *word = strtok(copy, " ");

	for (int i = 0; i < 3; i++) {
		ck_assert_ptr_nonnull(word);
		frames[i] = bytes_of_hex(word);
		slices[i] = slice_of(frames[i]);
		word = strtok(NULL, " ");
	}
	free(copy);
	ck_assert_int_eq(kvw_vllm_published(slices, 3, &message), KVW_OK);
	ck_assert_int_eq(message.topic.len, 7);
	ck_assert_mem_eq(message.topic.data, "kv@tiny", 7);
	return message;
}

/* Every frame of the file gives the events that stand below it, and no more. */
static void check_file(const char *name)
{
	struct lines lines = lines_read(name);
	struct kvw_vllm_message message;
	struct kvw_kv_event event;
	struct bytes frames[3] = {0};
	const char *value;
	bool open = false;

	for (size_t i = 0; i < lines.count; i++) {
		if ((value = line_value(lines.items[i], "frames")) != NULL) {
			ck_assert(!open || kvw_vllm_next(&reader, &event) == KVW_ENOTFOUND);
			for (int f = 0; f < 3; f++)
				bytes_free(&frames[f]);
			message = message_of(value, frames);
			open = true;
			ck_assert_int_eq(
				kvw_vllm_begin(&reader, message.payload.data, message.payload.len),
				KVW_OK);
			ck_assert(reader.has_rank);
			ck_assert_double_gt(reader.time_s, 1795242000);
			ck_assert_double_lt(reader.time_s, 1795243000);
		} else if ((value = line_value(lines.items[i], "sequence")) != NULL) {
			ck_assert_uint_eq(message.sequence, strtoull(value, NULL, 10));
		} else {
			value = line_value(lines.items[i], "event");
			ck_assert_ptr_nonnull(value);
			ck_assert_int_eq(kvw_vllm_next(&reader, &event), KVW_OK);
			ck_assert_str_eq(render(&event), value);
		}
	}
	ck_assert_int_eq(kvw_vllm_next(&reader, &event), KVW_ENOTFOUND);
	ck_assert_uint_gt(reader.events, 10);
	ck_assert_uint_eq(reader.bad_events + reader.unknown_media + reader.unknown_types, 0);
	for (int f = 0; f < 3; f++)
		bytes_free(&frames[f]);
	lines_free(&lines);
}

START_TEST(recorded_integers)
{
	check_file("vllm_events.txt");
}
END_TEST

START_TEST(recorded_digests)
{
	check_file("vllm_events_bytes.txt");
}
END_TEST

/* Events of a payload, as one text: each rendered, joined by " | ". */
static char *decode(const char *hex)
{
	struct bytes payload = bytes_of_hex(hex);
	struct text all = {0};
	struct kvw_kv_event event;

	text_clear(&all);
	ck_assert_int_eq(kvw_vllm_begin(&reader, payload.data, payload.len), KVW_OK);
	while (kvw_vllm_next(&reader, &event) == KVW_OK)
		text_add(&all, "%s%s", all.len == 0 ? "" : " | ", render(&event));
	bytes_free(&payload);
	return all.data;
}

static void check_decode(const char *hex, const char *expected)
{
	char *got = decode(hex);

	ck_assert_str_eq(got, expected);
	free(got);
}

#define TIME         "cb 41dac04ecdae9d1f "
#define STORED       "ab 426c6f636b53746f726564 "
#define REMOVED      "ac 426c6f636b52656d6f766564 "
#define CLEARED      "b0 416c6c426c6f636b73436c6561726564 "
#define DIGEST(tail) "c4 20 000102030405060708090a0b0c0d0e0f1011121314151617 " tail " "
#define K_TYPE       "a4 74797065 "
#define K_HASHES     "ac 626c6f636b5f686173686573 "
#define K_TOKENS     "a9 746f6b656e5f696473 "
#define K_SIZE       "aa 626c6f636b5f73697a65 "
#define K_MEDIUM     "a6 6d656469756d "
#define K_LOCALITY   "a8 6c6f63616c697479 "
#define K_EXTRA      "aa 65787472615f6b657973 "
#define STORED_OF_ONE                                                                              \
	"stored %s rank=0 width=8 group=0 hashes=7 parent=none size=2 lora= kind= extra=none "     \
	"tokens="

/* Constructed after the field order of vLLM 0.9 to 0.23; not recorded. */
START_TEST(by_position)
{
	/* 0.9: six members, no rank; then with medium, LoRA name, extra keys, group */
	check_decode("92" TIME "91 96" STORED "92 07 08 cf 8000000000000001 94 01 02 03 04 02 c0",
		"stored GPU rank=0 width=8 group=0 hashes=7,8 parent=9223372036854775809 size=2 "
		"lora= kind= extra=none tokens=1,2,3,4");
	ck_assert(!reader.has_rank);
	check_decode("93" TIME "93 9b" STORED "91 07 c0 92 01 02 02 05 a3 435055 a2 6c31 91 c0 03 "
		     "a6 736c69646563 93" REMOVED "91 07 a3 435055 91" CLEARED " 02",
		"stored CPU rank=2 width=8 group=3 hashes=7 parent=none size=2 lora=l1 kind=slidec "
		"extra=none tokens=1,2 | removed CPU rank=2 width=8 group=0 hashes=7 | "
		"cleared GPU rank=2");
	/* more members than any vLLM sends yet, and a batch with a fourth one */
	check_decode("94" TIME "91 96" REMOVED "91 07 c0 01 a1 78 81 01 02 c0 a1 79",
		"removed GPU rank=0 width=8 group=1 hashes=7");
	ck_assert_uint_eq(reader.bad_events + reader.unknown_types, 0);
}
END_TEST

START_TEST(lora_and_window)
{
	struct kvw_kv_event event;
	struct bytes payload =
		bytes_of_hex("92" TIME "91 9c" STORED
			     "91 07 c0 92 01 02 02 05 a3 475055 c0 91 c0 00 a1 61 cd 1000");

	ck_assert_int_eq(kvw_vllm_begin(&reader, payload.data, payload.len), KVW_OK);
	ck_assert_int_eq(kvw_vllm_next(&reader, &event), KVW_OK);
	ck_assert(event.has_lora_id);
	ck_assert_int_eq(event.lora_id, 5);
	ck_assert_uint_eq(event.lora.len, 0);
	ck_assert(event.has_group);
	ck_assert_uint_eq(event.sliding_window, 4096);
	bytes_free(&payload);
}
END_TEST

START_TEST(batch_as_map)
{
	/* rank first, SGLang's name for it, events last */
	check_decode("83 ac 6174746e5f64705f72616e6b 03 a2 7473" TIME
		     "a6 6576656e7473 91 81" K_TYPE CLEARED,
		"cleared GPU rank=3");
}
END_TEST

START_TEST(members_in_any_order)
{
	check_decode("92" TIME "91 85" K_SIZE "02 a7 756e6b6e6f776e 92 01 80" K_TOKENS
		     "92 01 02" K_HASHES "91 07" K_TYPE STORED,
		"stored GPU rank=0 width=8 group=0 hashes=7 parent=none size=2 lora= kind= "
		"extra=none tokens=1,2");
}
END_TEST

START_TEST(digest_and_integer_name_the_same_block)
{
	check_decode("92" TIME "92 82" K_TYPE REMOVED K_HASHES
		     "91" DIGEST("46f25885c2d8f36d") "82" K_TYPE REMOVED K_HASHES
						     "91 cf 46f25885c2d8f36d",
		"removed GPU rank=0 width=32 group=0 hashes=5112245858541826925 | "
		"removed GPU rank=0 width=8 group=0 hashes=5112245858541826925");
	/* shorter than 8 bytes, and a negative integer */
	check_decode("92" TIME "91 82" K_TYPE REMOVED K_HASHES "93 c4 02 0102 ff c4 01 05",
		"removed GPU rank=0 width=2 group=0 hashes=258,18446744073709551615,5");
}
END_TEST

START_TEST(media)
{
	static const struct {
		const char *medium, *tier;
	} known[] = {
		{"a3 475055", "GPU"},
		{"a3 435055", "CPU"},
		{"aa 4350555f50494e4e4544", "CPU"},
		{"a7 53544f52414745", "DISK"},
		{"a4 4449534b", "DISK"},
		{"a8 45585445524e414c", "REMOTE"},
		{"a7 53544f52414745" K_LOCALITY "a5 4c4f43414c", "DISK"},
		{"a7 53544f52414745" K_LOCALITY "a6 52454d4f5445", "REMOTE"},
	};
	char hex[512], expected[256];

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		snprintf(hex, sizeof(hex),
			"92" TIME "91 %s" K_TYPE STORED K_HASHES "91 07" K_SIZE "02" K_MEDIUM "%s",
			i < 6 ? "84" : "85", known[i].medium);
		snprintf(expected, sizeof(expected), STORED_OF_ONE, known[i].tier);
		check_decode(hex, expected);
	}
	/* an unknown one: only this event is passed over */
	check_decode("92" TIME "92 83" K_TYPE REMOVED K_HASHES "91 07" K_MEDIUM
		     "a4 54415045 82" K_TYPE REMOVED K_HASHES "91 08",
		"removed GPU rank=0 width=8 group=0 hashes=8");
	ck_assert_uint_eq(reader.unknown_media, 1);
	ck_assert_uint_eq(reader.bad_events, 0);
}
END_TEST

START_TEST(unknown_types_are_counted)
{
	check_decode("92" TIME "93 82" K_TYPE "a3 4e6577" K_HASHES "a1 78 91 a3 4e6577 91" CLEARED,
		"cleared GPU rank=0");
	ck_assert_uint_eq(reader.unknown_types, 2);
	ck_assert_uint_eq(reader.bad_events, 0);
	ck_assert_uint_eq(reader.events, 1);
}
END_TEST

/* Each of these events is wrong in itself; the one after it is not harmed. */
START_TEST(bad_events_leave_the_others)
{
	static const char *const bad[] = {
		"07",                                            /* no container */
		"80",                                            /* no type */
		"90",                                            /* no type */
		"81" K_TYPE REMOVED,                             /* no hashes */
		"82" K_TYPE "05" K_HASHES "91 07",               /* type: number */
		"82" K_TYPE REMOVED K_HASHES "07",               /* hashes: number */
		"82" K_TYPE REMOVED K_HASHES "91 a1 61",         /* hash: text */
		"82" K_TYPE REMOVED K_HASHES "91 c4 00",         /* hash: empty */
		"82" K_TYPE REMOVED "05 06",                     /* name: number */
		"82" K_TYPE STORED K_HASHES "91 07",             /* no block size */
		"83" K_TYPE STORED K_HASHES "91 07" K_SIZE "00", /* block size 0 */
		"84" K_TYPE STORED K_HASHES "91 07" K_SIZE "02" K_TOKENS "91 01",    /* too few */
		"84" K_TYPE STORED K_HASHES "91 07" K_SIZE "02" K_TOKENS "92 01 ff", /* token -1 */
		"84" K_TYPE STORED K_HASHES "91 07" K_SIZE "02" K_TOKENS
		"92 01 cf 0000000100000000",                                        /* token 2^32 */
		"84" K_TYPE STORED K_HASHES "91 07" K_SIZE "02" K_EXTRA "92 c0 c0", /* too many */
		"83" K_TYPE STORED K_HASHES "91 07" K_SIZE "a1 78",                 /* size: text */
	};
	char hex[512];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(hex, sizeof(hex), "92" TIME "92 %s 91" CLEARED, bad[i]);
		check_decode(hex, "cleared GPU rank=0");
		ck_assert_uint_eq(reader.bad_events, i + 1);
		ck_assert_ptr_nonnull(reader.error);
	}
}
END_TEST

static uint64_t extra_of(const char *keys)
{
	char hex[512];
	struct kvw_kv_event event;
	struct bytes payload;
	uint64_t extra;

	snprintf(hex, sizeof(hex),
		"92" TIME "91 84" K_TYPE STORED K_HASHES "92 07 08" K_SIZE "02" K_EXTRA "92 %s c0",
		keys);
	payload = bytes_of_hex(hex);
	ck_assert_int_eq(kvw_vllm_begin(&reader, payload.data, payload.len), KVW_OK);
	ck_assert_int_eq(kvw_vllm_next(&reader, &event), KVW_OK);
	if (event.extra != NULL)
		ck_assert_uint_eq(event.extra[1], 0);
	extra = event.extra == NULL ? 0 : event.extra[0];
	bytes_free(&payload);
	return extra;
}

START_TEST(extra_keys_tell_blocks_apart)
{
	uint64_t salt = extra_of("91 a1 61"), pair = extra_of("91 92 a2 6d31 05");

	ck_assert_uint_eq(extra_of("c0"), 0);
	ck_assert_uint_eq(extra_of("90"), 0);
	ck_assert_uint_eq(salt, kvw_kv_extra_text(0, KVW_SLICE("a")));
	ck_assert_uint_eq(extra_of("92 a2 6c31 a1 61"),
		kvw_kv_extra_text(kvw_kv_extra_text(0, KVW_SLICE("l1")), KVW_SLICE("a")));
	ck_assert_uint_eq(extra_of("91 07"), kvw_kv_extra_int(0, 7));
	ck_assert_uint_eq(extra_of("91 ce 00000007"), kvw_kv_extra_int(0, 7));
	ck_assert_uint_ne(pair, 0);
	ck_assert_uint_ne(pair, extra_of("91 92 a2 6d31 06"));
	ck_assert_uint_ne(extra_of("92 a1 61 a1 62"), extra_of("92 a1 62 a1 61"));
	ck_assert_uint_ne(extra_of("92 a1 61 a1 62"), extra_of("91 a2 6162"));
}
END_TEST

static void check_refused(const char *hex)
{
	struct bytes payload = bytes_of_hex(hex);
	struct kvw_kv_event event;

	ck_assert_msg(kvw_vllm_begin(&reader, payload.data, payload.len) != KVW_OK, "%s", hex);
	ck_assert_ptr_nonnull(reader.error);
	ck_assert_int_eq(kvw_vllm_next(&reader, &event), KVW_ENOTFOUND);
	bytes_free(&payload);
}

START_TEST(broken_batches_give_nothing)
{
	check_refused("");
	check_refused("07");
	check_refused("90");
	check_refused("91" TIME);
	check_refused("92 a1 78 90");
	check_refused("92" TIME "07");
	check_refused("93" TIME "90 a1 78");
	check_refused("93" TIME "90 ff");
	check_refused("92" TIME "90 00");
	check_refused("92" TIME "91 c1");
	/* counts and lengths beyond the payload */
	check_refused("92" TIME "dd ffffffff");
	check_refused("dd ffffffff");
	check_refused("df ffffffff");
	check_refused("92" TIME "91 82" K_TYPE REMOVED K_HASHES "dd ffffffff");
	check_refused("92" TIME "91 82" K_TYPE REMOVED K_HASHES "91 c6 ffffffff 00");
	ck_assert_uint_eq(reader.hash_room + reader.token_room, 0); /* nothing was reserved */
}
END_TEST

START_TEST(nesting_is_bounded)
{
	struct bytes payload = bytes_of_hex("92" TIME "91 91" CLEARED);
	uint8_t deep[512];
	size_t head = payload.len - 17 - 1;

	/* the same event with a member that nests without end */
	memcpy(deep, payload.data, head);
	memset(deep + head, 0x91, sizeof(deep) - head);
	deep[sizeof(deep) - 1] = 0xc0;
	ck_assert_int_eq(kvw_vllm_begin(&reader, deep, sizeof(deep)), KVW_ELIMIT);
	ck_assert_int_eq(kvw_vllm_begin(&reader, payload.data, payload.len), KVW_OK);
	bytes_free(&payload);
}
END_TEST

/* Every beginning of every recorded payload is refused, and none is read past its end. */
START_TEST(truncated_anywhere)
{
	struct lines lines = lines_read("vllm_events_bytes.txt");
	struct bytes frames[3], cut;
	const char *value;

	for (size_t i = 0; i < lines.count; i++) {
		value = line_value(lines.items[i], "frames");
		if (value == NULL)
			continue;
		message_of(value, frames);
		for (size_t len = 0; len < frames[2].len; len++) {
			cut = bytes_copy(frames[2].data, len);
			ck_assert_int_ne(kvw_vllm_begin(&reader, cut.data, cut.len), KVW_OK);
			bytes_free(&cut);
		}
		for (int f = 0; f < 3; f++)
			bytes_free(&frames[f]);
	}
	lines_free(&lines);
}
END_TEST

/* --- frames --------------------------------------------------------------------------------- */

#define SEQ_5                                                                                      \
	{                                                                                          \
		"\0\0\0\0\0\0\0\5", 8                                                              \
	}
#define ENDED                                                                                      \
	{                                                                                          \
		"\xff\xff\xff\xff\xff\xff\xff\xff", 8                                              \
	}
#define EMPTY                                                                                      \
	{                                                                                          \
		"", 0                                                                              \
	}
#define TOPIC                                                                                      \
	{                                                                                          \
		"kv@tiny", 7                                                                       \
	}
#define BATCH                                                                                      \
	{                                                                                          \
		"\x90", 1                                                                          \
	}

START_TEST(replay_request_bytes)
{
	uint8_t frame[8];

	kvw_vllm_replay_request(0, frame);
	ck_assert_mem_eq(frame, "\0\0\0\0\0\0\0\0", 8);
	kvw_vllm_replay_request(1000000, frame); /* as recorded: 00000000000f4240 */
	ck_assert_mem_eq(frame, "\0\0\0\0\0\x0f\x42\x40", 8);
}
END_TEST

START_TEST(replay_replies)
{
	const struct kvw_slice now[] = {EMPTY, TOPIC, SEQ_5, BATCH}; /* layout of 0.32 */
	const struct kvw_slice old[] = {EMPTY, SEQ_5, BATCH};        /* before 0.25, constructed */
	const struct kvw_slice now_end[] = {EMPTY, EMPTY, ENDED, EMPTY};
	const struct kvw_slice old_end[] = {EMPTY, ENDED, EMPTY};
	const struct kvw_slice end_with_payload[] = {EMPTY, EMPTY, ENDED, BATCH};
	const struct kvw_slice no_delimiter[] = {TOPIC, TOPIC, SEQ_5, BATCH};
	const struct kvw_slice short_sequence[] = {EMPTY, TOPIC, {"\0\0\0\5", 4}, BATCH};
	struct kvw_vllm_message message;

	ck_assert_int_eq(kvw_vllm_replayed(now, 4, &message), KVW_OK);
	ck_assert_uint_eq(message.sequence, 5);
	ck_assert_uint_eq(message.topic.len, 7);
	ck_assert_uint_eq(message.payload.len, 1);
	ck_assert_int_eq(kvw_vllm_replayed(old, 3, &message), KVW_OK);
	ck_assert_uint_eq(message.sequence, 5);
	ck_assert_uint_eq(message.topic.len, 0);
	ck_assert_uint_eq(message.payload.len, 1);
	ck_assert_int_eq(kvw_vllm_replayed(now_end, 4, &message), KVW_ENOTFOUND);
	ck_assert_int_eq(kvw_vllm_replayed(old_end, 3, &message), KVW_ENOTFOUND);
	ck_assert_int_eq(kvw_vllm_replayed(end_with_payload, 4, &message), KVW_EPROTO);
	ck_assert_int_eq(kvw_vllm_replayed(no_delimiter, 4, &message), KVW_EPROTO);
	ck_assert_int_eq(kvw_vllm_replayed(short_sequence, 4, &message), KVW_EPROTO);
	for (size_t count = 0; count < 3; count++)
		ck_assert_int_eq(kvw_vllm_replayed(now, count, &message), KVW_EPROTO);
	ck_assert_int_eq(kvw_vllm_replayed(now, 5, &message), KVW_EPROTO);
}
END_TEST

START_TEST(published_frames)
{
	const struct kvw_slice good[] = {TOPIC, SEQ_5, BATCH};
	const struct kvw_slice no_topic[] = {EMPTY, SEQ_5, BATCH};
	const struct kvw_slice bad[] = {TOPIC, {"\0\5", 2}, BATCH};
	const struct kvw_slice end[] = {TOPIC, ENDED, BATCH};
	struct kvw_vllm_message message;

	ck_assert_int_eq(kvw_vllm_published(good, 3, &message), KVW_OK);
	ck_assert_uint_eq(message.sequence, 5);
	ck_assert_int_eq(kvw_vllm_published(no_topic, 3, &message), KVW_OK);
	ck_assert_int_eq(kvw_vllm_published(good, 2, &message), KVW_EPROTO);
	ck_assert_int_eq(kvw_vllm_published(bad, 3, &message), KVW_EPROTO);
	ck_assert_int_eq(kvw_vllm_published(end, 3, &message), KVW_EPROTO);
}
END_TEST

/* Salt and whether it says all, of an event with LoRA l1 and these extra keys of two blocks. */
static void check_salt(const char *parent, const char *keys, const char *salt, bool plain)
{
	struct bytes payload;
	struct kvw_kv_event event;
	char hex[512];

	snprintf(hex, sizeof(hex), "92" TIME "91 99" STORED "92 07 08 %s c0 02 c0 c0 a2 6c31 %s",
		parent, keys);
	payload = bytes_of_hex(hex);
	ck_assert_int_eq(kvw_vllm_begin(&reader, payload.data, payload.len), KVW_OK);
	ck_assert_int_eq(kvw_vllm_next(&reader, &event), KVW_OK);
	ck_assert_uint_eq(event.salt.len, strlen(salt));
	ck_assert(kvw_slice_equal(event.salt, kvw_slice_of(salt)));
	ck_assert_msg(event.extra_is_plain == plain, "%s", keys);
	bytes_free(&payload);
}

START_TEST(salt_is_distinguished_from_extra_keys)
{
	check_salt("c0", "c0", "", true);
	check_salt("c0", "92 c0 c0", "", true);
	check_salt("c0", "92 91 a1 73 c0", "s", true);
	check_salt("c0", "92 91 a2 6c31 91 a2 6c31", "", true);
	check_salt("c0", "92 92 a2 6c31 a1 73 91 a2 6c31", "s", true);
	check_salt("05", "92 91 a1 73 c0", "", false);             /* not where a prompt begins */
	check_salt("c0", "92 91 a1 73 91 a1 73", "s", false);      /* a salt has one block only */
	check_salt("c0", "92 91 92 a1 6d 03 c0", "", false);       /* an image */
	check_salt("c0", "92 c0 91 92 a1 6d 03", "", false);       /* in the second block */
	check_salt("c0", "92 92 a1 73 92 a1 6d 03 c0", "", false); /* and a text next to it */
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("all");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, recorded_integers);
	tcase_add_test(tests, recorded_digests);
	tcase_add_test(tests, by_position);
	tcase_add_test(tests, lora_and_window);
	tcase_add_test(tests, batch_as_map);
	tcase_add_test(tests, members_in_any_order);
	tcase_add_test(tests, digest_and_integer_name_the_same_block);
	tcase_add_test(tests, media);
	tcase_add_test(tests, unknown_types_are_counted);
	tcase_add_test(tests, bad_events_leave_the_others);
	tcase_add_test(tests, extra_keys_tell_blocks_apart);
	tcase_add_test(tests, salt_is_distinguished_from_extra_keys);
	tcase_add_test(tests, broken_batches_give_nothing);
	tcase_add_test(tests, nesting_is_bounded);
	tcase_add_test(tests, truncated_anywhere);
	tcase_add_test(tests, replay_request_bytes);
	tcase_add_test(tests, replay_replies);
	tcase_add_test(tests, published_frames);
	tcase_set_timeout(tests, 120);
	return run_tcase("kv-vllm", tests);
}
