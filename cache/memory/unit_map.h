/*
 * unit_map.h - a bit for each unit of a space, with summaries that find the next set bit.
 *
 * Level 0 has a bit per unit; a bit of a level above says that some bit of one word of 64 below is
 * set, so that a search looks at two words of each level however far the next set bit is. Costs
 * 1.02 bits per unit. Not thread-safe.
 */
#ifndef KVT_UNIT_MAP_H
#define KVT_UNIT_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtier/kvtier.h"

#define KVT_UNIT_MAP_LEVELS 6 /* 64^6 > 2^32 */

struct kvt_unit_map {
	uint32_t count; /* units */
	uint32_t levels; /* the last level has one word; 0 if there are no units */
	uint64_t *words[KVT_UNIT_MAP_LEVELS]; /* owned */
};

/* All clear. */
enum kvt_status kvt_unit_map_init(struct kvt_unit_map *m, uint32_t count) KVT_MUST_CHECK;
void kvt_unit_map_finish(struct kvt_unit_map *m);

/* Grows the map to `count` units, of which the new ones are clear; not fewer than before. */
enum kvt_status kvt_unit_map_grow(struct kvt_unit_map *m, uint32_t count) KVT_MUST_CHECK;

/* Sets, or clears, the range [first, end), which must not be empty and must be inside of the
 * map. */
void kvt_unit_map_set(struct kvt_unit_map *m, uint32_t first, uint32_t end);
void kvt_unit_map_clear(struct kvt_unit_map *m, uint32_t first, uint32_t end);
bool kvt_unit_map_all_set(const struct kvt_unit_map *m, uint32_t first, uint32_t end);

/* Returns the first set unit at or after `from`, or else the count. */
uint32_t kvt_unit_map_next(const struct kvt_unit_map *m, uint32_t from);

/* Returns the last set unit before `before`, plus one; or else 0. */
uint32_t kvt_unit_map_after_last(const struct kvt_unit_map *m, uint32_t before);

uint64_t kvt_unit_map_bytes(const struct kvt_unit_map *m); /* memory */

#endif
