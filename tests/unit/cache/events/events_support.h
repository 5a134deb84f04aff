/*
 * events_support.h - surroundings that a test owns, and blocks to report.
 */
#ifndef EVENTS_SUPPORT_H
#define EVENTS_SUPPORT_H

#include "events/event_log.h"

/* A clock that stands still until it is moved, and the lines that were logged. */
struct world {
	struct kvt_surroundings s;
	int64_t now_ns, wall_ns;
	char lines[4096]; /* one after another, each with its newline */
};

void world_init(struct world *world);

#define BLOCKS_MAX 4096

/* Blocks of a chunk whose names, tokens and parent follow from a number. */
struct chunk {
	struct kvt_blocks blocks;
	uint8_t hashes[BLOCKS_MAX * 32], parent[32];
	uint32_t tokens[BLOCKS_MAX * 16];
};

/* count blocks of block_size tokens (together at most BLOCKS_MAX * 16). */
void chunk_make(struct chunk *chunk, uint64_t number, uint32_t count, uint32_t hash_bytes,
	uint32_t block_size);

/* The first hash's last 8 bytes, big-endian: the number that the router's index knows it by. */
uint64_t chunk_name(const struct chunk *chunk, uint32_t block);

#endif
