/*
 * acceptor.h - takes clients off the listening socket of an event loop.
 *
 * A process without a free descriptor cannot accept, and the waiting connection would wake the loop
 * for ever. Some descriptors are therefore kept in reserve: one is given up, the connection
 * accepted and refused, and the reserve filled again. So a client hears at once that there is no
 * room, whether descriptors or the program's own limit ran out.
 *
 * Acceptors of several loops share one reserve and accept one at a time, lest one take the
 * descriptor that another one gave up. Any other thread may: then the reserve comes first, and
 * clients are refused until it is full again; where nothing is left of it, accepting rests until
 * kvw_acceptor_tick has some of it back, and clients wait in the kernel.
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
	KVW_REFUSED_LIMIT,       /* admit() said so */
	KVW_REFUSED_DESCRIPTORS, /* none is left */
};

struct kvw_acceptor;

/* What the program does with clients. All are called on the loop's thread. */
struct kvw_acceptor_ops {
	/* Before the clients of one turn, for example to read the clock. */
	void (*begin)(struct kvw_acceptor *acceptor);
	/* True: there is room for one more connection, which is counted from now on. */
	bool (*admit)(struct kvw_acceptor *acceptor);
	/* An admitted client. Takes fd. peer is borrowed for the call. */
	void (*serve_take)(struct kvw_acceptor *acceptor, int fd, const struct sockaddr *peer);
	/* A client that is not served: answers if it can without waiting. Takes fd. */
	void (*refuse_take)(struct kvw_acceptor *acceptor, int fd, enum kvw_refusal why);
	/* Optional. No client could even be refused for want of a descriptor or of memory. */
	void (*starved)(struct kvw_acceptor *acceptor);
};

#define KVW_RESERVE_FDS 4

/* Descriptors of a program that are kept for refusing. */
struct kvw_reserve {
	pthread_mutex_t lock; /* of the rest; held while a client is accepted */
	int fds[KVW_RESERVE_FDS];
	int held; /* of them: the first ones */
};

void kvw_reserve_init(struct kvw_reserve *reserve);
void kvw_reserve_finish(struct kvw_reserve *reserve);

/* Embedded in the loop. */
struct kvw_acceptor {
	struct kvw_io io; /* first */
	const struct kvw_acceptor_ops *ops;
	int fd;       /* listening, owned; -1: none, or stopped */
	struct kvw_reserve own; /* empty where it is shared */
	struct kvw_reserve *reserve; /* own, or borrowed */
	struct kvw_io_set *set; /* of kvw_acceptor_watch, borrowed; NULL: before it */
	bool resting;           /* not watched */
};

/* Takes fd (-1: this loop does not accept). Cannot fail; after it, kvw_acceptor_finish() is due. */
void kvw_acceptor_init(
	struct kvw_acceptor *acceptor, const struct kvw_acceptor_ops *ops, int fd);

/* Uses that reserve, not one of its own; before kvw_acceptor_watch.
 * Borrowed until kvw_acceptor_finish. */
void kvw_acceptor_share(struct kvw_acceptor *acceptor, struct kvw_reserve *reserve);

/* Accepts from now on, whenever the set has news. Does nothing without a descriptor. */
enum kvw_err kvw_acceptor_watch(
	struct kvw_acceptor *acceptor, struct kvw_io_set *set) KVW_MUST_CHECK;

/* Accepts what has arrived, at most 64 clients: the set calls it, and a loop that is about
 * to stop does. */
void kvw_acceptor_run(struct kvw_acceptor *acceptor);

/* From the loop's tick: fills the reserve where it was lost, and then accepts again. */
void kvw_acceptor_tick(struct kvw_acceptor *acceptor);

/* Closes the listening socket. The second time does nothing. */
void kvw_acceptor_stop(struct kvw_acceptor *acceptor);

/* The same, and gives up the reserve. */
void kvw_acceptor_finish(struct kvw_acceptor *acceptor);

#endif
