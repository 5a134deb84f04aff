/*
 * text.c - hashes text in the rare and short cases that the inner loops of text_kernel.h leave.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "openai/text.h"

void kvw_text_all_ops(const struct kvw_text_ops *all[KVW_TEXT_OPS_MOST])
{
	size_t count = 0;

#ifdef KVW_HAVE_AVX512
	if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
		__builtin_cpu_supports("bmi2"))
		all[count++] = &kvw_text_avx512;
#endif
#ifdef KVW_HAVE_AVX2
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"))
		all[count++] = &kvw_text_avx2;
#endif
	all[count++] = &kvw_text_base;
	all[count] = NULL;
}

const struct kvw_text_ops *kvw_text_ops(void)
{
	const struct kvw_text_ops *all[KVW_TEXT_OPS_MOST];

	kvw_text_all_ops(all);
	return all[0];
}

void kvw_text_push_slow(struct kvw_text *text, uint64_t hash, uint32_t units)
{
	size_t capacity = text->piece_capacity == 0 ? 64 : text->piece_capacity * 2;
	struct kvw_piece *pieces;

	if (text->too_many || text->no_memory)
		return;
	if (text->piece_count >= text->piece_limit) {
		text->too_many = true;
		return;
	}
	pieces = realloc(text->pieces, capacity * sizeof(*pieces));
	if (pieces == NULL) {
		text->no_memory = true;
		return;
	}
	text->pieces = pieces;
	text->piece_capacity = capacity;
	kvw_text_push(text, hash, units);
}

/* Hashes the first `len` bytes of the buffer as one chunk. */
static void flush_text(struct kvw_text *text, size_t len, uint32_t units)
{
	kvw_text_emit(text, XXH3_64bits(text->buffer, len), units);
}

void kvw_text_put(struct kvw_text *text, const unsigned char *bytes, size_t len)
{
	if (text->mode == KVW_TEXT_NOTHING)
		return;
	memcpy(text->buffer + text->fill, bytes, len);
	text->fill += (uint32_t)len;
	if (text->fill >= KVW_TEXT_CHUNK) {
		flush_text(text, KVW_TEXT_CHUNK, KVW_TEXT_CHUNK);
		text->fill -= (uint32_t)KVW_TEXT_CHUNK;
		memcpy(text->buffer, text->buffer + KVW_TEXT_CHUNK, text->fill);
	}
}

void kvw_text_put_id(struct kvw_text *text, uint32_t id)
{
	uint32_t little = htole32(id);

	memcpy(text->buffer + text->fill, &little, sizeof(little));
	text->fill += (uint32_t)sizeof(little);
	if (text->fill == KVW_TEXT_CHUNK) {
		flush_text(text, KVW_TEXT_CHUNK, KVW_TEXT_CHUNK / sizeof(little));
		text->fill = 0;
	}
}

uint64_t kvw_text_end(struct kvw_text *text)
{
	if (text->fill > 0)
		flush_text(text, text->fill, text->fill);
	text->fill = 0;
	return kvw_mix(text->value, text->units);
}

void kvw_text_cut(struct kvw_text *text)
{
	if (text->fill > 0)
		flush_text(text, text->fill, text->fill);
	text->fill = 0;
}

void kvw_text_end_ids(struct kvw_text *text)
{
	if (text->fill > 0)
		flush_text(text, text->fill, text->fill / (uint32_t)sizeof(uint32_t));
	text->fill = 0;
}

size_t kvw_text_utf8(unsigned char out[4], uint32_t code)
{
	if (code < 0x80) {
		out[0] = (unsigned char)code;
		return 1;
	}
	if (code < 0x800) {
		out[0] = (unsigned char)(0xc0 | code >> 6);
		out[1] = (unsigned char)(0x80 | (code & 0x3f));
		return 2;
	}
	if (code < 0x10000) {
		out[0] = (unsigned char)(0xe0 | code >> 12);
		out[1] = (unsigned char)(0x80 | (code >> 6 & 0x3f));
		out[2] = (unsigned char)(0x80 | (code & 0x3f));
		return 3;
	}
	out[0] = (unsigned char)(0xf0 | code >> 18);
	out[1] = (unsigned char)(0x80 | (code >> 12 & 0x3f));
	out[2] = (unsigned char)(0x80 | (code >> 6 & 0x3f));
	out[3] = (unsigned char)(0x80 | (code & 0x3f));
	return 4;
}

size_t kvw_text_spell(unsigned char out[6], uint32_t code)
{
	static const char short_form[0x20] = {
		['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
	static const char hex[] = "0123456789abcdef";

	if (code >= 0x20 && code != '"' && code != '\\')
		return kvw_text_utf8(out, code);
	out[0] = '\\';
	if (code >= 0x20 || short_form[code] != 0) {
		out[1] = (unsigned char)(code >= 0x20 ? (char)code : short_form[code]);
		return 2;
	}
	memcpy(out + 1, "u00", 3);
	out[4] = (unsigned char)hex[code >> 4];
	out[5] = (unsigned char)hex[code & 15];
	return 6;
}

static uint32_t hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return (uint32_t)(c - '0');
	c |= 0x20;
	if (c >= 'a' && c <= 'f')
		return (uint32_t)(c - 'a' + 10);
	return UINT32_C(0x10000);
}

uint32_t kvw_text_hex4(const char *p)
{
	uint32_t a = hex_digit(p[0]), b = hex_digit(p[1]), c = hex_digit(p[2]), d = hex_digit(p[3]);

	if ((a | b | c | d) > 15)
		return UINT32_MAX;
	return a << 12 | b << 8 | c << 4 | d;
}
