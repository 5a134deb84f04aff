/*
 * mem.h - allocation for benchmark programs, and a buffer that grows.
 *
 * A load generator or simulator that runs out of memory prints that and ends, since its
 * measurement would be worthless. Every allocation of bench/load goes through here, so no caller
 * checks for NULL. Not for the router.
 */
#ifndef KVB_MEM_H
#define KVB_MEM_H

#include <stddef.h>
#include <stdint.h>

/* Returns zeroed memory, never NULL. Ends the program if memory runs out. */
void *kvb_alloc(size_t count, size_t size) __attribute__((returns_nonnull));
/* Like realloc, for `count` elements; new memory is not cleared. */
void *kvb_realloc(void *old, size_t count, size_t size) __attribute__((returns_nonnull));
char *kvb_strdup(const char *text) __attribute__((returns_nonnull));

/* Bytes to which more can be appended; all zeroes is an empty buffer. */
struct kvb_buf {
	char *data; /* owned; NULL: nothing was added. Ends with a NUL only after kvb_buf_str() */
	size_t len;
	size_t capacity;
};

/* Makes room for `more` further bytes. */
void kvb_buf_reserve(struct kvb_buf *buf, size_t more);
void kvb_buf_add(struct kvb_buf *buf, const void *data, size_t len);
void kvb_buf_text(struct kvb_buf *buf, const char *text);
void kvb_buf_printf(struct kvb_buf *buf, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Appends UTF-8 as a JSON string with its quotes. */
void kvb_buf_json(struct kvb_buf *buf, const char *text, size_t len);
/* Appends UTF-8 as it is written inside a JSON string. */
void kvb_buf_json_text(struct kvb_buf *buf, const char *text, size_t len);
/* Appends the shortest text from which the same double is read, with a point, as Python prints
 * it. */
void kvb_buf_number(struct kvb_buf *buf, double value);
/* Appends the ids as a JSON array of numbers. */
void kvb_buf_ids(struct kvb_buf *buf, const uint32_t *ids, size_t count);
/* Returns the content with a NUL after it; valid until the next call on buf. */
const char *kvb_buf_str(struct kvb_buf *buf);
/* Removes the first len bytes. */
void kvb_buf_consume(struct kvb_buf *buf, size_t len);
/* Empties the buffer, and keeps its memory. */
void kvb_buf_clear(struct kvb_buf *buf);
void kvb_buf_finish(struct kvb_buf *buf);

#endif
