/*
 * write.h - message heads and chunk lines, written into memory that the caller owns.
 *
 * Nothing here allocates. A writer that runs out of room sets `overflow` and leaves out the text
 * that does not fit, so that a caller may append at will and check once at the end; after an
 * overflow the bytes are no message and must not be sent. kvw_head_*_bound() return a room that is
 * always enough.
 *
 * Forwarded fields are copied byte for byte and in order, neighbours in one piece. Hop-by-hop
 * fields (RFC 9110 section 7.6.1) are dropped, by the parser's marks (kvw_field.hop_by_hop).
 */
#ifndef KVW_WRITE_H
#define KVW_WRITE_H

#include "http/head.h"

/* A buffer in memory of the caller, to which texts are appended. Begins as KVW_WRITER(memory,
 * size). */
struct kvw_writer {
	char *data;
	size_t len;    /* bytes written */
	size_t size;   /* room in data */
	bool overflow; /* a text did not fit and was left out */
};

#define KVW_WRITER(memory, room) ((struct kvw_writer){.data = (memory), .size = (room)})

static inline void kvw_write(struct kvw_writer *w, struct kvw_slice bytes)
{
	if (bytes.len > w->size - w->len) {
		w->overflow = true;
	} else if (bytes.len > 0) {
		memcpy(w->data + w->len, bytes.data, bytes.len);
		w->len += bytes.len;
	}
}

void kvw_write_u64(struct kvw_writer *w, uint64_t value); /* decimal */
/* writes hex digits: lower case, no leading zeros */
void kvw_write_hex(struct kvw_writer *w, uint64_t value);

/* Writes a string literal, whose length the compiler knows. */
#define kvw_write_literal(w, text) kvw_write((w), KVW_SLICE(text))

/* Writes "name: value" CRLF. The caller ensures that neither has CR, LF or NUL. */
void kvw_write_field(struct kvw_writer *w, struct kvw_slice name, struct kvw_slice value);

/* Writes "HTTP/1.1 200 OK" CRLF, with the text of kvw_status_text(). */
void kvw_status_line(struct kvw_writer *w, int status);

/* Writes the line before a chunk of len > 0 bytes: its size in hex, and CRLF. The caller writes
 * KVW_CHUNK_END after the bytes, and KVW_CHUNK_LAST at the end of the body. */
void kvw_chunk_line(struct kvw_writer *w, uint64_t len);
#define KVW_CHUNK_END  "\r\n"
#define KVW_CHUNK_LAST "0\r\n\r\n"

/* The last second that was formatted. One for each event loop; all zeroes is valid. */
struct kvw_date_cache {
	int64_t second; /* the second that `text` shows, since 1970 */
	char text[32];  /* the date in IMF-fixdate; "" before the first use */
};

/* Returns wall time in the format of a Date field: "Sun, 06 Nov 1994 08:49:37 GMT". wall_ns is in
 * nanoseconds since 1970, and not negative. The text is valid until the next call with this
 * cache. */
struct kvw_slice kvw_date(struct kvw_date_cache *cache, int64_t wall_ns);

/* Fields that kvway adds to a forwarded request's head. Slices are borrowed for the call; those
 * with len 0 are left out. */
struct kvw_request_head_options {
	/* Path of the worker's URL, without a slash at its end; written before the target. */
	struct kvw_slice prefix;
	/* host[:port] of the worker; len 0: the client's own Host is kept */
	struct kvw_slice authority;
	struct kvw_slice request_id; /* value for X-Request-Id, if the client sent none */
	struct kvw_slice client;     /* the client's address as text, without brackets and port */
	/* write X-Forwarded-For and -Proto, and -Host where authority replaces Host */
	bool x_forwarded;
	bool forwarded;   /* Forwarded (RFC 7239) */
	bool https;       /* the client came over TLS */
	enum kvw_framing framing; /* NONE, LENGTH or CHUNKED: how the body will be sent */
	uint64_t content_length;  /* for LENGTH */
	/* token for "Authorization: Bearer"; the client's own Authorization must be dropped then */
	struct kvw_slice bearer;
	struct kvw_slice extra;   /* further field lines, each with its CRLF */
};

/*
 * Writes the head that goes to a worker: method, prefix and origin-form target, HTTP/1.1, Host, the
 * client's end-to-end fields, and the fields of the options. kvway writes Host, Expect and the
 * framing fields itself. This hop is appended to the client's X-Forwarded-For and Forwarded;
 * X-Forwarded-Proto and X-Forwarded-Host describe the first hop and stay as the client sent them.
 * `TE: trailers` is forwarded; Trailer only with a CHUNKED body, since only that can have trailers.
 * No Connection field otherwise: HTTP/1.1 persists by default. Returns the bytes written, 0 if they
 * did not fit (w->overflow).
 */
size_t kvw_head_write_request(struct kvw_writer *w, const struct kvw_head *head,
	const struct kvw_request_head_options *o);

/* Returns the most bytes that kvw_head_write_request() may write. */
size_t kvw_head_request_bound(
	const struct kvw_head *head, const struct kvw_request_head_options *o);

/* The Connection field of a response to the client. */
enum kvw_connection {
	KVW_CONNECTION_NONE,       /* no field: the connection persists by the rules of HTTP/1.1 */
	KVW_CONNECTION_CLOSE,      /* Connection: close */
	/* Connection: keep-alive, for an HTTP/1.0 client that asked for it */
	KVW_CONNECTION_KEEP_ALIVE,
};

/* Fields that kvway adds to a forwarded response's head. Borrowed for the call. */
struct kvw_response_head_options {
	enum kvw_framing framing; /* towards the client. NONE: there is no body; then a worker's
	                                   Content-Length stays (HEAD, 304) save for 1xx and 204.
	                                   CLOSE: none of the two fields. */
	uint64_t content_length;  /* for LENGTH */
	enum kvw_connection connection;
	struct kvw_slice request_id; /* value for X-Request-Id, if the worker sent none */
	struct kvw_slice date;       /* value for Date, if the worker sent none */
	struct kvw_slice extra;      /* further field lines, each with its CRLF */
};

/*
 * Writes the head that goes to the client: HTTP/1.1, the worker's unchanged status and reason, its
 * end-to-end fields, and the fields of the options. Trailer only with a CHUNKED body. Also for 1xx
 * heads (with framing NONE). Returns the bytes written, 0 if they did not fit (w->overflow).
 */
size_t kvw_head_write_response(struct kvw_writer *w, const struct kvw_head *head,
	const struct kvw_response_head_options *o);

/* Returns the most bytes that kvw_head_write_response() may write. */
size_t kvw_head_response_bound(
	const struct kvw_head *head, const struct kvw_response_head_options *o);

#endif
