/*
 * webhook.h - one POST of a small JSON body, whose answer counts by its status alone.
 *
 * Token and authorities are read for each call, since they may be replaced while we run. No
 * redirect is followed, no proxy is asked; the body of the answer is thrown away.
 *
 * Threads: as the loop of its transfers (curl_loop.h), whose `done` must be kvw_webhook_done.
 */
#ifndef KVW_WEBHOOK_H
#define KVW_WEBHOOK_H

#include "config/config.h"
#include "fleet/curl_loop.h"

struct kvw_webhook;

/* How it ended. why NULL: with a status of 2xx. wait_ms: Retry-After; 0: none.
 * Must not destroy the call. */
typedef void kvw_wake_ended_fn(void *arg, const char *why, int64_t wait_ms);

/* To discovery.wake.webhook. body is copied. `ended` comes later, once, unless the call is
 * destroyed first. KVW_ENOMEM; KVW_EIO: token or authorities cannot be read, `why` says so. */
enum kvw_err kvw_webhook_start(struct kvw_curl_loop *loop, const struct kvw_config *config,
	const char *body, kvw_wake_ended_fn *ended, void *arg, char *why, size_t room,
	struct kvw_webhook **out) KVW_MUST_CHECK;
void kvw_webhook_destroy(struct kvw_webhook *hook); /* NULL is allowed; not from `ended` */

/* user: the CURLOPT_PRIVATE that `done` of the loop got. */
void kvw_webhook_done(void *user, CURLcode code);

#endif
