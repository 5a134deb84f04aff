/*
 * access_log.h - one JSON line per request, written by a thread of its own.
 *
 * Loops format into a bounded ring each (single producer, single consumer); the writer thread
 * empties them. A line that does not fit is dropped and counted. No prompt, no header but the
 * request id, no key is ever written; the target's query is left out.
 */
#ifndef KVW_ACCESS_LOG_H
#define KVW_ACCESS_LOG_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kvway/err.h"
#include "base/record.h"

struct kvw_access_log;

/* Opens the log. target: "off", "stdout", "stderr" or a path (opened for append;
 * kvw_access_log_reopen opens it again, for logrotate). "off" makes a log that drops everything
 * silently. */
enum kvw_err kvw_access_log_create(const char *target, size_t loops, size_t ring_bytes,
	FILE *errors, struct kvw_access_log **out) KVW_MUST_CHECK;
/* writes the remaining lines; NULL is allowed */
void kvw_access_log_destroy(struct kvw_access_log *log);
void kvw_access_log_write(struct kvw_access_log *log, size_t loop,
	const struct kvw_request_record *record);
void kvw_access_log_reopen(struct kvw_access_log *log);
uint64_t kvw_access_log_dropped(const struct kvw_access_log *log);

#endif
