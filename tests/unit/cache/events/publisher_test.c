/*
 * publisher_test.c - what listeners hear, byte by byte and through the router's own decoder, and
 * what bad listeners cost.
 */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "events/event_batch.h"
#include "events_support.h"
#include "tests/unit/suite.h"
#include "wire/vllm_events.h"
#include "wire/vllm_frames.h"

#define ANY "tcp://127.0.0.1:*"

static struct world world;
static struct chunk chunk;
static void *zmq;
static struct kvt_config config;
static struct kvt_event_log *log_;

static void setup(void)
{
	world_init(&world);
	zmq = zmq_ctx_new();
	config = (struct kvt_config){
		.size = sizeof(config),
		.threads = KVT_THREADS_CALLER,
		.events_queue = 1000,
		.events_publish = ANY,
		.events_replay = ANY,
		.events_topic = "kv@test",
		.events_replay_bytes = 1 << 20,
	};
	log_ = NULL;
}

static void teardown(void)
{
	kvt_event_log_destroy(log_);
	zmq_ctx_term(zmq);
}

static void open_log(void)
{
	ck_assert_int_eq(kvt_event_log_create(&config, &world.s, &log_), KVT_OK);
}

static size_t step(void)
{
	int64_t next = INT64_MAX;

	return kvt_event_log_step(log_, &next);
}

static void *socket_to(int type, const char *address, int hwm)
{
	void *socket = zmq_socket(zmq, type);
	int zero = 0, wait_ms = 10000;

	zmq_setsockopt(socket, ZMQ_LINGER, &zero, sizeof(zero));
	zmq_setsockopt(socket, ZMQ_RCVTIMEO, &wait_ms, sizeof(wait_ms));
	zmq_setsockopt(socket, ZMQ_RCVHWM, &hwm, sizeof(hwm));
	if (type == ZMQ_SUB)
		zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0);
	ck_assert_int_eq(zmq_connect(socket, address), 0);
	return socket;
}

/* A message of up to KVW_VLLM_FRAMES_MAX frames. */
struct message {
	zmq_msg_t frames[KVW_VLLM_FRAMES_MAX];
	struct kvw_slice slices[KVW_VLLM_FRAMES_MAX];
	size_t count;
};

/* False: none came in time. */
static bool receive(void *socket, struct message *m, int flags)
{
	bool more = true;

	for (m->count = 0; more; m->count++) {
		zmq_msg_t *frame = &m->frames[m->count];

		ck_assert_uint_lt(m->count, KVW_VLLM_FRAMES_MAX);
		zmq_msg_init(frame);
		if (zmq_msg_recv(frame, socket, flags) < 0) {
			zmq_msg_close(frame);
			return false;
		}
		m->slices[m->count] = (struct kvw_slice){zmq_msg_data(frame), zmq_msg_size(frame)};
		more = zmq_msg_more(frame);
	}
	return true;
}

static void message_free(struct message *m)
{
	for (size_t i = 0; i < m->count; i++)
		zmq_msg_close(&m->frames[i]);
	m->count = 0;
}

/* Sends until the subscriber hears something: from then on it hears all. Returns the next number. */
static uint64_t join(void *sub)
{
	struct kvt_event_log_stats stats;
	struct kvw_vllm_message heard;
	struct message m;
	uint64_t number = 0;
	bool joined = false;

	for (int i = 0; i < 5000 && !joined; i++) {
		kvt_event_log_cleared(log_, KVT_TIER_L2);
		while (step() > 0)
			continue;
		joined = zmq_poll(&(zmq_pollitem_t){.socket = sub, .events = ZMQ_POLLIN}, 1, 2) > 0;
	}
	ck_assert(joined);
	kvt_event_log_stats(log_, &stats);
	while (number < stats.published_batches) {
		ck_assert(receive(sub, &m, 0));
		ck_assert_int_eq(kvw_vllm_published(m.slices, m.count, &heard), KVW_OK);
		number = heard.sequence + 1;
		message_free(&m);
	}
	return number;
}

/* --- bytes ------------------------------------------------------------------------------------ */

static void check_bytes(const struct kvt_event *events, size_t count, const char *expected)
{
	struct kvt_packed packed = {0};
	size_t len = strlen(expected) / 2;
	unsigned byte;

	ck_assert_int_eq(kvt_event_batch_pack(&packed, INT64_C(1500000000), events, count), KVT_OK);
	ck_assert_uint_eq(packed.len, len);
	for (size_t i = 0; i < len; i++) {
		ck_assert_int_eq(sscanf(expected + 2 * i, "%2x", &byte), 1);
		ck_assert_msg(packed.data[i] == byte, "byte %zu: %02x, not %02x", i, packed.data[i],
			byte);
	}
	kvt_packed_finish(&packed);
}

/* [1.5, [{...}], 0], as vLLM's encoder writes the same members in the same order. */
START_TEST(exact_bytes)
{
	static const uint8_t eight[] = {0xf0, 1, 2, 3, 4, 5, 6, 7},
			     small[] = {0, 0, 0, 0, 0, 0, 0, 9};
	static const uint8_t sixteen[16] = {0xaa, [15] = 0xbb};
	static const uint32_t tokens[] = {5, 300};
	struct kvt_event stored = {.kind = KVT_EVENT_STORED,
		.tier = KVT_TIER_L1,
		.hashes = eight,
		.hash_bytes = 8,
		.count = 1,
		.parent = small,
		.tokens = tokens,
		.block_size = 2,
		.lora_name = "ad"};
	struct kvt_event removed = {.kind = KVT_EVENT_REMOVED,
		.tier = KVT_TIER_NVME,
		.hashes = sixteen,
		.hash_bytes = 16,
		.count = 1};
	struct kvt_event cleared = {.kind = KVT_EVENT_CLEARED, .tier = KVT_TIER_L2};

	check_bytes(&stored, 1,
		"93cb3ff8000000000000"
		"91"
		"88"
		"a474797065"
		"ab426c6f636b53746f726564"
		"ac626c6f636b5f686173686573"
		"91cff001020304050607"
		"b1706172656e745f626c6f636b5f68617368"
		"09"
		"a9746f6b656e5f696473"
		"9205cd012c"
		"aa626c6f636b5f73697a65"
		"02"
		"a76c6f72615f6964"
		"c0"
		"a66d656469756d"
		"a3435055"
		"a96c6f72615f6e616d65"
		"a26164"
		"00");
	check_bytes(&removed, 1,
		"93cb3ff8000000000000"
		"91"
		"84"
		"a474797065"
		"ac426c6f636b52656d6f766564"
		"ac626c6f636b5f686173686573"
		"91c410aa0000000000000000000000000000bb"
		"a66d656469756d"
		"a753544f52414745"
		"a86c6f63616c697479"
		"a54c4f43414c"
		"00");
	check_bytes(&cleared, 1,
		"93cb3ff8000000000000"
		"91"
		"83"
		"a474797065"
		"b0416c6c426c6f636b73436c6561726564"
		"a66d656469756d"
		"a753544f52414745"
		"a86c6f63616c697479"
		"a652454d4f5445"
		"00");
	check_bytes(NULL, 0,
		"93cb3ff800000000000090"
		"00");
}
END_TEST

/* One name that is no UTF-8 would make a strict decoder refuse the whole batch. */
START_TEST(foreign_names_become_text)
{
	static const struct {
		const char *name, *told;
	} cases[] = {
		{"plain", "plain"},
		{"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"},
		{"a\xff"
		 "b",
			"a?b"},
		{"\xc0\x80", "??"},           /* overlong */
		{"\xed\xa0\x80", "???"},      /* half of a pair */
		{"\xf4\x90\x80\x80", "????"}, /* beyond the last */
		{"cut\xe2\x82", "cut??"},
	};
	static const uint8_t hash[8] = {1};
	struct kvt_event event = {.kind = KVT_EVENT_STORED,
		.hashes = hash,
		.hash_bytes = 8,
		.count = 1,
		.block_size = 16};
	struct kvt_packed packed = {0};
	struct kvw_vllm_reader reader;
	struct kvw_kv_event got;

	kvw_vllm_reader_init(&reader);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		event.lora_name = cases[i].name;
		ck_assert_int_eq(kvt_event_batch_pack(&packed, 0, &event, 1), KVT_OK);
		ck_assert_int_eq(kvw_vllm_begin(&reader, packed.data, packed.len), KVW_OK);
		ck_assert_int_eq(kvw_vllm_next(&reader, &got), KVW_OK);
		ck_assert_uint_eq(got.lora.len, strlen(cases[i].told));
		ck_assert_mem_eq(got.lora.data, cases[i].told, got.lora.len);
	}
	kvw_vllm_reader_finish(&reader);
	kvt_packed_finish(&packed);
}
END_TEST

/* --- publishing ------------------------------------------------------------------------------- */

static const enum kvw_tier tier_told[] = {
	[KVT_TIER_L1] = KVW_TIER_HOST,
	[KVT_TIER_NVME] = KVW_TIER_DISK,
	[KVT_TIER_L2] = KVW_TIER_REMOTE,
};

/* Chunk i of the round trip: every width, tier, with and without parent and tokens. */
static enum kvt_event_kind make_case(uint32_t i, uint32_t *tier)
{
	static const uint32_t widths[] = {8, 16, 32};

	chunk_make(&chunk, i, 1 + i % 40, widths[i % 3], 1 + i % 16);
	if (i % 4 == 0)
		chunk.blocks.parent = NULL;
	if (i % 5 == 0)
		chunk.blocks.tokens = NULL;
	if (i % 7 == 0)
		chunk.blocks.lora_name = "adapter";
	*tier = i % KVT_TIER_COUNT;
	return i % 11 == 0 ? KVT_EVENT_CLEARED : i % 3 == 1 ? KVT_EVENT_REMOVED : KVT_EVENT_STORED;
}

static void check_case(const struct kvw_kv_event *got, uint32_t i)
{
	static const enum kvw_kv_kind kinds[] = {[KVT_EVENT_STORED] = KVW_KV_STORED,
		[KVT_EVENT_REMOVED] = KVW_KV_REMOVED,
		[KVT_EVENT_CLEARED] = KVW_KV_CLEARED};
	uint32_t tier;
	enum kvt_event_kind kind = make_case(i, &tier);
	const struct kvt_blocks *b = &chunk.blocks;
	bool stored = kind == KVT_EVENT_STORED;

	ck_assert_int_eq(got->kind, kinds[kind]);
	ck_assert_int_eq(got->tier, tier_told[tier]);
	ck_assert_uint_eq(got->rank, 0);
	ck_assert_uint_eq(got->hash_count, kind == KVT_EVENT_CLEARED ? 0 : b->count);
	for (uint32_t n = 0; n < got->hash_count; n++)
		ck_assert_uint_eq(got->hashes[n], chunk_name(&chunk, n));
	if (got->hash_count > 0)
		ck_assert_uint_eq(got->hash_bytes, b->hash_bytes);
	ck_assert_int_eq(got->has_parent, stored && b->parent != NULL);
	ck_assert_uint_eq(got->token_count,
		stored && b->tokens != NULL ? (size_t)b->count * b->block_size : 0);
	if (got->token_count > 0)
		ck_assert_mem_eq(got->tokens, b->tokens, got->token_count * sizeof(uint32_t));
	ck_assert_uint_eq(got->block_size, stored ? b->block_size : 0);
	ck_assert_uint_eq(got->lora.len, stored && b->lora_name != NULL ? 7 : 0);
}

#define CASES 2500u

static void add_case(uint32_t i)
{
	uint32_t tier;

	switch (make_case(i, &tier)) {
	case KVT_EVENT_STORED:
		kvt_event_log_stored(log_, tier, &chunk.blocks);
		break;
	case KVT_EVENT_REMOVED:
		kvt_event_log_removed(log_, tier, &chunk.blocks);
		break;
	case KVT_EVENT_CLEARED:
		kvt_event_log_cleared(log_, tier);
		break;
	}
}

/* What is published decodes into what was reported, all of it, in order. */
START_TEST(decodes_into_what_was_published)
{
	struct kvw_vllm_message heard;
	struct kvw_vllm_reader reader;
	struct kvw_kv_event got;
	struct message m;
	uint64_t number;
	uint32_t next = 0;
	void *sub;

	config.events_queue = 4096;
	open_log();
	sub = socket_to(ZMQ_SUB, kvt_event_log_address(log_), 0);
	number = join(sub);
	kvw_vllm_reader_init(&reader);
	for (uint32_t i = 0; i < CASES; i++) {
		add_case(i);
		if (i % 700 == 699 || i + 1 == CASES)
			ck_assert_uint_gt(step(), 0);
	}
	while (next < CASES) {
		ck_assert(receive(sub, &m, 0));
		ck_assert_int_eq(kvw_vllm_published(m.slices, m.count, &heard), KVW_OK);
		ck_assert(kvw_slice_equal(heard.topic, KVW_SLICE("kv@test")));
		ck_assert_uint_eq(heard.sequence, number++);
		ck_assert_int_eq(
			kvw_vllm_begin(&reader, heard.payload.data, heard.payload.len), KVW_OK);
		ck_assert(reader.has_rank);
		ck_assert_double_eq(reader.time_s, 1700000000.25);
		while (kvw_vllm_next(&reader, &got) == KVW_OK)
			check_case(&got, next++);
		message_free(&m);
	}
	ck_assert_uint_eq(next, CASES);
	ck_assert_uint_eq(reader.bad_events + reader.unknown_types + reader.unknown_media, 0);
	kvw_vllm_reader_finish(&reader);
	zmq_close(sub);
}
END_TEST

/* Publishes one batch, which `quick` hears at once. */
static void publish_to(void *quick, uint64_t number)
{
	struct kvw_vllm_message heard;
	struct message m;

	kvt_event_log_stored(log_, KVT_TIER_L1, &chunk.blocks);
	ck_assert_uint_eq(step(), 1);
	ck_assert(receive(quick, &m, 0));
	ck_assert_int_eq(kvw_vllm_published(m.slices, m.count, &heard), KVW_OK);
	ck_assert_uint_eq(heard.sequence, number);
	message_free(&m);
}

/* A subscriber that does not read loses batches and sees it; the other one loses none. */
START_TEST(slow_subscriber_costs_nothing)
{
	struct kvt_event_log_stats stats = {0};
	struct kvw_vllm_message heard;
	struct message m;
	void *slow, *quick;
	uint64_t number, next, gap = 0;

	open_log();
	slow = socket_to(ZMQ_SUB, kvt_event_log_address(log_), 1);
	next = join(slow);
	quick = socket_to(ZMQ_SUB, kvt_event_log_address(log_), 0);
	number = join(quick);
	chunk_make(&chunk, 1, 2000, 32, 16);
	for (int i = 0; i < 5000 && stats.publish_drops == 0; i++) {
		publish_to(quick, number++);
		kvt_event_log_stats(log_, &stats);
	}
	ck_assert_uint_eq(stats.publish_drops, 1);
	for (int i = 0; i < 50; i++)
		publish_to(quick, number++);
	for (int i = 0; i < 5000 && gap == 0; i++) {
		while (gap == 0 && zmq_poll(&(zmq_pollitem_t){.socket = slow, .events = ZMQ_POLLIN},
					   1, 1) > 0) {
			ck_assert(receive(slow, &m, 0));
			ck_assert_int_eq(kvw_vllm_published(m.slices, m.count, &heard), KVW_OK);
			gap = heard.sequence - next;
			next = heard.sequence + 1;
			message_free(&m);
		}
		if (gap == 0)
			publish_to(quick, number++);
	}
	ck_assert_uint_ge(gap, 50);
	kvt_event_log_stats(log_, &stats);
	ck_assert_uint_eq(stats.publish_lost, 0);
	ck_assert_uint_eq(stats.published_batches, number);
	for (int i = 0; i < 5000; i++) /* more than the publisher's queue keeps: a gap, not silence */
		kvt_event_log_cleared(log_, KVT_TIER_L2);
	(void)step();
	ck_assert(receive(quick, &m, 0));
	ck_assert_int_eq(kvw_vllm_published(m.slices, m.count, &heard), KVW_OK);
	ck_assert_uint_eq(heard.sequence, number + 1);
	message_free(&m);
	zmq_close(slow);
	zmq_close(quick);
}
END_TEST

/* --- replay ----------------------------------------------------------------------------------- */

static void ask(void *dealer, uint64_t first)
{
	uint8_t frame[8];

	kvw_vllm_replay_request(first, frame);
	ck_assert_int_ge(zmq_send(dealer, "", 0, ZMQ_SNDMORE), 0);
	ck_assert_int_ge(zmq_send(dealer, frame, 8, 0), 0);
}

/* The next message of an answer; the log is stepped until it is there. */
static enum kvw_err answer(void *dealer, struct message *m, struct kvw_vllm_message *out)
{
	for (int i = 0; i < 10000; i++) {
		step();
		if (zmq_poll(&(zmq_pollitem_t){.socket = dealer, .events = ZMQ_POLLIN}, 1, 1) > 0) {
			ck_assert(receive(dealer, m, 0));
			return kvw_vllm_replayed(m->slices, m->count, out);
		}
	}
	ck_abort_msg("no answer");
}

/* The batches of an answer: their numbers follow each other from `first`, then the end marker.
 * Returns how many came. */
static uint64_t check_answer(void *dealer, uint64_t *first)
{
	struct kvw_vllm_message got;
	struct message m;
	uint64_t count = 0;

	while (answer(dealer, &m, &got) == KVW_OK) {
		if (count == 0)
			*first = got.sequence;
		ck_assert_uint_eq(got.sequence, *first + count);
		ck_assert(kvw_slice_equal(got.topic, KVW_SLICE("kv@test")));
		count++;
		message_free(&m);
	}
	ck_assert_uint_eq(m.count, 4); /* "", "", ff x 8, "" */
	ck_assert_uint_eq(m.slices[0].len + m.slices[1].len + m.slices[3].len, 0);
	ck_assert_mem_eq(m.slices[2].data, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
	message_free(&m);
	return count;
}

static void publish_some(uint32_t batches)
{
	for (uint32_t i = 0; i < batches; i++) {
		kvt_event_log_removed(log_, KVT_TIER_L1, &chunk.blocks);
		ck_assert_uint_ge(step(), 1);
	}
}

START_TEST(replay_from_a_number)
{
	struct kvt_event_log_stats stats;
	int64_t next = world.now_ns + 1;
	uint64_t first = 0;
	void *dealer;

	open_log();
	chunk_make(&chunk, 1, 4, 32, 16);
	publish_some(20);
	dealer = socket_to(ZMQ_DEALER, kvt_event_log_replay_address(log_), 1000);
	ask(dealer, 0);
	ck_assert_uint_eq(check_answer(dealer, &first), 20);
	ck_assert_uint_eq(first, 0);
	ask(dealer, 17);
	ck_assert_uint_eq(check_answer(dealer, &first), 3);
	ck_assert_uint_eq(first, 17);
	ask(dealer, 20); /* not there yet: the end marker alone */
	ck_assert_uint_eq(check_answer(dealer, &first), 0);
	ask(dealer, UINT64_MAX);
	ck_assert_uint_eq(check_answer(dealer, &first), 0);
	kvt_event_log_stats(log_, &stats);
	(void)kvt_event_log_step(log_, &next);
	ck_assert_int_eq(next, world.now_ns + 1);
	next = INT64_MAX;
	(void)kvt_event_log_step(log_, &next);
	ck_assert_int_eq(next, world.now_ns + INT64_C(100000000));
	ck_assert_uint_eq(stats.replays, 4);
	ck_assert_uint_eq(stats.published_batches, 20);
	zmq_close(dealer);
}
END_TEST

/* What exceeds the buffer is forgotten, oldest first, and the answer begins later. */
START_TEST(replay_buffer_is_bounded)
{
	struct kvt_event_log_stats stats;
	uint64_t first = 0, count;
	void *dealer;

	config.events_replay_bytes = 50000;
	open_log();
	chunk_make(&chunk, 1, 100, 32, 16);
	publish_some(100);
	dealer = socket_to(ZMQ_DEALER, kvt_event_log_replay_address(log_), 1000);
	ask(dealer, 0);
	count = check_answer(dealer, &first);
	kvt_event_log_stats(log_, &stats);
	ck_assert_uint_ge(count, 10);
	ck_assert_uint_eq(first + count, 100);
	ck_assert_uint_le(stats.replay_bytes_held, 50000);
	ck_assert_uint_ge(stats.replay_bytes_held, 40000);
	ck_assert_uint_le(stats.replay_memory_bytes, 60000);
	zmq_close(dealer);
}
END_TEST

/* Requests of another form get no answer, and do not disturb the next one. */
START_TEST(malformed_requests)
{
	char large[200] = {0};
	uint64_t first = 0;
	void *dealer;

	open_log();
	chunk_make(&chunk, 1, 4, 8, 16);
	publish_some(3);
	dealer = socket_to(ZMQ_DEALER, kvt_event_log_replay_address(log_), 1000);
	zmq_send(dealer, "12345678", 8, 0);    /* no empty frame */
	zmq_send(dealer, "", 0, 0);            /* nothing but it */
	zmq_send(dealer, "x", 1, ZMQ_SNDMORE); /* not empty */
	zmq_send(dealer, "12345678", 8, 0);
	zmq_send(dealer, "", 0, ZMQ_SNDMORE); /* too short */
	zmq_send(dealer, "1234567", 7, 0);
	zmq_send(dealer, "", 0, ZMQ_SNDMORE); /* too long */
	zmq_send(dealer, large, sizeof(large), 0);
	zmq_send(dealer, "", 0, ZMQ_SNDMORE); /* too many */
	zmq_send(dealer, large, 8, ZMQ_SNDMORE);
	zmq_send(dealer, large, 8, 0);
	ask(dealer, 1);
	ck_assert_uint_eq(check_answer(dealer, &first), 2);
	ck_assert_uint_eq(first, 1);
	zmq_close(dealer);
}
END_TEST

/* An asker that stops reading is given up after a while; until then and after it, others go on. */
START_TEST(sleeping_asker_is_given_up)
{
	struct kvt_event_log_stats stats;
	struct kvw_vllm_message heard;
	struct message m;
	uint64_t first = 0, number;
	void *asleep, *dealer, *sub;

	config.events_replay_bytes = 64 << 20;
	open_log();
	sub = socket_to(ZMQ_SUB, kvt_event_log_address(log_), 0);
	(void)join(sub);
	chunk_make(&chunk, 1, 2000, 32, 16);
	publish_some(700);
	asleep = socket_to(ZMQ_DEALER, kvt_event_log_replay_address(log_), 1);
	ask(asleep, 0);
	for (int i = 0; i < 1000; i++) { /* until its queue is full */
		step();
		usleep(1000);
	}
	kvt_event_log_stats(log_, &stats);
	ck_assert_uint_eq(stats.replays, 0);
	ck_assert_uint_eq(stats.replays_given_up, 0);
	publish_some(1); /* is heard as ever */
	kvt_event_log_stats(log_, &stats);
	do {
		ck_assert(receive(sub, &m, 0));
		ck_assert_int_eq(kvw_vllm_published(m.slices, m.count, &heard), KVW_OK);
		number = heard.sequence;
		message_free(&m);
	} while (number + 1 < stats.published_batches);

	for (int i = 0; i < 5000 && stats.replays_given_up == 0; i++) {
		world.now_ns += INT64_C(6000000000);
		step();
		kvt_event_log_stats(log_, &stats);
		usleep(10000); /* its queue may be full only later */
	}
	ck_assert_uint_eq(stats.replays_given_up, 1);
	dealer = socket_to(ZMQ_DEALER, kvt_event_log_replay_address(log_), 1000);
	ask(dealer, number - 1);
	ck_assert_uint_eq(check_answer(dealer, &first), 2);
	zmq_close(asleep);
	zmq_close(dealer);
	zmq_close(sub);
}
END_TEST

/* --- addresses, threads ------------------------------------------------------------------------- */

/* What cannot be bound is logged and left out; the rest works. */
START_TEST(addresses_that_cannot_be_bound)
{
	static const char *const bad[] = {
		"tcp://127.0.0.1:notaport", "nonsense", "tcp://203.0.113.7:1"};
	struct kvt_event_log *second = NULL;
	struct kvt_event out[4];
	char taken[256];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		config.events_publish = bad[i];
		ck_assert_int_eq(kvt_event_log_create(&config, &world.s, &second), KVT_OK);
		ck_assert_ptr_nonnull(strstr(world.lines, bad[i]));
		ck_assert_str_eq(kvt_event_log_address(second), "");
		ck_assert_str_eq(kvt_event_log_replay_address(second), "");
		kvt_event_log_cleared(second, KVT_TIER_L1);
		ck_assert_uint_eq(kvt_event_log_take(second, out, 4), 1);
		kvt_event_log_destroy(second);
	}
	config.events_publish = ANY;
	open_log();
	snprintf(taken, sizeof(taken), "%s", kvt_event_log_replay_address(log_));
	config.events_replay = taken;
	world.lines[0] = '\0';
	ck_assert_int_eq(kvt_event_log_create(&config, &world.s, &second), KVT_OK);
	ck_assert_ptr_nonnull(strstr(world.lines, taken));
	ck_assert_str_ne(kvt_event_log_address(second), "");
	ck_assert_str_eq(kvt_event_log_replay_address(second), "");
	kvt_event_log_destroy(second);
}
END_TEST

/* Threads named `name` that could take a signal; *found: how many have that name. */
static int open_to_signals(const char *name, int *found)
{
	struct dirent *entry;
	DIR *dir = opendir("/proc/self/task");
	char path[300], line[200], blocked[64];
	int open = 0;

	*found = 0;
	while ((entry = readdir(dir)) != NULL) {
		bool named = false;
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		file = fopen(path, "r");
		while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
			if (strncmp(line, "Name:", 5) == 0)
				named = strstr(line, name) != NULL;
			if (named && sscanf(line, "SigBlk: %63s", blocked) == 1) {
				(*found)++;
				open += (strtoull(blocked, NULL, 16) & 0x7000) !=
					0x7000; /* PIPE ALRM TERM */
			}
		}
		if (file != NULL)
			fclose(file);
	}
	closedir(dir);
	return open;
}

/* Whether a log with a thread of its own, which is never stepped, sends all that is pending at its end.
 * It has 100 ms for that, by the machine's clock. */
static bool leaves_at_the_end(void)
{
	struct kvw_vllm_message heard;
	struct kvw_vllm_reader reader;
	struct kvw_kv_event got;
	struct message m;
	uint32_t next = 0;
	uint64_t number = 0;
	void *sub;
	int found = 0;

	config.threads = KVT_THREADS_OWN;
	open_log();
	sub = socket_to(ZMQ_SUB, kvt_event_log_address(log_), 0);
	do
		kvt_event_log_cleared(log_, KVT_TIER_L2);
	while (zmq_poll(&(zmq_pollitem_t){.socket = sub, .events = ZMQ_POLLIN}, 1, 20) <= 0);
	ck_assert_int_eq(open_to_signals("kvt-events", &found), 0);
	ck_assert_int_eq(found, 1);
	for (uint32_t i = 1; i <= 300; i++) {
		chunk_make(&chunk, i, 2, 8, 4);
		kvt_event_log_stored(log_, KVT_TIER_NVME, &chunk.blocks);
	}
	kvt_event_log_destroy(log_);
	log_ = NULL;
	kvw_vllm_reader_init(&reader);
	while (next < 300) {
		if (!receive(sub, &m, 0))
			break;
		ck_assert_int_eq(kvw_vllm_published(m.slices, m.count, &heard), KVW_OK);
		if (number != 0)
			ck_assert_uint_eq(heard.sequence, number);
		number = heard.sequence + 1;
		ck_assert_int_eq(
			kvw_vllm_begin(&reader, heard.payload.data, heard.payload.len), KVW_OK);
		while (kvw_vllm_next(&reader, &got) == KVW_OK) {
			if (got.kind == KVW_KV_CLEARED)
				continue;
			chunk_make(&chunk, ++next, 2, 8, 4);
			ck_assert_uint_eq(got.hashes[0], chunk_name(&chunk, 0));
		}
		message_free(&m);
	}
	kvw_vllm_reader_finish(&reader);
	zmq_close(sub);
	return next == 300;
}

START_TEST(own_thread)
{
	for (int tries = 1; !leaves_at_the_end(); tries++)
		ck_assert_int_lt(tries, 4);
}
END_TEST

/* The thread answers requests that come while nothing else happens. */
START_TEST(own_thread_replays)
{
	struct kvw_vllm_message got;
	struct message m;
	enum kvw_err err;
	void *dealer;
	int batches = 0;

	config.threads = KVT_THREADS_OWN;
	open_log();
	dealer = socket_to(ZMQ_DEALER, kvt_event_log_replay_address(log_), 1000);
	kvt_event_log_cleared(log_, KVT_TIER_L1);
	for (bool there = false; !there;) { /* published when an answer has it */
		ask(dealer, 0);
		do {
			ck_assert(receive(dealer, &m, 0));
			err = kvw_vllm_replayed(m.slices, m.count, &got);
			batches += err == KVW_OK;
			message_free(&m);
		} while (err == KVW_OK);
		ck_assert_int_eq(err, KVW_ENOTFOUND);
		there = batches > 0;
	}
	zmq_close(dealer);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("publisher");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, exact_bytes);
	tcase_add_test(tc, foreign_names_become_text);
	tcase_add_test(tc, decodes_into_what_was_published);
	tcase_add_test(tc, slow_subscriber_costs_nothing);
	tcase_add_test(tc, replay_from_a_number);
	tcase_add_test(tc, replay_buffer_is_bounded);
	tcase_add_test(tc, malformed_requests);
	tcase_add_test(tc, sleeping_asker_is_given_up);
	tcase_add_test(tc, addresses_that_cannot_be_bound);
	tcase_add_test(tc, own_thread);
	tcase_add_test(tc, own_thread_replays);
	return run_tcase("cache-events-publisher", tc);
}
