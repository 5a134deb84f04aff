/*
 * connection.h - HTTP/1.1 clients of a small server, on a loop of server/loop.h.
 *
 * A connection collects a head, within limits of size and time, and hands the parsed request to the
 * program, which answers it, lets it wait for an answer that is made elsewhere, or receives its
 * body itself. Where the program wants bodies whole, the request is handed over when its body is
 * there. Requests are answered one after another in the order in which they came; what a client
 * pipelines waits in the connection's buffer or in the kernel. An answer is written at once, as far
 * as the socket takes it; the rest follows. A client that has closed its side gets its answer all
 * the same. After the last answer the connection lingers: what still comes is thrown away, or a
 * reset would overtake it.
 *
 * A connection is in one state and is driven until it can do no more; answers never drive it, so
 * there is no recursion. What ends is freed when the loop has turned.
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

/* What a connection refuses by itself; the program answers, in its own form. */
enum kvw_conn_refusal {
	KVW_CONN_BAD_HEAD, /* status and message say why */
	KVW_CONN_BAD_BODY, /* the same; of bodies that are collected */
	KVW_CONN_LATE_HEAD,
	KVW_CONN_LATE_BODY, /* body_got, body_left */
};

/* Limits of time that a connection may pass. */
enum kvw_conn_time {
	KVW_CONN_TIME_IDLE, /* between two requests */
	KVW_CONN_TIME_HEAD,
	KVW_CONN_TIME_BODY,
	KVW_CONN_TIME_WRITE, /* without taking a byte of its answer */
};

/* What a program does with requests. */
struct kvw_clients_ops {
	/* The request in clients->head. Calls kvw_conn_answer, kvw_conn_await or kvw_conn_receive,
	 * then or after it kvw_conn_close if it must. */
	void (*request)(struct kvw_conn *conn);
	/* Calls kvw_conn_answer. The connection ends with that answer;
	 * kvw_conn_close after it: at once. */
	void (*refuse)(
		struct kvw_conn *conn, enum kvw_conn_refusal what, int status, const char *message);

	/* A client that is not served: answers if it can without waiting. Takes fd. */
	void (*turn_away_take)(struct kvw_clients *clients, int fd, enum kvw_refusal why);

	/* Each may be NULL. */
	/* The head in clients->head has come whose body, if it has one, has not. False: it is
	 * answered (kvw_conn_answer), and its body thrown away. */
	bool (*admit)(struct kvw_conn *conn);
	/* false: no memory or descriptor. */
	void (*accepted)(struct kvw_clients *clients, bool served);
	/* A new connection, of which nothing was read: starts a transport on conn->io, such as TLS.
	 * False: the connection is closed. */
	bool (*opened)(struct kvw_conn *conn);
	void (*answered)(struct kvw_conn *conn, int status); /* as it begins to be sent */
	void (*sent)(struct kvw_conn *conn, size_t bytes);
	void (*timed_out)(struct kvw_conn *conn, enum kvw_conn_time which);
	void (*closed)(struct kvw_conn *conn); /* lets go of what hangs on it */
};

struct kvw_clients_limits {
	uint64_t idle_ns, head_ns, write_ns;
	/* A body may take body_ns, then it must have come with body_rate bytes a second on average.
	 * Or it may take any time, and must not pause for longer than body_ns. */
	uint64_t body_ns, body_rate;
	bool body_pauses; /* the latter */
	uint64_t body_most; /* collected bodies; 0: bodies are not collected */
};

/* How a program serves; static or with the life of its clients. */
struct kvw_clients_options {
	const struct kvw_clients_ops *ops;
	struct kvw_clients_limits limits;
	size_t conn_bytes;  /* size of the program's connection, whose first member is a kvw_conn */
	const char *fields; /* whole field lines of every answer */
	bool date;          /* answers have a Date */
	/* What clients sent is overwritten when its buffer is given back: heads with keys. */
	bool wipe;
};

TAILQ_HEAD(kvw_conn_list, kvw_conn);

/* A loop with clients. */
struct kvw_clients {
	struct kvw_server_loop loop; /* first */
	struct kvw_clients_options options;
	struct kvw_head head; /* of the request handed over last */

	/* The connection's files' own. */
	struct kvw_conn_list conns, dead;
	struct kvw_date_cache date;
	char *spare_in[8]; /* input buffers that are not in use */
	size_t spare_in_count;
};

/* Makes the loop, too: see kvw_server_loop_init() and _finish(), and there for listen_fd. */
enum kvw_err kvw_clients_init(struct kvw_clients *clients, struct kvw_server *server,
	const struct kvw_clients_options *options, int listen_fd) KVW_MUST_CHECK;
void kvw_clients_finish(struct kvw_clients *clients);

/* A connection of fd, which has been counted. On failure it is closed. For what the loop accepts,
 * the loop calls it. */
void kvw_clients_take(struct kvw_clients *clients, int fd);
/* Closes all connections at once. */
void kvw_clients_cut(struct kvw_clients *clients);

enum kvw_conn_state {
	KVW_CONN_HEAD,   /* between requests, or a head is coming */
	KVW_CONN_BODY,   /* a body is received by conn->receive */
	KVW_CONN_WAIT,   /* an answer is being made elsewhere */
	KVW_CONN_SEND,   /* of an answer, something is left in `out` */
	KVW_CONN_DRAIN,  /* a body that is not read is thrown away */
	KVW_CONN_LINGER, /* nothing more is said; what still comes is thrown away for a moment */
	KVW_CONN_DEAD,
};

/* An answer that is made elsewhere. Embedded in what makes it, which outlives the wait. */
struct kvw_wait {
	struct kvw_mail mail; /* first; brings an answer that another thread made */
	struct kvw_conn *conn; /* the loop's thread only; NULL: it has gone */
	struct kvw_server_loop *loop;
	/* May be NULL. The connection has gone before the answer: on the loop's thread, after conn
	 * became NULL. May settle and free the wait. */
	void (*gone)(struct kvw_wait *wait);
};

struct kvw_whole_body;

struct kvw_conn {
	struct kvw_io io; /* first */
	TAILQ_ENTRY(kvw_conn) entry;
	struct kvw_clients *clients;
	enum kvw_conn_state state;
	struct kvw_timer timer;

	char *in; /* KVW_CONN_HEAD_MOST bytes, owned; NULL: nothing is kept */
	size_t in_begin, in_end, find_from;

	/* The request that is being answered. */
	bool close_after; /* the answer is the last one */
	bool old_http;    /* HTTP/1.0: keep-alive is said */
	bool head_method; /* the answer has no body */
	bool expects;     /* waits for 100 Continue before it sends its body */
	bool body_unread; /* a body that will not be read: the connection ends */
	/* Set by the program: in closed() it says whether the answer may be lost. */
	bool until_read;
	int64_t begun_ns;
	uint64_t body_left; /* bytes that are still to come; of chunked bodies unknown, 0 */
	uint64_t body_got;
	int64_t body_from_ns;
	void (*receive)(struct kvw_conn *conn); /* of state BODY */
	struct kvw_whole_body *whole;           /* owned */
	struct kvw_wait *wait;

	char *out; /* owned: what the socket did not take of the answer */
	size_t out_len, out_sent;
};

/* --- for the program -------------------------------------------------------------------------- */

struct kvw_http_answer {
	int status;
	const char *type;       /* of the body; NULL: there is none */
	struct kvw_slice body;  /* borrowed for the call */
	struct kvw_slice extra; /* whole field lines */
};

/* Answers the request. An answer outside of an operation (after a wait) is followed by
 * kvw_conn_advance, which goes on with what the client sends next. */
void kvw_conn_answer(struct kvw_conn *conn, const struct kvw_http_answer *answer);
void kvw_conn_advance(struct kvw_conn *conn);

/* From opened(): the connection's first head has so long to come, whatever the limits say. */
void kvw_conn_head_within(struct kvw_conn *conn, uint64_t ns);

/* The body as collected, until the request is answered. */
struct kvw_slice kvw_conn_body(const struct kvw_conn *conn);

/* The request's body is taken by receive(), from conn->in and conn->io, whenever something has
 * come; it counts by kvw_conn_took. Says 100 Continue to a client that waits for it. False: that
 * failed, the connection is closed. */
bool kvw_conn_receive(struct kvw_conn *conn, void (*receive)(struct kvw_conn *conn)) KVW_MUST_CHECK;
void kvw_conn_took(struct kvw_conn *conn, uint64_t bytes);

/* The request waits for `wait` (all but mail.deliver and gone is set here),
 * until kvw_conn_settle. */
void kvw_conn_await(struct kvw_conn *conn, struct kvw_wait *wait);
/* The wait is over. Returns the connection, or NULL if it has gone. */
struct kvw_conn *kvw_conn_settle(struct kvw_wait *wait);

/* Ends the connection at once. reset: by RST, so that a cut answer cannot look whole. */
void kvw_conn_close(struct kvw_conn *conn, bool reset);

#endif
