/*
 * directory_parts.h - what the directory's files share. Private to directory.c and members.c.
 */
#ifndef KVW_COORDINATOR_DIRECTORY_PARTS_H
#define KVW_COORDINATOR_DIRECTORY_PARTS_H

#include "feeds/coordinator/directory.h"

uint64_t kvw_cd_hash(const struct kvw_cd *cd, struct kvw_slice text);

/* Drops all L1 placements of an instance. */
void kvw_cd_fence(struct kvw_cd *cd, struct kvw_cd_instance *instance);
/* Drops all placements of an instance's private L2. */
void kvw_cd_forget_l2(struct kvw_cd *cd, struct kvw_cd_instance *instance);

/* Finds or makes the instance; NULL: no room. */
struct kvw_cd_instance *kvw_cd_take_instance(struct kvw_cd *cd, struct kvw_slice id);
/* Frees the instance if nothing refers to it any more. */
void kvw_cd_settle(struct kvw_cd *cd, struct kvw_cd_instance *instance);
void kvw_cd_free_instance(struct kvw_cd *cd, struct kvw_cd_instance *instance);

#endif
