/*
 * shadow.h - copies of requests for a group that is only watched (`shadow` of model_groups): kvway
 * reads their answers, compares them with the clients' where possible (fidelity.h), and discards
 * them.
 *
 * A copy has its own memory, connection and timer and never waits for its original request, so that
 * no client notices anything of the copy's worker. kvway makes the copy when the original is on its
 * way. A copy costs memory for the body (groups.shadow_body at most, groups.shadow_in_flight copies
 * in the process), takes a lease on its worker, so that other requests see its load, and ends with
 * the answer, groups.shadow_answer, groups.shadow_timeout or the drain. A copy is not repeated,
 * grades no worker, and counts in no rate, key or metric but kvway_group_shadow_* and
 * kvway_group_fidelity_*.
 *
 * Threads: all of it belongs to one loop.
 */
#ifndef KVW_PROXY_SHADOW_H
#define KVW_PROXY_SHADOW_H

#include "proxy/exchange.h"

/* Makes the copies that are due, once a worker was picked for the request and its head is in
 * loop->request_head. */
void kvw_shadow_offer(struct kvw_exchange *x);

/* Called by the loop's tick: ends copies whose worker has left, and all when the loop drains. */
void kvw_shadow_look(struct kvw_loop *loop);

/* Frees ended copies, after the turn. */
void kvw_shadow_reap(struct kvw_loop *loop);

/* Ends and frees all copies when the loop ends. */
void kvw_shadow_finish(struct kvw_loop *loop);

#endif
