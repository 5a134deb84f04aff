/*
 * understand.h - what a whole request asks for: the scan of its body.
 */
#ifndef KVW_UNDERSTAND_H
#define KVW_UNDERSTAND_H

#include "proxy/exchange.h"

void kvw_request_scan_begin(struct kvw_exchange *x);

/* Charges what the scan holds now to limits.body_memory: some bodies are read into many times their
 * size. True: it holds more than before. */
bool kvw_request_scan_charge(struct kvw_exchange *x);

/* The whole body was fed: fills x->route. */
void kvw_request_scan_finish(struct kvw_exchange *x);

/* The model that the body itself names as its client sent it, or by naming none means, after that;
 * len 0: not known for certain. */
struct kvw_slice kvw_request_body_model(const struct kvw_exchange *x);

/* Gives the scan back; x->route then knows no more than the head and x->named. */
void kvw_request_scan_release(struct kvw_exchange *x);

/* Without a scan: the model that the query names. */
void kvw_request_read_query(struct kvw_exchange *x);

/* The scan ends before the body, of a path that carries a prompt: what it has found of the model's
 * name outlives it. */
void kvw_request_keep_model(struct kvw_exchange *x);

/* The same on a path that is not known, where a member `model` may mean something else: it counts
 * if a worker serves that, or if it is an alias, which reaches no worker, or divided
 * (model_groups). */
void kvw_request_keep_known_model(struct kvw_exchange *x);

/* Before another pick: fills x->route again from the body that was kept. */
void kvw_request_scan_again(struct kvw_exchange *x);

/* Where loop->sources is set. Before a pick: adds what is known of the prompt's exact tokens to
 * x->route. */
void kvw_request_add_tokens(struct kvw_exchange *x);

/* After it: reports to the sources where the prompt went. */
void kvw_request_report_pick(struct kvw_exchange *x);

#endif
