/*
 * probe.h - asks each worker how it is: /health, /v1/models, /metrics.
 *
 * libcurl's multi interface on the control thread's event base; nothing blocks. At most one
 * transfer of each kind per worker at a time, answers limited to KVW_PROBE_MAX_BODY. The first round starts
 * at once, later ones are spread over the interval so that a fleet is not asked in a burst. A probe
 * that fails is repeated with the configured interval; results go to fleet.h.
 */
#ifndef KVW_PROBE_H
#define KVW_PROBE_H

#include "fleet/fleet.h"

#define KVW_PROBE_MAX_BODY (4u << 20)

struct event_base;
struct kvw_prober;

/* base: the control thread's. fleet is borrowed. */
enum kvw_err kvw_prober_create(struct event_base *base, struct kvw_fleet *fleet,
	struct kvw_prober **out) KVW_MUST_CHECK;
void kvw_prober_destroy(struct kvw_prober *prober); /* NULL is allowed; aborts transfers */

/* How many workers have had their first probe answered or failed. */
size_t kvw_prober_first_round_done(const struct kvw_prober *prober);

#endif
