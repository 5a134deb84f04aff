/*
 * groups_patch.h - reads the body of PATCH /groups: new weights of a model's groups. Private to
 * src/router/admin.
 *
 *	{"model": NAME, "weights": {GROUP: NUMBER, ...}}	null: the file's weight
 *
 * Threads: the control thread changes weights; loops read them at any time (proxy/groups.c).
 */
#ifndef KVW_ADMIN_GROUPS_PATCH_H
#define KVW_ADMIN_GROUPS_PATCH_H

#include "config/config.h"
#include "kvway/slice.h"

struct kvw_groups_patch {
	struct kvw_model_groups groups; /* groups of the model; borrowed from the configuration */
	double weights[KVW_MAX_MODEL_GROUPS]; /* new weights of all groups */
};

/* Reads a body. Returns 200, and *out has the weights; or else the status of the error, and *out is
 * undefined. */
int kvw_groups_patch_read(const struct kvw_config *config, struct kvw_slice body,
	struct kvw_groups_patch *out, char why[160]);
void kvw_groups_patch_apply(const struct kvw_groups_patch *patch);

#endif
