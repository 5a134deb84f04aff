/*
 * sharing.h - replicas of kvway count limits together, in Redis (rate_sharing).
 *
 * A thread adds, every rate_sharing.interval, what was charged to each key, tenant and model to totals in Redis
 * and charges what others have added (rates/share.h). Requests never wait for it.
 *
 * Threads: create, start, stop by one; the state is read by any.
 */
#ifndef KVW_SHARING_H
#define KVW_SHARING_H

#include <stdatomic.h>
#include <stdio.h>

#include "config/config.h"
#include "rates/table.h"

struct kvw_sharing;

/* For metrics. */
struct kvw_sharing_state {
	_Atomic uint64_t exchanged; /* totals that were heard */
	_Atomic uint64_t failed;    /* that were not */
	_Atomic bool working;       /* the last round brought some */
};

/* Nothing runs yet. KVW_EINVAL: the URL or what it names cannot be used, which is in `errors`; KVW_ENOMEM. */
enum kvw_err kvw_sharing_create(
	const struct kvw_config *config, FILE *errors, struct kvw_sharing **out) KVW_MUST_CHECK;
/* Starts the thread. The table is borrowed until kvw_sharing_stop. */
enum kvw_err kvw_sharing_start(struct kvw_sharing *sharing, struct kvw_rate_table *table) KVW_MUST_CHECK;
/* Ends the thread, if it runs, and frees all. NULL is allowed. */
void kvw_sharing_stop(struct kvw_sharing *sharing);

const struct kvw_sharing_state *kvw_sharing_state(const struct kvw_sharing *sharing);

#endif
