/*
 * msgpack.c - the reader: reads one head at a time, and has no state but its position.
 *
 * msgpack-c is not used because its unpacker builds a tree of objects and reserves an array's room
 * by the count that the head declares: five bytes (dd ff ff ff ff) make it ask for a hundred
 * gigabytes. And the tree would then be copied into the index's form. The format is small: a cursor
 * over it needs no memory and lets the caller store each token id directly in its final place.
 *
 * Cost: a head is one switch; skipping is linear in the bytes passed.
 */
#include <endian.h>
#include <string.h>

#include "wire/msgpack.h"

void kvw_mp_init(struct kvw_mp *mp, const void *data, size_t len)
{
	mp->at = data;
	mp->end = len == 0 ? mp->at : mp->at + len;
	mp->error = NULL;
}

static enum kvw_err refuse_value(struct kvw_mp *mp, const char *error)
{
	mp->error = error;
	return KVW_EPROTO;
}

/* Returns a big-endian integer of 1, 2, 4 or 8 bytes. The caller has checked that they are
 * there. */
static uint64_t big_endian(const uint8_t *at, size_t width)
{
	uint16_t two;
	uint32_t four;
	uint64_t eight;

	switch (width) {
	case 1:
		return at[0];
	case 2:
		memcpy(&two, at, sizeof(two));
		return be16toh(two);
	case 4:
		memcpy(&four, at, sizeof(four));
		return be32toh(four);
	default:
		memcpy(&eight, at, sizeof(eight));
		return be64toh(eight);
	}
}

static enum kvw_err end_int(struct kvw_mp *mp, const uint8_t *at, size_t width, bool is_signed,
	struct kvw_mp_value *value)
{
	uint64_t bits;

	if ((size_t)(mp->end - at) < width)
		return refuse_value(mp, "cut off inside a number");
	bits = big_endian(at, width);
	if (is_signed && width < 8 && bits >> (8 * width - 1) != 0)
		bits |= ~UINT64_C(0) << (8 * width);
	value->type = is_signed && bits >> 63 != 0 ? KVW_MP_NEGATIVE : KVW_MP_UINT;
	value->bits = bits;
	mp->at = at + width;
	return KVW_OK;
}

static enum kvw_err end_real(
	struct kvw_mp *mp, const uint8_t *at, size_t width, struct kvw_mp_value *value)
{
	uint64_t bits;
	uint32_t narrow;
	float real;

	if ((size_t)(mp->end - at) < width)
		return refuse_value(mp, "cut off inside a number");
	bits = big_endian(at, width);
	value->type = KVW_MP_FLOAT;
	if (width == 4) {
		narrow = (uint32_t)bits;
		memcpy(&real, &narrow, sizeof(real));
		value->real = real;
	} else {
		memcpy(&value->real, &bits, sizeof(bits));
	}
	mp->at = at + width;
	return KVW_OK;
}

/* Called at a value of `len` bytes at `at`: moves past them. An extension has a type byte before
 * them. */
static enum kvw_err end_bytes(struct kvw_mp *mp, const uint8_t *at, uint64_t len,
	enum kvw_mp_type type, struct kvw_mp_value *value)
{
	if (len + (type == KVW_MP_EXT) > (uint64_t)(mp->end - at))
		return refuse_value(mp, "a text or bytes longer than what is left");
	if (type == KVW_MP_EXT)
		value->ext_type = (int8_t)*at++;
	value->type = type;
	value->bytes = (struct kvw_slice){(const char *)at, len};
	mp->at = at + len;
	return KVW_OK;
}

static enum kvw_err end_count(struct kvw_mp *mp, const uint8_t *at, uint64_t count,
	enum kvw_mp_type type, struct kvw_mp_value *value)
{
	uint64_t least = type == KVW_MP_MAP ? 2 * count : count; /* each value has a byte */

	if (least > (uint64_t)(mp->end - at))
		return refuse_value(mp, "a count larger than what is left");
	value->type = type;
	value->count = (uint32_t)count;
	mp->at = at;
	return KVW_OK;
}

/* Reads a length or count of `width` bytes at `at`, and the bytes or values to which it refers. */
static enum kvw_err end_sized(struct kvw_mp *mp, const uint8_t *at, size_t width,
	enum kvw_mp_type type, struct kvw_mp_value *value)
{
	uint64_t size;

	if ((size_t)(mp->end - at) < width)
		return refuse_value(mp, "cut off inside a length");
	size = big_endian(at, width);
	at += width;
	if (type == KVW_MP_ARRAY || type == KVW_MP_MAP)
		return end_count(mp, at, size, type, value);
	return end_bytes(mp, at, size, type, value);
}

/* Heads 0xc0 to 0xdf. */
static enum kvw_err next_special(
	struct kvw_mp *mp, uint8_t head, const uint8_t *at, struct kvw_mp_value *value)
{
	switch (head) {
	case 0xc0:
		value->type = KVW_MP_NIL;
		mp->at = at;
		return KVW_OK;
	case 0xc2:
	case 0xc3:
		value->type = KVW_MP_BOOL;
		value->boolean = head == 0xc3;
		mp->at = at;
		return KVW_OK;
	case 0xc4:
	case 0xc5:
	case 0xc6:
		return end_sized(mp, at, (size_t)1 << (head - 0xc4), KVW_MP_BIN, value);
	case 0xc7:
	case 0xc8:
	case 0xc9:
		return end_sized(mp, at, (size_t)1 << (head - 0xc7), KVW_MP_EXT, value);
	case 0xca:
	case 0xcb:
		return end_real(mp, at, (size_t)4 << (head - 0xca), value);
	case 0xcc:
	case 0xcd:
	case 0xce:
	case 0xcf:
		return end_int(mp, at, (size_t)1 << (head - 0xcc), false, value);
	case 0xd0:
	case 0xd1:
	case 0xd2:
	case 0xd3:
		return end_int(mp, at, (size_t)1 << (head - 0xd0), true, value);
	case 0xd4:
	case 0xd5:
	case 0xd6:
	case 0xd7:
	case 0xd8:
		return end_bytes(mp, at, UINT64_C(1) << (head - 0xd4), KVW_MP_EXT, value);
	case 0xd9:
	case 0xda:
	case 0xdb:
		return end_sized(mp, at, (size_t)1 << (head - 0xd9), KVW_MP_STR, value);
	case 0xdc:
	case 0xdd:
		return end_sized(mp, at, (size_t)2 << (head - 0xdc), KVW_MP_ARRAY, value);
	case 0xde:
	case 0xdf:
		return end_sized(mp, at, (size_t)2 << (head - 0xde), KVW_MP_MAP, value);
	default:
		return refuse_value(mp, "the byte c1, which means nothing");
	}
}

enum kvw_err kvw_mp_next(struct kvw_mp *mp, struct kvw_mp_value *value)
{
	const uint8_t *at = mp->at;
	uint8_t head;

	if (at == mp->end)
		return refuse_value(mp, "ends where a value should begin");
	head = *at++;
	if (head < 0x80 || head >= 0xe0) {
		value->type = head < 0x80 ? KVW_MP_UINT : KVW_MP_NEGATIVE;
		value->bits = (uint64_t)(int8_t)head;
		mp->at = at;
		return KVW_OK;
	}
	if (head < 0x90)
		return end_count(mp, at, head & 15, KVW_MP_MAP, value);
	if (head < 0xa0)
		return end_count(mp, at, head & 15, KVW_MP_ARRAY, value);
	if (head < 0xc0)
		return end_bytes(mp, at, head & 31, KVW_MP_STR, value);
	return next_special(mp, head, at, value);
}

enum kvw_err kvw_mp_skip(struct kvw_mp *mp)
{
	/* for each open array or map: number of values still to come */
	uint64_t left[KVW_MP_DEPTH];
	struct kvw_mp at = *mp;
	struct kvw_mp_value value;
	size_t depth = 0;
	enum kvw_err err;

	do {
		err = kvw_mp_next(&at, &value);
		if (err != KVW_OK) {
			mp->error = at.error;
			return err;
		}
		if ((value.type == KVW_MP_ARRAY || value.type == KVW_MP_MAP) && value.count > 0) {
			if (depth == KVW_MP_DEPTH) {
				mp->error = "nested too deep";
				return KVW_ELIMIT;
			}
			left[depth++] = (uint64_t)value.count << (value.type == KVW_MP_MAP);
			continue;
		}
		while (depth > 0 && --left[depth - 1] == 0)
			depth--;
	} while (depth > 0);
	mp->at = at.at;
	return KVW_OK;
}

/* Reads the next value if it is of this type, and moves the cursor past it. */
static enum kvw_err next_of(
	struct kvw_mp *mp, enum kvw_mp_type type, const char *error, struct kvw_mp_value *value)
{
	const uint8_t *start = mp->at;
	enum kvw_err err = kvw_mp_next(mp, value);

	if (err == KVW_OK && value->type != type) {
		mp->at = start;
		err = refuse_value(mp, error);
	}
	return err;
}

enum kvw_err kvw_mp_array(struct kvw_mp *mp, uint32_t *count)
{
	struct kvw_mp_value value;
	enum kvw_err err = next_of(mp, KVW_MP_ARRAY, "not an array", &value);

	if (err == KVW_OK)
		*count = value.count;
	return err;
}

enum kvw_err kvw_mp_map(struct kvw_mp *mp, uint32_t *pairs)
{
	struct kvw_mp_value value;
	enum kvw_err err = next_of(mp, KVW_MP_MAP, "not a map", &value);

	if (err == KVW_OK)
		*pairs = value.count;
	return err;
}

enum kvw_err kvw_mp_str(struct kvw_mp *mp, struct kvw_slice *text)
{
	struct kvw_mp_value value;
	enum kvw_err err = next_of(mp, KVW_MP_STR, "not a text", &value);

	if (err == KVW_OK)
		*text = value.bytes;
	return err;
}

enum kvw_err kvw_mp_bool(struct kvw_mp *mp, bool *result)
{
	struct kvw_mp_value value;
	enum kvw_err err = next_of(mp, KVW_MP_BOOL, "not true or false", &value);

	if (err == KVW_OK)
		*result = value.boolean;
	return err;
}

enum kvw_err kvw_mp_real(struct kvw_mp *mp, double *result)
{
	const uint8_t *start = mp->at;
	struct kvw_mp_value value;
	enum kvw_err err = kvw_mp_next(mp, &value);

	if (err != KVW_OK)
		return err;
	switch (value.type) {
	case KVW_MP_FLOAT:
		*result = value.real;
		return KVW_OK;
	case KVW_MP_UINT:
		*result = (double)value.bits;
		return KVW_OK;
	case KVW_MP_NEGATIVE:
		*result = (double)(int64_t)value.bits;
		return KVW_OK;
	default:
		mp->at = start;
		return refuse_value(mp, "not a number");
	}
}

enum kvw_err kvw_mp_uint(struct kvw_mp *mp, uint64_t most, uint64_t *result)
{
	const uint8_t *start = mp->at;
	struct kvw_mp_value value;
	enum kvw_err err = next_of(mp, KVW_MP_UINT, "not an integer from 0 on", &value);

	if (err == KVW_OK && value.bits > most) {
		mp->at = start;
		err = refuse_value(mp, "an integer out of range");
	}
	if (err == KVW_OK)
		*result = value.bits;
	return err;
}

enum kvw_err kvw_mp_bits(struct kvw_mp *mp, uint64_t *bits)
{
	const uint8_t *start = mp->at;
	struct kvw_mp_value value;
	enum kvw_err err = kvw_mp_next(mp, &value);

	if (err == KVW_OK && value.type != KVW_MP_UINT && value.type != KVW_MP_NEGATIVE) {
		mp->at = start;
		err = refuse_value(mp, "not an integer");
	}
	if (err == KVW_OK)
		*bits = value.bits;
	return err;
}

bool kvw_mp_take_nil(struct kvw_mp *mp)
{
	if (mp->at == mp->end || *mp->at != 0xc0)
		return false;
	mp->at++;
	return true;
}
