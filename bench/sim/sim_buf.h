/*
 * sim_buf.h - a growing run of bytes that answers are written into.
 *
 * A failed allocation is remembered instead of reported by each call: writers append freely and
 * look at `failed` once, before the bytes are used. Not thread-safe.
 */
#ifndef KVB_SIM_BUF_H
#define KVB_SIM_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvb_buf {
	char *data;  /* owned; NULL while empty */
	size_t len;  /* bytes used */
	size_t cap;  /* bytes allocated */
	bool failed; /* an allocation failed: the content is not whole */
};

void kvb_buf_free(struct kvb_buf *buf);
void kvb_buf_clear(struct kvb_buf *buf); /* keeps the memory, forgets a failure */

/* Room for `more` further bytes; false and `failed` set if there is no memory. */
bool kvb_buf_reserve(struct kvb_buf *buf, size_t more);
void kvb_buf_add(struct kvb_buf *buf, const void *data, size_t len);
void kvb_buf_text(struct kvb_buf *buf, const char *text);
void kvb_buf_printf(struct kvb_buf *buf, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The bytes as a JSON string with its quotes; the input is UTF-8. */
void kvb_buf_json(struct kvb_buf *buf, const char *data, size_t len);
/* The shortest text that reads back as the same double, with a point, as Python prints it. */
void kvb_buf_number(struct kvb_buf *buf, double value);
/* The ids as a JSON array of numbers. */
void kvb_buf_ids(struct kvb_buf *buf, const uint32_t *ids, size_t count);

#endif
