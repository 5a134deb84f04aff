/*
 * generations.h - the table of generations that kvtierd keeps for engines of libkvtier (chunk/slots.h), and for its
 * own objects.
 *
 * A file with a place for each slot: a change is one write and one sync. A file that is damaged, or not there, is a new
 * table: all that was stored is cold. Threads: any; a change waits for the disk.
 */
#ifndef KVT_DAEMON_GENERATIONS_H
#define KVT_DAEMON_GENERATIONS_H

#include "chunk/note.h"
#include "chunk/slots.h"

struct kvt_generation_table;

/* path NULL: in memory alone, new with each start. KVT_EIO, KVT_ENOMEM; why: KVT_REASON_BYTES. */
enum kvt_status kvt_generation_table_create(const char *path, const struct kvt_surroundings *surroundings,
	char *why, struct kvt_generation_table **out) KVT_MUST_CHECK;
void kvt_generation_table_destroy(struct kvt_generation_table *g); /* NULL is allowed */

/* Answers a question; what it is to change does not count. */
void kvt_generation_table_read(struct kvt_generation_table *g, struct kvt_table_ask *ask);
/* Larger numbers than all for `count` slots from `first` on; durable when it returns KVT_OK. */
enum kvt_status kvt_generation_table_raise(
	struct kvt_generation_table *g, uint32_t first, uint32_t count) KVT_MUST_CHECK;
/* The numbers of n slots, and the table's id: what another process with the same file has changed, too, which owned the
 * store before. */
void kvt_generation_table_numbers(struct kvt_generation_table *g, const uint32_t *slots, size_t n,
	uint64_t *numbers, uint8_t id[KVT_TABLE_ID_BYTES]);

#endif
