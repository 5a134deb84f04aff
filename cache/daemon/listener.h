/*
 * listener.h - a listening socket from HOST:PORT.
 */
#ifndef KVT_LISTENER_H
#define KVT_LISTENER_H

#include "kvtier/kvtier.h"

#define KVT_BOUND_BYTES 80 /* room for an address as text */

/* Non-blocking, TCP without delay. *fd is the caller's. KVT_EIO: why (KVT_REASON_BYTES) says it. */
enum kvt_status kvt_listener_open(
	const char *address, char *why, int *fd, char bound[KVT_BOUND_BYTES]) KVT_MUST_CHECK;

#endif
