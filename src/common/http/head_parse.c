/*
 * head_parse.c - the grammar of a head: start line and field lines, in one pass over the bytes.
 *
 * Strict where RFC 9112 lets a recipient choose: lines end in CR LF and nothing else, a field line
 * begins with its name and has no blank before the colon, and no control byte but HTAB occurs in a
 * value. Each of these, read leniently, is a known way to make two servers see different messages.
 *
 * The scans need no bound in most places: kvw_head_find_end() hands over bytes that end in LF,
 * which is neither a token byte nor visible, so a loop over names stops there at the latest. Values
 * are scanned and checked in one go, 16 bytes at a time (chars.h).
 *
 * This file does not know the meaning of fields, except which ones must not appear twice.
 */
#include "http/chars.h"
#include "http/head_internal.h"

/* Position in a head that is being parsed. */
struct cut {
	const char *p;   /* next byte */
	const char *end; /* end of the head; the last byte before it is LF */
	struct kvw_head *head;
	struct kvw_head_error *error;
	bool response;
};

/* A fault in a response is the worker's, so the client always gets 502 for it. */
static bool refuse_head(const struct cut *c, int status, const char *message)
{
	return kvw_refuse(c->error, c->response ? 502 : status, message);
}

/* Expects the line's end at c->p. */
static bool read_line_end(struct cut *c)
{
	if (c->p[0] == '\r' && c->end - c->p >= 2 && c->p[1] == '\n') {
		c->p += 2;
		return true;
	}
	if (c->p[0] == '\r')
		return refuse_head(c, 400, "CR without LF in the message head");
	if (c->p[0] == '\n')
		return refuse_head(c, 400, "line of the message head ends in LF without CR");
	if (c->p[0] == '\0')
		return refuse_head(c, 400, "NUL byte in the message head");
	return refuse_head(c, 400, "control character in the message head");
}

/* Reads "HTTP/1.1" and sets `minor`. In a request, another version gets 505 and any other text
 * 400. */
static bool read_version(struct cut *c)
{
	const char *v = c->p;

	if (c->end - v < 8 || memcmp(v, "HTTP/", 5) != 0 || !kvw_char_is_digit(v[5]) ||
		v[6] != '.' || !kvw_char_is_digit(v[7]))
		return refuse_head(c, 400, "start line without a valid HTTP version");
	if (v[5] != '1' || v[7] > '1')
		return refuse_head(c, 505, "HTTP version is neither 1.0 nor 1.1");
	c->head->minor = (uint8_t)(v[7] - '0');
	c->p += 8;
	return true;
}

static bool read_method(struct cut *c)
{
	const char *start = c->p;

	while (kvw_char_is(*c->p, KVW_CHAR_TOKEN))
		c->p++;
	if (c->p == start || *c->p != ' ')
		return refuse_head(c, 400, "request line does not begin with a method and a space");
	c->head->method = (struct kvw_slice){start, (size_t)(c->p - start)};
	c->p++;
	return true;
}

/* Reads the text between method and version, without checking it. */
static bool read_target(struct cut *c)
{
	const char *start = c->p;
	size_t len;

	c->p = kvw_scan_visible(start, c->end);
	len = (size_t)(c->p - start);
	if (len == 0)
		return refuse_head(c, 400, "request line without a target");
	if (*c->p == '\r' || *c->p == '\n')
		return refuse_head(c, 400, "request line without an HTTP version");
	if (*c->p != ' ')
		return refuse_head(
			c, 400, "byte in the request target that must be percent-encoded");
	if (len > KVW_HEAD_MAX_TARGET)
		return refuse_head(c, 414, "request target is too long");
	if (memchr(start, '#', len) != NULL)
		return refuse_head(c, 400, "request target has a fragment");
	c->head->target = (struct kvw_slice){start, len};
	c->p++;
	return true;
}

/* Reduces a target "http://host:port/path?query" to its path and query. */
static bool split_absolute(struct cut *c)
{
	struct kvw_slice *target = &c->head->target;
	size_t scheme = 0, end;

	if (target->len > 7 && kvw_token_is(target->data, "http://", 7))
		scheme = 7;
	else if (target->len > 8 && kvw_token_is(target->data, "https://", 8))
		scheme = 8;
	if (scheme == 0)
		return refuse_head(c, 400, "request target is neither a path nor an http URL");
	for (end = scheme; end < target->len; end++) {
		if (target->data[end] == '/' || target->data[end] == '?')
			break;
	}
	c->head->authority = (struct kvw_slice){target->data + scheme, end - scheme};
	if (end == scheme || !kvw_head_authority_valid(c->head->authority))
		return refuse_head(c, 400, "request target has no valid host");
	if (end < target->len && target->data[end] == '?')
		return refuse_head(c, 400, "request target has a query but no path");
	if (end < target->len)
		*target = (struct kvw_slice){target->data + end, target->len - end};
	else if (kvw_slice_equal(c->head->method, KVW_SLICE("OPTIONS")))
		*target = KVW_SLICE("*");
	else
		*target = KVW_SLICE("/");
	return true;
}

static bool check_method(struct cut *c)
{
	struct kvw_head *head = c->head;
	struct kvw_slice method = head->method;

	head->post_method = kvw_slice_equal(method, KVW_SLICE("POST"));
	head->get_method = kvw_slice_equal(method, KVW_SLICE("GET"));
	head->head_method = kvw_slice_equal(method, KVW_SLICE("HEAD"));
	if (head->post_method || head->get_method || head->head_method)
		return true;
	if (kvw_slice_equal(method, KVW_SLICE("CONNECT")))
		return refuse_head(c, 405, "CONNECT is not allowed: this is not a forward proxy");
	if (kvw_slice_equal(method, KVW_SLICE("TRACE")))
		return refuse_head(c, 405, "TRACE is not allowed");
	if (!kvw_method_known(method))
		return refuse_head(c, 501, "unknown method");
	return true;
}

static bool read_request_line(struct cut *c)
{
	struct kvw_slice *target = &c->head->target;

	if (!read_method(c) || !read_target(c) || !read_version(c))
		return false;
	if (*c->p != '\r' && *c->p != '\n')
		return refuse_head(c, 400, "bytes after the HTTP version in the request line");
	if (!read_line_end(c) || !check_method(c))
		return false;
	if (target->data[0] == '/')
		return true;
	if (target->len == 1 && target->data[0] == '*') {
		if (kvw_slice_equal(c->head->method, KVW_SLICE("OPTIONS")))
			return true;
		return refuse_head(c, 400, "request target * with a method other than OPTIONS");
	}
	return split_absolute(c);
}

static bool read_status_line(struct cut *c)
{
	const char *code;

	if (!read_version(c))
		return false;
	code = c->p + 1;
	if (*c->p != ' ' || c->end - code < 4 || code[0] < '1' || code[0] > '5' ||
		!kvw_char_is_digit(code[1]) || !kvw_char_is_digit(code[2]))
		return refuse_head(c, 502, "status line without a valid status");
	c->head->status = (code[0] - '0') * 100 + (code[1] - '0') * 10 + (code[2] - '0');
	c->p = code + 3;
	c->head->reason = (struct kvw_slice){c->p, 0};
	if (*c->p ==
		/* RFC 9112 requires the space even before an empty reason, but many servers omit
		 * it */
		' ') {
		const char *reason = c->p + 1;

		c->p = kvw_scan_value(reason, c->end);
		c->head->reason = (struct kvw_slice){reason, (size_t)(c->p - reason)};
	} else if (*c->p != '\r' && *c->p != '\n') {
		return refuse_head(c, 502, "status is not followed by a space");
	}
	return read_line_end(c);
}

/* Finds the id of a name. The name has token bytes only. */
static enum kvw_field_id identify(const char *name, size_t len)
{
#define IS(lower, id)                                                                              \
	if (kvw_token_is(name, lower, sizeof(lower) - 1))                                          \
	return id
	switch (len) {
	case 2:
		IS("te", KVW_FIELD_TE);
		break;
	case 4:
		IS("host", KVW_FIELD_HOST);
		IS("date", KVW_FIELD_DATE);
		break;
	case 6:
		IS("cookie", KVW_FIELD_COOKIE);
		IS("expect", KVW_FIELD_EXPECT);
		break;
	case 7:
		IS("upgrade", KVW_FIELD_UPGRADE);
		IS("trailer", KVW_FIELD_TRAILER);
		break;
	case 9:
		IS("forwarded", KVW_FIELD_FORWARDED);
		break;
	case 10:
		IS("connection", KVW_FIELD_CONNECTION);
		IS("keep-alive", KVW_FIELD_KEEP_ALIVE);
		break;
	case 12:
		IS("content-type", KVW_FIELD_CONTENT_TYPE);
		IS("x-request-id", KVW_FIELD_X_REQUEST_ID);
		break;
	case 14:
		IS("content-length", KVW_FIELD_CONTENT_LENGTH);
		break;
	case 15:
		IS("x-forwarded-for", KVW_FIELD_X_FORWARDED_FOR);
		break;
	case 16:
		IS("proxy-connection", KVW_FIELD_PROXY_CONNECTION);
		IS("x-forwarded-host", KVW_FIELD_X_FORWARDED_HOST);
		break;
	case 17:
		IS("transfer-encoding", KVW_FIELD_TRANSFER_ENCODING);
		IS("x-forwarded-proto", KVW_FIELD_X_FORWARDED_PROTO);
		break;
	default:
		break;
	}
	return KVW_FIELD_OTHER;
#undef IS
}

/* Fields that are always hop-by-hop (RFC 9110 section 7.6.1). Trailer is not: it goes wherever
 * trailers can go. */
static bool is_hop_by_hop(enum kvw_field_id id)
{
	const uint32_t set = 1u << KVW_FIELD_CONNECTION | 1u << KVW_FIELD_KEEP_ALIVE |
			     1u << KVW_FIELD_PROXY_CONNECTION | 1u << KVW_FIELD_TE |
			     1u << KVW_FIELD_TRANSFER_ENCODING | 1u << KVW_FIELD_UPGRADE;

	_Static_assert(KVW_FIELD_COUNT <= 32, "ids must fit the set");
	return (set >> id & 1) != 0;
}

/* Records the field's id; fields that decide framing or authority may come only once. */
static bool register_field(struct cut *c, struct kvw_field *field)
{
	struct kvw_head *head = c->head;
	enum kvw_field_id id = identify(field->name.data, field->name.len);

	field->id = id;
	field->hop_by_hop = is_hop_by_hop(id);
	if (head->first[id] < 0) {
		head->first[id] = (int16_t)head->field_count;
		return true;
	}
	if (id == KVW_FIELD_CONTENT_LENGTH)
		return refuse_head(c, 400, "Content-Length is given more than once");
	if (id == KVW_FIELD_TRANSFER_ENCODING)
		return refuse_head(c, 400, "Transfer-Encoding is given more than once");
	if (id == KVW_FIELD_HOST && !c->response)
		return refuse_head(c, 400, "Host is given more than once");
	return true;
}

/* Refuses the byte at c->p, after name_len bytes of a name, with the reason. */
static bool refuse_name(struct cut *c, size_t name_len)
{
	const char *p = c->p;

	if (name_len == 0 && (*p == ' ' || *p == '\t'))
		return refuse_head(
			c, 400, "field line begins with a blank (folded lines are refused)");
	if (name_len == 0 && *p == '\n')
		return refuse_head(c, 400, "line of the message head ends in LF without CR");
	if (name_len == 0 && *p == ':')
		return refuse_head(c, 400, "field line without a name");
	if (*p == ' ' || *p == '\t') {
		while (*p == ' ' || *p == '\t')
			p++;
		if (*p == ':')
			return refuse_head(c, 400, "blank between a field name and its colon");
	}
	if (*p == '\n' || (*p == '\r' && p + 1 < c->end && p[1] == '\n'))
		return refuse_head(c, 400, "field line without a colon");
	if (*p == '\0')
		return refuse_head(c, 400, "NUL byte in the message head");
	return refuse_head(c, 400, "byte not allowed in a field name");
}

static bool read_field(struct cut *c)
{
	struct kvw_head *head = c->head;
	struct kvw_field *field = &head->fields[head->field_count];
	const char *name = c->p, *value;

	while (kvw_char_is(*c->p, KVW_CHAR_TOKEN))
		c->p++;
	if (*c->p != ':' || c->p == name)
		return refuse_name(c, (size_t)(c->p - name));
	if (head->field_count == head->field_limit)
		return refuse_head(c, 431, "too many header fields");
	field->name = (struct kvw_slice){name, (size_t)(c->p - name)};
	value = c->p + 1;
	while (*value == ' ' || *value == '\t')
		value++;
	c->p = kvw_scan_value(value, c->end);
	field->value = (struct kvw_slice){value, (size_t)(c->p - value)};
	while (field->value.len > 0 &&
		(value[field->value.len - 1] == ' ' || value[field->value.len - 1] == '\t'))
		field->value.len--;
	if (!read_line_end(c) || !register_field(c, field))
		return false;
	head->name_lengths |= UINT64_C(1) << field->name.len % 64;
	head->field_count++;
	return true;
}

/* Reads field lines up to the empty line, which must end the bytes. */
static bool read_fields(struct cut *c)
{
	while (c->p < c->end && *c->p != '\r') {
		if (!read_field(c))
			return false;
	}
	if (c->p == c->end)
		return refuse_head(c, 400, "message head without an empty line");
	if (!read_line_end(c))
		return false;
	if (c->p != c->end)
		return refuse_head(c, 400, "bytes after the empty line of a message head");
	return true;
}

/* Resets everything but the two arrays, so that nothing of an earlier message survives. */
static bool begin_head(struct cut *c, const char *data, size_t len)
{
	struct kvw_field *fields = c->head->fields;
	size_t limit = c->head->field_limit;

	*c->head = (struct kvw_head){.data = data,
		.len = len,
		.fields = fields,
		.field_limit = limit,
		.passed = c->head->passed};
	memset(c->head->first, 0xff, sizeof(c->head->first));
	c->p = data;
	c->end = data + len;
	if (len == 0 || data[len - 1] != '\n')
		return refuse_head(c, 400, "message head without an empty line");
	return true;
}

enum kvw_err kvw_head_parse_request(
	struct kvw_head *head, const char *data, size_t len, struct kvw_head_error *error)
{
	struct cut c = {.head = head, .error = error, .response = false};

	if (!begin_head(&c, data, len) || !read_request_line(&c) || !read_fields(&c) ||
		!kvw_head_apply_request(head, error) || !kvw_second_look(head, false, error))
		return KVW_EPROTO;
	return KVW_OK;
}

enum kvw_err kvw_head_parse_response(struct kvw_head *head, const char *data, size_t len,
	bool to_head, struct kvw_head_error *error)
{
	struct cut c = {.head = head, .error = error, .response = true};

	if (!begin_head(&c, data, len) || !read_status_line(&c) || !read_fields(&c) ||
		!kvw_head_apply_response(head, to_head, error) ||
		!kvw_second_look(head, true, error))
		return KVW_EPROTO;
	return KVW_OK;
}
