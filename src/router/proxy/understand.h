/*
 * understand.h - finds out what a whole request asks for, by scanning its body.
 */
#ifndef KVW_UNDERSTAND_H
#define KVW_UNDERSTAND_H

#include "proxy/exchange.h"

void kvw_request_scan_begin(struct kvw_exchange *x);

/* Charges the scan's present memory to limits.body_memory, since some bodies are read into many
 * times their size. True: the scan holds more than before. */
bool kvw_request_scan_charge(struct kvw_exchange *x);

/* Fills x->route, after the whole body was fed. */
void kvw_request_scan_finish(struct kvw_exchange *x);

/* Returns the model that the body names as its client sent it, or means by naming none; called
 * after kvw_request_scan_finish. len 0: not known for certain. */
struct kvw_slice kvw_request_body_model(const struct kvw_exchange *x);

/* Gives the scan back; afterwards x->route has only values of the head and x->named. */
void kvw_request_scan_release(struct kvw_exchange *x);

/* Reads the model that the query names, without a scan. */
void kvw_request_read_query(struct kvw_exchange *x);

/* Keeps the found part of the model's name when the scan ends before the body, for a path that
 * carries a prompt. */
void kvw_request_keep_model(struct kvw_exchange *x);

/* Keeps the model's name on an unknown path, where a member `model` may mean something else: the
 * name counts if a worker serves it, if it is an alias, which reaches no worker, or divided
 * (model_groups). */
void kvw_request_keep_known_model(struct kvw_exchange *x);

/* Fills x->route again from the kept body, before another pick. */
void kvw_request_scan_again(struct kvw_exchange *x);

/* Adds the known exact tokens of the prompt to x->route, before a pick. Only where loop->sources is
 * set. */
void kvw_request_add_tokens(struct kvw_exchange *x);

/* x->route as before the pick: both of the above. NULL: the body is not kept. Until
 * kvw_request_scan_release. */
const struct kvw_route_request *kvw_request_read_again(struct kvw_exchange *x);

/* Reports to the sources where the prompt went, after a pick. */
void kvw_request_report_pick(struct kvw_exchange *x);

#endif
