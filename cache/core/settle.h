/*
 * settle.h - a caller's configuration as the library uses it.
 */
#ifndef KVT_SETTLE_H
#define KVT_SETTLE_H

#include "chunk/note.h"
#include "memory/neighbours.h"

/*
 * Fills *out from what the caller was compiled with, of whatever size, over the defaults: a 0 or
 * NULL that cannot be meant becomes the default. Texts stay the
 * caller's. KVT_EINVAL: not initialized, or a value that nothing can be made of.
 */
enum kvt_status kvt_config_settle(
	const struct kvt_config *given, struct kvt_config *out) KVT_MUST_CHECK;

/* Automatic sizes become numbers, and the cache gets its place among its neighbours. l1_part: of automatic
 * memory, one part in so many. */
void kvt_config_settle_sizes(struct kvt_config *config, unsigned l1_part,
	struct kvt_neighbours *neighbours, const struct kvt_surroundings *s);

#endif
