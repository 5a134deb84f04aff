/*
 * mem.c - allocation for benchmark programs, and a buffer that grows. Buffers double, so that
 * adding n bytes costs O(n) in all.
 */
#include "bench/load/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *checked(void *p)
{
	if (p == NULL) {
		fputs("out of memory\n", stderr);
		exit(1);
	}
	return p;
}

void *kvb_alloc(size_t count, size_t size)
{
	return checked(calloc(count ? count : 1, size));
}

void *kvb_realloc(void *old, size_t count, size_t size)
{
	return checked(reallocarray(old, count ? count : 1, size));
}

char *kvb_strdup(const char *text)
{
	return checked(strdup(text));
}

void kvb_buf_reserve(struct kvb_buf *buf, size_t more)
{
	size_t capacity = buf->capacity ? buf->capacity : 256;

	if (buf->capacity - buf->len >= more)
		return;
	while (capacity - buf->len < more)
		capacity *= 2;
	buf->data = kvb_realloc(buf->data, capacity, 1);
	buf->capacity = capacity;
}

void kvb_buf_add(struct kvb_buf *buf, const void *data, size_t len)
{
	if (len == 0)
		return;
	kvb_buf_reserve(buf, len);
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
	kvb_buf_reserve(buf, (size_t)len + 1);
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

void kvb_buf_json_text(struct kvb_buf *buf, const char *text, size_t len)
{
	size_t plain = 0;

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];
		const char *escape = short_escape(c);

		if (escape == NULL && c >= 0x20)
			continue;
		kvb_buf_add(buf, text + plain, i - plain);
		plain = i + 1;
		if (escape != NULL)
			kvb_buf_text(buf, escape);
		else
			kvb_buf_printf(buf, "\\u%04x", c);
	}
	if (len > 0) /* else text may be NULL */
		kvb_buf_add(buf, text + plain, len - plain);
}

void kvb_buf_json(struct kvb_buf *buf, const char *text, size_t len)
{
	kvb_buf_add(buf, "\"", 1);
	kvb_buf_json_text(buf, text, len);
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

const char *kvb_buf_str(struct kvb_buf *buf)
{
	kvb_buf_reserve(buf, 1);
	buf->data[buf->len] = '\0';
	return buf->data;
}

void kvb_buf_consume(struct kvb_buf *buf, size_t len)
{
	if (len == 0)
		return;
	memmove(buf->data, buf->data + len, buf->len - len);
	buf->len -= len;
}

void kvb_buf_clear(struct kvb_buf *buf)
{
	buf->len = 0;
}

void kvb_buf_finish(struct kvb_buf *buf)
{
	free(buf->data);
	*buf = (struct kvb_buf){0};
}
