/*
 * busy.h - what a worker says whose engine is full, and what is learned from it.
 *
 * Engines may limit how many requests they have (vLLM's --max-num-queued-reqs and
 * --max-num-queued-tokens, TGI's and TEI's --max-concurrent-requests, SGLang's
 * --max-queued-requests). One more is answered within a millisecond:
 *
 *	429                           TGI, TEI
 *	503 with Retry-After          servers and proxies
 *	503, whose body says it       vLLM, SGLang
 *	200, whose first event does   vLLM, when many come at once
 *	200, an opening, and no more  vLLM's /v1/responses, when many come at once
 *
 * The last is what an engine that breaks looks like, too: it is taken for this only while answers
 * say so in words, of whichever worker, and a minute longer; and four times for a request, so that
 * none goes on breaking workers.
 *
 * None of these is a fault: the worker is not graded. What it has when it says so is taken for its
 * limit for a while (kvway/load.h). The request goes to a worker with room; where there is none, it
 * waits as any request does that comes while all workers have enough to do (admit.h), and without
 * admission its client gets 503, or the 429, with Retry-After. A worker that refuses although it
 * has nothing of kvway's is not waited for: nothing here says when it will have room.
 *
 * Threads: an event loop's own.
 */
#ifndef KVW_BUSY_H
#define KVW_BUSY_H

#include "http/head.h"
#include "proxy/exchange.h"

struct kvw_fleet_table;

#define KVW_BUSY_RETRY_AFTER "retry-after: 1\r\n"

/* Does the head say it? *pause_ns: for how long, by its Retry-After; else 0. */
bool kvw_busy_by_head(const struct kvw_head *head, int64_t *pause_ns);
/* Is it one of 429 that leaves open when to come again? */
bool kvw_busy_lacks_time(const struct kvw_head *head);
/* Does this piece of an error, a body or an event, say it? */
bool kvw_busy_says(const char *data, size_t len);

/* The answer's stream ends here. Has its worker broken it off because it is full? */
bool kvw_busy_broke_off(const struct kvw_exchange *x);

/* The exchange's worker is full: counts that, and learns from it. */
void kvw_busy_note(struct kvw_exchange *x, int64_t pause_ns);

/* Could the exchange meet a worker that is full? */
bool kvw_busy_any(const struct kvw_exchange *x);
/* Marks full workers as not usable, if any other worker is usable. */
void kvw_busy_avoid(const struct kvw_exchange *x, struct kvw_fleet_table *table);
/* Is one usable that has room, besides the exchange's present one? */
bool kvw_busy_other_has_room(const struct kvw_exchange *x, const struct kvw_fleet_table *table);
/* Is one usable that will have room when what it has has ended? The exchange's own part of it does
 * not count. */
bool kvw_busy_any_will_have_room(const struct kvw_exchange *x, const struct kvw_fleet_table *table);

#endif
