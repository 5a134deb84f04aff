/*
 * fuzz_rates.c - whatever requests ask for, whatever the clock does and whatever Redis says are the totals: no number turns
 * round, what is left lies between nothing and the limit, a refused request would pass after the wait that the refusal
 * names, and when all requests have ended none runs.
 *
 * The input is a list of steps, a byte each with the bytes of its numbers behind it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rates/share.h"
#include "tests/fuzz/lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OPEN   8
#define SECOND INT64_C(1000000000)
#define DAY    (86400 * SECOND)
#define LATEST (60000 * DAY)

static struct run {
	const uint8_t *data;
	size_t left;
	struct kvw_rate_table *table;
	struct kvw_rate_time at;
	struct kvw_rate_party parties[KVW_RATE_KINDS];
	struct kvw_rate_ticket open[OPEN];
	bool used[OPEN];
	bool set; /* the time of day was, so that a day may come again */
} run;

static uint64_t number(size_t bytes)
{
	uint64_t value = 0;

	for (size_t i = 0; i < bytes && run.left > 0; i++, run.left--)
		value = value << 8 | *run.data++;
	return value;
}

/* Of any size, and in the range that the configuration allows. */
static int64_t up_to(int64_t most)
{
	size_t bytes = number(1) % 8;

	return (int64_t)(number(bytes) % (uint64_t)(most + 1));
}

static void new_limits(void)
{
	for (size_t i = 0; i < KVW_RATE_KINDS; i++)
		run.parties[i].limits = (struct kvw_rate_limits){up_to(1000000000), up_to(1000000000000),
			up_to(100000000000000), up_to(1000000000), SECOND + up_to(3599 * SECOND)};
}

static void check_view(const struct kvw_rate_ticket *ticket)
{
	char fields[KVW_RATE_FIELDS_ROOM];
	struct kvw_rate_left left[2];

	kvw_rates_view(ticket, &run.at, &left[0], &left[1]);
	for (size_t i = 0; i < 2; i++)
		require(left[i].remaining >= 0 && left[i].remaining <= left[i].limit && left[i].reset_ns >= 0);
	for (int style = KVW_RATE_OPENAI; style <= KVW_RATE_ANTHROPIC; style++) {
		size_t len = kvw_rates_fields(ticket, &run.at, (enum kvw_rate_style)style, fields);

		require(len < sizeof(fields) && len == strlen(fields));
	}
}

static struct kvw_rate_demand demand(void)
{
	struct kvw_rate_demand made = {number(number(1) % 9), 0, 0};

	made.answer_tokens = number(number(1) % 9);
	made.answers = number(number(1) % 9);
	return made;
}

/* Refused: after the wait it passes, if nothing else is asked for meanwhile. */
static void check_wait(const struct kvw_rate_demand *of, const struct kvw_rate_refusal *refusal, size_t count,
	struct kvw_rate_ticket *ticket)
{
	struct kvw_rate_refusal again;

	require(refusal->wait_ns > 0 && refusal->most > 0);
	check_view(ticket);
	kvw_rates_drop(ticket);
	if (refusal->limit == KVW_RATE_CONCURRENT || run.set)
		return;
	run.at.now_ns += refusal->wait_ns;
	run.at.utc_ns += refusal->wait_ns;
	if (!kvw_rates_take(run.table, run.parties, count, of, &run.at, ticket, &again)) {
		require(again.limit == KVW_RATE_CONCURRENT);
		kvw_rates_drop(ticket);
		return;
	}
	kvw_rates_settle(ticket, 0, 0, false, run.at.now_ns);
}

static void take(size_t slot)
{
	const struct kvw_rate_demand of = demand();
	struct kvw_rate_ticket *ticket = &run.open[slot];
	struct kvw_rate_refusal refusal = {0};
	size_t count = number(1) % (KVW_RATE_KINDS + 1);

	if (run.used[slot])
		return;
	run.used[slot] =
		kvw_rates_take(run.table, run.parties, count, &of, &run.at, ticket, &refusal);
	if (run.used[slot])
		check_view(ticket);
	else
		check_wait(&of, &refusal, count, ticket);
}

static void settle(size_t slot, uint64_t tokens, uint64_t answer, bool counts)
{
	if (run.used[slot])
		kvw_rates_settle(&run.open[slot], tokens, answer, counts, run.at.now_ns);
	run.used[slot] = false;
	require(run.open[slot].count == 0);
}

/* Clocks go on; the time of day is set as well, back, too. */
static void pass(bool set)
{
	int64_t ns = up_to(3 * DAY);

	run.set |= set;
	if (set) {
		run.at.utc_ns += ns - DAY;
	} else {
		run.at.now_ns += ns;
		run.at.utc_ns += ns;
	}
	if (run.at.utc_ns < 0 || run.at.utc_ns > LATEST) {
		run.at.utc_ns = 20000 * DAY;
		run.set = true;
	}
}

static void exchange(void)
{
	struct kvw_rate_time now = kvw_rate_time_counted(run.table, run.at);
	size_t which = number(1) % KVW_RATE_KINDS;
	struct kvw_rate_subject *subject =
		kvw_rate_table_find(run.table, run.parties[which].kind, run.parties[which].name);
	struct kvw_slice texts[KVW_RATE_TOTALS];
	struct kvw_rate_sums news, totals;

	if (subject == NULL)
		return;
	(void)kvw_rate_share_wants(subject, now.now_ns);
	kvw_rate_share_news(subject, &now, &news);
	totals = (struct kvw_rate_sums){.day = news.day};
	for (size_t i = 0; i < KVW_RATE_TOTALS; i++) {
		size_t len = number(1) % 24;

		texts[i] = (struct kvw_slice){(const char *)run.data, len < run.left ? len : run.left};
		run.data += texts[i].len;
		run.left -= texts[i].len;
	}
	if (kvw_rate_share_read(texts, &totals))
		kvw_rate_share_totals(subject, &news, &totals, &now);
	else
		kvw_rate_share_failed(subject, &news);
	kvw_rate_subject_put(subject);
}

static void check_state(void)
{
	for (size_t i = 0; i < KVW_RATE_KINDS; i++) {
		struct kvw_rate_state state;

		kvw_rates_look(run.table, &run.parties[i], &run.at, &state);
		require(state.requests.remaining >= 0 && state.requests.remaining <= state.requests.limit);
		require(state.tokens.remaining >= 0 && state.tokens.remaining <= state.tokens.limit);
		require(state.day.remaining >= 0 && state.day.remaining <= state.day.limit);
		require(state.concurrent.remaining >= 0);
	}
}

static void step(void)
{
	size_t what = number(1), slot = what / 8 % OPEN;

	switch (what % 8) {
	case 0:
		new_limits();
		break;
	case 1:
	case 2:
		take(slot);
		break;
	case 3:
		settle(slot, number(what / 64 + 1), number(2), what / 64 % 2);
		break;
	case 4:
		settle(slot, number(8), number(8), true);
		break;
	case 5:
		pass(slot == 0);
		break;
	case 6:
		exchange();
		break;
	default:
		check_state();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	run = (struct run){.data = data,
		.left = size,
		.table = kvw_rate_table_create(64),
		.at = {1000 * SECOND, 20000 * DAY + DAY - 60 * SECOND},
		.parties = {{.kind = KVW_RATE_KEY, .name = KVW_SLICE("k")},
			{.kind = KVW_RATE_TENANT, .name = KVW_SLICE("t")},
			{.kind = KVW_RATE_MODEL, .name = KVW_SLICE("m")}}};
	require(run.table != NULL);
	new_limits();
	while (run.left > 0)
		step();
	for (size_t i = 0; i < OPEN; i++)
		settle(i, 1, 0, true);
	check_state();
	for (size_t i = 0; i < KVW_RATE_KINDS; i++) {
		struct kvw_rate_subject *subject =
			kvw_rate_table_find(run.table, run.parties[i].kind, run.parties[i].name);

		if (subject == NULL)
			continue;
		require(atomic_load(&subject->running) == 0 && atomic_load(&subject->users) == 1);
		kvw_rate_subject_put(subject);
	}
	kvw_rate_table_destroy(run.table);
	return 0;
}
