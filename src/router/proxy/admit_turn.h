/*
 * admit_turn.h - between two turns of a loop: which of those that wait go on.
 */
#ifndef KVW_ADMIT_TURN_H
#define KVW_ADMIT_TURN_H

#include "proxy/loop.h"

/* Lets go on what can. */
void kvw_admit_turn(struct kvw_loop *loop);
/* How long the loop may sleep because of what waits; -1: as long as it likes. */
int64_t kvw_admit_sleep_ns(const struct kvw_loop *loop);

#endif
