/*
 * sim_lmcache.h - a worker with LMCache: a CPU tier below its device, and reports to a controller
 * or a coordinator.
 *
 * When the KV of a prompt's chunk has been computed, the chunk is stored; generated tokens are not
 * (save_decode_cache is off by default). A prompt loads from this tier the chunks that the device
 * lacks. Prompts with an adapter or a cache salt are not stored: LMCache's keys do not distinguish
 * them.
 *
 * Belongs to one event loop.
 */
#ifndef KVB_SIM_LMCACHE_H
#define KVB_SIM_LMCACHE_H

#include "lmcache/controller_link.h"
#include "bench/sim/sim_engine.h"
#include "bench/sim/sim_mp.h"
#include "bench/sim/sim_options.h"
#include "bench/sim/sim_tier.h"

struct event_base;

struct kvb_lmcache;

/* `index` is the worker's number. Returns NULL on failure, with a message on standard error. */
struct kvb_lmcache *kvb_lmcache_create(
	struct event_base *base, void *zmq, const struct kvb_options *options, uint32_t index);
void kvb_lmcache_destroy(struct kvb_lmcache *lmcache); /* NULL is allowed */
void kvb_lmcache_restart(struct kvb_lmcache *lmcache);

/* These are callbacks of kvb_engine_watch. */
uint32_t kvb_lmcache_find(struct kvb_lmcache *lmcache, struct kvb_seq *seq);
void kvb_lmcache_load(struct kvb_lmcache *lmcache, struct kvb_seq *seq, uint32_t tokens);
void kvb_lmcache_computed(struct kvb_lmcache *lmcache, struct kvb_seq *seq);
/* To be called when a step has ended: reports changes to the controller. */
void kvb_lmcache_flush(struct kvb_lmcache *lmcache);

struct kvb_lmcache_stats {
	bool coordinated; /* `mp` is filled, and `link` is not */
	struct kvt_controller_link_stats link;
	struct kvb_mp_stats mp;
	const char *instance; /* borrowed */
	uint32_t chunks;
};

void kvb_lmcache_stats(const struct kvb_lmcache *lmcache, struct kvb_lmcache_stats *out);

#endif
