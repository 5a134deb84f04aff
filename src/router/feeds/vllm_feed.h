/*
 * vllm_feed.h - the module that reads the vLLM KV events of all workers.
 *
 * A worker's endpoint is the first of these that exists: its own events_endpoint; the worker's
 * answer when it is asked for its endpoints (kvaware.events.discover); kvaware.events.endpoint.
 * Engines that connect instead of listening use kvaware.events.bind. kvw_feed_worker_status(feed,
 * worker, KVW_REPORTER_ENGINE, ...) has each worker's status and fault.
 */
#ifndef KVW_VLLM_FEED_H
#define KVW_VLLM_FEED_H

#include "feeds/feed.h"

extern const struct kvw_feed_module kvw_vllm_feed;

#endif
