/*
 * dry.h - a request that is only explained: it passes the steps by which any goes, and goes
 * nowhere.
 *
 * A question has a loop of its own, which never turns, a client without a connection and an
 * exchange whose `dry` is set. What its steps would count goes to metrics that are not read. A step
 * that acts on more than the request is passed over (step.h), or has another function for a dry
 * run, which looks only: nothing is leased, counted, charged, sent or woken, but that its body is
 * held within limits.body_memory. What differs from a request that is served: a body that is not
 * what its path promises is an error here, where its worker would refuse it; an unknown model is
 * answered at once, where a request that is served first has the workers asked again.
 *
 * Cost: a copy of the body, its scan (three if its path has to be guessed), and what the strategy
 * takes to weigh every worker.
 *
 * Threads: the control thread, which alone replaces the fleet's view and therefore cannot do so
 * meanwhile, or where the fleet belongs to one thread alone, that one.
 */
#ifndef KVW_DRY_H
#define KVW_DRY_H

#include "admin/explain.h"
#include "proxy/proxy.h"

/* All borrowed. */
struct kvw_dry_deps {
	/* config, fleet, strategy, auth, sources; metrics: of the loops, looked at; NULL: none */
	struct kvw_proxy_deps proxy;
	struct kvw_shared *shared; /* of the loops, only looked at */
	struct kvw_feed *feed;     /* NULL: none */
	bool cold;                 /* made from a file, nothing runs */
};

/* Explains by these, which are borrowed for as long. */
struct kvw_explainer kvw_dry_explainer(struct kvw_dry_deps *deps);

#endif
