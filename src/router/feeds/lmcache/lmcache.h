/*
 * lmcache.h - kvway as LMCache's controller: a module of the feed thread.
 *
 * Stock LMCache workers (0.3 to 0.5, in-process mode) register here and report stores and
 * evictions. Three sockets: PULL for reports, ROUTER for requests, ROUTER for heartbeats; each is
 * opened if kvaware.lmcache names its address. Reports go into the exact index.
 *
 * Threads: made and stopped with the feed (kvw_feed_module). The functions below may be called from
 * any thread between kvw_feed_start and kvw_feed_stop.
 */
#ifndef KVW_LMCACHE_H
#define KVW_LMCACHE_H

#include "feeds/feed.h"
#include "feeds/lmcache/lmcache_stats.h"

struct kvw_lmcache;

extern const struct kvw_feed_module kvw_lmcache_module;

/* Returns the controller of a feed; NULL: none is configured. Valid until kvw_feed_stop. */
struct kvw_lmcache *kvw_lmcache_of(const struct kvw_feed *feed);

#define KVW_LMCACHE_PROMPT 2048u /* tokens of a prompt's beginning that are used */

/*
 * Records that a prompt was sent to a worker at now_ns (kvw_clock_ns). The worker's instance should
 * then report its keys: that maps instances to workers, and reveals a wrong hash recipe. Costs one
 * load when nothing is left to find out; otherwise the call copies up to KVW_LMCACHE_PROMPT tokens,
 * or drops them when too many prompts wait. Never blocks.
 */
void kvw_lmcache_routed(struct kvw_lmcache *lmcache, uint32_t worker, const uint32_t *tokens,
	size_t count, int64_t now_ns);

/* Copies the name of a worker's instance: at most size - 1 bytes, with a final 0. Returns the
 * name's length; 0: the worker has no instance. */
size_t kvw_lmcache_instance_of(
	struct kvw_lmcache *lmcache, uint32_t worker, char *text, size_t size);

/* Reads the counters, which are at most 100 ms old. */
void kvw_lmcache_stats(struct kvw_lmcache *lmcache, struct kvw_lmcache_stats *out);

/* Applies the key that a reload may change: the timeout of heartbeats. Any thread. */
void kvw_lmcache_reconfigure(const struct kvw_feed *feed, const struct kvw_config *config);

#endif
