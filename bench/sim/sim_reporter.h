/*
 * sim_reporter.h - reports changes of a worker's caches: vLLM's KV events and LMCache's operations.
 *
 * The engine's callbacks drive both. Events leave when the step ends in which they happened,
 * before its tokens do; a reset of the cache is published with the next step, as by a real
 * engine.
 *
 * Belongs to one event loop.
 */
#ifndef KVB_SIM_REPORTER_H
#define KVB_SIM_REPORTER_H

#include "bench/load/mem.h"
#include "bench/sim/sim_engine.h"

struct event_base;
struct kvb_fragments;
struct kvb_options;
struct kvb_store;
struct kvb_reporter;

/* If there are neither KV events nor LMCache nor tiers nor fragments, *out is NULL, which is no
 * failure. Returns false on failure, with a message on standard error. `zmq` is a ZeroMQ context,
 * which is not used in that case. */
bool kvb_reporter_create(struct event_base *base, void *zmq, const struct kvb_options *options,
	uint32_t index, uint32_t rank, uint16_t http_port, struct kvb_reporter **out);
/* to be called after the engine was destroyed; NULL is allowed */
void kvb_reporter_destroy(struct kvb_reporter *reporter);

/* The other functions may be called with NULL, and do nothing then. */
void kvb_reporter_watch(
	struct kvb_reporter *reporter, struct kvb_engine *engine); /* one at a time */
/* The tiers below the device, or NULL: the engine's watch calls them, and what they report is
 * published with the device's events. Borrowed until another one is set. Before
 * kvb_reporter_watch. */
void kvb_reporter_set_store(struct kvb_reporter *reporter, struct kvb_store *store);
/* Returns the worker's store of fragments, which lives as long as this. NULL: there is none. */
const struct kvb_fragments *kvb_reporter_fragments(const struct kvb_reporter *reporter);
void kvb_reporter_step_ends(struct kvb_reporter *reporter);
void kvb_reporter_restart(struct kvb_reporter *reporter); /* as a new process would */

/* Writes a member of the answer to GET /kv_event_sources, with a comma before it unless it is the
 * first. */
void kvb_reporter_sources(const struct kvb_reporter *reporter, bool first, struct kvb_buf *out);
/* Writes members of /sim/stats, each with a comma before it. */
void kvb_reporter_stats(const struct kvb_reporter *reporter, struct kvb_buf *out);

#endif
