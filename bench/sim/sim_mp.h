/*
 * sim_mp.h - a worker's LMCache server of the multi-process mode, as its coordinator sees it.
 *
 * The server registers, sends heartbeats and reports at an interval what its memory has stored and
 * dropped, in the form of LMCache 0.5.6. As there, nothing is repeated: what a failed post had is
 * lost, and shows as a gap in the numbers of batches. Unlike there each worker has a server of its
 * own, nothing is below its memory, and accesses are not reported.
 *
 * Belongs to one event loop.
 */
#ifndef KVB_SIM_MP_H
#define KVB_SIM_MP_H

#include "bench/sim/sim_options.h"
#include "wire/lmcache_chunks.h"

struct event_base;
struct kvb_mp;

/* instance: the server's id, borrowed. NULL: without memory. */
struct kvb_mp *kvb_mp_create(
	struct event_base *base, const struct kvb_options *options, const char *instance);
void kvb_mp_destroy(struct kvb_mp *mp); /* NULL is allowed */

/* Its memory holds a chunk now; tokens NULL: the engine drives transfers, so that the server does
 * not know them. */
void kvb_mp_stored(struct kvb_mp *mp, const uint8_t hash[KVW_BLAKE3_BYTES], const uint32_t *tokens,
	uint64_t offset);
/* ... and no longer. */
void kvb_mp_deleted(struct kvb_mp *mp, const uint8_t hash[KVW_BLAKE3_BYTES]);
/* The process ends, and another one begins with an empty memory. */
void kvb_mp_restart(struct kvb_mp *mp);

struct kvb_mp_stats {
	bool registered;
	uint64_t posts, lost; /* posts that were answered with 200, and others */
	uint64_t reported;    /* entries of the former */
	uint64_t beats;
};

void kvb_mp_stats(const struct kvb_mp *mp, struct kvb_mp_stats *out);

#endif
