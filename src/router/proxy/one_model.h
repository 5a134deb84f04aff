/*
 * one_model.h - /v1/models/{id}: one entry of the list of models.
 *
 * Threads: those of the exchange's loop.
 */
#ifndef KVW_ONE_MODEL_H
#define KVW_ONE_MODEL_H

#include "proxy/exchange.h"

/* Answers with the entry as /v1/models has it for this client, or 404. path: as received, without query. */
void kvw_one_model_answer(struct kvw_exchange *x, struct kvw_slice path);

#endif
