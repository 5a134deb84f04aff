/*
 * sim_bytes_test.c - what kvsim sends is what vLLM sends, byte for byte where it was recorded, and what
 * kvway's decoders make of the rest.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_kv_events.h"
#include "sim_recorded.h"
#include "tests/unit/suite.h"
#include "wire/vllm_events.h"

static struct kvb_buf out;
static struct kvw_vllm_reader reader;

static void setup(void)
{
	kvw_vllm_reader_init(&reader);
}

static void teardown(void)
{
	kvw_vllm_reader_finish(&reader);
	kvb_buf_finish(&out);
}

static void check_recorded(const char *hex)
{
	char *text = malloc(2 * out.len + 1);

	for (size_t i = 0; i < out.len; i++)
		sprintf(text + 2 * i, "%02x", (unsigned char)out.data[i]);
	ck_assert_str_eq(text, hex);
	free(text);
	kvb_buf_clear(&out);
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
	kvb_buf_finish(&events);
	check_recorded(vllm_stored_hex);
}
END_TEST

static struct kvw_kv_event next_event(void)
{
	struct kvw_kv_event event;

	ck_assert_int_eq(kvw_vllm_next(&reader, &event), KVW_OK);
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
	kvb_buf_finish(&events);
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

int main(void)
{
	TCase *tests = tcase_create("bytes");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, a_batch_is_the_recorded_one);
	tcase_add_loop_test(tests, a_decoder_reads_every_style, 0, 4);
	return run_tcase("sim_bytes", tests);
}
