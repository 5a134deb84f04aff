/*
 * events_support.c - surroundings that a test owns, and blocks to report.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "events_support.h"

static int64_t now_ns(void *self)
{
	return ((struct world *)self)->now_ns;
}

static int64_t wall_ns(void *self)
{
	return ((struct world *)self)->wall_ns;
}

static void keep_line(void *self, uint32_t level, const char *line)
{
	struct world *world = self;
	size_t len = strlen(world->lines);

	(void)level;
	snprintf(world->lines + len, sizeof(world->lines) - len, "%s\n", line);
}

void world_init(struct world *world)
{
	*world = (struct world){.now_ns = 1000, .wall_ns = INT64_C(1700000000250000000)};
	world->s.clock = (struct kvt_clock){now_ns, wall_ns, world};
	world->s.log = keep_line;
	world->s.log_self = world;
}

static uint8_t byte_of(uint64_t number, uint64_t i)
{
	uint64_t x = (number * 1000003 + i + 1) * UINT64_C(0x9e3779b97f4a7c15);

	return (uint8_t)(x >> 47);
}

void chunk_make(struct chunk *chunk, uint64_t number, uint32_t count, uint32_t hash_bytes,
	uint32_t block_size)
{
	size_t tokens = (size_t)count * block_size;

	assert(count <= BLOCKS_MAX && hash_bytes <= 32 && tokens <= BLOCKS_MAX * 16);
	for (size_t i = 0; i < (size_t)count * hash_bytes; i++)
		chunk->hashes[i] = byte_of(number, i);
	for (size_t i = 0; i < 32; i++)
		chunk->parent[i] = byte_of(number, i + (1 << 20));
	for (size_t i = 0; i < tokens; i++)
		chunk->tokens[i] = (uint32_t)(number * 7919 + i * i * 31);
	chunk->blocks = (struct kvt_blocks){
		.hashes = chunk->hashes,
		.hash_bytes = hash_bytes,
		.count = count,
		.parent = chunk->parent,
		.tokens = chunk->tokens,
		.block_size = block_size,
	};
}

uint64_t chunk_name(const struct chunk *chunk, uint32_t block)
{
	const uint8_t *end = chunk->hashes + (size_t)(block + 1) * chunk->blocks.hash_bytes;
	uint64_t name = 0;

	for (int i = -8; i < 0; i++)
		name = name << 8 | end[i];
	return name;
}
