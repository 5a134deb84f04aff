/*
 * resolver.h - watches the addresses of worker host names.
 *
 * A watched name is resolved at once and again whenever the TTL of its answer has passed (at least
 * `least_s`, at most `most_s`; a name of the hosts file after most_s, since files have no TTL). A
 * name that does not resolve is retried after 0.5 s, then after twice as long each time, up to 10
 * s.
 *
 * `found` gets all addresses, IPv4 before IPv6, each ascending, none twice, with the port. The
 * resolver calls it for the first answer, whenever the addresses differ from the former ones, and
 * for the first failure in a row: why != NULL names the failure, count is 0, and the former
 * addresses stay in force. An answer without any address is a failure, too: the worker keeps its
 * former address, and its health shows whether that still works. If the query for one kind of
 * addresses failed, the former ones of that kind stay.
 *
 * Threads: everything here belongs to the thread of the base.
 */
#ifndef KVW_RESOLVER_H
#define KVW_RESOLVER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "kvway/err.h"

struct event_base;
struct kvw_dns_options; /* dns.h */
struct kvw_resolver;
struct kvw_resolver_watch;

/* Reports addresses, which are borrowed during the call. It may call watch and unwatch, also for
 * its own watch. */
typedef void kvw_resolver_found_fn(
	void *arg, const struct sockaddr_storage *addresses, size_t count, const char *why);

struct kvw_resolver_options {
	uint32_t least_s, most_s;          /* 0: 1 and 30 */
	uint32_t retry_ms, retry_most_ms;  /* 0: 500 and 10,000 */
	const struct kvw_dns_options *dns; /* borrowed during the call; NULL: the machine's own */
};

/* options NULL: the defaults. Failures are those of kvw_dns_create. */
enum kvw_err kvw_resolver_create(struct event_base *base,
	const struct kvw_resolver_options *options, struct kvw_resolver **out) KVW_MUST_CHECK;

/* Ends all watches. Must not be called from `found`. NULL is allowed. */
void kvw_resolver_destroy(struct kvw_resolver *resolver);

/*
 * Begins to watch a host: an address in digits (IPv6 without brackets) or a name; copied. If no
 * name server is needed (digits, `localhost`, a name of the hosts file), `found` is called before
 * this returns; *out is set by then. KVW_ENOMEM: `found` was not called.
 */
enum kvw_err kvw_resolver_watch(struct kvw_resolver *resolver, const char *host, uint16_t port,
	kvw_resolver_found_fn *found, void *arg, struct kvw_resolver_watch **out) KVW_MUST_CHECK;

/* Ends a watch; `found` is not called any more. NULL is allowed. */
void kvw_resolver_unwatch(struct kvw_resolver_watch *watch);

/* Resolves at once, for example because connections fail; no effect while a question is open. */
void kvw_resolver_hurry(struct kvw_resolver_watch *watch);

#endif
