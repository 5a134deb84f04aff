/*
 * world.h - a registry with a real index, workers, and a clock that stands where a test puts it.
 */
#ifndef KVT_LMCACHE_WORLD_H
#define KVT_LMCACHE_WORLD_H

#include <check.h>

#include "feeds/lmcache/registry.h"

#define WORLD_WORKERS 4
#define SECOND        INT64_C(1000000000)

struct world {
	struct kvw_kvindex *index;
	struct kvw_lmreg *reg;
	struct kvw_lmc_reader reader;
	enum kvw_coverage coverages[WORLD_WORKERS];
	char wrong[WORLD_WORKERS][128];
	int64_t now_ns;
	uint8_t answer[KVW_LMREG_REPLY_MAX];
	size_t answer_len;
};

/* Worker w is at 10.0.0.<w+1>, and its configured instance is ids[w] (NULL: none). */
void world_open(struct world *world, const struct kvw_lmreg_worker *workers, size_t count);
void world_close(struct world *world);

/* One message as JSON, with ' for ". */
void world_push(struct world *world, const char *json); /* on the pull socket */
void world_ask(struct world *world, const char *json);  /* where answers are given */
void world_frame(struct world *world, struct kvw_slice frame, bool answered);

/* Whether the last answer contains a text (keys and texts of msgpack are plain). */
bool world_answered(const struct world *world, const char *text);
/* ... or bytes. */
bool world_answered_bytes(const struct world *world, const void *data, size_t len);

/* Operations of i/rank in LocalCPUBackend from a number on: "+5 +6 -5". */
void world_ops(
	struct world *world, const char *instance, uint32_t rank, uint64_t number, const char *ops);
void world_ops_at(struct world *world, const char *instance, uint32_t rank, const char *location,
	uint64_t number, const char *ops);

/* RegisterMsg or HeartbeatMsg on a socket with answers; ip NULL: 10.0.0.1. */
void world_register(struct world *world, const char *instance, uint32_t rank, const char *ip);
void world_heartbeat(struct world *world, const char *instance, uint32_t rank, const char *ip);

/* Leading ones of keys 1, 2, ... that the index knows of a worker, in the default space. */
uint32_t world_held(const struct world *world, uint32_t worker);
uint32_t world_held_in(const struct world *world, uint32_t worker, uint32_t space);

#endif
