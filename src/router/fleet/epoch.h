/*
 * epoch.h - frees objects that loops read without a lock once no loop can still use them.
 *
 * Each loop counts its turns; between two turns it holds no borrowed object. A retired object is
 * freed once every loop has finished the turn in which the object was still reachable. Loops turn
 * at least once per tick, so that is soon, and a loop pays one atomic addition per turn.
 *
 * Threads: kvw_epochs_turn by the loop that owns the index (or by the thread that takes its place);
 * kvw_epochs_retire and kvw_epochs_reclaim by the control thread.
 */
#ifndef KVW_EPOCH_H
#define KVW_EPOCH_H

#include <stdint.h>
#include <stddef.h>

#include "kvway/err.h"

struct kvw_epochs;

enum kvw_err kvw_epochs_create(size_t loops, struct kvw_epochs **out) KVW_MUST_CHECK;
/* Frees all retired objects: every loop must have ended. NULL is allowed. */
void kvw_epochs_destroy(struct kvw_epochs *epochs);

void kvw_epochs_turn(struct kvw_epochs *epochs, size_t loop);

/* Retires an object: free_fn(object) runs in a later kvw_epochs_reclaim or in destroy. */
enum kvw_err kvw_epochs_retire(struct kvw_epochs *epochs, void *object,
	void (*free_fn)(void *object)) KVW_MUST_CHECK;
void kvw_epochs_reclaim(struct kvw_epochs *epochs);

#endif
