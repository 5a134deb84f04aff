/*
 * undumped.c - see undumped.h.
 *
 * OpenSSL takes no argument for its allocator, so the lists are the process's: one of each size, under a lock of its own,
 * and before them a few blocks that each thread keeps, by which nearly all calls need no lock. A thread that
 * ends gives its blocks back.
 *
 * A block's size stands in the 16 bytes before it. Blocks are cut from extents of 1 MiB, which stay.
 */
#include "base/undumped.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#define LEAST      32                /* bytes of the smallest size */
#define MOST       ((size_t)64 << 10)
#define SIZES      23                /* 32, 48, 64, 96, ... 64 KiB */
#define EXTENT     ((size_t)1 << 20)
#define KEPT_BYTES ((size_t)32 << 10) /* of one size, by one thread; at least a block */
#define KEPT_MOST  64
#define PAGE       ((size_t)4096)

/* Before each block. */
struct head {
	uint64_t size;  /* that may be used */
	uint64_t index; /* of its size; SIZES: pages of its own */
};
_Static_assert(sizeof(struct head) == 16, "blocks are aligned to 16 bytes");

/* A free block. */
struct unused {
	struct unused *next;
};

static struct {
	pthread_mutex_t lock;
	struct unused *free;
} lists[SIZES] = {[0 ... SIZES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

static struct {
	pthread_mutex_t lock;
	char *at, *end; /* of the extent that is being cut */
} extent = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local struct {
	struct unused *free;
	size_t count;
} kept[SIZES];
static _Thread_local bool known; /* this thread's blocks are given back when it ends */
static pthread_key_t at_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static size_t size_of(size_t index)
{
	return (index % 2 == 0 ? (size_t)LEAST : (size_t)LEAST + LEAST / 2) << index / 2;
}

/* The least size that has room; size is at most MOST. */
static size_t index_of(size_t size)
{
	size_t power, index;

	if (size <= LEAST)
		return 0;
	power = 63 - (size_t)__builtin_clzll(size - 1); /* 2^power < size <= 2^(power + 1) */
	index = 2 * (power - 5);
	return index + (size <= ((size_t)3 << (power - 1)) ? 1 : 2);
}

static size_t kept_most(size_t index)
{
	size_t most = KEPT_BYTES / size_of(index);

	return most > KEPT_MOST ? KEPT_MOST : most == 0 ? 1 : most;
}

/* --- pages --- */

void *kvw_undumped_map(size_t size)
{
	void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED)
		return NULL;
	(void)madvise(pages, size, MADV_DONTDUMP);
	return pages;
}

void kvw_undumped_unmap(void *pages, size_t size)
{
	(void)munmap(pages, size);
}

/* Bytes of the pages of a large block. */
static size_t pages_of(size_t size)
{
	return (size + 64 + PAGE - 1) / PAGE * PAGE;
}

static void *alloc_pages(size_t size)
{
	char *pages = size > SIZE_MAX / 2 ? NULL : kvw_undumped_map(pages_of(size));
	struct head *head;

	if (pages == NULL)
		return NULL;
	head = (struct head *)(pages + 64) - 1;
	*head = (struct head){.size = size, .index = SIZES};
	return pages + 64;
}

/* --- blocks --- */

/* A new one. NULL: out of memory. */
static struct unused *cut(size_t index)
{
	size_t size = size_of(index), align = size >= 2048 ? 64 : 16;
	struct unused *block = NULL;
	uintptr_t begin;

	pthread_mutex_lock(&extent.lock);
	begin = ((uintptr_t)extent.at + sizeof(struct head) + align - 1) / align * align;
	if (extent.at == NULL || begin + size > (uintptr_t)extent.end) {
		extent.at = kvw_undumped_map(EXTENT);
		extent.end = extent.at == NULL ? NULL : extent.at + EXTENT;
		begin = ((uintptr_t)extent.at + sizeof(struct head) + align - 1) / align * align;
	}
	if (extent.at != NULL) {
		block = (struct unused *)begin;
		((struct head *)block)[-1] = (struct head){.size = size, .index = index};
		extent.at = (char *)begin + size;
	}
	pthread_mutex_unlock(&extent.lock);
	return block;
}

/* Half of what a thread may keep, from the list of all to the thread's. */
static void fetch(size_t index)
{
	size_t most = (kept_most(index) + 1) / 2;

	pthread_mutex_lock(&lists[index].lock);
	while (kept[index].count < most && lists[index].free != NULL) {
		struct unused *block = lists[index].free;

		lists[index].free = block->next;
		block->next = kept[index].free;
		kept[index].free = block;
		kept[index].count++;
	}
	pthread_mutex_unlock(&lists[index].lock);
}

/* All but `left` of the thread's. */
static void give_back(size_t index, size_t left)
{
	pthread_mutex_lock(&lists[index].lock);
	while (kept[index].count > left) {
		struct unused *block = kept[index].free;

		kept[index].free = block->next;
		kept[index].count--;
		block->next = lists[index].free;
		lists[index].free = block;
	}
	pthread_mutex_unlock(&lists[index].lock);
}

/* Other functions that run at the thread's end may free after this one: then it runs again. */
static void end_thread(void *arg)
{
	(void)arg;
	known = false;
	for (size_t i = 0; i < SIZES; i++)
		give_back(i, 0);
}

static void make_key(void)
{
	(void)pthread_key_create(&at_end, end_thread);
}

static void know_thread(void)
{
	known = true;
	(void)pthread_once(&once, make_key);
	(void)pthread_setspecific(at_end, kept);
}

void *kvw_undumped_alloc(size_t size)
{
	struct unused *block;
	size_t index;

	if (SANITIZED)
		return malloc(size);
	if (size > MOST)
		return alloc_pages(size);
	index = index_of(size);
	if (kept[index].free == NULL)
		fetch(index);
	block = kept[index].free;
	if (block == NULL)
		return cut(index);
	kept[index].free = block->next;
	kept[index].count--;
	return block;
}

void kvw_undumped_free(void *block)
{
	struct unused *unused = block;
	struct head *head;
	size_t index;

	if (SANITIZED) {
		free(block);
		return;
	}
	if (block == NULL)
		return;
	head = (struct head *)block - 1;
	index = head->index;
	if (index == SIZES) {
		kvw_undumped_unmap((char *)block - 64, pages_of(head->size));
		return;
	}
	if (!known)
		know_thread();
	unused->next = kept[index].free;
	kept[index].free = unused;
	if (++kept[index].count > kept_most(index))
		give_back(index, kept_most(index) / 2);
}

void *kvw_undumped_realloc(void *block, size_t size)
{
	const struct head *head;
	void *larger;

	if (block == NULL)
		return kvw_undumped_alloc(size);
	if (size == 0) {
		kvw_undumped_free(block);
		return NULL;
	}
	if (SANITIZED)
		return realloc(block, size);
	head = (const struct head *)block - 1;
	if (size <= head->size && (head->index < SIZES || size >= head->size / 2))
		return block;
	larger = kvw_undumped_alloc(size);
	if (larger == NULL)
		return NULL;
	memcpy(larger, block, size < head->size ? size : head->size);
	kvw_undumped_free(block);
	return larger;
}

bool kvw_undumped_real(void)
{
	return !SANITIZED;
}
