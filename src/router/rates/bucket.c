/* bucket.c - budgets per minute and per day, each in one atomic word. */
#include "rates/bucket.h"

#define MINUTE_NS 60e9
#define MOST_NS   1e17 /* three years: sums of some such times stay below 2^63 */
#define LATEST_NS (INT64_C(1) << 62) /* latest full_ns, however much the bucket owes */

int64_t kvw_rate_ns(int64_t units, int64_t per_minute)
{
	double ns = (double)units * (MINUTE_NS / (double)per_minute);

	return ns < MOST_NS ? (int64_t)(ns + 0.5) : (int64_t)MOST_NS;
}

/* Returns the time from which a change counts: a bucket that is full does not get fuller. */
static int64_t from_ns(int64_t full_ns, int64_t now_ns)
{
	return full_ns > now_ns ? full_ns : now_ns;
}

/* Returns the full_ns after units of cost_ns were taken. */
static int64_t later(int64_t full_ns, int64_t cost_ns, int64_t now_ns)
{
	int64_t from = from_ns(full_ns, now_ns);

	return from < LATEST_NS - cost_ns ? from + cost_ns : LATEST_NS;
}

static int64_t wait_of(int64_t full_ns, int64_t cost_ns, int64_t burst_ns, int64_t now_ns)
{
	int64_t need_ns = cost_ns < burst_ns ? cost_ns : burst_ns;
	int64_t wait_ns = from_ns(full_ns, now_ns) - now_ns + need_ns - burst_ns;

	return wait_ns > 0 ? wait_ns : 0;
}

int64_t kvw_bucket_wait_ns(
	const struct kvw_bucket *bucket, int64_t cost_ns, int64_t burst_ns, int64_t now_ns)
{
	return wait_of(atomic_load_explicit(&bucket->full_ns, memory_order_relaxed), cost_ns,
		burst_ns, now_ns);
}

int64_t kvw_bucket_take(
	struct kvw_bucket *bucket, int64_t cost_ns, int64_t burst_ns, int64_t now_ns)
{
	int64_t full_ns = atomic_load_explicit(&bucket->full_ns, memory_order_relaxed);
	int64_t wait_ns;

	do {
		wait_ns = wait_of(full_ns, cost_ns, burst_ns, now_ns);
		if (wait_ns > 0)
			return wait_ns;
	} while (!atomic_compare_exchange_weak_explicit(&bucket->full_ns, &full_ns,
		later(full_ns, cost_ns, now_ns), memory_order_relaxed, memory_order_relaxed));
	return 0;
}

void kvw_bucket_owe(struct kvw_bucket *bucket, int64_t cost_ns, int64_t now_ns)
{
	int64_t full_ns = atomic_load_explicit(&bucket->full_ns, memory_order_relaxed);

	while (!atomic_compare_exchange_weak_explicit(&bucket->full_ns, &full_ns,
		later(full_ns, cost_ns, now_ns), memory_order_relaxed, memory_order_relaxed))
		;
}

void kvw_bucket_give(struct kvw_bucket *bucket, int64_t cost_ns)
{
	atomic_fetch_sub_explicit(&bucket->full_ns, cost_ns, memory_order_relaxed);
}

int64_t kvw_bucket_debt_ns(const struct kvw_bucket *bucket, int64_t now_ns)
{
	return from_ns(atomic_load_explicit(&bucket->full_ns, memory_order_relaxed), now_ns) -
	       now_ns;
}

/* --- a day --- */

#define USED_BITS 48
#define USED_MOST ((INT64_C(1) << USED_BITS) - 1)

static int64_t used_in(uint64_t word, uint64_t today)
{
	return word >> USED_BITS == (today & 0xffff) ? (int64_t)(word & (uint64_t)USED_MOST) : 0;
}

static uint64_t word_of(int64_t used, uint64_t today)
{
	used = used < 0 ? 0 : used > USED_MOST ? USED_MOST : used;
	return (today & 0xffff) << USED_BITS | (uint64_t)used;
}

bool kvw_day_take(struct kvw_day *day, int64_t units, int64_t most, uint64_t today)
{
	uint64_t word = atomic_load_explicit(&day->word, memory_order_relaxed);
	int64_t used;

	do {
		used = used_in(word, today);
		if (used > 0 && used + units > most)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&day->word, &word,
		word_of(used + units, today), memory_order_relaxed, memory_order_relaxed));
	return true;
}

void kvw_day_correct(struct kvw_day *day, int64_t units, uint64_t today)
{
	uint64_t word = atomic_load_explicit(&day->word, memory_order_relaxed);

	do {
		if (word >> USED_BITS > (today & 0xffff))
			return;
	} while (!atomic_compare_exchange_weak_explicit(&day->word, &word,
		word_of(used_in(word, today) + units, today), memory_order_relaxed,
		memory_order_relaxed));
}

int64_t kvw_day_used(const struct kvw_day *day, uint64_t today)
{
	return used_in(atomic_load_explicit(&day->word, memory_order_relaxed), today);
}
