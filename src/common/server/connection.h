/*
 * connection.h - connections of HTTP/1.1 clients to a small server, on a loop of server/loop.h.
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
 * it, so there is no recursion. Closed connections are freed at the end of the loop's turn.
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

/* Reasons for which a connection refuses a request without asking the program, which then writes
 * the answer. */
enum kvw_conn_refusal {
	KVW_CONN_BAD_HEAD, /* the head is malformed; status and message have the reason */
	/* a body that is collected is malformed; status and message have the reason */
	KVW_CONN_BAD_BODY,
	KVW_CONN_LATE_HEAD,
	KVW_CONN_LATE_BODY, /* body_got, body_left */
};

/* Time limits of a connection. */
enum kvw_conn_time {
	KVW_CONN_TIME_IDLE, /* between two requests */
	KVW_CONN_TIME_HEAD,
	KVW_CONN_TIME_BODY,
	KVW_CONN_TIME_WRITE, /* the client has taken no byte of its answer for too long */
};

/* The program's callbacks. */
struct kvw_clients_ops {
	/* Handles the request in clients->head. Calls kvw_conn_answer, kvw_conn_await or
	 * kvw_conn_receive, and, if needed, kvw_conn_close. */
	void (*request)(struct kvw_conn *conn);
	/* Answers a refused request by kvw_conn_answer. The connection ends after that answer, or
	 * at once after kvw_conn_close. */
	void (*refuse)(
		struct kvw_conn *conn, enum kvw_conn_refusal what, int status, const char *message);

	/* Refuses a client: answers if that is possible without waiting. Takes fd. */
	void (*turn_away_take)(struct kvw_clients *clients, int fd, enum kvw_refusal why);

	/* Each of the following callbacks may be NULL. */
	/* Called with a head in clients->head before its body is read. Returns false if the program
	 * has answered already (kvw_conn_answer); the body is then discarded. */
	bool (*admit)(struct kvw_conn *conn);
	/* Called for each client. served is false if memory or a descriptor was missing. */
	void (*accepted)(struct kvw_clients *clients, bool served);
	/* Called before the first read of a new connection: may begin a transport such as TLS on
	 * conn->io. Returns false to close the connection. */
	bool (*opened)(struct kvw_conn *conn);
	/* called before the first byte of an answer is sent */
	void (*answered)(struct kvw_conn *conn, int status);
	void (*sent)(struct kvw_conn *conn, size_t bytes);
	void (*timed_out)(struct kvw_conn *conn, enum kvw_conn_time which);
	/* called when a connection is closed: frees the program's data of the connection */
	void (*closed)(struct kvw_conn *conn);
};

struct kvw_clients_limits {
	uint64_t idle_ns, head_ns, write_ns;
	/* The limit for bodies has two forms. A body may take body_ns; after that it must have come
	 * at body_rate bytes per second on average. Or, with body_pauses, it may take any time, but
	 * must not pause for longer than body_ns. */
	uint64_t body_ns, body_rate;
	bool body_pauses; /* chooses the second of these two forms */
	uint64_t body_most; /* most bytes of a body that is collected; 0: no bodies are collected */
};

/* A program's settings for its clients; they must outlive them. */
struct kvw_clients_options {
	const struct kvw_clients_ops *ops;
	struct kvw_clients_limits limits;
	/* size of the program's struct for a connection, whose first member is a kvw_conn */
	size_t conn_bytes;
	const char *fields; /* field lines that are added to every answer */
	bool date;          /* answers have a Date */
	/* Input buffers are overwritten when they are given back, because heads may contain
	 * keys. */
	bool wipe;
};

TAILQ_HEAD(kvw_conn_list, kvw_conn);

/* A loop with clients. */
struct kvw_clients {
	struct kvw_server_loop loop; /* first */
	struct kvw_clients_options options;
	struct kvw_head head; /* head of the request that was passed to the program last */

	/* Used by the connection's files only. */
	struct kvw_conn_list conns, dead;
	struct kvw_date_cache date;
	char *spare_in[8]; /* input buffers that are not in use */
	size_t spare_in_count;
};

/* Initializes the clients and their loop. For arguments and failures, listen_fd included, see
 * kvw_server_loop_init() and kvw_server_loop_finish(). */
enum kvw_err kvw_clients_init(struct kvw_clients *clients, struct kvw_server *server,
	const struct kvw_clients_options *options, int listen_fd) KVW_MUST_CHECK;
void kvw_clients_finish(struct kvw_clients *clients);

/* Makes a connection of fd, which the caller has counted; closes fd on failure. The loop calls this
 * for the clients that it accepts. */
void kvw_clients_take(struct kvw_clients *clients, int fd);
/* Closes all connections at once. */
void kvw_clients_cut(struct kvw_clients *clients);

enum kvw_conn_state {
	KVW_CONN_HEAD,   /* between two requests, or while a head arrives */
	KVW_CONN_BODY,   /* conn->receive takes a body */
	KVW_CONN_WAIT,   /* another part of the program is making the answer */
	KVW_CONN_SEND,   /* `out` has the rest of an answer */
	KVW_CONN_DRAIN,  /* a body that the program did not want is read and dropped */
	KVW_CONN_LINGER, /* after the last answer, for a short time: input is read and dropped */
	KVW_CONN_DEAD,
};

/* A wait for an answer that another part of the program makes. Embedded in that part's data, which
 * outlives the wait. */
struct kvw_wait {
	struct kvw_mail mail; /* must be first; brings an answer that another thread made */
	struct kvw_conn *conn; /* used on the loop's thread only; NULL: the connection was closed */
	struct kvw_server_loop *loop;
	/* May be NULL. Called on the loop's thread if the connection is closed before the answer,
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

	char *in; /* buffer of KVW_CONN_HEAD_MOST bytes, owned; NULL: the connection has none now */
	size_t in_begin, in_end, find_from;

	/* The members below describe the request that is being answered. */
	bool close_after; /* the connection ends after this answer */
	bool old_http;    /* the client uses HTTP/1.0, so the answer must say keep-alive */
	bool head_method; /* the request is a HEAD, so the answer has no body */
	bool expects;     /* the client waits for "100 Continue" before it sends the body */
	bool body_unread; /* the body was not read, so the connection ends after the answer */
	/* Set by the program: the connection waits for a reset after the answer. In closed(), true
	 * means that the answer may be lost. */
	bool until_read;
	int64_t begun_ns;
	/* bytes still to come; 0 for chunked bodies, of which that is not known */
	uint64_t body_left;
	uint64_t body_got;
	int64_t body_from_ns;
	void (*receive)(struct kvw_conn *conn); /* used in state BODY */
	struct kvw_whole_body *whole;           /* owned */
	struct kvw_wait *wait;

	char *out; /* owned: the part of the answer that is not sent yet */
	size_t out_len, out_sent;
};

/* --- for the program -------------------------------------------------------------------------- */

struct kvw_http_answer {
	int status;
	const char *type;       /* content type of the body; NULL: there is no body */
	struct kvw_slice body;  /* borrowed for the call */
	struct kvw_slice extra; /* whole field lines */
};

/* Answers the request. If the program answers later than in a callback (after a wait), it must call
 * kvw_conn_advance then, which continues with the client's next request. */
void kvw_conn_answer(struct kvw_conn *conn, const struct kvw_http_answer *answer);
void kvw_conn_advance(struct kvw_conn *conn);

/* Called in opened(): sets the time limit for the first head of the connection, instead of the one
 * in the options. */
void kvw_conn_head_within(struct kvw_conn *conn, uint64_t ns);

/* Returns the collected body, which is valid until the request is answered. */
struct kvw_slice kvw_conn_body(const struct kvw_conn *conn);

/* Makes the connection call receive() whenever bytes of the body have come. receive() takes them
 * from conn->in and conn->io, and counts them by kvw_conn_took. Sends 100 Continue to a client that
 * waits for it. Returns false if that failed; then the connection is closed. */
bool kvw_conn_receive(struct kvw_conn *conn, void (*receive)(struct kvw_conn *conn)) KVW_MUST_CHECK;
void kvw_conn_took(struct kvw_conn *conn, uint64_t bytes);

/* Makes the request wait until kvw_conn_settle. The caller sets wait->mail.deliver and wait->gone,
 * this call the other members. */
void kvw_conn_await(struct kvw_conn *conn, struct kvw_wait *wait);
/* Ends the wait. Returns its connection, or NULL if that was closed. */
struct kvw_conn *kvw_conn_settle(struct kvw_wait *wait);

/* Ends the connection at once. reset: with a RST, so that an incomplete answer cannot look
 * complete. */
void kvw_conn_close(struct kvw_conn *conn, bool reset);

#endif
