/*
 * agree_head.c - heads: our check against llhttp, and what we write on against our check.
 */
#include <llhttp.h>
#include <stdio.h>
#include <stdlib.h>

#include "agree.h"
#include "http/head.h"
#include "http/write.h"

#define FIELD_LIMIT 200

#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* Start line and fields as llhttp reports them: spans, which lie in the fed bytes. */
struct report {
	struct kvw_slice target, reason;
	struct kvw_slice names[FIELD_LIMIT + 1], values[FIELD_LIMIT + 1];
	size_t names_count, values_count;
	bool complete;
};

/* A span may come in several pieces that lie one behind the other. */
static void extend(struct kvw_slice *span, const char *data, size_t len)
{
	if (span->data == NULL)
		span->data = data;
	MUST(span->data + span->len == data);
	span->len += len;
}

static int on_url(llhttp_t *parser, const char *data, size_t len)
{
	extend(&((struct report *)parser->data)->target, data, len);
	return 0;
}

static int on_status(llhttp_t *parser, const char *data, size_t len)
{
	extend(&((struct report *)parser->data)->reason, data, len);
	return 0;
}

static int on_name(llhttp_t *parser, const char *data, size_t len)
{
	struct report *report = parser->data;

	MUST(report->names_count <= FIELD_LIMIT);
	extend(&report->names[report->names_count], data, len);
	return 0;
}

static int on_name_end(llhttp_t *parser)
{
	((struct report *)parser->data)->names_count++;
	return 0;
}

static int on_value(llhttp_t *parser, const char *data, size_t len)
{
	struct report *report = parser->data;

	MUST(report->values_count <= FIELD_LIMIT);
	extend(&report->values[report->values_count], data, len);
	return 0;
}

static int on_value_end(llhttp_t *parser)
{
	((struct report *)parser->data)->values_count++;
	return 0;
}

static int on_head_end(llhttp_t *parser)
{
	((struct report *)parser->data)->complete = true;
	return HPE_PAUSED;
}

static struct kvw_slice trimmed(struct kvw_slice s)
{
	while (s.len > 0 && (s.data[s.len - 1] == ' ' || s.data[s.len - 1] == '\t'))
		s.len--;
	return s;
}

/* llhttp over an accepted head: the same start line, the same fields, the same length. */
static void must_agree_with_llhttp(const struct kvw_head *head, bool response)
{
	static const llhttp_settings_t settings = {
		.on_url = on_url,
		.on_status = on_status,
		.on_header_field = on_name,
		.on_header_field_complete = on_name_end,
		.on_header_value = on_value,
		.on_header_value_complete = on_value_end,
		.on_headers_complete = on_head_end,
	};
	struct report report = {.complete = false};
	llhttp_t parser;

	llhttp_init(&parser, response ? HTTP_RESPONSE : HTTP_REQUEST, &settings);
	parser.data = &report;
	MUST(llhttp_execute(&parser, head->data, head->len) == HPE_PAUSED && report.complete);
	MUST(parser.http_major == 1 && parser.http_minor == head->minor);
	MUST(report.names_count == head->field_count && report.values_count == head->field_count);
	for (size_t i = 0; i < head->field_count; i++) {
		MUST(kvw_slice_equal(report.names[i], head->fields[i].name));
		MUST(kvw_slice_equal(trimmed(report.values[i]), head->fields[i].value));
	}
	if (response) {
		MUST(parser.status_code == head->status);
		MUST(kvw_slice_equal(report.reason, head->reason));
	} else {
		struct kvw_slice method = kvw_slice_of(llhttp_method_name(parser.method));

		MUST(kvw_slice_equal(method, head->method));
		MUST(head->target.data[0] == '/' || kvw_slice_equal(head->target, KVW_SLICE("*")));
		MUST(report.target.len >= head->target.len || head->target.len == 1);
		MUST((head->framing == KVW_FRAME_CHUNKED) == ((parser.flags & F_CHUNKED) != 0));
	}
	if (head->framing == KVW_FRAME_LENGTH)
		MUST(parser.content_length == head->content_length);
	if (head->keep_alive)
		MUST((parser.flags & F_CONNECTION_CLOSE) == 0);
}

/* Each end-to-end field of `from` that is not replaced is in `to`, in order and unchanged. */
static void must_keep_fields(
	const struct kvw_head *from, const struct kvw_head *to, uint32_t renewed)
{
	size_t at = 0;

	for (size_t i = 0; i < from->field_count; i++) {
		const struct kvw_field *field = &from->fields[i];

		if (field->hop_by_hop || (renewed >> field->id & 1) != 0)
			continue;
		while (at < to->field_count &&
			!(kvw_slice_equal(field->name, to->fields[at].name) &&
				kvw_slice_equal(field->value, to->fields[at].value)))
			at++;
		MUST(at < to->field_count);
		at++;
	}
	for (size_t i = 0; i < from->field_count; i++) { /* what ended here is gone */
		const struct kvw_field *field = &from->fields[i];

		if (field->hop_by_hop && field->id == KVW_FIELD_OTHER)
			MUST(kvw_head_find(to, field->name) == NULL);
	}
}

#define BIT(id) (UINT32_C(1) << (id))
#define FRAMING                                                                                    \
	(BIT(KVW_FIELD_CONTENT_LENGTH) | BIT(KVW_FIELD_TRANSFER_ENCODING) | BIT(KVW_FIELD_TRAILER))

/* The head written on to a worker. */
static void must_write_request(const struct kvw_head *head, bool own_host)
{
	struct kvw_request_head_options o = {
		.prefix = own_host ? KVW_SLICE("/base") : KVW_SLICE(""),
		.authority = own_host ? KVW_SLICE("[2001:db8::2]:8000") : KVW_SLICE(""),
		.request_id = KVW_SLICE("id"),
		.client = own_host ? KVW_SLICE("2001:db8::1%eth0") : KVW_SLICE("192.0.2.1"),
		.x_forwarded = true,
		.forwarded = true,
		.framing = head->framing,
		.content_length = head->content_length,
		.extra = KVW_SLICE("X-Extra: 1\r\n"),
	};
	size_t room = kvw_head_request_bound(head, &o), written;
	struct kvw_writer w = KVW_WRITER(malloc(room), room);
	struct kvw_head_error error;
	struct kvw_head again;

	MUST(w.data != NULL);
	written = kvw_head_write_request(&w, head, &o);
	MUST(!w.overflow && written == w.len && written > 0);
	MUST(kvw_head_init(&again, FIELD_LIMIT + 12) == KVW_OK);
	MUST(kvw_head_parse_request(&again, w.data, w.len, &error) == KVW_OK);
	MUST(again.minor == 1 && again.keep_alive && !again.upgrade && !again.expect_continue);
	MUST(again.framing == head->framing && again.content_length == head->content_length);
	MUST(kvw_slice_equal(again.method, head->method));
	MUST(kvw_slice_equal(again.authority, own_host ? o.authority : head->authority));
	MUST(again.target.len ==
		head->target.len + (head->target.data[0] == '/' ? o.prefix.len : 0));
	MUST(again.te_trailers == head->te_trailers);
	must_keep_fields(head, &again,
		FRAMING | BIT(KVW_FIELD_HOST) | BIT(KVW_FIELD_EXPECT) |
			BIT(KVW_FIELD_X_FORWARDED_FOR) | BIT(KVW_FIELD_FORWARDED));
	kvw_head_finish(&again);
	free(w.data);
}

/* The head written on to a client. */
static void must_write_response(const struct kvw_head *head)
{
	struct kvw_response_head_options o = {
		.framing = head->framing,
		.content_length = head->content_length,
		.connection = head->framing == KVW_FRAME_CLOSE ? KVW_CONNECTION_CLOSE
							       : KVW_CONNECTION_NONE,
		.request_id = KVW_SLICE("id"),
		.date = KVW_SLICE("Sun, 06 Nov 1994 08:49:37 GMT"),
	};
	size_t room = kvw_head_response_bound(head, &o);
	struct kvw_writer w = KVW_WRITER(malloc(room), room);
	struct kvw_head_error error;
	struct kvw_head again;
	bool to_head = head->framing == KVW_FRAME_NONE;

	MUST(w.data != NULL);
	MUST(kvw_head_write_response(&w, head, &o) == w.len && !w.overflow && w.len > 0);
	MUST(kvw_head_init(&again, FIELD_LIMIT + 12) == KVW_OK);
	MUST(kvw_head_parse_response(&again, w.data, w.len, to_head, &error) == KVW_OK);
	MUST(again.status == head->status && kvw_slice_equal(again.reason, head->reason));
	MUST(again.framing == head->framing);
	MUST(again.framing != KVW_FRAME_LENGTH || again.content_length == head->content_length);
	MUST(again.keep_alive == (head->framing != KVW_FRAME_CLOSE));
	must_keep_fields(head, &again, FRAMING);
	kvw_head_finish(&again);
	free(w.data);
}

/* The end of the head, which must not depend on how the bytes came. */
static size_t find_end(const char *data, size_t len)
{
	size_t from = 0, whole, piecewise = 0;

	whole = kvw_head_find_end(data, len, &from);
	MUST(from <= len && whole <= len);
	from = 0;
	for (size_t got = 0; got <= len && piecewise == 0; got += 1 + got / 16)
		piecewise = kvw_head_find_end(data, got, &from);
	if (piecewise == 0)
		piecewise = kvw_head_find_end(data, len, &from);
	MUST(piecewise == whole);
	return whole;
}

bool kvb_agree_head(const char *data, size_t len, bool response)
{
	size_t skipped = response ? 0 : kvw_head_skip_blank(data, len);
	size_t head_len = find_end(data + skipped, len - skipped);
	struct kvw_head_error error = {0};
	struct kvw_head head;
	enum kvw_err err;

	MUST(kvw_head_init(&head, FIELD_LIMIT) == KVW_OK);
	/* without an end the bytes are no head, and must be refused whatever they are */
	if (response)
		err = kvw_head_parse_response(
			&head, data, head_len == 0 ? len : head_len, len % 2 == 1, &error);
	else
		err = kvw_head_parse_request(
			&head, data + skipped, head_len == 0 ? len - skipped : head_len, &error);
	MUST(err == KVW_OK || (error.status >= 400 && error.message != NULL));
	MUST(err == KVW_EPROTO || head_len > 0);
	if (err == KVW_OK) {
		must_agree_with_llhttp(&head, response);
		if (response) {
			must_write_response(&head);
		} else {
			must_write_request(&head, true);
			must_write_request(&head, false);
		}
	}
	kvw_head_finish(&head);
	return err == KVW_OK;
}
