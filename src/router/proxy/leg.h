/*
 * leg.h - the first leg of a request that one worker prefills and another decodes: asked of the
 * prefiller, and its answer read for the parameters of the transfer.
 *
 * A leg has a connection, a lease and a timer of its own; nothing of its answer reaches the client.
 * Its exchange waits (wait.h) and has the decoder's lease meanwhile. However it ends, it ends once:
 * its lease is given back, the strategy hears the outcome, the worker is graded.
 *
 * Threads: those of the exchange's loop.
 */
#ifndef KVW_LEG_H
#define KVW_LEG_H

#include "proxy/exchange.h"

/* Called when the leg has ended: goes on with the exchange, whose x->pd has the result. */
typedef void kvw_leg_done_fn(struct kvw_exchange *x);

/* Begins the leg at x->pd->prefiller by x->pd->decision, and the wait for it, unless it goes on
 * together with the decoder's attempt: then only its failure is heard of, as that attempt's.
 * KVW_EINVAL: the request must stay whole (openai/legs.h), or no time is left for a leg.
 * KVW_EIO, KVW_ENOMEM: the prefiller cannot be asked. After an error the decision has been
 * reported as unserved. */
enum kvw_err kvw_leg_begin(struct kvw_exchange *x, kvw_leg_done_fn *done) KVW_MUST_CHECK;

/* For a leg that the decoder's side takes (KVW_LEG_NEVER): books it at x->pd->prefiller. It ends
 * with the decoder's first token or with the attempt. KVW_ENOMEM: as above. */
enum kvw_err kvw_leg_book(struct kvw_exchange *x) KVW_MUST_CHECK;

/* The decoder's first token came. */
void kvw_leg_first_token(struct kvw_exchange *x);

/* Ends the leg, if its worker has left, is down, asleep or stands still: it would wait in vain.
 * Returns whether, and then the exchange has gone on. */
bool kvw_leg_look(struct kvw_exchange *x);

/* timeouts.connect has passed for the leg under way: tries the prefiller's next address, or ends it. */
void kvw_leg_connect_late(struct kvw_exchange *x);

/* Frees what has ended. Between turns of the loop. */
void kvw_leg_reap(struct kvw_loop *loop);

#endif
