/*
 * cbor.c - writes canonical CBOR (RFC 8949, section 4.2) of ints, text, arrays and null.
 *
 * Each item begins with its major type in the upper three bits and a number: itself below 24, else
 * in the fewest of 1, 2, 4 or 8 bytes, big-endian. Python's tuples and lists are both arrays.
 */
#include "wire/object_hash.h"

enum major {
	MAJOR_NUMBER = 0,
	MAJOR_TEXT = 3,
	MAJOR_ARRAY = 4,
};

static void put_head(struct kvw_hasher *out, enum major major, uint64_t n)
{
	uint8_t head[9];
	size_t wide = 0; /* number of bytes after the first one */
	uint8_t info = (uint8_t)n;

	if (n > UINT32_MAX)
		wide = 8, info = 27;
	else if (n > UINT16_MAX)
		wide = 4, info = 26;
	else if (n > UINT8_MAX)
		wide = 2, info = 25;
	else if (n >= 24)
		wide = 1, info = 24;
	head[0] = (uint8_t)(major << 5 | info);
	for (size_t i = 0; i < wide; i++)
		head[1 + i] = (uint8_t)(n >> (8 * (wide - 1 - i)));
	kvw_hasher_put(out, head, 1 + wide);
}

static void cbor_none(struct kvw_hasher *out)
{
	kvw_hasher_put(out, "\xf6", 1);
}

static void cbor_number(struct kvw_hasher *out, uint64_t value)
{
	put_head(out, MAJOR_NUMBER, value);
}

static void cbor_text(struct kvw_hasher *out, const char *utf8, uint32_t len)
{
	put_head(out, MAJOR_TEXT, len);
	kvw_hasher_put(out, utf8, len);
}

static void cbor_tuple_begin(struct kvw_hasher *out, size_t count)
{
	put_head(out, MAJOR_ARRAY, count);
}

static void cbor_tuple_end(struct kvw_hasher *out, size_t count)
{
	(void)out; /* the head at the begin has the count, so there is nothing to write here */
	(void)count;
}

const struct kvw_format kvw_cbor = {
	.none = cbor_none,
	.number = cbor_number,
	.text = cbor_text,
	.tuple_begin = cbor_tuple_begin,
	.tuple_end = cbor_tuple_end,
};
