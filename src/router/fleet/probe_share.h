/*
 * probe_share.h - what the metrics of a server say of one of its workers: of itself, or of one of
 * its data-parallel ranks.
 *
 * Threads: the control thread.
 */
#ifndef KVW_PROBE_SHARE_H
#define KVW_PROBE_SHARE_H

#include "fleet/fleet.h"
#include "fleet/room.h"
#include "fleet/scrape.h"

struct kvw_probe_share {
	struct kvw_worker *worker; /* held */
	struct kvw_room room;   /* its KV memory, learned from metrics */
	double draft_tokens, draft_accepted; /* last read counters; -1: not yet */
	/* The last pages' external_hits, the newest first, and transfers when they came. */
	double external_hits[3];
	uint64_t transfers[3];
	struct kvw_foreign foreign; /* foreign requests, from its metrics */
	int64_t foreign_ns;     /* time of that; 0: there are none */
};

/* Holds the worker. KVW_ENOTFOUND: it is not LIVE; KVW_ENOMEM. */
enum kvw_err kvw_probe_share_create(
	struct kvw_worker *worker, struct kvw_probe_share **out) KVW_MUST_CHECK;
void kvw_probe_share_destroy(struct kvw_probe_share *share); /* NULL is allowed */

/* Takes what a page says of the worker. */
void kvw_probe_share_take(struct kvw_probe_share *share, struct kvw_fleet *fleet,
	const struct kvw_scrape *scrape);

/* Takes what a server's page says of each of its ranks; shares: [KVW_RANKS_MOST], by rank; NULL:
 * that rank is no worker. A page with fewer ranks says nothing. */
void kvw_probe_shares_take(struct kvw_probe_share *const *shares, struct kvw_fleet *fleet,
	const struct kvw_scrape_page *page);

/* Whether requests of others wait there; those that were found longer ago than oldest_ns are
 * forgotten. */
bool kvw_probe_share_waits(struct kvw_probe_share *share, struct kvw_fleet *fleet,
	int64_t oldest_ns, int64_t now_ns);

/* Judges a silent worker. Returns whether its counters are needed for that. */
bool kvw_probe_share_is_silent(
	struct kvw_probe_share *share, struct kvw_fleet *fleet, int64_t now_ns);

#endif
