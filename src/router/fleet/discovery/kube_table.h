/*
 * kube_table.h - the objects of one pool, merged from lists and watch.
 *
 * A list and the watch run at the same time, so that the fleet sees changes while a list comes in.
 * Newer events of the watch since the list began override the list; all other objects are taken
 * from the list. In particular, versions from before the list do not count: an API server restored
 * from a backup counts from a lower number.
 *
 * The table keeps name and version of a deleted object until the next list, so that an older event
 * does not bring it back.
 *
 * Threads: its owner's.
 */
#ifndef KVW_KUBE_TABLE_H
#define KVW_KUBE_TABLE_H

#include "fleet/discovery/kube_object.h"

#define KVW_KUBE_OBJECTS_MOST 8192 /* objects of one pool, including deleted ones */
#define KVW_KUBE_ADDRESSES_MOST 16384 /* endpoints of one pool */

struct kvw_kube_entry {
	struct kvw_kube_object object;
	uint64_t touched; /* value of `clock` at the watch's last event of this object; 0: none */
	bool gone;        /* deleted; no endpoints */
};

/* Zeroed is empty. */
struct kvw_kube_table {
	struct kvw_kube_entry *items; /* [count], ascending by name */
	size_t count, room;
	size_t endpoints;    /* endpoints of all items */
	uint64_t clock;      /* grows with each event */
	uint64_t list_began; /* value of `clock` when the list began */
};

void kvw_kube_table_finish(struct kvw_kube_table *table);

/* Begins a list in `incoming`; discards an unfinished one. */
void kvw_kube_table_list_begin(struct kvw_kube_table *table, struct kvw_kube_table *incoming);
/* Takes the objects of a page, which is empty afterwards, into `incoming`. KVW_ELIMIT: too many
 * objects or endpoints. */
enum kvw_err kvw_kube_table_list_page(
	struct kvw_kube_table *incoming, struct kvw_kube_page *page) KVW_MUST_CHECK;
/* Ends the list, whose version is `version` (0: not a number): `table` takes over its objects.
 * `incoming` is empty afterwards. KVW_ENOMEM: `table` is unchanged. */
enum kvw_err kvw_kube_table_list_end(struct kvw_kube_table *table, struct kvw_kube_table *incoming,
	uint64_t version) KVW_MUST_CHECK;

/* Applies an event ADDED, MODIFIED or DELETED; the event's object is empty afterwards. *changed:
 * endpoints may differ. KVW_ELIMIT: the table is full; only a list can make room. */
enum kvw_err kvw_kube_table_apply(
	struct kvw_kube_table *table, struct kvw_kube_event *event, bool *changed) KVW_MUST_CHECK;

#endif
