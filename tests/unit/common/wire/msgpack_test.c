/*
 * msgpack_test.c - the reader against every type, the writer against the reader, both at their limits.
 */
#include <check.h>
#include <stdlib.h>

#include "tests/unit/suite.h"
#include "wire/json_msgpack.h"
#include "wire/msgpack.h"
#include "support.h"

static enum kvw_err next_of(const char *hex, struct kvw_mp_value *value)
{
	struct bytes bytes = bytes_of_hex(hex);
	struct kvw_mp mp;
	enum kvw_err err;

	kvw_mp_init(&mp, bytes.data, bytes.len);
	err = kvw_mp_next(&mp, value);
	if (err != KVW_OK) {
		ck_assert_ptr_nonnull(mp.error);
		ck_assert_ptr_eq(mp.at, bytes.data);
	}
	bytes_free(&bytes);
	return err;
}

START_TEST(integers_in_every_form)
{
	static const struct {
		const char *hex;
		enum kvw_mp_type type;
		uint64_t bits;
	} forms[] = {
		{"00", KVW_MP_UINT, 0},
		{"7f", KVW_MP_UINT, 127},
		{"cc 05", KVW_MP_UINT, 5},
		{"cc ff", KVW_MP_UINT, 255},
		{"cd ffff", KVW_MP_UINT, 65535},
		{"ce ffffffff", KVW_MP_UINT, UINT32_MAX},
		{"cf ffffffffffffffff", KVW_MP_UINT, UINT64_MAX},
		{"d0 7f", KVW_MP_UINT, 127},
		{"d0 80", KVW_MP_NEGATIVE, (uint64_t)-128},
		{"d1 8000", KVW_MP_NEGATIVE, (uint64_t)-32768},
		{"d2 ffffffff", KVW_MP_NEGATIVE, UINT64_MAX},
		{"d2 00000001", KVW_MP_UINT, 1},
		{"d3 8000000000000000", KVW_MP_NEGATIVE, UINT64_C(1) << 63},
		{"ff", KVW_MP_NEGATIVE, UINT64_MAX},
		{"e0", KVW_MP_NEGATIVE, (uint64_t)-32},
	};
	struct kvw_mp_value value;

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		ck_assert_int_eq(next_of(forms[i].hex, &value), KVW_OK);
		ck_assert_int_eq(value.type, forms[i].type);
		ck_assert_uint_eq(value.bits, forms[i].bits);
	}
}
END_TEST

START_TEST(other_types)
{
	struct kvw_mp_value value;

	ck_assert_int_eq(next_of("c0", &value), KVW_OK);
	ck_assert_int_eq(value.type, KVW_MP_NIL);
	ck_assert_int_eq(next_of("c3", &value), KVW_OK);
	ck_assert(value.type == KVW_MP_BOOL && value.boolean);
	ck_assert_int_eq(next_of("c2", &value), KVW_OK);
	ck_assert(value.type == KVW_MP_BOOL && !value.boolean);
	ck_assert_int_eq(next_of("ca 3fc00000", &value), KVW_OK);
	ck_assert(value.type == KVW_MP_FLOAT && value.real == 1.5);
	ck_assert_int_eq(next_of("cb bff8000000000000", &value), KVW_OK);
	ck_assert(value.type == KVW_MP_FLOAT && value.real == -1.5);
	ck_assert_int_eq(next_of("da 0002 6162", &value), KVW_OK);
	ck_assert(value.type == KVW_MP_STR && value.bytes.len == 2);
	ck_assert_int_eq(next_of("c5 0001 ff", &value), KVW_OK);
	ck_assert(value.type == KVW_MP_BIN && value.bytes.len == 1);
	ck_assert_int_eq(next_of("d5 fe 0102", &value), KVW_OK);
	ck_assert(value.type == KVW_MP_EXT && value.ext_type == -2 && value.bytes.len == 2);
	ck_assert_int_eq(next_of("c7 03 05 010203", &value), KVW_OK);
	ck_assert(value.type == KVW_MP_EXT && value.ext_type == 5 && value.bytes.len == 3);
	ck_assert_int_eq(next_of("dc 0001 00", &value), KVW_OK);
	ck_assert(value.type == KVW_MP_ARRAY && value.count == 1);
	ck_assert_int_eq(next_of("de 0001 00 00", &value), KVW_OK);
	ck_assert(value.type == KVW_MP_MAP && value.count == 1);
}
END_TEST

/* Every head with nothing, or too little, behind it. */
START_TEST(what_is_cut_off_is_refused)
{
	static const char *const cut[] = {"", "c1", "cc", "cd 00", "ce 000000", "cf 00000000000000",
		"d0", "d1 00", "d2 000000", "d3 00000000000000", "ca 000000", "cb 00000000000000",
		"a1", "bf 00", "d9", "d9 01", "da 00", "da 0001", "db 000000", "db 00000001", "c4",
		"c4 01", "c5 00", "c5 0001", "c6 000000", "c6 ffffffff 00", "d4", "d4 00",
		"d8 00 00", "c7", "c7 00", "c7 01 00", "c8 0001 00", "c9 ffffffff 00", "91",
		"9f 00", "81", "81 00", "8f 00", "dc", "dc 0001", "dd ffffffff", "dd ffffffff 00",
		"de 0001 00", "df 7fffffff 00", "df ffffffff", "df 80000000 00 00"};
	struct kvw_mp_value value;

	for (size_t i = 0; i < sizeof(cut) / sizeof(cut[0]); i++)
		ck_assert_msg(next_of(cut[i], &value) == KVW_EPROTO, "%s", cut[i]);
}
END_TEST

START_TEST(getters_refuse_and_stay)
{
	struct bytes bytes = bytes_of_hex("c3 05");
	struct kvw_slice text;
	uint32_t count;
	uint64_t number;
	double real;
	bool boolean;
	struct kvw_mp mp;

	kvw_mp_init(&mp, bytes.data, bytes.len);
	ck_assert_int_eq(kvw_mp_array(&mp, &count), KVW_EPROTO);
	ck_assert_str_eq(mp.error, "not an array");
	ck_assert_int_eq(kvw_mp_map(&mp, &count), KVW_EPROTO);
	ck_assert_int_eq(kvw_mp_str(&mp, &text), KVW_EPROTO);
	ck_assert_int_eq(kvw_mp_uint(&mp, UINT64_MAX, &number), KVW_EPROTO);
	ck_assert_int_eq(kvw_mp_bits(&mp, &number), KVW_EPROTO);
	ck_assert_int_eq(kvw_mp_real(&mp, &real), KVW_EPROTO);
	ck_assert(!kvw_mp_take_nil(&mp));
	ck_assert_int_eq(kvw_mp_bool(&mp, &boolean), KVW_OK);
	ck_assert_int_eq(kvw_mp_bool(&mp, &boolean), KVW_EPROTO);
	ck_assert_int_eq(kvw_mp_uint(&mp, 4, &number), KVW_EPROTO);
	ck_assert_str_eq(mp.error, "an integer out of range");
	ck_assert_int_eq(kvw_mp_uint(&mp, 5, &number), KVW_OK);
	ck_assert_uint_eq(number, 5);
	ck_assert_uint_eq(kvw_mp_left(&mp), 0);
	bytes_free(&bytes);
}
END_TEST

START_TEST(skip_passes_whole_values)
{
	struct bytes bytes =
		bytes_of_hex("93 82 a1 61 90 05 91 80 c0 c4 02 0102  92 01 91 92 02 03  80  07");
	struct kvw_mp mp;

	kvw_mp_init(&mp, bytes.data, bytes.len);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(kvw_mp_skip(&mp), KVW_OK);
	ck_assert_uint_eq(kvw_mp_left(&mp), 1);
	ck_assert_int_eq(kvw_mp_skip(&mp), KVW_OK);
	ck_assert_int_eq(kvw_mp_skip(&mp), KVW_EPROTO);
	bytes_free(&bytes);
}
END_TEST

START_TEST(skip_nests_to_its_limit)
{
	uint8_t deep[KVW_MP_DEPTH + 2];
	struct kvw_mp mp;

	memset(deep, 0x91, sizeof(deep));
	deep[KVW_MP_DEPTH] = 0xc0;
	kvw_mp_init(&mp, deep, KVW_MP_DEPTH + 1);
	ck_assert_int_eq(kvw_mp_skip(&mp), KVW_OK);
	deep[KVW_MP_DEPTH] = 0x91;
	deep[KVW_MP_DEPTH + 1] = 0xc0;
	kvw_mp_init(&mp, deep, KVW_MP_DEPTH + 2);
	ck_assert_int_eq(kvw_mp_skip(&mp), KVW_ELIMIT);
	ck_assert_ptr_eq(mp.at, deep);
}
END_TEST

/* --- writer --------------------------------------------------------------------------------- */

static void check_written(const struct kvw_mp_out *out, const char *hex)
{
	struct bytes expected = bytes_of_hex(hex);

	ck_assert(!out->full);
	ck_assert_uint_eq(out->len, expected.len);
	ck_assert_mem_eq(out->data, expected.data, expected.len);
	bytes_free(&expected);
}

START_TEST(writer_writes_shortest_forms)
{
	uint8_t buffer[256];
	struct kvw_mp_out out;

	kvw_mp_out_init(&out, buffer, sizeof(buffer));
	kvw_mp_put_map(&out, 1);
	kvw_mp_put_nil(&out);
	kvw_mp_put_bool(&out, true);
	kvw_mp_put_array(&out, 15);
	kvw_mp_put_array(&out, 16);
	kvw_mp_put_uint(&out, 127);
	kvw_mp_put_uint(&out, 128);
	kvw_mp_put_uint(&out, 256);
	kvw_mp_put_uint(&out, 65536);
	kvw_mp_put_int(&out, -32);
	kvw_mp_put_int(&out, -33);
	kvw_mp_put_int(&out, -129);
	kvw_mp_put_int(&out, -32769);
	kvw_mp_put_str(&out, KVW_SLICE("a"));
	kvw_mp_put_bin(&out, KVW_SLICE("b"));
	kvw_mp_put_real(&out, 0.5);
	check_written(&out,
		"81 c0 c3 9f dc0010 7f cc80 cd0100 ce00010000 e0 d0df d1ff7f d2ffff7fff "
		"a161 c40162 cb3fe0000000000000");
}
END_TEST

START_TEST(integers_come_back)
{
	uint8_t buffer[16];
	struct kvw_mp_out out;
	struct kvw_mp mp;
	uint64_t bits;

	for (int shift = 0; shift < 64; shift++) {
		for (int64_t near = -2; near <= 2; near++) {
			uint64_t value = (UINT64_C(1) << shift) + (uint64_t)near;

			kvw_mp_out_init(&out, buffer, sizeof(buffer));
			kvw_mp_put_uint(&out, value);
			kvw_mp_init(&mp, buffer, out.len);
			ck_assert_int_eq(kvw_mp_bits(&mp, &bits), KVW_OK);
			ck_assert_uint_eq(bits, value);
			kvw_mp_out_init(&out, buffer, sizeof(buffer));
			kvw_mp_put_int(&out, (int64_t)(0 - value));
			kvw_mp_init(&mp, buffer, out.len);
			ck_assert_int_eq(kvw_mp_bits(&mp, &bits), KVW_OK);
			ck_assert_uint_eq(bits, 0 - value);
		}
	}
}
END_TEST

START_TEST(texts_come_back_at_every_width)
{
	static const size_t lengths[] = {0, 31, 32, 255, 256, 65535, 65536};
	uint8_t *buffer = malloc(70000);
	char *letters = malloc(70000);
	struct kvw_mp_out out;
	struct kvw_mp_value value;
	struct kvw_slice text;
	struct kvw_mp mp;

	memset(letters, 'x', 70000);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		kvw_mp_out_init(&out, buffer, 70000);
		kvw_mp_put_str(&out, (struct kvw_slice){letters, lengths[i]});
		kvw_mp_init(&mp, buffer, out.len);
		ck_assert_int_eq(kvw_mp_str(&mp, &text), KVW_OK);
		ck_assert_uint_eq(text.len, lengths[i]);
		ck_assert_uint_eq(kvw_mp_left(&mp), 0);
		kvw_mp_out_init(&out, buffer, 70000);
		kvw_mp_put_bin(&out, (struct kvw_slice){letters, lengths[i]});
		kvw_mp_init(&mp, buffer, out.len);
		ck_assert_int_eq(kvw_mp_next(&mp, &value), KVW_OK);
		ck_assert(value.type == KVW_MP_BIN && value.bytes.len == lengths[i]);
		ck_assert_uint_eq(kvw_mp_left(&mp), 0);
	}
	free(letters);
	free(buffer);
}
END_TEST

START_TEST(writer_stops_at_its_end)
{
	struct bytes room = bytes_copy("\0\0\0", 3);
	struct kvw_mp_out out;

	kvw_mp_out_init(&out, room.data, room.len);
	kvw_mp_put_uint(&out, 1);
	kvw_mp_put_uint(&out, 65536);
	ck_assert(out.full);
	ck_assert_uint_eq(out.len, 1);
	kvw_mp_put_nil(&out); /* would fit, but the message has a hole already */
	ck_assert_uint_eq(out.len, 1);
	kvw_mp_out_init(&out, NULL, 0);
	kvw_mp_put_nil(&out);
	ck_assert(out.full);
	bytes_free(&room);
}
END_TEST

/* --- JSON ----------------------------------------------------------------------------------- */

static enum kvw_err rewrite(const char *json, struct bytes *result)
{
	struct bytes text = bytes_of_text(json);
	uint8_t *room = malloc(KVW_JSON_ROOM(text.len));
	const char *error = NULL;
	struct kvw_mp_out out;
	enum kvw_err err;

	kvw_mp_out_init(&out, room, KVW_JSON_ROOM(text.len));
	err = kvw_json_to_msgpack(slice_of(text), &out, &error);
	ck_assert((err == KVW_OK) == (error == NULL));
	ck_assert(!out.full);
	if (err == KVW_OK)
		*result = bytes_copy(out.data, out.len);
	free(room);
	bytes_free(&text);
	return err;
}

static void check_json(const char *json, const char *hex)
{
	struct bytes got, expected = bytes_of_hex(hex);

	ck_assert_msg(rewrite(json, &got) == KVW_OK, "%s", json);
	ck_assert_msg(got.len == expected.len, "%s", json);
	ck_assert_mem_eq(got.data, expected.data, got.len);
	bytes_free(&got);
	bytes_free(&expected);
}

START_TEST(json_values)
{
	check_json(" null ", "c0");
	check_json("true", "c3");
	check_json("false", "c2");
	check_json("0", "00");
	check_json("-0", "00");
	check_json("18446744073709551615", "cf ffffffffffffffff");
	check_json("-9223372036854775808", "d3 8000000000000000");
	check_json("-5", "fb");
	check_json("1.5e0", "cb 3ff8000000000000");
	check_json("\"a\\n\\u0041\\u00e9\\u20ac\\ud83d\\ude00/\\/\"",
		"db 0000000e 61 0a 41 c3a9 e282ac f09f9880 2f 2f");
	check_json("[]", "dd 00000000");
	check_json("[1,[2],{}]", "dd 00000003 01 dd 00000001 02 df 00000000");
	check_json(" { \"a\" : 1 , \"b\" : [ null , true ] } ",
		"df 00000002 db 00000001 61 01 db 00000001 62 dd 00000002 c0 c3");
}
END_TEST

START_TEST(json_refused)
{
	static const char *const bad[] = {"", " ", "{", "}", "[1", "[1,]", "[,1]", "[1 2]",
		"{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "{1:2}", "01", "-", "1.", ".5", "1e",
		"+1", "tru", "truex", "nul", "\"", "\"\\", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"",
		"\"\\ud800\"", "\"\\ud800\\u0041\"", "\"\\udc00\"", "\"\n\"", "1 2", "[] []", "[1}",
		"{\"a\":1]", "18446744073709551616", "-9223372036854775809", "'a'", "NaN",
		"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"\",",
		"1.00000000000000000000000000000000000000000000000000000000000000000001"};
	struct bytes got;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(rewrite(bad[i], &got) == KVW_EPROTO, "%s", bad[i]);
}
END_TEST

START_TEST(json_nests_to_its_limit)
{
	char deep[2 * KVW_MP_DEPTH + 3] = {0};
	struct bytes got;

	memset(deep, '[', KVW_MP_DEPTH);
	memset(deep + KVW_MP_DEPTH, ']', KVW_MP_DEPTH);
	ck_assert_int_eq(rewrite(deep, &got), KVW_OK);
	bytes_free(&got);
	memset(deep, '[', KVW_MP_DEPTH + 1);
	memset(deep + KVW_MP_DEPTH + 1, ']', KVW_MP_DEPTH + 1);
	ck_assert_int_eq(rewrite(deep, &got), KVW_ELIMIT);
}
END_TEST

/* What writes most for its length still fits the room that is promised to be enough. */
START_TEST(json_room_is_enough)
{
	static const char *const worst[] = {"[],", "{},", "1e1,", "\"\",", "\"\\\\\","};
	char json[1024];
	struct bytes got;

	for (size_t i = 0; i < sizeof(worst) / sizeof(worst[0]); i++) {
		size_t len = 0;

		json[len++] = '[';
		while (len + 8 < sizeof(json)) {
			memcpy(json + len, worst[i], strlen(worst[i]));
			len += strlen(worst[i]);
		}
		json[len - 1] = ']';
		json[len] = '\0';
		ck_assert_int_eq(rewrite(json, &got), KVW_OK);
		bytes_free(&got);
	}
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("all");

	tcase_add_test(tests, integers_in_every_form);
	tcase_add_test(tests, other_types);
	tcase_add_test(tests, what_is_cut_off_is_refused);
	tcase_add_test(tests, getters_refuse_and_stay);
	tcase_add_test(tests, skip_passes_whole_values);
	tcase_add_test(tests, skip_nests_to_its_limit);
	tcase_add_test(tests, writer_writes_shortest_forms);
	tcase_add_test(tests, integers_come_back);
	tcase_add_test(tests, texts_come_back_at_every_width);
	tcase_add_test(tests, writer_stops_at_its_end);
	tcase_add_test(tests, json_values);
	tcase_add_test(tests, json_refused);
	tcase_add_test(tests, json_nests_to_its_limit);
	tcase_add_test(tests, json_room_is_enough);
	return run_tcase("kv-msgpack", tests);
}
