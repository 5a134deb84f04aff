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

static void reserve(struct kvb_buf *buf, size_t more)
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
	reserve(buf, len);
	memcpy(buf->data + buf->len, data, len);
	buf->len += len;
}

void kvb_buf_puts(struct kvb_buf *buf, const char *text)
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
	reserve(buf, (size_t)len + 1);
	va_start(args, format);
	vsnprintf(buf->data + buf->len, (size_t)len + 1, format, args);
	va_end(args);
	buf->len += (size_t)len;
}

void kvb_buf_add_json(struct kvb_buf *buf, const char *text, size_t len)
{
	size_t plain = 0;

	if (len == 0)
		return; /* text may be NULL */
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c >= 0x20 && c != '"' && c != '\\')
			continue;
		kvb_buf_add(buf, text + plain, i - plain);
		plain = i + 1;
		if (c == '"' || c == '\\')
			kvb_buf_printf(buf, "\\%c", c);
		else if (c == '\n')
			kvb_buf_puts(buf, "\\n");
		else
			kvb_buf_printf(buf, "\\u%04x", c);
	}
	kvb_buf_add(buf, text + plain, len - plain);
}

const char *kvb_buf_str(struct kvb_buf *buf)
{
	reserve(buf, 1);
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

void kvb_buf_finish(struct kvb_buf *buf)
{
	free(buf->data);
	*buf = (struct kvb_buf){0};
}
