/*
 * session_table.h - maps sessions to workers: bounded, with LRU eviction and a TTL.
 *
 * All memory is allocated at creation (touched as it fills). Keys are 64-bit hashes made with a
 * secret seed; two sessions with equal hashes would share a worker, nothing more.
 *
 * Threads: any function but create and destroy in any thread. A table of many sessions is cut
 * into shards by key, each with a short lock.
 */
#ifndef KVW_SESSION_TABLE_H
#define KVW_SESSION_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "kvway/err.h"

#define KVW_NO_WORKER UINT32_MAX

struct kvw_session_table;

enum kvw_err kvw_session_table_create(
	uint32_t capacity, uint64_t ttl_ns, struct kvw_session_table **out) KVW_MUST_CHECK;
void kvw_session_table_destroy(struct kvw_session_table *table); /* NULL is allowed */

/* Sets another TTL, also for stored sessions. */
void kvw_session_table_set_ttl(struct kvw_session_table *table, uint64_t ttl_ns);

/* Returns the session's worker; counts as a use. KVW_NO_WORKER: unknown or expired. */
uint32_t kvw_session_table_use(struct kvw_session_table *table, uint64_t key, int64_t now_ns);

/* Does the same without counting a use or dropping entries. */
uint32_t kvw_session_table_look(struct kvw_session_table *table, uint64_t key, int64_t now_ns);

/* Moves the session from `old` (KVW_NO_WORKER: it is new) to `worker`. Returns its worker: another
 * one if another thread placed it since the caller looked. */
uint32_t kvw_session_table_place(struct kvw_session_table *table, uint64_t key, uint32_t old,
	uint32_t worker, int64_t now_ns);

/* Removes the worker from all its sessions. */
void kvw_session_table_forget(struct kvw_session_table *table, uint32_t worker);

/* Calls fn for each session that has a worker, some at a time under a lock; sessions that change
 * meanwhile may be missing. An error of fn ends the call and is returned. */
enum kvw_err kvw_session_table_each(struct kvw_session_table *table,
	enum kvw_err (*fn)(void *arg, uint64_t key, uint32_t worker, int64_t used_ns),
	void *arg) KVW_MUST_CHECK;

/* Adds a session with its time of last use. Must be called in order of use, oldest first. */
void kvw_session_table_recall(
	struct kvw_session_table *table, uint64_t key, uint32_t worker, int64_t used_ns);

uint32_t kvw_session_table_capacity(const struct kvw_session_table *table);

/* Returns the number of stored sessions; some may have expired. */
uint64_t kvw_session_table_count(struct kvw_session_table *table);

#endif
