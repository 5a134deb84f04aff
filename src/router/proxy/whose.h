/*
 * whose.h - finds the worker and the tenant of an object that one worker alone keeps and clients
 * request by id.
 *
 * For an id in the table of owners (owners.h) kvway knows both: for any other tenant the id does
 * not exist. For an id that is not in the table the tenant is unknown, so that where keys have
 * tenants the object does not exist for any of them.
 *
 * Threads: those of the exchange's loop.
 */
#ifndef KVW_WHOSE_H
#define KVW_WHOSE_H

#include "proxy/exchange.h"

/* Returns whether the answer to the request with this head will name an object that clients ask for
 * later. */
bool kvw_whose_makes(const struct kvw_exchange *x, const struct kvw_head *head);

/* Takes the next payload bytes of the answer, until the id is known. */
void kvw_whose_note(struct kvw_exchange *x, const char *data, size_t len);

/* Forgets an answer that will not be passed on: the search begins again with the next answer. */
void kvw_whose_forget(struct kvw_made *made);

/* Notes that the answering worker keeps the object with this id. */
void kvw_whose_take(const struct kvw_exchange *x, struct kvw_slice id);

/* Finds the worker that keeps the object named by the request. False: kvway does not know it. */
bool kvw_whose_worker(const struct kvw_exchange *x, uint32_t *worker);

/* Finds that worker for a request with a key, and whether the object is another tenant's. */
enum kvw_owned kvw_whose(const struct kvw_exchange *x, uint32_t *worker);

/* Returns whether the request names a response. */
bool kvw_whose_response(const struct kvw_exchange *x);

/* Returns whether an object that is not in the table may be a tenant's. For requests with keys. */
bool kvw_whose_tenants(const struct kvw_exchange *x);

#endif
