/*
 * kvtierd_http.h - exchanges with a storage daemon over a few HTTP/1.1 connections.
 *
 *	waiting --> a free connection --> sent --> answered --> done
 *	   |              |                 |
 *	   +--------------+--- deadline ----+--> done without an answer
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
 * The number of connections is bounded; the caller has to bound the number of waiting exchanges.
 * Threads: one, except for wake and stats.
 */
#ifndef KVT_TIERED_HTTP_H
#define KVT_TIERED_HTTP_H

#include "chunk/note.h"
#include "tiers/kvtierd/kvtierd_answer.h"
#include "tiers/kvtierd/kvtierd_resolve.h"

/* most bytes of a request's head: host, bucket and key have bounded lengths */
#define KVTIERD_REQUEST_ROOM 1280u

struct kvtierd_http;
struct kvtierd_connection;
struct exchange_list;

enum kvtierd_exchange_kind { KVTIERD_SHORT, KVTIERD_LEASE, KVTIERD_PUT, KVTIERD_KINDS };

/* One request. Its owner fills it; from submit to done it belongs to the client (struct
 * kvtierd_http). */
struct kvtierd_exchange {
	enum kvtierd_exchange_kind kind;
	char head[KVTIERD_REQUEST_ROOM]; /* the request's head, with the empty line at its end */
	size_t head_len;
	/* PUT: the body, which is segment_bytes of the segments, then the tail. Borrowed until
	 * done. */
	const struct kvt_segment *segments;
	uint32_t segment_count;
	uint64_t segment_bytes;
	const void *tail;
	size_t tail_bytes;
	int64_t deadline_ns;
	bool once; /* the request must not be sent twice, so it never uses a kept connection */

	/* KVT_OK: there is an answer, with any HTTP status. KVT_MISS: the deadline passed. KVT_EIO:
	 * no connection was possible, or it broke, or the daemon does not answer; `why` has the
	 * cause. KVT_ECORRUPT: the answer is not HTTP, which counts as a failure of the daemon like
	 * KVT_EIO. KVT_ECANCELED. */
	enum kvt_status status;
	const struct kvtierd_reader *answer; /* set with KVT_OK, and valid during done only */
	/* time just before the request's first byte was sent; 0: nothing was sent */
	int64_t sent_ns;
	/* called from inside kvtierd_http_step when the exchange has ended */
	void (*done)(struct kvtierd_exchange *x);
	void *user;

	/* the client's */
	struct kvtierd_exchange *next, *prev;
	struct kvtierd_connection *connection;
	struct exchange_list *in; /* the list in which the exchange waits; NULL: none */
	bool again;
};

struct kvtierd_http_options {
	const struct kvt_surroundings *surroundings; /* until destroy */
	struct kvtierd_resolver *resolver;            /* until destroy */
	uint32_t connections;
	/* longest time to establish a connection; longest time until an answer */
	uint64_t connect_ns, answer_ns;
	/* Called with the answer to a request for a lease whose exchange had ended before. */
	void (*late)(void *self, const struct kvtierd_reader *answer);
	void *self;
};

enum kvt_status kvtierd_http_create(
	const struct kvtierd_http_options *options, struct kvtierd_http **out) KVT_MUST_CHECK;
/* Ends every exchange with KVT_ECANCELED. NULL is allowed. */
void kvtierd_http_destroy(struct kvtierd_http *h);

void kvtierd_http_submit(struct kvtierd_http *h, struct kvtierd_exchange *x);

/* Cancels an exchange. If it was not sent yet, its done is called at once with KVT_ECANCELED;
 * otherwise when it is answered. */
void kvtierd_http_abandon(struct kvtierd_http *h, struct kvtierd_exchange *x);

/* Sends, receives and calls done; waits up to wait_ns for an event. Returns the number of actions.
 * If the next call must come before *next_ns, *next_ns is lowered to that time. */
size_t kvtierd_http_step(struct kvtierd_http *h, int64_t wait_ns, int64_t *next_ns);
/* any thread: ends the present wait of a step, or the next one */
void kvtierd_http_wake(struct kvtierd_http *h);

/* Returns whether the daemon leaves requests unanswered: true from the time when a request was
 * unanswered for answer_ns until the next answer. */
bool kvtierd_http_stalled(const struct kvtierd_http *h);

struct kvtierd_http_stats {
	uint64_t exchanges, answers, timeouts, connects, broken, retries;
	uint32_t connections, under_way, waiting; /* now */
	char why[KVT_REASON_BYTES]; /* cause of the last failure; "" once an answer has arrived */
};
void kvtierd_http_stats(struct kvtierd_http *h, struct kvtierd_http_stats *out); /* any thread */

#endif
