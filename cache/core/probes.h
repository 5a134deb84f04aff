/*
 * probes.h - asking shared tiers what they hold.
 *
 * A local tier knows what it has; a shared one is asked, in one request for as much of a chain as
 * is not known, and remembers the answer. The asker waits until it comes or its own time is
 * over; the answer is remembered all the same.
 */
#ifndef KVT_PROBES_H
#define KVT_PROBES_H

#include "core/core.h"

struct kvt_probe;

/* A wait for an answer. `resolve` is called once, under lock: what a shared tier has is known
 * from now on, as far as it answered. */
struct kvt_asker {
	struct kvt_probe *probe; /* NULL: waits for none */
	void (*resolve)(struct kvt *k, struct kvt_asker *asker);
	uint32_t get; /* as of a job */
};

/* Might a shared tier have this chunk, which no tier is known to have? Any thread. */
bool kvt_probe_helps(struct kvt *k, const struct kvt_key *key, uint32_t tier_mask);

/* --- under lock --- */

/*
 * Asks about these keys, which are copied. KVT_MISS: there is nothing to ask; KVT_BUSY: too much is
 * being asked already. The asker is not called then, nor from inside of this.
 */
enum kvt_status kvt_probe_begin(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint32_t tier_mask, struct kvt_asker *asker) KVT_MUST_CHECK;
void kvt_probe_leave(struct kvt_asker *asker); /* waits no longer; also if it did not wait */

/* Ends all waits for this tier. */
void kvt_probes_abandon(struct kvt *k, const struct kvt_lower *b);

#endif
