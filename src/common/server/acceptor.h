/*
 * acceptor.h - accepts clients on the listening socket of an event loop.
 *
 * A process without a free descriptor cannot accept, and the waiting connection would wake the loop
 * again and again. So the program keeps some descriptors in reserve: the acceptor closes one,
 * accepts and refuses the connection, and fills the reserve again. So a client gets a refusal at
 * once, whether descriptors or the program's own limit ran out.
 *
 * Acceptors of several loops share one reserve and accept one at a time, lest one take the
 * descriptor that another one closed. Any other thread may take it: then free descriptors go to the
 * reserve first, and clients are refused until it is full again; while the reserve is empty,
 * accepting stops until kvw_acceptor_tick has refilled some of it, and clients wait in the kernel.
 *
 * Threads: an acceptor belongs to its loop. Several loops may each have one on sockets that share
 * an address. A reserve may be used by all.
 */
#ifndef KVW_ACCEPTOR_H
#define KVW_ACCEPTOR_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/io.h"

enum kvw_refusal {
	KVW_REFUSED_LIMIT,       /* admit() returned false */
	KVW_REFUSED_DESCRIPTORS, /* none is left */
};

struct kvw_acceptor;

/* The program's callbacks for clients. All are called on the loop's thread. */
struct kvw_acceptor_ops {
	/* Called before the clients of one turn, for example to read the clock. */
	void (*begin)(struct kvw_acceptor *acceptor);
	/* Returns true if there is room for one more connection, which is counted from then on. */
	bool (*admit)(struct kvw_acceptor *acceptor);
	/* Serves an admitted client. Takes fd. peer is borrowed for the call. */
	void (*serve_take)(struct kvw_acceptor *acceptor, int fd, const struct sockaddr *peer);
	/* Refuses a client: answers if that is possible without waiting. Takes fd. */
	void (*refuse_take)(struct kvw_acceptor *acceptor, int fd, enum kvw_refusal why);
	/* Optional. Called if a client could not even be refused, because a descriptor or memory
	 * was missing. */
	void (*starved)(struct kvw_acceptor *acceptor);
};

#define KVW_RESERVE_FDS 4

/* Descriptors that a program keeps for refusals. */
struct kvw_reserve {
	pthread_mutex_t lock; /* guards the members below; held while a client is accepted */
	int fds[KVW_RESERVE_FDS];
	int held; /* number of open descriptors, which come first in the array */
};

void kvw_reserve_init(struct kvw_reserve *reserve);
void kvw_reserve_finish(struct kvw_reserve *reserve);

/* Embedded in the loop. */
struct kvw_acceptor {
	struct kvw_io io; /* first */
	const struct kvw_acceptor_ops *ops;
	int fd;       /* the listening socket, owned; -1: there is none, or accepting has stopped */
	struct kvw_reserve own; /* empty if the acceptor shares another reserve */
	struct kvw_reserve *reserve; /* own, or borrowed */
	/* the set given to kvw_acceptor_watch, borrowed; NULL before that call */
	struct kvw_io_set *set;
	bool resting;           /* not watched */
};

/* Initializes an acceptor and takes over fd (-1: this loop does not accept). Cannot fail.
 * kvw_acceptor_finish() must follow. */
void kvw_acceptor_init(
	struct kvw_acceptor *acceptor, const struct kvw_acceptor_ops *ops, int fd);

/* Makes the acceptor use this reserve instead of its own. To be called before kvw_acceptor_watch.
 * The reserve is borrowed until kvw_acceptor_finish. */
void kvw_acceptor_share(struct kvw_acceptor *acceptor, struct kvw_reserve *reserve);

/* Begins to accept when the set reports clients. Does nothing without a listening socket. */
enum kvw_err kvw_acceptor_watch(
	struct kvw_acceptor *acceptor, struct kvw_io_set *set) KVW_MUST_CHECK;

/* Accepts at most 64 waiting clients. Called by the set, and by a loop before it stops. */
void kvw_acceptor_run(struct kvw_acceptor *acceptor);

/* To be called at each tick of the loop: refills the reserve, and begins to accept again. */
void kvw_acceptor_tick(struct kvw_acceptor *acceptor);

/* Closes the listening socket. A second call does nothing. */
void kvw_acceptor_stop(struct kvw_acceptor *acceptor);

/* Does the same, and closes the reserve's descriptors. */
void kvw_acceptor_finish(struct kvw_acceptor *acceptor);

#endif
