/*
 * block_test.c - blocks, chains and cursors against a plain array of bytes.
 */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "tests/unit/suite.h"

#define MODEL_BYTES ((size_t)1 << 20)
#define MANY_IOV    256

/* Cheap, seeded, good enough for tests. */
static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* A chain, a cursor in it, and what both must show. */
struct model {
	struct kvw_block_pool pool;
	struct kvw_chain chain;
	struct kvw_cursor cursor;
	char *bytes; /* [begin, end) is in the chain */
	size_t begin, end;
	size_t seen; /* where the cursor stands; begin <= seen <= end */
	bool cursor_set;
};

/* Joins what iov shows into out. Returns the length. */
static size_t gather(const struct iovec *iov, int count, char *out)
{
	size_t len = 0;

	for (int i = 0; i < count; i++) {
		ck_assert_uint_gt(iov[i].iov_len, 0);
		memcpy(out + len, iov[i].iov_base, iov[i].iov_len);
		len += iov[i].iov_len;
	}
	return len;
}

static void check_model(struct model *m)
{
	static char shown[MODEL_BYTES];
	struct iovec iov[MANY_IOV];
	size_t len = gather(iov, kvw_chain_iov(&m->chain, iov, MANY_IOV), shown);
	size_t blocks = 0, used = 0;

	ck_assert_uint_eq(m->chain.bytes, m->end - m->begin);
	ck_assert_uint_eq(len, m->end - m->begin);
	ck_assert(memcmp(shown, m->bytes + m->begin, len) == 0);
	for (const struct kvw_block *b = m->chain.first; b != NULL; b = b->next) {
		blocks++;
		used += kvw_block_used(b);
		ck_assert(b->next != NULL || b == m->chain.last);
		ck_assert(b->begin <= b->end && b->end <= b->size);
	}
	ck_assert_uint_eq(used, m->chain.bytes);
	ck_assert((blocks == 0) == (m->chain.last == NULL));
	if (!m->cursor_set)
		return;
	len = gather(iov, kvw_cursor_iov(&m->cursor, iov, MANY_IOV), shown);
	ck_assert_uint_eq(len, m->end - m->seen);
	ck_assert(memcmp(shown, m->bytes + m->seen, len) == 0);
}

static void append(struct model *m, uint64_t *state)
{
	size_t n =
		random_next(state) % 3 == 0 ? random_next(state) % 90000 : random_next(state) % 200;

	if (m->end + n > MODEL_BYTES)
		n = MODEL_BYTES - m->end;
	ck_assert_int_eq(kvw_chain_append(&m->chain, &m->pool, m->bytes + m->end, n), KVW_OK);
	m->end += n;
	if (!m->cursor_set && m->chain.first != NULL) {
		m->cursor = (struct kvw_cursor){m->chain.first, m->chain.first->begin};
		m->seen = m->begin;
		m->cursor_set = true;
	}
}

/* A block from outside the chain, partly filled, as a read leaves it. */
static void take(struct model *m, uint64_t *state)
{
	struct kvw_block *block = kvw_block_get(
		&m->pool, random_next(state) % 2 == 0 ? KVW_BLOCK_SMALL : KVW_BLOCK_LARGE);
	size_t n = random_next(state) % block->size;

	if (m->end + n > MODEL_BYTES)
		n = MODEL_BYTES - m->end;
	memcpy(block->data, m->bytes + m->end, n);
	block->end = (uint32_t)n;
	m->end += n;
	kvw_chain_take(&m->chain, block);
}

/* Bytes that the cursor has not passed stay, as they do in the proxy. */
static void consume(struct model *m, uint64_t *state)
{
	size_t limit = m->cursor_set ? m->seen - m->begin : m->end - m->begin;
	size_t n = limit == 0 ? 0 : random_next(state) % (limit + 1);

	m->cursor_set = false; /* it may have stood at the end of a block that goes */
	kvw_chain_consume(&m->chain, &m->pool, n);
	m->begin += n;
}

static void advance(struct model *m, uint64_t *state)
{
	size_t n = random_next(state) % (m->end - m->seen + 1);

	kvw_cursor_advance(&m->cursor, n);
	m->seen += n;
}

START_TEST(chain_and_cursor_show_what_was_appended)
{
	static char bytes[MODEL_BYTES];
	uint64_t state = UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)_i;
	struct model m = {.bytes = bytes};

	for (size_t i = 0; i < MODEL_BYTES; i++)
		bytes[i] = (char)random_next(&state);
	while (m.end < MODEL_BYTES) {
		switch (random_next(&state) % 8) {
		case 0:
			take(&m, &state);
			break;
		case 1:
			consume(&m, &state);
			break;
		case 2:
		case 3:
			if (m.cursor_set)
				advance(&m, &state);
			break;
		default:
			append(&m, &state);
		}
		check_model(&m);
	}
	kvw_chain_clear(&m.chain, &m.pool);
	ck_assert_uint_eq(m.chain.bytes, 0);
	ck_assert_ptr_null(m.chain.first);
	ck_assert_ptr_null(m.chain.last);
	kvw_block_pool_finish(&m.pool);
}
END_TEST

START_TEST(cursor_at_the_end_sees_what_comes_later)
{
	struct kvw_block_pool pool = {0};
	struct kvw_chain chain = {0};
	struct kvw_cursor cursor;
	struct iovec iov[4];
	char full[KVW_BLOCK_SMALL - sizeof(struct kvw_block)];

	memset(full, 'f', sizeof(full));
	ck_assert_int_eq(kvw_chain_append(&chain, &pool, full, sizeof(full)), KVW_OK);
	ck_assert_uint_eq(kvw_block_room(chain.last), 0);
	cursor = (struct kvw_cursor){chain.first, chain.first->begin};
	kvw_cursor_advance(&cursor, sizeof(full));
	ck_assert_int_eq(kvw_cursor_iov(&cursor, iov, 4), 0);
	ck_assert_int_eq(kvw_chain_append(&chain, &pool, "next", 4), KVW_OK);
	ck_assert_int_eq(kvw_cursor_iov(&cursor, iov, 4), 1);
	ck_assert_uint_eq(iov[0].iov_len, 4);
	ck_assert(memcmp(iov[0].iov_base, "next", 4) == 0);
	kvw_cursor_advance(&cursor, 4);
	ck_assert_int_eq(kvw_cursor_iov(&cursor, iov, 4), 0);
	kvw_chain_clear(&chain, &pool);
	kvw_block_pool_finish(&pool);
}
END_TEST

START_TEST(iov_stops_at_its_limit)
{
	struct kvw_block_pool pool = {0};
	struct kvw_chain chain = {0};
	struct iovec iov[3] = {{0}};

	for (int i = 0; i < 5; i++) {
		struct kvw_block *block = kvw_block_get(&pool, KVW_BLOCK_SMALL);

		block->data[0] = (char)('a' + i);
		block->end = 1;
		kvw_chain_take(&chain, block);
	}
	ck_assert_int_eq(kvw_chain_iov(&chain, iov, 2), 2);
	ck_assert_int_eq(((char *)iov[0].iov_base)[0], 'a');
	ck_assert_int_eq(((char *)iov[1].iov_base)[0], 'b');
	ck_assert_ptr_null(iov[2].iov_base);
	kvw_chain_clear(&chain, &pool);
	kvw_block_pool_finish(&pool);
}
END_TEST

START_TEST(block_returned_last_comes_first_and_empty)
{
	struct kvw_block_pool pool = {0};
	struct kvw_block *small = kvw_block_get(&pool, 100);
	struct kvw_block *large = kvw_block_get(&pool, KVW_BLOCK_SMALL + 1);

	ck_assert_uint_eq(small->size + sizeof(*small), KVW_BLOCK_SMALL);
	ck_assert_uint_eq(large->size + sizeof(*large), KVW_BLOCK_LARGE);
	small->begin = 3;
	small->end = 7;
	small->next = large;
	kvw_block_put(&pool, small);
	kvw_block_put(&pool, large);
	ck_assert_ptr_eq(kvw_block_get(&pool, KVW_BLOCK_SMALL), small);
	ck_assert_uint_eq(small->begin, 0);
	ck_assert_uint_eq(small->end, 0);
	ck_assert_ptr_null(small->next);
	ck_assert_ptr_eq(kvw_block_get(&pool, KVW_BLOCK_LARGE), large);
	kvw_block_put(&pool, small);
	kvw_block_put(&pool, large);
	kvw_block_put(&pool, NULL);
	kvw_block_pool_finish(&pool);
}
END_TEST

/* Those of the slab and those beyond it: each its own memory, aligned, and whole. */
START_TEST(blocks_do_not_overlap)
{
	enum { COUNT = 700 };
	static struct kvw_block *blocks[2 * COUNT];
	struct kvw_block_pool pool = {0};

	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < 2 * COUNT; i++) {
			blocks[i] = kvw_block_get(&pool, i % 2 ? KVW_BLOCK_LARGE : KVW_BLOCK_SMALL);
			ck_assert_uint_eq((uintptr_t)blocks[i]->data % 64, 0);
			memset(blocks[i]->data, (int)(i * 7 % 251), blocks[i]->size);
			blocks[i]->end = i;
		}
		for (unsigned i = 0; i < 2 * COUNT; i++) {
			const char *data = blocks[i]->data;

			ck_assert_uint_eq(blocks[i]->end, i);
			ck_assert_int_eq((unsigned char)data[0], (int)(i * 7 % 251));
			ck_assert_int_eq(memcmp(data, data + 1, blocks[i]->size - 1), 0);
			kvw_block_put(&pool, blocks[i]);
		}
	}
	kvw_block_pool_finish(&pool);
}
END_TEST

START_TEST(pool_keeps_a_bounded_number_of_free_blocks)
{
	enum { COUNT = 3000 };
	struct kvw_block_pool pool = {0};
	struct kvw_block *blocks[COUNT];

	for (size_t size = KVW_BLOCK_SMALL; size <= KVW_BLOCK_LARGE;
		size += KVW_BLOCK_LARGE - KVW_BLOCK_SMALL) {
		for (size_t i = 0; i < COUNT; i++)
			blocks[i] = kvw_block_get(&pool, size);
		for (size_t i = 0; i < COUNT; i++)
			kvw_block_put(&pool, blocks[i]);
	}
	ck_assert_uint_le(pool.small.kept * KVW_BLOCK_SMALL, (size_t)8 << 20);
	ck_assert_uint_le(pool.large.kept * KVW_BLOCK_LARGE, (size_t)8 << 20);
	ck_assert_uint_gt(pool.small.kept, 0);
	ck_assert_uint_gt(pool.large.kept, 0);
	kvw_block_pool_finish(&pool);
	ck_assert_ptr_null(pool.small.free);
	ck_assert_ptr_null(pool.large.free);
}
END_TEST

/* --- replacing --- */

static void fill_chain(struct kvw_chain *chain, struct kvw_block_pool *pool, const char *bytes, size_t len,
	uint64_t *state)
{
	while (len > 0) {
		size_t size = random_next(state) % 2 == 0 ? KVW_BLOCK_SMALL : KVW_BLOCK_LARGE;
		struct kvw_block *block = kvw_block_get(pool, size);
		size_t room = block->size - 100, n;

		ck_assert_ptr_nonnull(block);
		block->begin = block->end = (uint32_t)(random_next(state) % 100);
		n = random_next(state) % 3 == 0 ? random_next(state) % room : block->size - block->end;
		n = n < len ? n : len;
		memcpy(block->data + block->begin, bytes, n);
		block->end += (uint32_t)n;
		kvw_chain_take(chain, block);
		bytes += n;
		len -= n;
	}
}

START_TEST(replacing_does_what_it_does_to_an_array)
{
	static char bytes[MODEL_BYTES], shown[MODEL_BYTES], text[KVW_BLOCK_SMALL / 2];
	uint64_t state = 0x9e3779b97f4a7c15u * (uint64_t)(_i + 1);
	struct kvw_block_pool pool = {0};
	struct kvw_chain chain = {0};
	size_t len = random_next(&state) % 300000 + 1;

	for (size_t i = 0; i < len; i++)
		bytes[i] = (char)random_next(&state);
	fill_chain(&chain, &pool, bytes, len, &state);
	for (int round = 0; round < 40; round++) {
		struct kvw_cursor cursor = {chain.first, chain.first->begin};
		struct iovec iov[MANY_IOV];
		size_t at = random_next(&state) % len;
		size_t removed = random_next(&state) % (round % 4 == 0 ? len - at + 1 : 60);
		size_t added = random_next(&state) % (round % 3 == 0 ? sizeof(text) + 1 : 60);

		removed = removed < len - at ? removed : len - at - 1; /* something stays */
		for (size_t i = 0; i < added; i++)
			text[i] = (char)random_next(&state);
		kvw_cursor_advance(&cursor, at);
		ck_assert_int_eq(kvw_chain_replace(&chain, &pool, &cursor, removed,
					 (struct kvw_slice){added == 0 ? NULL : text, added}),
			KVW_OK);
		memmove(bytes + at + added, bytes + at + removed, len - at - removed);
		memcpy(bytes + at, text, added);
		len = len - removed + added;
		ck_assert_uint_eq(gather(iov, kvw_chain_iov(&chain, iov, MANY_IOV), shown), len);
		ck_assert(memcmp(shown, bytes, len) == 0);
		ck_assert_uint_eq(chain.bytes, len);
		ck_assert_ptr_null(chain.last->next);
	}
	kvw_chain_clear(&chain, &pool);
	kvw_block_pool_finish(&pool);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("block");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, chain_and_cursor_show_what_was_appended, 0, 20);
	tcase_add_loop_test(tcase, replacing_does_what_it_does_to_an_array, 0, 50);
	tcase_add_test(tcase, cursor_at_the_end_sees_what_comes_later);
	tcase_add_test(tcase, iov_stops_at_its_limit);
	tcase_add_test(tcase, block_returned_last_comes_first_and_empty);
	tcase_add_test(tcase, blocks_do_not_overlap);
	tcase_add_test(tcase, pool_keeps_a_bounded_number_of_free_blocks);
	return run_tcase("block", tcase);
}
