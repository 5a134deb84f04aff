/*
 * coordinator.h - kvway as the coordinator of LMCache's multi-process mode: a module of the feed
 * thread.
 *
 * An `lmcache server` serves all engines of its node. It registers here by HTTP, sends heartbeats
 * and reports what it stores and drops (`--coordinator-url`, `--coordinator-event-reporting`). The
 * reports go into a directory (directory.h), which answers as LMCache's own coordinator does, and
 * from there into the exact index: a chunk in a server's L1 is a hit for each engine of the node.
 *
 * Threads: made and stopped with the feed (kvw_feed_module). The functions below may be called from
 * any thread between kvw_feed_start and kvw_feed_stop.
 */
#ifndef KVW_COORDINATOR_H
#define KVW_COORDINATOR_H

#include "feeds/coordinator/directory.h"
#include "feeds/feed.h"
#include "feeds/kvspace.h"

struct kvw_coordinator;

extern const struct kvw_feed_module kvw_coordinator_module;

/* The coordinator of a feed; NULL: none is configured. Valid until kvw_feed_stop. */
struct kvw_coordinator *kvw_coordinator_of(const struct kvw_feed *feed);

/* Copies the name of the instance that serves a worker's node: at most size - 1 bytes, with a final
 * 0. Returns the name's length; 0: there is none. */
size_t kvw_coordinator_instance_of(
	struct kvw_coordinator *coordinator, uint32_t worker, char *text, size_t size);

/* Returns whether prompts with known tokens can show which names of chunks servers report. */
bool kvw_coordinator_asks(struct kvw_coordinator *coordinator);

/* A request with this prompt goes to the worker. Returns a number by which its first token is
 * reported; 0: that is of no use. */
uint32_t kvw_coordinator_routed(
	struct kvw_coordinator *coordinator, uint32_t worker, const struct kvw_kvprompt *prompt);
void kvw_coordinator_first_token(
	struct kvw_coordinator *coordinator, uint32_t number, int64_t now_ns);

struct kvw_coordinator_stats {
	/* now */
	uint64_t instances;       /* registered */
	uint64_t unmapped;        /* of these, without a worker of the fleet */
	uint64_t blind;           /* instances with a worker whose reports do not suffice */
	uint64_t objects, l1, l2; /* objects, and placements in each tier */
	uint64_t bytes, bytes_limit;
	uint64_t connections;
	uint64_t l2_bytes;  /* of all placements in L2 */
	uint64_t l2_shared; /* of these, in shared pools */
	uint64_t l2_cap;    /* of shared pools; 0: none */
	uint64_t l2_asked;  /* of l2_bytes, whose deletion is under way */
	uint64_t pins, quotas;

	/* since start */
	struct kvw_cd_counts counts;
	uint64_t refused;  /* requests that are answered with an error */
	uint64_t posts;    /* of events, that were applied */
	uint64_t recalled; /* placements that the process before had */
	uint64_t prefetches, prefetch_failures, prefetch_skipped, prefetched; /* prefetched: keys */
	uint64_t prefetch_vain, prefetch_rests; /* worth.h; rests that began */
	uint64_t listed;                       /* keys of L2 that became known by listings */
	uint64_t snapshots, snapshot_failures; /* files of the directory */
	uint64_t evictions, eviction_failures; /* requests to servers */
	uint64_t named; /* blocks written to the index, once for each worker */
};

/* Numbers of at most 100 ms ago. */
void kvw_coordinator_stats(struct kvw_coordinator *coordinator, struct kvw_coordinator_stats *out);

/* Applies the keys that a reload may change: the timeout of heartbeats, and how often a snapshot is
 * written and its size. Any thread. */
void kvw_coordinator_reconfigure(const struct kvw_feed *feed, const struct kvw_config *config);

#endif
