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

#define KVT_EVENT_RECORD_MAX (4u << 20) /* bytes of one record */

/* Bytes of the record of an event. blocks: NULL for KVT_EVENT_CLEARED. 0: no event can be made of
 * these (no blocks, a width that is none, or longer than KVT_EVENT_RECORD_MAX). */
size_t kvt_event_record_size(enum kvt_event_kind kind, const struct kvt_blocks *blocks);

/* Writes it, to a multiple of 8. */
void kvt_event_record_write(
	void *to, enum kvt_event_kind kind, uint32_t tier, const struct kvt_blocks *blocks);

/* Points into the record, which is a multiple of 8. */
void kvt_event_record_read(const void *record, uint64_t sequence, struct kvt_event *event);

#endif
