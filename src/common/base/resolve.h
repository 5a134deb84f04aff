/*
 * resolve.h - resolves a host name, blocking or not.
 *
 * The machine's own resolver (hosts file, DNS, whatever else it is set up for) has no non-blocking
 * call, so each question runs in a thread of its own. The caller may drop the question: its thread
 * ends when the resolver returns, and frees it. Numeric addresses need no thread.
 */
#ifndef KVW_RESOLVE_H
#define KVW_RESOLVE_H

#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/un.h>

#include "kvway/err.h"

#define KVW_RESOLVE_MAX 8

struct kvw_resolve_address {
	socklen_t len;
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
		struct sockaddr_un local;
	} to;
};

struct kvw_resolve_addresses {
	size_t count;
	struct kvw_resolve_address items[KVW_RESOLVE_MAX];
};

/* Blocks until the machine's resolver returns, unless `flags` (of getaddrinfo) has AI_NUMERICHOST.
 * Returns getaddrinfo's error, 0: *out is set. Any thread. */
int kvw_resolve_now(const char *host, uint16_t port, int flags, struct kvw_resolve_addresses *out);

struct kvw_resolve; /* a question */

/* True: the host is a numeric address, or the path (port 0) of a Unix socket. */
bool kvw_resolve_literal(const char *host, uint16_t port, struct kvw_resolve_addresses *out);

/* Begins a question; its answer signals the eventfd `wake` (copied). KVW_ENOMEM: no thread. */
enum kvw_err kvw_resolve_begin(
	const char *host, uint16_t port, int wake, struct kvw_resolve **out) KVW_MUST_CHECK;

/* True: answered; *out has the addresses, or none and *why the reason (static text). */
bool kvw_resolve_answered(
	struct kvw_resolve *question, struct kvw_resolve_addresses *out, const char **why);

void kvw_resolve_drop(struct kvw_resolve *question); /* answered or not; NULL is allowed */

#endif
