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
	KVW_LISTEN_FIRST, /* no other yet; more of this process follow (SO_REUSEPORT) */
	KVW_LISTEN_NEXT,  /* one of those that follow */
};

/*
 * Opens *fd: non-blocking, closed on exec, with TCP_NODELAY for accepted connections. bound is the
 * bound address, IPv6 in brackets, with the kernel's choice for port 0. KVW_EINVAL: the text is no
 * address; KVW_EIO: it cannot be resolved or bound. On failure `why` has the cause in one line, cut
 * to why_size (at least 100).
 */
enum kvw_err kvw_listen(const char *address, enum kvw_listen_share share, int *fd,
	char bound[KVW_LISTEN_TEXT], char *why, size_t why_size) KVW_MUST_CHECK;

#endif
