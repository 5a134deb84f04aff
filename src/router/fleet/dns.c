/*
 * dns.c - asks the DNS with c-ares.
 *
 * Two channels of c-ares: one that reads the hosts file only and therefore answers at once, and one
 * that asks servers only. c-ares calls back from inside its own functions, where c-ares must not be
 * called; those callbacks only fill their question. A separate event delivers the answer, so that
 * its receiver may ask and drop freely. c-ares cannot cancel one query alone: a dropped question
 * stays until c-ares has called back for all its parts.
 */
#include "fleet/dns.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>

#define CARES_NO_DEPRECATED /* versions from 1.34 on deprecate functions that 1.18 needs */
#include <ares.h>
#include <event2/event.h>

#include "base/log.h"
#include "base/resolve.h"
#include "fleet/dns_srv.h"

#define ROOM       "dns"
#define CLASS_IN   1
#define TYPE_SRV   33
#define TIMEOUT_MS 1000
#define TRIES      3

/* A socket that c-ares uses, registered with the loop. */
struct dns_socket {
	LIST_ENTRY(dns_socket) entry;
	struct event *event;
	int fd;
};

struct kvw_dns_question {
	/* link in `finished`, while the question waits for delivery */
	TAILQ_ENTRY(kvw_dns_question) entry;
	struct kvw_dns *dns;
	kvw_dns_answer_fn *fn; /* NULL: dropped */
	void *arg;
	uint16_t port;
	uint8_t open;  /* queries that c-ares has not answered yet */
	bool finished; /* on the list */
	bool none;     /* a query had an empty answer */
	int failed;    /* c-ares' status of a query that failed; 0: none failed */
	int said;      /* the status of the query that set `none` */
	uint32_t ttl_s;
	struct sockaddr_storage *addresses; /* [KVW_DNS_MOST] once there is an address; owned */
	size_t address_count;
	struct kvw_dns_target *targets; /* owned */
	size_t target_count;
};

struct kvw_dns {
	struct event_base *base; /* borrowed */
	ares_channel servers;
	ares_channel hosts; /* the channel that reads the hosts file only */
	struct event *timeout;
	struct event *deliver;
	LIST_HEAD(, dns_socket) sockets;
	TAILQ_HEAD(questions, kvw_dns_question) finished;
	bool library;
	bool ending;
};

/* --- answers --- */

static int compare_addresses(const void *a, const void *b)
{
	const struct sockaddr_storage *x = a, *y = b;

	if (x->ss_family != y->ss_family)
		return x->ss_family == AF_INET ? -1 : 1;
	if (x->ss_family == AF_INET) {
		const struct sockaddr_in *p = a, *q = b;
		int order = memcmp(&p->sin_addr, &q->sin_addr, sizeof(p->sin_addr));

		return order != 0 ? order : ntohs(p->sin_port) - ntohs(q->sin_port);
	}
	const struct sockaddr_in6 *p = a, *q = b;
	int order = memcmp(&p->sin6_addr, &q->sin6_addr, sizeof(p->sin6_addr));

	if (order == 0)
		order = ntohs(p->sin6_port) - ntohs(q->sin6_port);
	return order != 0 ? order
			  : (p->sin6_scope_id > q->sin6_scope_id) -
				    (p->sin6_scope_id < q->sin6_scope_id);
}

size_t kvw_dns_order(struct sockaddr_storage *addresses, size_t count)
{
	size_t kept = 0;

	if (count == 0)
		return 0;
	qsort(addresses, count, sizeof(*addresses), compare_addresses);
	for (size_t i = 1; i < count; i++)
		if (compare_addresses(&addresses[kept], &addresses[i]) != 0)
			addresses[++kept] = addresses[i];
	return kept + 1;
}

static const char *why_of(int status)
{
	switch (status) {
	case ARES_ENOTFOUND:
		return "no such name (NXDOMAIN)";
	case ARES_ENODATA:
		return "the name has no such records";
	case ARES_ETIMEOUT:
		return "no name server answered in time";
	case ARES_ESERVFAIL: /* the version of c-ares decides which of these statuses is returned */
	case ARES_EREFUSED:
	case ARES_ECONNREFUSED:
		return "no name server gave an answer (SERVFAIL, refused, unreachable)";
	case ARES_EBADRESP:
		return "the name server's answer is malformed";
	case ARES_EBADNAME:
		return "not a valid name";
	default:
		return ares_strerror(status);
	}
}

static void free_question(struct kvw_dns_question *question)
{
	free(question->addresses);
	free(question->targets);
	free(question);
}

/* Delivers the combined result of all queries of a question. */
static void give(struct kvw_dns_question *question, kvw_dns_answer_fn *fn, void *arg)
{
	struct kvw_dns_answer answer = {.verdict = KVW_DNS_FOUND, .ttl_s = question->ttl_s};

	question->address_count = kvw_dns_order(question->addresses, question->address_count);
	answer.addresses = question->addresses;
	answer.address_count = question->address_count;
	answer.targets = question->targets;
	answer.target_count = question->target_count;
	answer.half = question->failed != 0;
	if (answer.address_count == 0 && answer.target_count == 0) {
		answer.verdict = answer.half ? KVW_DNS_FAILED : KVW_DNS_NONE;
		answer.why = why_of(answer.half ? question->failed : question->said);
		answer.half = false;
	}
	fn(arg, &answer);
}

static void on_deliver(evutil_socket_t fd, short what, void *arg)
{
	struct kvw_dns *dns = arg;
	struct kvw_dns_question *question;

	(void)fd;
	(void)what;
	while ((question = TAILQ_FIRST(&dns->finished)) != NULL) {
		TAILQ_REMOVE(&dns->finished, question, entry);
		give(question, question->fn, question->arg);
		free_question(question);
	}
}

/* Ends one query of a question. */
static void query_ended(struct kvw_dns_question *question)
{
	if (--question->open > 0)
		return;
	if (question->fn == NULL || question->dns->ending) {
		free_question(question);
		return;
	}
	question->finished = true;
	TAILQ_INSERT_TAIL(&question->dns->finished, question, entry);
	event_active(question->dns->deliver, EV_TIMEOUT, 1);
}

static void note_status(struct kvw_dns_question *question, int status)
{
	if (status == ARES_ENOTFOUND || status == ARES_ENODATA) {
		question->none = true;
		question->said = status;
	} else {
		question->failed = status;
	}
}

static void add_address(
	struct kvw_dns_question *question, const void *address, socklen_t len, uint32_t ttl_s)
{
	if (question->addresses == NULL)
		question->addresses = calloc(KVW_DNS_MOST, sizeof(*question->addresses));
	if (question->addresses == NULL) {
		question->failed = ARES_ENOMEM;
		return;
	}
	if (question->address_count == KVW_DNS_MOST || len > sizeof(*question->addresses))
		return;
	memcpy(&question->addresses[question->address_count], address, len);
	question->address_count++;
	if (ttl_s < question->ttl_s)
		question->ttl_s = ttl_s;
}

static void take_addresses(
	struct kvw_dns_question *question, int status, struct ares_addrinfo *found)
{
	size_t before = question->address_count;

	if (status == ARES_SUCCESS)
		for (const struct ares_addrinfo_node *node = found->nodes; node != NULL;
			node = node->ai_next)
			if (node->ai_family == AF_INET || node->ai_family == AF_INET6)
				add_address(question, node->ai_addr, (socklen_t)node->ai_addrlen,
					node->ai_ttl < 0 ? 0 : (uint32_t)node->ai_ttl);
	if (status != ARES_SUCCESS)
		note_status(question, status);
	else if (question->address_count == before)
		note_status(question, ARES_ENODATA);
	if (found != NULL)
		ares_freeaddrinfo(found);
}

static void on_addresses(void *arg, int status, int timeouts, struct ares_addrinfo *found)
{
	(void)timeouts;
	take_addresses(arg, status, found);
	query_ended(arg);
}

static void on_service(void *arg, int status, int timeouts, unsigned char *data, int len)
{
	struct kvw_dns_question *question = arg;

	(void)timeouts;
	if (status == ARES_SUCCESS) {
		enum kvw_err err = kvw_dns_srv_read(data, (size_t)(len < 0 ? 0 : len),
			&question->targets, &question->target_count, &question->ttl_s);

		status = err == KVW_OK          ? ARES_SUCCESS
			 : err == KVW_ENOTFOUND ? ARES_ENODATA
			 : err == KVW_ENOMEM    ? ARES_ENOMEM
						: ARES_EBADRESP;
	}
	if (status != ARES_SUCCESS)
		note_status(question, status);
	query_ended(question);
}

/* --- the loop --- */

static void set_timeout(struct kvw_dns *dns)
{
	struct timeval delay;

	if (ares_timeout(dns->servers, NULL, &delay) == NULL)
		event_del(dns->timeout);
	else
		event_add(dns->timeout, &delay);
}

static void on_timeout(evutil_socket_t fd, short what, void *arg)
{
	struct kvw_dns *dns = arg;

	(void)fd;
	(void)what;
	ares_process_fd(dns->servers, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	set_timeout(dns);
}

static void on_socket_event(evutil_socket_t fd, short what, void *arg)
{
	struct kvw_dns *dns = arg;

	ares_process_fd(dns->servers, what & EV_READ ? fd : ARES_SOCKET_BAD,
		what & EV_WRITE ? fd : ARES_SOCKET_BAD);
	set_timeout(dns);
}

static void forget_socket(struct dns_socket *socket)
{
	LIST_REMOVE(socket, entry);
	if (socket->event != NULL)
		event_free(socket->event);
	free(socket);
}

/* c-ares calls this to set whether it waits for the socket to be readable or writable; neither: it
 * is about to close the socket. */
static void on_socket(void *arg, ares_socket_t fd, int readable, int writable)
{
	struct kvw_dns *dns = arg;
	short wanted = EV_PERSIST;
	struct dns_socket *socket;

	LIST_FOREACH(socket, &dns->sockets, entry)
	{
		if (socket->fd == fd)
			break;
	}
	if (socket != NULL)
		forget_socket(socket);
	if (!readable && !writable)
		return;
	if (readable)
		wanted |= EV_READ;
	if (writable)
		wanted |= EV_WRITE;
	socket = calloc(1, sizeof(*socket));
	if (socket == NULL) {
		kvw_warn(ROOM, "out of memory for a socket event");
		return; /* the queries will time out */
	}
	socket->fd = fd;
	LIST_INSERT_HEAD(&dns->sockets, socket, entry);
	socket->event = event_new(dns->base, fd, wanted, on_socket_event, dns);
	if (socket->event == NULL || event_add(socket->event, NULL) != 0)
		kvw_warn(ROOM, "out of memory for a socket event");
}

static enum kvw_err create_channels(struct kvw_dns *dns, const struct kvw_dns_options *options)
{
	char servers_only[] = "b", hosts_only[] = "f";
	struct ares_options set = {
		.timeout = options->timeout_ms > 0 ? options->timeout_ms : TIMEOUT_MS,
		.tries = options->tries > 0 ? options->tries : TRIES,
		.lookups = servers_only,
		.sock_state_cb = on_socket,
		.sock_state_cb_data = dns};
	int mask = ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS | ARES_OPT_SOCK_STATE_CB;
	int status = ares_library_init(ARES_LIB_INIT_ALL);

#ifdef ARES_OPT_QUERY_CACHE
	/* age 0 turns c-ares' cache off: the callers decide when to ask again */
	mask |= ARES_OPT_QUERY_CACHE;
#endif
	dns->library = status == ARES_SUCCESS;
	if (status == ARES_SUCCESS)
		status = ares_init_options(&dns->servers, &set, mask);
	if (status == ARES_SUCCESS && options->servers != NULL)
		status = ares_set_servers_ports_csv(dns->servers, options->servers);
	set = (struct ares_options){.lookups = hosts_only};
	if (status == ARES_SUCCESS)
		status = ares_init_options(&dns->hosts, &set, ARES_OPT_LOOKUPS);
	if (status == ARES_SUCCESS)
		return KVW_OK;
	if (status == ARES_ENOMEM)
		return KVW_ENOMEM;
	kvw_error(ROOM, "cannot start the resolver: %s", ares_strerror(status));
	return KVW_EINVAL;
}

enum kvw_err kvw_dns_create(
	struct event_base *base, const struct kvw_dns_options *options, struct kvw_dns **out)
{
	const struct kvw_dns_options usual = {0};
	struct kvw_dns *dns = calloc(1, sizeof(*dns));
	enum kvw_err err = KVW_ENOMEM;

	if (dns == NULL)
		return KVW_ENOMEM;
	dns->base = base;
	LIST_INIT(&dns->sockets);
	TAILQ_INIT(&dns->finished);
	dns->timeout = event_new(base, -1, 0, on_timeout, dns);
	dns->deliver = event_new(base, -1, 0, on_deliver, dns);
	if (dns->timeout != NULL && dns->deliver != NULL)
		err = create_channels(dns, options != NULL ? options : &usual);
	if (err != KVW_OK) {
		kvw_dns_destroy(dns);
		return err;
	}
	*out = dns;
	return KVW_OK;
}

void kvw_dns_destroy(struct kvw_dns *dns)
{
	struct kvw_dns_question *question;

	if (dns == NULL)
		return;
	dns->ending = true;
	if (dns->servers != NULL)
		ares_destroy(dns->servers); /* ends all queries */
	if (dns->hosts != NULL)
		ares_destroy(dns->hosts);
	while ((question = TAILQ_FIRST(&dns->finished)) != NULL) {
		TAILQ_REMOVE(&dns->finished, question, entry);
		free_question(question);
	}
	while (!LIST_EMPTY(&dns->sockets))
		forget_socket(LIST_FIRST(&dns->sockets));
	if (dns->timeout != NULL)
		event_free(dns->timeout);
	if (dns->deliver != NULL)
		event_free(dns->deliver);
	if (dns->library)
		ares_library_cleanup();
	free(dns);
}

/* --- questions --- */

static bool is_localhost(const char *host)
{
	size_t len = strlen(host);

	return strcasecmp(host, "localhost") == 0 || strcasecmp(host, "localhost.") == 0 ||
	       (len > 10 && strcasecmp(host + len - 10, ".localhost") == 0);
}

static void add_localhost(struct kvw_dns_question *question)
{
	const struct sockaddr_in v4 = {.sin_family = AF_INET,
		.sin_port = htons(question->port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
		.sin6_port = htons(question->port),
		.sin6_addr = IN6ADDR_LOOPBACK_INIT};

	add_address(question, &v4, sizeof(v4), KVW_DNS_STAY);
	add_address(question, &v6, sizeof(v6), KVW_DNS_STAY);
}

static void on_hosts_file(void *arg, int status, int timeouts, struct ares_addrinfo *found)
{
	(void)timeouts;
	take_addresses(arg, status, found);
}

static void ask_addresses(ares_channel channel, const char *host, int family,
	struct kvw_dns_question *question, ares_addrinfo_callback fn)
{
	const struct ares_addrinfo_hints hints = {.ai_family = family,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = ARES_AI_NUMERICSERV | ARES_AI_NOSORT};
	char port[8];

	snprintf(port, sizeof(port), "%u", question->port);
	ares_getaddrinfo(channel, host, port, &hints, fn, question);
}

/* Returns whether the addresses are known without a server; stores them in the question. */
static bool at_hand(struct kvw_dns *dns, const char *host, struct kvw_dns_question *question)
{
	struct kvw_resolve_addresses literal = {0};

	question->ttl_s = KVW_DNS_STAY;
	if (is_localhost(host)) {
		add_localhost(question);
		return true;
	}
	if (kvw_resolve_now(host, question->port, AI_NUMERICHOST, &literal) == 0) {
		for (size_t i = 0; i < literal.count; i++)
			add_address(
				question, &literal.items[i].to, literal.items[i].len, KVW_DNS_STAY);
		return true;
	}
	ask_addresses(dns->hosts, host, AF_UNSPEC, question, on_hosts_file);
	if (question->address_count > 0) {
		question->ttl_s = KVW_DNS_FILE;
		return true;
	}
	/* a host that is not in the file, or an unreadable file, is no failure */
	question->failed = 0;
	question->none = false;
	return false;
}

static struct kvw_dns_question *new_question(
	struct kvw_dns *dns, uint16_t port, kvw_dns_answer_fn *fn, void *arg)
{
	struct kvw_dns_question *question = calloc(1, sizeof(*question));

	if (question == NULL)
		return NULL;
	question->dns = dns;
	question->port = port;
	question->fn = fn;
	question->arg = arg;
	question->ttl_s = KVW_DNS_STAY;
	return question;
}

bool kvw_dns_at_hand(
	struct kvw_dns *dns, const char *host, uint16_t port, kvw_dns_answer_fn *fn, void *arg)
{
	struct kvw_dns_question question = {.dns = dns, .port = port};
	bool known = at_hand(dns, host, &question) && question.address_count > 0;

	if (known)
		give(&question, fn, arg);
	free(question.addresses);
	return known;
}

enum kvw_err kvw_dns_ask_host(struct kvw_dns *dns, const char *host, uint16_t port,
	kvw_dns_answer_fn *fn, void *arg, struct kvw_dns_question **out)
{
	struct kvw_dns_question *question = new_question(dns, port, fn, arg);

	if (question == NULL)
		return KVW_ENOMEM;
	question->open = 1; /* keeps the question alive until all queries are sent */
	if (!at_hand(dns, host, question)) {
		question->open += 2;
		ask_addresses(dns->servers, host, AF_INET, question, on_addresses);
		ask_addresses(dns->servers, host, AF_INET6, question, on_addresses);
		set_timeout(dns);
	}
	query_ended(question);
	*out = question;
	return KVW_OK;
}

enum kvw_err kvw_dns_ask_service(struct kvw_dns *dns, const char *service, kvw_dns_answer_fn *fn,
	void *arg, struct kvw_dns_question **out)
{
	struct kvw_dns_question *question = new_question(dns, 0, fn, arg);

	if (question == NULL)
		return KVW_ENOMEM;
	question->open = 2;
	ares_search(dns->servers, service, CLASS_IN, TYPE_SRV, on_service, question);
	set_timeout(dns);
	query_ended(question);
	*out = question;
	return KVW_OK;
}

void kvw_dns_drop(struct kvw_dns_question *question)
{
	if (question == NULL)
		return;
	question->fn = NULL;
	if (!question->finished)
		return; /* c-ares still uses the question */
	TAILQ_REMOVE(&question->dns->finished, question, entry);
	free_question(question);
}
