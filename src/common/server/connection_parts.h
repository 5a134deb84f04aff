/*
 * connection_parts.h - functions that the connection's files share. They call downwards only:
 *
 *	connection.c ---> connection_body.c ---> connection_answer.c ---> connection_life.c
 */
#ifndef KVW_SERVER_CONNECTION_PARTS_H
#define KVW_SERVER_CONNECTION_PARTS_H

#include "server/connection.h"

/* All timers of one kind have the same duration, except BODY (see timer.h). */
enum kvw_conn_timer {
	KVW_CONN_TIMER_IDLE,
	KVW_CONN_TIMER_HEAD,
	KVW_CONN_TIMER_BODY,
	KVW_CONN_TIMER_RATE, /* next check against body_rate */
	KVW_CONN_TIMER_WRITE,
	KVW_CONN_TIMER_LINGER,
	KVW_CONN_TIMER_WATCH /* for until_read */
};

/* Most bytes of a body in one turn, so that other connections get their turn. */
#define KVW_CONN_AT_ONCE ((size_t)1 << 20)

static inline const struct kvw_clients_limits *kvw_conn_limits(const struct kvw_conn *conn)
{
	return &conn->clients->options.limits;
}

/* --- connection_life.c --- */
void kvw_conn_timer(struct kvw_conn *conn, enum kvw_conn_timer kind, uint64_t duration_ns);
/* Reads into `in`. Returns false if nothing came now, or the connection is closed. */
bool kvw_conn_read(struct kvw_conn *conn);
void kvw_conn_drop_input(struct kvw_conn *conn);
void kvw_conn_drop_whole(struct kvw_conn *conn);
/* Makes the connection wait for the next request. */
void kvw_conn_rest(struct kvw_conn *conn);

/* --- connection_answer.c --- */
void kvw_conn_flush(struct kvw_conn *conn); /* used in state SEND */
void kvw_conn_part(struct kvw_conn *conn);  /* enters LINGER */
/* Makes the program answer that the request is refused; the connection ends after the answer. */
void kvw_conn_refuse(
	struct kvw_conn *conn, enum kvw_conn_refusal what, int status, const char *message);

/* --- connection_body.c --- */
/* Collects the body of the request in clients->head, whose head has len bytes; then passes the
 * request to the program. */
void kvw_conn_collect(struct kvw_conn *conn, const char *head, size_t len);
/* Reads and drops bytes in state DRAIN. Returns false if no byte came now, or the connection is
 * closed. */
bool kvw_conn_drain(struct kvw_conn *conn);
void kvw_conn_linger(struct kvw_conn *conn); /* used in state LINGER */

/* A body that is collected, and kept until its request is answered. */
struct kvw_whole_body {
	struct kvw_body reader;
	struct kvw_page text;
	size_t head_len;
	/* the head is parsed again after the body, because other requests use clients->head in the
	 * meantime */
	char head[];
};

#endif
