/*
 * directory_parts.h - what the directory's files share. Private to them.
 */
#ifndef KVW_COORDINATOR_DIRECTORY_PARTS_H
#define KVW_COORDINATOR_DIRECTORY_PARTS_H

#include "feeds/coordinator/directory.h"

uint64_t kvw_cd_hash(const struct kvw_cd *cd, struct kvw_slice text);
uint64_t kvw_cd_key_hash(const struct kvw_cd *cd, const struct kvw_ce_key *key);

/* Removes a placement, and its object with the last one. Its instance stays. */
void kvw_cd_remove_placement(struct kvw_cd *cd, struct kvw_cd_placement *placement);

/* Drops all L1 placements of an instance. */
void kvw_cd_fence(struct kvw_cd *cd, struct kvw_cd_instance *instance);
/* Drops all placements of an instance's private L2. */
void kvw_cd_forget_l2(struct kvw_cd *cd, struct kvw_cd_instance *instance);

/* An entry of a batch of stores, whatever the cursor is. */
void kvw_cd_store(struct kvw_cd *cd, struct kvw_cd_instance *instance,
	const struct kvw_ce_batch *batch, const struct kvw_ce_entry *entry);

/* At the directory's end, after the objects. */
void kvw_cd_free_salts(struct kvw_cd *cd);
void kvw_cd_free_pins(struct kvw_cd *cd);

/* Finds or makes the instance; NULL: no room. */
struct kvw_cd_instance *kvw_cd_take_instance(struct kvw_cd *cd, struct kvw_slice id);
/* Frees the instance if nothing refers to it any more. */
void kvw_cd_settle(struct kvw_cd *cd, struct kvw_cd_instance *instance);
void kvw_cd_free_instance(struct kvw_cd *cd, struct kvw_cd_instance *instance);

#endif
