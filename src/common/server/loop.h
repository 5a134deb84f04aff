/*
 * loop.h - a server's event loop: its thread, its sockets and timers, mail from other threads, the
 * clients that it accepts, and how it ends.
 *
 * A server has one loop or several. One loop may accept for all: the others join its ring, and each
 * client goes to the loop of the ring with the fewest clients. Draining stops accepting; requests
 * under way get some time, then they are cut.
 *
 * 	start --> turns --> drain --> turns until nothing is left, or cut --> join --> finish
 *
 * A program whose thread already runs another loop (libevent's) starts no thread. It turns the loop
 * without waiting whenever sockets.fd is readable and now and then for the timers.
 *
 * Threads: a loop belongs to its thread; others may post, wake, and order the server to drain.
 */
#ifndef KVW_SERVER_LOOP_H
#define KVW_SERVER_LOOP_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/timer.h"
#include "server/acceptor.h"

struct kvw_server_loop;

/* An object that another thread sends to a loop. Embedded in the data that it brings. */
struct kvw_mail {
	struct kvw_mail *next;
	/* Called on the loop's thread, and takes the mail. If the loop has ended (loop->ended), it
	 * is called on the thread that finishes the loop, only to free the mail. */
	void (*deliver)(struct kvw_mail *mail, struct kvw_server_loop *loop);
};

/* Data that all loops of a server share. All zeroes but the limits: ready for use. */
struct kvw_server {
	uint32_t most; /* connections */
	uint64_t drain_ns;
	_Atomic uint32_t connections; /* now */
	/* If not 0, another process accepts from the same socket: then the accept queue is left to
	 * that process, and clients without a request have this long to send one. Set before
	 * `draining`. */
	uint64_t settle_ns;
	_Atomic bool draining;        /* kvw_server_drain */
};

/* The program's callbacks, on the loop's thread. */
struct kvw_server_loop_ops {
	/* Serves a client, counted until kvw_server_loop_lost. Takes fd. */
	void (*serve_take)(struct kvw_server_loop *loop, int fd);
	/* Refuses a client: answers if that is possible without waiting. Takes fd. */
	void (*refuse_take)(struct kvw_server_loop *loop, int fd, enum kvw_refusal why);
	/* Called when draining begins and the socket is closed: closes clients without a
	 * request. */
	void (*drain)(struct kvw_server_loop *loop);
	/* Called when the time for draining is over: closes all clients. */
	void (*cut)(struct kvw_server_loop *loop);
	/* Called after a turn: frees the objects that ended in it. */
	void (*turned)(struct kvw_server_loop *loop);
};

struct kvw_server_loop {
	const struct kvw_server_loop_ops *ops;
	struct kvw_server *server;
	char name[16];                /* name of the thread */
	/* next in the ring of loops for which one accepts; a loop that is alone points to itself */
	struct kvw_server_loop *next;
	struct kvw_io_set sockets;
	struct kvw_timers timers;
	int64_t now_ns; /* monotonic time of the event that is being handled */
	/* number of answers being made by other parts; the loop ends only when there are none */
	size_t waits;
	_Atomic bool draining; /* it accepts no more */
	bool lets_go; /* the server is draining, and clients without a request are closed now */
	bool ended; /* its thread is over */
	_Atomic uint32_t conn_count;
	_Atomic int64_t turn_ns; /* time of the last turn; INT64_MAX: the loop has ended */

	/* private to loop.c */
	struct kvw_acceptor acceptor;
	struct kvw_io wake_io;
	int wake_fd;
	struct kvw_mail *_Atomic mail; /* newest first */
	_Atomic uint32_t posting;      /* number of threads inside kvw_server_loop_post */
	int64_t tick_ns, settle_until_ns, drain_deadline_ns;
	pthread_t thread;
	bool started;
};

/* Zeroes the loop first; takes listen_fd (-1: the loop does not accept), also on failure. To be
 * followed by kvw_server_loop_finish(), also after a failure. */
enum kvw_err kvw_server_loop_init(struct kvw_server_loop *loop, struct kvw_server *server,
	const struct kvw_server_loop_ops *ops, int listen_fd) KVW_MUST_CHECK;

/* Makes a loop that has no listening socket accept from listen_fd. To be called on the loop's
 * thread. Takes over listen_fd, also on failure. */
enum kvw_err kvw_server_loop_listen_take(
	struct kvw_server_loop *loop, int listen_fd) KVW_MUST_CHECK;

/* Puts `other`, which is alone, into the ring of `loop`. To be called before either is started. */
void kvw_server_loop_join_ring(struct kvw_server_loop *loop, struct kvw_server_loop *other);

/* Starts the loop's thread. KVW_ENOMEM: no thread could be started. */
enum kvw_err kvw_server_loop_start(struct kvw_server_loop *loop, const char *name) KVW_MUST_CHECK;

/* Runs one turn. If `wait`, the turn waits for events, until the next tick. Returns false if
 * waiting failed. */
bool kvw_server_loop_turn(struct kvw_server_loop *loop, bool wait) KVW_MUST_CHECK;

/* Sends mail to the loop. Any thread, but only before kvw_server_loop_finish(): later mail is never
 * delivered. */
void kvw_server_loop_post(struct kvw_server_loop *loop, struct kvw_mail *mail);
/* Makes the next tick come at once. Any thread. */
void kvw_server_loop_wake(struct kvw_server_loop *loop);

/* Counts one more client of this loop, even beyond the limit, until kvw_server_loop_lost. */
void kvw_server_loop_gained(struct kvw_server_loop *loop);
/* Reports that a client that serve_take got is gone. */
void kvw_server_loop_lost(struct kvw_server_loop *loop);

/* Waits until the loop's thread has ended; its server must be draining. Does nothing if there is no
 * thread. */
void kvw_server_loop_join(struct kvw_server_loop *loop);

/* Delivers the remaining mail, closes all clients, and frees the loop. To be called when all loops
 * of the ring have ended and no thread posts any more. Waits for threads that are still inside
 * kvw_server_loop_post. */
void kvw_server_loop_finish(struct kvw_server_loop *loop);

#endif
