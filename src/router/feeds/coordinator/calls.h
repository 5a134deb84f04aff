/*
 * calls.h - requests of the coordinator to LMCache's servers, without waiting for them.
 *
 * libcurl on a descriptor that the feed's thread watches. A server's address is what it registered;
 * one that is no host name or address is refused, and no proxy, redirect or other protocol leads a
 * request elsewhere. At most KVW_CALLS_MOST run at once.
 *
 * Threads: the feed's.
 */
#ifndef KVW_COORDINATOR_CALLS_H
#define KVW_COORDINATOR_CALLS_H

#include <curl/curl.h>
#include <sys/queue.h>

#include "base/page.h"
#include "feeds/coordinator/directory.h"
#include "feeds/feed.h"

#define KVW_CALLS_MOST 64u

struct kvw_call;

/* The end of a call. status 0: there was no answer, and `answer` has the cause. */
typedef void kvw_call_done_fn(void *ctx, long status, struct kvw_slice answer);

/* Zeroed is closed. */
struct kvw_calls {
	struct kvw_feed *feed;
	CURLM *multi;
	int epoll_fd;
	bool opened;
	int64_t due_ns; /* libcurl's timer; INT64_MAX: none */
	LIST_HEAD(, kvw_call) running;
	size_t count;
};

enum kvw_err kvw_calls_open(struct kvw_calls *calls, struct kvw_feed *feed) KVW_MUST_CHECK;
/* Ends all calls; `done` is called for each. */
void kvw_calls_close(struct kvw_calls *calls);
/* To be called at each tick of the feed. */
void kvw_calls_turn(struct kvw_calls *calls);

struct kvw_call_options {
	const struct kvw_cd_instance *server; /* borrowed for the call of kvw_calls_start */
	const char *method, *path;            /* the same; path begins with / */
	struct kvw_page *body;                /* taken, also on failure; NULL: none */
	kvw_call_done_fn *done;
	void *ctx;
};

/* `done` is called later, exactly once, unless this fails. KVW_ELIMIT: too many; KVW_EINVAL: the
 * server's address; KVW_ENOMEM. */
enum kvw_err kvw_calls_start(
	struct kvw_calls *calls, const struct kvw_call_options *options) KVW_MUST_CHECK;

#endif
