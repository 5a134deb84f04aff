/*
 * fuzz_json.c - the bytes are JSON: what jansson reads, we read, and alike.
 *
 * Not the other way round: jansson knows no integers beyond 2^63-1 and checks UTF-8, which the
 * decoder of messages does where it matters. A NUL byte is the end of the text for jansson and
 * a mistake for us; such inputs are not compared.
 */
#include <jansson.h>
#include <string.h>

#include "wire/json_msgpack.h"
#include "must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void agree(const json_t *json, struct kvw_mp *mp);

static void agree_members(const json_t *json, struct kvw_mp *mp, const struct kvw_mp_value *value)
{
	const json_t *member;
	struct kvw_slice name;
	char *copy;

	if (json_is_array(json)) {
		MUST(value->type == KVW_MP_ARRAY && value->count == json_array_size(json));
		for (uint32_t i = 0; i < value->count; i++)
			agree(json_array_get(json, i), mp);
		return;
	}
	MUST(value->type == KVW_MP_MAP && value->count >= json_object_size(json));
	for (uint32_t i = 0; i < value->count; i++) {
		MUST(kvw_mp_str(mp, &name) == KVW_OK);
		copy = strndup(name.data, name.len); /* jansson refuses names with a NUL */
		member = json_object_get(json, copy);
		free(copy);
		MUST(member != NULL);
		if (value->count == json_object_size(json))
			agree(member, mp);
		else
			MUST(kvw_mp_skip(mp) == KVW_OK); /* a name twice: jansson keeps one */
	}
}

static void agree(const json_t *json, struct kvw_mp *mp)
{
	struct kvw_mp_value value;

	MUST(kvw_mp_next(mp, &value) == KVW_OK);
	if (json_is_array(json) || json_is_object(json)) {
		agree_members(json, mp, &value);
	} else if (json_is_string(json)) {
		MUST(value.type == KVW_MP_STR && value.bytes.len == json_string_length(json));
		MUST(memcmp(value.bytes.data, json_string_value(json), value.bytes.len) == 0);
	} else if (json_is_integer(json)) {
		MUST(value.type == KVW_MP_UINT || value.type == KVW_MP_NEGATIVE);
		MUST((int64_t)value.bits == json_integer_value(json));
	} else if (json_is_real(json)) {
		MUST(value.type == KVW_MP_FLOAT && value.real == json_real_value(json));
	} else if (json_is_null(json)) {
		MUST(value.type == KVW_MP_NIL);
	} else {
		MUST(value.type == KVW_MP_BOOL && value.boolean == json_is_true(json));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t room = KVW_JSON_ROOM(size);
	uint8_t *buffer = malloc(room);
	const char *error = NULL;
	struct kvw_mp_out out;
	struct kvw_mp mp;
	enum kvw_err err;
	json_t *json;

	MUST(buffer != NULL);
	kvw_mp_out_init(&out, buffer, room);
	err = kvw_json_to_msgpack((struct kvw_slice){(const char *)data, size}, &out, &error);
	MUST(!out.full && (err == KVW_OK) == (error == NULL));
	json = size == 0 || memchr(data, 0, size) != NULL
		       ? NULL
		       : json_loadb(
				 (const char *)data, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	if (err == KVW_OK) {
		kvw_mp_init(&mp, buffer, out.len);
		MUST(kvw_mp_skip(&mp) == KVW_OK && kvw_mp_left(&mp) == 0);
		kvw_mp_init(&mp, buffer, out.len);
		if (json != NULL)
			agree(json, &mp);
	} else if (json != NULL) {
		MUST(err == KVW_ELIMIT || strstr(error, "63 characters") != NULL);
	}
	json_decref(json);
	free(buffer);
	return 0;
}
