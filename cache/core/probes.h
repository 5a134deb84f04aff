/*
 * probes.h - asks shared tiers which chunks they have.
 *
 * A local tier knows its chunks. A shared tier is asked, in one request for the unknown part of a
 * chain, and remembers the answer. The asker waits until the answer arrives or its own deadline
 * passes; the tier remembers the answer in either case.
 */
#ifndef KVT_PROBES_H
#define KVT_PROBES_H

#include "core/core.h"

struct kvt_probe;

/* A caller's wait for an answer. `resolve` is called once, with `lock` held, when the shared tier's
 * records have the answer, as far as it gave one. */
struct kvt_asker {
	struct kvt_probe *probe; /* NULL: no wait */
	void (*resolve)(struct kvt *k, struct kvt_asker *asker);
	uint32_t get; /* as in a job */
};

/* Returns whether it helps to ask: no tier is known to have this chunk, and a shared tier might.
 * Any thread. */
bool kvt_probe_helps(struct kvt *k, const struct kvt_key *key, uint32_t tier_mask);

/* --- under lock --- */

/*
 * Asks about these keys, which are copied. KVT_MISS: no question is needed; KVT_BUSY: too many
 * questions are under way. In both cases the asker is not called; nor is it ever called from inside
 * this function.
 */
enum kvt_status kvt_probe_begin(struct kvt *k, const struct kvt_key *keys, size_t n,
	uint32_t tier_mask, struct kvt_asker *asker) KVT_MUST_CHECK;
void kvt_probe_leave(struct kvt_asker *asker); /* ends the wait; no effect if there is none */

/* Ends all waits for this tier. */
void kvt_probes_abandon(struct kvt *k, const struct kvt_lower *b);

#endif
