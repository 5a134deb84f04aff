/*
 * rates.h - checks requests against the limits of their key, tenant and model, and charges their
 * use.
 *
 * 	kvw_rates_take --- refused: the limit, and the time until it allows it ---> 429
 * 	      |
 * 	      +-- charged the prediction: a ticket --- kvw_rates_settle: charged the real use
 *
 * A request is charged to every party with limits for it (key, tenant, model), or to none. Its
 * ticket is settled exactly once, however the request ends; then every party has been charged the
 * request's use.
 *
 * Threads: any; a ticket belongs to one thread. No I/O and no clock: time comes with each call.
 */
#ifndef KVW_RATES_H
#define KVW_RATES_H

#include "rates/table.h"

/* Limits of one key, tenant or model. 0: no limit. burst_ns 0: KVW_RATE_BURST_NS. */
struct kvw_rate_limits {
	int64_t requests_per_minute, tokens_per_minute, tokens_per_day, concurrent;
	int64_t burst_ns;
};

#define KVW_RATE_BURST_NS   (INT64_C(10) * 1000000000)
/* assumed tokens of an answer, until answers have taught the average */
#define KVW_RATE_ANSWER     256

/* Copies the limits of a key or of an entry of `rate_limits`, whose configuration has members of
 * the same names. */
#define KVW_RATE_LIMITS_OF(from)                                                                   \
	((struct kvw_rate_limits){(from)->requests_per_minute, (from)->tokens_per_minute,          \
		(from)->tokens_per_day, (from)->concurrent, (from)->burst_ms * INT64_C(1000000)})

static inline bool kvw_rate_limits_any(const struct kvw_rate_limits *limits)
{
	return limits->requests_per_minute > 0 || limits->tokens_per_minute > 0 ||
	       limits->tokens_per_day > 0 || limits->concurrent > 0;
}

struct kvw_rate_time {
	int64_t now_ns;  /* monotonic */
	int64_t utc_ns; /* UTC since 1970; the clock may be set, also back */
};

/* Which limit was hit: a label of metrics. */
enum kvw_rate_limited {
	KVW_RATE_REQUESTS,
	KVW_RATE_TOKENS,
	KVW_RATE_DAY,
	KVW_RATE_CONCURRENT,
	KVW_RATE_LIMITED_COUNT
};

/* A party: a key, tenant or model with limits for the request. */
struct kvw_rate_party {
	enum kvw_rate_kind kind;
	struct kvw_slice name; /* borrowed during the call */
	struct kvw_rate_limits limits;
};

/* The predicted use of a request. */
struct kvw_rate_demand {
	uint64_t prompt_tokens;
	uint64_t answer_tokens; /* 0: assume the average of earlier answers */
	uint64_t answers;       /* 0: none */
};

/* A request's charges. */
struct kvw_rate_ticket {
	struct kvw_rate_charge {
		struct kvw_rate_subject *subject; /* held */
		struct kvw_rate_limits limits;
		uint64_t tokens; /* charged */
	} charges[KVW_RATE_KINDS];
	size_t count;    /* charged parties; 0: settled, or no party has limits */
	uint64_t tokens; /* predicted */
	uint64_t day;
};

struct kvw_rate_refusal {
	enum kvw_rate_limited limit; /* the first limit that refuses the request */
	enum kvw_rate_kind kind;     /* its party's kind */
	int64_t most;                /* the limit */
	/* Time until all limits would allow the request, if nothing else is charged. */
	int64_t wait_ns;
};

/* Charges the parties (at most one of each kind) with the predicted use. False: the request is
 * refused, and no party charged; the ticket is still set, for kvw_rates_view, and must be freed
 * with kvw_rates_drop. If memory is out nothing is limited. */
bool kvw_rates_take(struct kvw_rate_table *table, const struct kvw_rate_party *parties,
	size_t count, const struct kvw_rate_demand *demand, const struct kvw_rate_time *time,
	struct kvw_rate_ticket *ticket, struct kvw_rate_refusal *refusal);

/* Replaces the prediction by the actual use. answer_tokens: length of a complete answer, to learn
 * from; 0: none. counts false: the request was not served and does not count. No effect on a
 * settled ticket. */
void kvw_rates_settle(struct kvw_rate_ticket *ticket, uint64_t tokens, uint64_t answer_tokens,
	bool counts, int64_t now_ns);
/* Frees the ticket of a refused request. */
void kvw_rates_drop(struct kvw_rate_ticket *ticket);

/* The remaining budget of the party with the least left; limit 0: no party has a limit. */
struct kvw_rate_left {
	int64_t limit, remaining;
	int64_t reset_ns; /* time until the whole budget has refilled */
};
void kvw_rates_view(const struct kvw_rate_ticket *ticket, const struct kvw_rate_time *time,
	struct kvw_rate_left *requests, struct kvw_rate_left *tokens);

/* The budgets of one party, for display; limit 0: the party has no such limit. */
struct kvw_rate_state {
	struct kvw_rate_left requests, tokens, day, concurrent; /* concurrent.reset_ns: 0 */
};
void kvw_rates_look(struct kvw_rate_table *table, const struct kvw_rate_party *party,
	const struct kvw_rate_time *time, struct kvw_rate_state *out);

/* The header fields that show budgets: `x-ratelimit-*`, whose reset is a duration, or
 * `anthropic-ratelimit-*`, whose reset is a time. */
enum kvw_rate_style { KVW_RATE_OPENAI, KVW_RATE_ANTHROPIC };

/* Returns their length. */
#define KVW_RATE_FIELDS_ROOM 448
size_t kvw_rates_fields(const struct kvw_rate_ticket *ticket, const struct kvw_rate_time *time,
	enum kvw_rate_style style, char out[KVW_RATE_FIELDS_ROOM]);

/* Returns the time to count by: `time`, or if the clock has gone back to a day before the counted
 * one (kvw_rate_table_day), the beginning of the counted day. */
struct kvw_rate_time kvw_rate_time_counted(struct kvw_rate_table *table, struct kvw_rate_time time);

static inline uint64_t kvw_rate_day(int64_t utc_ns)
{
	return (uint64_t)(utc_ns / (INT64_C(86400) * 1000000000));
}

#endif
