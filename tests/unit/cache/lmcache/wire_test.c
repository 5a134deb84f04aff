/*
 * wire_test.c - what is sent is what an LMCache worker sends, byte for byte where that was recorded; what
 * comes is read whole or refused.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lmcache/controller_wire.h"
#include "tests/unit/suite.h"
#include "wire/lmcache_wire.h"
#include "recorded.h"

static struct kvt_controller_buf out;

static void teardown(void)
{
	kvt_controller_buf_free(&out);
}

static void check_recorded(const char *hex)
{
	char *text = malloc(2 * out.len + 1);

	for (size_t i = 0; i < out.len; i++)
		sprintf(text + 2 * i, "%02x", (unsigned char)out.data[i]);
	ck_assert(!out.failed);
	ck_assert_str_eq(text, hex);
	free(text);
	kvt_controller_buf_clear(&out);
}

static size_t bytes_of(const char *hex, unsigned char *bytes, size_t size)
{
	size_t len = strlen(hex) / 2;

	ck_assert_uint_le(len, size);
	for (size_t i = 0; i < len; i++) {
		unsigned byte;

		ck_assert_int_eq(sscanf(hex + 2 * i, "%2x", &byte), 1);
		bytes[i] = (unsigned char)byte;
	}
	return len;
}

static const struct kvt_controller_sender i0 = {
	.instance = "i0", .ip = "127.0.0.1", .port = 18500, .signed_keys = true};
static const char sync_id[] = "i0_0_0b111434";

START_TEST(a_workers_messages_are_the_recorded_ones)
{
	static const struct kvt_controller_operation operations[] = {
		{UINT64_C(2090541856709077525), 0, true}, {UINT64_C(3115108796052816679), 1, true},
		{(uint64_t)INT64_C(-1438284928653561280), 2, true}};
	static const int64_t keys[] = {1031147096969214045, -5024439136009400735,
		2855217475467090808, 4796058642005711012, -1631498834529580482,
		-2719983231264538308, -7860917807789440395, 7950346291082039836,
		4934221723910624999, -5505039903153168885};

	kvt_controller_put_presence(&out, "RegisterMsg", &i0);
	check_recorded(register_hex);
	kvt_controller_put_presence(&out, "DeRegisterMsg", &i0);
	check_recorded(deregister_hex);
	kvt_controller_put_operations(&out, &i0, KVT_CONTROLLER_CPU, operations, 3);
	check_recorded(operations_hex);
	kvt_controller_put_sync_start(&out, &i0, KVT_CONTROLLER_CPU, sync_id, 26, 3);
	check_recorded(sync_start_hex);
	kvt_controller_put_sync_batch(
		&out, &i0, KVT_CONTROLLER_CPU, sync_id, 0, (const uint64_t *)keys, 10);
	check_recorded(sync_batch_hex);
	kvt_controller_put_sync_end(&out, &i0, KVT_CONTROLLER_CPU, sync_id, 26);
	check_recorded(sync_end_hex);
	kvt_controller_put_sync_status(&out, &i0, sync_id);
	check_recorded(sync_status_hex);
	kvt_controller_put_number(&out, "PinWorkerRetMsg", "num_tokens", 16);
	check_recorded(pinned_hex);
	kvt_controller_put_number(&out, "HealthWorkerRetMsg", "error_code", 0);
	check_recorded(healthy_hex);
}
END_TEST

START_TEST(unsigned_keys_are_sent_as_such)
{
	static const struct kvt_controller_operation evict = {UINT64_MAX - 1, 300, false};
	struct kvt_controller_sender sender = i0;
	struct kvw_lmc_reader lmc;
	struct kvw_lmc_message message;

	sender.signed_keys = false;
	kvt_controller_put_operations(&out, &sender, KVT_CONTROLLER_DISK, &evict, 1);
	ck_assert_ptr_nonnull(memmem(out.data, out.len, "\xcf\xff\xff\xff\xff\xff\xff\xff\xfe", 9));
	kvw_lmc_reader_init(&lmc);
	ck_assert_int_eq(
		kvw_lmc_read(&lmc, (struct kvw_slice){(const char *)out.data, out.len}, &message),
		KVW_OK);
	ck_assert_int_eq(message.type, KVW_LMC_OPERATIONS);
	ck_assert_uint_eq(message.key_count, 1);
	ck_assert_uint_eq(message.keys[0], UINT64_MAX - 1);
	ck_assert_uint_eq(message.numbers[0], 300);
	ck_assert(!message.admits[0]);
	kvw_lmc_reader_finish(&lmc);
}
END_TEST

static struct kvt_controller_message read_hex(const char *hex)
{
	unsigned char bytes[512];
	struct kvt_controller_message message;
	size_t len = bytes_of(hex, bytes, sizeof(bytes));

	ck_assert(kvt_controller_read(bytes, len, &message));
	return message;
}

START_TEST(a_controllers_messages_are_understood)
{
	struct kvt_controller_message message = read_hex(registered_hex);

	ck_assert_str_eq(message.type, "RegisterRetMsg");
	ck_assert_str_eq(message.heartbeat_url, "127.0.0.1:18082");
	message = read_hex(beaten_hex);
	ck_assert(message.full_sync);
	message = read_hex(sync_started_hex);
	ck_assert(message.accepted);
	message = read_hex(sync_missing_hex);
	ck_assert(!message.can_exit_freeze);
	ck_assert_uint_eq(message.missing_count, 1);
	ck_assert_uint_eq(message.missing[0], 1);
	kvt_controller_message_free(&message);
	message = read_hex(pin_hex);
	ck_assert_str_eq(message.location, KVT_CONTROLLER_CPU);
	ck_assert_uint_eq(message.token_count, 16);
	ck_assert_uint_eq(message.tokens[15], 5015);
	kvt_controller_message_free(&message);
}
END_TEST

/* Counts beyond the message reserve nothing, however large they are said to be. */
START_TEST(counts_that_lie_are_refused)
{
	static const unsigned char pin[] =
		"\x82\xa4type\xacPinWorkerMsg\xa6tokens\xdd\x7f\xff\xff\xff\x01";
	static const unsigned char map[] = "\xdf\xff\xff\xff\xff\xa4type\xa1x";
	static const unsigned char batches[] =
		"\x81\xafmissing_batches\xdd\x00\x10\x00\x00\x01\x02";
	struct kvt_controller_message message;

	ck_assert(!kvt_controller_read(pin, sizeof(pin) - 1, &message));
	ck_assert(!kvt_controller_read(map, sizeof(map) - 1, &message));
	ck_assert(!kvt_controller_read(batches, sizeof(batches) - 1, &message));
}
END_TEST

START_TEST(only_so_many_missing_batches_are_kept)
{
	unsigned char *bytes = malloc(64 + 10000);
	struct kvt_controller_message message;

	memcpy(bytes, "\x81\xafmissing_batches", 17);
	memcpy(bytes + 17, "\xdc\x27\x10", 3); /* 10,000 of them */
	memset(bytes + 20, 7, 10000);
	ck_assert(kvt_controller_read(bytes, 20 + 10000, &message));
	ck_assert_uint_eq(message.missing_count, KVT_CONTROLLER_MISSING_MAX);
	ck_assert_uint_eq(message.missing[KVT_CONTROLLER_MISSING_MAX - 1], 7);
	kvt_controller_message_free(&message);
	free(bytes);
}
END_TEST

START_TEST(cut_messages_are_refused)
{
	static const char *const all[] = {
		registered_hex, beaten_hex, sync_started_hex, sync_missing_hex, pin_hex};
	unsigned char bytes[512];
	struct kvt_controller_message message;
	size_t len = bytes_of(all[_i], bytes, sizeof(bytes));

	for (size_t n = 0; n < len; n++) {
		unsigned char *cut = malloc(n + 1); /* not a byte more than is said */

		memcpy(cut, bytes, n);
		ck_assert(!kvt_controller_read(cut, n, &message));
		free(cut);
	}
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("wire");

	tcase_add_checked_fixture(tests, NULL, teardown);
	tcase_add_test(tests, a_workers_messages_are_the_recorded_ones);
	tcase_add_test(tests, unsigned_keys_are_sent_as_such);
	tcase_add_test(tests, a_controllers_messages_are_understood);
	tcase_add_test(tests, counts_that_lie_are_refused);
	tcase_add_test(tests, only_so_many_missing_batches_are_kept);
	tcase_add_loop_test(tests, cut_messages_are_refused, 0, 5);
	return run_tcase("cache/lmcache wire", tests);
}
