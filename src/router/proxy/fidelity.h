/*
 * fidelity.h - compares the text of a watched group (`shadow` of model_groups) with the text of the
 * client's group.
 *
 * A request of temperature 0 has one answer, so the copy's answer and the client's can be compared
 * by the model's text (openai/answer_text.h) while both arrive, in any order. The text of the
 * answer that is ahead is kept until the other has caught up: 64 KiB at most, within
 * groups.shadow_memory, and none once the two differ. The client's answer never waits for the copy.
 *
 * Both sides report their end: each exactly once, in any order. A comparison that both have ended
 * is counted and freed.
 *
 * Threads: all of it belongs to one loop.
 */
#ifndef KVW_PROXY_FIDELITY_H
#define KVW_PROXY_FIDELITY_H

#include "proxy/exchange.h"

struct kvw_fidelity;

/* Begins to compare the answer of a copy, made for the group of this label in metrics. NULL: the
 * request's answer may differ each time, or out of memory. The copy's end and the client's must be
 * reported. */
struct kvw_fidelity *kvw_fidelity_begin(struct kvw_exchange *x, uint8_t label);

/* Compares bytes of the client's answer; reports its end. Only if x->fidelity is not NULL. */
void kvw_fidelity_client(struct kvw_exchange *x, const char *data, size_t len);
void kvw_fidelity_client_end(struct kvw_exchange *x, enum kvw_end end);

/* Compares bytes of the copy's answer; reports its end. good: complete, and of status 200. */
void kvw_fidelity_copy(struct kvw_fidelity *f, const char *data, size_t len);
void kvw_fidelity_copy_end(struct kvw_fidelity *f, bool good);

#endif
