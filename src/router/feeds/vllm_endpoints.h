/*
 * vllm_endpoints.h - addresses of an engine's KV events, read from its own answer or made from the
 * configuration.
 *
 * Pure functions, any thread.
 */
#ifndef KVW_VLLM_ENDPOINTS_H
#define KVW_VLLM_ENDPOINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"
#include "kvway/slice.h"

#define KVW_VLLM_RANKS 64 /* most data-parallel ranks of one server */

/* Sockets of one rank. All owned, never NULL. */
struct kvw_vllm_endpoint {
	uint32_t rank;
	char *events;
	char *replay;          /* "": it replays nothing */
	char *topic;           /* the engine's topic, which contains its name; may be "" */
	uint64_t buffer_steps; /* batches that the engine can replay; 0: not given */
	bool connects;         /* the engine connects to `events` instead of listening there */
};

struct kvw_vllm_endpoints {
	struct kvw_vllm_endpoint items[KVW_VLLM_RANKS]; /* ascending by rank */
	size_t count;
	bool more; /* there were more ranks than the list has room for */
};

/*
 * Parses the answer of GET /kv_event_sources, {"0": {"endpoint": ..., "replay_endpoint": ...},
 * ...}. host replaces a wildcard in an endpoint. {} is valid and has no endpoints. KVW_EPROTO:
 * another form; KVW_ENOMEM.
 */
enum kvw_err kvw_vllm_endpoints_parse(const char *body, size_t len, const char *host,
	struct kvw_vllm_endpoints *out) KVW_MUST_CHECK;

/*
 * Makes endpoints of ranks from `first` on from templates: `{host}` is replaced, and rank r gets
 * port + r. replay may be "". KVW_EINVAL: an invalid endpoint; KVW_ENOMEM.
 */
enum kvw_err kvw_vllm_endpoints_make(const char *events, const char *replay, uint32_t first,
	uint32_t ranks, const char *host, struct kvw_vllm_endpoints *out) KVW_MUST_CHECK;

void kvw_vllm_endpoints_finish(struct kvw_vllm_endpoints *endpoints);

/* Returns whether both endpoints are the same stream. */
bool kvw_vllm_endpoint_equal(const struct kvw_vllm_endpoint *a, const struct kvw_vllm_endpoint *b);

/* Finds HOST:PORT in a topic kv@HOST:PORT@MODEL. False: the topic has another form. */
bool kvw_vllm_topic_worker(struct kvw_slice topic, struct kvw_slice *authority);

#endif
