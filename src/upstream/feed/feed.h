/*
 * feed.h - the thread that listens to what workers tell of their caches.
 *
 * One thread with one ZeroMQ context; it alone writes the exact index. What it listens to are modules:
 * vLLM's event streams (vllm_feed.h) and LMCache's controller protocol (../lmcache). A module
 * registers sockets and timers, and is called on this thread only. No call of a module may block.
 *
 * Each turn handles at most KVW_FEED_BURST messages of a socket before it looks at the others, so that
 * one busy worker cannot starve the rest. Other threads hand it work by kvw_feed_post.
 */
#ifndef KVW_FEED_H
#define KVW_FEED_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "fleet.h"
#include "kvspace.h"
#include "kvway/exact.h"

#define KVW_FEED_BURST 64
#define KVW_FEED_POSTS 1024 /* posted calls that wait at once */

struct kvw_feed;

/* All borrowed, and outlive the feed. */
struct kvw_feed_deps {
	const struct kvw_config *config;
	struct kvw_fleet *fleet;
	struct kvw_exact *exact;
	struct kvw_kvspaces *spaces;
};

/* Makes the thread and starts what is configured. KVW_EINVAL: an address cannot be had or is none;
 * `errors` says which, and why. */
enum kvw_err kvw_feed_start(
	const struct kvw_feed_deps *deps, FILE *errors, struct kvw_feed **out) KVW_MUST_CHECK;
void kvw_feed_stop(struct kvw_feed *feed); /* NULL is allowed; joins the thread */

/* --- any thread --- */

/* Runs fn(arg) on the feed's thread, soon. KVW_ELIMIT: KVW_FEED_POSTS wait already. After
 * kvw_feed_stop has begun, fn is called by it with feed stopped, so that arg can be freed. */
typedef void kvw_feed_fn(struct kvw_feed *feed, void *arg);
enum kvw_err kvw_feed_post(struct kvw_feed *feed, kvw_feed_fn *fn, void *arg) KVW_MUST_CHECK;

/* --- modules, on the feed's thread --- */

const struct kvw_feed_deps *kvw_feed_deps(const struct kvw_feed *feed);
void *kvw_feed_context(struct kvw_feed *feed); /* ZeroMQ's */
int64_t kvw_feed_now(const struct kvw_feed *feed); /* monotonic ns, of this turn */

/* fn is called while the socket can be read: it reads one message, and returns false when there was
 * none. */
typedef bool kvw_feed_read_fn(void *socket, void *ctx);
enum kvw_err kvw_feed_watch(struct kvw_feed *feed, void *socket, kvw_feed_read_fn *fn,
	void *ctx) KVW_MUST_CHECK;
void kvw_feed_unwatch(struct kvw_feed *feed, void *socket); /* also from within fn */

/* fn is called about every interval until the feed stops. */
enum kvw_err kvw_feed_every(struct kvw_feed *feed, int64_t interval_ns, kvw_feed_fn *fn,
	void *ctx) KVW_MUST_CHECK;

#endif
