/*
 * local.h - the paths that kvway answers itself: /health, /ready, /ping, /v1/models, /metrics.
 */
#ifndef KVW_LOCAL_H
#define KVW_LOCAL_H

#include "proxy/exchange.h"

/* Answers a path of kvway's own, or begins to wait for the answer. False: a worker answers the
 * path. The head was parsed last. */
bool kvw_local_answers(struct kvw_exchange *x);

/* Answers a browser's preflight of kvway's own. False: not one. The head was parsed last. */
bool kvw_local_preflight(struct kvw_exchange *x);

/* Answers an exchange that waits for the text of /metrics, if the text is there now. False: not
 * yet. */
bool kvw_local_metrics(struct kvw_exchange *x);

#endif
