/*
 * ledger.h - requests, tokens and seconds by key, tenant and model, for each of the last hours.
 *
 *	loop --kvw_usage_count--> page --kvw_usage_turn--> kvw_ledger_collect --> hours, series
 *
 * Each loop adds to a page of its own, plain memory that no other thread reads, and hands the page
 * over when the one before has come back: one atomic flag, no lock, no allocation. The control
 * thread adds pages to the present hour's table. A request belongs to the hour in which it ended.
 *
 * An hour has two tables. `own` has what this process has counted (and recalled from state.file).
 * `base` has what Redis has of all replicas, if they share usage (share.c): what Redis confirms
 * moves from `own` to `base`. The sum of both is what everyone reads.
 *
 * Named series are for /metrics. A bounded number of users has a series each; all others are added
 * to one series. A user's series begins at 0 when it is named, so that each series only grows while
 * it exists, and the sum over all series is exact.
 *
 * Threads: a shard belongs to its loop; all other functions may be called by any thread.
 */
#ifndef KVW_LEDGER_H
#define KVW_LEDGER_H

#include "kvway/err.h"
#include "kvway/keep.h"
#include "usage/table.h"

#define KVW_USAGE_HOUR_S INT64_C(3600)

struct kvw_ledger;
struct kvw_usage_shard; /* of one loop */

struct kvw_ledger_options {
	size_t loops;
	size_t entries; /* of an hour, and of a loop's page; 0: nothing is counted */
	size_t hours;   /* kept, the present one included; > 0 */
	size_t named;   /* users with a series of their own in /metrics */
	bool shared;    /* usage is shared through Redis, which then keeps it over restarts */
};

/* KVW_ENOMEM. *out is NULL if nothing is counted; the functions below that take a ledger or a shard
 * then do nothing if they are given NULL. */
enum kvw_err kvw_ledger_create(
	const struct kvw_ledger_options *options, struct kvw_ledger **out) KVW_MUST_CHECK;
void kvw_ledger_destroy(struct kvw_ledger *ledger);
struct kvw_usage_shard *kvw_ledger_shard(struct kvw_ledger *ledger, size_t loop);

/* --- the loop --- */

/* Adds a request that has ended; the user's names are copied. */
void kvw_usage_count(struct kvw_usage_shard *shard, const struct kvw_user *user,
	const struct kvw_used *used);
/* Called every few milliseconds: hands the page over, if it has something. */
void kvw_usage_turn(struct kvw_usage_shard *shard);

/* --- any thread --- */

/* Adds what loops have handed over to the present hour. wall_s: seconds since 1970. */
void kvw_ledger_collect(struct kvw_ledger *ledger, int64_t wall_s);
/* The same when all loops have ended: also takes what they have not handed over. */
void kvw_ledger_settle(struct kvw_ledger *ledger, int64_t wall_s);

/* Adds what was used since the beginning of the hour that contains since_s, to `out`. key: of this
 * key alone; NULL: of all. Returns the beginning of the first hour that counts, in seconds: of
 * since_s, or of the oldest hour that is kept. */
int64_t kvw_ledger_sum(struct kvw_ledger *ledger, int64_t since_s, const struct kvw_slice *key,
	int64_t wall_s, struct kvw_usage_table *out);

/* Calls fn for each named series, and with user NULL for the sum of all others. */
void kvw_ledger_series(struct kvw_ledger *ledger,
	void (*fn)(void *arg, const struct kvw_user *user, const struct kvw_used *used), void *arg);
/* Sets how many users the present hour has, how many of them have no series of their own, and how
 * many requests were added to `other` since the start because a table was full. */
struct kvw_ledger_stats {
	uint64_t entries, unnamed, overflowed;
};
void kvw_ledger_stats(struct kvw_ledger *ledger, struct kvw_ledger_stats *out);

/* --- over restarts (keep.c); nothing if usage is shared --- */

/* Writes all that is kept. heir: the records go to a process that takes over. */
enum kvw_err kvw_ledger_keep(
	struct kvw_ledger *ledger, const struct kvw_keep_out *out, bool heir) KVW_MUST_CHECK;
/* Writes what was counted after the last records for an heir; nothing if it was given none. */
enum kvw_err kvw_ledger_keep_rest(
	struct kvw_ledger *ledger, const struct kvw_keep_out *out) KVW_MUST_CHECK;
/* Adds a record of kind KVW_KEPT_USAGE; one that is not plausible is ignored. */
void kvw_ledger_recall(
	struct kvw_ledger *ledger, const uint8_t *record, size_t len, int64_t wall_s);

/* --- between replicas --- */

/* Adds users, at most `most`, whose counts of one hour Redis does not have yet, to `out`, which is
 * empty. False: Redis has all. */
bool kvw_ledger_unsent(struct kvw_ledger *ledger, size_t most, int64_t *hour,
	struct kvw_usage_table *out) KVW_MUST_CHECK;
/* Notes that Redis has these counts now, which kvw_ledger_unsent has given. */
void kvw_ledger_sent(struct kvw_ledger *ledger, int64_t hour, const struct kvw_usage_table *sent);
/* Replaces what Redis has of an hour, counted in hours since 1970. Takes the table's contents. */
void kvw_ledger_heard_take(struct kvw_ledger *ledger, int64_t hour, struct kvw_usage_table *heard);
/* Returns how many hours are kept. */
size_t kvw_ledger_hours(const struct kvw_ledger *ledger);

#endif
