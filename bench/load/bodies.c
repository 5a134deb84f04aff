/* bodies.c - chat requests of one size that all differ and share prefixes, made at no cost. */
#include "bench/load/bodies.h"

#include <stdio.h>
#include <string.h>

#include "bench/load/text.h"

#define LINE 400 /* bytes of text between two escaped newlines */

static const char json_open[] =
	"{\"model\":\"bench\",\"messages\":[{\"role\":\"system\",\"content\":\"";
static const char json_turn[] = "\"},{\"role\":\"user\",\"content\":\"";

/* Appends exactly `bytes` bytes of prose, written as the inside of a JSON string. */
static void add_prose(struct kvb_buf *buf, uint64_t id, size_t bytes)
{
	size_t start = buf->len;

	kvb_text_add(buf, id, bytes);
	for (size_t at = LINE; at + 2 <= bytes; at += LINE)
		memcpy(buf->data + start + at, "\\n", 2);
}

void kvb_bodies_init(struct kvb_bodies *bodies, const char *host, size_t body_bytes, int stream, int unique)
{
	const char *json_close =
		stream ? "\"}],\"max_tokens\":1000,\"stream\":true}" : "\"}],\"max_tokens\":1}";
	/* bytes of a body besides prose; the number is sixteen digits and a space */
	size_t number = 17;
	size_t fixed = strlen(json_open) + strlen(json_turn) + number + strlen(json_close);
	size_t text = body_bytes - fixed;

	*bodies = (struct kvb_bodies){.shared_len = text / 4 * 3, .turn = unique ? "" : json_turn, .unique = unique};
	kvb_buf_printf(&bodies->open,
		"POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nAccept: */*\r\n"
		"Content-Type: application/json\r\nAuthorization: Bearer sk-bench-0123456789\r\n"
		"User-Agent: kvb-load/" KVW_VERSION "\r\nContent-Length: %zu\r\n\r\n%s",
		host, body_bytes, json_open);
	for (uint64_t group = 0; group < KVB_BODY_GROUPS; group++)
		add_prose(&bodies->shared, 1000 + group, bodies->shared_len);
	if (unique)
		kvb_buf_text(&bodies->close, json_turn);
	add_prose(&bodies->close, 1, text - bodies->shared_len);
	kvb_buf_text(&bodies->close, json_close);
}

void kvb_bodies_next(
	struct kvb_bodies *bodies, struct iovec pieces[KVB_BODY_PIECES], char stamp[KVB_BODY_STAMP])
{
	uint64_t number = bodies->next++;
	uint64_t group = number * UINT64_C(0x9e3779b97f4a7c15) >> 58;
	int len = snprintf(
		stamp, KVB_BODY_STAMP, "%s%016llx ", bodies->turn, (unsigned long long)number);

	pieces[0] = (struct iovec){bodies->open.data, bodies->open.len};
	pieces[bodies->unique ? 2 : 1] =
		(struct iovec){bodies->shared.data + group * bodies->shared_len, bodies->shared_len};
	pieces[bodies->unique ? 1 : 2] = (struct iovec){stamp, (size_t)len};
	pieces[3] = (struct iovec){bodies->close.data, bodies->close.len};
}

void kvb_bodies_finish(struct kvb_bodies *bodies)
{
	kvb_buf_finish(&bodies->open);
	kvb_buf_finish(&bodies->shared);
	kvb_buf_finish(&bodies->close);
}
