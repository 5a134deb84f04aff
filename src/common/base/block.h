/*
 * block.h - buffers of an event loop: recycled blocks, and chains of them.
 *
 * Two sizes: small blocks hold a head and a short body, large blocks the rest of the body. A loop's
 * pool hands out the block that was returned last, which is still in the processor's cache. The
 * first blocks of each size lie in one slab of huge pages (the kernel copies every body into and
 * out of them, and with pages of 4 KiB would walk the page tables for each); they stay until the
 * pool ends. Beyond them a bounded number of free blocks is kept.
 *
 * Threads: a pool and all its blocks belong to one loop.
 */
#ifndef KVW_BLOCK_H
#define KVW_BLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "kvway/err.h"
#include "kvway/slice.h"

#define KVW_BLOCK_SMALL ((size_t)8 << 10)  /* bytes of a block, with the header below */
#define KVW_BLOCK_LARGE ((size_t)64 << 10)

/* A block. The bytes [begin, end) of its data are in use. */
struct kvw_block {
	struct kvw_block *next;
	uint32_t size; /* bytes of data */
	uint32_t begin, end;
	_Alignas(64) char data[];
};

/* Blocks of one size. */
struct kvw_block_list {
	struct kvw_block *free;
	size_t kept; /* number of free blocks outside of the slab */
	char *slab, *end;
	char *unused; /* start of that part of the slab that was never handed out */
};

/* Zeroed means empty. */
struct kvw_block_pool {
	struct kvw_block_list small, large;
};

/* A list of blocks, in order. All zeroes: an empty chain. */
struct kvw_chain {
	struct kvw_block *first, *last;
	size_t bytes; /* number of bytes between begin and end of all blocks */
};

/* A position in a chain: the next byte to send. block NULL: at the end. */
struct kvw_cursor {
	struct kvw_block *block;
	uint32_t offset; /* into block->data */
};

/* Returns an empty block of at least KVW_BLOCK_SMALL or KVW_BLOCK_LARGE bytes; NULL: memory is
 * short. */
struct kvw_block *kvw_block_get(struct kvw_block_pool *pool, size_t size);
void kvw_block_put(struct kvw_block_pool *pool, struct kvw_block *block); /* NULL is allowed */
void kvw_block_pool_finish(struct kvw_block_pool *pool);

static inline size_t kvw_block_room(const struct kvw_block *block)
{
	return block->size - block->end;
}

static inline size_t kvw_block_used(const struct kvw_block *block)
{
	return block->end - block->begin;
}

/* Appends the block, which belongs to the chain from now on. */
void kvw_chain_take(struct kvw_chain *chain, struct kvw_block *block);

/* Copies bytes to the chain's end. After KVW_ENOMEM some of the bytes may have been appended. */
enum kvw_err kvw_chain_append(struct kvw_chain *chain, struct kvw_block_pool *pool,
	const char *data, size_t len) KVW_MUST_CHECK;

/* Lists the chain's bytes from the front, as at most `max` pieces. Returns the number of pieces. */
int kvw_chain_iov(const struct kvw_chain *chain, struct iovec *iov, int max);

/* Drops n bytes, at most chain->bytes, from the front; blocks that become empty return to the
 * pool. */
void kvw_chain_consume(struct kvw_chain *chain, struct kvw_block_pool *pool, size_t n);
void kvw_chain_clear(struct kvw_chain *chain, struct kvw_block_pool *pool);
/* Overwrites every byte that the chain's blocks have held. To be called before kvw_chain_clear, for
 * secrets. */
void kvw_chain_wipe(struct kvw_chain *chain);

/*
 * Replaces the `removed` bytes from the cursor on, which the chain must have, by `text`. Later
 * bytes of the block move within it; at most text.len bytes without room move into a new block.
 * Other cursors into these blocks become invalid. text.len is at most KVW_BLOCK_SMALL / 2.
 * KVW_ENOMEM leaves the chain as it was.
 */
enum kvw_err kvw_chain_replace(struct kvw_chain *chain, struct kvw_block_pool *pool,
	const struct kvw_cursor *at, size_t removed, struct kvw_slice text) KVW_MUST_CHECK;

/* Lists the bytes from the cursor on, as at most `max` pieces; the chain is not changed. */
int kvw_cursor_iov(const struct kvw_cursor *cursor, struct iovec *iov, int max);
void kvw_cursor_advance(struct kvw_cursor *cursor, size_t n);

#endif
