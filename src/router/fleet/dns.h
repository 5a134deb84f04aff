/*
 * dns.h - questions to the domain name system, asked on an event base by c-ares.
 *
 * A host is asked for its IPv4 and its IPv6 addresses in two queries, because they fail separately:
 * a server that answers one of them with SERVFAIL must not look like a host without addresses. For
 * a host in the hosts file only that file counts, as in the machine's own resolver, and `localhost`
 * is always 127.0.0.1 and ::1 (RFC 6761, 6.3). Servers, search domains and ndots come from
 * /etc/resolv.conf, or from LOCALDOMAIN and RES_OPTIONS in the environment. An answer that does not
 * fit a datagram is fetched again by TCP.
 *
 * Threads: everything here belongs to the thread of the base.
 */
#ifndef KVW_DNS_H
#define KVW_DNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "kvway/err.h"

#define KVW_DNS_MOST 1024 /* addresses or targets of one name; further ones are left out */
#define KVW_DNS_HOST 256  /* room for a name with its NUL */
/* Special values of a TTL: KVW_DNS_STAY for an address in digits, which never changes; KVW_DNS_FILE
 * for a name in the hosts file, which may change at any time. */
#define KVW_DNS_STAY UINT32_MAX
#define KVW_DNS_FILE (UINT32_MAX - 1)

struct event_base;
struct kvw_dns;
struct kvw_dns_question;

enum kvw_dns_verdict {
	KVW_DNS_FOUND,
	/* A server answered: no such name (NXDOMAIN), or no record of this kind. */
	KVW_DNS_NONE,
	KVW_DNS_FAILED, /* not known: SERVFAIL, refused, timed out, or an unreadable answer */
};

/* An entry of an SRV answer. */
struct kvw_dns_target {
	char host[KVW_DNS_HOST]; /* without a final dot */
	uint16_t port;
};

/* An answer. Borrowed during the call that gets it. */
struct kvw_dns_answer {
	enum kvw_dns_verdict verdict;
	const char *why; /* the cause in words, unless FOUND */
	uint32_t ttl_s;  /* FOUND: least TTL of all records, or KVW_DNS_STAY or KVW_DNS_FILE */
	bool half; /* FOUND: only one kind of addresses, since the query for the other one failed */

	/* Answer for a host: addresses with the port of the question; IPv4 first, ascending, none
	 * twice. */
	const struct sockaddr_storage *addresses;
	size_t address_count;

	/* Answer for a service: ordered by host and port, none twice. Priority and weight are
	 * ignored. */
	const struct kvw_dns_target *targets;
	size_t target_count;
};

typedef void kvw_dns_answer_fn(void *arg, const struct kvw_dns_answer *answer);

/* Zeroed: the machine's settings. */
struct kvw_dns_options {
	/* "ADDRESS:PORT,..." instead of the servers of resolv.conf; for tests. */
	const char *servers;
	int timeout_ms; /* time limit of the first try, doubled for each further one; 0: 1000 */
	int tries;           /* per server; 0: 3 */
};

/* options NULL: the machine's settings. KVW_EINVAL: c-ares refused them; the cause is in the
 * log. */
enum kvw_err kvw_dns_create(struct event_base *base, const struct kvw_dns_options *options,
	struct kvw_dns **out) KVW_MUST_CHECK;

/* Drops open questions. Must not be called from an answer's function. NULL is allowed. */
void kvw_dns_destroy(struct kvw_dns *dns);

/* Answers without a server, if possible: for an address in digits (IPv6 without brackets),
 * `localhost`, or a host in the hosts file. Then it calls `fn` before it returns true. */
bool kvw_dns_at_hand(
	struct kvw_dns *dns, const char *host, uint16_t port, kvw_dns_answer_fn *fn, void *arg);

/* Asks for a host's addresses. `fn` is called once, from the loop and never from within this call;
 * the question is freed before that. */
enum kvw_err kvw_dns_ask_host(struct kvw_dns *dns, const char *host, uint16_t port,
	kvw_dns_answer_fn *fn, void *arg, struct kvw_dns_question **out) KVW_MUST_CHECK;

/* Asks for SRV records; service: "_http._tcp.NAME". */
enum kvw_err kvw_dns_ask_service(struct kvw_dns *dns, const char *service, kvw_dns_answer_fn *fn,
	void *arg, struct kvw_dns_question **out) KVW_MUST_CHECK;

/* Drops a question; `fn` is not called any more. NULL is allowed. */
void kvw_dns_drop(struct kvw_dns_question *question);

/* Sorts addresses in the order of kvw_dns_answer, without duplicates. Returns their number. */
size_t kvw_dns_order(struct sockaddr_storage *addresses, size_t count);

#endif
