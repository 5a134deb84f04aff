/*
 * local.h - serves the paths that kvway answers itself: /health, /ready, /ping, /v1/models,
 * /metrics.
 */
#ifndef KVW_LOCAL_H
#define KVW_LOCAL_H

#include "proxy/exchange.h"

/* Answers a path of kvway's own, or begins to wait for the answer. False: the path belongs to a
 * worker. Requires that this exchange's head was parsed last. */
bool kvw_local_answers(struct kvw_exchange *x);

/* Answers a browser's preflight for one of kvway's own paths. False: the request is not one.
 * Requires that this exchange's head was parsed last. */
bool kvw_local_preflight(struct kvw_exchange *x);

/* Answers an exchange that waits for the text of /metrics. False: the text is not there yet. */
bool kvw_local_metrics(struct kvw_exchange *x);

#endif
