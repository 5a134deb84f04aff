/*
 * kube_workers.h - makes the list of workers from the tables of all pools.
 *
 * A URL that several objects or pools claim belongs to the first pool, and in that pool to the
 * object that changed last: for a while a gone pod may be listed together with the pod that has its
 * address now. A pod with addresses of both families is one worker, at the first IPv4 address. Pure
 * functions.
 */
#ifndef KVW_KUBE_WORKERS_H
#define KVW_KUBE_WORKERS_H

#include "fleet/discovery/kube_table.h"

/* Makes the list. tables: [pool_count], of the pools of `config`. *mark: a hash of the list; equal
 * for equal lists. *count: number of workers; above KVW_MAX_WORKERS there is no list (*out NULL).
 * KVW_ENOMEM. */
enum kvw_err kvw_kube_workers(const struct kvw_config *config,
	const struct kvw_kube_table *const *tables, size_t *count, uint64_t *mark,
	struct kvw_config **out) KVW_MUST_CHECK;

#endif
