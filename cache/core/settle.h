/*
 * settle.h - converts a caller's configuration into the library's own.
 */
#ifndef KVT_SETTLE_H
#define KVT_SETTLE_H

#include "chunk/note.h"
#include "memory/neighbours.h"

/*
 * Fills *out from a caller's struct, of whatever size, over the defaults: a 0 or NULL that is not a
 * valid value becomes the default. The caller keeps the texts. KVT_EINVAL: the struct was not
 * initialized, or has an impossible value.
 */
enum kvt_status kvt_config_settle(
	const struct kvt_config *given, struct kvt_config *out) KVT_MUST_CHECK;

/* Turns automatic sizes into numbers, and registers the cache among the other caches of this
 * machine. l1_part: divisor of automatic memory. */
void kvt_config_settle_sizes(struct kvt_config *config, unsigned l1_part,
	struct kvt_neighbours *neighbours, const struct kvt_surroundings *s);

#endif
