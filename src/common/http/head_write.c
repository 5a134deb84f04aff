/*
 * head_write.c - writes the forwarded head from the received one.
 *
 * Fields keep their order, their spelling and their blanks. Since fields are contiguous in the
 * parsed bytes, one memcpy copies all fields between two dropped ones: a usual head takes three or
 * four copies, however many fields it has.
 *
 * The writer itself writes the framing, Host, Connection and, in answers, the version. The fields
 * that collect hops (X-Forwarded-For, Forwarded) are lists; this hop is appended to the last field
 * of each list (RFC 9110 section 5.3).
 */
#include "http/write.h"

/* Returns the position after the CRLF of field i. */
static const char *line_end(const struct kvw_head *head, size_t i)
{
	return i + 1 < head->field_count ? head->fields[i + 1].name.data
					 : head->data + head->len - 2;
}

static void write_range(struct kvw_writer *w, const char *from, const char *to)
{
	kvw_write(w, (struct kvw_slice){from, (size_t)(to - from)});
}

/* A set of ids: the fields that this hop drops, or always writes itself. */
#define BIT(id) (UINT32_C(1) << (id))

static bool kept(const struct kvw_field *field, uint32_t dropped)
{
	return !field->hop_by_hop && (dropped >> field->id & 1) == 0;
}

/* Returns the index of the last field with this id, or field_count. */
static size_t last_of(const struct kvw_head *head, enum kvw_field_id id)
{
	size_t i = head->field_count;

	if (head->first[id] < 0)
		return i;
	do
		i--;
	while (head->fields[i].id != id);
	return i;
}

/* Writes the framing field for a forwarded body. */
static void write_framing(struct kvw_writer *w, enum kvw_framing framing, uint64_t content_length)
{
	if (framing == KVW_FRAME_LENGTH) {
		kvw_write_literal(w, "Content-Length: ");
		kvw_write_u64(w, content_length);
		kvw_write_literal(w, "\r\n");
	} else if (framing == KVW_FRAME_CHUNKED) {
		kvw_write_literal(w, "Transfer-Encoding: chunked\r\n");
	}
}

/* Returns whether s looks like an IPv4 or IPv6 address, by its characters. */
static bool is_address(struct kvw_slice s, bool *v6)
{
	*v6 = s.len > 0 && memchr(s.data, ':', s.len) != NULL;
	for (size_t i = 0; i < s.len; i++) {
		char c = s.data[i];
		bool hex = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');

		if (!(c >= '0' && c <= '9') && c != '.' && !(*v6 && (hex || c == ':')))
			return false;
	}
	return s.len > 0;
}

/* Returns the client's address without an IPv6 zone ("%eth0"), which has a meaning on this machine
 * only. */
static struct kvw_slice client_address(const struct kvw_request_head_options *o)
{
	struct kvw_slice s = o->client;
	const char *zone = s.len > 0 ? memchr(s.data, '%', s.len) : NULL;

	if (zone != NULL)
		s.len = (size_t)(zone - s.data);
	return s;
}

/* Returns whether Host is replaced, so that another field has to carry the client's own. */
static bool passes_host(const struct kvw_head *head, const struct kvw_request_head_options *o)
{
	return o->authority.len > 0 && head->authority.len > 0;
}

/* Writes this hop as an element of Forwarded (RFC 7239): for=192.0.2.1;proto=http;host="example" */
static void write_forwarded_element(
	struct kvw_writer *w, const struct kvw_head *head, const struct kvw_request_head_options *o)
{
	struct kvw_slice client = client_address(o);
	bool v6;

	if (!is_address(client, &v6)) {
		kvw_write_literal(w, "for=unknown");
	} else {
		kvw_write(w, v6 ? KVW_SLICE("for=\"[") : KVW_SLICE("for="));
		kvw_write(w, client);
		kvw_write(w, v6 ? KVW_SLICE("]\"") : KVW_SLICE(""));
	}
	kvw_write(w, o->https ? KVW_SLICE(";proto=https") : KVW_SLICE(";proto=http"));
	if (passes_host(head, o)) { /* a valid authority holds neither quote nor backslash */
		kvw_write_literal(w, ";host=\"");
		kvw_write(w, head->authority);
		kvw_write_literal(w, "\"");
	}
}

/* Writes this hop's element of a list field. */
static void write_hop(struct kvw_writer *w, enum kvw_field_id id, const struct kvw_head *head,
	const struct kvw_request_head_options *o)
{
	if (id == KVW_FIELD_FORWARDED)
		write_forwarded_element(w, head, o);
	else
		kvw_write(w, client_address(o));
}

/* Copies the client's fields, and adds this hop at the end of last_for and last_forwarded. */
static void copy_request_fields(struct kvw_writer *w, const struct kvw_head *head,
	const struct kvw_request_head_options *o, uint32_t dropped)
{
	size_t last_for = o->x_forwarded && o->client.len > 0
				  ? last_of(head, KVW_FIELD_X_FORWARDED_FOR)
				  : head->field_count;
	size_t last_forwarded =
		o->forwarded ? last_of(head, KVW_FIELD_FORWARDED) : head->field_count;
	/* start of the field lines that are to be copied but were not yet */
	const char *run = NULL;

	for (size_t i = 0; i < head->field_count; i++) {
		const struct kvw_field *field = &head->fields[i];

		if (!kept(field, dropped)) {
			if (run != NULL)
				write_range(w, run, field->name.data);
			run = NULL;
			continue;
		}
		if (run == NULL)
			run = field->name.data;
		if (i == last_for || i == last_forwarded) {
			write_range(w, run, field->value.data + field->value.len);
			kvw_write(w, field->value.len > 0 ? KVW_SLICE(", ") : KVW_SLICE(""));
			write_hop(w, field->id, head, o);
			kvw_write_literal(w, "\r\n");
			run = NULL;
		}
	}
	if (run != NULL)
		write_range(w, run, line_end(head, head->field_count - 1));
}

/* Adds the forwarding fields that the client did not send. */
static void add_forwarded_fields(
	struct kvw_writer *w, const struct kvw_head *head, const struct kvw_request_head_options *o)
{
	if (o->x_forwarded && head->first[KVW_FIELD_X_FORWARDED_FOR] < 0 && o->client.len > 0)
		kvw_write_field(w, KVW_SLICE("X-Forwarded-For"), client_address(o));
	if (o->x_forwarded && head->first[KVW_FIELD_X_FORWARDED_PROTO] < 0)
		kvw_write(w, o->https ? KVW_SLICE("X-Forwarded-Proto: https\r\n")
				      : KVW_SLICE("X-Forwarded-Proto: http\r\n"));
	if (o->x_forwarded && head->first[KVW_FIELD_X_FORWARDED_HOST] < 0 && passes_host(head, o))
		kvw_write_field(w, KVW_SLICE("X-Forwarded-Host"), head->authority);
	if (o->forwarded && head->first[KVW_FIELD_FORWARDED] < 0) {
		kvw_write_literal(w, "Forwarded: ");
		write_forwarded_element(w, head, o);
		kvw_write_literal(w, "\r\n");
	}
}

static size_t finish_head(struct kvw_writer *w, size_t before)
{
	kvw_write_literal(w, "\r\n");
	return w->overflow ? 0 : w->len - before;
}

size_t kvw_head_write_request(
	struct kvw_writer *w, const struct kvw_head *head, const struct kvw_request_head_options *o)
{
	struct kvw_slice host = o->authority.len > 0 ? o->authority : head->authority;
	uint32_t dropped =
		BIT(KVW_FIELD_HOST) | BIT(KVW_FIELD_EXPECT) | BIT(KVW_FIELD_CONTENT_LENGTH);
	size_t before = w->len;

	if (o->framing != KVW_FRAME_CHUNKED)
		dropped |= BIT(KVW_FIELD_TRAILER);
	kvw_write(w, head->method);
	kvw_write_literal(w, " ");
	if (head->target.data[0] == '/')
		kvw_write(w, o->prefix);
	kvw_write(w, head->target);
	kvw_write_literal(w, " HTTP/1.1\r\nHost: ");
	kvw_write(w, host);
	kvw_write_literal(w, "\r\n");
	copy_request_fields(w, head, o, dropped);
	if (head->first[KVW_FIELD_X_REQUEST_ID] < 0 && o->request_id.len > 0)
		kvw_write_field(w, KVW_SLICE("X-Request-Id"), o->request_id);
	add_forwarded_fields(w, head, o);
	if (o->bearer.len > 0) {
		kvw_write_literal(w, "Authorization: Bearer ");
		kvw_write(w, o->bearer);
		kvw_write_literal(w, "\r\n");
	}
	if (head->te_trailers)
		kvw_write_literal(w, "TE: trailers\r\nConnection: TE\r\n");
	kvw_write(w, o->extra);
	write_framing(w, o->framing, o->content_length);
	return finish_head(w, before);
}

/* These functions write at most this many bytes in addition to their inputs. */
#define FIXED_ROOM 512

size_t kvw_head_request_bound(const struct kvw_head *head, const struct kvw_request_head_options *o)
{
	return head->len + o->prefix.len + o->authority.len + 3 * head->authority.len +
	       2 * o->client.len + o->request_id.len + o->bearer.len + o->extra.len + FIXED_ROOM;
}

/* Copies the worker's fields unchanged. */
static void copy_response_fields(
	struct kvw_writer *w, const struct kvw_head *head, uint32_t dropped)
{
	const char *run = NULL;

	for (size_t i = 0; i < head->field_count; i++) {
		const struct kvw_field *field = &head->fields[i];

		if (kept(field, dropped)) {
			if (run == NULL)
				run = field->name.data;
		} else if (run != NULL) {
			write_range(w, run, field->name.data);
			run = NULL;
		}
	}
	if (run != NULL)
		write_range(w, run, line_end(head, head->field_count - 1));
}

size_t kvw_head_write_response(struct kvw_writer *w, const struct kvw_head *head,
	const struct kvw_response_head_options *o)
{
	bool length_stays =
		o->framing == KVW_FRAME_NONE && head->status >= 200 && head->status != 204;
	uint32_t dropped = length_stays ? 0 : BIT(KVW_FIELD_CONTENT_LENGTH);
	size_t before = w->len;

	if (o->framing != KVW_FRAME_CHUNKED)
		dropped |= BIT(KVW_FIELD_TRAILER);
	kvw_write_literal(w, "HTTP/1.1 ");
	kvw_write_u64(w, (uint64_t)head->status);
	kvw_write_literal(w, " ");
	kvw_write(w, head->reason);
	kvw_write_literal(w, "\r\n");
	copy_response_fields(w, head, dropped);
	if (head->first[KVW_FIELD_DATE] < 0 && o->date.len > 0)
		kvw_write_field(w, KVW_SLICE("Date"), o->date);
	if (head->first[KVW_FIELD_X_REQUEST_ID] < 0 && o->request_id.len > 0)
		kvw_write_field(w, KVW_SLICE("X-Request-Id"), o->request_id);
	kvw_write(w, o->extra);
	write_framing(w, o->framing, o->content_length);
	if (o->connection == KVW_CONNECTION_CLOSE)
		kvw_write_literal(w, "Connection: close\r\n");
	else if (o->connection == KVW_CONNECTION_KEEP_ALIVE)
		kvw_write_literal(w, "Connection: keep-alive\r\n");
	return finish_head(w, before);
}

size_t kvw_head_response_bound(
	const struct kvw_head *head, const struct kvw_response_head_options *o)
{
	return head->len + o->date.len + o->request_id.len + o->extra.len + FIXED_ROOM;
}
