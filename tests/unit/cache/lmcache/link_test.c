/*
 * link_test.c - one worker's link against a controller that is played here, over real sockets in the time
 * that a test says: registration, silence, gaps, full syncs, and what a hostile one sends.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#include "lmcache/controller_link.h"
#include "tests/unit/suite.h"
#include "wire/msgpack.h"
#include "wire/lmcache_wire.h"

#define SECOND INT64_C(1000000000)
#define KEYS   25

static void *zmq;
static void *pull, *reply, *beat; /* the controller's */
static struct kvt_controller_link *link_;
static struct kvt_controller_link_config config;
static int64_t now;
static uint64_t held[KEYS];
static uint32_t held_count, commands;
static struct kvw_lmc_reader reader;

/* What came last, on any socket. */
static struct kvw_lmc_message got;
static zmq_msg_t got_frame;
static bool has_frame;

static void *bound(int type, char *address)
{
	void *socket = zmq_socket(zmq, type);
	size_t len = KVT_CONTROLLER_TEXT_MAX;
	int linger = 0;

	zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof(linger));
	ck_assert_int_eq(zmq_bind(socket, "tcp://127.0.0.1:*"), 0);
	ck_assert_int_eq(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, address, &len), 0);
	return socket;
}

static void on_command(
	void *self, const struct kvt_controller_message *m, struct kvt_controller_buf *answer)
{
	(void)self;
	commands++;
	kvt_controller_put_error(answer, m->type);
}

static bool all_keys(void *self, uint32_t location, uint64_t **keys, uint32_t *count)
{
	(void)self;
	*count = location == 0 ? held_count : 0;
	*keys = malloc(sizeof(held));
	memcpy(*keys, held, sizeof(held));
	return true;
}

static char addresses[3][KVT_CONTROLLER_TEXT_MAX];

static void setup(void)
{
	zmq = zmq_ctx_new();
	pull = bound(ZMQ_PULL, addresses[0]);
	reply = bound(ZMQ_ROUTER, addresses[1]);
	beat = bound(ZMQ_ROUTER, addresses[2]);
	config = (struct kvt_controller_link_config){.zmq = zmq,
		.pull = addresses[0],
		.reply = addresses[1],
		.heartbeat = "",
		.instance = "i0",
		.ip = "127.0.0.1",
		.bind = "",
		.worker = 3,
		.signed_keys = true,
		.locations = 2,
		.heartbeat_ns = 10 * SECOND,
		.heartbeat_delay_ns = SECOND,
		.answer_ns = 5 * SECOND,
		.sync_batch = 10,
		.queue = 16,
		.user = {.command = on_command, .keys = all_keys}};
	now = 1000 * SECOND;
	held_count = commands = 0;
	for (uint32_t i = 0; i < KEYS; i++)
		held[i] = 100 + i;
	kvw_lmc_reader_init(&reader);
	has_frame = false;
}

static void forget_asker(void);

static void teardown(void)
{
	forget_asker();
	kvt_controller_link_destroy(link_);
	link_ = NULL;
	if (has_frame)
		zmq_msg_close(&got_frame);
	kvw_lmc_reader_finish(&reader);
	zmq_close(pull);
	zmq_close(reply);
	zmq_close(beat);
	zmq_ctx_term(zmq);
}

static void begin(void)
{
	char why[KVT_CONTROLLER_TEXT_MAX];

	link_ = kvt_controller_link_create(&config, now, why);
	ck_assert_msg(link_ != NULL, "%s", why);
}

static void step(void)
{
	int64_t next = INT64_MAX;

	while (kvt_controller_link_step(link_, now, &next) > 0)
		continue;
}

static struct kvt_controller_link_stats stats(void)
{
	struct kvt_controller_link_stats s;

	kvt_controller_link_stats(link_, &s);
	return s;
}

/* Peers of a ROUTER: the last to ask. */
static zmq_msg_t asker;
static bool has_asker;

static void forget_asker(void)
{
	if (has_asker)
		zmq_msg_close(&asker);
	has_asker = false;
}

/* The next frame of a socket, as a message; the link is stepped meanwhile. */
static enum kvw_lmc_type hear(void *socket, int tries)
{
	for (int i = 0; i < tries; i++) {
		zmq_msg_t frame;
		bool more = true, first = socket != pull;

		step();
		while (more) {
			zmq_msg_init(&frame);
			if (zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) < 0)
				break;
			if (first) {
				forget_asker();
				zmq_msg_init(&asker);
				zmq_msg_move(&asker, &frame);
				has_asker = true;
				zmq_msg_close(&frame);
				first = false;
				continue;
			}
			if (zmq_msg_size(&frame) == 0) {
				zmq_msg_close(&frame);
				continue;
			}
			if (has_frame)
				zmq_msg_close(&got_frame);
			got_frame = frame;
			has_frame = true;
			more = socket == pull ? false : zmq_msg_more(&got_frame);
			ck_assert_int_eq(kvw_lmc_read(&reader,
						 (struct kvw_slice){zmq_msg_data(&got_frame),
							 zmq_msg_size(&got_frame)},
						 &got),
				KVW_OK);
			if (!more)
				return got.type;
		}
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return KVW_LMC_TYPE_COUNT;
}

#define LONG  20000 /* tries: 20 s and more */
#define SHORT 60

static void answer(void *socket, const void *data, size_t len)
{
	ck_assert(has_asker);
	ck_assert_int_ge(zmq_msg_send(&asker, socket, ZMQ_SNDMORE), 0);
	has_asker = false;
	ck_assert_int_ge(zmq_send(socket, "", 0, ZMQ_SNDMORE), 0);
	ck_assert_int_ge(zmq_send(socket, data, len, 0), 0);
}

static struct kvw_mp_out *put_map(
	uint8_t *room, size_t size, struct kvw_mp_out *mp, const char *type, uint32_t pairs)
{
	kvw_mp_out_init(mp, room, size);
	kvw_mp_put_map(mp, pairs);
	kvw_mp_put_str(mp, KVW_SLICE("type"));
	kvw_mp_put_str(mp, kvw_slice_of(type));
	return mp;
}

static void until_registered(void)
{
	for (int i = 0; i < LONG && !stats().registered; i++) {
		step();
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	ck_assert(stats().registered);
}

static void answer_register(void)
{
	uint8_t room[512];
	struct kvw_mp_out mp;

	put_map(room, sizeof(room), &mp, "RegisterRetMsg", 2);
	kvw_mp_put_str(&mp, KVW_SLICE("extra_config"));
	kvw_mp_put_map(&mp, 1);
	kvw_mp_put_str(&mp, KVW_SLICE("heartbeat_url"));
	kvw_mp_put_str(&mp, kvw_slice_of(addresses[2] + strlen("tcp://")));
	answer(reply, room, mp.len);
	until_registered();
}

static void answer_beat(bool sync)
{
	uint8_t room[512];
	struct kvw_mp_out mp;

	put_map(room, sizeof(room), &mp, "HeartbeatRetMsg", 2);
	kvw_mp_put_str(&mp, KVW_SLICE("commands"));
	kvw_mp_put_array(&mp, sync);
	if (sync) {
		kvw_mp_put_map(&mp, 1);
		kvw_mp_put_str(&mp, KVW_SLICE("command_type"));
		kvw_mp_put_str(&mp, KVW_SLICE("full_sync"));
	}
	answer(beat, room, mp.len);
}

static void answer_start(bool accepted)
{
	uint8_t room[512];
	struct kvw_mp_out mp;

	put_map(room, sizeof(room), &mp, "FullSyncStartRetMsg", 2);
	kvw_mp_put_str(&mp, KVW_SLICE("accepted"));
	kvw_mp_put_bool(&mp, accepted);
	answer(reply, room, mp.len);
}

/* missing: -1: none. */
static void answer_status(bool complete, int missing)
{
	uint8_t room[512];
	struct kvw_mp_out mp;

	put_map(room, sizeof(room), &mp, "FullSyncStatusRetMsg", 3);
	kvw_mp_put_str(&mp, KVW_SLICE("is_complete"));
	kvw_mp_put_bool(&mp, complete);
	kvw_mp_put_str(&mp, KVW_SLICE("missing_batches"));
	kvw_mp_put_array(&mp, missing >= 0);
	if (missing >= 0)
		kvw_mp_put_uint(&mp, (uint64_t)missing);
	answer(reply, room, mp.len);
}

static void enrol(void)
{
	begin();
	ck_assert_int_eq(hear(reply, LONG), KVW_LMC_REGISTER);
	ck_assert_uint_eq(got.worker_id, 3);
	answer_register();
}

START_TEST(changes_wait_for_the_registration_and_are_numbered)
{
	begin();
	for (uint64_t key = 0; key < 3; key++)
		kvt_controller_link_change(link_, 0, true, key);
	kvt_controller_link_change(link_, 1, true, 9);
	ck_assert_int_eq(hear(reply, LONG), KVW_LMC_REGISTER);
	ck_assert_int_eq(hear(pull, SHORT), KVW_LMC_TYPE_COUNT);
	answer_register();
	ck_assert_int_eq(hear(pull, LONG), KVW_LMC_OPERATIONS);
	ck_assert(kvw_slice_equal(got.location, KVW_SLICE("LocalCPUBackend")));
	ck_assert_uint_eq(got.key_count, 3);
	ck_assert_uint_eq(got.numbers[2], 2);
	ck_assert_int_eq(hear(pull, LONG), KVW_LMC_OPERATIONS);
	ck_assert(kvw_slice_equal(got.location, KVW_SLICE("LocalDiskBackend")));
	ck_assert_uint_eq(got.numbers[0], 0);
	kvt_controller_link_change(link_, 0, false, 1);
	ck_assert_int_eq(hear(pull, LONG), KVW_LMC_OPERATIONS);
	ck_assert_uint_eq(got.numbers[0], 3);
	ck_assert(!got.admits[0]);
}
END_TEST

START_TEST(a_silent_controller_is_asked_again)
{
	begin();
	ck_assert_int_eq(hear(reply, LONG), KVW_LMC_REGISTER);
	now += 4 * SECOND;
	ck_assert_int_eq(hear(reply, SHORT), KVW_LMC_TYPE_COUNT);
	now += 2 * SECOND;
	ck_assert_int_eq(hear(reply, LONG), KVW_LMC_REGISTER);
	answer_register();
	ck_assert_uint_eq(stats().registrations, 2);
	ck_assert_uint_eq(stats().silences, 1);
}
END_TEST

START_TEST(a_stock_worker_gives_up)
{
	config.stock = true;
	begin();
	ck_assert_int_eq(hear(reply, LONG), KVW_LMC_REGISTER);
	now += 6 * SECOND;
	ck_assert_int_eq(hear(reply, SHORT), KVW_LMC_TYPE_COUNT);
	answer(reply, "\x80", 1);
	kvt_controller_link_change(link_, 0, true, 1);
	kvt_controller_link_flush(link_);
	ck_assert_int_eq(hear(pull, SHORT), KVW_LMC_TYPE_COUNT);
	ck_assert(!stats().registered);
}
END_TEST

/* One location's sync, from Start to Status. */
static void play_sync(uint32_t keys, bool lose_one)
{
	uint32_t batches = (keys + 9) / 10, told = 0;

	ck_assert_int_eq(hear(reply, LONG), KVW_LMC_SYNC_START);
	ck_assert_uint_eq(got.total_keys, keys);
	ck_assert_uint_eq(got.batch_count, batches);
	kvt_controller_link_change(link_, 0, true, 7777); /* waits until it is over */
	answer_start(true);
	for (uint32_t i = 0; i < batches; i++) {
		ck_assert_int_eq(hear(pull, LONG), KVW_LMC_SYNC_BATCH);
		ck_assert_uint_eq(got.batch_id, i);
		told += (uint32_t)got.key_count;
	}
	ck_assert_uint_eq(told, keys);
	ck_assert_int_eq(hear(pull, LONG), KVW_LMC_SYNC_END);
	now += SECOND;
	ck_assert_int_eq(hear(reply, LONG), KVW_LMC_SYNC_STATUS);
	if (lose_one) {
		answer_status(false, 1);
		ck_assert_int_eq(hear(pull, LONG), KVW_LMC_SYNC_BATCH);
		ck_assert_uint_eq(got.batch_id, 1);
		ck_assert_int_eq(hear(pull, LONG), KVW_LMC_SYNC_END);
		now += SECOND;
		ck_assert_int_eq(hear(reply, LONG), KVW_LMC_SYNC_STATUS);
	}
	answer_status(true, -1);
}

START_TEST(a_heartbeats_answer_asks_for_a_full_sync)
{
	held_count = KEYS;
	enrol();
	now += 2 * SECOND;
	ck_assert_int_eq(hear(beat, LONG), KVW_LMC_HEARTBEAT);
	answer_beat(true);
	play_sync(KEYS, true);
	play_sync(0, false); /* the other location */
	ck_assert_int_eq(hear(pull, LONG), KVW_LMC_OPERATIONS);
	ck_assert_uint_eq(got.keys[0], 7777);
	ck_assert(!stats().frozen);
	ck_assert_uint_eq(stats().sync_keys, KEYS);
}
END_TEST

START_TEST(too_many_changes_end_in_a_full_sync)
{
	held_count = KEYS;
	begin();
	for (uint64_t key = 0; key < 40; key++)
		kvt_controller_link_change(link_, 0, true, key);
	ck_assert_uint_eq(stats().dropped, 24);
	ck_assert_int_eq(hear(reply, LONG), KVW_LMC_REGISTER);
	answer_register();
	ck_assert_int_eq(hear(pull, LONG), KVW_LMC_OPERATIONS);
	play_sync(KEYS, false);
	play_sync(0, false);
	ck_assert_int_eq(hear(pull, LONG), KVW_LMC_OPERATIONS);
	ck_assert_uint_eq(got.numbers[0], 16); /* no gap */
}
END_TEST

START_TEST(a_refused_sync_is_tried_again)
{
	held_count = 3;
	enrol();
	kvt_controller_link_resync(link_, now);
	ck_assert_int_eq(hear(reply, LONG), KVW_LMC_SYNC_START);
	answer_start(false);
	ck_assert_int_eq(hear(reply, SHORT), KVW_LMC_TYPE_COUNT);
	ck_assert_uint_eq(stats().syncs_failed, 1);
	now += 6 * SECOND;
	play_sync(3, false);
}
END_TEST

START_TEST(unanswered_heartbeats_mean_that_it_is_gone)
{
	held_count = 5;
	enrol();
	kvt_controller_link_change(link_, 0, true, 1);
	ck_assert_int_eq(hear(pull, LONG), KVW_LMC_OPERATIONS);
	now += 2 * SECOND;
	ck_assert_int_eq(hear(beat, LONG), KVW_LMC_HEARTBEAT);
	now += 10 * SECOND;
	ck_assert_int_eq(hear(beat, LONG), KVW_LMC_HEARTBEAT);
	now += 6 * SECOND;
	ck_assert_int_eq(hear(reply, LONG), KVW_LMC_REGISTER);
	ck_assert(!stats().registered);
	answer_register();
	play_sync(5, false);
	play_sync(0, false);
	ck_assert_int_eq(hear(pull, LONG), KVW_LMC_OPERATIONS);
	ck_assert_uint_eq(got.numbers[0], 0); /* as of a new process */
}
END_TEST

/* The link is registered, again if it must, and its next heartbeat has come. */
static void until_beat(void)
{
	step();
	if (stats().registered) {
		now += 11 * SECOND; /* also too late for what was asked before */
		step();
	}
	if (!stats().registered) {
		while (hear(reply, LONG) != KVW_LMC_REGISTER)
			ck_assert_int_ne(got.type, KVW_LMC_TYPE_COUNT);
		answer_register();
		now += 2 * SECOND;
	}
	ck_assert_int_eq(hear(beat, LONG), KVW_LMC_HEARTBEAT);
}

static void command(const char *data, size_t len)
{
	void *boss = zmq_socket(zmq, ZMQ_REQ);
	char room[256];
	int linger = 0, heard = -1;

	zmq_setsockopt(boss, ZMQ_LINGER, &linger, sizeof(linger));
	snprintf(room, sizeof(room), "tcp://127.0.0.1:%u", stats().port);
	ck_assert_int_eq(zmq_connect(boss, room), 0);
	ck_assert_int_ge(zmq_send(boss, data, len, 0), 0);
	for (int t = 0; t < LONG && heard < 0; t++) {
		step();
		heard = zmq_recv(boss, room, sizeof(room), ZMQ_DONTWAIT);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	ck_assert_int_gt(heard, 0);
	zmq_close(boss);
}

/* Answers that are none, to no question, cut or of another type, and as commands: it goes on. */
START_TEST(a_hostile_controller_changes_nothing)
{
	static const struct {
		const char *data;
		size_t len;
	} wrong[] = {
		{"", 0},
		{"\xc1", 1},
		{"\xdf\xff\xff\xff\xff", 5},
		{"\x81\xa4type\xa5never", 12},
		{"\x82\xa4type\xb3"
		 "FullSyncStartRetMsg\xa8"
		 "accepted\xc3",
			36},
		{"\x81\xa6tokens\xdd\xff\xff\xff\xff", 13},
	};

	held_count = 3;
	enrol();
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		until_beat();
		answer(beat, wrong[i].data, wrong[i].len);
		command(wrong[i].data, wrong[i].len);
		ck_assert_uint_eq(stats().commands, i + 1);
	}
	ck_assert_uint_ge(stats().bad_messages, 4);
	until_beat();
	answer_beat(true);
	while (hear(reply, LONG) != KVW_LMC_SYNC_START)
		ck_assert_int_ne(got.type, KVW_LMC_TYPE_COUNT);
	answer_start(true);
	ck_assert_int_eq(hear(pull, LONG), KVW_LMC_SYNC_BATCH);
}
END_TEST

START_TEST(an_old_controller_gets_admits)
{
	held_count = KEYS;
	config.reply = "";
	begin();
	ck_assert(stats().registered);
	ck_assert_int_eq(hear(pull, LONG), KVW_LMC_REGISTER);
	kvt_controller_link_resync(link_, now);
	for (uint32_t told = 0; told < KEYS;) {
		ck_assert_int_eq(hear(pull, LONG), KVW_LMC_OPERATIONS);
		ck_assert_uint_eq(got.keys[0], held[told]);
		ck_assert_uint_eq(got.numbers[0], told);
		told += (uint32_t)got.key_count;
	}
}
END_TEST

START_TEST(it_says_good_bye)
{
	enrol();
	kvt_controller_link_destroy(link_);
	begin(); /* so that there is one to step */
	ck_assert_int_eq(hear(pull, LONG), KVW_LMC_DEREGISTER);
	ck_assert_uint_eq(got.worker_id, 3);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("link");

	tcase_set_timeout(tests, 100);
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, changes_wait_for_the_registration_and_are_numbered);
	tcase_add_test(tests, a_silent_controller_is_asked_again);
	tcase_add_test(tests, a_stock_worker_gives_up);
	tcase_add_test(tests, a_heartbeats_answer_asks_for_a_full_sync);
	tcase_add_test(tests, too_many_changes_end_in_a_full_sync);
	tcase_add_test(tests, a_refused_sync_is_tried_again);
	tcase_add_test(tests, unanswered_heartbeats_mean_that_it_is_gone);
	tcase_add_test(tests, a_hostile_controller_changes_nothing);
	tcase_add_test(tests, an_old_controller_gets_admits);
	tcase_add_test(tests, it_says_good_bye);
	return run_tcase("cache/lmcache link", tests);
}
