/*
 * bucket.h - budgets per minute and per day, each in one atomic word.
 *
 * A bucket is stored as the time at which it will be full again (GCRA): taking units postpones that
 * time by the time in which they refill. A bucket's size is `burst_ns`; a larger request is granted
 * when the bucket is full, and the bucket then owes the rest. So no request is refused for ever,
 * and on average a bucket grants no more than its refill.
 *
 * Units become time by kvw_rate_ns, so that a bucket stores no rate: a new rate takes effect with
 * the next call. Threads: any, without a lock. Times are monotonic ns of the caller's clock, and
 * greater than 0.
 */
#ifndef KVW_RATES_BUCKET_H
#define KVW_RATES_BUCKET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Zeroed: full. */
struct kvw_bucket {
	_Atomic int64_t full_ns; /* when the bucket is or was full */
};

/* Returns the time in which `units` refill at a rate of `per_minute` (> 0). */
int64_t kvw_rate_ns(int64_t units, int64_t per_minute);

/* Returns the time until cost_ns can be taken; 0: now. Takes nothing. */
int64_t kvw_bucket_wait_ns(
	const struct kvw_bucket *bucket, int64_t cost_ns, int64_t burst_ns, int64_t now_ns);
/* Takes cost_ns and returns 0, or takes nothing and returns the time until it can be taken. */
int64_t kvw_bucket_take(
	struct kvw_bucket *bucket, int64_t cost_ns, int64_t burst_ns, int64_t now_ns);
/* Takes cost_ns even if the bucket then owes. */
void kvw_bucket_owe(struct kvw_bucket *bucket, int64_t cost_ns, int64_t now_ns);
/* Gives taken units back. */
void kvw_bucket_give(struct kvw_bucket *bucket, int64_t cost_ns);
/* Returns the time until the bucket is full. */
int64_t kvw_bucket_debt_ns(const struct kvw_bucket *bucket, int64_t now_ns);

/* Units used on one day. Days count from 1970, UTC. Zeroed: nothing was used. */
struct kvw_day {
	_Atomic uint64_t word; /* the day in the high bits, the units used on it in the low 48 */
};

/* Takes `units`, unless `most` would be exceeded. As with a bucket, a request for more than `most`
 * is granted if nothing was used. False: nothing was taken. */
bool kvw_day_take(struct kvw_day *day, int64_t units, int64_t most, uint64_t today);
/* Adds units (below 0: subtracts) to the count of that day. A day before the last counted one stays
 * unchanged. */
void kvw_day_correct(struct kvw_day *day, int64_t units, uint64_t today);
int64_t kvw_day_used(const struct kvw_day *day, uint64_t today);

#endif
