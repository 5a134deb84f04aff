/*
 * vllm_feed.h - the module that listens to vLLM's KV events, of all workers of the fleet.
 *
 * Where a worker publishes is, in this order: its own events_endpoint; what it says itself
 * (kvaware.events.discover); kvaware.events.endpoint where it cannot say. Engines that connect
 * instead of listening are found by kvaware.events.bind. What is known of each worker, and what is
 * wrong, is in kvw_feed_worker_status(feed, worker, KVW_REPORTER_ENGINE, ...).
 */
#ifndef KVW_VLLM_FEED_H
#define KVW_VLLM_FEED_H

#include "feeds/feed.h"

extern const struct kvw_feed_module kvw_vllm_feed;

#endif
