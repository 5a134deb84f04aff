/* sse.c - server-sent events out of bytes that arrive in any pieces. */
#include "bench/load/sse.h"

#include <string.h>

/* Takes one line, without its end. */
static void take_line(struct kvb_sse *sse, const char *line, size_t len,
	void (*event)(void *arg, const char *data, size_t len), void *arg)
{
	if (len > 0 && line[len - 1] == '\r')
		len--;
	if (len == 0) {
		if (sse->has_data)
			event(arg, sse->data.data, sse->data.len);
		sse->data.len = 0;
		sse->has_data = 0;
		return;
	}
	if (len < 5 || memcmp(line, "data:", 5) != 0)
		return;
	line += 5;
	len -= 5;
	if (len > 0 && line[0] == ' ') {
		line++;
		len--;
	}
	if (sse->has_data)
		kvb_buf_add(&sse->data, "\n", 1);
	kvb_buf_add(&sse->data, line, len);
	sse->has_data = 1;
}

void kvb_sse_feed(struct kvb_sse *sse, const char *bytes, size_t len,
	void (*event)(void *arg, const char *data, size_t len), void *arg)
{
	const char *end = bytes + len, *newline;

	while ((newline = memchr(bytes, '\n', (size_t)(end - bytes))) != NULL) {
		if (sse->line.len > 0) {
			kvb_buf_add(&sse->line, bytes, (size_t)(newline - bytes));
			take_line(sse, sse->line.data, sse->line.len, event, arg);
			sse->line.len = 0;
		} else {
			take_line(sse, bytes, (size_t)(newline - bytes), event, arg);
		}
		bytes = newline + 1;
		if (bytes == end)
			return;
	}
	kvb_buf_add(&sse->line, bytes, (size_t)(end - bytes));
}

void kvb_sse_finish(struct kvb_sse *sse)
{
	kvb_buf_finish(&sse->line);
	kvb_buf_finish(&sse->data);
}
