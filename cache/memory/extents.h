/*
 * extents.h - the taken units of a space: bookkeeping for the arena and for store files.
 *
 * A space is `unit_count` units of the same size. An object takes as many units as it needs, in one
 * run if possible, otherwise in up to KVT_MAX_EXTENTS runs, so that divided room is usable and
 * mixed sizes do not fragment the space. Not thread-safe: the owner has a lock.
 */
#ifndef KVT_EXTENTS_H
#define KVT_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvtier/kvtier.h"

#define KVT_MAX_EXTENTS 16

/* A run of units. */
struct kvt_extent {
	uint32_t first;
	uint32_t count;
};

struct kvt_extents;

enum kvt_status kvt_extents_create(uint32_t unit_count, struct kvt_extents **out) KVT_MUST_CHECK;
void kvt_extents_destroy(struct kvt_extents *e); /* NULL is allowed */

/* Takes `units` units: the shortest run that has as many, else as few runs as possible. *n: before
 * the call the members of out, of which at most KVT_MAX_EXTENTS are used; afterwards the number of
 * runs. KVT_FULL: this takes more runs; KVT_EINVAL: no units, or no members in out. */
enum kvt_status kvt_extents_take(
	struct kvt_extents *e, uint32_t units, struct kvt_extent *out, uint32_t *n) KVT_MUST_CHECK;

/* Marks a given run as taken, when a store is read at its start. KVT_EXISTS: a part of it is taken,
 * and nothing is marked; KVT_EINVAL: it is outside of the space. */
enum kvt_status kvt_extents_mark(struct kvt_extents *e, struct kvt_extent run) KVT_MUST_CHECK;

/* Frees runs, or parts of runs, that were taken or marked. Cannot fail. */
void kvt_extents_give(struct kvt_extents *e, const struct kvt_extent *runs, uint32_t n);

uint32_t kvt_extents_free(const struct kvt_extents *e);    /* units */
uint32_t kvt_extents_largest(const struct kvt_extents *e); /* longest free run, in units */
uint64_t kvt_extents_bytes(const struct kvt_extents *e);   /* bytes of memory for the bookkeeping */

/* Grows the space to `unit_count` units; the new ones are at its end (for a store that grows).
 * KVT_EINVAL: fewer than before. */
enum kvt_status kvt_extents_grow(struct kvt_extents *e, uint32_t unit_count) KVT_MUST_CHECK;

#endif
