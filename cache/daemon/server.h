/*
 * server.h - kvtierd's control plane: HTTP/1.1 over objects.h.
 *
 * Several loops serve the address `listen`, one more serves `admin`. Each loop is a thread with its
 * own sockets, timers and buffers, and a connection stays with its loop. New connections go to the
 * loop that has the fewest. Bodies of PUTs are received straight into the segment. Work that may
 * wait for a disk (erasing) has a thread of its own.
 *
 * Threads: any.
 */
#ifndef KVT_SERVER_H
#define KVT_SERVER_H

#include "daemon/daemon_settings.h"

struct kvt_server;

/* All borrowed until destroy. */
struct kvt_server_options {
	const struct kvt_daemon_config *config;
	struct kvt_objects *objects;
	struct kvt_segment_file *segment;
};

/* Listens and serves. KVT_EIO: an address is unavailable; `why` (KVT_REASON_BYTES) has the
 * reason. */
enum kvt_status kvt_server_start(const struct kvt_server_options *options, char *why,
	struct kvt_server **out) KVT_MUST_CHECK;

/* The bound addresses, numeric; admin is "" if there is none. Until destroy. */
const char *kvt_server_listen(const struct kvt_server *server);
const char *kvt_server_admin(const struct kvt_server *server);

/* Accepts no new connections; closes idle ones; requests under way get limits.drain_time. */
void kvt_server_drain(struct kvt_server *server);

/* Drains if that has not begun, waits until all requests have ended, and frees the server. NULL is
 * allowed. */
void kvt_server_destroy(struct kvt_server *server);

#endif
