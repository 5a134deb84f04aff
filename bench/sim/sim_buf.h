/*
 * sim_buf.h - a growing buffer into which answers are written.
 *
 * A failed allocation is noted, not reported by each call: callers append freely and check `failed`
 * once, before the bytes are used. Not thread-safe.
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
	bool failed; /* an allocation failed, so the content is incomplete */
};

void kvb_buf_free(struct kvb_buf *buf);
/* empties the buffer, keeps its memory, and clears `failed` */
void kvb_buf_clear(struct kvb_buf *buf);

/* Makes room for `more` further bytes. Returns false, and sets `failed`, if memory is short. */
bool kvb_buf_reserve(struct kvb_buf *buf, size_t more);
void kvb_buf_add(struct kvb_buf *buf, const void *data, size_t len);
void kvb_buf_text(struct kvb_buf *buf, const char *text);
void kvb_buf_printf(struct kvb_buf *buf, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Appends the bytes as a JSON string with quotes; the input is UTF-8. */
void kvb_buf_json(struct kvb_buf *buf, const char *data, size_t len);
/* Appends the shortest text from which the same double is read, with a point, as Python prints
 * it. */
void kvb_buf_number(struct kvb_buf *buf, double value);
/* Appends the ids as a JSON array of numbers. */
void kvb_buf_ids(struct kvb_buf *buf, const uint32_t *ids, size_t count);

#endif
