/*
 * webhook.h - one POST of a small JSON body; only the status of its answer counts.
 *
 * Token and authorities are read for each call, since their files may be replaced at any time. The
 * call follows no redirect, uses no proxy, and discards the answer's body.
 *
 * Threads: as the loop of its transfers (curl_loop.h), whose `done` must be kvw_webhook_done.
 */
#ifndef KVW_WEBHOOK_H
#define KVW_WEBHOOK_H

#include "config/config.h"
#include "fleet/curl_loop.h"

struct kvw_webhook;

/* Called when the call has ended. why NULL: the status is 2xx. wait_ms: Retry-After; 0: none. Must
 * not destroy the call. */
typedef void kvw_wake_ended_fn(void *arg, const char *why, int64_t wait_ms);

/* Posts to discovery.wake.webhook. body is copied. `ended` comes later, once, unless the call is
 * destroyed first. KVW_ENOMEM; KVW_EIO: token or authorities cannot be read, and `why` has the
 * cause. */
enum kvw_err kvw_webhook_start(struct kvw_curl_loop *loop, const struct kvw_config *config,
	const char *body, kvw_wake_ended_fn *ended, void *arg, char *why, size_t room,
	struct kvw_webhook **out) KVW_MUST_CHECK;
/* NULL is allowed; must not be called from `ended` */
void kvw_webhook_destroy(struct kvw_webhook *hook);

/* Handles the end of a transfer. user: the CURLOPT_PRIVATE that the loop passes to `done`. */
void kvw_webhook_done(void *user, CURLcode code);

#endif
