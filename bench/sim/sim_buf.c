/*
 * sim_buf.c - a growing run of bytes; doubling growth, so appending costs amortised O(1).
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_buf.h"

void kvb_buf_free(struct kvb_buf *buf)
{
	free(buf->data);
	*buf = (struct kvb_buf){0};
}

void kvb_buf_clear(struct kvb_buf *buf)
{
	buf->len = 0;
	buf->failed = false;
}

bool kvb_buf_reserve(struct kvb_buf *buf, size_t more)
{
	size_t cap = buf->cap == 0 ? 256 : buf->cap;
	char *data;

	if (buf->failed)
		return false;
	if (buf->data != NULL && more <= buf->cap - buf->len)
		return true;
	while (cap - buf->len < more && cap <= SIZE_MAX / 2)
		cap *= 2;
	data = cap - buf->len < more ? NULL : realloc(buf->data, cap);
	if (data == NULL) {
		buf->failed = true;
		return false;
	}
	buf->data = data;
	buf->cap = cap;
	return true;
}

void kvb_buf_add(struct kvb_buf *buf, const void *data, size_t len)
{
	if (len == 0 || !kvb_buf_reserve(buf, len))
		return;
	memcpy(buf->data + buf->len, data, len);
	buf->len += len;
}

void kvb_buf_text(struct kvb_buf *buf, const char *text)
{
	kvb_buf_add(buf, text, strlen(text));
}

void kvb_buf_printf(struct kvb_buf *buf, const char *format, ...)
{
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (len < 0) {
		buf->failed = true;
		return;
	}
	if (!kvb_buf_reserve(buf, (size_t)len + 1))
		return;
	va_start(args, format);
	vsnprintf(buf->data + buf->len, (size_t)len + 1, format, args);
	va_end(args);
	buf->len += (size_t)len;
}

/* Returns the two-character escape of a byte, or NULL. */
static const char *short_escape(unsigned char c)
{
	switch (c) {
	case '"':
		return "\\\"";
	case '\\':
		return "\\\\";
	case '\b':
		return "\\b";
	case '\f':
		return "\\f";
	case '\n':
		return "\\n";
	case '\r':
		return "\\r";
	case '\t':
		return "\\t";
	default:
		return NULL;
	}
}

void kvb_buf_json(struct kvb_buf *buf, const char *data, size_t len)
{
	size_t from = 0;

	kvb_buf_add(buf, "\"", 1);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)data[i];
		const char *escape = short_escape(c);

		if (escape == NULL && c >= 0x20)
			continue;
		kvb_buf_add(buf, data + from, i - from);
		if (escape != NULL)
			kvb_buf_text(buf, escape);
		else
			kvb_buf_printf(buf, "\\u%04x", c);
		from = i + 1;
	}
	kvb_buf_add(buf, data + from, len - from);
	kvb_buf_add(buf, "\"", 1);
}

void kvb_buf_number(struct kvb_buf *buf, double value)
{
	char text[40];
	int digits = 0, exponent, decimals;

	do /* tries the fewest digits first, until the text reads back as the same value */
		snprintf(text, sizeof(text), "%.*e", digits, value);
	while (strtod(text, NULL) != value && ++digits < 17);
	exponent = value == 0 ? 0 : atoi(strchr(text, 'e') + 1);
	decimals = digits > exponent ? digits - exponent : 1;
	if (exponent >= -4 && exponent < 16)
		kvb_buf_printf(buf, "%.*f", decimals, value);
	else
		kvb_buf_text(buf, text);
}

void kvb_buf_ids(struct kvb_buf *buf, const uint32_t *ids, size_t count)
{
	kvb_buf_add(buf, "[", 1);
	for (size_t i = 0; i < count; i++) {
		char text[11]; /* ten digits and a comma, written from the end */
		size_t at = sizeof(text);

		for (uint32_t rest = ids[i]; at == sizeof(text) || rest > 0; rest /= 10)
			text[--at] = (char)('0' + rest % 10);
		if (i > 0)
			text[--at] = ',';
		kvb_buf_add(buf, text + at, sizeof(text) - at);
	}
	kvb_buf_add(buf, "]", 1);
}
