/*
 * waking.h - a request for a known model that finds no worker waits for one (discovery.wake.hold).
 *
 * It waits for hold at most, and not beyond x-kvway-deadline-ms; how often it is held, the time
 * counts from the first. What has been sent to a worker before, or names its worker, does not wait.
 */
#ifndef KVW_WAKING_H
#define KVW_WAKING_H

#include "proxy/exchange.h"

/* x, which is in ROUTING, finds no worker. True: it waits, or was answered. */
bool kvw_waking_hold(struct kvw_exchange *x);
/* Do others wait for a worker of its model? */
bool kvw_waking_others(const struct kvw_exchange *x);
/* Others of its model wait here, so x, which is in ROUTING, waits behind them. */
bool kvw_waking_queue(struct kvw_exchange *x);
/* Has x, which waits for a worker, one now? Then it is in ROUTING. */
bool kvw_waking_go_on(struct kvw_exchange *x);

#endif
