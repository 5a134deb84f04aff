/*
 * otlp_protobuf.c - OTLP as Protocol Buffers (https://protobuf.dev/programming-guides/encoding/).
 *
 * A message is a row of fields: a key (number of the field and type of its value) and the value. An
 * embedded message has its length before it. So a buffer is filled from its end to its begin, the
 * last field first: when a message is complete its length is known, and nothing has to move.
 * Readers do not depend on the order of fields.
 *
 * The numbers of fields are those of opentelemetry/proto/trace/v1/trace.proto and the files that it
 * imports; they never change.
 */
#include <assert.h>
#include <endian.h>
#include <string.h>

#include "otel/otlp.h"

/* Types of values on the wire. */
enum wire { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

#define STATUS_ERROR 2
#define HIGH_BITS    UINT64_C(0x8080808080808080) /* 0 in eight bytes of ASCII */
/* Room for one span, and for all that precedes the spans of a message. */
#define SPAN_ROOM   (48u << 10)
#define PREFIX_ROOM (32u << 10)

/* --- writing, from the end to the begin --- */

/* A buffer with free bytes from `begin` to `at`. */
struct back {
	unsigned char *begin, *at;
	bool full; /* something had no room */
};

/* Takes room for `size` bytes before all that was written. NULL: there is none. */
static inline unsigned char *take_room(struct back *back, size_t size)
{
	if (back->full || size > (size_t)(back->at - back->begin)) {
		back->full = true;
		return NULL;
	}
	back->at -= size;
	return back->at;
}

static void put_varint(struct back *back, uint64_t value)
{
	size_t size = 1;
	unsigned char *out;

	if (value < 0x80) { /* nearly all are */
		out = take_room(back, 1);
		if (out != NULL)
			*out = (unsigned char)value;
		return;
	}
	for (uint64_t rest = value >> 7; rest > 0; rest >>= 7)
		size++;
	out = take_room(back, size);
	for (size_t i = 0; out != NULL && i < size; i++, value >>= 7)
		out[i] = (unsigned char)((value & 0x7f) | (i + 1 < size ? 0x80 : 0));
}

static void put_key(struct back *back, unsigned field, enum wire type)
{
	put_varint(back, (uint64_t)field << 3 | type);
}

/* Writes what precedes a value of so many bytes. */
static inline void put_size(struct back *back, unsigned field, uint64_t size)
{
	unsigned char *out;

	if (size >= 0x80 || field >= 16) {
		put_varint(back, size);
		put_key(back, field, WIRE_BYTES);
		return;
	}
	out = take_room(back, 2); /* nearly always both fit one byte */
	if (out != NULL) {
		out[0] = (unsigned char)(field << 3 | WIRE_BYTES);
		out[1] = (unsigned char)size;
	}
}

static void put_number(struct back *back, unsigned field, uint64_t value)
{
	put_varint(back, value);
	put_key(back, field, WIRE_VARINT);
}

/* Writes `size` bytes of a number, the least significant first. */
static inline void put_little(struct back *back, uint64_t value, size_t size)
{
	unsigned char *out = take_room(back, size);

	value = htole64(value);
	if (out != NULL)
		memcpy(out, &value, size);
}

static void put_fixed64(struct back *back, unsigned field, uint64_t value)
{
	put_little(back, value, 8);
	put_key(back, field, WIRE_FIXED64);
}

/* Writes an id of 8 or 16 bytes, the most significant one first. */
static void put_id(struct back *back, unsigned field, const uint64_t *words, size_t count)
{
	for (size_t i = count; i-- > 0;)
		put_little(back, __builtin_bswap64(words[i]), 8);
	put_size(back, field, 8 * count);
}

/* Ends an embedded message that reaches from `at` to `end`, by what precedes it. */
static void put_length(struct back *back, unsigned field, const unsigned char *end)
{
	put_size(back, field, (uint64_t)(end - back->at));
}

/* Writes bytes as they are, and returns them; NULL: there is no room. */
static unsigned char *put_bytes(struct back *back, unsigned field, struct kvw_slice bytes)
{
	unsigned char *out = take_room(back, bytes.len);

	if (out != NULL && bytes.len > 0)
		memcpy(out, bytes.data, bytes.len);
	put_size(back, field, bytes.len);
	return out;
}

/* Writes a name of this program's, which is ASCII. */
static void put_name(struct back *back, unsigned field, const char *name)
{
	(void)put_bytes(back, field, kvw_slice_of(name));
}

/* Returns how many bytes at the begin are ASCII, rounded down to words of eight. */
static size_t ascii_words(const unsigned char *bytes, size_t len)
{
	size_t done = 0;
	uint64_t piece;

	for (; len - done >= 8; done += 8) {
		memcpy(&piece, bytes + done, 8);
		if ((piece & HIGH_BITS) != 0)
			break;
	}
	return done;
}

static bool is_ascii(struct kvw_slice text)
{
	const unsigned char *bytes = (const unsigned char *)text.data;
	unsigned char all = 0;
	uint64_t last;

	if (text.len >= 8) {
		memcpy(&last, bytes + text.len - 8, 8);
		return (last & HIGH_BITS) == 0 &&
		       ascii_words(bytes, text.len) == (text.len & ~(size_t)7);
	}
	for (size_t i = 0; i < text.len; i++)
		all |= bytes[i];
	return all < 0x80;
}

/* Writes a text; bytes that are not UTF-8, which readers refuse, become '?'. */
static void put_text(struct back *back, unsigned field, struct kvw_slice text)
{
	unsigned char *out = put_bytes(back, field, text);

	for (size_t i = out == NULL ? text.len : ascii_words(out, text.len); i < text.len;) {
		size_t n = out[i] < 0x80 ? 1 : kvw_utf8_length(out + i, text.len - i);

		if (n == 0)
			out[i] = '?';
		i += n == 0 ? 1 : n;
	}
}

/* --- messages --- */

/* Writes a KeyValue of two short texts at once, as most are. False: it is not one, and nothing was
 * written. */
static bool put_short(
	struct back *back, unsigned field, struct kvw_slice key, struct kvw_slice text)
{
	size_t value = text.len + 2, pair = key.len + value + 4;
	unsigned char *out;

	if (pair >= 0x80 || !is_ascii(text))
		return false;
	out = take_room(back, pair + 2);
	if (out == NULL)
		return true;
	*out++ = (unsigned char)(field << 3 | WIRE_BYTES);
	*out++ = (unsigned char)pair;
	*out++ = 1 << 3 | WIRE_BYTES;
	*out++ = (unsigned char)key.len;
	memcpy(out, key.data, key.len);
	out += key.len;
	*out++ = 2 << 3 | WIRE_BYTES;
	*out++ = (unsigned char)value;
	*out++ = 1 << 3 | WIRE_BYTES;
	*out++ = (unsigned char)text.len;
	memcpy(out, text.data, text.len);
	return true;
}

/* Writes a KeyValue with its AnyValue. ours: the key is a name of this program's. */
static void put_attribute(
	struct back *back, unsigned field, const struct kvw_attribute *attribute, bool ours)
{
	const unsigned char *end = back->at;
	uint64_t bits;

	if (ours && attribute->type == KVW_ATTRIBUTE_TEXT && attribute->text.len > 0 &&
		put_short(back, field, attribute->key, attribute->text))
		return;
	switch (attribute->type) {
	case KVW_ATTRIBUTE_TEXT:
		put_text(back, 1, attribute->text);
		break;
	case KVW_ATTRIBUTE_BOOL:
		put_number(back, 2, attribute->number != 0);
		break;
	case KVW_ATTRIBUTE_INT:
		put_number(back, 3, (uint64_t)attribute->number);
		break;
	case KVW_ATTRIBUTE_DOUBLE:
		memcpy(&bits, &attribute->real, sizeof(bits));
		put_fixed64(back, 4, bits);
		break;
	}
	put_length(back, 2, end);
	if (ours)
		(void)put_bytes(back, 1, attribute->key);
	else
		put_text(back, 1, attribute->key);
	put_length(back, field, end);
}

static void put_event(struct back *back, const struct kvw_span_event *event)
{
	const unsigned char *end = back->at;

	if (event->attribute.key.len > 0)
		put_attribute(back, 3, &event->attribute, true);
	put_name(back, 2, event->name);
	put_fixed64(back, 1, (uint64_t)event->at_ns);
	put_length(back, 11, end);
}

static void put_status(struct back *back, const struct kvw_span *span)
{
	const unsigned char *end = back->at;

	put_number(back, 3, STATUS_ERROR);
	if (span->message.len > 0)
		put_text(back, 2, span->message);
	put_length(back, 15, end);
}

static void put_span(struct back *back, const struct kvw_spans *set, const struct kvw_span *span)
{
	const unsigned char *end = back->at;

	put_little(back, kvw_otlp_flags(set, span), 4);
	put_key(back, 16, WIRE_FIXED32);
	if (span->error != NULL)
		put_status(back, span);
	for (size_t i = set->event_count; i-- > 0;)
		if (set->events[i].span == span)
			put_event(back, &set->events[i]);
	for (size_t i = span->attribute_count; i-- > 0;)
		put_attribute(back, 9, &span->attributes[i], true);
	put_fixed64(back, 8, (uint64_t)span->end_ns);
	put_fixed64(back, 7, (uint64_t)span->begin_ns);
	put_number(back, 6, span->kind);
	put_text(back, 5, kvw_slice_of(span->name));
	if (span->parent != 0)
		put_id(back, 4, &span->parent, 1);
	put_id(back, 2, &span->id, 1);
	put_id(back, 1, set->trace, 2);
	put_length(back, 2, end);
}

static void put_spans(struct kvw_page *batch, const struct kvw_spans *set)
{
	unsigned char bytes[SPAN_ROOM];

	for (size_t i = 0; i < set->count; i++) {
		struct back back = {bytes, bytes + sizeof(bytes), false};

		put_span(&back, set, &set->spans[i]);
		assert(!back.full); /* texts of a record are short */
		kvw_page_put(
			batch, (const char *)back.at, (size_t)(bytes + sizeof(bytes) - back.at));
	}
}

static void put_resource_attribute(void *arg, const struct kvw_attribute *attribute)
{
	put_attribute(arg, 1, attribute, false);
}

/* Everything but the spans precedes them, so that these need not be copied twice. */
static void put_request(
	struct kvw_page *out, const struct kvw_otlp_sender *sender, const struct kvw_page *batch)
{
	unsigned char bytes[PREFIX_ROOM], *end = bytes + sizeof(bytes);
	struct back back = {bytes, end, false};
	const unsigned char *inner;

	put_text(&back, 2, KVW_SLICE(KVW_VERSION));
	put_text(&back, 1, KVW_SLICE("kvway"));
	put_length(&back, 1, end);
	put_text(&back, 3, KVW_SLICE(KVW_OTEL_SCHEMA));
	put_varint(&back, (uint64_t)(end - back.at) + batch->len); /* scope_spans */
	put_key(&back, 2, WIRE_BYTES);
	inner = back.at;
	kvw_otlp_resource(sender, put_resource_attribute, &back);
	put_length(&back, 1, inner);
	put_text(&back, 3, KVW_SLICE(KVW_OTEL_SCHEMA));
	put_varint(&back, (uint64_t)(end - back.at) + batch->len); /* resource_spans */
	put_key(&back, 1, WIRE_BYTES);
	assert(!back.full); /* settings.c limits the texts */
	kvw_page_put(out, (const char *)back.at, (size_t)(end - back.at));
	kvw_page_put(out, batch->data, batch->len);
}

/* --- the answer --- */

/* Bytes of a message that are left to be read. */
struct rest {
	const unsigned char *at, *end;
};

static bool take_varint(struct rest *rest, uint64_t *out)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 64 && rest->at < rest->end; shift += 7) {
		unsigned char byte = *rest->at++;

		value |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80) {
			*out = value;
			return true;
		}
	}
	return false;
}

/* Reads the next field. *number has the value of a varint, *bytes that of bytes. False: there is
 * none, or the rest is no message. */
static bool take_field(struct rest *rest, uint64_t *key, uint64_t *number, struct rest *bytes)
{
	uint64_t len;

	if (!take_varint(rest, key))
		return false;
	switch (*key & 7) {
	case WIRE_VARINT:
		return take_varint(rest, number);
	case WIRE_FIXED64:
		len = 8;
		break;
	case WIRE_FIXED32:
		len = 4;
		break;
	case WIRE_BYTES:
		if (!take_varint(rest, &len))
			return false;
		break;
	default:
		return false;
	}
	if (len > (uint64_t)(rest->end - rest->at))
		return false;
	*bytes = (struct rest){rest->at, rest->at + len};
	rest->at += len;
	return true;
}

/* ExportTraceServiceResponse has partial_success (1), and that has rejected_spans (1). */
static uint64_t read_rejected(const char *answer, size_t len)
{
	struct rest rest = {(const unsigned char *)answer, (const unsigned char *)answer + len};
	struct rest partial = {NULL, NULL};
	uint64_t key, number = 0, rejected = 0;

	while (take_field(&rest, &key, &number, &partial)) {
		struct rest inner = partial, ignored;

		while (key == (1 << 3 | WIRE_BYTES) &&
			take_field(&inner, &number, &rejected, &ignored))
			if (number == (1 << 3 | WIRE_VARINT))
				return rejected;
	}
	return 0;
}

const struct kvw_otlp kvw_otlp_protobuf = {
	.content_type = "Content-Type: application/x-protobuf",
	.spans = put_spans,
	.request = put_request,
	.rejected = read_rejected,
};
