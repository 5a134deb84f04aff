/*
 * members.h - decides the fleet's members: joins the lists of all sources, drains workers before it
 * removes them.
 *
 * A source reports its whole list at each change: the configuration, a watched file, DNS,
 * Kubernetes, the admin address. A worker, known by its URL, is a member as long as one source
 * lists it; if several do, the settings of the first in the order of enum kvw_member_source are
 * effective. The lists decide about each worker:
 *
 * 	listed ------------> it joins the fleet, is resolved and probed
 * 	listed otherwise --> new models and a new weight are taken over in place; with anything else
 * 	                     changed a new one takes the place of the old one, which leaves
 * 	not listed --------> it leaves: no new requests; removed when its last request has ended,
 * 	                     or after drain.worker
 *
 * A worker with several data-parallel ranks (ranks.h) joins as so many workers: as many as its
 * settings say, or else its metrics. All of them have its settings, and leave with it.
 *
 * The admin address can also let a member rest (drained and kept) and remove one that another
 * source lists, until the admin address adds it again, or until the next reload.
 *
 * Threads: the control thread.
 */
#ifndef KVW_MEMBERS_H
#define KVW_MEMBERS_H

#include "fleet/fleet.h"
#include "fleet/probe.h"

struct event_base;
struct kvw_members;
struct kvw_resolver;

enum kvw_member_source {
	KVW_SOURCE_CONFIG,
	KVW_SOURCE_FILE,
	KVW_SOURCE_ADMIN,
	KVW_SOURCE_DNS,
	KVW_SOURCE_KUBERNETES,
	KVW_SOURCE_COUNT,
};

/* "config", "file", ... */
const char *kvw_member_source_name(enum kvw_member_source source);

/* A source's numbers, for metrics. Any thread may read them. */
struct kvw_member_listing {
	_Atomic bool used;          /* the source is configured, or has reported */
	/* the source's list cannot be read now; its last list stays in force */
	_Atomic bool unreadable;
	_Atomic int64_t unreadable_since_ns; /* kvw_clock_ns */
	_Atomic uint32_t listed;    /* workers in its list */
	_Atomic int64_t listed_s;   /* time of the last list, wall clock; 0: never */
};

/* Returns for how many seconds the list has been unreadable, at least 1; 0: it can be read. */
uint64_t kvw_member_listing_unreadable_s(const struct kvw_member_listing *listing, int64_t now_ns);

/* Changes that applying a list has made. */
struct kvw_members_change {
	size_t joined, left, changed;
	size_t refused; /* members that cannot join; retried every second */
	/* Error of the last member that cannot join: KVW_ELIMIT, KVW_EINVAL (files for TLS to the
	 * worker), KVW_ENOMEM. */
	enum kvw_err err;
	char why[256];  /* cause of `err` as text */
};

/* All arguments are borrowed, and must outlive the members. resolver NULL: names are not looked up.
 * The fleet must have exactly the workers of the configuration. */
enum kvw_err kvw_members_create(struct event_base *base, struct kvw_fleet *fleet,
	struct kvw_prober *prober, struct kvw_resolver *resolver,
	struct kvw_members **out) KVW_MUST_CHECK;
void kvw_members_destroy(struct kvw_members *members); /* NULL is allowed */

/* Takes over the whole list of a source, by copying. KVW_ENOMEM: only a part of the list may be in
 * force. */
enum kvw_err kvw_members_set(struct kvw_members *members, enum kvw_member_source source,
	const struct kvw_worker_config *workers, size_t count,
	struct kvw_members_change *change) KVW_MUST_CHECK;

/* Records that the source's list, or a part of it, cannot be read now, or is readable again. */
void kvw_members_unreadable(
	struct kvw_members *members, enum kvw_member_source source, bool unreadable);
/* [KVW_SOURCE_COUNT] */
const struct kvw_member_listing *kvw_members_listings(const struct kvw_members *members);

/* --- the admin address --- */

/* A member as the admin address shows it. */
struct kvw_member_view {
	const char *url;
	struct kvw_worker *worker; /* NULL: removed by the admin address */
	uint32_t sources;          /* bits of enum kvw_member_source; 0: the worker is leaving */
	bool rests;                /* the admin address lets it rest */
	bool leaves;
	int64_t leaves_in_ms; /* at most */
};

/* Adds a worker to the admin address's own list. A worker that the admin address had removed comes
 * back with these settings, until a source that lists it has other settings. KVW_EINVAL: it is a
 * member already, or files for TLS to it cannot be used; KVW_ELIMIT: the fleet is full; `why` has
 * the cause. */
enum kvw_err kvw_members_add(struct kvw_members *members, const struct kvw_worker_config *worker,
	char *why, size_t room) KVW_MUST_CHECK;
/* Sets new settings of a member, until a source reports others. */
enum kvw_err kvw_members_change(struct kvw_members *members, const struct kvw_worker_config *worker,
	char *why, size_t room) KVW_MUST_CHECK;
/* Takes a member out of use (it gets no requests), or back into use: the one rank with that URL, or
 * all ranks of that server. KVW_ENOTFOUND. */
enum kvw_err kvw_members_rest(
	struct kvw_members *members, const char *url, bool rest) KVW_MUST_CHECK;
/* Removes a member, whichever source lists it. at_once: requests that run there are moved or cut.
 * KVW_ENOTFOUND; KVW_EINVAL: it is one of several ranks, which leave together. */
enum kvw_err kvw_members_remove(
	struct kvw_members *members, const char *url, bool at_once) KVW_MUST_CHECK;
/* Returns the effective settings of the member of this URL, which may name a rank; NULL: there is
 * none. Borrowed until the next change. */
const struct kvw_worker_config *kvw_members_find(struct kvw_members *members, const char *url);
/* Shows the members by index from 0, ascending by URL, each rank by itself; false: there are no
 * more. */
bool kvw_members_view(struct kvw_members *members, size_t index, struct kvw_member_view *out);

/* Called by a reload: workers that the admin address has removed are members again if a source
 * lists them. */
void kvw_members_forgive(struct kvw_members *members);

#endif
