/*
 * server_parts.h - the server's loops and connections as its own files see them.
 *
 * A connection is in one state (enum kvt_conn_state), which kvt_conn_enter alone changes, and is
 * driven by kvt_conn_advance until it can do no more; answers never drive it, so there is no
 * recursion. What ends goes to the loop's `dead` and is freed when the loop has turned.
 *
 * Threads: a loop and its connections belong to the loop's thread; others only post mail to it.
 */
#ifndef KVT_SERVER_PARTS_H
#define KVT_SERVER_PARTS_H

#include <pthread.h>
#include <sys/queue.h>

#include "chunk/checksum.h"
#include "base/clock.h"
#include "http/head.h"
#include "base/io.h"
#include "daemon/meters.h"
#include "daemon/server.h"
#include "daemon/target.h"
#include "base/timer.h"
#include "http/write.h"
#include "server/listen.h"
#include "server/loop.h"

#define KVT_HEAD_MOST   ((size_t)16 << 10) /* bytes of a request's head */
#define KVT_HEAD_FIELDS 64
#define KVT_SOON        "Retry-After: 1\r\n"
#define KVT_OTHER_BODY  ((uint64_t)64 << 10) /* of a request that needs none: thrown away */

struct kvt_loop;
struct kvt_conn;
struct kvt_jobs;

/* --- loops ------------------------------------------------------------------------------------ */

enum kvt_timer_kind {
	KVT_TIMER_IDLE,
	KVT_TIMER_HEAD,
	KVT_TIMER_BODY,
	KVT_TIMER_RATE,
	KVT_TIMER_WRITE,
	KVT_TIMER_LINGER,
	KVT_TIMER_WATCH
};

TAILQ_HEAD(kvt_conn_list, kvt_conn);

struct kvt_loop {
	struct kvw_server_loop base; /* first */
	struct kvt_server *server;
	bool admin; /* serves `admin` */
	struct kvt_conn_list conns, dead;
	struct kvw_head head;     /* parsed last */
	struct kvt_target target; /* of it */
	char *spare_in[8];        /* input buffers that are not in use */
	size_t spare_in_count;
	int64_t told_ns; /* when refused clients were last logged */
	struct kvt_meters meters;
};

/* Takes listen_fd (-1: it does not accept), also when it fails; kvt_loop_finish is due either way. */
enum kvt_status kvt_loop_init(
	struct kvt_loop *loop, struct kvt_server *server, int listen_fd) KVT_MUST_CHECK;
void kvt_loop_finish(struct kvt_loop *loop); /* after all loops and jobs are joined */

struct kvt_server {
	struct kvw_server base; /* by all loops */
	const struct kvt_daemon_config *config;
	struct kvt_objects *objects;
	struct kvt_segment_file *segment;
	size_t loop_count; /* of `listen`; one more where there is an admin address */
	size_t all_loops;
	struct kvt_loop *loops; /* [all_loops] */
	struct kvt_jobs *jobs;
	_Atomic uint32_t puts; /* now */
	char listen_name[KVW_LISTEN_TEXT], admin_name[KVW_LISTEN_TEXT];
};

/* --- connections ------------------------------------------------------------------------------ */

enum kvt_conn_state {
	KVT_CONN_HEAD,   /* between requests, or a head is coming */
	KVT_CONN_PUT,    /* a body is going into the segment */
	KVT_CONN_WAIT,   /* an answer is being made elsewhere */
	KVT_CONN_SEND,   /* of an answer, something is left in `out` */
	KVT_CONN_DRAIN,  /* a body that is not read is thrown away */
	KVT_CONN_LINGER, /* nothing more is said; what still comes is thrown away for a moment */
	KVT_CONN_DEAD,
};

/* An answer that is made elsewhere. First member of what is posted back. */
struct kvt_wait {
	struct kvw_mail mail;
	struct kvt_loop *loop;
	struct kvt_conn *conn; /* the loop's thread only; NULL: it has gone */
};

/* A body on its way into the segment. */
struct kvt_put_stream {
	struct kvt_checksum_stream sum;
	struct kvt_object_put *put;
	const struct kvt_segment *segments;
	uint32_t count, at; /* segments; the one being filled */
	uint64_t offset;    /* in it */
	int low_water;      /* SO_RCVLOWAT of the socket */
};

struct kvt_conn {
	struct kvw_io io; /* first */
	TAILQ_ENTRY(kvt_conn) entry;
	struct kvt_loop *loop;
	enum kvt_conn_state state;
	struct kvw_timer timer;

	char *in; /* KVT_HEAD_MOST bytes, owned; NULL: nothing is kept */
	size_t in_begin, in_end, find_from;

	/* The request that is being answered. */
	enum kvt_route route;
	bool close_after; /* the answer is the last one */
	bool old_http;    /* HTTP/1.0: keep-alive is said */
	bool head_method; /* the answer has no body */
	bool expects;     /* waits for 100 Continue before it sends its body */
	bool body_unread; /* a body that will not be read: the connection ends */
	int64_t begun_ns;
	uint64_t body_left; /* bytes that are still to come */
	uint64_t body_got;
	int64_t body_from_ns;
	struct kvt_put_stream *put; /* owned */
	struct kvt_wait *wait;

	char *out; /* owned: what the socket did not take of the answer */
	size_t out_len, out_sent;
	char lease_id[KVT_LEASE_ID_BYTES]; /* granted by an answer that may not arrive; "": none */
};

/* Takes fd, which has been counted. */
void kvt_conn_create_take(struct kvt_loop *loop, int fd);
void kvt_conn_close(struct kvt_conn *conn, bool reset);
void kvt_conn_free_dead(struct kvt_loop *loop);
void kvt_conn_advance(struct kvt_conn *conn);
void kvt_conn_timer(struct kvt_conn *conn, enum kvt_timer_kind kind, uint64_t duration_ns);
/* The request now waits for `wait`, which kvt_conn_settle ends. */
void kvt_conn_await(struct kvt_conn *conn, struct kvt_wait *wait);
/* In a mail's deliver: the connection that waits for it, or NULL if it has gone. */
struct kvt_conn *kvt_conn_settle(struct kvt_wait *wait);

/* --- answers (answer.c) ----------------------------------------------------------------------- */

struct kvt_answer {
	int status;
	const char *type;       /* of the body; NULL: there is none */
	struct kvw_slice body;  /* borrowed for the call */
	struct kvw_slice extra; /* whole field lines */
};
/* Answers the connection's request; kvt_conn_advance goes on from there. */
void kvt_conn_answer(struct kvt_conn *conn, const struct kvt_answer *answer);
/* {"error":"..."}; extra: whole field lines, NULL: none. */
void kvt_conn_refuse(struct kvt_conn *conn, int status, const char *extra, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
void kvt_conn_flush(struct kvt_conn *conn); /* of state SEND */

/* Writes text as a JSON string with its quotes. */
void kvt_json_text(FILE *out, const char *text, size_t len);

/* --- routes ----------------------------------------------------------------------------------- */

/* The request in loop->head and loop->target. Each answers, or waits, or receives. */
#define KVT_ROUTE(name, method, path, where, text) void kvt_serve_##name(struct kvt_conn *conn);
#include "daemon/routes.def"

/* Finds the route of loop->head, whose body is conn->body_left bytes, and serves it. */
void kvt_serve(struct kvt_conn *conn);

/* serve_put.c */
void kvt_conn_receive_put(struct kvt_conn *conn); /* of state PUT */
void kvt_conn_abort_put(struct kvt_conn *conn);   /* if there is one */

/* --- jobs (jobs.c) ---------------------------------------------------------------------------- */

/* What may block, done on one thread in turn. */
struct kvt_job {
	struct kvt_wait wait;
	void (*run)(struct kvt_job *job, struct kvt_objects *objects);
	struct kvt_job *next;
};
enum kvt_status kvt_jobs_create(struct kvt_objects *objects, struct kvt_jobs **out) KVT_MUST_CHECK;
void kvt_jobs_destroy(struct kvt_jobs *jobs); /* does what waits first; NULL is allowed */
/* False: too many wait. Else it is run and posted to job->wait.loop. */
bool kvt_jobs_add(struct kvt_jobs *jobs, struct kvt_job *job) KVT_MUST_CHECK;

#endif
