/*
 * share.c - the ledger's side of sharing usage between replicas: what Redis does not have yet, and
 * what it has.
 *
 * Counts that are on their way to Redis stay in `own` until Redis confirms them, and then move to
 * `base`, so that readers see them once at any time.
 */
#include "usage/ledger_inside.h"

/* Adds to `out` what Redis does not have of this hour. False: Redis has all of it. */
static bool unsent_of(struct kvw_usage_hour *hour, size_t most, struct kvw_usage_table *out)
{
	size_t i = 0;

	if (!hour->unsent)
		return false;
	for (; i < hour->own.count && out->count < most; i++) {
		const struct kvw_usage_entry *entry = &hour->own.entries[i];
		struct kvw_user user = kvw_usage_entry_user(&hour->own, entry);

		if (kvw_used_any(&entry->used))
			(void)kvw_usage_table_add(out, &user, &entry->used);
	}
	out->other = hour->own.other;
	hour->unsent = out->count > 0 || kvw_used_any(&out->other);
	return hour->unsent;
}

bool kvw_ledger_unsent(
	struct kvw_ledger *ledger, size_t most, int64_t *hour, struct kvw_usage_table *out)
{
	bool found = false;

	(void)pthread_mutex_lock(&ledger->lock);
	for (size_t i = ledger->hour_count; i-- > 0 && !found;) {
		found = unsent_of(&ledger->hours[i], most, out);
		if (found)
			*hour = ledger->hours[i].hour;
	}
	(void)pthread_mutex_unlock(&ledger->lock);
	return found;
}

static struct kvw_usage_hour *find_hour(struct kvw_ledger *ledger, int64_t hour)
{
	for (size_t i = 0; i < ledger->hour_count; i++)
		if (ledger->hours[i].hour == hour)
			return &ledger->hours[i];
	return NULL;
}

void kvw_ledger_sent(struct kvw_ledger *ledger, int64_t hour, const struct kvw_usage_table *sent)
{
	struct kvw_usage_hour *of;

	(void)pthread_mutex_lock(&ledger->lock);
	of = find_hour(ledger, hour); /* NULL: it became too old meanwhile */
	for (size_t i = 0; of != NULL && i < sent->count; i++) {
		struct kvw_user user = kvw_usage_entry_user(sent, &sent->entries[i]);
		struct kvw_usage_entry *entry = kvw_usage_table_find(&of->own, &user);

		if (entry != NULL)
			kvw_used_subtract(&entry->used, &sent->entries[i].used);
		(void)kvw_usage_table_add(&of->base, &user, &sent->entries[i].used);
	}
	if (of != NULL) {
		kvw_used_subtract(&of->own.other, &sent->other);
		kvw_used_add(&of->base.other, &sent->other);
	}
	(void)pthread_mutex_unlock(&ledger->lock);
}

void kvw_ledger_heard_take(struct kvw_ledger *ledger, int64_t hour, struct kvw_usage_table *heard)
{
	struct kvw_usage_table old = *heard;
	struct kvw_usage_hour *of;

	(void)pthread_mutex_lock(&ledger->lock);
	of = heard->count > 0 || kvw_used_any(&heard->other) ? kvw_ledger_hour(ledger, hour)
							     : find_hour(ledger, hour);
	if (of != NULL && of->hour == hour) {
		old = of->base;
		of->base = *heard;
	}
	(void)pthread_mutex_unlock(&ledger->lock);
	kvw_usage_table_finish(&old);
	*heard = (struct kvw_usage_table){0};
}

size_t kvw_ledger_hours(const struct kvw_ledger *ledger)
{
	return ledger->options.hours;
}
