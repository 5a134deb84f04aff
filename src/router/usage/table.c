/*
 * table.c - what each user of a model has used: a bounded table, found by names.
 *
 * An entry is in two chains: one of those whose three names have the same hash, by which it is
 * found, and one of those whose key has the same hash, by which all of a key's are found.
 */
#include "usage/table.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#define FIRST_ROOM 64
/* text of an entry in a fixed table, on average; names beyond it go to `other` */
#define FIXED_TEXT 96

enum chain { BY_USER, BY_KEY };

static size_t cut(struct kvw_slice name, size_t most)
{
	return name.len < most ? name.len : most;
}

static struct kvw_user bounded(const struct kvw_user *user)
{
	return (struct kvw_user){
		{user->key.data, cut(user->key, KVW_USER_NAME_MOST)},
		{user->tenant.data, cut(user->tenant, KVW_USER_NAME_MOST)},
		{user->model.data, cut(user->model, KVW_USER_MODEL_MOST)},
	};
}

static uint64_t hash_of(struct kvw_slice name, uint64_t seed)
{
	return XXH3_64bits_withSeed(name.len == 0 ? "" : name.data, name.len, seed);
}

/* Sets the user's place in both arrays of heads. */
static void place(const struct kvw_usage_table *table, const struct kvw_user *user, size_t at[2])
{
	uint64_t key = hash_of(user->key, 0);

	at[BY_KEY] = (size_t)key & (table->head_count - 1);
	at[BY_USER] = (size_t)hash_of(user->model, hash_of(user->tenant, key)) &
		      (table->head_count - 1);
}

/* --- memory --- */

static bool set_heads(struct kvw_usage_table *table, size_t count)
{
	uint32_t *user = calloc(count, sizeof(*user)), *key = calloc(count, sizeof(*key));

	if (user == NULL || key == NULL) {
		free(user);
		free(key);
		return false;
	}
	free(table->heads[BY_USER]);
	free(table->heads[BY_KEY]);
	table->heads[BY_USER] = user;
	table->heads[BY_KEY] = key;
	table->head_count = count;
	return true;
}

static void link_entry(struct kvw_usage_table *table, size_t index)
{
	struct kvw_usage_entry *entry = &table->entries[index];
	struct kvw_user user = kvw_usage_entry_user(table, entry);
	size_t at[2];

	place(table, &user, at);
	for (int chain = BY_USER; chain <= BY_KEY; chain++) {
		entry->next[chain] = table->heads[chain][at[chain]];
		table->heads[chain][at[chain]] = (uint32_t)index + 1;
	}
}

/* Makes room for one more entry, or returns false. */
static bool has_room(struct kvw_usage_table *table)
{
	size_t room = table->room == 0 ? FIRST_ROOM : 2 * table->room;
	struct kvw_usage_entry *entries;

	if (table->count < table->room)
		return true;
	if (table->fixed || table->count >= table->most)
		return false;
	room = room < table->most ? room : table->most;
	entries = realloc(table->entries, room * sizeof(*entries));
	if (entries == NULL)
		return false;
	table->entries = entries;
	if (room > table->head_count) {
		if (!set_heads(table, 2 * table->head_count))
			return false;
		for (size_t i = 0; i < table->count; i++)
			link_entry(table, i);
	}
	table->room = room;
	return true;
}

static bool has_text(struct kvw_usage_table *table, size_t len)
{
	size_t room = 2 * table->text_room + 4096;
	char *text;

	if (table->text != NULL && table->text_room - table->text_len >= len)
		return true;
	text = table->fixed ? NULL : realloc(table->text, room);
	if (text == NULL)
		return false;
	table->text = text;
	table->text_room = room;
	return true;
}

bool kvw_usage_table_init(struct kvw_usage_table *table, size_t most, bool fixed)
{
	size_t heads = FIRST_ROOM;

	*table = (struct kvw_usage_table){.most = most, .fixed = fixed};
	while (fixed && heads < most)
		heads *= 2;
	if (!set_heads(table, heads))
		return false;
	if (!fixed)
		return true;
	table->entries = calloc(most, sizeof(*table->entries));
	table->text = malloc(most * FIXED_TEXT + KVW_USER_TEXT_MOST);
	table->room = most;
	table->text_room = most * FIXED_TEXT + KVW_USER_TEXT_MOST;
	if (table->entries != NULL && table->text != NULL)
		return true;
	kvw_usage_table_finish(table);
	return false;
}

void kvw_usage_table_finish(struct kvw_usage_table *table)
{
	free(table->entries);
	free(table->heads[BY_USER]);
	free(table->heads[BY_KEY]);
	free(table->text);
	*table = (struct kvw_usage_table){0};
}

/* Clears only the heads in use, since most tables are nearly empty. */
void kvw_usage_table_clear(struct kvw_usage_table *table)
{
	for (size_t i = 0; i < table->count; i++) {
		struct kvw_user user = kvw_usage_entry_user(table, &table->entries[i]);
		size_t at[2];

		place(table, &user, at);
		table->heads[BY_USER][at[BY_USER]] = table->heads[BY_KEY][at[BY_KEY]] = 0;
	}
	table->count = table->text_len = 0;
	table->other = (struct kvw_used){0};
	table->others = 0;
}

/* --- entries --- */

struct kvw_user kvw_usage_entry_user(
	const struct kvw_usage_table *table, const struct kvw_usage_entry *entry)
{
	const char *text = table->text + entry->at;

	return (struct kvw_user){{text, entry->key_len}, {text + entry->key_len, entry->tenant_len},
		{text + entry->key_len + entry->tenant_len, entry->model_len}};
}

struct kvw_usage_entry *kvw_usage_table_find(
	const struct kvw_usage_table *table, const struct kvw_user *wanted)
{
	struct kvw_user user = bounded(wanted);
	size_t at[2];

	place(table, &user, at);
	for (uint32_t i = table->heads[BY_USER][at[BY_USER]]; i != 0;) {
		struct kvw_usage_entry *entry = &table->entries[i - 1];
		struct kvw_user its = kvw_usage_entry_user(table, entry);

		if (kvw_slice_equal(its.key, user.key) && kvw_slice_equal(its.model, user.model) &&
			kvw_slice_equal(its.tenant, user.tenant))
			return entry;
		i = entry->next[BY_USER];
	}
	return NULL;
}

static void put_name(struct kvw_usage_table *table, struct kvw_slice name)
{
	if (name.len > 0)
		memcpy(table->text + table->text_len, name.data, name.len);
	table->text_len += name.len;
}

static struct kvw_usage_entry *make_entry(
	struct kvw_usage_table *table, const struct kvw_user *wanted)
{
	struct kvw_user user = bounded(wanted);
	struct kvw_usage_entry *entry;

	if (!has_room(table) ||
		!has_text(table, user.key.len + user.tenant.len + user.model.len))
		return NULL;
	entry = &table->entries[table->count];
	*entry = (struct kvw_usage_entry){.at = (uint32_t)table->text_len,
		.key_len = (uint8_t)user.key.len,
		.tenant_len = (uint8_t)user.tenant.len,
		.model_len = (uint8_t)user.model.len};
	put_name(table, user.key);
	put_name(table, user.tenant);
	put_name(table, user.model);
	link_entry(table, table->count++);
	return entry;
}

struct kvw_usage_entry *kvw_usage_table_add(
	struct kvw_usage_table *table, const struct kvw_user *user, const struct kvw_used *used)
{
	struct kvw_usage_entry *entry = kvw_usage_table_find(table, user);

	if (entry == NULL)
		entry = make_entry(table, user);
	kvw_used_add(entry != NULL ? &entry->used : &table->other, used);
	if (entry == NULL && table->others == 0)
		table->others = 1;
	return entry;
}

bool kvw_usage_table_copy(struct kvw_usage_table *to, const struct kvw_usage_table *from)
{
	struct kvw_usage_entry *entries = malloc(from->count * sizeof(*entries) + 1);
	char *text = malloc(from->text_len + 1);

	if (entries == NULL || text == NULL) {
		free(entries);
		free(text);
		return false;
	}
	if (from->count > 0) {
		memcpy(entries, from->entries, from->count * sizeof(*entries));
		memcpy(text, from->text, from->text_len);
	}
	*to = (struct kvw_usage_table){.entries = entries,
		.count = from->count,
		.text = text,
		.other = from->other,
		.others = from->others};
	return true;
}

void kvw_usage_table_merge(struct kvw_usage_table *to, const struct kvw_usage_table *from,
	const struct kvw_slice *key)
{
	uint32_t i = 0;

	if (key == NULL) {
		for (; i < from->count; i++) {
			struct kvw_user user = kvw_usage_entry_user(from, &from->entries[i]);

			if (kvw_used_any(&from->entries[i].used))
				(void)kvw_usage_table_add(to, &user, &from->entries[i].used);
		}
		kvw_used_add(&to->other, &from->other);
		to->others = to->others > from->others ? to->others : from->others;
		return;
	}
	if (from->count > 0)
		i = from->heads[BY_KEY][(size_t)hash_of(*key, 0) & (from->head_count - 1)];
	while (i != 0) {
		const struct kvw_usage_entry *entry = &from->entries[i - 1];
		struct kvw_user user = kvw_usage_entry_user(from, entry);

		if (kvw_slice_equal(user.key, *key))
			(void)kvw_usage_table_add(to, &user, &entry->used);
		i = entry->next[BY_KEY];
	}
}

/* --- counts --- */

void kvw_used_add(struct kvw_used *to, const struct kvw_used *more)
{
	for (size_t i = 0; i < KVW_USED_KINDS; i++)
		to->n[i] += more->n[i];
}

void kvw_used_subtract(struct kvw_used *from, const struct kvw_used *less)
{
	for (size_t i = 0; i < KVW_USED_KINDS; i++)
		from->n[i] -= less->n[i];
}

bool kvw_used_any(const struct kvw_used *used)
{
	for (size_t i = 0; i < KVW_USED_KINDS; i++)
		if (used->n[i] != 0)
			return true;
	return false;
}
