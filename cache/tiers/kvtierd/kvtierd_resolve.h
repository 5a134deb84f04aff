/*
 * tiered_resolve.h - addresses of one host, looked up without making anybody wait.
 *
 * A host that is an address needs no looking up. A name is looked up at create, and again when
 * asked, on a thread of its own (asking a name server may take many seconds). Without threads
 * (KVT_THREADS_CALLER) a name is looked up at create only.
 */
#ifndef KVT_TIERED_RESOLVE_H
#define KVT_TIERED_RESOLVE_H

#include <stdbool.h>
#include <sys/socket.h>

#include "chunk/note.h"

#define TIERED_ADDRESSES 8

struct tiered_address {
	struct sockaddr_storage bytes;
	socklen_t len;
};

struct tiered_resolver;

/* KVT_ENOMEM. A name that is not found is no failure. */
enum kvt_status tiered_resolver_create(const char *host, uint16_t port, bool threads,
	const struct kvt_surroundings *s, struct tiered_resolver **out) KVT_MUST_CHECK;
/* Waits for a lookup under way. NULL is allowed. */
void tiered_resolver_destroy(struct tiered_resolver *r);

/* The latest addresses; returns how many, 0: unknown. Any thread. */
size_t tiered_resolver_get(struct tiered_resolver *r, struct tiered_address out[TIERED_ADDRESSES]);

/* The addresses are of no use: looks again, at most once in some seconds. Never waits. */
void tiered_resolver_again(struct tiered_resolver *r);

#endif
