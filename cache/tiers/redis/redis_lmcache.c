/*
 * redis_lmcache.c - LMCache's metadata and our mark; redis_lmcache.h has the bytes.
 */
#include "tiers/redis/redis_lmcache.h"

#include <stdlib.h>
#include <string.h>

#include "tiers/bytes.h"

static const char magic[8] = "kvtmark1";

struct number {
	const char *name;
	int32_t value, too;
	uint32_t bytes;
};

/* torch.half and torch.float16 are one type with two numbers; LMCache writes the second. */
static const struct number dtypes[] = {
	{"half", 2, 1, 2},
	{"float16", 2, 1, 2},
	{"bfloat16", 3, 3, 2},
	{"float32", 4, 4, 4},
	{"float", 4, 4, 4},
	{"float64", 5, 5, 8},
	{"double", 5, 5, 8},
	{"uint8", 6, 6, 1},
	{"float8_e4m3fn", 7, 7, 1},
	{"float8_e5m2", 8, 8, 1},
	{NULL, 0, 0, 0},
};

static const struct number formats[] = {
	{"KV_2LTD", 1, 1, 0},
	{"KV_T2D", 2, 2, 0},
	{"KV_2TD", 3, 3, 0},
	{"KV_MLA_FMT", 6, 6, 0},
	{NULL, 0, 0, 0},
};

/* --- layout ------------------------------------------------------------------------------------ */

static const struct number *number_of(const struct number *list, const char *text, size_t len)
{
	for (; list->name != NULL; list++) {
		if (strlen(list->name) == len && memcmp(list->name, text, len) == 0)
			return list;
	}
	return NULL;
}

/* One dimension: a number, or '*' as 0. Returns what follows it, NULL: neither. */
static const char *read_dimension(const char *at, const char *end, int32_t *out)
{
	int64_t value = 0;

	if (at < end && *at == '*') {
		*out = 0;
		return at + 1;
	}
	if (at == end || *at < '1' || *at > '9')
		return NULL;
	for (; at < end && *at >= '0' && *at <= '9'; at++) {
		value = value * 10 + (*at - '0');
		if (value > INT32_MAX)
			return NULL;
	}
	*out = (int32_t)value;
	return at;
}

static bool read_shape(const char *at, size_t len, int32_t shape[4])
{
	const char *end = at + len;
	unsigned free_ones = 0;

	for (int i = 0; i < 4; i++) {
		if (i > 0 && (at == end || *at++ != ','))
			return false;
		at = read_dimension(at, end, &shape[i]);
		if (at == NULL)
			return false;
		free_ones += shape[i] == 0;
	}
	return at == end && free_ones == 1;
}

/* Bytes of one token; 0: more than any metadata can say. */
static uint64_t token_bytes(const struct lmcache_layout *l)
{
	uint64_t bytes = l->element_bytes;

	for (int i = 0; i < 4; i++) {
		if (l->shape[i] != 0)
			bytes *= (uint64_t)l->shape[i];
		if (bytes > INT32_MAX)
			return 0;
	}
	return bytes;
}

/* One word of the text. NULL: read. */
static const char *read_word(const char *word, size_t len, struct lmcache_layout *l)
{
	const struct number *found;

	if (len > 6 && memcmp(word, "dtype=", 6) == 0) {
		found = number_of(dtypes, word + 6, len - 6);
		if (found == NULL)
			return "dtype= one of float16, bfloat16, float32, float64, uint8, "
			       "float8_e4m3fn, float8_e5m2";
		l->dtype = found->value;
		l->dtype_too = found->too;
		l->element_bytes = found->bytes;
		return NULL;
	}
	if (len > 7 && memcmp(word, "format=", 7) == 0) {
		found = number_of(formats, word + 7, len - 7);
		if (found == NULL)
			return "format= one of KV_2LTD, KV_T2D, KV_2TD, KV_MLA_FMT";
		l->format = found->value;
		return NULL;
	}
	if (len > 6 && memcmp(word, "shape=", 6) == 0 && read_shape(word + 6, len - 6, l->shape))
		return NULL;
	return "dtype=..., format=... and shape= of four numbers, one of them *";
}

const char *lmcache_layout_parse(const char *text, struct lmcache_layout *out)
{
	struct lmcache_layout l = {.shape = {-1, -1, -1, -1}};

	while (*text != '\0') {
		size_t len = strcspn(text, " \t");
		const char *expected = len == 0 ? NULL : read_word(text, len, &l);

		if (expected != NULL)
			return expected;
		text += len;
		text += strspn(text, " \t");
	}
	if (l.dtype == 0 || l.format == 0 || l.shape[0] < 0)
		return "dtype=..., format=... and shape=..., all three";
	l.bytes_per_token = token_bytes(&l);
	if (l.bytes_per_token == 0)
		return "a shape of less than 2 GiB per token";
	*out = l;
	return NULL;
}

uint32_t lmcache_tokens(const struct lmcache_layout *l, uint64_t bytes)
{
	if (bytes == 0 || bytes > INT32_MAX || bytes % l->bytes_per_token != 0)
		return 0;
	return (uint32_t)(bytes / l->bytes_per_token);
}

/* --- metadata ---------------------------------------------------------------------------------- */

void lmcache_metadata_encode(
	const struct lmcache_layout *l, uint32_t tokens, uint8_t out[LMCACHE_METADATA])
{
	kvt_put32(out, (uint32_t)(tokens * l->bytes_per_token));
	kvt_put32(out + 4, (uint32_t)l->format);
	kvt_put32(out + 8, (uint32_t)l->dtype);
	for (int i = 0; i < 4; i++)
		kvt_put32(out + 12 + 4 * i, l->shape[i] == 0 ? tokens : (uint32_t)l->shape[i]);
}

enum kvt_status lmcache_metadata_decode(const struct lmcache_layout *l, const uint8_t *in,
	size_t len, uint64_t *bytes, uint32_t *tokens)
{
	int32_t numbers[7];
	uint32_t count;

	if (len != LMCACHE_METADATA)
		return KVT_EFORMAT;
	for (int i = 0; i < 7; i++)
		numbers[i] = (int32_t)kvt_get32(in + 4 * i);
	if (numbers[0] <= 0 || numbers[1] != l->format ||
		(numbers[2] != l->dtype && numbers[2] != l->dtype_too))
		return KVT_EFORMAT;
	count = lmcache_tokens(l, (uint64_t)numbers[0]);
	if (count == 0)
		return KVT_EFORMAT;
	for (int i = 0; i < 4; i++) {
		int64_t expected = l->shape[i] == 0 ? (int64_t)count : l->shape[i];

		if (numbers[3 + i] != expected)
			return KVT_EFORMAT;
	}
	*bytes = (uint64_t)numbers[0];
	*tokens = count;
	return KVT_OK;
}

/* --- mark -------------------------------------------------------------------------------------- */

void redis_mark_encode(const struct redis_mark *m, uint8_t out[REDIS_MARK])
{
	memset(out, 0, REDIS_MARK);
	memcpy(out, magic, sizeof(magic));
	out[8] = 1;
	kvt_put32(out + 12, REDIS_MARK);
	memcpy(out + 32, m->key.bytes, 32);
	memcpy(out + 64, m->fingerprint.bytes, 32);
	memcpy(out + 96, m->parent.bytes, 32);
	memcpy(out + 128, m->tenant.bytes, 16);
	kvt_put64(out + 144, m->bytes);
	kvt_put64(out + 152, m->epoch);
	kvt_put64(out + 160, m->tenant_epoch);
	kvt_put64(out + 168, m->ttl_ns);
	kvt_put64(out + 176, m->checksum.low);
	kvt_put64(out + 184, m->checksum.high);
	kvt_put32(out + 192, m->tokens);
	kvt_put32(out + 196, m->has_parent ? 1 : 0);
	kvt_bytes_stamp(out, REDIS_MARK, 0);
}

enum kvt_status redis_mark_decode(const uint8_t *in, size_t len, struct redis_mark *out)
{
	if (len != REDIS_MARK || memcmp(in, magic, sizeof(magic)) != 0)
		return KVT_ECORRUPT;
	if (!kvt_bytes_prove(in, REDIS_MARK, 0) || kvt_get32(in + 12) != REDIS_MARK)
		return KVT_ECORRUPT;
	if (kvt_get16(in + 8) != 1)
		return KVT_EFORMAT;
	memcpy(out->key.bytes, in + 32, 32);
	memcpy(out->fingerprint.bytes, in + 64, 32);
	memcpy(out->parent.bytes, in + 96, 32);
	memcpy(out->tenant.bytes, in + 128, 16);
	out->bytes = kvt_get64(in + 144);
	out->epoch = kvt_get64(in + 152);
	out->tenant_epoch = kvt_get64(in + 160);
	out->ttl_ns = kvt_get64(in + 168);
	out->checksum.low = kvt_get64(in + 176);
	out->checksum.high = kvt_get64(in + 184);
	out->tokens = kvt_get32(in + 192);
	out->has_parent = (kvt_get32(in + 196) & 1) != 0;
	return KVT_OK;
}
