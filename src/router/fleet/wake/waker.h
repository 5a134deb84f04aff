/*
 * waker.h - brings up workers of a model for which requests wait (discovery.wake).
 *
 * A round of calls is the webhook, then the `scale` of each pool of the model. A round is made when
 * the first request waits, again after a back-off if one of its calls failed, and again after
 * discovery.wake.hold if no worker has come by then and requests still wait. Waking ends when a
 * worker of the model can be picked.
 *
 * Threads: the control thread.
 */
#ifndef KVW_WAKER_H
#define KVW_WAKER_H

#include "fleet/fleet.h"

struct event_base;
struct kvw_waker;

/* base and fleet are borrowed. */
enum kvw_err kvw_waker_create(
	struct event_base *base, struct kvw_fleet *fleet, struct kvw_waker **out) KVW_MUST_CHECK;
void kvw_waker_destroy(struct kvw_waker *waker); /* NULL is allowed */

#endif
