/*
 * sim_token.c - cutting text into tokens and back.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_token.h"

void kvb_tokens_free(struct kvb_tokens *tokens)
{
	free(tokens->ids);
	*tokens = (struct kvb_tokens){0};
}

void kvb_tokens_add(struct kvb_tokens *tokens, uint32_t id)
{
	if (tokens->count == tokens->cap) {
		tokens->cap = tokens->cap == 0 ? 256 : tokens->cap * 2;
		tokens->ids = kvb_realloc(tokens->ids, tokens->cap, sizeof(*tokens->ids));
	}
	tokens->ids[tokens->count++] = id;
}

/* Reads the character at the start of the text, and its length in bytes. */
static uint32_t take_char(const unsigned char *text, size_t len, size_t *used)
{
	unsigned char c = text[0];
	size_t more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc0 ? 1 : 0;
	uint32_t code = more == 3 ? c & 7u : more == 2 ? c & 15u : more == 1 ? c & 31u : c;

	*used = 1;
	if (more >= len)
		return c;
	for (size_t i = 1; i <= more; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return c;
		code = code << 6 | (text[i] & 63u);
	}
	*used = more + 1;
	return code;
}

static bool is_plain(unsigned char c)
{
	return c > 0 && c < 0x80;
}

static void add_plain(struct kvb_tokens *tokens, const char *text, size_t len)
{
	const unsigned char *s = (const unsigned char *)text;

	for (size_t i = 0; i < len;) {
		uint32_t id = 0;
		size_t used = 0;

		for (; used < 4 && i + used < len && is_plain(s[i + used]); used++)
			id = id << 7 | s[i + used];
		if (used == 0)
			id = KVB_TOKEN_WIDE + take_char(s + i, len - i, &used);
		kvb_tokens_add(tokens, id);
		i += used;
	}
}

void kvb_tokens_text(struct kvb_tokens *tokens, const char *text, size_t len)
{
	size_t size = tokens->separator == NULL ? 0 : strlen(tokens->separator);
	const char *end = text + len, *at;

	while (size > 0 && (at = memmem(text, (size_t)(end - text), tokens->separator, size)) != NULL) {
		add_plain(tokens, text, (size_t)(at - text));
		kvb_tokens_add(tokens, KVB_TOKEN_SEPARATOR);
		text = at + size;
	}
	add_plain(tokens, text, (size_t)(end - text));
}

static void write_char(struct kvb_buf *buf, uint32_t code)
{
	char out[4];
	size_t n = 0;

	if (code < 0x80) {
		out[n++] = (char)code;
	} else if (code < 0x800) {
		out[n++] = (char)(0xc0 | code >> 6);
	} else if (code < 0x10000) {
		out[n++] = (char)(0xe0 | code >> 12);
		out[n++] = (char)(0x80 | (code >> 6 & 63));
	} else {
		out[n++] = (char)(0xf0 | code >> 18);
		out[n++] = (char)(0x80 | (code >> 12 & 63));
		out[n++] = (char)(0x80 | (code >> 6 & 63));
	}
	if (code >= 0x80)
		out[n++] = (char)(0x80 | (code & 63));
	kvb_buf_add(buf, out, n);
}

void kvb_token_write(struct kvb_buf *buf, uint32_t id)
{
	if (id >= KVB_TOKEN_SPECIAL)
		return;
	if (id >= KVB_TOKEN_WIDE) {
		uint32_t code = id - KVB_TOKEN_WIDE;

		if (code <= 0x10ffff && (code < 0xd800 || code > 0xdfff))
			write_char(buf, code);
		return;
	}
	for (int shift = 21; shift >= 0; shift -= 7)
		if ((id >> shift & 127) != 0)
			write_char(buf, id >> shift & 127);
}
