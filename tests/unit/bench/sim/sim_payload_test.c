/*
 * sim_payload_test.c - bytes that follow from a key, and every way in which they can be wrong.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kvtier/kvtier.h"
#include "bench/sim/sim_payload.h"
#include "tests/unit/suite.h"

#define BYTES 9001u

static struct kvt_key key_of(uint8_t first, uint8_t last)
{
	struct kvt_key key = {{first}};

	key.bytes[KVT_KEY_BYTES - 1] = last;
	return key;
}

START_TEST(what_was_filled_is_right)
{
	struct kvt_key key = key_of(1, 2);
	static uint8_t bytes[BYTES];

	kvb_payload_fill(&key, 0, bytes, BYTES);
	ck_assert_uint_eq(kvb_payload_wrong(&key, 0, bytes, BYTES), 0);
}
END_TEST

START_TEST(pieces_make_the_whole)
{
	static const uint32_t cuts[] = {0, 8, 4096, 4104, BYTES};
	struct kvt_key key = key_of(1, 2);
	static uint8_t whole[BYTES], parts[BYTES];

	kvb_payload_fill(&key, 0, whole, BYTES);
	for (size_t i = 0; i + 1 < sizeof(cuts) / sizeof(cuts[0]); i++) {
		kvb_payload_fill(&key, cuts[i], parts + cuts[i], cuts[i + 1] - cuts[i]);
		ck_assert_uint_eq(
			kvb_payload_wrong(&key, cuts[i], whole + cuts[i], cuts[i + 1] - cuts[i]),
			0);
	}
	ck_assert_mem_eq(whole, parts, BYTES);
}
END_TEST

START_TEST(one_bit_is_found)
{
	struct kvt_key key = key_of(1, 2);
	static uint8_t bytes[BYTES];

	kvb_payload_fill(&key, 0, bytes, BYTES);
	for (uint32_t i = 0; i < BYTES; i += 97) {
		bytes[i] ^= 0x10;
		ck_assert_uint_eq(kvb_payload_wrong(&key, 0, bytes, BYTES), 1);
		bytes[i] ^= 0x10;
	}
	bytes[BYTES - 1] ^= 1;
	ck_assert_uint_eq(kvb_payload_wrong(&key, 0, bytes, BYTES), 1);
}
END_TEST

START_TEST(other_bytes_are_found)
{
	struct kvt_key key = key_of(1, 2), first = key_of(2, 2), last = key_of(1, 3);
	static uint8_t bytes[BYTES];

	kvb_payload_fill(&key, 0, bytes, BYTES);
	ck_assert_uint_gt(kvb_payload_wrong(&first, 0, bytes, BYTES), BYTES / 2);
	ck_assert_uint_gt(kvb_payload_wrong(&last, 0, bytes, BYTES), BYTES / 2);
	ck_assert_uint_gt(
		kvb_payload_wrong(&key, 0, bytes + 8, BYTES - 8), BYTES / 2); /* shifted */
	memset(bytes + 4096, 0, 512); /* a page that was never written */
	ck_assert_uint_ge(kvb_payload_wrong(&key, 0, bytes, BYTES), 480);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("payload");

	tcase_add_test(tcase, what_was_filled_is_right);
	tcase_add_test(tcase, pieces_make_the_whole);
	tcase_add_test(tcase, one_bit_is_found);
	tcase_add_test(tcase, other_bytes_are_found);
	return run_tcase("sim_payload", tcase);
}
