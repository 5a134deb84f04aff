/*
 * session_table.h - which worker a session lives on: bounded, least recently used out, with a TTL.
 *
 * All memory is asked for at the start (touched as it fills); nothing is allocated later. Keys are
 * 64-bit hashes made with a secret seed; two sessions with equal hashes would share a worker,
 * nothing more.
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

/* Another TTL, for sessions that are remembered too. */
void kvw_session_table_set_ttl(struct kvw_session_table *table, uint64_t ttl_ns);

/* The session's worker, which counts as use; KVW_NO_WORKER: unknown or expired. */
uint32_t kvw_session_table_use(struct kvw_session_table *table, uint64_t key, int64_t now_ns);

/* The same, which does not count as use and drops nothing. */
uint32_t kvw_session_table_look(struct kvw_session_table *table, uint64_t key, int64_t now_ns);

/* Moves the session from `old` (KVW_NO_WORKER: it is new) to `worker`. Returns its worker: another
 * one if another thread placed it since the caller looked. */
uint32_t kvw_session_table_place(struct kvw_session_table *table, uint64_t key, uint32_t old,
	uint32_t worker, int64_t now_ns);

/* Sessions of the worker have none any more. */
void kvw_session_table_forget(struct kvw_session_table *table, uint32_t worker);

/* Calls fn for each session that has a worker, some at a time under a lock; what changes meanwhile
 * may be missing. An error of fn ends it and is returned. */
enum kvw_err kvw_session_table_each(struct kvw_session_table *table,
	enum kvw_err (*fn)(void *arg, uint64_t key, uint32_t worker, int64_t used_ns),
	void *arg) KVW_MUST_CHECK;

/* A session that was last used at another time than now.
 * Those that were used longest ago come first. */
void kvw_session_table_recall(
	struct kvw_session_table *table, uint64_t key, uint32_t worker, int64_t used_ns);

uint32_t kvw_session_table_capacity(const struct kvw_session_table *table);

/* Sessions remembered; some may have expired and wait to be dropped. */
uint64_t kvw_session_table_count(struct kvw_session_table *table);

#endif
