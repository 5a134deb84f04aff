/*
 * stores.h - chunks on their way from L1 to lower tiers.
 */
#ifndef KVT_STORES_H
#define KVT_STORES_H

#include "core/blocks.h"
#include "core/core.h"

/* The caller of each function below holds `lock`. */

/* Stores a chunk that was published in L1 in every tier that lacks it. Uses the cargo; its maker
 * gives it up with kvt_cargo_leave. If memory is short the store is dropped and counted. */
void kvt_stores_add(struct kvt *k, struct kvt_cargo *cargo);
void kvt_cargo_leave(struct kvt_cargo *cargo); /* NULL is allowed */

/* Returns whether a tier has the chunk, and no store of it waits or is under way. */
bool kvt_stores_are_over(struct kvt *k, const struct kvt_key *key);

void kvt_stores_pump(struct kvt *k);
/* Makes stores of these chunks leave nothing in the tiers. keys NULL: of all chunks of `tenant`,
 * or, if that is NULL too, of all. */
void kvt_stores_erase(
	struct kvt *k, const struct kvt_key *keys, size_t n, const struct kvt_tenant *tenant);
/* Handles tenants that have just got another generation: waiting stores are dropped, stores that
 * are being written finish under their former names. */
void kvt_stores_erase_slots(struct kvt *k, const struct kvt_slot_set *slots);
/* Sends erases again that a tier refused. *next_ns as in kvt_lower_tick. */
size_t kvt_stores_tick(struct kvt *k, int64_t now_ns, int64_t *next_ns);
/* Drops stores that have no request under way. */
void kvt_stores_stop(struct kvt *k);

#endif
