/*
 * block.c - hands out blocks, keeps returned ones, and chains blocks. Every operation costs a few
 * loads and stores, except the first use of a block, when the kernel maps its pages.
 */
#include "base/block.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

/* Length of a slab, and most bytes of free blocks outside of it that are kept. Under a sanitizer
 * there is no slab: every block is allocated and freed. */
#define KEPT ((size_t)4 << 20)
#if defined(__SANITIZE_ADDRESS__)
#define SLAB ((size_t)0)
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLAB ((size_t)0)
#endif
#endif
#ifndef SLAB
#define SLAB ((size_t)4 << 20)
#endif

/* Returns the distance between two blocks of a slab. It is no power of two: with one, the starts of
 * all blocks, which are used most, would share a few cache sets. */
static size_t stride(size_t total)
{
	return total + total / 16 / 64 * 64 + 64;
}

/* NULL: out of memory. */
static void *map_pages(size_t size)
{
	void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return pages == MAP_FAILED ? NULL : pages;
}

/* Large blocks outside of the slab are mapped, not from malloc, so that freeing returns their pages
 * to the system. */
static struct kvw_block *alloc_block(size_t total)
{
	return total == KVW_BLOCK_LARGE && SLAB > 0
		       ? map_pages(total)
		       : aligned_alloc(_Alignof(struct kvw_block), total);
}

static void free_block(struct kvw_block *block)
{
	size_t total = block->size + sizeof(*block);

	if (total == KVW_BLOCK_LARGE && SLAB > 0)
		(void)munmap(block, total);
	else
		free(block);
}

/* Maps a slab, aligned to huge pages. If there is no memory, the list works without it. The kernel
 * provides the pages when they are first used. */
static void open_slab(struct kvw_block_list *list)
{
	char *memory;
	uintptr_t begin;

	if (SLAB == 0)
		return;
	memory = map_pages(SLAB + HUGE_PAGE);
	if (memory == NULL)
		return;
	begin = ((uintptr_t)memory + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	if (begin > (uintptr_t)memory)
		(void)munmap(memory, begin - (uintptr_t)memory);
	if (begin < (uintptr_t)memory + HUGE_PAGE)
		(void)munmap((char *)begin + SLAB, (uintptr_t)memory + HUGE_PAGE - begin);
	list->slab = list->unused = (char *)begin;
	list->end = list->slab + SLAB;
	(void)madvise(list->slab, SLAB, MADV_HUGEPAGE); /* else small pages */
}

static bool in_slab(const struct kvw_block_list *list, const struct kvw_block *block)
{
	return (uintptr_t)block >= (uintptr_t)list->slab && (uintptr_t)block < (uintptr_t)list->end;
}

static struct kvw_block *new_block(struct kvw_block_list *list, size_t total)
{
	struct kvw_block *block;

	if (list->slab == NULL)
		open_slab(list);
	if ((size_t)(list->end - list->unused) >= stride(total)) {
		block = (struct kvw_block *)list->unused;
		list->unused += stride(total);
	} else {
		block = alloc_block(total);
	}
	if (block != NULL)
		block->size = (uint32_t)(total - sizeof(*block));
	return block;
}

struct kvw_block *kvw_block_get(struct kvw_block_pool *pool, size_t size)
{
	bool is_small = size <= KVW_BLOCK_SMALL;
	struct kvw_block_list *list = is_small ? &pool->small : &pool->large;
	struct kvw_block *block = list->free;

	if (block != NULL) {
		list->free = block->next;
		list->kept -= !in_slab(list, block);
	} else {
		block = new_block(list, is_small ? KVW_BLOCK_SMALL : KVW_BLOCK_LARGE);
		if (block == NULL)
			return NULL;
	}
	block->next = NULL;
	block->begin = block->end = 0;
	return block;
}

void kvw_block_put(struct kvw_block_pool *pool, struct kvw_block *block)
{
	struct kvw_block_list *list;

	if (block == NULL)
		return;
	list = block->size < KVW_BLOCK_SMALL ? &pool->small : &pool->large;
	if (!in_slab(list, block)) {
		if (list->kept * (block->size + sizeof(*block)) >= KEPT) {
			free_block(block);
			return;
		}
		list->kept++;
	}
	block->next = list->free;
	list->free = block;
}

static void finish_list(struct kvw_block_list *list)
{
	while (list->free != NULL) {
		struct kvw_block *block = list->free;

		list->free = block->next;
		if (!in_slab(list, block))
			free_block(block);
	}
	if (list->slab != NULL)
		(void)munmap(list->slab, SLAB);
	memset(list, 0, sizeof(*list));
}

void kvw_block_pool_finish(struct kvw_block_pool *pool)
{
	finish_list(&pool->small);
	finish_list(&pool->large);
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

/* Moves bytes that do not fit into `block` to `fresh`, the block after it: first the end of the
 * text, then the rest of the block's former bytes. Returns how many bytes of the text went
 * there. */
static size_t move_over(struct kvw_block *block, struct kvw_block *fresh, size_t over, size_t rest,
	struct kvw_slice text)
{
	size_t of_rest = over < rest ? over : rest, of_text = over - of_rest;

	memcpy(fresh->data, text.data + text.len - of_text, of_text);
	memcpy(fresh->data + of_text, block->data + block->end - of_rest, of_rest);
	block->end -= (uint32_t)of_rest;
	fresh->end = (uint32_t)over;
	return of_text;
}

enum kvw_err kvw_chain_replace(struct kvw_chain *chain, struct kvw_block_pool *pool,
	const struct kvw_cursor *at, size_t removed, struct kvw_slice text)
{
	struct kvw_block *block = at->block, *fresh = NULL, *next;
	size_t tail = block->end - at->offset, here = removed < tail ? removed : tail;
	size_t rest = tail - here, room = block->size - at->offset, len = text.len;

	assert(len <= KVW_BLOCK_SMALL / 2);
	if (len + rest > room) {
		fresh = kvw_block_get(pool, len + rest - room);
		if (fresh == NULL)
			return KVW_ENOMEM;
		len -= move_over(block, fresh, len + rest - room, rest, text);
		rest = block->end - at->offset - here;
		fresh->next = block->next;
		block->next = fresh;
		if (chain->last == block)
			chain->last = fresh;
	}
	memmove(block->data + at->offset + len, block->data + at->offset + here, rest);
	if (len > 0)
		memcpy(block->data + at->offset, text.data, len);
	block->end = at->offset + (uint32_t)(len + rest);
	chain->bytes += text.len;
	chain->bytes -= removed;
	removed -= here;
	for (next = fresh != NULL ? fresh->next : block->next; removed > 0; next = next->next) {
		size_t n = kvw_block_used(next) < removed ? kvw_block_used(next) : removed;

		next->begin += (uint32_t)n;
		removed -= n;
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

void kvw_chain_wipe(struct kvw_chain *chain)
{
	for (struct kvw_block *block = chain->first; block != NULL; block = block->next)
		explicit_bzero(block->data, block->end);
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
