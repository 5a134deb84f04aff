/*
 * curl_loop.h - libcurl's multi interface on an event base.
 *
 * Transfers are added with kvw_curl_loop_start; the loop calls `done` for each ended transfer,
 * after it was taken out and outside of libcurl's own functions, so that `done` may do anything
 * with the handle.
 *
 * Threads: a loop and all its transfers belong to the thread of its base.
 */
#ifndef KVW_CURL_LOOP_H
#define KVW_CURL_LOOP_H

#include <curl/curl.h>
#include <stdbool.h>

#include "kvway/err.h"

struct event;
struct event_base;

/* Called when a transfer has ended. user: the handle's CURLOPT_PRIVATE. */
typedef void kvw_curl_done_fn(void *user, CURLcode code);

/* Zeroed is empty. */
struct kvw_curl_loop {
	struct event_base *base; /* borrowed */
	CURLM *multi;
	struct event *timeout;
	kvw_curl_done_fn *done;
	bool curl_ready;
};

enum kvw_err kvw_curl_loop_init(struct kvw_curl_loop *loop, struct event_base *base,
	kvw_curl_done_fn *done) KVW_MUST_CHECK;
/* Frees the loop, also after a failed init. No transfer may be left. */
void kvw_curl_loop_finish(struct kvw_curl_loop *loop);

/* Starts a transfer. KVW_ENOMEM: libcurl did not take it; `done` will not be called. */
enum kvw_err kvw_curl_loop_start(struct kvw_curl_loop *loop, CURL *easy) KVW_MUST_CHECK;
/* Makes a transfer that ends before its DNS answer end at once, without waiting for libcurl's
 * resolving thread. False: out of memory. */
bool kvw_curl_leave_dns_behind(CURL *easy) KVW_MUST_CHECK;
/* Ends a transfer; `done` is not called. */
void kvw_curl_loop_abort(struct kvw_curl_loop *loop, CURL *easy);

#endif
