/*
 * kvtierd_http.h - exchanges with a storage daemon over a few HTTP/1.1 connections.
 *
 * 	waiting --> a free connection --> sent --> answered --> done
 * 	   |              |                 |
 * 	   +--------------+--- deadline ----+--> done without an answer
 *
 * An exchange is one request and its answer; a connection carries one exchange at a time (no pipelining, which the
 * protocol's daemons are not known to support) and is kept for the next. Requests without a body go before PUTs, and
 * PUTs leave one connection to them, so that a lookup never waits behind a store.
 *
 * A kept connection that turns out to be closed before a byte of the answer is no failure: the exchange goes over a new
 * one, once, unless it must not be sent twice.
 *
 * A lease that is answered after its exchange's deadline is not forgotten: the connection waits for it, as long as for
 * any answer of the daemon, and passes it to `late`, whose owner releases it.
 *
 * The number of connections is bounded; the submitter bounds the waiting exchanges. Threads: one, except for wake and
 * stats.
 */
#ifndef KVT_TIERED_HTTP_H
#define KVT_TIERED_HTTP_H

#include "chunk/note.h"
#include "tiers/kvtierd/kvtierd_answer.h"
#include "tiers/kvtierd/kvtierd_resolve.h"

#define KVTIERD_REQUEST_ROOM 1280u /* bytes of a head: host, bucket and key are bounded */

struct kvtierd_http;
struct kvtierd_connection;
struct exchange_list;

enum kvtierd_exchange_kind { KVTIERD_SHORT, KVTIERD_LEASE, KVTIERD_PUT, KVTIERD_KINDS };

/* One request. Filled by its owner; belongs to the client from submit to done. */
struct kvtierd_exchange {
	enum kvtierd_exchange_kind kind;
	char head[KVTIERD_REQUEST_ROOM]; /* the request's head, empty line included */
	size_t head_len;
	/* PUT: the body, segment_bytes of the segments and then the tail. Borrowed until done. */
	const struct kvt_segment *segments;
	uint32_t segment_count;
	uint64_t segment_bytes;
	const void *tail;
	size_t tail_bytes;
	int64_t deadline_ns;
	bool once; /* must not be sent twice: uses a connection of its own from the start */

	/* KVT_OK: there is an answer, of any status. KVT_MISS: the deadline passed. KVT_EIO: no connection, a broken
	 * one, or a daemon that does not answer; `why` has the cause. KVT_ECORRUPT: the answer is not HTTP; counts as
	 * KVT_EIO against the daemon. KVT_ECANCELED. */
	enum kvt_status status;
	const struct kvtierd_reader *answer; /* KVT_OK: borrowed during done */
	int64_t sent_ns;                    /* time just before its first byte was sent; 0: never */
	void (*done)(struct kvtierd_exchange *x); /* called from inside step */
	void *user;

	/* the client's */
	struct kvtierd_exchange *next, *prev;
	struct kvtierd_connection *connection;
	struct exchange_list *in; /* the list in which it waits; NULL: none */
	bool again;
};

struct kvtierd_http_options {
	const struct kvt_surroundings *surroundings; /* until destroy */
	struct kvtierd_resolver *resolver;            /* until destroy */
	uint32_t connections;
	uint64_t connect_ns, answer_ns; /* longest time for a connection, for an answer */
	/* Called with the answer to a lease whose exchange had ended. */
	void (*late)(void *self, const struct kvtierd_reader *answer);
	void *self;
};

enum kvt_status kvtierd_http_create(
	const struct kvtierd_http_options *options, struct kvtierd_http **out) KVT_MUST_CHECK;
/* Ends every exchange with KVT_ECANCELED. NULL is allowed. */
void kvtierd_http_destroy(struct kvtierd_http *h);

void kvtierd_http_submit(struct kvtierd_http *h, struct kvtierd_exchange *x);

/* Gives an exchange up: it returns through done at once (KVT_ECANCELED) if it was not sent, else when it is
 * answered. */
void kvtierd_http_abandon(struct kvtierd_http *h, struct kvtierd_exchange *x);

/* Sends, receives, calls done; waits up to wait_ns for an event. Returns the number of actions; lowers *next_ns to the
 * time of the next call, if earlier. */
size_t kvtierd_http_step(struct kvtierd_http *h, int64_t wait_ns, int64_t *next_ns);
void kvtierd_http_wake(struct kvtierd_http *h); /* any thread: ends a wait, or the next one */

/* Returns whether the daemon leaves requests unanswered: true from the first request unanswered for answer_ns until the
 * next answer. */
bool kvtierd_http_stalled(const struct kvtierd_http *h);

struct kvtierd_http_stats {
	uint64_t exchanges, answers, timeouts, connects, broken, retries;
	uint32_t connections, under_way, waiting; /* now */
	char why[KVT_REASON_BYTES];               /* cause of the last failure; "" after an answer */
};
void kvtierd_http_stats(struct kvtierd_http *h, struct kvtierd_http_stats *out); /* any thread */

#endif
