/*
 * kvtierd_answer.c - reads and checks heads, bodies and leases of a storage daemon.
 *
 * The reader collects a head until it is complete, since the parser needs it in one piece. Only the
 * body of a lease matters; the reader reads all bodies to their end, so that the connection can go
 * on.
 *
 * By the protocol an id goes into a path unchanged, so the reader accepts only bytes that need no
 * escape there; the tier cannot release a lease with another id, and the daemon ends it after its
 * timeout. The reader looks for the id even where the rest is wrong, because a lease that is not
 * released pins memory in the daemon.
 */
#include "tiers/kvtierd/kvtierd_answer.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunk/tenants.h"

#define MAX_FIELDS 100

/* --- HTTP ------------------------------------------------------------------------------------- */

enum kvt_status kvtierd_reader_init(struct kvtierd_reader *r)
{
	*r = (struct kvtierd_reader){0};
	r->head_bytes = malloc(KVTIERD_HEAD_ROOM);
	r->text = malloc(KVTIERD_BODY_ROOM);
	if (r->head_bytes == NULL || r->text == NULL ||
		kvw_head_init(&r->head, MAX_FIELDS) != KVW_OK) {
		free(r->head_bytes);
		free(r->text);
		*r = (struct kvtierd_reader){0};
		return KVT_ENOMEM;
	}
	return KVT_OK;
}

void kvtierd_reader_finish(struct kvtierd_reader *r)
{
	if (r->head_bytes == NULL)
		return;
	kvw_head_finish(&r->head);
	free(r->head_bytes);
	free(r->text);
	*r = (struct kvtierd_reader){0};
}

static void begin_head(struct kvtierd_reader *r)
{
	r->head_len = 0;
	r->searched = 0;
	r->text_len = 0;
	r->in_body = false;
	r->cut = false;
}

void kvtierd_reader_begin(struct kvtierd_reader *r)
{
	begin_head(r);
	r->begun = false;
	r->error = NULL;
}

static enum kvt_status wrong(struct kvtierd_reader *r, const char *error)
{
	r->error = error;
	return KVT_ECORRUPT;
}

static bool value_begins(const struct kvw_field *field, const char *text)
{
	size_t len = strlen(text);

	return field != NULL && field->value.len >= len &&
	       strncasecmp(field->value.data, text, len) == 0;
}

/* Parses a complete head. KVT_MISS: it belongs to an interim answer (1xx), and another head
 * follows. */
static enum kvt_status take_head(struct kvtierd_reader *r, size_t len)
{
	struct kvw_head_error error = {0};
	const struct kvw_field *type;

	if (kvw_head_parse_response(&r->head, r->head_bytes, len, false, &error) != KVW_OK)
		return wrong(r, error.message);
	if (r->head.status == 101)
		return wrong(r, "the daemon changed the protocol");
	if (r->head.status < 200) {
		begin_head(r);
		return KVT_MISS;
	}
	type = kvw_head_field(&r->head, KVW_FIELD_CONTENT_TYPE);
	r->status = r->head.status;
	r->json = value_begins(type, "application/json");
	r->kvtierd = value_begins(kvw_head_find(&r->head, KVW_SLICE("server")), "kvtierd");
	r->quota = value_begins(
		kvw_head_find(&r->head, KVW_SLICE(KVT_REFUSED_HEADER)), KVT_REFUSED_QUOTA);
	r->later = kvw_head_find(&r->head, KVW_SLICE("retry-after")) != NULL;
	r->keep_alive = r->head.keep_alive && r->head.framing != KVW_FRAME_CLOSE;
	kvw_body_begin(&r->body, r->head.framing, r->head.content_length, KVTIERD_BODY_MOST);
	r->in_body = true;
	return KVT_OK;
}

static enum kvt_status feed_head(
	struct kvtierd_reader *r, const char *data, size_t len, size_t *used)
{
	size_t had = r->head_len, end;
	size_t n = len < KVTIERD_HEAD_ROOM - had ? len : KVTIERD_HEAD_ROOM - had;

	memcpy(r->head_bytes + had, data, n);
	r->head_len += n;
	end = kvw_head_find_end(r->head_bytes, r->head_len, &r->searched);
	if (end == 0) {
		*used = n;
		return r->head_len == KVTIERD_HEAD_ROOM ? wrong(r, "a head that does not end")
						       : KVT_MISS;
	}
	*used = end - had; /* the head ends after the bytes that were kept from earlier calls */
	return take_head(r, end);
}

static void keep_text(void *arg, const char *data, size_t len)
{
	struct kvtierd_reader *r = arg;
	size_t room = KVTIERD_BODY_ROOM - r->text_len;

	if (len > room) {
		r->cut = true;
		len = room;
	}
	memcpy(r->text + r->text_len, data, len);
	r->text_len += len;
}

static enum kvt_status feed_body(
	struct kvtierd_reader *r, const char *data, size_t len, size_t *used)
{
	enum kvw_err err = kvw_body_feed(&r->body, data, len, keep_text, r, used);

	if (err == KVW_ELIMIT)
		return wrong(r, "a body beyond all bounds");
	if (err != KVW_OK)
		return wrong(r, r->body.error != NULL ? r->body.error : "a body that is none");
	return r->body.done ? KVT_OK : KVT_MISS;
}

enum kvt_status kvtierd_reader_feed(
	struct kvtierd_reader *r, const char *data, size_t len, size_t *used)
{
	enum kvt_status status = KVT_MISS;
	size_t at = 0, n = 0;

	r->begun = r->begun || len > 0;
	while (status == KVT_MISS && !r->in_body && at < len) {
		status = feed_head(r, data + at, len - at, &n);
		at += n;
	}
	if (status != KVT_ECORRUPT && r->in_body) {
		n = 0; /* bytes that are no head have no length */
		status = feed_body(r, data + at, len - at, &n);
		at += n;
	}
	*used = at;
	return status;
}

enum kvt_status kvtierd_reader_close(struct kvtierd_reader *r)
{
	if (r->in_body && kvw_body_close(&r->body)) {
		r->keep_alive = false;
		return KVT_OK;
	}
	return wrong(r, "the connection was closed within an answer");
}

/* --- leases ----------------------------------------------------------------------------------- */

static bool id_is_good(const char *id, size_t len)
{
	if (len == 0 || len >= KVTIERD_ID_BYTES)
		return false;
	for (size_t i = 0; i < len; i++) {
		char c = id[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			    c == '-' || c == '_' || c == '.' || c == '~' || c == ':'))
			return false;
	}
	return strcmp(id, ".") != 0 && strcmp(id, "..") != 0;
}

static void read_id(const json_t *id, char out[KVTIERD_ID_BYTES])
{
	if (json_is_integer(id))
		(void)snprintf(
			out, KVTIERD_ID_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
	else if (json_is_string(id) && id_is_good(json_string_value(id), json_string_length(id)))
		(void)snprintf(out, KVTIERD_ID_BYTES, "%s", json_string_value(id));
}

static bool read_piece(const json_t *item, struct kvtierd_piece *out)
{
	const json_t *offset = json_object_get(item, "offset");
	const json_t *len = json_object_get(item, "len");

	if (!json_is_integer(offset) || !json_is_integer(len) || json_integer_value(offset) < 0 ||
		json_integer_value(len) <= 0)
		return false;
	out->offset = (uint64_t)json_integer_value(offset);
	out->bytes = (uint64_t)json_integer_value(len);
	return true;
}

static enum kvt_status read_pieces(const json_t *list, struct kvtierd_lease *out)
{
	size_t count = json_array_size(list);
	uint64_t sum = 0;

	if (!json_is_array(list) || count > KVTIERD_MAX_PIECES)
		return KVT_ECORRUPT;
	if (count == 0)
		return KVT_MISS;
	out->pieces = calloc(count, sizeof(out->pieces[0]));
	if (out->pieces == NULL)
		return KVT_ENOMEM;
	for (size_t i = 0; i < count; i++) {
		if (!read_piece(json_array_get(list, i), &out->pieces[i]) ||
			__builtin_add_overflow(sum, out->pieces[i].bytes, &sum))
			return KVT_ECORRUPT;
	}
	out->count = (uint32_t)count;
	out->bytes = sum;
	return KVT_OK;
}

enum kvt_status kvtierd_lease_parse(const char *text, size_t len, struct kvtierd_lease *out)
{
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	enum kvt_status status = KVT_ECORRUPT;

	*out = (struct kvtierd_lease){.id = ""};
	if (json_is_object(root)) {
		read_id(json_object_get(root, "id"), out->id);
		status = read_pieces(json_object_get(root, "offsets"), out);
		if (status == KVT_OK && out->id[0] == '\0')
			status = KVT_ECORRUPT;
	}
	if (status != KVT_OK) {
		free(out->pieces);
		out->pieces = NULL;
		out->count = 0;
		out->bytes = 0;
	}
	json_decref(root);
	return status;
}

static bool id_parse(const json_t *value, uint8_t out[KVT_TABLE_ID_BYTES])
{
	const char *text = json_string_value(value);
	unsigned byte;

	if (text == NULL || json_string_length(value) != 2 * KVT_TABLE_ID_BYTES ||
		strspn(text, "0123456789abcdef") != 2 * KVT_TABLE_ID_BYTES)
		return false;
	for (size_t i = 0; i < KVT_TABLE_ID_BYTES; i++) {
		(void)sscanf(text + 2 * i, "%2x", &byte);
		out[i] = (uint8_t)byte;
	}
	return true;
}

static bool change_parse(const json_t *value, struct kvt_slot_change *out)
{
	json_int_t slot = json_integer_value(json_array_get(value, 0));
	json_int_t number = json_integer_value(json_array_get(value, 1));

	if (json_array_size(value) != 2 || !json_is_integer(json_array_get(value, 0)) || slot < 0 ||
		slot >= (json_int_t)KVT_SLOTS || number <= 0)
		return false;
	*out = (struct kvt_slot_change){(uint32_t)slot, (uint64_t)number};
	return true;
}

enum kvt_status kvtierd_table_parse(const char *text, size_t len, struct kvt_table_ask *out)
{
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	const json_t *changes = json_object_get(root, "changes");
	const json_t *sum = json_object_get(root, "sum");
	size_t count = json_array_size(changes);
	bool good = id_parse(json_object_get(root, "id"), out->now) && json_is_integer(sum) &&
		    json_is_array(changes) && json_is_boolean(json_object_get(root, "more")) &&
		    count <= KVT_CHANGES_MOST;

	for (size_t i = 0; i < count && good; i++)
		good = change_parse(json_array_get(changes, i), &out->changes[i]);
	out->sum = (uint32_t)json_integer_value(sum);
	out->change_count = good ? (uint32_t)count : 0;
	out->more = good && json_is_true(json_object_get(root, "more")) && count > 0;
	json_decref(root);
	return good ? KVT_OK : KVT_ECORRUPT;
}

void kvtierd_lease_finish(struct kvtierd_lease *lease)
{
	free(lease->pieces);
	*lease = (struct kvtierd_lease){.id = ""};
}

bool kvtierd_lease_fits(const struct kvtierd_lease *lease, uint64_t segment_bytes)
{
	for (uint32_t i = 0; i < lease->count; i++) {
		const struct kvtierd_piece *p = &lease->pieces[i];

		if (p->offset > segment_bytes || p->bytes > segment_bytes - p->offset)
			return false;
	}
	return true;
}
