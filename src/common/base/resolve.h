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

/* Resolves a name. Waits until the machine's resolver returns, unless `flags` (those of
 * getaddrinfo) has AI_NUMERICHOST. Returns getaddrinfo's error; 0: *out is set. Any thread. */
int kvw_resolve_now(const char *host, uint16_t port, int flags, struct kvw_resolve_addresses *out);

struct kvw_resolve; /* a question */

/* If the host is a numeric address, or the path of a Unix socket (port 0), sets *out and returns
 * true. */
bool kvw_resolve_literal(const char *host, uint16_t port, struct kvw_resolve_addresses *out);

/* Begins to resolve a name. When that is done, the eventfd `wake`, which is copied, is signaled.
 * KVW_ENOMEM: no thread could be started. */
enum kvw_err kvw_resolve_begin(
	const char *host, uint16_t port, int wake, struct kvw_resolve **out) KVW_MUST_CHECK;

/* Returns true if the question is answered: then *out has the addresses, or none, and *why the
 * reason (static text). */
bool kvw_resolve_answered(
	struct kvw_resolve *question, struct kvw_resolve_addresses *out, const char **why);

/* frees the question, answered or not; NULL is allowed */
void kvw_resolve_drop(struct kvw_resolve *question);

#endif
