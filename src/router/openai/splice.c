/*
 * splice.c - edits a body so that a worker reads another `model` or `cache_salt`.
 */
#include "openai/splice.h"

#include <string.h>

#include "openai/engine_fields.h"

/* Memory for texts, one after another. */
struct texts {
	char *at;
	char *begin; /* beginning of the text that is being written */
};

static void put_bytes(struct texts *texts, const char *data, size_t len)
{
	memcpy(texts->at, data, len);
	texts->at += len;
}

static struct kvw_slice taken(struct texts *texts)
{
	struct kvw_slice text = {texts->begin, (size_t)(texts->at - texts->begin)};

	texts->begin = texts->at;
	return text;
}

/* As a JSON string. */
static void put_string(struct texts *texts, struct kvw_slice text)
{
	static const char digits[] = "0123456789abcdef";

	*texts->at++ = '"';
	for (size_t i = 0; i < text.len; i++) {
		char c = text.data[i];

		if ((unsigned char)c < 0x20) {
			put_bytes(texts, "\\u00", 4);
			*texts->at++ = digits[c >> 4];
			c = digits[c & 15];
		} else if (c == '"' || c == '\\') {
			*texts->at++ = '\\';
		}
		*texts->at++ = c;
	}
	*texts->at++ = '"';
}

static void add_edit(struct kvw_splice *out, uint64_t at, uint64_t removed, struct kvw_slice text)
{
	out->edits[out->count++] = (struct kvw_splice_edit){at, removed, text};
	out->growth += (int64_t)text.len - (int64_t)removed;
}

/* Writes the salt as the first member, for a body without one. */
static struct kvw_slice salt_member(struct texts *texts, struct kvw_slice salt, bool empty)
{
	put_bytes(texts, "\"cache_salt\":", 13);
	put_string(texts, salt);
	if (!empty)
		put_bytes(texts, ",", 1);
	return taken(texts);
}

static bool has_salt(const struct kvw_scan_places *places)
{
	for (uint32_t i = 0; i < places->count; i++)
		if (places->items[i].kind == KVW_PLACE_SALT)
			return true;
	return false;
}

/* Returns the neutral value of a member that controls the engine. */
static struct kvw_slice default_of(const struct kvw_scan *scan, uint32_t field)
{
	if (kvw_scan_exact_only(scan) && field == kvw_engine_field("kv_transfer_params", 18))
		return KVW_SLICE("{\"kvtier.fragments\":false}");
	return kvw_engine_field_default(field);
}

enum kvw_err kvw_splice_plan(const struct kvw_scan *scan, struct kvw_slice salt,
	struct kvw_slice model, struct kvw_splice *out)
{
	const struct kvw_scan_places *places = kvw_scan_places(scan);
	struct texts texts = {out->text, out->text};
	struct kvw_slice salt_text = {NULL, 0}, model_text = {NULL, 0};

	out->count = 0;
	out->growth = 0;
	if (places->too_many || (places->form && salt.len > 0) || salt.len > KVW_SPLICE_SALT_MOST ||
		model.len > KVW_SPLICE_MODEL_MOST)
		return KVW_EINVAL;
	if (model.len > 0) {
		if (places->form)
			put_bytes(&texts, model.data, model.len);
		else
			put_string(&texts, model);
		model_text = taken(&texts);
	}
	if (salt.len > 0 && has_salt(places)) {
		put_string(&texts, salt);
		salt_text = taken(&texts);
	} else if (salt.len > 0) {
		add_edit(out, places->open, 0, salt_member(&texts, salt, places->empty));
	}
	for (uint32_t i = 0; i < places->count; i++) {
		const struct kvw_scan_place *place = &places->items[i];
		struct kvw_slice text = place->kind >= KVW_PLACE_FIELD
			? default_of(scan, place->kind - (uint32_t)KVW_PLACE_FIELD)
			: place->kind == KVW_PLACE_SALT ? salt_text
							: model_text;

		if (text.len > 0)
			add_edit(out, place->begin, place->end - place->begin, text);
	}
	return KVW_OK;
}

static void add_piece(struct kvw_pieces *out, struct kvw_slice text)
{
	if (text.len == 0)
		return;
	out->items[out->count++] = (struct iovec){(char *)text.data, text.len};
	out->len += text.len;
}

void kvw_splice_pieces(
	const struct kvw_splice *splice, struct kvw_slice body, struct kvw_pieces *out)
{
	size_t from = 0;

	out->count = 0;
	out->len = 0;
	for (uint32_t i = 0; i < splice->count; i++) {
		const struct kvw_splice_edit *edit = &splice->edits[i];

		add_piece(out, (struct kvw_slice){body.data + from, edit->at - from});
		add_piece(out, edit->text);
		from = edit->at + edit->removed;
	}
	add_piece(out, (struct kvw_slice){body.data + from, body.len - from});
}

int kvw_pieces_from(const struct kvw_pieces *pieces, size_t sent, struct iovec *iov)
{
	int count = 0;

	for (int i = 0; i < pieces->count; i++) {
		const struct iovec *item = &pieces->items[i];

		if (sent < item->iov_len)
			iov[count++] = (struct iovec){
				(char *)item->iov_base + sent, item->iov_len - sent};
		sent = sent < item->iov_len ? 0 : sent - item->iov_len;
	}
	return count;
}

size_t kvw_splice_write(const struct kvw_splice *splice, struct kvw_slice body, char *out)
{
	struct kvw_pieces pieces;

	kvw_splice_pieces(splice, body, &pieces);
	for (int i = 0; i < pieces.count; i++) {
		memcpy(out, pieces.items[i].iov_base, pieces.items[i].iov_len);
		out += pieces.items[i].iov_len;
	}
	return pieces.len;
}
