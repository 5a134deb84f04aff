/*
 * rates.c - checks requests against the limits of their key, tenant and model, and charges their
 * use.
 */
#include "rates/rates.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define DAY_NS        (INT64_C(86400) * 1000000000)
/* assumed time until a running request ends, since ends cannot be predicted */
#define RUNNING_NS    (INT64_C(1) * 1000000000)
#define LEARN_SHARE   8
/* limit of answers' tokens, so that products do not overflow */
#define ANSWERS_MOST  (UINT64_C(1) << 24)

static int64_t burst_of(const struct kvw_rate_limits *limits)
{
	return limits->burst_ns > 0 ? limits->burst_ns : KVW_RATE_BURST_NS;
}

static int64_t least_ns(uint64_t tokens)
{
	return tokens < INT64_C(1) << 40 ? (int64_t)tokens : INT64_C(1) << 40;
}

struct kvw_rate_time kvw_rate_time_counted(struct kvw_rate_table *table, struct kvw_rate_time time)
{
	uint64_t today = kvw_rate_day(time.utc_ns), day = kvw_rate_table_day(table, today);

	if (day != today)
		time.utc_ns = (int64_t)day * DAY_NS;
	return time;
}

/* --- taking --- */

static void add_to(_Atomic int64_t *count, int64_t by)
{
	atomic_fetch_add_explicit(count, by, memory_order_relaxed);
}

static int64_t tokens_ns(const struct kvw_rate_charge *charge, uint64_t tokens)
{
	return kvw_rate_ns(least_ns(tokens), charge->limits.tokens_per_minute);
}

/* Takes one of the party's concurrent requests, or nothing. */
static bool take_running(const struct kvw_rate_charge *charge)
{
	_Atomic int64_t *running = &charge->subject->running;

	if (atomic_fetch_add_explicit(running, 1, memory_order_relaxed) <
			charge->limits.concurrent ||
		charge->limits.concurrent == 0)
		return true;
	add_to(running, -1);
	return false;
}

static bool take_requests(const struct kvw_rate_charge *charge, int64_t now_ns)
{
	int64_t per_minute = charge->limits.requests_per_minute;

	return per_minute == 0 ||
	       kvw_bucket_take(&charge->subject->requests, kvw_rate_ns(1, per_minute),
		       burst_of(&charge->limits), now_ns) == 0;
}

static bool take_tokens(const struct kvw_rate_charge *charge, uint64_t tokens, int64_t now_ns)
{
	return charge->limits.tokens_per_minute == 0 || tokens == 0 ||
	       kvw_bucket_take(&charge->subject->tokens, tokens_ns(charge, tokens),
		       burst_of(&charge->limits), now_ns) == 0;
}

static bool take_day(const struct kvw_rate_charge *charge, uint64_t tokens, uint64_t day)
{
	return charge->limits.tokens_per_day == 0 || tokens == 0 ||
	       kvw_day_take(
		       &charge->subject->day, least_ns(tokens), charge->limits.tokens_per_day, day);
}

static void give_requests(const struct kvw_rate_charge *charge)
{
	if (charge->limits.requests_per_minute > 0)
		kvw_bucket_give(&charge->subject->requests,
			kvw_rate_ns(1, charge->limits.requests_per_minute));
}

/* Charges the tokens by which the use exceeds the prediction, or gives the rest back, so that the
 * sum is the cost of the used tokens. */
static void correct_tokens(const struct kvw_rate_charge *charge, uint64_t before, uint64_t after,
	uint64_t day, int64_t now_ns)
{
	if (charge->limits.tokens_per_minute > 0) {
		int64_t ns = tokens_ns(charge, after) - tokens_ns(charge, before);

		if (ns > 0)
			kvw_bucket_owe(&charge->subject->tokens, ns, now_ns);
		else
			kvw_bucket_give(&charge->subject->tokens, -ns);
	}
	if (charge->limits.tokens_per_day > 0)
		kvw_day_correct(&charge->subject->day, least_ns(after) - least_ns(before), day);
}

/* Takes everything from one party's budgets, or nothing. */
static bool take_one(const struct kvw_rate_ticket *ticket, const struct kvw_rate_charge *charge,
	int64_t now_ns, enum kvw_rate_limited *limit)
{
	*limit = KVW_RATE_CONCURRENT;
	if (!take_running(charge))
		return false;
	*limit = KVW_RATE_REQUESTS;
	if (!take_requests(charge, now_ns))
		goto running;
	*limit = KVW_RATE_TOKENS;
	if (!take_tokens(charge, charge->tokens, now_ns))
		goto requests;
	*limit = KVW_RATE_DAY;
	if (take_day(charge, charge->tokens, ticket->day))
		return true;
	if (charge->limits.tokens_per_minute > 0)
		kvw_bucket_give(&charge->subject->tokens, tokens_ns(charge, charge->tokens));
requests:
	give_requests(charge);
running:
	add_to(&charge->subject->running, -1);
	return false;
}

static void give_one(
	const struct kvw_rate_ticket *ticket, const struct kvw_rate_charge *charge, int64_t now_ns)
{
	correct_tokens(charge, charge->tokens, 0, ticket->day, now_ns);
	give_requests(charge);
	add_to(&charge->subject->running, -1);
}

static int64_t longer(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static int64_t day_left_ns(uint64_t day, const struct kvw_rate_time *time)
{
	return (int64_t)(day + 1) * DAY_NS - time->utc_ns;
}

/* Returns the time until one party's limits allow the request. */
static int64_t wait_for(const struct kvw_rate_ticket *ticket, const struct kvw_rate_charge *charge,
	const struct kvw_rate_time *time)
{
	const struct kvw_rate_limits *limits = &charge->limits;
	const struct kvw_rate_subject *subject = charge->subject;
	int64_t burst_ns = burst_of(limits), wait_ns = 0, used;

	if (limits->requests_per_minute > 0)
		wait_ns = kvw_bucket_wait_ns(&subject->requests,
			kvw_rate_ns(1, limits->requests_per_minute), burst_ns, time->now_ns);
	if (limits->tokens_per_minute > 0 && charge->tokens > 0)
		wait_ns = longer(wait_ns,
			kvw_bucket_wait_ns(&subject->tokens, tokens_ns(charge, charge->tokens),
				burst_ns, time->now_ns));
	if (limits->concurrent > 0 &&
		atomic_load_explicit(&subject->running, memory_order_relaxed) >= limits->concurrent)
		wait_ns = longer(wait_ns, RUNNING_NS);
	used = kvw_day_used(&subject->day, ticket->day);
	if (limits->tokens_per_day > 0 && used > 0 &&
		used + least_ns(charge->tokens) > limits->tokens_per_day)
		wait_ns = longer(wait_ns, day_left_ns(ticket->day, time));
	return wait_ns;
}

static int64_t most_of(const struct kvw_rate_limits *limits, enum kvw_rate_limited limit)
{
	switch (limit) {
	case KVW_RATE_REQUESTS:
		return limits->requests_per_minute;
	case KVW_RATE_TOKENS:
		return limits->tokens_per_minute;
	case KVW_RATE_DAY:
		return limits->tokens_per_day;
	default:
		return limits->concurrent;
	}
}

static uint64_t predict(const struct kvw_rate_demand *demand, uint64_t answer_tokens)
{
	uint64_t answers = demand->answers < ANSWERS_MOST ? demand->answers : ANSWERS_MOST;

	return demand->prompt_tokens +
	       (answer_tokens < UINT32_MAX ? answer_tokens : UINT32_MAX) * answers;
}

static uint64_t average(const struct kvw_rate_charge *charge)
{
	uint32_t learned = atomic_load_explicit(&charge->subject->learned, memory_order_relaxed);

	return learned == 0 ? KVW_RATE_ANSWER : learned;
}

/* A client's own limit of its answer is charged in full to its key and tenant. Other clients share
 * the model's budget, of which at most an average answer is reserved. */
static void predict_all(struct kvw_rate_ticket *ticket, const struct kvw_rate_demand *demand)
{
	uint64_t answer = demand->answer_tokens;

	if (answer == 0)
		answer = ticket->count == 0 ? KVW_RATE_ANSWER : average(&ticket->charges[0]);
	ticket->tokens = predict(demand, answer);
	for (size_t i = 0; i < ticket->count; i++) {
		struct kvw_rate_charge *charge = &ticket->charges[i];
		uint64_t most = charge->subject->kind == KVW_RATE_MODEL ? average(charge) : answer;

		charge->tokens = predict(demand, answer < most ? answer : most);
	}
}

/* Counts tokens, for the exchange with other replicas. */
static void add_tokens(
	const struct kvw_rate_ticket *ticket, const struct kvw_rate_charge *charge, int64_t tokens)
{
	add_to(&charge->subject->tokens_charged, tokens);
	add_to(&charge->subject->day_charged[ticket->day & 1], tokens);
}

static void note_value(_Atomic int64_t *to, int64_t value)
{
	if (atomic_load_explicit(to, memory_order_relaxed) != value)
		atomic_store_explicit(to, value, memory_order_relaxed);
}

/* Stores the limits in the subject, for charging the use of other replicas. */
static void note_limits(const struct kvw_rate_charge *charge)
{
	note_value(&charge->subject->requests_per_minute, charge->limits.requests_per_minute);
	note_value(&charge->subject->tokens_per_minute, charge->limits.tokens_per_minute);
	note_value(&charge->subject->burst_ns, burst_of(&charge->limits));
}

bool kvw_rates_take(struct kvw_rate_table *table, const struct kvw_rate_party *parties,
	size_t count, const struct kvw_rate_demand *demand, const struct kvw_rate_time *time,
	struct kvw_rate_ticket *ticket, struct kvw_rate_refusal *refusal)
{
	size_t taken;

	ticket->count = 0;
	ticket->day = kvw_rate_table_day(table, kvw_rate_day(time->utc_ns));
	for (size_t i = 0; i < count; i++) {
		struct kvw_rate_charge *charge = &ticket->charges[ticket->count];

		charge->limits = parties[i].limits;
		charge->subject = kvw_rate_table_hold(
			table, parties[i].kind, parties[i].name, time->now_ns, ticket->day);
		ticket->count += charge->subject != NULL;
	}
	predict_all(ticket, demand);
	for (size_t i = 0; i < ticket->count; i++)
		note_limits(&ticket->charges[i]);
	for (taken = 0; taken < ticket->count; taken++)
		if (!take_one(ticket, &ticket->charges[taken], time->now_ns, &refusal->limit))
			break;
	if (taken == ticket->count) {
		for (size_t i = 0; i < ticket->count; i++) {
			add_to(&ticket->charges[i].subject->requests_charged, 1);
			add_tokens(
				ticket, &ticket->charges[i], least_ns(ticket->charges[i].tokens));
		}
		return true;
	}
	refusal->kind = ticket->charges[taken].subject->kind;
	refusal->most = most_of(&ticket->charges[taken].limits, refusal->limit);
	while (taken > 0)
		give_one(ticket, &ticket->charges[--taken], time->now_ns);
	refusal->wait_ns = refusal->limit == KVW_RATE_CONCURRENT ? RUNNING_NS : 1;
	for (size_t i = 0; i < ticket->count; i++)
		refusal->wait_ns =
			longer(refusal->wait_ns, wait_for(ticket, &ticket->charges[i], time));
	return false;
}

/* --- settling --- */

static void learn(struct kvw_rate_subject *subject, uint64_t answer_tokens)
{
	int64_t mean = atomic_load_explicit(&subject->learned, memory_order_relaxed);
	int64_t answer = answer_tokens < UINT32_MAX ? (int64_t)answer_tokens : UINT32_MAX;
	int64_t next = mean == 0 ? answer : mean + (answer - mean) / LEARN_SHARE;

	atomic_store_explicit(
		&subject->learned, (uint32_t)(next > 0 ? next : 1), memory_order_relaxed);
}

void kvw_rates_drop(struct kvw_rate_ticket *ticket)
{
	while (ticket->count > 0)
		kvw_rate_subject_put(ticket->charges[--ticket->count].subject);
}

void kvw_rates_settle(struct kvw_rate_ticket *ticket, uint64_t tokens, uint64_t answer_tokens,
	bool counts, int64_t now_ns)
{
	for (size_t i = 0; i < ticket->count; i++) {
		const struct kvw_rate_charge *charge = &ticket->charges[i];

		if (answer_tokens > 0)
			learn(charge->subject, answer_tokens);
		correct_tokens(charge, charge->tokens, tokens, ticket->day, now_ns);
		if (!counts)
			give_requests(charge);
		add_to(&charge->subject->running, -1);
		add_to(&charge->subject->requests_charged, counts ? 0 : -1);
		add_tokens(ticket, charge, least_ns(tokens) - least_ns(charge->tokens));
	}
	kvw_rates_drop(ticket);
}

/* --- what is left --- */

static void keep_less(struct kvw_rate_left *left, struct kvw_rate_left other)
{
	if (other.limit > 0 && (left->limit == 0 || other.remaining < left->remaining))
		*left = other;
}

static struct kvw_rate_left left_in(
	const struct kvw_bucket *bucket, int64_t per_minute, int64_t burst_ns, int64_t now_ns)
{
	struct kvw_rate_left left = {
		.limit = per_minute, .reset_ns = kvw_bucket_debt_ns(bucket, now_ns)};
	double units = (double)(burst_ns - left.reset_ns) * (double)per_minute / 60e9;

	if (left.reset_ns == 0 && units < 1)
		units = 1;
	if (units > 0)
		left.remaining = units < (double)per_minute ? (int64_t)(units + 1e-6) : per_minute;
	return left;
}

static struct kvw_rate_left left_of_day(
	const struct kvw_day *day, int64_t most, uint64_t today, const struct kvw_rate_time *time)
{
	int64_t left = most - kvw_day_used(day, today);

	return (struct kvw_rate_left){most, left > 0 ? left : 0, day_left_ns(today, time)};
}

/* Reads the budgets of one party, except `concurrent`. */
static void look_at_subject(const struct kvw_rate_subject *subject,
	const struct kvw_rate_limits *limits, uint64_t today, const struct kvw_rate_time *time,
	struct kvw_rate_state *out)
{
	int64_t burst_ns = burst_of(limits);

	*out = (struct kvw_rate_state){0};
	if (limits->requests_per_minute > 0)
		out->requests = left_in(
			&subject->requests, limits->requests_per_minute, burst_ns, time->now_ns);
	if (limits->tokens_per_minute > 0)
		out->tokens = left_in(
			&subject->tokens, limits->tokens_per_minute, burst_ns, time->now_ns);
	if (limits->tokens_per_day > 0)
		out->day = left_of_day(&subject->day, limits->tokens_per_day, today, time);
}

void kvw_rates_look(struct kvw_rate_table *table, const struct kvw_rate_party *party,
	const struct kvw_rate_time *time, struct kvw_rate_state *out)
{
	static const struct kvw_rate_subject unused;
	uint64_t today = kvw_rate_table_day(table, kvw_rate_day(time->utc_ns));
	struct kvw_rate_subject *subject = kvw_rate_table_find(table, party->kind, party->name);
	int64_t running = 0, most = party->limits.concurrent;

	look_at_subject(subject == NULL ? &unused : subject, &party->limits, today, time, out);
	if (subject != NULL) {
		running = atomic_load_explicit(&subject->running, memory_order_relaxed);
		kvw_rate_subject_put(subject);
	}
	out->concurrent = (struct kvw_rate_left){most, running < most ? most - running : 0, 0};
}

void kvw_rates_view(const struct kvw_rate_ticket *ticket, const struct kvw_rate_time *time,
	struct kvw_rate_left *requests, struct kvw_rate_left *tokens)
{
	*requests = *tokens = (struct kvw_rate_left){0, 0, 0};
	for (size_t i = 0; i < ticket->count; i++) {
		struct kvw_rate_state state;

		look_at_subject(ticket->charges[i].subject, &ticket->charges[i].limits, ticket->day,
			time, &state);
		keep_less(requests, state.requests);
		keep_less(tokens, state.tokens);
		keep_less(tokens, state.day);
	}
}

/* Writes a duration in the form of Go and OpenAI: `6m0s`, `1.2s`, `20ms`. */
static int put_duration(char *out, size_t room, int64_t ns)
{
	int64_t ms = (ns + 999999) / 1000000, s = ms / 1000;

	if (ms < 1000)
		return snprintf(out, room, "%dms", (int)ms);
	if (s < 60)
		return snprintf(
			out, room, ms % 1000 != 0 ? "%d.%03ds" : "%ds", (int)s, (int)(ms % 1000));
	s = (ms + 999) / 1000;
	if (s < 3600)
		return snprintf(out, room, "%dm%ds", (int)(s / 60), (int)(s % 60));
	return snprintf(
		out, room, "%lldh%dm%ds", (long long)(s / 3600), (int)(s / 60 % 60), (int)(s % 60));
}

/* Writes a time by RFC 3339, rounded up to a second. */
static void put_moment(char *out, size_t room, int64_t utc_ns)
{
	time_t at = (time_t)((utc_ns + 999999999) / 1000000000);
	struct tm parts;

	out[0] = '\0';
	if (gmtime_r(&at, &parts) != NULL)
		(void)strftime(out, room, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

static size_t put_left(char *out, size_t room, enum kvw_rate_style style, const char *what,
	const struct kvw_rate_left *left, const struct kvw_rate_time *time)
{
	static const char *const forms[] = {
		[KVW_RATE_OPENAI] =
			"x-ratelimit-limit-%s: %lld\r\nx-ratelimit-remaining-%s: %lld\r\n"
			"x-ratelimit-reset-%s: %s\r\n",
		[KVW_RATE_ANTHROPIC] = "anthropic-ratelimit-%s-limit: "
				       "%lld\r\nanthropic-ratelimit-%s-remaining: %lld\r\n"
				       "anthropic-ratelimit-%s-reset: %s\r\n",
	};
	char reset[40];

	if (left->limit == 0)
		return 0;
	if (style == KVW_RATE_OPENAI)
		(void)put_duration(reset, sizeof(reset), left->reset_ns);
	else
		put_moment(reset, sizeof(reset), time->utc_ns + left->reset_ns);
	return (size_t)snprintf(out, room, forms[style], what, (long long)left->limit, what,
		(long long)left->remaining, what, reset);
}

size_t kvw_rates_fields(const struct kvw_rate_ticket *ticket, const struct kvw_rate_time *time,
	enum kvw_rate_style style, char out[KVW_RATE_FIELDS_ROOM])
{
	struct kvw_rate_left requests, tokens;
	size_t len;

	kvw_rates_view(ticket, time, &requests, &tokens);
	out[0] = '\0';
	len = put_left(out, KVW_RATE_FIELDS_ROOM, style, "requests", &requests, time);
	return len +
	       put_left(out + len, KVW_RATE_FIELDS_ROOM - len, style, "tokens", &tokens, time);
}
