/*
 * rest.h - what a process has counted after its successor was given a snapshot, in a file
 * PATH.rest-PID next to state.file.
 *
 * A process whose sockets another has taken over finishes its requests, and then writes the file;
 * the other one looks for it, adds its records to its own, and removes it.
 *
 * Threads: any.
 */
#ifndef KVW_STATE_REST_H
#define KVW_STATE_REST_H

#include <stdbool.h>

#include "state/format.h"

/* Writes the records that `keep` puts. Failures are logged: then those counts are lost. */
void kvw_state_rest_write(const char *path, int64_t pid, uint64_t most,
	enum kvw_err (*keep)(void *arg, const struct kvw_keep_out *out), void *arg);

/* Reads the file of the process `pid`, if it is there, calls `take` for each record, and removes
 * the file. Returns true if nothing will come any more: the file was read, or it is not there and
 * the process has ended. A damaged file is logged and not used. */
bool kvw_state_rest_read(const char *path, int64_t pid, uint64_t most,
	void (*take)(void *arg, enum kvw_keep_kind kind, const uint8_t *record, size_t len),
	void *arg) KVW_MUST_CHECK;

#endif
