/*
 * ledger.c - usage: pages of loops, and the hours to which they are added.
 *
 * A page is handed over by the flag `handed`. The loop sets it (release) when it is false and goes
 * on with its other page; the collecting thread, which holds the lock, reads the page while it is
 * true (acquire), clears the page and the flag. Both take the pages in turn, so that no pointer is
 * passed. A loop whose page is not collected goes on in its open one, until that is full.
 */
#include "usage/ledger_inside.h"

#include <stdlib.h>

enum kvw_err kvw_ledger_create(const struct kvw_ledger_options *options, struct kvw_ledger **out)
{
	struct kvw_ledger *ledger;
	bool good;

	*out = NULL;
	if (options->entries == 0)
		return KVW_OK;
	ledger = calloc(1, sizeof(*ledger));
	if (ledger == NULL)
		return KVW_ENOMEM;
	ledger->options = *options;
	(void)pthread_mutex_init(&ledger->lock, NULL);
	ledger->shards = aligned_alloc(64, options->loops * sizeof(*ledger->shards));
	ledger->hours = calloc(options->hours, sizeof(*ledger->hours));
	ledger->series = calloc(options->named + 1, sizeof(*ledger->series));
	good = ledger->shards != NULL && ledger->hours != NULL && ledger->series != NULL;
	for (size_t i = 0; ledger->shards != NULL && i < options->loops; i++)
		ledger->shards[i] = (struct kvw_usage_shard){0};
	for (size_t i = 0; good && i < 2 * options->loops; i++)
		good = kvw_usage_table_init(
			&ledger->shards[i / 2].pages[i % 2], options->entries, true);
	if (good) {
		*out = ledger;
		return KVW_OK;
	}
	kvw_ledger_destroy(ledger);
	return KVW_ENOMEM;
}

static void finish_hour(struct kvw_usage_hour *hour)
{
	kvw_usage_table_finish(&hour->own);
	kvw_usage_table_finish(&hour->base);
	kvw_usage_table_finish(&hour->given);
}

void kvw_ledger_destroy(struct kvw_ledger *ledger)
{
	if (ledger == NULL)
		return;
	for (size_t i = 0; ledger->shards != NULL && i < 2 * ledger->options.loops; i++)
		kvw_usage_table_finish(&ledger->shards[i / 2].pages[i % 2]);
	for (size_t i = 0; i < ledger->hour_count; i++)
		finish_hour(&ledger->hours[i]);
	free(ledger->shards);
	free(ledger->hours);
	free(ledger->series);
	(void)pthread_mutex_destroy(&ledger->lock);
	free(ledger);
}

struct kvw_usage_shard *kvw_ledger_shard(struct kvw_ledger *ledger, size_t loop)
{
	return ledger == NULL ? NULL : &ledger->shards[loop];
}

/* --- the loop --- */

void kvw_usage_count(
	struct kvw_usage_shard *shard, const struct kvw_user *user, const struct kvw_used *used)
{
	if (shard != NULL)
		(void)kvw_usage_table_add(&shard->pages[shard->open], user, used);
}

void kvw_usage_turn(struct kvw_usage_shard *shard)
{
	const struct kvw_usage_table *page;

	if (shard == NULL)
		return;
	page = &shard->pages[shard->open];
	if (page->count == 0 || atomic_load_explicit(&shard->handed, memory_order_acquire))
		return;
	shard->open ^= 1;
	atomic_store_explicit(&shard->handed, true, memory_order_release);
}

/* --- hours --- */

struct kvw_usage_hour *kvw_ledger_hour(struct kvw_ledger *ledger, int64_t hour)
{
	struct kvw_usage_hour made = {.hour = hour}, *hours = ledger->hours;
	size_t at = ledger->hour_count;

	while (at > 0 && hours[at - 1].hour > hour)
		at--;
	if (at > 0 && hours[at - 1].hour == hour)
		return &hours[at - 1];
	if (ledger->hour_count == ledger->options.hours && at == 0)
		return &hours[0];
	if (!kvw_usage_table_init(&made.own, ledger->options.entries, false))
		return NULL;
	if (!kvw_usage_table_init(&made.base, ledger->options.entries, false)) {
		kvw_usage_table_finish(&made.own);
		return NULL;
	}
	if (ledger->hour_count == ledger->options.hours) {
		finish_hour(&hours[0]);
		at--;
		for (size_t i = 0; i < at; i++)
			hours[i] = hours[i + 1];
	} else {
		for (size_t i = ledger->hour_count++; i > at; i--)
			hours[i] = hours[i - 1];
	}
	hours[at] = made;
	return &hours[at];
}

/* Forgets hours that are too old by the clock, also where none came in between. */
static void forget_old(struct kvw_ledger *ledger, int64_t now)
{
	size_t old = 0;

	while (old < ledger->hour_count &&
		ledger->hours[old].hour <= now - (int64_t)ledger->options.hours)
		finish_hour(&ledger->hours[old++]);
	ledger->hour_count -= old;
	for (size_t i = 0; old > 0 && i < ledger->hour_count; i++)
		ledger->hours[i] = ledger->hours[i + old];
}

/* --- collecting --- */

static void collect_page(
	struct kvw_ledger *ledger, struct kvw_usage_table *page, struct kvw_usage_hour *hour)
{
	for (size_t i = 0; i < page->count; i++) {
		const struct kvw_used *used = &page->entries[i].used;
		struct kvw_user user = kvw_usage_entry_user(page, &page->entries[i]);
		size_t before = hour->own.count;
		struct kvw_usage_entry *entry = kvw_usage_table_add(&hour->own, &user, used);

		if (hour->own.count > before)
			kvw_series_tag(ledger, entry, &user);
		if (entry == NULL)
			ledger->overflowed += used->n[KVW_USED_REQUESTS];
		kvw_series_count(ledger, entry, &user, used);
	}
	if (kvw_used_any(&page->other)) {
		kvw_used_add(&hour->own.other, &page->other);
		hour->own.others += hour->own.others == 0;
		ledger->overflowed += page->other.n[KVW_USED_REQUESTS];
		kvw_used_add(&ledger->rest, &page->other);
	}
	hour->unsent = true;
	kvw_usage_table_clear(page);
}

/* Without memory for the hour the pages stay as they are. */
static void collect(struct kvw_ledger *ledger, int64_t wall_s, bool ended)
{
	struct kvw_usage_hour *hour = NULL;

	(void)pthread_mutex_lock(&ledger->lock);
	forget_old(ledger, wall_s / KVW_USAGE_HOUR_S);
	for (size_t i = 0; i < ledger->options.loops; i++) {
		struct kvw_usage_shard *shard = &ledger->shards[i];
		bool handed = atomic_load_explicit(&shard->handed, memory_order_acquire);

		if (!handed && !ended)
			continue;
		if (hour == NULL)
			hour = kvw_ledger_hour(ledger, wall_s / KVW_USAGE_HOUR_S);
		if (hour == NULL)
			break;
		if (handed) {
			collect_page(ledger, &shard->pages[shard->next], hour);
			shard->next ^= 1;
			atomic_store_explicit(&shard->handed, false, memory_order_release);
		}
		if (ended)
			collect_page(ledger, &shard->pages[shard->open], hour);
	}
	(void)pthread_mutex_unlock(&ledger->lock);
	kvw_series_rank(ledger, wall_s);
}

void kvw_ledger_collect(struct kvw_ledger *ledger, int64_t wall_s)
{
	if (ledger != NULL)
		collect(ledger, wall_s, false);
}

void kvw_ledger_settle(struct kvw_ledger *ledger, int64_t wall_s)
{
	if (ledger != NULL)
		collect(ledger, wall_s, true);
}

/* --- reading --- */

/* Takes the sum of one hour's tables, or if memory is out adds them to `out`. */
static void take_hour(const struct kvw_usage_hour *hour, const struct kvw_slice *key,
	struct kvw_usage_table *base, struct kvw_usage_table *own, struct kvw_usage_table *out)
{
	/* A key has few entries, which are found at once. */
	if (key != NULL || !kvw_usage_table_copy(base, &hour->base))
		kvw_usage_table_merge(out, &hour->base, key);
	if (key != NULL || !kvw_usage_table_copy(own, &hour->own))
		kvw_usage_table_merge(out, &hour->own, key);
}

/* Entries of an hour move between its two tables, so both are copied at once; what a table of
 * many entries costs is done without the lock, for which loops wait. */
int64_t kvw_ledger_sum(struct kvw_ledger *ledger, int64_t since_s, const struct kvw_slice *key,
	int64_t wall_s, struct kvw_usage_table *out)
{
	int64_t first = wall_s / KVW_USAGE_HOUR_S - (int64_t)ledger->options.hours + 1, next;
	bool more = true;

	if (since_s / KVW_USAGE_HOUR_S > first)
		first = since_s / KVW_USAGE_HOUR_S;
	for (next = first; more;) {
		struct kvw_usage_table base = {0}, own = {0};
		size_t at = 0;

		(void)pthread_mutex_lock(&ledger->lock);
		while (at < ledger->hour_count && ledger->hours[at].hour < next)
			at++;
		more = at < ledger->hour_count;
		if (more) {
			take_hour(&ledger->hours[at], key, &base, &own, out);
			next = ledger->hours[at].hour + 1;
		}
		(void)pthread_mutex_unlock(&ledger->lock);
		kvw_usage_table_merge(out, &base, NULL);
		kvw_usage_table_merge(out, &own, NULL);
		kvw_usage_table_finish(&base);
		kvw_usage_table_finish(&own);
	}
	return first * KVW_USAGE_HOUR_S;
}
