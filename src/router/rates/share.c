/* share.c - replicas of kvway add up their charges to one key, tenant or model. */
#include "rates/share.h"

#define IDLE_NS    (INT64_C(10) * 1000000000)
#define TOTAL_MOST (INT64_C(1) << 61)

static bool read_number(struct kvw_slice text, int64_t *out)
{
	bool minus = text.len > 0 && text.data[0] == '-';
	int64_t value = 0;

	if (text.data == NULL || text.len == minus)
		return false;
	for (size_t i = minus; i < text.len; i++) {
		if (text.data[i] < '0' || text.data[i] > '9' ||
			__builtin_mul_overflow(value, 10, &value) ||
			__builtin_sub_overflow(value, text.data[i] - '0', &value))
			return false;
	}
	if (!minus && value == INT64_MIN)
		return false;
	*out = minus ? value : -value;
	return true;
}

bool kvw_rate_share_read(
	const struct kvw_slice texts[KVW_RATE_TOTALS], struct kvw_rate_sums *totals)
{
	return read_number(texts[0], &totals->requests) && read_number(texts[1], &totals->tokens) &&
	       read_number(texts[2], &totals->day_tokens) &&
	       read_number(texts[3], &totals->exchanges);
}

static int64_t read_of(const _Atomic int64_t *count)
{
	return atomic_load_explicit(count, memory_order_relaxed);
}

bool kvw_rate_share_wants(const struct kvw_rate_subject *subject, int64_t now_ns)
{
	const struct kvw_rate_shared *s = &subject->shared;

	return read_of(&subject->requests_charged) != s->requests_sent ||
	       read_of(&subject->tokens_charged) != s->tokens_sent || s->failed ||
	       (s->looked_ns != 0 && now_ns - s->looked_ns < IDLE_NS);
}

static bool apart(const struct kvw_rate_shared *s, int64_t now_ns)
{
	return s->seen_ns != 0 && now_ns - s->seen_ns > KVW_RATE_APART_NS;
}

void kvw_rate_share_news(struct kvw_rate_subject *subject, const struct kvw_rate_time *time,
	struct kvw_rate_sums *news)
{
	struct kvw_rate_shared *s = &subject->shared;
	int64_t requests = read_of(&subject->requests_charged),
		tokens = read_of(&subject->tokens_charged);
	int64_t days[] = {read_of(&subject->day_charged[0]), read_of(&subject->day_charged[1])};
	size_t today = kvw_rate_day(time->utc_ns) & 1;

	*news = (struct kvw_rate_sums){.requests = requests - s->requests_sent,
		.tokens = tokens - s->tokens_sent,
		.day_tokens = days[today] - s->day_sent[today],
		.day = kvw_rate_day(time->utc_ns)};
	if (news->requests != 0 || news->tokens != 0)
		s->looked_ns = time->now_ns;
	/* Use in minutes that have passed is not shared, since its budget has refilled. */
	if (s->failed && (s->seen_ns == 0 || apart(s, time->now_ns)))
		news->requests = news->tokens = 0;
	s->requests_sent = requests;
	s->tokens_sent = tokens;
	/* Late charges to the day before are not shared. */
	s->day_sent[0] = days[0];
	s->day_sent[1] = days[1];
}

void kvw_rate_share_failed(struct kvw_rate_subject *subject, const struct kvw_rate_sums *news)
{
	struct kvw_rate_shared *s = &subject->shared;

	s->failed = true;
	s->requests_sent -= news->requests;
	s->tokens_sent -= news->tokens;
	s->day_sent[news->day & 1] -= news->day_tokens;
}

/* Charges the use of other replicas. After a time without exchange: less what has refilled in that
 * time, and at most a burst. */
static void charge(struct kvw_bucket *bucket, int64_t units, int64_t per_minute, int64_t burst_ns,
	int64_t apart_ns, int64_t now_ns)
{
	int64_t ns;

	if (per_minute == 0 || units == 0)
		return;
	ns = kvw_rate_ns(units > 0 ? units : -units, per_minute);
	if (units < 0) {
		kvw_bucket_give(bucket, ns);
		return;
	}
	if (apart_ns > 0) {
		ns -= apart_ns;
		ns = ns < burst_ns ? ns : burst_ns;
	}
	if (ns > 0)
		kvw_bucket_owe(bucket, ns, now_ns);
}

/* Limits a total, so that differences stay below 2^63: other programs may have written to Redis. */
static int64_t bounded(int64_t total)
{
	return total > TOTAL_MOST ? TOTAL_MOST : total < -TOTAL_MOST ? -TOTAL_MOST : total;
}

void kvw_rate_share_totals(struct kvw_rate_subject *subject, const struct kvw_rate_sums *news,
	const struct kvw_rate_sums *heard, const struct kvw_rate_time *time)
{
	const struct kvw_rate_sums *const totals =
		&(struct kvw_rate_sums){.requests = bounded(heard->requests),
			.tokens = bounded(heard->tokens),
			.day_tokens = bounded(heard->day_tokens),
			.exchanges = heard->exchanges};
	struct kvw_rate_shared *s = &subject->shared;
	/* A count of exchanges that has not grown shows that the totals were lost and started over.
	 * The totals themselves may also decrease, when other replicas give back. */
	bool lost = s->seen_ns != 0 && totals->exchanges <= s->exchanges_seen;
	int64_t requests = totals->requests - s->requests_seen - news->requests;
	int64_t tokens = totals->tokens - s->tokens_seen - news->tokens;
	int64_t day_seen = s->day == news->day && !lost ? s->day_seen : 0;
	int64_t day = totals->day_tokens - day_seen - news->day_tokens;
	int64_t apart_ns = apart(s, time->now_ns) ? time->now_ns - s->seen_ns : 0;

	if (s->seen_ns != 0 && !lost) {
		int64_t burst_ns = read_of(&subject->burst_ns);

		charge(&subject->requests, requests, read_of(&subject->requests_per_minute),
			burst_ns, apart_ns, time->now_ns);
		charge(&subject->tokens, tokens, read_of(&subject->tokens_per_minute), burst_ns,
			apart_ns, time->now_ns);
	}
	if (day != 0)
		kvw_day_correct(&subject->day, day, news->day);
	s->requests_seen = totals->requests;
	s->tokens_seen = totals->tokens;
	s->day_seen = totals->day_tokens;
	s->exchanges_seen = totals->exchanges;
	s->day = news->day;
	s->seen_ns = time->now_ns;
	s->failed = false;
}
