/*
 * listen.h - opens a listening socket for an address HOST:PORT.
 *
 * Used for kvway's clients, its admin address and kvtierd. The host's name is resolved, so the
 * function may block: it is for the start of a program, not for an event loop.
 */
#ifndef KVW_LISTEN_H
#define KVW_LISTEN_H

#include <stddef.h>

#include "kvway/err.h"

#define KVW_LISTEN_TEXT 80 /* room for the text of an address */

enum kvw_listen_share {
	KVW_LISTEN_ALONE, /* no other socket listens on the address */
	/* the first of several sockets of this process on the address (SO_REUSEPORT) */
	KVW_LISTEN_FIRST,
	KVW_LISTEN_NEXT,  /* one of the sockets after the first */
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
