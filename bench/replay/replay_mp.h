/*
 * replay_mp.h - LMCache servers of the multi-process mode behind the simulated engines.
 *
 * Each worker has a server with memory of its own (L1), and all servers have one storage (L2). What
 * an engine has computed of a prompt, in chunks of KVB_MP_CHUNK tokens, is stored in both. When a
 * sequence could be admitted, its server loads from L2 what L1 lacks of the prompt's beginning; the
 * sequence waits for that without blocks, and others may pass. Then the engine loads all that it
 * lacks from L1. With `prefetch` the router has the server load from L2 when it sends the request,
 * as kvaware.lmcache.prefetch does; it knows what L1 and L2 hold.
 *
 * Bytes on the way from L2 share the server's link, those from L1 the engine's, one after the
 * other. Not modelled: time to store, bytes that move while they are overwritten, a server that
 * several engines share. Routers do not know L1: predictions are those of the policy.
 */
#ifndef KVB_REPLAY_MP_H
#define KVB_REPLAY_MP_H

#include <stdbool.h>
#include <stdint.h>

#define KVB_MP_CHUNK 256u

struct kvb_mp_options {
	uint32_t l1_tokens; /* of each server; 0: there are no servers */
	uint32_t l2_tokens;
	double l1_bytes_per_ns, l2_bytes_per_ns;
	int64_t l2_fixed_ns; /* of a load from L2 */
	bool prefetch;
};

struct kvb_mp_counts {
	uint64_t asked;      /* sequences whose server had to load from L2 when they could begin */
	uint64_t prefetches; /* loads from L2 that the router asked for */
	double l1_tokens, l2_tokens; /* that were loaded from each */
	double prefetched_tokens;    /* of those from L2 */
};

struct kvb_tier;

/* Of a fleet; zeroed without servers. */
struct kvb_mp {
	struct kvb_mp_counts counts;
	struct kvb_tier **l1, *l2;     /* owned; l1 by worker */
	int64_t *link_ns, *bus_ns;     /* by worker: from then on L2's and L1's way is free */
};

struct kvb_fleet;

/* Of a fleet whose engines exist. */
void kvb_mp_begin(struct kvb_fleet *fleet);
void kvb_mp_finish(struct kvb_fleet *fleet);
/* The router sends a job to a worker. */
void kvb_mp_send(struct kvb_fleet *fleet, uint32_t job, uint32_t worker, int64_t now_ns);

#endif
