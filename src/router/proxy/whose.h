/*
 * whose.h - objects that one worker alone keeps, requested by id: their worker, and their tenant.
 *
 * For an id in the table of owners (owners.h) kvway knows both: for any other tenant the id does
 * not exist. For an id in no table the tenant is unknown, so where keys have tenants the response
 * does not exist either.
 *
 * Threads: those of the exchange's loop.
 */
#ifndef KVW_WHOSE_H
#define KVW_WHOSE_H

#include "proxy/exchange.h"

/* Returns whether the answer to the request with this head will name an object that clients ask for
 * later. */
bool kvw_whose_makes(const struct kvw_exchange *x, const struct kvw_head *head);

/* Notes the answer's next bytes of payload until the id is known. */
void kvw_whose_note(struct kvw_exchange *x, const char *data, size_t len);

/* Forgets an answer that goes nowhere: the search begins again with the next answer, if it was
 * on. */
void kvw_whose_forget(struct kvw_made *made);

/* Notes that the worker that answers keeps the object with this id. */
void kvw_whose_take(const struct kvw_exchange *x, struct kvw_slice id);

/* The worker that keeps the object that the request names, if kvway knows it. */
bool kvw_whose_worker(const struct kvw_exchange *x, uint32_t *worker);

/* Finds that worker for requests with keys, and whether the object is another tenant's. */
enum kvw_owned kvw_whose(const struct kvw_exchange *x, uint32_t *worker);

/* Returns whether the request names a response. */
bool kvw_whose_response(const struct kvw_exchange *x);

/* Returns whether an object in no table may be a tenant's. For requests with keys. */
bool kvw_whose_tenants(const struct kvw_exchange *x);

#endif
