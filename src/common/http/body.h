/*
 * body.h - finds the end of a message body and its payload.
 *
 * The reader is strict about chunked coding (RFC 9112 section 7.1): sizes in hex without blanks or
 * overflow, only CR LF as line end, chunk extensions by their grammar in printable ASCII, trailers
 * checked like head fields, and none that frames, routes, authenticates or describes the content
 * (RFC 9110 section 6.5.1). The body's bytes may be forwarded unchanged: llhttp finds the same
 * payload and the same end in them, as fuzzing shows.
 */
#ifndef KVW_BODY_H
#define KVW_BODY_H

#include "http/head.h"

/* Called for each run of payload, in order. The bytes are in the buffer that is being fed. */
typedef void (*kvw_body_data_fn)(void *arg, const char *data, size_t len);

/* Reads one body. Plain data without allocations; its private members may change. */
struct kvw_body {
	enum kvw_framing framing;
	bool done;                /* the last byte of the message has been fed */
	uint64_t payload_bytes;   /* payload so far */
	/* bytes still to come: of the body (LENGTH), or of the present chunk (CHUNKED) */
	uint64_t left;
	uint64_t limit;           /* a body with more payload ends with KVW_ELIMIT */
	uint64_t extension_bytes; /* bytes of all chunk extensions so far */
	uint32_t line_len;        /* in the present line: number of size digits, then of bytes */
	uint32_t trailer_bytes;
	uint32_t name_len; /* length of the name of the present extension (0 or 1) or trailer */
	uint8_t state;
	char name[20];     /* the beginning of the present trailer's name, in lower case */
	const char *error; /* static text with the reason of KVW_EPROTO */
};

/* Begins a body, whose first byte is the one after the head. limit 0: there is no limit. A body
 * without bytes is done at once. */
void kvw_body_begin(
	struct kvw_body *body, enum kvw_framing framing, uint64_t content_length, uint64_t limit);

/*
 * Takes data, calls on_data (NULL allowed) for payload, and sets *used to the bytes that belong to
 * this body: less than len if the body ends inside data. KVW_EPROTO: body->error has the reason.
 * KVW_ELIMIT: over the limit; no payload beyond the limit was reported, and none of a
 * Content-Length or chunk that announces too much. Both are final: later calls return the same.
 */
enum kvw_err kvw_body_feed(struct kvw_body *body, const char *data, size_t len,
	kvw_body_data_fn on_data, void *arg, size_t *used) KVW_MUST_CHECK;

/* To be called when the sender closes. Returns true if the body is complete: its framing is
 * KVW_FRAME_CLOSE, or it was done before. */
bool kvw_body_close(struct kvw_body *body);

#endif
