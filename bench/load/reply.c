/* reply.c - just enough of an HTTP answer to know where it ends. */
#include "bench/load/reply.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

void kvb_reply_begin(struct kvb_reply *reply)
{
	reply->head_len = 0;
	reply->body_left = 0;
	reply->in_body = 0;
	reply->status = 0;
}

/* Reads status and Content-Length of a whole head; -1 if it is not one we take. */
static long read_head(struct kvb_reply *reply, const char *end)
{
	const char *at = reply->head;

	if (end - at < 12 || strncmp(at, "HTTP/1.1 ", 9) != 0)
		return -1;
	reply->status = atoi(at + 9);
	while ((at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
		at++;
		if (end - at > 15 && strncasecmp(at, "content-length:", 15) == 0)
			return strtol(at + 15, NULL, 10);
	}
	return -1;
}

static enum kvb_reply_state body(struct kvb_reply *reply, size_t len)
{
	if (len > reply->body_left)
		return KVB_REPLY_BAD;
	reply->body_left -= len;
	return reply->body_left == 0 ? KVB_REPLY_DONE : KVB_REPLY_MORE;
}

enum kvb_reply_state kvb_reply_feed(struct kvb_reply *reply, const char *data, size_t len)
{
	const char *end;
	size_t room, had = reply->head_len, head;
	long length;

	if (reply->in_body)
		return body(reply, len);
	room = sizeof(reply->head) - 1 - had;
	room = room < len ? room : len;
	memcpy(reply->head + had, data, room);
	reply->head_len += room;
	reply->head[reply->head_len] = '\0';
	end = memmem(reply->head, reply->head_len, "\r\n\r\n", 4);
	if (end == NULL)
		return room < len ? KVB_REPLY_BAD : KVB_REPLY_MORE;
	length = read_head(reply, end + 4);
	if (length < 0)
		return KVB_REPLY_BAD;
	head = (size_t)(end + 4 - reply->head);
	reply->in_body = 1;
	reply->body_left = (size_t)length;
	return body(reply, len - (head - had));
}
