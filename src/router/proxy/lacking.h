/*
 * lacking.h - a request whose model is not known, or has no worker: it waits, or its client gets an
 * error.
 *
 * It waits for newer model lists, or for a worker of a model that can be woken (waking.h).
 *
 * Threads: those of the exchange's loop.
 */
#ifndef KVW_LACKING_H
#define KVW_LACKING_H

#include "proxy/step.h"

/* No worker lists its model. */
enum kvw_stepped kvw_lacking_model(struct kvw_exchange *x);
/* None of the model's can have it. */
enum kvw_stepped kvw_lacking_worker(struct kvw_exchange *x);
/* The same; but a group that failed it is refused by its step, and workers that have just joined
 * are waited for. */
enum kvw_stepped kvw_lacking_choice(struct kvw_exchange *x);

/* Looks whether newer model lists know the model of x, which waits for them: back to ROUTING if
 * so; answers that there is no such model if all lists are new. Returns whether either happened. */
bool kvw_lacking_unpark(struct kvw_exchange *x);

#endif
