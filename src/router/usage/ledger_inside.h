/*
 * ledger_inside.h - the ledger's structs. Private to src/router/usage/ledger.c, series.c, keep.c
 * and share.c.
 */
#ifndef KVW_LEDGER_INSIDE_H
#define KVW_LEDGER_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "usage/ledger.h"

/* A loop's two pages. The loop adds to pages[open]; while `handed` is true the other page belongs
 * to the thread that collects. */
struct kvw_usage_shard {
	_Alignas(64) struct kvw_usage_table pages[2];
	unsigned open;
	unsigned next; /* page that is handed over next; guarded by the ledger's lock */
	_Atomic bool handed;
};

/* Usage of one hour. */
struct kvw_usage_hour {
	int64_t hour; /* hours since 1970 */
	struct kvw_usage_table own, base;
	/* the part of `own` that the last records for an heir had; zeroed: there were none */
	struct kvw_usage_table given;
	bool unsent; /* `own` may have counts that Redis does not have */
};

/* A series of /metrics. */
struct kvw_usage_series {
	char text[KVW_USER_TEXT_MOST];
	struct kvw_user user; /* slices of text */
	struct kvw_used used; /* since the user was named */
	bool taken;
};

struct kvw_ledger {
	struct kvw_ledger_options options;
	struct kvw_usage_shard *shards; /* [loops] */
	_Atomic bool gave; /* an heir was given records */
	pthread_mutex_t lock;           /* guards everything below; held for a copy of an hour */
	struct kvw_usage_hour *hours;   /* [options.hours], ascending; hour_count of them exist */
	size_t hour_count;
	struct kvw_usage_series *series; /* [options.named] */
	struct kvw_used rest;            /* used by those without a series */
	int64_t ranked_s;                /* when the busiest users were last named */
	uint64_t overflowed;             /* requests */
};

/* The lock is held in all of these. */

/* Finds the hour, or makes it, for which the oldest one may have to go. Before the oldest of as
 * many hours as may be kept, that one is returned: the clock was set back. NULL: out of memory. */
struct kvw_usage_hour *kvw_ledger_hour(struct kvw_ledger *ledger, int64_t hour);
/* Adds what `user` has used to the series; entry: of the present hour, NULL: there is none. */
void kvw_series_count(struct kvw_ledger *ledger, struct kvw_usage_entry *entry,
	const struct kvw_user *user, const struct kvw_used *used);
/* Sets the tag of a new entry: the index + 1 of its series, 0: it has none. */
void kvw_series_tag(
	struct kvw_ledger *ledger, struct kvw_usage_entry *entry, const struct kvw_user *user);

/* Gives series to the busiest users of this hour and the last, at most once a minute. Takes the
 * lock to copy the hours, and again to name the users. */
void kvw_series_rank(struct kvw_ledger *ledger, int64_t wall_s);

#endif
