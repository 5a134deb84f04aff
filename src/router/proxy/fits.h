/*
 * fits.h - finds the workers that take a prompt of this length.
 *
 * One model may be served with several values of vLLM's --max-model-len, which each worker states
 * in its list of models. A prompt that is too long together with its answer gets 400 from one
 * worker and an answer from another. kvway adds an eighth to estimated tokens, to be safe: choosing
 * a worker that takes longer prompts costs nothing. A prompt that its worker nevertheless finds too
 * long goes once to a worker that takes more.
 *
 * Threads: an event loop's own.
 */
#ifndef KVW_FITS_H
#define KVW_FITS_H

#include "proxy/exchange.h"

struct kvw_fleet_table;

/* Makes workers that do not take the prompt unusable, if any worker takes it; otherwise only the
 * workers of the longest prompts stay usable. */
void kvw_fits_keep(const struct kvw_exchange *x, struct kvw_fleet_table *table);

/* The worker has answered 400. Returns whether a worker that takes longer prompts can have the
 * request. */
bool kvw_fits_another(const struct kvw_exchange *x);
/* Returns whether this piece of a 400's body says that prompt or answer is too long. */
bool kvw_fits_denies(const char *data, size_t len);
/* Notes in the attempt that the request goes to a worker that takes longer prompts. */
void kvw_fits_leave(struct kvw_exchange *x);

#endif
