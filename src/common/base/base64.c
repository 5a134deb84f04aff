/*
 * base64.c - base64 (RFC 4648), read strictly: no padding, no whitespace, no loose bits, so that
 * the same bytes can be written in one way only.
 */
#include "base/base64.h"

#include <stdint.h>

static int value_of(char c, enum kvw_base64 kind)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == (kind == KVW_BASE64_URL ? '-' : '+'))
		return 62;
	return c == (kind == KVW_BASE64_URL ? '_' : '/') ? 63 : -1;
}

bool kvw_base64_read(
	struct kvw_slice text, enum kvw_base64 kind, unsigned char *out, size_t room, size_t *len)
{
	uint32_t bits = 0;
	int held = 0;
	size_t n = 0;

	if (text.len % 4 == 1)
		return false;
	for (size_t i = 0; i < text.len; i++) {
		int value = value_of(text.data[i], kind);

		if (value < 0)
			return false;
		bits = (bits << 6 | (uint32_t)value) & 0xffff;
		held += 6;
		if (held < 8)
			continue;
		held -= 8;
		if (n == room)
			return false;
		out[n++] = (unsigned char)(bits >> held);
	}
	/* If unused bits were allowed to be set, the same bytes could be written in two ways. */
	if ((bits & ((1u << held) - 1)) != 0)
		return false;
	*len = n;
	return true;
}
