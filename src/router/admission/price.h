/*
 * price.h - the highest price at which the workers can do all cheaper requests.
 *
 * Under overload, a request that takes ten seconds of a worker takes them from ten or twenty other
 * requests and breaks their promises, whatever their order. The limit on a request's price (its
 * work over its value) follows from the recently offered work: all work cheaper than the limit just
 * fills the workers' time. Below capacity there is no limit. Work of a more important class comes
 * first, whatever its price.
 *
 * Offered work is summed up by classes and steps of price, older work fading away within a minute.
 *
 * Threads: a price belongs to one event loop, which sees only its own requests; it assumes a share
 * of the workers' time equal to its share of all requests (kvw_price_limits' rate).
 */
#ifndef KVW_PRICE_H
#define KVW_PRICE_H

#include "admission/queue.h"

#define KVW_PRICE_STEPS 128 /* eight steps to a doubling of the price, from 1 ms on */

struct kvw_price {
	/* ns of work by class and step, faded up to the time from_ns */
	double offered[KVW_CLASSES][KVW_PRICE_STEPS];
	double total;                                 /* of all */
	int64_t from_ns; /* time of the last update; 0: no request was offered yet */
	double limit[KVW_CLASSES]; /* INFINITY: none */
};

void kvw_price_init(struct kvw_price *price);
/* Counts an offered request. */
void kvw_price_offer(struct kvw_price *price, const struct kvw_waiter *waiter, int64_t now_ns);
/* Returns the offered work in ns per ns, over the last minute. */
double kvw_price_offered(const struct kvw_price *price, int64_t now_ns);
/* Sets the limits. rate: predicted ns of prefill that the workers do for this loop in one ns. */
void kvw_price_limits(struct kvw_price *price, double rate, int64_t now_ns);

static inline bool kvw_price_too_high(
	const struct kvw_price *price, const struct kvw_waiter *waiter)
{
	return kvw_waiter_price(waiter) > price->limit[waiter->class];
}

#endif
