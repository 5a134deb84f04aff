/*
 * loop.h - a server's event loop: its thread, its sockets and timers, mail from other threads, the
 * clients that it accepts, and how it ends.
 *
 * A server has one loop or several. One may accept for all: the others join its ring, and each
 * client goes to the loop of the ring that has the fewest. Draining stops accepting; what is under
 * way gets some time, then it is cut.
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

/* Something that another thread gives to a loop. Embedded in what is given. */
struct kvw_mail {
	struct kvw_mail *next;
	/* On the loop's thread; takes the mail. After the loop has ended (loop->ended), on the
	 * thread that finishes it: then it only frees. */
	void (*deliver)(struct kvw_mail *mail, struct kvw_server_loop *loop);
};

/* What all loops of a server share. Zeroed but for the limits it is ready. */
struct kvw_server {
	uint32_t most; /* connections */
	uint64_t drain_ns;
	_Atomic uint32_t connections; /* now */
	/* Another process accepts from the same socket: what waits there is its, and clients
	 * without a request have so long to send one. 0: none does. Written before `draining`. */
	uint64_t settle_ns;
	_Atomic bool draining;        /* kvw_server_drain */
};

/* What a program does in its loops, on the loop's thread. */
struct kvw_server_loop_ops {
	/* A client, counted until kvw_server_loop_lost. Takes fd. */
	void (*serve_take)(struct kvw_server_loop *loop, int fd);
	/* One that is not served: answers if it can without waiting. Takes fd. */
	void (*refuse_take)(struct kvw_server_loop *loop, int fd, enum kvw_refusal why);
	/* Draining begins, and the socket is closed: lets go of clients without a request. */
	void (*drain)(struct kvw_server_loop *loop);
	/* Its time is over: lets go of all. */
	void (*cut)(struct kvw_server_loop *loop);
	/* The loop has turned: frees what ended in this turn. */
	void (*turned)(struct kvw_server_loop *loop);
};

struct kvw_server_loop {
	const struct kvw_server_loop_ops *ops;
	struct kvw_server *server;
	char name[16];                /* of the thread */
	struct kvw_server_loop *next; /* ring of those that one accepts for; itself: alone */
	struct kvw_io_set sockets;
	struct kvw_timers timers;
	int64_t now_ns; /* monotonic, of the event being handled */
	size_t waits;   /* answers that are being made elsewhere: the loop does not end before */
	_Atomic bool draining; /* it accepts no more */
	bool lets_go;          /* draining, and clients without a request are let go */
	bool ended; /* its thread is over */
	_Atomic uint32_t conn_count;
	_Atomic int64_t turn_ns; /* when it turned last; INT64_MAX: ended */

	/* loop.c's */
	struct kvw_acceptor acceptor;
	struct kvw_io wake_io;
	int wake_fd;
	struct kvw_mail *_Atomic mail; /* newest first */
	_Atomic uint32_t posting;      /* threads inside of kvw_server_loop_post */
	int64_t tick_ns, settle_until_ns, drain_deadline_ns;
	pthread_t thread;
	bool started;
};

/* Zeroes the loop first; takes listen_fd (-1: it does not accept), also when it fails. After it,
 * also after a failure, kvw_server_loop_finish() is due. */
enum kvw_err kvw_server_loop_init(struct kvw_server_loop *loop, struct kvw_server *server,
	const struct kvw_server_loop_ops *ops, int listen_fd) KVW_MUST_CHECK;

/* Accepts from this socket; it had none so far. On the loop's thread. Takes listen_fd, also when
 * it fails. */
enum kvw_err kvw_server_loop_listen_take(
	struct kvw_server_loop *loop, int listen_fd) KVW_MUST_CHECK;

/* Puts `other`, which is alone, into the ring of `loop`. Before the start. */
void kvw_server_loop_join_ring(struct kvw_server_loop *loop, struct kvw_server_loop *other);

/* Starts the thread. KVW_ENOMEM: there is none to be had. */
enum kvw_err kvw_server_loop_start(struct kvw_server_loop *loop, const char *name) KVW_MUST_CHECK;

/* One turn, which waits for news until the next tick if `wait`. False: waiting failed. */
bool kvw_server_loop_turn(struct kvw_server_loop *loop, bool wait) KVW_MUST_CHECK;

/* Any thread, before kvw_server_loop_finish(): a mail posted later is never delivered. */
void kvw_server_loop_post(struct kvw_server_loop *loop, struct kvw_mail *mail);
/* The next tick comes at once. Any thread. */
void kvw_server_loop_wake(struct kvw_server_loop *loop);

/* One more client than the limit allows is this loop's, until kvw_server_loop_lost. */
void kvw_server_loop_gained(struct kvw_server_loop *loop);
/* A client that serve_take got is gone. */
void kvw_server_loop_lost(struct kvw_server_loop *loop);

/* Waits for the thread, whose server drains. Does nothing where there is none. */
void kvw_server_loop_join(struct kvw_server_loop *loop);

/* Delivers what mail is left, cuts, closes; when the loops of the ring have ended and nothing is
 * posted any more. A thread whose mail was taken may still be inside of kvw_server_loop_post: it is
 * waited for. */
void kvw_server_loop_finish(struct kvw_server_loop *loop);

#endif
