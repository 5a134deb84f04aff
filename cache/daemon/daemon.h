/*
 * daemon.h - a running kvtierd: segment, objects, server, and the signals that end them.
 */
#ifndef KVT_DAEMON_H
#define KVT_DAEMON_H

#include "daemon/daemon_settings.h"

/* Bytes that the segment would take, and why (KVT_REASON_BYTES); 0: none available. */
uint64_t kvt_daemon_segment_bytes(const struct kvt_daemon_config *config, char *why);

/* Prints on standard error the settings that this machine cannot hold, one line each, and returns their number. bytes:
 * of the segment. */
size_t kvt_daemon_check(const struct kvt_daemon_config *config, uint64_t bytes);

/* Runs until SIGTERM or SIGINT. True: no failure, including the end. Mistakes are in the log. To be called before the
 * process has another thread. */
bool kvt_daemon_run(const struct kvt_daemon_config *config);

#endif
