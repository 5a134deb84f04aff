/*
 * keep.c - writes usage into a snapshot, and reads it back.
 *
 * Records are copied some at a time under the ledger's lock and written without it, since writing
 * may wait for a disk. So a snapshot may have one hour as of a moment later than another; each
 * record is whole.
 *
 * A process that takes over gets a snapshot while this one still serves. What this one counts
 * afterwards is the rest: `own` less what `given` says that the heir has.
 */
#include <string.h>

#include "usage/ledger_inside.h"

#define SOME 64

/* The names follow: key, tenant, model. */
struct usage_record {
	int64_t hour;
	uint8_t key_len, tenant_len, model_len;
	uint8_t other; /* 1: the sum of users without an entry */
	uint32_t unused;
	uint64_t n[KVW_USED_KINDS];
};

_Static_assert(sizeof(struct usage_record) == 16 + 8 * KVW_USED_KINDS, "the record has no gaps");

#define RECORD_MOST (sizeof(struct usage_record) + KVW_USER_TEXT_MOST)
#define COUNT_MOST  (UINT64_C(1) << 53) /* larger counts are not plausible */

/* Some records, copied. */
struct some {
	size_t count, lens[SOME];
	uint8_t bytes[SOME][RECORD_MOST];
};

/* State of a snapshot that is being written. */
struct keeping {
	struct kvw_ledger *ledger;
	bool heir, rest;
	int64_t hour;  /* hours before it are done */
	size_t index;  /* and so are entries of this hour before this one; `other` comes first */
	struct some some;
};

static void put_some(struct some *some, int64_t hour, const struct kvw_user *user,
	const struct kvw_used *used)
{
	struct usage_record record = {.hour = hour, .other = user == NULL};
	uint8_t *at = some->bytes[some->count];

	memcpy(record.n, used->n, sizeof(record.n));
	if (user != NULL) {
		const struct kvw_slice names[] = {user->key, user->tenant, user->model};

		record.key_len = (uint8_t)user->key.len;
		record.tenant_len = (uint8_t)user->tenant.len;
		record.model_len = (uint8_t)user->model.len;
		at += sizeof(record);
		for (size_t i = 0; i < 3; i++) {
			memcpy(at, names[i].data, names[i].len);
			at += names[i].len;
		}
	} else {
		at += sizeof(record);
	}
	memcpy(some->bytes[some->count], &record, sizeof(record));
	some->lens[some->count] = (size_t)(at - some->bytes[some->count]);
	some->count++;
}

/* Takes one entry, or `other` with user NULL. */
static void take_entry(struct keeping *k, struct kvw_usage_hour *hour, const struct kvw_user *user,
	const struct kvw_used *own)
{
	const struct kvw_usage_entry *entry = user == NULL || hour->given.head_count == 0
						      ? NULL
						      : kvw_usage_table_find(&hour->given, user);
	struct kvw_used used = *own;

	if (k->rest && user == NULL)
		kvw_used_subtract(&used, &hour->given.other);
	else if (k->rest && entry != NULL)
		kvw_used_subtract(&used, &entry->used);
	if (!kvw_used_any(&used))
		return;
	put_some(&k->some, hour->hour, user, &used);
	if (k->heir && user != NULL)
		(void)kvw_usage_table_add(&hour->given, user, &used);
	else if (k->heir)
		kvw_used_add(&hour->given.other, &used);
}

/* Begins an hour. False: no memory to remember what the heir is given, so the hour is left out. */
static bool begin_hour(struct keeping *k, struct kvw_usage_hour *hour)
{
	k->hour = hour->hour;
	k->index = 0;
	if (k->heir) {
		kvw_usage_table_finish(&hour->given);
		k->index = SIZE_MAX; /* unless there is memory */
		if (!kvw_usage_table_init(&hour->given, k->ledger->options.entries, false))
			return false;
		k->index = 0;
	}
	take_entry(k, hour, NULL, &hour->own.other);
	return true;
}

/* Copies some records. False: there are no more. */
static bool copy_some(struct keeping *k)
{
	struct kvw_ledger *ledger = k->ledger;
	size_t at = 0;

	k->some.count = 0;
	(void)pthread_mutex_lock(&ledger->lock);
	while (at < ledger->hour_count && ledger->hours[at].hour < k->hour)
		at++;
	for (; at < ledger->hour_count && k->some.count < SOME; at++) {
		struct kvw_usage_hour *hour = &ledger->hours[at];

		if (hour->hour > k->hour && !begin_hour(k, hour))
			continue;
		for (; k->index < hour->own.count && k->some.count < SOME; k->index++) {
			const struct kvw_usage_entry *entry = &hour->own.entries[k->index];
			struct kvw_user user = kvw_usage_entry_user(&hour->own, entry);

			take_entry(k, hour, &user, &entry->used);
		}
		if (k->index < hour->own.count)
			break;
	}
	(void)pthread_mutex_unlock(&ledger->lock);
	return k->some.count > 0;
}

static enum kvw_err keep(struct keeping *k, const struct kvw_keep_out *out)
{
	enum kvw_err err = KVW_OK;

	k->hour = INT64_MIN;
	if (k->ledger == NULL || k->ledger->options.shared)
		return KVW_OK;
	while (err == KVW_OK && copy_some(k))
		for (size_t i = 0; i < k->some.count && err == KVW_OK; i++)
			err = out->put(
				out->arg, KVW_KEPT_USAGE, k->some.bytes[i], k->some.lens[i]);
	return err;
}

enum kvw_err kvw_ledger_keep(struct kvw_ledger *ledger, const struct kvw_keep_out *out, bool heir)
{
	struct keeping k = {.ledger = ledger, .heir = heir};

	if (ledger != NULL && heir)
		atomic_store(&ledger->gave, true);
	return keep(&k, out);
}

enum kvw_err kvw_ledger_keep_rest(struct kvw_ledger *ledger, const struct kvw_keep_out *out)
{
	struct keeping k = {.ledger = ledger, .rest = true};

	return ledger != NULL && atomic_load(&ledger->gave) ? keep(&k, out) : KVW_OK;
}

/* --- back --- */

/* Reads a record. False: it is not plausible. */
static bool read_record(const uint8_t *bytes, size_t len, struct usage_record *record)
{
	if (len < sizeof(*record))
		return false;
	memcpy(record, bytes, sizeof(*record));
	if (record->other > 1 || record->key_len > KVW_USER_NAME_MOST ||
		record->tenant_len > KVW_USER_NAME_MOST ||
		record->model_len > KVW_USER_MODEL_MOST ||
		len != sizeof(*record) + record->key_len + record->tenant_len + record->model_len)
		return false;
	for (size_t i = 0; i < KVW_USED_KINDS; i++)
		if (record->n[i] > COUNT_MOST)
			return false;
	return true;
}

void kvw_ledger_recall(struct kvw_ledger *ledger, const uint8_t *bytes, size_t len, int64_t wall_s)
{
	int64_t now = wall_s / KVW_USAGE_HOUR_S;
	const char *text = (const char *)bytes + sizeof(struct usage_record);
	struct usage_record record;
	struct kvw_usage_hour *hour;
	struct kvw_used used;

	if (ledger == NULL || ledger->options.shared || !read_record(bytes, len, &record) ||
		record.hour > now || record.hour <= now - (int64_t)ledger->options.hours)
		return;
	memcpy(used.n, record.n, sizeof(used.n));
	(void)pthread_mutex_lock(&ledger->lock);
	hour = kvw_ledger_hour(ledger, record.hour);
	if (hour != NULL && record.other == 1) {
		kvw_used_add(&hour->own.other, &used);
		hour->own.others = 1;
	} else if (hour != NULL) {
		const struct kvw_user user = {{text, record.key_len},
			{text + record.key_len, record.tenant_len},
			{text + record.key_len + record.tenant_len, record.model_len}};

		(void)kvw_usage_table_add(&hour->own, &user, &used);
	}
	(void)pthread_mutex_unlock(&ledger->lock);
}
