/*
 * generations.h - the table of generations that kvtierd keeps for engines of libkvtier (chunk/slots.h).
 *
 * A file with a place for each slot: a change is one write and one sync. A file that is damaged, or not there, is a new
 * table: engines find what they stored cold. Threads: any; a change waits for the disk.
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
/* A larger number than all for a slot; durable when it returns KVT_OK. */
enum kvt_status kvt_generation_table_raise(struct kvt_generation_table *g, uint32_t slot) KVT_MUST_CHECK;
/* Another table begins: all names change. Durable likewise. */
enum kvt_status kvt_generation_table_renew(struct kvt_generation_table *g) KVT_MUST_CHECK;

#endif
