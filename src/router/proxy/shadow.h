/*
 * shadow.h - copies of requests for a group that is only watched (`shadow` of model_groups): their
 * answers are read, compared with the clients' where that can be (fidelity.h), and discarded.
 *
 * A copy has its own memory, connection and timer and waits for nothing of the request that it was
 * made of, so that whatever its worker does, no client can notice. It is made when that request is
 * on its way, costs a copy of the body (groups.shadow_body at most, groups.shadow_in_flight of them
 * in the process), takes a lease on its worker, so that others see its load, and ends with the
 * answer, groups.shadow_answer, groups.shadow_timeout or the drain. It is not repeated, grades no
 * worker, and no rate, key or metric but kvway_group_shadow_* and kvway_group_fidelity_* knows of
 * it.
 *
 * Threads: all of it belongs to one loop.
 */
#ifndef KVW_PROXY_SHADOW_H
#define KVW_PROXY_SHADOW_H

#include "proxy/exchange.h"

/* A worker was picked for the request, and its head is in loop->request_head: makes the copies that
 * are due. */
void kvw_shadow_offer(struct kvw_exchange *x);

/* From the loop's tick: ends those whose worker has left, and all when the loop drains. */
void kvw_shadow_look(struct kvw_loop *loop);

/* After the turn: frees what has ended. */
void kvw_shadow_reap(struct kvw_loop *loop);

/* The loop ends: nothing of it is left. */
void kvw_shadow_finish(struct kvw_loop *loop);

#endif
