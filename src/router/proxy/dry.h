/*
 * dry.h - a request that is only explained: it passes the steps of any request, and reaches no
 * worker.
 *
 * A question has a loop of its own, which never turns, a client without a connection and an
 * exchange whose `dry` is set. Its steps count in metrics that are never read. A step that acts on
 * more than the request is skipped (step.h), or has another function for a dry run, which only
 * looks: nothing is leased, counted, charged, sent or woken; only the body counts against
 * limits.body_memory. A dry run differs from a served request in two points: a body that its path
 * does not allow is an error here, where a worker would refuse it; an unknown model is answered at
 * once, where for a served request kvway first asks the workers again.
 *
 * Cost: a copy of the body, its scan (three if its path has to be guessed), and the strategy's
 * weighing of every worker.
 *
 * Threads: the control thread, which alone replaces the fleet's view and so cannot replace it
 * meanwhile; where the fleet belongs to one thread alone, that thread.
 */
#ifndef KVW_DRY_H
#define KVW_DRY_H

#include "admin/explain.h"
#include "proxy/proxy.h"

/* All borrowed. */
struct kvw_dry_deps {
	/* config, fleet, strategy, auth, sources; metrics: the loops', which are only read; NULL:
	 * none */
	struct kvw_proxy_deps proxy;
	struct kvw_shared *shared; /* the loops' shared part, only read */
	struct kvw_feed *feed;     /* NULL: none */
	bool cold;                 /* all parts were made from a file, and no worker runs */
};

/* Returns the explainer of these parts, which are borrowed while it is used. */
struct kvw_explainer kvw_dry_explainer(struct kvw_dry_deps *deps);

#endif
