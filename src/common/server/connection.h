/*
 * connection.h - HTTP/1.1 clients of a small server, on a loop of server/loop.h.
 *
 * A connection collects a head, within limits of size and time, and passes the parsed request to
 * the program, which answers it, lets it wait for an answer made elsewhere, or receives its body
 * itself. If the program wants whole bodies, the connection passes the request once its body is
 * complete. Requests are answered one after another in the order of arrival; pipelined requests
 * wait in the connection's buffer or in the kernel. An answer is written at once, as far as the
 * socket takes it; the rest follows. A client that has closed its sending side still gets its
 * answer. After the last answer the connection lingers: it discards further input, since a reset
 * would overtake the answer.
 *
 * A connection is in one state, and an event drives it until it can do no more; answers never drive
 * it, so there is no recursion. Closed connections are freed when the loop has turned.
 *
 * Threads: a set of clients and its connections belong to the loop's thread. An answer that another
 * thread has made comes back as the loop's mail (struct kvw_wait).
 */
#ifndef KVW_SERVER_CONNECTION_H
#define KVW_SERVER_CONNECTION_H

#include <sys/queue.h>

#include "base/page.h"
#include "http/body.h"
#include "http/head.h"
#include "http/write.h"
#include "server/loop.h"

#define KVW_CONN_HEAD_MOST ((size_t)16 << 10) /* bytes of a request's head */

struct kvw_conn;
struct kvw_clients;

/* Reasons for which a connection itself refuses a request; the program writes the answer. */
enum kvw_conn_refusal {
	KVW_CONN_BAD_HEAD, /* status and message have the reason */
	KVW_CONN_BAD_BODY, /* the same; of bodies that are collected */
	KVW_CONN_LATE_HEAD,
	KVW_CONN_LATE_BODY, /* body_got, body_left */
};

/* Time limits of a connection. */
enum kvw_conn_time {
	KVW_CONN_TIME_IDLE, /* between two requests */
	KVW_CONN_TIME_HEAD,
	KVW_CONN_TIME_BODY,
	KVW_CONN_TIME_WRITE, /* while the client takes no byte of its answer */
};

/* The program's callbacks. */
struct kvw_clients_ops {
	/* Handles the request in clients->head. Calls kvw_conn_answer, kvw_conn_await or
	 * kvw_conn_receive, and, if needed, kvw_conn_close. */
	void (*request)(struct kvw_conn *conn);
	/* Calls kvw_conn_answer. The connection ends after that answer; with kvw_conn_close at
	 * once. */
	void (*refuse)(
		struct kvw_conn *conn, enum kvw_conn_refusal what, int status, const char *message);

	/* Refuses a client: answers if that is possible without waiting. Takes fd. */
	void (*turn_away_take)(struct kvw_clients *clients, int fd, enum kvw_refusal why);

	/* Each callback below may be NULL. */
	/* Called with a head in clients->head before its body is read. False: the program has
	 * answered (kvw_conn_answer), and the body is discarded. */
	bool (*admit)(struct kvw_conn *conn);
	/* false: no memory or descriptor. */
	void (*accepted)(struct kvw_clients *clients, bool served);
	/* Called before the first read of a new connection: may start a transport on conn->io, such
	 * as TLS. False: the connection is closed. */
	bool (*opened)(struct kvw_conn *conn);
	void (*answered)(struct kvw_conn *conn, int status); /* before its first byte is sent */
	void (*sent)(struct kvw_conn *conn, size_t bytes);
	void (*timed_out)(struct kvw_conn *conn, enum kvw_conn_time which);
	void (*closed)(struct kvw_conn *conn); /* releases what belongs to the connection */
};

struct kvw_clients_limits {
	uint64_t idle_ns, head_ns, write_ns;
	/* A body may take body_ns; after that it must have come at body_rate bytes per second on
	 * average. Or, with body_pauses, it may take any time, but must not pause longer than
	 * body_ns. */
	uint64_t body_ns, body_rate;
	bool body_pauses; /* the second of the two rules */
	uint64_t body_most; /* most bytes of a collected body; 0: none are collected */
};

/* Options of a program; they outlive its clients. */
struct kvw_clients_options {
	const struct kvw_clients_ops *ops;
	struct kvw_clients_limits limits;
	size_t conn_bytes;  /* size of the program's connection, whose first member is a kvw_conn */
	const char *fields; /* whole field lines of every answer */
	bool date;          /* answers have a Date */
	/* Input buffers are overwritten when they are given back: heads have keys. */
	bool wipe;
};

TAILQ_HEAD(kvw_conn_list, kvw_conn);

/* A loop with clients. */
struct kvw_clients {
	struct kvw_server_loop loop; /* first */
	struct kvw_clients_options options;
	struct kvw_head head; /* of the request handed over last */

	/* Private to the connection's files. */
	struct kvw_conn_list conns, dead;
	struct kvw_date_cache date;
	char *spare_in[8]; /* input buffers that are not in use */
	size_t spare_in_count;
};

/* Initializes the loop, too; as kvw_server_loop_init() and _finish(), also for listen_fd. */
enum kvw_err kvw_clients_init(struct kvw_clients *clients, struct kvw_server *server,
	const struct kvw_clients_options *options, int listen_fd) KVW_MUST_CHECK;
void kvw_clients_finish(struct kvw_clients *clients);

/* Makes a connection of fd, which has been counted; closes fd on failure. The loop calls it for the
 * clients that it accepts. */
void kvw_clients_take(struct kvw_clients *clients, int fd);
/* Closes all connections at once. */
void kvw_clients_cut(struct kvw_clients *clients);

enum kvw_conn_state {
	KVW_CONN_HEAD,   /* between requests, or a head is coming */
	KVW_CONN_BODY,   /* a body is received by conn->receive */
	KVW_CONN_WAIT,   /* an answer is being made elsewhere */
	KVW_CONN_SEND,   /* `out` has the rest of an answer */
	KVW_CONN_DRAIN,  /* an unread body is discarded */
	KVW_CONN_LINGER, /* after the last answer: input is discarded for a moment */
	KVW_CONN_DEAD,
};

/* A wait for an answer made elsewhere. Embedded in its maker, which outlives the wait. */
struct kvw_wait {
	struct kvw_mail mail; /* first; brings an answer that another thread made */
	struct kvw_conn *conn; /* the loop's thread only; NULL: closed */
	struct kvw_server_loop *loop;
	/* May be NULL. Called if the connection closes before the answer: on the loop's thread,
	 * after conn became NULL. May settle and free the wait. */
	void (*gone)(struct kvw_wait *wait);
};

struct kvw_whole_body;

struct kvw_conn {
	struct kvw_io io; /* first */
	TAILQ_ENTRY(kvw_conn) entry;
	struct kvw_clients *clients;
	enum kvw_conn_state state;
	struct kvw_timer timer;

	char *in; /* KVW_CONN_HEAD_MOST bytes, owned; NULL: no buffer is held */
	size_t in_begin, in_end, find_from;

	/* The request that is being answered. */
	bool close_after; /* the answer is the last one */
	bool old_http;    /* HTTP/1.0: the answer states keep-alive */
	bool head_method; /* the answer has no body */
	bool expects;     /* waits for 100 Continue before it sends its body */
	bool body_unread; /* the body is not read: the connection ends */
	/* Set by the program: wait for a reset after the answer. In closed(): true: the answer may
	 * be lost. */
	bool until_read;
	int64_t begun_ns;
	uint64_t body_left; /* bytes still to come; 0 for chunked bodies (unknown) */
	uint64_t body_got;
	int64_t body_from_ns;
	void (*receive)(struct kvw_conn *conn); /* of state BODY */
	struct kvw_whole_body *whole;           /* owned */
	struct kvw_wait *wait;

	char *out; /* owned: the unsent rest of the answer */
	size_t out_len, out_sent;
};

/* --- for the program -------------------------------------------------------------------------- */

struct kvw_http_answer {
	int status;
	const char *type;       /* of the body; NULL: there is none */
	struct kvw_slice body;  /* borrowed for the call */
	struct kvw_slice extra; /* whole field lines */
};

/* Answers the request. After an answer outside of an operation (after a wait) the caller calls
 * kvw_conn_advance, which continues with the client's next request. */
void kvw_conn_answer(struct kvw_conn *conn, const struct kvw_http_answer *answer);
void kvw_conn_advance(struct kvw_conn *conn);

/* From opened(): sets the time limit of the connection's first head, in place of the options'. */
void kvw_conn_head_within(struct kvw_conn *conn, uint64_t ns);

/* The body as collected, until the request is answered. */
struct kvw_slice kvw_conn_body(const struct kvw_conn *conn);

/* Has receive() take the request's body from conn->in and conn->io, whenever bytes have come;
 * receive() counts them by kvw_conn_took. Sends 100 Continue to a client that waits for it. False:
 * that failed, the connection is closed. */
bool kvw_conn_receive(struct kvw_conn *conn, void (*receive)(struct kvw_conn *conn)) KVW_MUST_CHECK;
void kvw_conn_took(struct kvw_conn *conn, uint64_t bytes);

/* Makes the request wait for `wait`, until kvw_conn_settle. The caller sets mail.deliver and gone,
 * this call the rest. */
void kvw_conn_await(struct kvw_conn *conn, struct kvw_wait *wait);
/* Ends the wait. Returns the connection, or NULL if it was closed. */
struct kvw_conn *kvw_conn_settle(struct kvw_wait *wait);

/* Ends the connection at once. reset: by RST, so that a cut answer cannot look whole. */
void kvw_conn_close(struct kvw_conn *conn, bool reset);

#endif
