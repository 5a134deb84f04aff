/*
 * listen.h - a listening socket from HOST:PORT.
 *
 * One function for clients of kvway, its admin address and kvtierd. It resolves the host, so it may
 * block: for the start of a program, not for an event loop.
 */
#ifndef KVW_LISTEN_H
#define KVW_LISTEN_H

#include <stddef.h>

#include "kvway/err.h"

#define KVW_LISTEN_TEXT 80 /* room for a bound address as text */

enum kvw_listen_share {
	KVW_LISTEN_ALONE, /* no other socket may listen on the address */
	KVW_LISTEN_FIRST, /* none does yet; further ones of this process will (SO_REUSEPORT) */
	KVW_LISTEN_NEXT,  /* one of those */
};

/*
 * Opens *fd: non-blocking, closed on exec, accepted connections send without delay. bound is the
 * address as bound, IPv6 in brackets; with port 0 it names the one that the kernel chose.
 * KVW_EINVAL: the text is no address; KVW_EIO: it cannot be resolved or bound. Then `why` says so
 * in one line, cut to why_size (at least 100).
 */
enum kvw_err kvw_listen(const char *address, enum kvw_listen_share share, int *fd,
	char bound[KVW_LISTEN_TEXT], char *why, size_t why_size) KVW_MUST_CHECK;

#endif
