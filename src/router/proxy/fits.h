/*
 * fits.h - which workers take a prompt of this length.
 *
 * One model may be served with several values of vLLM's --max-model-len, which each worker states
 * in its list of models. A prompt that is too long, with the answer that it asks for, gets 400 from
 * one worker and an answer from another. Where tokens are only estimated, an eighth more is
 * expected: a worker that takes longer prompts costs nothing else. A prompt that its worker finds
 * too long all the same goes once to a worker that takes more.
 *
 * Threads: an event loop's own.
 */
#ifndef KVW_FITS_H
#define KVW_FITS_H

#include "proxy/exchange.h"

struct kvw_fleet_table;

/* Workers that do not take it are not usable, if any does; if none does, those that take the most
 * are. */
void kvw_fits_keep(const struct kvw_exchange *x, struct kvw_fleet_table *table);

/* The worker has answered 400. Can another one have the request, which takes longer prompts? */
bool kvw_fits_another(const struct kvw_exchange *x);
/* Does this piece of a 400's body say that the prompt, or what it asks for, is too long? */
bool kvw_fits_denies(const char *data, size_t len);
/* It did: the request is to go to one that takes more, which the attempt notes. */
void kvw_fits_leave(struct kvw_exchange *x);

#endif
