/*
 * pickle.c - writes ints, strings, tuples and None as pickle.dumps(value, protocol=5) does.
 *
 *	80 05                protocol
 *	95 <u64 length>      one frame with all that follows
 *	...                  the value
 *	2e                   stop
 *
 * Strings and tuples that are not empty are followed by 94, "memoize", for later references to the
 * same object; no object here occurs twice. The opcode of a tuple of one to three items follows its
 * items, longer tuples have a mark before and an opcode after them. Bodies below 4 bytes have no
 * frame, bodies above 64 KiB several; neither occurs here (the shortest string has 4).
 */
#include "wire/object_hash.h"

#define OP_MEMOIZE 0x94

static void put_byte(struct kvw_hasher *out, uint8_t byte)
{
	kvw_hasher_put(out, &byte, 1);
}

/* Writes an opcode and its argument of `wide` bytes, little-endian. */
static void put_op(struct kvw_hasher *out, uint8_t op, uint64_t argument, size_t wide)
{
	uint8_t bytes[9] = {op};

	for (size_t i = 0; i < wide; i++)
		bytes[1 + i] = (uint8_t)(argument >> (8 * i));
	kvw_hasher_put(out, bytes, 1 + wide);
}

static void pickle_none(struct kvw_hasher *out)
{
	put_byte(out, 'N');
}

/* Writes an integer that needs more than 31 bits, as two's complement in the fewest bytes that hold
 * its value and a sign bit. */
static void put_long(struct kvw_hasher *out, uint64_t value)
{
	size_t bits = 64 - (size_t)__builtin_clzll(value);
	size_t wide = bits / 8 + 1;

	put_op(out, 0x8a, wide, 1);
	for (size_t i = 0; i < wide; i++)
		put_byte(out, i < 8 ? (uint8_t)(value >> (8 * i)) : 0);
}

static void pickle_number(struct kvw_hasher *out, uint64_t value)
{
	if (value <= UINT8_MAX)
		put_op(out, 'K', value, 1);
	else if (value <= UINT16_MAX)
		put_op(out, 'M', value, 2);
	else if (value <= INT32_MAX)
		put_op(out, 'J', value, 4);
	else
		put_long(out, value);
}

static void pickle_text(struct kvw_hasher *out, const char *utf8, uint32_t len)
{
	if (len <= UINT8_MAX)
		put_op(out, 0x8c, len, 1);
	else
		put_op(out, 'X', len, 4);
	kvw_hasher_put(out, utf8, len);
	put_byte(out, OP_MEMOIZE);
}

static void pickle_tuple_begin(struct kvw_hasher *out, size_t count)
{
	if (count > 3)
		put_byte(out, '(');
}

static void pickle_tuple_end(struct kvw_hasher *out, size_t count)
{
	if (count == 0) {
		put_byte(out, ')');
		return;
	}
	put_byte(out, count > 3 ? 't' : (uint8_t)(0x84 + count));
	put_byte(out, OP_MEMOIZE);
}

static void pickle_value_begin(struct kvw_hasher *out, size_t body)
{
	kvw_hasher_put(out, "\x80\x05", 2);
	put_op(out, 0x95, body, 8);
}

static void pickle_value_end(struct kvw_hasher *out)
{
	put_byte(out, '.');
}

const struct kvw_format kvw_pickle = {
	.none = pickle_none,
	.number = pickle_number,
	.text = pickle_text,
	.tuple_begin = pickle_tuple_begin,
	.tuple_end = pickle_tuple_end,
	.value_begin = pickle_value_begin,
	.value_end = pickle_value_end,
	.body_max = 65535,
};
