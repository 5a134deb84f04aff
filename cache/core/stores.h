/*
 * stores.h - chunks on their way from L1 down to the tiers below.
 */
#ifndef KVT_STORES_H
#define KVT_STORES_H

#include "core/blocks.h"
#include "core/core.h"

/* All of this: under lock. */

/* A chunk was published in L1: stores it in every tier that lacks it. Uses the cargo, which its
 * maker gives up with kvt_cargo_leave. A store without memory for it is dropped and counted. */
void kvt_stores_add(struct kvt *k, struct kvt_cargo *cargo);
void kvt_cargo_leave(struct kvt_cargo *cargo); /* NULL is allowed */

/* A tier has it, and no store of it waits or is under way. */
bool kvt_stores_are_over(struct kvt *k, const struct kvt_key *key);

void kvt_stores_pump(struct kvt *k);
/* Stores of these chunks leave nothing behind. keys NULL: of a tenant; that NULL too: of all. */
void kvt_stores_erase(
	struct kvt *k, const struct kvt_key *keys, size_t n, const struct kvt_tenant *tenant);
/* Of tenants that have another generation from now on: what waits is dropped, what is being written goes under its former
 * name. */
void kvt_stores_erase_slots(struct kvt *k, const struct kvt_slot_set *slots);
/* Tries again what a tier refused to erase. *next_ns as kvt_lower_tick. */
size_t kvt_stores_tick(struct kvt *k, int64_t now_ns, int64_t *next_ns);
/* Drops what has nothing under way. */
void kvt_stores_stop(struct kvt *k);

#endif
