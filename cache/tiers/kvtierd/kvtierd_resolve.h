/*
 * kvtierd_resolve.h - looks up addresses of one host without making the tier's thread wait.
 *
 * A host that is an address needs no lookup. A name is looked up at create, and again on request,
 * on a thread of its own (a name server may take many seconds). Without threads
 * (KVT_THREADS_CALLER) a name is looked up at create only.
 */
#ifndef KVT_TIERED_RESOLVE_H
#define KVT_TIERED_RESOLVE_H

#include "base/resolve.h"
#include "chunk/note.h"

struct kvtierd_resolver;

/* KVT_ENOMEM. A name that cannot be looked up is no failure. */
enum kvt_status kvtierd_resolver_create(const char *host, uint16_t port, bool threads,
	const struct kvt_surroundings *s, struct kvtierd_resolver **out) KVT_MUST_CHECK;
/* Waits for a lookup under way. NULL is allowed. */
void kvtierd_resolver_destroy(struct kvtierd_resolver *r);

/* Returns the latest addresses; none if the name is unknown. Any thread. */
void kvtierd_resolver_get(struct kvtierd_resolver *r, struct kvw_resolve_addresses *out);

/* Reports that the addresses do not work: the name is looked up again, at most once in some
 * seconds. Never waits. */
void kvtierd_resolver_again(struct kvtierd_resolver *r);

#endif
