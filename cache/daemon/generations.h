/*
 * generations.h - the table of generations that kvtierd keeps for engines that use libkvtier
 * (chunk/slots.h), and for its own objects.
 *
 * The file has a record for each slot: a change is one write and one sync. If the file is damaged
 * or missing, a new table is made, and everything that was stored counts as a miss. Threads: any; a
 * change waits for the disk.
 */
#ifndef KVT_DAEMON_GENERATIONS_H
#define KVT_DAEMON_GENERATIONS_H

#include "chunk/note.h"
#include "chunk/slots.h"

struct kvt_generation_table;

/* path NULL: the table is only in memory, and new at each start. KVT_EIO, KVT_ENOMEM; why: room for
 * KVT_REASON_BYTES. */
enum kvt_status kvt_generation_table_create(const char *path, const struct kvt_surroundings *surroundings,
	char *why, struct kvt_generation_table **out) KVT_MUST_CHECK;
void kvt_generation_table_destroy(struct kvt_generation_table *g); /* NULL is allowed */

/* Answers a question about the table; ignores the change that `ask` may ask for. */
void kvt_generation_table_read(struct kvt_generation_table *g, struct kvt_table_ask *ask);
/* Gives `count` slots from `first` on numbers greater than all others; durable when it returns
 * KVT_OK. */
enum kvt_status kvt_generation_table_raise(
	struct kvt_generation_table *g, uint32_t first, uint32_t count) KVT_MUST_CHECK;
/* Reads the numbers of n slots and the table's id, including changes by another process that owned
 * the store, and so the file, before. */
void kvt_generation_table_numbers(struct kvt_generation_table *g, const uint32_t *slots, size_t n,
	uint64_t *numbers, uint8_t id[KVT_TABLE_ID_BYTES]);

#endif
