/*
 * agree_body.c - chunked bodies: our reader against llhttp, and against itself in pieces.
 */
#include <llhttp.h>
#include <stdio.h>
#include <stdlib.h>

#include "agree.h"
#include "http/body.h"

#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* Payload as one reader sees it. */
struct payload {
	char *data;
	size_t len, size;
};

static void payload_add(struct payload *payload, const char *data, size_t len)
{
	MUST(len <= payload->size - payload->len);
	memcpy(payload->data + payload->len, data, len);
	payload->len += len;
}

static void on_data(void *arg, const char *data, size_t len)
{
	payload_add(arg, data, len);
}

static int on_llhttp_body(llhttp_t *parser, const char *data, size_t len)
{
	payload_add(parser->data, data, len);
	return 0;
}

static int on_llhttp_end(llhttp_t *parser)
{
	(void)parser;
	return HPE_PAUSED;
}

/* What a reader made of all the bytes. */
struct reading {
	enum kvw_err err;
	bool done;
	size_t used; /* if err is KVW_OK */
	struct payload payload;
};

/* Ours, in pieces of at most `piece` bytes. */
static void read_own(struct reading *r, const char *data, size_t len, size_t piece)
{
	struct kvw_body body;
	size_t at = 0, used = 0;

	kvw_body_begin(&body, KVW_FRAME_CHUNKED, 0, 0);
	r->err = KVW_OK;
	while (at < len && r->err == KVW_OK && !body.done) {
		size_t n = len - at < piece ? len - at : piece;

		r->err = kvw_body_feed(&body, data + at, n, on_data, &r->payload, &used);
		if (r->err != KVW_OK)
			break;
		MUST(used == n || body.done);
		at += used;
	}
	r->done = body.done;
	r->used = at;
	MUST(r->err != KVW_EPROTO || body.error != NULL);
	MUST(r->err != KVW_OK || body.payload_bytes == r->payload.len);
}

static void read_llhttp(struct reading *r, const char *data, size_t len)
{
	static const char head[] =
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
	static const llhttp_settings_t settings = {
		.on_body = on_llhttp_body,
		.on_message_complete = on_llhttp_end,
	};
	llhttp_errno_t result;
	llhttp_t parser;

	llhttp_init(&parser, HTTP_REQUEST, &settings);
	parser.data = &r->payload;
	MUST(llhttp_execute(&parser, head, sizeof(head) - 1) == HPE_OK);
	result = len == 0 ? HPE_OK : llhttp_execute(&parser, data, len);
	r->done = result == HPE_PAUSED;
	r->err = result == HPE_OK || r->done ? KVW_OK : KVW_EPROTO;
	r->used = r->done ? (size_t)(llhttp_get_error_pos(&parser) - data) : len;
}

static void reading_init(struct reading *r, size_t len)
{
	*r = (struct reading){.payload = {.data = malloc(len + 1), .size = len}};
	MUST(r->payload.data != NULL);
}

/* Copies a body that our reader accepts without its chunk extensions. Returns the copy's length. */
static size_t without_extensions(char *copy, const char *data, size_t len)
{
	struct kvw_body body;
	size_t kept = 0, used;

	kvw_body_begin(&body, KVW_FRAME_CHUNKED, 0, 0);
	for (size_t i = 0; i < len; i++) {
		uint64_t before = body.extension_bytes;

		MUST(body.done || kvw_body_feed(&body, data + i, 1, NULL, NULL, &used) == KVW_OK);
		if (body.extension_bytes == before || data[i] == '\r')
			copy[kept++] = data[i];
	}
	return kept;
}

/*
 * llhttp 8 refuses extensions that RFC 9112 allows: a backslash in quotes, and a further extension
 * behind one with a value. A worker that refuses them too answers 400; it does not see another end.
 * So that no other difference hides behind these, llhttp then reads the body without extensions.
 */
static void read_llhttp_leniently(struct reading *r, const char *data, size_t len)
{
	char *copy;
	size_t kept;

	reading_init(r, len);
	read_llhttp(r, data, len);
	if (r->err == KVW_OK)
		return;
	free(r->payload.data);
	reading_init(r, len);
	copy = malloc(len + 1);
	MUST(copy != NULL);
	kept = without_extensions(copy, data, len);
	MUST(kept < len);
	read_llhttp(r, copy, kept);
	r->used += len - kept; /* what was left out lies before the end */
	free(copy);
}

static void must_equal(const struct reading *a, const struct reading *b)
{
	MUST(a->done == b->done);
	MUST(a->used == b->used);
	MUST(a->payload.len == b->payload.len);
	MUST(memcmp(a->payload.data, b->payload.data, a->payload.len) == 0);
}

bool kvb_agree_body(const char *data, size_t len)
{
	struct reading whole, other;
	static const size_t pieces[] = {1, 2, 3, 7, 16};
	bool accepted;

	reading_init(&whole, len);
	read_own(&whole, data, len, len + 1);
	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		reading_init(&other, len);
		read_own(&other, data, len, pieces[i]);
		MUST(other.err == whole.err);
		if (whole.err == KVW_OK)
			must_equal(&whole, &other);
		free(other.payload.data);
	}
	accepted = whole.err == KVW_OK;
	if (accepted) {
		read_llhttp_leniently(&other, data, len);
		MUST(other.err == KVW_OK);
		must_equal(&whole, &other);
		free(other.payload.data);
	}
	free(whole.payload.data);
	return accepted && whole.done;
}
