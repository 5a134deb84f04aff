/*
 * block.c - see block.h. Nothing here costs more than a few loads and stores, save the first use
 * of a block, when the kernel hands out its pages.
 */
#include "block.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Free blocks kept per pool: 4 MiB of each size. */
#define SMALL_KEPT ((4u << 20) / KVW_BLOCK_SMALL)
#define LARGE_KEPT ((4u << 20) / KVW_BLOCK_LARGE)

struct kvw_block *kvw_block_get(struct kvw_block_pool *pool, size_t size)
{
	size_t total = size <= KVW_BLOCK_SMALL ? KVW_BLOCK_SMALL : KVW_BLOCK_LARGE;
	struct kvw_block **list = total == KVW_BLOCK_SMALL ? &pool->small_free : &pool->large_free;
	struct kvw_block *block = *list;

	if (block != NULL) {
		*list = block->next;
		if (total == KVW_BLOCK_SMALL)
			pool->small_count--;
		else
			pool->large_count--;
	} else {
		block = malloc(total);
		if (block == NULL)
			return NULL;
		block->size = (uint32_t)(total - sizeof(*block));
	}
	block->next = NULL;
	block->begin = block->end = 0;
	return block;
}

void kvw_block_put(struct kvw_block_pool *pool, struct kvw_block *block)
{
	if (block == NULL)
		return;
	if (block->size < KVW_BLOCK_SMALL) {
		if (pool->small_count < SMALL_KEPT) {
			block->next = pool->small_free;
			pool->small_free = block;
			pool->small_count++;
			return;
		}
	} else if (pool->large_count < LARGE_KEPT) {
		block->next = pool->large_free;
		pool->large_free = block;
		pool->large_count++;
		return;
	}
	free(block);
}

static void free_list(struct kvw_block *block)
{
	while (block != NULL) {
		struct kvw_block *next = block->next;

		free(block);
		block = next;
	}
}

void kvw_block_pool_finish(struct kvw_block_pool *pool)
{
	free_list(pool->small_free);
	free_list(pool->large_free);
	memset(pool, 0, sizeof(*pool));
}

void kvw_chain_take(struct kvw_chain *chain, struct kvw_block *block)
{
	block->next = NULL;
	if (chain->last == NULL)
		chain->first = block;
	else
		chain->last->next = block;
	chain->last = block;
	chain->bytes += kvw_block_used(block);
}

enum kvw_err kvw_chain_append(struct kvw_chain *chain, struct kvw_block_pool *pool,
	const char *data, size_t len)
{
	while (len > 0) {
		struct kvw_block *block = chain->last;
		size_t n;

		if (block == NULL || kvw_block_room(block) == 0) {
			block = kvw_block_get(pool, len);
			if (block == NULL)
				return KVW_ENOMEM;
			kvw_chain_take(chain, block);
		}
		n = kvw_block_room(block) < len ? kvw_block_room(block) : len;
		memcpy(block->data + block->end, data, n);
		block->end += (uint32_t)n;
		chain->bytes += n;
		data += n;
		len -= n;
	}
	return KVW_OK;
}

int kvw_chain_iov(const struct kvw_chain *chain, struct iovec *iov, int max)
{
	struct kvw_cursor cursor = {chain->first, chain->first == NULL ? 0 : chain->first->begin};

	return kvw_cursor_iov(&cursor, iov, max);
}

void kvw_chain_consume(struct kvw_chain *chain, struct kvw_block_pool *pool, size_t n)
{
	assert(n <= chain->bytes);
	chain->bytes -= n;
	while (chain->first != NULL) {
		struct kvw_block *block = chain->first;

		if (kvw_block_used(block) > n) {
			block->begin += (uint32_t)n;
			return;
		}
		n -= kvw_block_used(block);
		chain->first = block->next;
		if (chain->first == NULL)
			chain->last = NULL;
		kvw_block_put(pool, block);
		if (n == 0)
			return;
	}
}

void kvw_chain_clear(struct kvw_chain *chain, struct kvw_block_pool *pool)
{
	while (chain->first != NULL) {
		struct kvw_block *block = chain->first;

		chain->first = block->next;
		kvw_block_put(pool, block);
	}
	chain->last = NULL;
	chain->bytes = 0;
}

int kvw_cursor_iov(const struct kvw_cursor *cursor, struct iovec *iov, int max)
{
	const struct kvw_block *block = cursor->block;
	uint32_t offset = cursor->offset;
	int n = 0;

	while (block != NULL && n < max) {
		if (block->end > offset) {
			iov[n].iov_base = (char *)block->data + offset;
			iov[n].iov_len = block->end - offset;
			n++;
		}
		block = block->next;
		offset = block == NULL ? 0 : block->begin;
	}
	return n;
}

void kvw_cursor_advance(struct kvw_cursor *cursor, size_t n)
{
	while (n > 0) {
		size_t here = cursor->block->end - cursor->offset;

		if (n < here) {
			cursor->offset += (uint32_t)n;
			return;
		}
		n -= here;
		if (cursor->block->next == NULL) {
			assert(n == 0);
			cursor->offset = cursor->block->end;
			return;
		}
		cursor->block = cursor->block->next;
		cursor->offset = cursor->block->begin;
	}
}
