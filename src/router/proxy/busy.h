/*
 * busy.h - answers of a worker whose engine is full, and what kvway learns from them.
 *
 * Engines may limit how many requests they have (vLLM's --max-num-queued-reqs and
 * --max-num-queued-tokens, TGI's and TEI's --max-concurrent-requests, SGLang's
 * --max-queued-requests). A request beyond the limit is answered within a millisecond:
 *
 * 	429                           TGI, TEI
 * 	503 with Retry-After          servers and proxies
 * 	503, whose body says so       vLLM, SGLang
 * 	200, whose first event does   vLLM, when many come at once
 * 	200, an opening, and no more  vLLM's /v1/responses, when many come at once
 *
 * An engine that breaks looks like the last line, too: kvway takes such an answer for a full engine
 * only while answers of any worker say so in words, and a minute longer; and at most four times for
 * a request, so that no request goes on breaking workers.
 *
 * None of these answers is a fault: the worker is not graded. For a while kvway takes the worker's
 * load at that moment for its limit (kvway/load.h). The request goes to a worker with room; where
 * no worker has room, the request waits like any request that arrives while all workers are busy
 * (admit.h), and without admission its client gets 503, or the 429, with Retry-After. No request
 * waits for a worker that refuses although it has no request of kvway: nothing here says when that
 * worker will have room.
 *
 * Threads: an event loop's own.
 */
#ifndef KVW_BUSY_H
#define KVW_BUSY_H

#include "http/head.h"
#include "proxy/exchange.h"

struct kvw_fleet_table;

#define KVW_BUSY_RETRY_AFTER "retry-after: 1\r\n"

/* Returns whether the head says that the worker is full. *pause_ns: the pause that Retry-After
 * names; else 0. */
bool kvw_busy_by_head(const struct kvw_head *head, int64_t *pause_ns);
/* Returns whether the head is a 429 that does not say when to come again. */
bool kvw_busy_lacks_time(const struct kvw_head *head);
/* Returns whether this piece of an error, a body or an event, says that the worker is full. */
bool kvw_busy_says(const char *data, size_t len);

/* Called when the answer's stream ends: returns whether the worker has broken the stream off
 * because it is full. */
bool kvw_busy_broke_off(const struct kvw_exchange *x);

/* The exchange's worker is full: counts the refusal, and learns the worker's limit. */
void kvw_busy_note(struct kvw_exchange *x, int64_t pause_ns);

/* Returns whether the exchange could meet a full worker. */
bool kvw_busy_any(const struct kvw_exchange *x);
/* Marks full workers as not usable, if any other worker is usable. */
void kvw_busy_avoid(const struct kvw_exchange *x, struct kvw_fleet_table *table);
/* Returns whether a usable worker other than the exchange's present one has room. */
bool kvw_busy_other_has_room(const struct kvw_exchange *x, const struct kvw_fleet_table *table);
/* Returns whether a usable worker will have room once its requests have ended. The exchange's own
 * part of the load does not count. */
bool kvw_busy_any_will_have_room(const struct kvw_exchange *x, const struct kvw_fleet_table *table);

#endif
