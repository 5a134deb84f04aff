/*
 * probes.h - asks shared tiers for their chunks.
 *
 * A local tier knows its chunks; a shared tier is asked, in one request for the unknown part of a
 * chain, and remembers the answer. The asker waits until the answer arrives or its own time is
 * over; the tier remembers the answer in either case.
 */
#ifndef KVT_PROBES_H
#define KVT_PROBES_H

#include "core/core.h"

struct kvt_probe;

/* A wait for an answer. `resolve` is called once, under lock: the shared tier's chunks are then
 * known, as far as it answered. */
struct kvt_asker {
	struct kvt_probe *probe; /* NULL: no wait */
	void (*resolve)(struct kvt *k, struct kvt_asker *asker);
	uint32_t get; /* as in a job */
};

/* Returns whether a shared tier might have this chunk, which no tier is known to have. Any
 * thread. */
bool kvt_probe_helps(struct kvt *k, const struct kvt_key *key, uint32_t tier_mask);

/* --- under lock --- */

/*
 * Asks about these keys, which are copied. KVT_MISS: no question is needed; KVT_BUSY: too many
 * questions are under way. The asker is not called then, nor from inside this function.
 */
enum kvt_status kvt_probe_begin(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint32_t tier_mask, struct kvt_asker *asker) KVT_MUST_CHECK;
void kvt_probe_leave(struct kvt_asker *asker); /* ends the wait; also without one */

/* Ends all waits for this tier. */
void kvt_probes_abandon(struct kvt *k, const struct kvt_lower *b);

#endif
