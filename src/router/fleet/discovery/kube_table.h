/*
 * kube_table.h - the objects of one pool, by lists and watch together.
 *
 * A list and the watch run at the same time, so that the fleet is not blind while a list comes in.
 * Events of the watch since the list began win over the list where they are newer; all else is
 * taken from the list. In particular versions of before the list do not count against it: an API
 * server that was restored from a backup counts from a lower number.
 *
 * An object that was deleted leaves its name and version behind until the next list, so that an
 * older event about it does not bring it back.
 *
 * Threads: its owner's.
 */
#ifndef KVW_KUBE_TABLE_H
#define KVW_KUBE_TABLE_H

#include "fleet/discovery/kube_object.h"

#define KVW_KUBE_OBJECTS_MOST 8192 /* of one pool, deleted ones included */
#define KVW_KUBE_ADDRESSES_MOST 16384 /* endpoints of one pool */

struct kvw_kube_entry {
	struct kvw_kube_object object;
	uint64_t touched; /* the table's clock at the watch's last event of the object; 0: none */
	bool gone;        /* deleted; no endpoints */
};

/* Zeroed is empty. */
struct kvw_kube_table {
	struct kvw_kube_entry *items; /* [count], ascending by name */
	size_t count, room;
	size_t endpoints;    /* of all items */
	uint64_t clock;      /* grows with each event */
	uint64_t list_began; /* the clock when it did */
};

void kvw_kube_table_finish(struct kvw_kube_table *table);

/* A list begins; an unfinished list before it is forgotten, as if it had never been. */
void kvw_kube_table_list_begin(struct kvw_kube_table *table, struct kvw_kube_table *incoming);
/* Takes the objects of a page, which is empty afterwards, into `incoming`. KVW_ELIMIT: too
 * many of them, or of their endpoints. */
enum kvw_err kvw_kube_table_list_page(
	struct kvw_kube_table *incoming, struct kvw_kube_page *page) KVW_MUST_CHECK;
/* All pages of the list of this version (0: the version is no number) have come: `table` takes
 * their objects over. `incoming` is empty afterwards. KVW_ENOMEM: `table` is as it was before. */
enum kvw_err kvw_kube_table_list_end(struct kvw_kube_table *table, struct kvw_kube_table *incoming,
	uint64_t version) KVW_MUST_CHECK;

/* ADDED, MODIFIED or DELETED; its object is empty afterwards. *changed: endpoints may differ.
 * KVW_ELIMIT: the table is full; a list makes room, or says so. */
enum kvw_err kvw_kube_table_apply(
	struct kvw_kube_table *table, struct kvw_kube_event *event, bool *changed) KVW_MUST_CHECK;

#endif
