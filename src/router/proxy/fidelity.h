/*
 * fidelity.h - does the group that is watched (`shadow` of model_groups) write what the client's
 * group wrote?
 *
 * A request of temperature 0 has one answer, so that the copy's and the client's can be compared:
 * by what the model wrote (openai/answer_text.h), as both come, whichever is ahead. Of the one that
 * is ahead, text is kept until the other has caught up: 64 KiB at most, within
 * groups.shadow_memory, and none once the two differ. Whatever becomes of the copy, the client's
 * answer never waits for it.
 *
 * Both ends report: each exactly once, in any order. What both have ended is counted and freed.
 *
 * Threads: all of it belongs to one loop.
 */
#ifndef KVW_PROXY_FIDELITY_H
#define KVW_PROXY_FIDELITY_H

#include "proxy/exchange.h"

struct kvw_fidelity;

/* A copy is made for the group of this label in metrics: compares its answer. NULL: the request's
 * answer may be another each time, or out of memory. Its end is due, and the client's. */
struct kvw_fidelity *kvw_fidelity_begin(struct kvw_exchange *x, uint8_t label);

/* Bytes of the client's answer, and its end, if x->fidelity is not NULL. */
void kvw_fidelity_client(struct kvw_exchange *x, const char *data, size_t len);
void kvw_fidelity_client_end(struct kvw_exchange *x, enum kvw_end end);

/* The same of the copy's. good: it is whole, and of 200. */
void kvw_fidelity_copy(struct kvw_fidelity *f, const char *data, size_t len);
void kvw_fidelity_copy_end(struct kvw_fidelity *f, bool good);

#endif
