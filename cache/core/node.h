/*
 * node.h - one store per node: whether a cache keeps its chunks in the node's kvtierd or by itself.
 */
#ifndef KVT_NODE_H
#define KVT_NODE_H

#include <stdbool.h>

#include "chunk/note.h"

/*
 * By config->node_share. With the daemon, what the engines of a node share lies there, in its
 * segment and on its NVMe: the daemon becomes the shared tier of *config, a store of one's own is
 * not opened, and automatic memory is small. Else *config stays as it is. Asks the daemon, where it
 * depends on that, and logs what became of it. Texts stay the caller's. Returns whether it is the
 * daemon.
 */
bool kvt_node_settle(struct kvt_config *config, const struct kvt_surroundings *surroundings);

/* Of memory whose size is automatic, with the node's daemon: one part in so many. */
#define KVT_NODE_L1_PART 8

#endif
