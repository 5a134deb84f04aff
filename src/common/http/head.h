/*
 * head.h - one HTTP/1.1 message head: found, checked, cut into fields.
 *
 * kvway's own check comes before llhttp, so that the result does not depend on llhttp's version:
 * the check refuses every head that two parsers could read differently (RFC 9112 section 11.2,
 * request smuggling), and repairs none. llhttp then parses the same bytes; a head is good if both
 * accept it.
 *
 * Clients and workers send the same head over and over, except for Content-Length. So heads that
 * llhttp has accepted are remembered byte by byte, without that number, and not parsed again by
 * llhttp.
 *
 * A head lies in one contiguous buffer owned by the caller; all slices point into it (the target of
 * an absolute URL without path is static text). One kvw_head serves one message after another, in
 * one thread.
 */
#ifndef KVW_HEAD_H
#define KVW_HEAD_H

#include <stdint.h>

#include "kvway/err.h"
#include "kvway/slice.h"

#define KVW_HEAD_MAX_FIELDS 1000
/* most bytes of a request's target; a longer one gets status 414 */
#define KVW_HEAD_MAX_TARGET 16384

/* Fields that the proxy itself reads. */
enum kvw_field_id {
	KVW_FIELD_OTHER = 0,
	KVW_FIELD_HOST,
	KVW_FIELD_CONTENT_LENGTH,
	KVW_FIELD_TRANSFER_ENCODING,
	KVW_FIELD_CONNECTION,
	KVW_FIELD_KEEP_ALIVE,
	KVW_FIELD_PROXY_CONNECTION,
	KVW_FIELD_TE,
	KVW_FIELD_TRAILER,
	KVW_FIELD_UPGRADE,
	KVW_FIELD_EXPECT,
	KVW_FIELD_X_REQUEST_ID,
	KVW_FIELD_FORWARDED,
	KVW_FIELD_X_FORWARDED_FOR,
	KVW_FIELD_X_FORWARDED_PROTO,
	KVW_FIELD_X_FORWARDED_HOST,
	KVW_FIELD_COOKIE,
	KVW_FIELD_CONTENT_TYPE,
	KVW_FIELD_DATE,
	KVW_FIELD_COUNT
};

struct kvw_field {
	struct kvw_slice name;  /* as received */
	struct kvw_slice value; /* without surrounding blanks */
	enum kvw_field_id id;
	/* The field is listed in Connection, or always hop-by-hop (Connection, Keep-Alive,
	 * Proxy-Connection, TE, Transfer-Encoding, Upgrade): it is not forwarded. */
	bool hop_by_hop;
};

/* How a message's body ends (RFC 9112 section 6.3). */
enum kvw_framing { KVW_FRAME_NONE, KVW_FRAME_LENGTH, KVW_FRAME_CHUNKED, KVW_FRAME_CLOSE };

struct kvw_passed;

/* Owned by the caller, both arrays allocated once by kvw_head_init. */
struct kvw_head {
	const char *data; /* borrowed: the bytes of the head, into which all slices point */
	size_t len;       /* length of the head, with its empty line */
	struct kvw_slice method;
	/* Requests: path and query, beginning with '/', or "*" (OPTIONS). Of an absolute-form
	 * target ("http://host/path"): the part after the authority. */
	struct kvw_slice target;
	/* Requests: the effective host[:port]: the authority of an absolute-form target, else the
	 * Host field's value (RFC 9112 section 3.2.2); len 0 if there is none. */
	struct kvw_slice authority;
	int status;              /* responses */
	struct kvw_slice reason; /* responses: the reason phrase, which may be empty */
	uint8_t minor;           /* HTTP/1.minor, 0 or 1 */
	bool head_method;        /* the method is HEAD */
	bool post_method;        /* the method is POST */
	bool get_method;
	bool keep_alive;      /* the sender allows another message on this connection */
	/* the request is HTTP/1.1, has Expect: 100-continue, and has a body */
	bool expect_continue;
	bool te_trailers;     /* the sender understands trailers (TE: trailers) */
	/* Connection: upgrade with an Upgrade field that offers websocket. Other offers (h2c, which
	 * some clients add to every request) are ignored, as RFC 9110 section 7.8 allows. */
	bool upgrade;
	bool event_stream; /* Content-Type is text/event-stream */
	bool json;         /* the Content-Type is application/json, or missing */
	enum kvw_framing framing;
	uint64_t content_length; /* KVW_FRAME_LENGTH */
	struct kvw_field *fields;
	size_t field_count, field_limit;
	uint64_t name_lengths; /* bit n % 64 is set if a field's name has n bytes */
	struct kvw_passed *passed; /* heads that llhttp has accepted; NULL: none are kept */
	/* For each id, the index in `fields` of the first such field, or -1. */
	int16_t first[KVW_FIELD_COUNT];
};

/* The reason for which a head was refused. An answer with status 405 also needs an Allow field (RFC
 * 9110 section 15.5.6). */
struct kvw_head_error {
	int status;          /* 400, 405, 414, 417, 431, 501, 505; 502 for responses */
	const char *message; /* static text with the reason */
};

enum kvw_err kvw_head_init(struct kvw_head *head, size_t field_limit) KVW_MUST_CHECK;
void kvw_head_finish(struct kvw_head *head);
/* Stops keeping copies of good heads and wipes the kept ones, which hold secrets. From now on
 * llhttp parses each head. */
void kvw_head_remember_none(struct kvw_head *head);

/*
 * Returns the length of the head with its empty line; 0 if it is not complete yet. *from is the
 * position at which the search goes on when more bytes have come; 0 at first. The caller skips
 * empty lines before a request (RFC 9112 section 2.2) with kvw_head_skip_blank. Bare LF counts as a
 * line end here, so that a client that sends it gets its 400 at once rather than a timeout.
 */
size_t kvw_head_find_end(const char *data, size_t len, size_t *from);
size_t kvw_head_skip_blank(const char *data, size_t len);

/* Fills *error for a head that exceeds the caller's limit before its end: 414 within the request
 * line, else 431. */
void kvw_head_too_large(const char *data, size_t len, struct kvw_head_error *error);

/* Parses a whole head, data[0..len), whose end kvw_head_find_end found. KVW_EPROTO fills *error;
 * then everything in *head but its two arrays is undefined. */
enum kvw_err kvw_head_parse_request(struct kvw_head *head, const char *data, size_t len,
	struct kvw_head_error *error) KVW_MUST_CHECK;

/* to_head: the response answers a HEAD request, so it has no body, like those with status 1xx, 204
 * and 304. */
enum kvw_err kvw_head_parse_response(struct kvw_head *head, const char *data, size_t len,
	bool to_head, struct kvw_head_error *error) KVW_MUST_CHECK;

/* Returns the first field with this id, or NULL. */
static inline const struct kvw_field *kvw_head_field(
	const struct kvw_head *head, enum kvw_field_id id)
{
	return head->first[id] < 0 ? NULL : &head->fields[head->first[id]];
}

const struct kvw_field *kvw_head_search(const struct kvw_head *head, struct kvw_slice name);

/* Returns the first field of that name (in any case), or NULL. The set of name lengths makes the
 * search for absent names cheap. */
static inline const struct kvw_field *kvw_head_find(
	const struct kvw_head *head, struct kvw_slice name)
{
	return (head->name_lengths >> name.len % 64 & 1) == 0 ? NULL : kvw_head_search(head, name);
}

/* Returns the value of a cookie from the Cookie fields; its len is 0 if there is none. */
struct kvw_slice kvw_head_cookie(const struct kvw_head *head, struct kvw_slice name);

/* Returns the text of a status, for example "Not Found"; "Unknown" for an unknown one. */
const char *kvw_status_text(int status);

#endif
