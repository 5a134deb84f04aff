/*
 * probe.h - probes each worker: /health, /v1/models, /metrics. The data-parallel ranks of one
 * server are probed together, and its metrics split by their label `engine`.
 *
 * libcurl's multi interface on the control thread's event base; nothing blocks. At most one
 * transfer of each kind per worker at a time, answers limited to KVW_PROBE_MAX_BODY. The first
 * round starts at once, later ones are spread over the interval, so that a fleet is not probed in a
 * burst. A failed probe is repeated at the configured interval; results go to the fleet (fleet.h).
 */
#ifndef KVW_PROBE_H
#define KVW_PROBE_H

#include "fleet/fleet.h"

#define KVW_PROBE_MAX_BODY (4u << 20)

struct event_base;
struct kvw_prober;

/* base: the control thread's. fleet is borrowed; its present workers are probed from the start. */
enum kvw_err kvw_prober_create(struct event_base *base, struct kvw_fleet *fleet,
	struct kvw_prober **out) KVW_MUST_CHECK;
/* Begins to probe a worker, which the prober holds until it is removed. A lead must be added before
 * its other ranks. KVW_ENOTFOUND: the worker is not LIVE. */
enum kvw_err kvw_prober_add(struct kvw_prober *prober, struct kvw_worker *worker) KVW_MUST_CHECK;
void kvw_prober_remove(struct kvw_prober *prober, struct kvw_worker *worker);
/* Starts all probes of a worker at once. */
void kvw_prober_hurry(struct kvw_prober *prober, struct kvw_worker *worker);
void kvw_prober_destroy(struct kvw_prober *prober); /* NULL is allowed; aborts transfers */

/* Called after each reading of a server's metrics, on the control thread, with the number of ranks
 * that they show (KVW_RANKS_MOST + 1 if there are more); worker: the server's lead. Must not remove
 * workers from the prober. */
typedef void kvw_prober_ranks_fn(void *arg, struct kvw_worker *worker, uint32_t ranks);
void kvw_prober_on_ranks(struct kvw_prober *prober, kvw_prober_ranks_fn *fn, void *arg);

/* Returns the number of workers whose first probe was answered or failed. */
size_t kvw_prober_first_round_done(const struct kvw_prober *prober);

#endif
