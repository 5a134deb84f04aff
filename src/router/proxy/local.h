/*
 * local.h - what kvway answers itself: /health, /ready, /ping, /v1/models, /metrics.
 */
#ifndef KVW_LOCAL_H
#define KVW_LOCAL_H

#include "proxy/exchange.h"

/* If the path is kvway's own: answers, or waits for it. False: it is a worker's. The
 * head was parsed last. */
bool kvw_local_answers(struct kvw_exchange *x);

/* If it is a browser's preflight that kvway answers itself: answers. The same. */
bool kvw_local_preflight(struct kvw_exchange *x);

/* Answers an exchange that waits for the text of /metrics, which may be there now. False: not
 * yet. */
bool kvw_local_metrics(struct kvw_exchange *x);

#endif
