/*
 * daemon.h - runs kvtierd: segment, objects, server, until a signal ends it.
 */
#ifndef KVT_DAEMON_H
#define KVT_DAEMON_H

#include "daemon/daemon_settings.h"

/* Returns the bytes that the segment would take, 0 if there are none; `why` (KVT_REASON_BYTES): how
 * the size was chosen. */
uint64_t kvt_daemon_segment_bytes(const struct kvt_daemon_config *config, char *why);

/* Prints the settings that this machine cannot satisfy on standard error, one line each, and
 * returns their number. bytes: the segment's size. */
size_t kvt_daemon_check(const struct kvt_daemon_config *config, uint64_t bytes);

/* Runs until SIGTERM or SIGINT. Returns true if nothing failed, shutdown included; failures are
 * logged. Must be called before the process has another thread. */
bool kvt_daemon_run(const struct kvt_daemon_config *config);

#endif
