/*
 * broadcast.h - serves POST /broadcast/PATH on the admin address: sends a request to every worker,
 * and returns all answers. Private to src/router/admin.
 *
 * Paths: sleep, wake_up, is_sleeping (by GET), reset_prefix_cache, load_lora_adapter,
 * unload_lora_adapter. Query and body go to the workers as they are, with the worker's own key;
 * ?workers=ID,ID, which ends here, names some of them. At most KVW_BROADCAST_AT_ONCE workers are
 * asked at a time.
 *
 * kvway updates what it knows of a worker: a worker that will be put to sleep gets no more
 * requests, even before it is asked to sleep; a worker that has lost its cache counts as empty; a
 * worker that got other adapters is asked for its models, and a request for an unknown model waits
 * for the answer.
 *
 * Threads: the control thread.
 */
#ifndef KVW_ADMIN_BROADCAST_H
#define KVW_ADMIN_BROADCAST_H

#include "fleet/members.h"

#define KVW_BROADCAST_AT_ONCE    32
#define KVW_BROADCAST_TIME_MS    10000
/* limit of broadcasts under way; further ones are answered with 503 */
#define KVW_BROADCASTS_MOST      16
/* how long after its client has left further workers are asked */
#define KVW_BROADCAST_DESERTED_MS 60000
/* limit of one worker's answer; the rest is cut off */
#define KVW_BROADCAST_ANSWER_MAX ((size_t)64 << 10)
#define KVW_BROADCAST_BODY_MAX   ((size_t)1 << 20)

struct event_base;
struct kvw_broadcaster;
struct kvw_conn;

/* For metrics. Any thread may read it. */
struct kvw_broadcast_state {
	/* including those whose client has left */
	_Atomic uint32_t running;
	/* Counts since the start; given_up: deserted ones that left out workers. */
	_Atomic uint64_t answered, deserted, refused, given_up;
};

/* All arguments are borrowed until destroy. prober may be NULL. */
enum kvw_err kvw_broadcaster_create(struct event_base *base, struct kvw_fleet *fleet,
	struct kvw_members *members, struct kvw_prober *prober,
	struct kvw_broadcaster **out) KVW_MUST_CHECK;
const struct kvw_broadcast_state *kvw_broadcaster_state(const struct kvw_broadcaster *broadcaster);
/* Called when no connection waits any more. Aborts broadcasts that are under way. NULL is
 * allowed. */
void kvw_broadcaster_destroy(struct kvw_broadcaster *broadcaster);

/* Serves a request to a path of /broadcast/, now or later. False: another path. */
bool kvw_broadcast_http(struct kvw_broadcaster *broadcaster, struct kvw_conn *conn);

#endif
