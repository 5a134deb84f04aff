/*
 * bucket.h - budgets of a minute and of a day: one atomic word each.
 *
 * A bucket is kept as the moment at which it will be full again (GCRA): a take moves that moment
 * on, by the time that the taken units need to come back. A bucket holds `burst_ns`; a request for
 * more than it can ever hold is met when it is full, and owes the rest. So no request is refused
 * for good, and on average a bucket gives no more than comes back.
 *
 * Units become time by kvw_rate_ns, so a bucket keeps no rate of its own: another rate takes effect
 * with the next call.
 * Threads: any, without a lock. Times are monotonic ns of the caller's clock, and greater than 0.
 */
#ifndef KVW_RATES_BUCKET_H
#define KVW_RATES_BUCKET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Zeroed: full. */
struct kvw_bucket {
	_Atomic int64_t full_ns; /* when it is full, or was */
};

/* Time in which `units` come back at a rate of `per_minute` (> 0). */
int64_t kvw_rate_ns(int64_t units, int64_t per_minute);

/* How long until that much could be taken; 0: now. Takes nothing. */
int64_t kvw_bucket_wait_ns(
	const struct kvw_bucket *bucket, int64_t cost_ns, int64_t burst_ns, int64_t now_ns);
/* Takes it and returns 0, or takes nothing and returns how long that could not be done. */
int64_t kvw_bucket_take(
	struct kvw_bucket *bucket, int64_t cost_ns, int64_t burst_ns, int64_t now_ns);
/* Takes it, whether it is there or not. */
void kvw_bucket_owe(struct kvw_bucket *bucket, int64_t cost_ns, int64_t now_ns);
/* Gives taken units back. */
void kvw_bucket_give(struct kvw_bucket *bucket, int64_t cost_ns);
/* How long until it is full. */
int64_t kvw_bucket_debt_ns(const struct kvw_bucket *bucket, int64_t now_ns);

/* Units used on one day. Days count from 1970, UTC. Zeroed: nothing was used. */
struct kvw_day {
	_Atomic uint64_t word; /* the day in the high bits, the units used on it in the low 48 */
};

/* Takes `units`, unless `most` would be exceeded. As with a bucket, a request for more than `most`
 * gets through if nothing was used. False: nothing was taken. */
bool kvw_day_take(struct kvw_day *day, int64_t units, int64_t most, uint64_t today);
/* Adds units (below 0: takes units off) to that day. A day before the last one that was counted
 * stays as it is. */
void kvw_day_correct(struct kvw_day *day, int64_t units, uint64_t today);
int64_t kvw_day_used(const struct kvw_day *day, uint64_t today);

#endif
