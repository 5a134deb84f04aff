/*
 * hex.h - reads hexadecimal digits, and percent-encoded bytes (RFC 3986, 2.1).
 */
#ifndef KVW_HEX_H
#define KVW_HEX_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the value of a digit of either case; -1: it is none. */
static inline int kvw_hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads the byte that begins at text[*at], and moves *at to its last character. False: it is not
 * percent-encoded. */
static inline bool kvw_percent_byte(const char *text, size_t len, size_t *at, char *byte)
{
	int high = -1, low = -1;

	*byte = text[*at];
	if (*byte == '%' && *at + 2 < len) {
		high = kvw_hex_value(text[*at + 1]);
		low = kvw_hex_value(text[*at + 2]);
	}
	if (high < 0 || low < 0)
		return false;
	*byte = (char)(high << 4 | low);
	*at += 2;
	return true;
}

#endif
