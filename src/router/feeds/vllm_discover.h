/*
 * vllm_discover.h - gets workers' addresses of KV events: GET /kv_event_sources.
 *
 * One request per worker at a time, on the feed's thread and without blocking it. A worker that
 * does not answer is asked again, at growing intervals; a worker that has answered is asked again
 * only when the caller requests it.
 */
#ifndef KVW_VLLM_DISCOVER_H
#define KVW_VLLM_DISCOVER_H

#include "feeds/feed.h"

struct kvw_vllm_discover;

/* Reports an answer. status: 200, or another HTTP status that will not change by itself (404, 405);
 * 0: the request failed (kvw_vllm_discover_error has the cause), and will be tried again. body: of
 * a 200, borrowed. */
typedef void kvw_vllm_found_fn(
	void *ctx, uint32_t worker, long status, const char *body, size_t len);

enum kvw_err kvw_vllm_discover_create(struct kvw_feed *feed, kvw_vllm_found_fn *found, void *ctx,
	struct kvw_vllm_discover **out) KVW_MUST_CHECK;
void kvw_vllm_discover_destroy(struct kvw_vllm_discover *discover); /* NULL is allowed */

/* Requests that a worker is asked soon: at most once in five seconds, except for the first time.
 * The worker is borrowed until kvw_vllm_discover_drop. */
void kvw_vllm_discover_want(struct kvw_vllm_discover *discover, struct kvw_worker *worker);
void kvw_vllm_discover_drop(struct kvw_vllm_discover *discover, const struct kvw_worker *worker);

/* Starts requests that are due and handles answers. Called about every 20 ms. */
void kvw_vllm_discover_tick(struct kvw_vllm_discover *discover);

/* Returns why the last attempt failed; "": it did not. */
const char *kvw_vllm_discover_error(const struct kvw_vllm_discover *discover, uint32_t worker);

#endif
