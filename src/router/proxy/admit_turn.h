/*
 * admit_turn.h - between two turns of a loop: sends waiting requests that may go on.
 */
#ifndef KVW_ADMIT_TURN_H
#define KVW_ADMIT_TURN_H

#include "proxy/loop.h"

/* Sends on each waiting request that may go on now. */
void kvw_admit_turn(struct kvw_loop *loop);
/* How long the loop may sleep while requests wait; -1: without limit. */
int64_t kvw_admit_sleep_ns(const struct kvw_loop *loop);

#endif
