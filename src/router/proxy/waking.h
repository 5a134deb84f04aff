/*
 * waking.h - lets a request wait for a worker when its model is known but has none
 * (discovery.wake.hold).
 *
 * The request waits for `hold` at most, and not beyond x-kvway-deadline-ms; the time of several
 * waits counts from the first. A request that has been sent to a worker before, or names its
 * worker, does not wait.
 */
#ifndef KVW_WAKING_H
#define KVW_WAKING_H

#include "proxy/exchange.h"

/* Makes x, which is in ROUTING and finds no worker, wait. True: x waits, or was answered. */
bool kvw_waking_hold(struct kvw_exchange *x);
/* Returns whether other requests wait for a worker of the request's model. */
bool kvw_waking_others(const struct kvw_exchange *x);
/* Makes x, which is in ROUTING, wait behind others for its model. False: no other request waits
 * here. */
bool kvw_waking_queue(struct kvw_exchange *x);
/* Returns whether x, which waits for a worker, has one now; x then is in ROUTING. */
bool kvw_waking_go_on(struct kvw_exchange *x);

#endif
