/*
 * kernels_test.c - the inner loops of every instruction set take the same text in the same way.
 *
 * Long strings, because the wide ones hash many chunks before they look whether these are text: with few
 * escapes and many, at the edges of blocks, chunks and what is hashed ahead, cut anywhere, ended by a quote, a
 * broken escape, a control character or nothing. The loops for any processor say what is right.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "openai/text.h"
#include "tests/unit/suite.h"

#define ROUNDS      20000
#define MOST_BYTES  12000
#define MOST_PIECES 1000

struct taken {
	struct kvw_text text;
	size_t at; /* how far it came */
};

static uint64_t state = UINT64_C(0x9e3779b97f4a7c15);

static unsigned dice(unsigned below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned)(state >> 20) % below;
}

/* Letters with one of the first `kinds` specials in `rate` places. Returns the length. */
static size_t make_text(char *to, size_t length, unsigned rate, unsigned kinds)
{
	static const char *const specials[] = {
		"\\n", "\\\"", "\\\\", "\\t", "\\\\\\\\\\\"", "\\u00e9", "\\/", "\"", "\\x", "\n"};
	size_t at = 0;

	while (at < length) {
		const char *special = specials[dice(kinds)];

		if (dice(rate) != 0 || at + strlen(special) > length) {
			to[at++] = (char)('a' + dice(26));
			continue;
		}
		memcpy(to + at, special, strlen(special));
		at += strlen(special);
	}
	return length;
}

/* Up to `cut` first, then the rest, in memory of just that size. */
static void take(struct taken *taken, const struct kvw_text_ops *ops, enum kvw_text_mode mode,
	const char *bytes, size_t length, size_t cut)
{
	struct kvw_text *text = &taken->text;
	char *copy = malloc(length);
	const char *p;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, bytes, length);
	text->piece_count = 0;
	text->fields_only = text->too_many = text->no_memory = false;
	kvw_text_begin(text, mode);
	p = ops->run(text, copy, copy + cut);
	if (p == copy + cut || *p != '"')
		p = ops->run(text, p, copy + length);
	taken->at = (size_t)(p - copy);
	free(copy);
}

static void check_equal(const struct taken *a, const struct taken *b, const char *name)
{
	const struct kvw_text *x = &a->text, *y = &b->text;

	ck_assert_msg(a->at == b->at, "%s ended at %zu, expected %zu", name, a->at, b->at);
	ck_assert_uint_eq(x->fill, y->fill);
	ck_assert_uint_eq(x->value, y->value);
	ck_assert_uint_eq(x->units, y->units);
	ck_assert_uint_eq(x->piece_count, y->piece_count);
	ck_assert_mem_eq(x->buffer, y->buffer, y->fill);
	ck_assert_mem_eq(x->pieces, y->pieces, y->piece_count * sizeof(y->pieces[0]));
}

static void init(struct taken *taken)
{
	struct kvw_piece *pieces = calloc(MOST_PIECES, sizeof(*pieces));

	ck_assert_ptr_nonnull(pieces);
	taken->text.pieces = pieces;
	taken->text.piece_capacity = taken->text.piece_limit = MOST_PIECES;
}

START_TEST(all_kernels_agree)
{
	static const unsigned rates[] = {1, 3, 20, 300, 2000, 100000};
	static const enum kvw_text_mode modes[] = {
		KVW_TEXT_NOTHING, KVW_TEXT_VALUE, KVW_TEXT_PIECES};
	static char bytes[MOST_BYTES];
	static struct taken wanted, found;
	const struct kvw_text_ops *all[KVW_TEXT_OPS_MOST];
	size_t pieces = 0, quoted = 0;

	kvw_text_all_ops(all);
	init(&wanted);
	init(&found);
	for (unsigned round = 0; round < ROUNDS; round++) {
		size_t most = 1 + dice(dice(4) == 0 ? 700 : MOST_BYTES - 1);
		size_t length = make_text(bytes, most, rates[dice(6)], 2 + dice(9));
		size_t cut = dice(2) == 0 ? length : dice((unsigned)length);
		enum kvw_text_mode mode = modes[dice(3)];

		if (dice(3) == 0)
			bytes[length - 1] = dice(2) == 0 ? '"' : '\\';
		take(&wanted, &kvw_text_base, mode, bytes, length, cut);
		pieces += wanted.text.piece_count;
		quoted += wanted.at < length && bytes[wanted.at] == '"';
		for (unsigned i = 0; all[i] != NULL; i++) {
			take(&found, all[i], mode, bytes, length, cut);
			check_equal(&found, &wanted, all[i]->name);
		}
	}
	ck_assert_uint_gt(pieces, ROUNDS); /* or it was not about chunks */
	ck_assert_uint_gt(quoted, ROUNDS / 50);
	free(wanted.text.pieces);
	free(found.text.pieces);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, all_kernels_agree);
	return run_tcase("kernels", tcase);
}
