/*
 * daemon_wire.c - requests to a tiered-storage daemon and its answers, as little as a load needs.
 */
#include "bench/l2/daemon_wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "bench/l2/spent.h"

#define COMMON                                                                                     \
	"Host: 127.0.0.1\r\nUser-Agent: kvb\r\nAccept: */*\r\n"                                    \
	"Content-Type: application/octet-stream\r\n"

size_t kvb_put_head(char out[KVB_REQUEST_ROOM], uint64_t object, uint64_t bytes)
{
	return (size_t)snprintf(out, KVB_REQUEST_ROOM,
		"PUT /v1/kv/" KVB_BUCKET "/chunk-%llu HTTP/1.1\r\n" COMMON
		"Content-Length: %llu\r\n\r\n",
		(unsigned long long)object, (unsigned long long)bytes);
}

size_t kvb_lease_head(char out[KVB_REQUEST_ROOM], uint64_t object)
{
	return (size_t)snprintf(out, KVB_REQUEST_ROOM,
		"POST /v1/kv/" KVB_BUCKET
		"/chunk-%llu/leases?timeout_ms=5000&ttl_s=30.0 HTTP/1.1\r\n" COMMON
		"Content-Length: 0\r\n\r\n",
		(unsigned long long)object);
}

size_t kvb_release_head(char out[KVB_REQUEST_ROOM], const char *lease)
{
	return (size_t)snprintf(out, KVB_REQUEST_ROOM,
		"POST /v1/leases/%s/release HTTP/1.1\r\n" COMMON "Content-Length: 0\r\n\r\n",
		lease);
}

/* The value of a header line, or NULL; names are compared without case. */
static const char *find_header(const char *head, const char *end, const char *name)
{
	size_t length = strlen(name);

	for (const char *line = head; line < end;) {
		const char *next = memchr(line, '\n', (size_t)(end - line));

		if (next == NULL)
			return NULL;
		if ((size_t)(next - line) > length && line[length] == ':' &&
			strncasecmp(line, name, length) == 0)
			return line + length + 1;
		line = next + 1;
	}
	return NULL;
}

size_t kvb_answer_parse(const char *text, size_t bytes, struct kvb_answer *out)
{
	const char *end = memmem(text, bytes, "\r\n\r\n", 4), *length;
	size_t head;

	if (end == NULL)
		return 0;
	head = (size_t)(end - text) + 4;
	length = find_header(text, end + 2, "Content-Length");
	if (bytes < 12 || memcmp(text, "HTTP/1.1 ", 9) != 0 || length == NULL)
		kvb_fail("an answer that no load expects: %.*s", (int)head, text);
	out->status = (int)strtol(text + 9, NULL, 10);
	out->body = text + head;
	out->body_bytes = strtoul(length, NULL, 10);
	return bytes < head + out->body_bytes ? 0 : head + out->body_bytes;
}

void kvb_answer_lease(const struct kvb_answer *answer, char out[KVB_LEASE_ROOM])
{
	static const char name[] = "\"id\"";
	const char *end = answer->body + answer->body_bytes;
	const char *at = memmem(answer->body, answer->body_bytes, name, sizeof(name) - 1);
	size_t n = 0;

	if (answer->status != 200 || at == NULL ||
		memmem(answer->body, answer->body_bytes, "\"len\"", 5) == NULL)
		kvb_fail("a lease was not granted: %d %.*s", answer->status,
			(int)answer->body_bytes, answer->body);
	at += sizeof(name) - 1;
	while (at < end && (*at == ' ' || *at == ':'))
		at++;
	for (at++; at < end && *at != '"' && n < KVB_LEASE_ROOM - 1; at++)
		out[n++] = *at;
	out[n] = 0;
}

void kvb_answer_wait(int fd, char *text, struct kvb_answer *out)
{
	size_t have = 0, used;

	do {
		ssize_t got = recv(fd, text + have, KVB_ANSWER_ROOM - have, 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			kvb_fail(
				"waiting for an answer: %s", got == 0 ? "closed" : strerror(errno));
		have += (size_t)got;
	} while ((used = kvb_answer_parse(text, have, out)) == 0 && have < KVB_ANSWER_ROOM);
	if (used != have)
		kvb_fail("more than one answer, or one of more than %u bytes", KVB_ANSWER_ROOM);
}
