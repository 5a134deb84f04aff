/*
 * msgpack_write.c - the writer: writes values in their shortest forms into a buffer of fixed size.
 *
 * LMCache's and vLLM's own encoder writes shortest forms, so kvway's messages are byte for byte
 * equal to those of LMCache's controller. A value is written whole or not at all; the first one
 * that does not fit ends the message and sets `full`, which the caller checks once, at the end.
 */
#include <string.h>

#include "wire/msgpack.h"

void kvw_mp_out_init(struct kvw_mp_out *out, void *data, size_t size)
{
	*out = (struct kvw_mp_out){.data = data, .size = size};
}

/* Writes a head byte, a big-endian number of `width` bytes, then `len` bytes. */
static void put_value(struct kvw_mp_out *out, uint8_t head, uint64_t number, size_t width,
	const char *bytes, size_t len)
{
	if (out->full || out->size - out->len < 1 + width ||
		out->size - out->len - 1 - width < len) {
		out->full = true;
		return;
	}
	out->data[out->len++] = head;
	while (width-- > 0)
		out->data[out->len++] = (uint8_t)(number >> (8 * width));
	if (len > 0)
		memcpy(out->data + out->len, bytes, len);
	out->len += len;
}

void kvw_mp_put_nil(struct kvw_mp_out *out)
{
	put_value(out, 0xc0, 0, 0, NULL, 0);
}

void kvw_mp_put_bool(struct kvw_mp_out *out, bool value)
{
	put_value(out, value ? 0xc3 : 0xc2, 0, 0, NULL, 0);
}

void kvw_mp_put_uint(struct kvw_mp_out *out, uint64_t value)
{
	if (value < 0x80)
		put_value(out, (uint8_t)value, 0, 0, NULL, 0);
	else if (value <= UINT8_MAX)
		put_value(out, 0xcc, value, 1, NULL, 0);
	else if (value <= UINT16_MAX)
		put_value(out, 0xcd, value, 2, NULL, 0);
	else if (value <= UINT32_MAX)
		put_value(out, 0xce, value, 4, NULL, 0);
	else
		put_value(out, 0xcf, value, 8, NULL, 0);
}

void kvw_mp_put_int(struct kvw_mp_out *out, int64_t value)
{
	uint64_t bits = (uint64_t)value;

	if (value >= 0)
		kvw_mp_put_uint(out, bits);
	else if (value >= -32)
		put_value(out, (uint8_t)bits, 0, 0, NULL, 0);
	else if (value >= INT8_MIN)
		put_value(out, 0xd0, bits, 1, NULL, 0);
	else if (value >= INT16_MIN)
		put_value(out, 0xd1, bits, 2, NULL, 0);
	else if (value >= INT32_MIN)
		put_value(out, 0xd2, bits, 4, NULL, 0);
	else
		put_value(out, 0xd3, bits, 8, NULL, 0);
}

void kvw_mp_put_real(struct kvw_mp_out *out, double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	put_value(out, 0xcb, bits, 8, NULL, 0);
}

void kvw_mp_put_str(struct kvw_mp_out *out, struct kvw_slice text)
{
	if (text.len < 32)
		put_value(out, (uint8_t)(0xa0 | text.len), 0, 0, text.data, text.len);
	else if (text.len <= UINT8_MAX)
		put_value(out, 0xd9, text.len, 1, text.data, text.len);
	else if (text.len <= UINT16_MAX)
		put_value(out, 0xda, text.len, 2, text.data, text.len);
	else
		put_value(out, 0xdb, text.len, 4, text.data, text.len);
}

void kvw_mp_put_bin(struct kvw_mp_out *out, struct kvw_slice bytes)
{
	if (bytes.len <= UINT8_MAX)
		put_value(out, 0xc4, bytes.len, 1, bytes.data, bytes.len);
	else if (bytes.len <= UINT16_MAX)
		put_value(out, 0xc5, bytes.len, 2, bytes.data, bytes.len);
	else
		put_value(out, 0xc6, bytes.len, 4, bytes.data, bytes.len);
}

void kvw_mp_put_array(struct kvw_mp_out *out, uint32_t count)
{
	if (count < 16)
		put_value(out, (uint8_t)(0x90 | count), 0, 0, NULL, 0);
	else if (count <= UINT16_MAX)
		put_value(out, 0xdc, count, 2, NULL, 0);
	else
		put_value(out, 0xdd, count, 4, NULL, 0);
}

void kvw_mp_put_map(struct kvw_mp_out *out, uint32_t pairs)
{
	if (pairs < 16)
		put_value(out, (uint8_t)(0x80 | pairs), 0, 0, NULL, 0);
	else if (pairs <= UINT16_MAX)
		put_value(out, 0xde, pairs, 2, NULL, 0);
	else
		put_value(out, 0xdf, pairs, 4, NULL, 0);
}
