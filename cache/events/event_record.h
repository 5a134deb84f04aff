/*
 * event_record.h - an event in one piece of memory, and events copied out of a ring.
 *
 * The caller's names, tokens and texts are borrowed for one call, so the queue keeps copies. A
 * record is one run of bytes; a reader copies it and points a struct kvt_event into its copy.
 * Pure functions.
 */
#ifndef KVT_EVENT_RECORD_H
#define KVT_EVENT_RECORD_H

#include "kvtier/kvtier.h"

#define KVT_EVENT_RECORD_MAX (4u << 20) /* most bytes of a record */

/* Returns the length of an event's record. blocks: NULL for KVT_EVENT_CLEARED. 0: these blocks make
 * no event (there are none, their hashes have a wrong width, or the record would be longer than
 * KVT_EVENT_RECORD_MAX). */
size_t kvt_event_record_size(enum kvt_event_kind kind, const struct kvt_blocks *blocks);

/* Writes the record, to an address that is a multiple of 8. */
void kvt_event_record_write(
	void *to, enum kvt_event_kind kind, uint32_t tier, const struct kvt_blocks *blocks);

/* Points the event into the record, whose address is a multiple of 8. */
void kvt_event_record_read(const void *record, uint64_t sequence, struct kvt_event *event);

#endif
