/*
 * fuzz_msgpack.c - the bytes are one MessagePack value.
 *
 * Skipping it and reading it head by head must agree about where it ends. Written again and
 * read again it must give the same bytes as written the first time.
 */
#include <string.h>

#include "wire/msgpack.h"
#include "must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_value(struct kvw_mp_out *out, const struct kvw_mp_value *value)
{
	switch (value->type) {
	case KVW_MP_NIL:
	case KVW_MP_EXT: /* the writer has none: leave a mark */
		kvw_mp_put_nil(out);
		break;
	case KVW_MP_BOOL:
		kvw_mp_put_bool(out, value->boolean);
		break;
	case KVW_MP_UINT:
		kvw_mp_put_uint(out, value->bits);
		break;
	case KVW_MP_NEGATIVE:
		MUST(value->bits >> 63 == 1);
		kvw_mp_put_int(out, (int64_t)value->bits);
		break;
	case KVW_MP_FLOAT:
		kvw_mp_put_real(out, value->real);
		break;
	case KVW_MP_STR:
		kvw_mp_put_str(out, value->bytes);
		break;
	case KVW_MP_BIN:
		kvw_mp_put_bin(out, value->bytes);
		break;
	case KVW_MP_ARRAY:
		kvw_mp_put_array(out, value->count);
		break;
	case KVW_MP_MAP:
		kvw_mp_put_map(out, value->count);
		break;
	}
}

/* One value of any depth, read head by head and written to out. False: it is broken. */
static bool copy_value(struct kvw_mp *mp, struct kvw_mp_out *out)
{
	struct kvw_mp_value value;
	uint64_t left = 1;

	while (left > 0) {
		const uint8_t *start = mp->at;

		if (kvw_mp_next(mp, &value) != KVW_OK) {
			MUST(mp->at == start && mp->error != NULL);
			return false;
		}
		MUST(mp->at > start && mp->at <= mp->end);
		left--;
		if (value.type == KVW_MP_ARRAY || value.type == KVW_MP_MAP)
			left += (uint64_t)value.count << (value.type == KVW_MP_MAP);
		if (value.type == KVW_MP_ARRAY || value.type == KVW_MP_MAP)
			MUST(value.count <= kvw_mp_left(mp));
		put_value(out, &value);
	}
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t room = 3 * size + 16; /* a float of 5 bytes becomes 9 */
	uint8_t *first = malloc(room), *second = malloc(room);
	struct kvw_mp walk, skip, again;
	struct kvw_mp_out out, out2;
	enum kvw_err err;

	MUST(first != NULL && second != NULL);
	kvw_mp_init(&walk, data, size);
	kvw_mp_init(&skip, data, size);
	kvw_mp_out_init(&out, first, room);
	err = kvw_mp_skip(&skip);
	if (copy_value(&walk, &out)) {
		MUST(err == KVW_OK || err == KVW_ELIMIT);
		MUST(err != KVW_OK || skip.at == walk.at);
		MUST(!out.full);
		kvw_mp_init(&again, first, out.len);
		kvw_mp_out_init(&out2, second, room);
		MUST(copy_value(&again, &out2) && kvw_mp_left(&again) == 0);
		MUST(out.len == out2.len && memcmp(first, second, out.len) == 0);
	} else {
		MUST(err != KVW_OK && skip.at == data);
	}
	free(second);
	free(first);
	return 0;
}
