/*
 * mem.h - allocation for benchmark programs, and a buffer that grows.
 *
 * A load generator that is out of memory has measured nothing: it says so and ends. Every
 * allocation of bench/load goes through here, so no caller checks for NULL. Not for the router.
 */
#ifndef KVB_MEM_H
#define KVB_MEM_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed; never NULL. Ends the program when memory runs out. */
void *kvb_alloc(size_t count, size_t size) __attribute__((returns_nonnull));
/* As realloc for count elements; new space is not cleared. */
void *kvb_realloc(void *old, size_t count, size_t size) __attribute__((returns_nonnull));
char *kvb_strdup(const char *text) __attribute__((returns_nonnull));

/* Bytes that grow at the end. data is NULL until something was added. */
struct kvb_buf {
	char *data; /* owned; not terminated by NUL unless kvb_buf_str() was asked */
	size_t len;
	size_t capacity;
};

void kvb_buf_add(struct kvb_buf *buf, const void *data, size_t len);
void kvb_buf_puts(struct kvb_buf *buf, const char *text);
void kvb_buf_printf(struct kvb_buf *buf, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Adds text as the inside of a JSON string: quotes, backslashes and controls escaped. */
void kvb_buf_add_json(struct kvb_buf *buf, const char *text, size_t len);
/* The content with a NUL behind it; borrowed until the next call on buf. */
const char *kvb_buf_str(struct kvb_buf *buf);
/* Drops the first len bytes. */
void kvb_buf_consume(struct kvb_buf *buf, size_t len);
void kvb_buf_finish(struct kvb_buf *buf);

#endif
