/*
 * context.c - reads and writes the header field `traceparent`.
 *
 * The grammar is strict, since two programs that read a value differently would cut one trace in
 * two: upper-case digits, ids of zero, version ff and anything behind the flags of version 00 are
 * invalid (W3C Trace Context, sections 3.2.2 and 4.3).
 */
#include "trace/context.h"

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads `count` digits, at most 16. */
static bool take_hex(const char *at, size_t count, uint64_t *out)
{
	uint64_t value = 0;

	for (size_t i = 0; i < count; i++) {
		int digit = digit_of(at[i]);

		if (digit < 0)
			return false;
		value = value << 4 | (uint64_t)digit;
	}
	*out = value;
	return true;
}

bool kvw_traceparent_read(struct kvw_slice value, struct kvw_trace_context *out)
{
	const char *at = value.data;
	uint64_t version, first, last, parent, flags;

	if (value.len < KVW_TRACEPARENT_LEN || at[2] != '-' || at[35] != '-' || at[52] != '-' ||
		!take_hex(at, 2, &version) || !take_hex(at + 3, 16, &first) ||
		!take_hex(at + 19, 16, &last) || !take_hex(at + 36, 16, &parent) ||
		!take_hex(at + 53, 2, &flags))
		return false;
	if (version == 0xff || (first == 0 && last == 0) || parent == 0)
		return false;
	if (value.len > KVW_TRACEPARENT_LEN && (version == 0 || at[KVW_TRACEPARENT_LEN] != '-'))
		return false;
	out->trace[0] = first;
	out->trace[1] = last;
	out->parent = parent;
	out->flags = (uint8_t)flags;
	return true;
}

/* Returns the eight digits of a number, the first one in the lowest byte: the halves are spread to
 * bytes, and then digits are added to all bytes at once. */
static uint64_t digits_of(uint32_t value)
{
	const uint64_t ones = UINT64_C(0x0101010101010101);
	uint64_t x = __builtin_bswap32(value), letters;

	x = (x | x << 16) & UINT64_C(0x0000ffff0000ffff);
	x = (x | x << 8) & UINT64_C(0x00ff00ff00ff00ff);
	x = (x >> 4 | x << 8) & (15 * ones);
	letters = (x + 6 * ones) >> 4 & ones;
	return x + '0' * ones + letters * ('a' - '0' - 10);
}

void kvw_trace_hex(char out[16], uint64_t value)
{
	const uint64_t digits[2] = {digits_of((uint32_t)(value >> 32)), digits_of((uint32_t)value)};

	memcpy(out, digits, sizeof(digits));
}

void kvw_trace_id(char out[KVW_TRACE_ID_LEN], const struct kvw_trace_context *context)
{
	kvw_trace_hex(out, context->trace[0]);
	kvw_trace_hex(out + 16, context->trace[1]);
}

void kvw_traceparent_write(
	char out[KVW_TRACEPARENT_LEN], const uint64_t trace[2], uint64_t span, uint8_t flags)
{
	memcpy(out, "00-", 3);
	kvw_trace_hex(out + 3, trace[0]);
	kvw_trace_hex(out + 19, trace[1]);
	out[35] = '-';
	kvw_trace_hex(out + 36, span);
	out[52] = '-';
	out[53] = "0123456789abcdef"[flags >> 4];
	out[54] = "0123456789abcdef"[flags & 15];
}
