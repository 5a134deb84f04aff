/*
 * elsewhere.h - what other processes erase in a tier that this one shares with them.
 */
#ifndef KVT_CORE_ELSEWHERE_H
#define KVT_CORE_ELSEWHERE_H

#include "core/core.h"

/* Erases here what the tier saw that others erased there. By the thread that steps the tier, between its step and
 * what follows from the requests that it ended; without lock. Returns what was done. */
size_t kvt_elsewhere_heed(struct kvt_lower *b);

/* Lists for shared tiers, each second, the tenants of which this handle holds chunks. Without lock, by the thread of the
 * control part. *next_ns: lowered to when to call again. */
void kvt_elsewhere_list(struct kvt *k, int64_t now_ns, int64_t *next_ns);

#endif
