/*
 * lacking.h - handles a request whose model is unknown, or has no worker: the request waits, or its
 * client gets an error.
 *
 * The request waits for newer model lists, or for a worker of a model that can be woken (waking.h).
 *
 * Threads: those of the exchange's loop.
 */
#ifndef KVW_LACKING_H
#define KVW_LACKING_H

#include "proxy/step.h"

/* Handles a request whose model no worker lists. */
enum kvw_stepped kvw_lacking_model(struct kvw_exchange *x);
/* Handles a request that no worker of its model can have. */
enum kvw_stepped kvw_lacking_worker(struct kvw_exchange *x);
/* Handles a request for which no worker could be chosen, like kvw_lacking_worker; but a request
 * that its group has failed is left to the group's step, and the request waits for workers that
 * have just joined. */
enum kvw_stepped kvw_lacking_choice(struct kvw_exchange *x);

/* Checks whether newer model lists have the model of x, which waits for them: if so, x goes back to
 * ROUTING; if all lists are new without it, answers that the model does not exist. Returns whether
 * either happened. */
bool kvw_lacking_unpark(struct kvw_exchange *x);

#endif
