/*
 * kube_table.c - merges lists and watch events into the table of objects.
 *
 * Names are unique within a pool, since a pool has one namespace. The table ignores a DELETED event
 * whose UID differs from that of its object of this name: a pod of a StatefulSet has the name of
 * the pod that it replaces.
 */
#include "fleet/discovery/kube_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/search.h"

static void entry_finish(struct kvw_kube_entry *entry)
{
	kvw_kube_object_finish(&entry->object);
}

void kvw_kube_table_finish(struct kvw_kube_table *table)
{
	for (size_t i = 0; i < table->count; i++)
		entry_finish(&table->items[i]);
	free(table->items);
	*table = (struct kvw_kube_table){.count = 0};
}

static int compare_name(const void *name, const void *items, size_t at)
{
	return strcmp(name, ((const struct kvw_kube_entry *)items)[at].object.name);
}

/* Returns the index of a name, or the index at which to insert it. */
static size_t place_of(const struct kvw_kube_table *table, const char *name, bool *there)
{
	return kvw_search(name, table->items, table->count, compare_name, there);
}

static enum kvw_err reserve(struct kvw_kube_table *table, size_t room)
{
	struct kvw_kube_entry *grown;

	if (room <= table->room)
		return KVW_OK;
	grown = realloc(table->items, room * sizeof(*grown));
	if (grown == NULL)
		return KVW_ENOMEM;
	table->items = grown;
	table->room = room;
	return KVW_OK;
}

/* Inserts an empty entry at this index; there must be room. */
static void insert(struct kvw_kube_table *table, size_t at)
{
	memmove(&table->items[at + 1], &table->items[at],
		(table->count - at) * sizeof(table->items[0]));
	memset(&table->items[at], 0, sizeof(table->items[at]));
	table->count++;
}

/* Returns whether an object with `endpoints` endpoints may replace one with `before`. */
static bool has_room_for(const struct kvw_kube_table *table, size_t before, size_t endpoints)
{
	return endpoints <= before ||
	       table->endpoints - before + endpoints <= KVW_KUBE_ADDRESSES_MOST;
}

static enum kvw_err make_room(struct kvw_kube_table *table, size_t at)
{
	enum kvw_err err = KVW_OK;

	if (table->count >= KVW_KUBE_OBJECTS_MOST)
		return KVW_ELIMIT;
	if (table->count == table->room)
		err = reserve(table, table->room == 0 ? 32 : 2 * table->room);
	if (err == KVW_OK)
		insert(table, at);
	return err;
}

/* Returns whether both versions are numbers and the first is later. */
static bool is_later(uint64_t a, uint64_t b)
{
	return a != 0 && b != 0 && a > b;
}

/* --- lists --- */

void kvw_kube_table_list_begin(struct kvw_kube_table *table, struct kvw_kube_table *incoming)
{
	kvw_kube_table_finish(incoming);
	table->list_began = ++table->clock;
}

enum kvw_err kvw_kube_table_list_page(
	struct kvw_kube_table *incoming, struct kvw_kube_page *page)
{
	enum kvw_err err = KVW_OK;

	for (size_t i = 0; i < page->count && err == KVW_OK; i++) {
		bool there;
		size_t at = place_of(incoming, page->objects[i].name, &there);
		size_t before = there ? incoming->items[at].object.endpoint_count : 0;
		size_t endpoints = page->objects[i].endpoint_count;

		err = has_room_for(incoming, before, endpoints) ? KVW_OK : KVW_ELIMIT;
		if (err == KVW_OK && !there)
			err = make_room(incoming, at);
		if (err != KVW_OK)
			break;
		entry_finish(&incoming->items[at]);
		incoming->endpoints += endpoints - before;
		incoming->items[at].object = page->objects[i];
		page->objects[i] = (struct kvw_kube_object){.version = 0};
	}
	kvw_kube_page_finish(page);
	return err;
}

/* Returns whether an entry that the watch changed overrides the list: the event came during the
 * list and is later. */
static bool outlives(const struct kvw_kube_table *table, const struct kvw_kube_entry *entry,
	const struct kvw_kube_entry *listed, uint64_t version)
{
	if (entry->touched <= table->list_began)
		return false;
	return is_later(entry->object.version, listed == NULL ? version : listed->object.version);
}

/* Moves an object into a list that has room for it. The entry keeps its name, for look-ups. */
static void move_into(
	struct kvw_kube_table *incoming, size_t at, bool there, struct kvw_kube_entry *entry)
{
	if (!there)
		insert(incoming, at);
	incoming->endpoints +=
		entry->object.endpoint_count - incoming->items[at].object.endpoint_count;
	entry_finish(&incoming->items[at]);
	incoming->items[at] = *entry;
	entry->object.endpoints = NULL;
	entry->object.endpoint_count = 0;
	entry->object.models = (struct kvw_strings){.count = 0};
}

enum kvw_err kvw_kube_table_list_end(
	struct kvw_kube_table *table, struct kvw_kube_table *incoming, uint64_t version)
{
	struct kvw_kube_table before;
	enum kvw_err err = reserve(incoming, incoming->count + table->count);

	if (err != KVW_OK)
		return err;
	for (size_t i = 0; i < table->count; i++) {
		struct kvw_kube_entry *entry = &table->items[i];
		bool there;
		size_t at = place_of(incoming, entry->object.name, &there);

		if (outlives(table, entry, there ? &incoming->items[at] : NULL, version))
			move_into(incoming, at, there, entry);
	}
	before = *table;
	*table = *incoming;
	table->clock = before.clock;
	table->list_began = before.list_began;
	*incoming = (struct kvw_kube_table){.count = 0};
	kvw_kube_table_finish(&before);
	return KVW_OK;
}

/* --- events --- */

enum kvw_err kvw_kube_table_apply(
	struct kvw_kube_table *table, struct kvw_kube_event *event, bool *changed)
{
	struct kvw_kube_object *object = &event->object;
	bool there, deleted = event->kind == KVW_KUBE_DELETED;
	size_t at = place_of(table, object->name, &there);
	struct kvw_kube_entry *entry;
	size_t before = there ? table->items[at].object.endpoint_count : 0;
	size_t endpoints = deleted ? 0 : object->endpoint_count;
	enum kvw_err err;

	*changed = false;
	if (there && is_later(table->items[at].object.version, object->version))
		return KVW_OK; /* an older event that arrived out of order */
	if (deleted && there && strcmp(table->items[at].object.uid, object->uid) != 0)
		return KVW_OK; /* an event of the former object of this name */
	if (!has_room_for(table, before, endpoints))
		return KVW_ELIMIT;
	if (!there) {
		err = make_room(table, at);
		if (err != KVW_OK)
			return err;
	}
	entry = &table->items[at];
	entry_finish(entry);
	table->endpoints += endpoints - before;
	entry->object = *object;
	*object = (struct kvw_kube_object){.version = 0};
	entry->gone = deleted;
	entry->touched = ++table->clock;
	if (deleted) { /* the object's last state is not needed */
		free(entry->object.endpoints);
		entry->object.endpoints = NULL;
		entry->object.endpoint_count = 0;
	}
	*changed = true;
	return KVW_OK;
}
