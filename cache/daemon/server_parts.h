/*
 * server_parts.h - the server's loops and connections, for its own files.
 *
 * Threads: a loop and its connections belong to the loop's thread; other threads only post messages
 * to it.
 */
#ifndef KVT_SERVER_PARTS_H
#define KVT_SERVER_PARTS_H

#include <pthread.h>

#include "chunk/checksum.h"
#include "daemon/meters.h"
#include "daemon/server.h"
#include "daemon/target.h"
#include "server/connection.h"
#include "server/listen.h"

#define KVT_SOON       "Retry-After: 1\r\n"
/* longest body that is read and discarded for a request that needs none */
#define KVT_OTHER_BODY ((uint64_t)64 << 10)

struct kvt_jobs;

/* --- loops ------------------------------------------------------------------------------------ */

struct kvt_loop {
	struct kvw_clients base; /* first */
	struct kvt_server *server;
	bool admin; /* serves `admin` */
	bool takes_extra; /* the connection being made is one beyond limits.connections */
	struct kvt_target target; /* of base.head */
	int64_t told_ns;          /* time of the last log line about refused clients */
	struct kvt_meters meters;
};

/* Makes a loop; takes listen_fd (-1: the loop does not accept), also on failure. In either case the
 * caller calls kvw_clients_finish after all loops and jobs have been joined. */
enum kvt_status kvt_loop_init(
	struct kvt_loop *loop, struct kvt_server *server, int listen_fd) KVT_MUST_CHECK;
/* Functions that the clients' listener calls (crowd.c). */
void kvt_loop_accepted(struct kvw_clients *clients, bool served);
void kvt_loop_turn_away_take(struct kvw_clients *clients, int fd, enum kvw_refusal why);

struct kvt_server {
	struct kvw_server base; /* shared by all loops */
	const struct kvt_daemon_config *config;
	struct kvt_objects *objects;
	struct kvt_segment_file *segment;
	size_t loop_count; /* loops of `listen`; with an admin address all_loops is one more */
	size_t all_loops;
	struct kvt_loop *loops; /* [all_loops] */
	struct kvt_jobs *jobs;
	_Atomic uint32_t puts; /* now */
	_Atomic uint32_t extra; /* open connections beyond limits.connections */
	char listen_name[KVW_LISTEN_TEXT], admin_name[KVW_LISTEN_TEXT];
};

/* --- connections ------------------------------------------------------------------------------ */

/* A body being received into the segment. */
struct kvt_put_stream {
	struct kvt_checksum_stream sum;
	struct kvt_object_put *put;
	const struct kvt_segment *segments;
	uint32_t count, at; /* number of segments; index of the one being filled */
	uint64_t offset;    /* in it */
	int low_water;      /* SO_RCVLOWAT of the socket */
};

struct kvt_conn {
	struct kvw_conn base; /* first */
	enum kvt_route route;
	/* beyond limits.connections: only one request, and only a probe or a scrape, is served */
	bool extra;
	struct kvt_put_stream *put;        /* owned */
	/* lease granted by an answer that may not arrive (until_read) */
	char lease_id[KVT_LEASE_ID_BYTES];
};

static inline struct kvt_loop *kvt_conn_loop(const struct kvt_conn *conn)
{
	return (struct kvt_loop *)conn->base.clients; /* its first member */
}

/* Refuses and closes an extra connection whose request is not a probe or a scrape (crowd.c). */
void kvt_conn_turn_away(struct kvt_conn *conn);

/* Returns the options of the clients' connections (connection.c). */
struct kvw_clients_options kvt_conn_options(const struct kvt_daemon_config *config);

/* --- answers (answer.c) ----------------------------------------------------------------------- */

/* text is JSON. */
void kvt_conn_answer_json(struct kvt_conn *conn, int status, const char *text, size_t len);
/* Answers {"error":"..."}. extra: whole header lines; NULL: none. */
void kvt_conn_refuse(struct kvt_conn *conn, int status, const char *extra, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Answers 503 for a failure that is not the client's, such as EIO or lack of memory; counted under
 * the reason `error`. what: the failed action; why: its cause. */
void kvt_conn_fail(struct kvt_conn *conn, const char *what, const char *why);

/* Writes text as a JSON string with its quotes. */
void kvt_json_text(FILE *out, const char *text, size_t len);

/* --- routes ----------------------------------------------------------------------------------- */

/* One function per route: serves the request in loop->base.head and loop->target, by answering,
 * waiting or receiving a body. */
#define KVT_ROUTE(name, method, path, where, text) void kvt_serve_##name(struct kvt_conn *conn);
#include "daemon/routes.def"

/* Finds the route of the request and serves it. */
void kvt_serve(struct kvt_conn *conn);

/* serve_put.c */
void kvt_conn_abort_put(struct kvt_conn *conn); /* aborts the connection's put, if there is one */

/* --- jobs (jobs.c) ---------------------------------------------------------------------------- */

/* Work that may block; one thread does all jobs in turn. */
struct kvt_job {
	struct kvw_wait wait; /* first */
	void (*run)(struct kvt_job *job, struct kvt_objects *objects);
	struct kvt_job *next;
};
enum kvt_status kvt_jobs_create(struct kvt_objects *objects, struct kvt_jobs **out) KVT_MUST_CHECK;
void kvt_jobs_destroy(struct kvt_jobs *jobs); /* finishes waiting jobs first; NULL is allowed */
/* Queues a job, which is run and then posted to job->wait.loop. False: too many jobs wait. */
bool kvt_jobs_add(struct kvt_jobs *jobs, struct kvt_job *job) KVT_MUST_CHECK;

#endif
