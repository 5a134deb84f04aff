/*
 * sim_test_bytes.c - what kvsim sends is what vLLM and LMCache send, byte for byte where it was recorded,
 * and what kvway's decoders make of the rest.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lmcache_wire.h"
#include "sim_kv_events.h"
#include "sim_lmcache_wire.h"
#include "sim_recorded.h"
#include "vllm_events.h"

static struct kvb_buf out;
static struct kvw_vllm_reader reader;

static void setup(void)
{
	kvw_vllm_reader_init(&reader);
}

static void teardown(void)
{
	kvw_vllm_reader_finish(&reader);
	kvb_buf_free(&out);
}

static void check_recorded(const char *hex)
{
	char *text = malloc(2 * out.len + 1);

	for (size_t i = 0; i < out.len; i++)
		sprintf(text + 2 * i, "%02x", (unsigned char)out.data[i]);
	ck_assert(!out.failed);
	ck_assert_str_eq(text, hex);
	free(text);
	kvb_buf_clear(&out);
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

/* --- vLLM ------------------------------------------------------------------------------------------ */

static void count_up(uint32_t *tokens, uint32_t count, uint32_t from)
{
	for (uint32_t i = 0; i < count; i++)
		tokens[i] = from + i;
}

START_TEST(a_batch_is_the_recorded_one)
{
	static const uint64_t hashes[] = {
		UINT64_C(5112245858541826925), UINT64_C(2169733828878548103)};
	struct kvb_kv_style style = {0};
	struct kvb_buf events = {0};
	uint32_t tokens[64];

	count_up(tokens, 64, 100);
	kvb_kv_put_stored(&events, &style,
		&(struct kvb_kv_stored){
			.hashes = hashes, .count = 2, .block_size = 32, .tokens = tokens});
	kvb_kv_put_batch(&out, &style, 1795242806.72834, &events, 1);
	kvb_buf_free(&events);
	check_recorded(vllm_stored_hex);
}
END_TEST

static struct kvw_kv_event next_event(void)
{
	struct kvw_kv_event event;

	ck_assert_int_eq(kvw_vllm_next(&reader, &event), KVW_OK);
	ck_assert_int_eq(event.source, KVW_KV_VLLM);
	return event;
}

/* Four events in each style come back as they went in. */
START_TEST(a_decoder_reads_every_style)
{
	static const uint64_t hashes[] = {1, UINT64_MAX, UINT64_C(0x8000000000000000)};
	static const uint64_t parent = 77;
	struct kvb_kv_style style = {.arrays = _i & 1, .bytes = (_i & 2) != 0};
	struct kvb_buf events = {0};
	struct kvw_kv_event event;
	uint32_t tokens[48];

	count_up(tokens, 48, UINT32_MAX - 47);
	kvb_kv_put_removed(&events, &style, hashes, 3);
	kvb_kv_put_cleared(&events, &style);
	kvb_kv_put_stored(&events, &style,
		&(struct kvb_kv_stored){.hashes = hashes,
			.count = 3,
			.block_size = 16,
			.tokens = tokens,
			.salt = "pepper"});
	kvb_kv_put_stored(&events, &style,
		&(struct kvb_kv_stored){.hashes = hashes,
			.count = 3,
			.block_size = 16,
			.tokens = tokens,
			.parent = &parent,
			.lora = "tuned",
			.lora_id = 3,
			.salt = "pepper"});
	kvb_kv_put_batch(&out, &style, 12.5, &events, 4);
	kvb_buf_free(&events);
	ck_assert(!out.failed);
	ck_assert_int_eq(kvw_vllm_begin(&reader, out.data, out.len), KVW_OK);
	ck_assert_double_eq(reader.time_s, 12.5);

	event = next_event();
	ck_assert_int_eq(event.kind, KVW_KV_REMOVED);
	ck_assert_uint_eq(event.hash_count, 3);
	ck_assert_mem_eq(event.hashes, hashes, sizeof(hashes));
	ck_assert_uint_eq(event.hash_bytes, style.bytes ? 32 : 8);
	ck_assert_int_eq(next_event().kind, KVW_KV_CLEARED);

	event = next_event();
	ck_assert_int_eq(event.kind, KVW_KV_STORED);
	ck_assert_int_eq(event.tier, KVW_TIER_DEVICE);
	ck_assert(!event.has_parent);
	ck_assert_mem_eq(event.hashes, hashes, sizeof(hashes));
	ck_assert_uint_eq(event.token_count, 48);
	ck_assert_mem_eq(event.tokens, tokens, sizeof(tokens));
	ck_assert_uint_eq(event.block_size, 16);
	ck_assert(kvw_slice_equal(event.salt, KVW_SLICE("pepper")));
	ck_assert(event.extra_is_plain);
	ck_assert_uint_eq(event.extra[0], kvw_kv_extra_text(0, KVW_SLICE("pepper")));
	ck_assert_uint_eq(event.extra[1], 0);

	event = next_event();
	ck_assert(event.has_parent);
	ck_assert_uint_eq(event.parent, parent);
	ck_assert(kvw_slice_equal(event.lora, KVW_SLICE("tuned")));
	ck_assert_int_eq(event.lora_id, 3);
	ck_assert(event.extra_is_plain);
	for (int i = 0; i < 3; i++) /* the salt is in a prompt's first block only */
		ck_assert_uint_eq(event.extra[i], kvw_kv_extra_text(0, KVW_SLICE("tuned")));
	ck_assert_int_eq(kvw_vllm_next(&reader, &event), KVW_ENOTFOUND);
	ck_assert_uint_eq(reader.bad_events + reader.unknown_types + reader.unknown_media, 0);
}
END_TEST

/* --- LMCache ---------------------------------------------------------------------------------------- */

static const struct kvb_lmc_identity i0 = {
	.instance = "i0", .ip = "127.0.0.1", .port = 18500, .signed_keys = true};
static const char sync_id[] = "i0_0_0b111434";

START_TEST(a_workers_messages_are_the_recorded_ones)
{
	static const struct kvb_lmc_operation operations[] = {
		{UINT64_C(2090541856709077525), 0, true}, {UINT64_C(3115108796052816679), 1, true},
		{(uint64_t)INT64_C(-1438284928653561280), 2, true}};
	static const int64_t keys[] = {1031147096969214045, -5024439136009400735,
		2855217475467090808, 4796058642005711012, -1631498834529580482,
		-2719983231264538308, -7860917807789440395, 7950346291082039836,
		4934221723910624999, -5505039903153168885};

	kvb_lmc_put_presence(&out, "RegisterMsg", &i0);
	check_recorded(register_hex);
	kvb_lmc_put_presence(&out, "DeRegisterMsg", &i0);
	check_recorded(deregister_hex);
	kvb_lmc_put_operations(&out, &i0, operations, 3);
	check_recorded(operations_hex);
	kvb_lmc_put_sync_start(&out, &i0, sync_id, 26, 3);
	check_recorded(sync_start_hex);
	kvb_lmc_put_sync_batch(&out, &i0, sync_id, 0, (const uint64_t *)keys, 10);
	check_recorded(sync_batch_hex);
	kvb_lmc_put_sync_end(&out, &i0, sync_id, 26);
	check_recorded(sync_end_hex);
	kvb_lmc_put_sync_status(&out, &i0, sync_id);
	check_recorded(sync_status_hex);
	kvb_lmc_put_number(&out, "PinWorkerRetMsg", "num_tokens", 16);
	check_recorded(pinned_hex);
	kvb_lmc_put_number(&out, "HealthWorkerRetMsg", "error_code", 0);
	check_recorded(healthy_hex);
}
END_TEST

START_TEST(unsigned_keys_are_sent_as_such)
{
	static const struct kvb_lmc_operation evict = {UINT64_MAX - 1, 300, false};
	struct kvb_lmc_identity who = i0;
	struct kvw_lmc_reader lmc;
	struct kvw_lmc_message message;

	who.signed_keys = false;
	kvb_lmc_put_operations(&out, &who, &evict, 1);
	ck_assert_ptr_nonnull(memmem(out.data, out.len, "\xcf\xff\xff\xff\xff\xff\xff\xff\xfe", 9));
	kvw_lmc_reader_init(&lmc);
	ck_assert_int_eq(
		kvw_lmc_read(&lmc, (struct kvw_slice){out.data, out.len}, &message), KVW_OK);
	ck_assert_int_eq(message.type, KVW_LMC_OPERATIONS);
	ck_assert_uint_eq(message.key_count, 1);
	ck_assert_uint_eq(message.keys[0], UINT64_MAX - 1);
	ck_assert_uint_eq(message.numbers[0], 300);
	ck_assert(!message.admits[0]);
	kvw_lmc_reader_finish(&lmc);
}
END_TEST

static struct kvb_lmc_message read_hex(const char *hex)
{
	unsigned char bytes[512];
	struct kvb_lmc_message message;
	size_t len = bytes_of(hex, bytes, sizeof(bytes));

	ck_assert(kvb_lmc_read(bytes, len, &message));
	return message;
}

START_TEST(a_controllers_messages_are_understood)
{
	struct kvb_lmc_message message = read_hex(registered_hex);

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
	message = read_hex(pin_hex);
	ck_assert_str_eq(message.location, KVB_LMC_LOCATION);
	ck_assert_uint_eq(message.token_count, 16);
	ck_assert_uint_eq(message.tokens[15], 5015);
	free(message.tokens);
}
END_TEST

START_TEST(cut_messages_are_refused)
{
	static const char *const all[] = {
		registered_hex, beaten_hex, sync_started_hex, sync_missing_hex, pin_hex};
	unsigned char bytes[512];
	struct kvb_lmc_message message;
	size_t len = bytes_of(all[_i], bytes, sizeof(bytes));

	for (size_t n = 0; n < len; n++) {
		unsigned char *cut = malloc(n + 1); /* not a byte more than is said */

		memcpy(cut, bytes, n);
		ck_assert(!kvb_lmc_read(cut, n, &message));
		free(cut);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sim_bytes");
	TCase *tests = tcase_create("bytes");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, a_batch_is_the_recorded_one);
	tcase_add_loop_test(tests, a_decoder_reads_every_style, 0, 4);
	tcase_add_test(tests, a_workers_messages_are_the_recorded_ones);
	tcase_add_test(tests, unsigned_keys_are_sent_as_such);
	tcase_add_test(tests, a_controllers_messages_are_understood);
	tcase_add_loop_test(tests, cut_messages_are_refused, 0, 5);
	suite_add_tcase(suite, tests);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
