/*
 * probe_share.h - applies the metrics of a server to one of its workers: its only worker, or one of
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
	struct kvw_room room;   /* room in its KV memory, learned from metrics */
	/* the counters at the last reading; -1: not yet read */
	double draft_tokens, draft_accepted;
	/* external_hits of the last three pages, the newest first, and `transfers` when each
	 * came. */
	double external_hits[3];
	uint64_t transfers[3];
	struct kvw_foreign foreign; /* foreign requests that its metrics show */
	int64_t foreign_ns;     /* when foreign requests were last found; 0: there are none */
};

/* Makes a share, which holds the worker. KVW_ENOTFOUND: the worker is not LIVE; KVW_ENOMEM. */
enum kvw_err kvw_probe_share_create(
	struct kvw_worker *worker, struct kvw_probe_share **out) KVW_MUST_CHECK;
void kvw_probe_share_destroy(struct kvw_probe_share *share); /* NULL is allowed */

/* Applies a page of metrics to the worker. */
void kvw_probe_share_take(struct kvw_probe_share *share, struct kvw_fleet *fleet,
	const struct kvw_scrape *scrape);

/* Applies a server's page to each of its ranks; shares: [KVW_RANKS_MOST], by rank; NULL: that rank
 * is not a worker. A page that has fewer ranks than before is ignored. */
void kvw_probe_shares_take(struct kvw_probe_share *const *shares, struct kvw_fleet *fleet,
	const struct kvw_scrape_page *page);

/* Returns whether foreign requests wait at the worker; those that were found longer ago than
 * oldest_ns are forgotten. */
bool kvw_probe_share_waits(struct kvw_probe_share *share, struct kvw_fleet *fleet,
	int64_t oldest_ns, int64_t now_ns);

/* Judges a worker that has not answered for long. Returns whether its counters must be read for
 * that. */
bool kvw_probe_share_is_silent(
	struct kvw_probe_share *share, struct kvw_fleet *fleet, int64_t now_ns);

#endif
