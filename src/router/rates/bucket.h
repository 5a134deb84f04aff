/*
 * bucket.h - what may be used in a minute, and in a day: one atomic word each.
 *
 * A bucket is kept as the moment at which it will be full again (GCRA): what is taken moves it on,
 * by as much time as it takes to come back. It holds `burst_ns`; a request for more than it can
 * ever hold is met when it is full, and owes the rest. So nothing is refused for good, and on
 * average no more is given than comes back.
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

/* How long so many units take to come back, of which there are `per_minute` (> 0). */
int64_t kvw_rate_ns(int64_t units, int64_t per_minute);

/* How long until that much could be taken; 0: now. Takes nothing. */
int64_t kvw_bucket_wait_ns(
	const struct kvw_bucket *bucket, int64_t cost_ns, int64_t burst_ns, int64_t now_ns);
/* Takes it and returns 0, or takes nothing and returns how long that could not be done. */
int64_t kvw_bucket_take(
	struct kvw_bucket *bucket, int64_t cost_ns, int64_t burst_ns, int64_t now_ns);
/* Takes it, whether it is there or not. */
void kvw_bucket_owe(struct kvw_bucket *bucket, int64_t cost_ns, int64_t now_ns);
/* Takes back what was taken. */
void kvw_bucket_give(struct kvw_bucket *bucket, int64_t cost_ns);
/* How long until it is full. */
int64_t kvw_bucket_debt_ns(const struct kvw_bucket *bucket, int64_t now_ns);

/* What was used on one day. Days are those since 1970, UTC. Zeroed: nothing. */
struct kvw_day {
	_Atomic uint64_t word; /* the day above, what was used on it in the low 48 bits */
};

/* Takes `units`, unless `most` would be exceeded. As with a bucket, what is more than `most` gets
 * through if nothing was used. False: taken was nothing. */
bool kvw_day_take(struct kvw_day *day, int64_t units, int64_t most, uint64_t today);
/* More or, below 0, less was used on that day.
 * Of a day before the last one that was counted: nothing is changed. */
void kvw_day_correct(struct kvw_day *day, int64_t units, uint64_t today);
int64_t kvw_day_used(const struct kvw_day *day, uint64_t today);

#endif
