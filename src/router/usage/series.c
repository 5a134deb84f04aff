/*
 * series.c - the users that have a series of their own in /metrics.
 *
 * The first users get the free series at once. Every minute the busiest users of this hour and the
 * last are found: each gets a series, if need be that of a user that is not among them any more.
 * Counts of a user from before it was named stay in the sum of the others, so that no count is
 * shown twice or decreases.
 */
#include <stdlib.h>
#include <string.h>

#include "usage/ledger_inside.h"

#define RANK_S 60

static bool is_user(const struct kvw_usage_series *series, const struct kvw_user *user)
{
	return series->taken && kvw_slice_equal(series->user.key, user->key) &&
	       kvw_slice_equal(series->user.tenant, user->tenant) &&
	       kvw_slice_equal(series->user.model, user->model);
}

static struct kvw_slice keep_name(char **at, struct kvw_slice name)
{
	char *text = *at;

	if (name.len > 0)
		memcpy(text, name.data, name.len);
	*at += name.len;
	return (struct kvw_slice){text, name.len};
}

/* Names the user, whose names are those of an entry and thus bounded. */
static void begin_series(struct kvw_usage_series *series, const struct kvw_user *user)
{
	char *at = series->text;

	series->user.key = keep_name(&at, user->key);
	series->user.tenant = keep_name(&at, user->tenant);
	series->user.model = keep_name(&at, user->model);
	series->used = (struct kvw_used){0};
	series->taken = true;
}

static struct kvw_usage_series *series_of(struct kvw_ledger *ledger, const struct kvw_user *user)
{
	for (size_t i = 0; i < ledger->options.named; i++)
		if (is_user(&ledger->series[i], user))
			return &ledger->series[i];
	return NULL;
}

static struct kvw_usage_series *free_series(struct kvw_ledger *ledger)
{
	for (size_t i = 0; i < ledger->options.named; i++)
		if (!ledger->series[i].taken)
			return &ledger->series[i];
	return NULL;
}

static uint16_t tag_of(const struct kvw_ledger *ledger, const struct kvw_usage_series *series)
{
	return series == NULL ? 0 : (uint16_t)(series - ledger->series + 1);
}

void kvw_series_tag(
	struct kvw_ledger *ledger, struct kvw_usage_entry *entry, const struct kvw_user *user)
{
	struct kvw_usage_series *series = series_of(ledger, user);

	if (series == NULL && (series = free_series(ledger)) != NULL)
		begin_series(series, user);
	entry->tag = tag_of(ledger, series);
}

void kvw_series_count(struct kvw_ledger *ledger, struct kvw_usage_entry *entry,
	const struct kvw_user *user, const struct kvw_used *used)
{
	struct kvw_usage_series *series =
		entry == NULL || entry->tag == 0 ? NULL : &ledger->series[entry->tag - 1];

	/* Tags of an hour that has passed may be out of date; the clock may have been set back. */
	if (entry == NULL || (series != NULL && !is_user(series, user)))
		series = series_of(ledger, user);
	kvw_used_add(series == NULL ? &ledger->rest : &series->used, used);
}

/* --- the busiest --- */

struct ranked {
	uint64_t weight;
	uint32_t index;
};

static int by_weight(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	return x->weight > y->weight ? -1 : x->weight < y->weight;
}

/* Returns the entries of the table by weight, the busiest first. NULL: out of memory, or none. */
static struct ranked *rank_entries(const struct kvw_usage_table *table)
{
	struct ranked *ranks = table->count == 0 ? NULL : malloc(table->count * sizeof(*ranks));

	for (size_t i = 0; ranks != NULL && i < table->count; i++) {
		const uint64_t *n = table->entries[i].used.n;

		ranks[i] = (struct ranked){n[KVW_USED_PROMPT] + n[KVW_USED_COMPLETION] +
						   n[KVW_USED_REQUESTS],
			(uint32_t)i};
	}
	if (ranks != NULL)
		qsort(ranks, table->count, sizeof(*ranks), by_weight);
	return ranks;
}

/* Returns a series that the busiest may have: a free one, or that of a user that is not among them.
 * NULL: there is none. *cursor: 0 at first. */
static struct kvw_usage_series *next_series(
	struct kvw_ledger *ledger, const struct kvw_usage_table *busy, size_t *cursor)
{
	struct kvw_usage_series *series = free_series(ledger);

	while (series == NULL && *cursor < ledger->options.named) {
		struct kvw_usage_series *old = &ledger->series[(*cursor)++];
		const struct kvw_usage_entry *entry = kvw_usage_table_find(busy, &old->user);

		if (entry == NULL || entry->tag == 0)
			series = old;
	}
	return series;
}

static void name_busiest(struct kvw_ledger *ledger, const struct kvw_usage_table *busy,
	const struct ranked *ranks)
{
	size_t cursor = 0, count = ledger->options.named;

	if (busy->count < count)
		count = busy->count;
	/* A tag in `busy` says that the user is among the busiest. */
	for (size_t i = 0; i < count; i++)
		busy->entries[ranks[i].index].tag = 1;
	for (size_t i = 0; i < count; i++) {
		struct kvw_user user = kvw_usage_entry_user(busy, &busy->entries[ranks[i].index]);
		struct kvw_usage_series *series = NULL;

		if (series_of(ledger, &user) == NULL)
			series = next_series(ledger, busy, &cursor);
		if (series != NULL)
			begin_series(series, &user);
	}
}

/* Sets the tags of the present hour's entries to the series of now. The lock is held. */
static void tag_entries(struct kvw_ledger *ledger)
{
	struct kvw_usage_table *own = &ledger->hours[ledger->hour_count - 1].own;

	for (size_t i = 0; i < own->count; i++)
		own->entries[i].tag = 0;
	for (size_t i = 0; i < ledger->options.named; i++) {
		struct kvw_usage_series *series = &ledger->series[i];
		struct kvw_usage_entry *entry =
			series->taken ? kvw_usage_table_find(own, &series->user) : NULL;

		if (entry != NULL)
			entry->tag = tag_of(ledger, series);
	}
}

/* Copies the tables of this hour and the last. Returns how many there are; 0: it is not time to
 * rank, or memory is out. */
static size_t copy_hours(
	struct kvw_ledger *ledger, int64_t wall_s, struct kvw_usage_table copies[4])
{
	const struct kvw_usage_hour *end = ledger->hours + ledger->hour_count;
	size_t hours = ledger->hour_count < 2 ? ledger->hour_count : 2, count = 0;

	if (ledger->options.named == 0 || hours == 0 || llabs(wall_s - ledger->ranked_s) < RANK_S)
		return 0;
	ledger->ranked_s = wall_s;
	for (const struct kvw_usage_hour *hour = end - hours; hour < end; hour++)
		if (!kvw_usage_table_copy(&copies[count++], &hour->base) ||
			!kvw_usage_table_copy(&copies[count++], &hour->own))
			return 0;
	return count;
}

void kvw_series_rank(struct kvw_ledger *ledger, int64_t wall_s)
{
	struct kvw_usage_table busy = {0}, copies[4] = {0};
	struct ranked *ranks = NULL;
	size_t count;

	(void)pthread_mutex_lock(&ledger->lock);
	count = copy_hours(ledger, wall_s, copies);
	(void)pthread_mutex_unlock(&ledger->lock);
	if (count > 0 && kvw_usage_table_init(&busy, 4 * ledger->options.entries, false)) {
		for (size_t i = 0; i < count; i++)
			kvw_usage_table_merge(&busy, &copies[i], NULL);
		ranks = rank_entries(&busy);
	}
	if (ranks != NULL) {
		(void)pthread_mutex_lock(&ledger->lock);
		name_busiest(ledger, &busy, ranks);
		if (ledger->hour_count > 0)
			tag_entries(ledger);
		(void)pthread_mutex_unlock(&ledger->lock);
	}
	free(ranks);
	kvw_usage_table_finish(&busy);
	for (size_t i = 0; i < 4; i++)
		kvw_usage_table_finish(&copies[i]);
}

/* --- for /metrics --- */

void kvw_ledger_series(struct kvw_ledger *ledger,
	void (*fn)(void *arg, const struct kvw_user *user, const struct kvw_used *used), void *arg)
{
	if (ledger == NULL)
		return;
	(void)pthread_mutex_lock(&ledger->lock);
	for (size_t i = 0; i < ledger->options.named; i++)
		if (ledger->series[i].taken)
			fn(arg, &ledger->series[i].user, &ledger->series[i].used);
	fn(arg, NULL, &ledger->rest);
	(void)pthread_mutex_unlock(&ledger->lock);
}

void kvw_ledger_stats(struct kvw_ledger *ledger, struct kvw_ledger_stats *out)
{
	*out = (struct kvw_ledger_stats){0};
	if (ledger == NULL)
		return;
	(void)pthread_mutex_lock(&ledger->lock);
	if (ledger->hour_count > 0) {
		const struct kvw_usage_table *own = &ledger->hours[ledger->hour_count - 1].own;

		out->entries = own->count;
		for (size_t i = 0; i < own->count; i++)
			out->unnamed += own->entries[i].tag == 0;
	}
	out->overflowed = ledger->overflowed;
	(void)pthread_mutex_unlock(&ledger->lock);
}
