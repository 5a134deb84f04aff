/*
 * object_hash.c - writes a value in one of the formats into a hasher.
 *
 * For formats that put a value's length before it, the value is written twice, the first time only
 * to count its bytes. That costs less than a buffer for values of any length.
 */
#include "wire/object_hash.h"

enum kvw_err kvw_object_digest(struct kvw_hasher *hasher, const struct kvw_format *format,
	kvw_value_fn *write, const void *value, uint8_t digest[KVW_DIGEST_MAX])
{
	if (format->value_begin == NULL) {
		kvw_hasher_start(hasher);
		write(hasher, format, value);
		kvw_hasher_finish(hasher, digest);
		return KVW_OK;
	}
	kvw_hasher_start_count(hasher);
	write(hasher, format, value);
	format->value_end(hasher);

	size_t body = kvw_hasher_length(hasher);

	if (body > format->body_max)
		return KVW_ELIMIT;
	kvw_hasher_start(hasher);
	format->value_begin(hasher, body);
	write(hasher, format, value);
	format->value_end(hasher);
	kvw_hasher_finish(hasher, digest);
	return KVW_OK;
}

static void write_text(struct kvw_hasher *out, const struct kvw_format *format, const void *value)
{
	struct kvw_slice text = kvw_slice_of(value);

	format->text(out, text.data, (uint32_t)text.len);
}

enum kvw_err kvw_object_digest_text(struct kvw_hasher *hasher, const struct kvw_format *format,
	const char *text, uint8_t digest[KVW_DIGEST_MAX])
{
	return kvw_object_digest(hasher, format, write_text, text, digest);
}

void kvw_object_write_tokens(struct kvw_hasher *out, const struct kvw_format *format,
	const uint32_t *tokens, size_t count)
{
	format->tuple_begin(out, count);
	for (size_t i = 0; i < count; i++)
		format->number(out, tokens[i]);
	format->tuple_end(out, count);
}

const struct kvw_format *kvw_object_format(enum kvw_object_hash hash)
{
	return hash == KVW_OBJECT_SHA256 || hash == KVW_OBJECT_XXHASH ? &kvw_pickle : &kvw_cbor;
}

enum kvw_digest_kind kvw_object_digest_kind(enum kvw_object_hash hash)
{
	return hash == KVW_OBJECT_SHA256 || hash == KVW_OBJECT_SHA256_CBOR ? KVW_DIGEST_SHA256
									   : KVW_DIGEST_XXH3_128;
}
