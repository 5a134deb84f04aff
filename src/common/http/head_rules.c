/*
 * head_rules.c - interprets the fields of a head together: framing, connection, host, Expect.
 *
 * Client, router and worker must find the same end of a message (RFC 9112 section 6.3). So every
 * combination that some servers are known to read differently is refused: Content-Length together
 * with Transfer-Encoding, a Content-Length that is repeated, listed, signed or too long for 63
 * bits, any coding but one plain "chunked", and chunked with HTTP/1.0.
 *
 * Connection may name further fields that this hop drops. It must not remove fields that the
 * servers behind kvway need: a name that frames, routes, authenticates or describes the content is
 * refused, since dropping or forwarding the field could each be half of an attack.
 */
#include "http/chars.h"
#include "http/head_internal.h"

/* most names in Connection fields in addition to the hop-by-hop fields; each costs a search in the
 * head */
#define MAX_CONNECTION_NAMES 16

/* Iterates over the members of a comma-separated list. */
struct list {
	const char *p, *end;
};

/* Sets *member to the next member, without blanks around it; it may be empty. Returns false after
 * the last one. */
static bool list_next(struct list *list, struct kvw_slice *member)
{
	const char *start = list->p, *stop;

	if (start == NULL)
		return false;
	stop = memchr(start, ',', (size_t)(list->end - start));
	list->p = stop == NULL ? NULL : stop + 1;
	if (stop == NULL)
		stop = list->end;
	while (start < stop && (*start == ' ' || *start == '\t'))
		start++;
	while (stop > start && (stop[-1] == ' ' || stop[-1] == '\t'))
		stop--;
	*member = (struct kvw_slice){start, (size_t)(stop - start)};
	return true;
}

static struct list list_of(struct kvw_slice value)
{
	return (struct list){value.data, value.data + value.len};
}

static bool is_token(struct kvw_slice s)
{
	size_t i = 0;

	while (i < s.len && kvw_char_is(s.data[i], KVW_CHAR_TOKEN))
		i++;
	return s.len > 0 && i == s.len;
}

/* Returns whether s equals a lower-case literal, without regard to case. */
#define IS(s, lower)                                                                               \
	((s).len == sizeof(lower) - 1 && kvw_token_is((s).data, lower, sizeof(lower) - 1))

/* Returns whether s begins with this media type, followed by parameters or by nothing. */
static bool is_media_type(struct kvw_slice s, const char *lower, size_t len)
{
	return s.len >= len && kvw_token_is(s.data, lower, len) &&
	       (s.len == len || s.data[len] == ';' || s.data[len] == ' ' || s.data[len] == '\t');
}

static void apply_content_type(struct kvw_head *head)
{
	const struct kvw_field *field = kvw_head_field(head, KVW_FIELD_CONTENT_TYPE);

	if (field == NULL) {
		head->json = true;
		return;
	}
	head->json = is_media_type(field->value, "application/json", 16);
	head->event_stream = is_media_type(field->value, "text/event-stream", 17);
}

/* Refuses a Transfer-Encoding that is not "chunked": with 501 if other codings precede a final
 * chunked (RFC 9112 section 6.1), else with 400. A response always gets `status`. */
static bool refuse_coding(struct kvw_slice value, int status, struct kvw_head_error *error)
{
	struct list list = list_of(value);
	struct kvw_slice member = {NULL, 0};
	unsigned chunked = 0;
	bool tokens = true;

	while (list_next(&list, &member)) {
		tokens = tokens && is_token(member);
		chunked += IS(member, "chunked");
	}
	if (!tokens)
		return kvw_refuse(
			error, status, "Transfer-Encoding is not a list of plain codings");
	if (!IS(member, "chunked"))
		return kvw_refuse(error, status, "last Transfer-Encoding is not chunked");
	if (chunked > 1)
		return kvw_refuse(error, status, "Transfer-Encoding chunked is applied twice");
	return kvw_refuse(
		error, status == 400 ? 501 : status, "Transfer-Encoding other than chunked");
}

/* Returns whether a tab follows the value: by the grammar that is a blank, but some parsers take it
 * for a part of the value (llhttp 8 takes "chunked\t" for an unknown coding). The value is followed
 * by CR at the latest. */
static bool tab_behind(struct kvw_slice value)
{
	const char *p = value.data + value.len;

	while (*p == ' ')
		p++;
	return *p == '\t';
}

/* Sets framing and content_length from the two framing fields; without these fields framing stays
 * as it was. */
static bool apply_framing(struct kvw_head *head, int status, struct kvw_head_error *error)
{
	const struct kvw_field *length = kvw_head_field(head, KVW_FIELD_CONTENT_LENGTH);
	const struct kvw_field *coding = kvw_head_field(head, KVW_FIELD_TRANSFER_ENCODING);
	uint64_t value = 0;

	if (coding != NULL) {
		if (length != NULL)
			return kvw_refuse(error, status,
				"Content-Length and Transfer-Encoding in one message");
		if (head->minor == 0)
			return kvw_refuse(
				error, status, "Transfer-Encoding in an HTTP/1.0 message");
		if (tab_behind(coding->value))
			return kvw_refuse(error, status, "tab behind Transfer-Encoding");
		if (!IS(coding->value, "chunked"))
			return refuse_coding(coding->value, status, error);
		head->framing = KVW_FRAME_CHUNKED;
	}
	if (length == NULL)
		return true;
	if (length->value.len == 0)
		return kvw_refuse(error, status, "Content-Length is empty");
	if (tab_behind(length->value))
		return kvw_refuse(error, status, "tab behind Content-Length");
	for (size_t i = 0; i < length->value.len; i++) {
		if (!kvw_char_is_digit(length->value.data[i]))
			return kvw_refuse(
				error, status, "Content-Length is not one decimal number");
		if (i >= 18)
			return kvw_refuse(error, status, "Content-Length has more than 18 digits");
		value = value * 10 + (uint64_t)(length->value.data[i] - '0');
	}
	head->framing = KVW_FRAME_LENGTH;
	head->content_length = value;
	return true;
}

/* Returns whether the name is one that Connection must not list. */
static bool is_end_to_end(struct kvw_slice name)
{
	return IS(name, "host") || IS(name, "content-length") || IS(name, "content-type") ||
	       IS(name, "content-encoding") || IS(name, "content-range") ||
	       IS(name, "authorization") || IS(name, "cookie") || IS(name, "cache-control") ||
	       IS(name, "expect") || IS(name, "date") || IS(name, "trailer") ||
	       IS(name, "x-request-id") || IS(name, "forwarded") || IS(name, "x-forwarded-for") ||
	       IS(name, "x-forwarded-proto") || IS(name, "x-forwarded-host");
}

/* The options that Connection fields list. */
struct connection_options {
	bool close, keep_alive, upgrade;
	unsigned names; /* number of names of further fields, in all Connection fields together */
};

static bool apply_connection_field(struct kvw_head *head, struct kvw_slice value, int status,
	struct connection_options *options, struct kvw_head_error *error)
{
	struct list list = list_of(value);
	struct kvw_slice member;

	while (list_next(&list, &member)) {
		if (member.len == 0)
			continue;
		if (!is_token(member))
			return kvw_refuse(error, status, "Connection is not a list of names");
		if (IS(member, "keep-alive")) {
			options->keep_alive = true;
		} else if (IS(member, "close")) {
			options->close = true;
		} else if (IS(member, "upgrade")) {
			options->upgrade = true;
		} else if (IS(member, "te") || IS(member, "transfer-encoding") ||
			   IS(member, "proxy-connection")) {
			continue; /* always hop-by-hop */
		} else if (is_end_to_end(member)) {
			return kvw_refuse(error, status,
				"Connection lists a field that is not of one connection");
		} else if (++options->names > MAX_CONNECTION_NAMES) {
			return kvw_refuse(error, status, "Connection lists too many fields");
		} else {
			for (size_t i = 0; i < head->field_count; i++)
				head->fields[i].hop_by_hop |=
					kvw_slice_equal_nocase(head->fields[i].name, member);
		}
	}
	return true;
}

/* Sets keep_alive, upgrade and the hop-by-hop marks according to Connection. */
static bool apply_connection(struct kvw_head *head, int status, struct kvw_head_error *error)
{
	struct connection_options options = {0};
	const struct kvw_field *upgrade = kvw_head_field(head, KVW_FIELD_UPGRADE);

	if (head->first[KVW_FIELD_CONNECTION] >= 0) {
		size_t i = (size_t)head->first[KVW_FIELD_CONNECTION];

		for (; i < head->field_count; i++) {
			if (head->fields[i].id == KVW_FIELD_CONNECTION &&
				!apply_connection_field(
					head, head->fields[i].value, status, &options, error))
				return false;
		}
	}
	head->keep_alive = !options.close && (head->minor == 1 || options.keep_alive);
	if (upgrade != NULL && options.upgrade) {
		struct list list = list_of(upgrade->value);
		struct kvw_slice protocol;

		while (list_next(&list, &protocol))
			head->upgrade |= IS(protocol, "websocket");
	}
	return true;
}

/* Sets te_trailers if TE lists "trailers". */
static void apply_te(struct kvw_head *head)
{
	const struct kvw_field *field = kvw_head_field(head, KVW_FIELD_TE);
	struct kvw_slice member;
	struct list list;

	if (field == NULL || head->minor == 0)
		return;
	list = list_of(field->value);
	while (list_next(&list, &member))
		head->te_trailers |= IS(member, "trailers");
}

/* Checks Expect: every value must be 100-continue. It counts only for HTTP/1.1 requests with a
 * body. */
static bool apply_expect(struct kvw_head *head, struct kvw_head_error *error)
{
	if (head->first[KVW_FIELD_EXPECT] < 0)
		return true;
	for (size_t i = (size_t)head->first[KVW_FIELD_EXPECT]; i < head->field_count; i++) {
		if (head->fields[i].id == KVW_FIELD_EXPECT &&
			!IS(head->fields[i].value, "100-continue"))
			return kvw_refuse(error, 417, "Expect is not 100-continue");
	}
	head->expect_continue = head->minor == 1 &&
				(head->framing == KVW_FRAME_CHUNKED || head->content_length > 0);
	return true;
}

/* Returns the length of an IP literal in brackets: hex digits, colons and dots, without a zone. */
static size_t bracket_len(struct kvw_slice s)
{
	size_t i = 1;

	while (i < s.len &&
		(kvw_char_is(s.data[i], KVW_CHAR_HEX) || s.data[i] == ':' || s.data[i] == '.'))
		i++;
	return i > 2 && i < s.len && s.data[i] == ']' ? i + 1 : 0;
}

bool kvw_head_authority_valid(struct kvw_slice s)
{
	size_t i = 0, port;

	if (s.len > 0 && s.data[0] == '[') {
		i = bracket_len(s);
		if (i == 0)
			return false;
	} else {
		while (i < s.len && kvw_char_is(s.data[i], KVW_CHAR_HOST))
			i++;
		if (i == 0)
			return s.len == 0; /* a Host may be empty, but a port needs a host */
	}
	if (i == s.len)
		return true;
	if (s.data[i] != ':')
		return false;
	port = ++i;
	while (i < s.len && kvw_char_is_digit(s.data[i]))
		i++;
	return i == s.len && i - port <= 5;
}

static bool apply_host(struct kvw_head *head, struct kvw_head_error *error)
{
	const struct kvw_field *host = kvw_head_field(head, KVW_FIELD_HOST);

	if (host == NULL) {
		if (head->minor == 0)
			return true;
		return kvw_refuse(error, 400, "HTTP/1.1 request without Host");
	}
	if (!kvw_head_authority_valid(host->value))
		return kvw_refuse(error, 400, "Host is not a valid host and port");
	/* otherwise the host in the target counts (RFC 9112 section 3.2.2) */
	if (head->authority.len == 0)
		head->authority = host->value;
	return true;
}

bool kvw_head_apply_request(struct kvw_head *head, struct kvw_head_error *error)
{
	head->framing = KVW_FRAME_NONE;
	if (!apply_framing(head, 400, error) || !apply_host(head, error) ||
		!apply_connection(head, 400, error) || !apply_expect(head, error))
		return false;
	apply_te(head);
	apply_content_type(head);
	return true;
}

/* Returns whether this response can have a body at all. */
static bool has_body(const struct kvw_head *head, bool to_head)
{
	return !to_head && head->status >= 200 && head->status != 204 && head->status != 304;
}

bool kvw_head_apply_response(struct kvw_head *head, bool to_head, struct kvw_head_error *error)
{
	bool framed;

	head->framing = KVW_FRAME_CLOSE;
	if (!apply_framing(head, 502, error) || !apply_connection(head, 502, error))
		return false;
	apply_content_type(head);
	framed = head->framing == KVW_FRAME_CHUNKED ||
		 (head->framing == KVW_FRAME_LENGTH && head->content_length > 0);
	if (!has_body(head, to_head)) {
		if (head->status < 200 && framed)
			return kvw_refuse(error, 502, "1xx response with a body");
		/* If a 204 announces a body, the body may follow all the same, so the connection is
		 * not reused. */
		if (head->status == 204 && framed)
			head->keep_alive = false;
		head->framing = KVW_FRAME_NONE;
	} else if (head->framing == KVW_FRAME_CLOSE) {
		head->keep_alive = false;
	}
	return true;
}
