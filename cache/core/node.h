/*
 * node.h - one store per node: decides whether a cache keeps its chunks in the node's kvtierd or in
 * itself.
 */
#ifndef KVT_NODE_H
#define KVT_NODE_H

#include <stdbool.h>

#include "chunk/note.h"

/*
 * Decides by config->node_share. If the daemon is used, the engines' common chunks lie in the
 * daemon's segment and on its NVMe: the daemon becomes the shared tier of *config, the cache opens
 * no store of its own, and automatic memory is small. Otherwise *config stays unchanged. Asks the
 * daemon, if the decision depends on it, and logs the result. The caller keeps the texts. Returns
 * whether the daemon is used.
 */
bool kvt_node_settle(struct kvt_config *config, const struct kvt_surroundings *surroundings);

/* Divisor of automatic memory for a cache that uses the node's daemon. */
#define KVT_NODE_L1_PART 8

#endif
