/*
 * daemon.h - a running kvtierd: segment, objects, server, and the signals that end it.
 */
#ifndef KVT_DAEMON_H
#define KVT_DAEMON_H

#include "daemon/daemon_settings.h"

/* Bytes of the segment that would be used, and why (KVT_REASON_BYTES); 0: none can be had. */
uint64_t kvt_daemon_segment_bytes(const struct kvt_daemon_config *config, char *why);

/* Prints on standard error what this machine cannot hold, one line each, and returns how many there
 * are. bytes: of the segment. */
size_t kvt_daemon_check(const struct kvt_daemon_config *config, uint64_t bytes);

/* Runs until SIGTERM or SIGINT. True: all went well, also at the end. Mistakes are in the log. To be
 * called before the process has another thread. */
bool kvt_daemon_run(const struct kvt_daemon_config *config);

#endif
