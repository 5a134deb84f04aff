/*
 * body.c - finds a message body's end and its payload in one pass.
 *
 * The reader skips payload in runs without looking at it and reads only the framing of chunked
 * coding byte by byte, some seven bytes a chunk. It copies nothing: it reports a run in place, and
 * a chunk that spans two reads as two runs.
 *
 * The grammar is RFC 9112 section 7.1 without its tolerances: no blank anywhere in a size line
 * outside a quoted string, CR LF alone ends a line, names and values of extensions are tokens or
 * quoted strings of printable ASCII. Extensions are parsed only to find their end; lines,
 * extensions and trailers are bounded in size, and all extensions of a body together by its payload
 * plus 16 KiB, so that tiny chunks with long extensions cannot cause disproportionate work.
 *
 * llhttp does not parse bodies in the proxy. It would find the same ends: tests/fuzz/http feeds
 * both parsers the same bytes and fails if this one accepts input that llhttp refuses or decodes
 * otherwise (except for two forms of extensions that RFC 9112 allows and llhttp 8 does not know).
 * Running llhttp here, too, would about double the cost of each read.
 */
#include "http/body.h"

#include "http/chars.h"

#define MAX_SIZE_DIGITS 16   /* most hex digits of a chunk's size, with leading zeros */
#define MAX_LINE        4096 /* most bytes of a line with a chunk's size, or of a trailer line */
#define MAX_TRAILERS    16384
/* most bytes of a body's extensions, in addition to the number of its payload bytes */
#define MAX_EXTENSIONS  16384
#define MAX_CHUNK       (UINT64_MAX >> 1)

/* How the next byte is read. In RUN states it is payload. */
enum state {
	STATE_RUN,          /* LENGTH: payload */
	STATE_RUN_TO_CLOSE, /* CLOSE: payload */
	STATE_SIZE,         /* in a chunk's size: digits, then ';' or CR */
	STATE_EXT_NAME,     /* name of an extension */
	STATE_EXT_VALUE,    /* after '=': first byte of an extension's value */
	STATE_EXT_TOKEN,    /* rest of a token value */
	STATE_EXT_QUOTED,   /* inside quotes */
	STATE_EXT_ESCAPED,  /* after a backslash in quotes */
	STATE_EXT_END,      /* after the closing quote */
	STATE_SIZE_LF,      /* LF of a size line */
	STATE_CHUNK,        /* payload of a chunk */
	STATE_CHUNK_CR,     /* CR after the payload */
	STATE_CHUNK_LF,     /* LF after the payload */
	STATE_TRAILER,      /* first byte of a trailer line, or CR of the last line */
	STATE_TRAILER_NAME, /* rest of a trailer's name */
	STATE_TRAILER_VALUE,
	STATE_TRAILER_LF, /* LF of a trailer line */
	STATE_LAST_LF,    /* LF of the empty line at the end */
	STATE_DONE,
	STATE_FAILED,
	STATE_OVER_LIMIT,
};

/* The bytes that one call of kvw_body_feed gets. */
struct feed {
	const char *p, *end;
	kvw_body_data_fn on_data;
	void *arg;
};

static bool fail_body(struct kvw_body *body, const char *message)
{
	body->state = STATE_FAILED;
	body->error = message;
	return false;
}

void kvw_body_begin(
	struct kvw_body *body, enum kvw_framing framing, uint64_t content_length, uint64_t limit)
{
	*body = (struct kvw_body){.framing = framing, .limit = limit == 0 ? UINT64_MAX : limit};
	switch (framing) {
	case KVW_FRAME_NONE:
		body->state = STATE_DONE;
		break;
	case KVW_FRAME_LENGTH:
		body->left = content_length;
		body->state = content_length == 0 ? STATE_DONE : STATE_RUN;
		if (content_length > body->limit)
			body->state = STATE_OVER_LIMIT;
		break;
	case KVW_FRAME_CHUNKED:
		body->state = STATE_SIZE;
		break;
	case KVW_FRAME_CLOSE:
		body->state = STATE_RUN_TO_CLOSE;
		break;
	}
	body->done = body->state == STATE_DONE;
}

/* Reports a run of at most body->left bytes. Returns true when body->left bytes were reported. */
static bool take_run(struct kvw_body *body, struct feed *f)
{
	size_t len = (size_t)(f->end - f->p);

	if (len > body->left)
		len = (size_t)body->left;
	if (f->on_data != NULL && len > 0)
		f->on_data(f->arg, f->p, len);
	f->p += len;
	body->left -= len;
	body->payload_bytes += len;
	return body->left == 0;
}

static bool take_to_close(struct kvw_body *body, struct feed *f)
{
	uint64_t room = body->limit - body->payload_bytes;

	if ((uint64_t)(f->end - f->p) > room) {
		body->state = STATE_OVER_LIMIT;
		return false;
	}
	body->left = UINT64_MAX;
	take_run(body, f);
	return true;
}

/* Called at the end of a size line: payload follows, or trailers after size 0. */
static bool end_size_line(struct kvw_body *body)
{
	if (body->left > body->limit - body->payload_bytes) {
		body->state = STATE_OVER_LIMIT;
		return false;
	}
	body->state = body->left == 0 ? STATE_TRAILER : STATE_CHUNK;
	body->line_len = 0;
	return true;
}

/* After a ';'. */
static void begin_extension(struct kvw_body *body)
{
	body->state = STATE_EXT_NAME;
	body->name_len = 0;
}

/* Takes one byte of a chunk's size, or the byte after it. */
static bool take_size(struct kvw_body *body, char c)
{
	if (kvw_char_is(c, KVW_CHAR_HEX)) {
		if (body->line_len++ >= MAX_SIZE_DIGITS)
			return fail_body(body, "chunk size has more than 16 digits");
		if (body->left > MAX_CHUNK >> 4)
			return fail_body(body, "chunk size is too large");
		body->left = body->left << 4 | kvw_char_hex(c);
		return true;
	}
	if (body->line_len == 0)
		return fail_body(body, "chunk size is not a hex number");
	if (c == '\r') {
		body->state = STATE_SIZE_LF;
	} else if (c == ';') {
		begin_extension(body);
		body->extension_bytes++;
	} else if (c == '\n') {
		return fail_body(body, "chunk size line ends in LF without CR");
	} else {
		return fail_body(body, "byte not allowed after a chunk size");
	}
	return true;
}

/* Takes one byte of a chunk's extension, or the CR after it. */
static bool take_extension(struct kvw_body *body, char c)
{
	bool token = kvw_char_is(c, KVW_CHAR_TOKEN);

	if (++body->line_len > MAX_LINE)
		return fail_body(body, "chunk extension is too long");
	if (++body->extension_bytes > MAX_EXTENSIONS &&
		body->extension_bytes - MAX_EXTENSIONS > body->payload_bytes)
		return fail_body(body, "more chunk extensions than payload");
	switch (body->state) {
	case STATE_EXT_QUOTED:
		if (c == '"')
			body->state = STATE_EXT_END;
		else if (c == '\\')
			body->state = STATE_EXT_ESCAPED;
		else if (c != '\t' && (c < 0x20 || c > 0x7e))
			return fail_body(body, "byte not allowed in a chunk extension");
		return true;
	case STATE_EXT_ESCAPED:
		if (c != '\t' && (c < 0x20 || c > 0x7e))
			return fail_body(body, "byte not allowed in a chunk extension");
		body->state = STATE_EXT_QUOTED;
		return true;
	case STATE_EXT_VALUE:
		if (!token && c != '"')
			return fail_body(body, "chunk extension without a value after =");
		body->state = token ? STATE_EXT_TOKEN : STATE_EXT_QUOTED;
		return true;
	default:
		break;
	}
	if (token && body->state != STATE_EXT_END) {
		body->name_len = 1;
		return true;
	}
	if (body->name_len == 0)
		return fail_body(body, "chunk extension without a name");
	if (c == '=' && body->state == STATE_EXT_NAME)
		body->state = STATE_EXT_VALUE;
	else if (c == ';')
		begin_extension(body);
	else if (c == '\r')
		body->state = STATE_SIZE_LF;
	else
		return fail_body(body, "byte not allowed in a chunk extension");
	return true;
}

/* Returns whether the name is one that a trailer must not have. */
static bool trailer_forbidden(const struct kvw_body *body)
{
	static const struct kvw_slice names[] = {
		{"content-length", sizeof("content-length") - 1},
		{"transfer-encoding", sizeof("transfer-encoding") - 1},
		{"host", sizeof("host") - 1},
		{"connection", sizeof("connection") - 1},
		{"keep-alive", sizeof("keep-alive") - 1},
		{"upgrade", sizeof("upgrade") - 1},
		{"trailer", sizeof("trailer") - 1},
		{"te", sizeof("te") - 1},
		{"expect", sizeof("expect") - 1},
		{"authorization", sizeof("authorization") - 1},
		{"content-type", sizeof("content-type") - 1},
		{"content-range", sizeof("content-range") - 1},
		{"content-encoding", sizeof("content-encoding") - 1},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (body->name_len == names[i].len &&
			memcmp(body->name, names[i].data, names[i].len) == 0)
			return true;
	}
	return false;
}

/* Takes the first byte of a line after the last chunk. */
static bool begin_trailer(struct kvw_body *body, char c)
{
	if (c == '\r') {
		body->state = STATE_LAST_LF;
		return true;
	}
	if (c == ' ' || c == '\t')
		return fail_body(
			body, "trailer line begins with a blank (folded lines are refused)");
	if (c == '\n')
		return fail_body(body, "line behind the last chunk ends in LF without CR");
	body->line_len = 0;
	body->name_len = 0;
	body->state = STATE_TRAILER_NAME;
	return true;
}

/* Takes one byte of a trailer line, or the CR after it. */
static bool take_trailer(struct kvw_body *body, char c)
{
	if (body->state == STATE_TRAILER && !begin_trailer(body, c))
		return false;
	if (++body->line_len > MAX_LINE || ++body->trailer_bytes > MAX_TRAILERS)
		return fail_body(body, "trailers are too large");
	if (body->state == STATE_TRAILER_NAME) {
		if (kvw_char_is(c, KVW_CHAR_TOKEN)) {
			if (body->name_len < sizeof(body->name))
				body->name[body->name_len] =
					(char)(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
			body->name_len++;
			return true;
		}
		if (c != ':' || body->name_len == 0)
			return fail_body(body, "trailer without a valid name and colon");
		if (trailer_forbidden(body))
			return fail_body(body, "field not allowed in trailers");
		body->state = STATE_TRAILER_VALUE;
	} else if (body->state == STATE_TRAILER_VALUE && !kvw_char_is(c, KVW_CHAR_VALUE)) {
		if (c == '\n')
			return fail_body(body, "trailer line ends in LF without CR");
		if (c != '\r')
			return fail_body(body, "control character in a trailer");
		body->state = STATE_TRAILER_LF;
	}
	return true;
}

/* Expects c; then the state becomes `next`. */
static bool take_exact(
	struct kvw_body *body, char c, char expected, uint8_t next, const char *message)
{
	if (c != expected)
		return fail_body(body, message);
	body->state = next;
	return true;
}

/* Takes one byte that is not payload. */
static bool take_framing(struct kvw_body *body, char c)
{
	switch ((enum state)body->state) {
	case STATE_SIZE:
		return take_size(body, c);
	case STATE_SIZE_LF:
		return take_exact(body, c, '\n', STATE_CHUNK, "CR without LF after a chunk size") &&
		       end_size_line(body);
	case STATE_CHUNK_CR:
		return take_exact(
			body, c, '\r', STATE_CHUNK_LF, "chunk data is not followed by CR LF");
	case STATE_CHUNK_LF:
		return take_exact(body, c, '\n', STATE_SIZE, "CR without LF after a chunk");
	case STATE_TRAILER:
	case STATE_TRAILER_NAME:
	case STATE_TRAILER_VALUE:
		return take_trailer(body, c);
	case STATE_TRAILER_LF:
		return take_exact(body, c, '\n', STATE_TRAILER, "CR without LF in a trailer");
	case STATE_LAST_LF:
		return take_exact(body, c, '\n', STATE_DONE, "CR without LF at the end of a body");
	default:
		return take_extension(body, c);
	}
}

/* Takes bytes until they are used up, the body ends, or an error occurs (false). */
static bool take_input(struct kvw_body *body, struct feed *f)
{
	while (f->p < f->end) {
		switch ((enum state)body->state) {
		case STATE_DONE:
			return true;
		case STATE_FAILED:
		case STATE_OVER_LIMIT:
			return false;
		case STATE_RUN:
			if (take_run(body, f))
				body->state = STATE_DONE;
			break;
		case STATE_RUN_TO_CLOSE:
			if (!take_to_close(body, f))
				return false;
			break;
		case STATE_CHUNK:
			if (take_run(body, f))
				body->state = STATE_CHUNK_CR;
			break;
		default:
			if (!take_framing(body, *f->p))
				return false;
			f->p++;
			break;
		}
	}
	return body->state != STATE_FAILED && body->state != STATE_OVER_LIMIT;
}

enum kvw_err kvw_body_feed(struct kvw_body *body, const char *data, size_t len,
	kvw_body_data_fn on_data, void *arg, size_t *used)
{
	struct feed f = {data, data + len, on_data, arg};

	if (!take_input(body, &f))
		return body->state == STATE_OVER_LIMIT ? KVW_ELIMIT : KVW_EPROTO;
	body->done = body->state == STATE_DONE;
	*used = (size_t)(f.p - data);
	return KVW_OK;
}

bool kvw_body_close(struct kvw_body *body)
{
	if (body->state == STATE_RUN_TO_CLOSE)
		body->state = STATE_DONE;
	body->done = body->state == STATE_DONE;
	return body->done;
}
