/*
 * whose.h - what one worker alone keeps, asked for by its id: which worker's it is, and which
 * tenant's.
 *
 * Of an id in owners.h both are known: for any other tenant there is no such id. Of an id in no
 * table the tenant cannot be known, so where keys have tenants there is no such response either.
 *
 * Threads: those of the exchange's loop.
 */
#ifndef KVW_WHOSE_H
#define KVW_WHOSE_H

#include "proxy/exchange.h"

/* Will the answer to the request with this head name something that is asked for later? */
bool kvw_whose_makes(const struct kvw_exchange *x, const struct kvw_head *head);

/* Notes the answer's next bytes of payload until it knows the id. */
void kvw_whose_note(struct kvw_exchange *x, const char *data, size_t len);

/* The answer goes nowhere: the next one is looked through again, if it was. */
void kvw_whose_forget(struct kvw_made *made);

/* The worker that answers keeps what has this id. */
void kvw_whose_take(const struct kvw_exchange *x, struct kvw_slice id);

/* The worker that keeps what the request names, if kvway knows it. */
bool kvw_whose_worker(const struct kvw_exchange *x, uint32_t *worker);

/* The same, for requests with keys: and if it is another tenant's. */
enum kvw_owned kvw_whose(const struct kvw_exchange *x, uint32_t *worker);

/* Does it name a response? */
bool kvw_whose_response(const struct kvw_exchange *x);

/* May what is in no table be a tenant's? Of requests with keys. */
bool kvw_whose_tenants(const struct kvw_exchange *x);

#endif
