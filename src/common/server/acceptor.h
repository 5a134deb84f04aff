/*
 * acceptor.h - takes clients off the listening socket of an event loop.
 *
 * A process without a free descriptor cannot accept, and the waiting connection would wake the loop
 * for ever. One descriptor is therefore kept in reserve: it is given up, the connection accepted and
 * refused, and the reserve taken again. So a client hears at once that there is no room, whether
 * descriptors or the program's own limit ran out.
 *
 * Another thread may take the descriptor in between. Then accepting rests until kvw_acceptor_tick has the
 * reserve back; clients wait in the kernel meanwhile.
 *
 * Threads: an acceptor belongs to its loop. Several loops may each have one on sockets that share an
 * address.
 */
#ifndef KVW_ACCEPTOR_H
#define KVW_ACCEPTOR_H

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

/* Embedded in the loop. */
struct kvw_acceptor {
	struct kvw_io io; /* first */
	const struct kvw_acceptor_ops *ops;
	int fd;       /* listening, owned; -1: none, or stopped */
	int spare_fd; /* the reserve; -1: none could be had */
	struct kvw_io_set *set; /* of kvw_acceptor_watch, borrowed; NULL: before it */
	bool resting;           /* not watched */
};

/* Takes fd (-1: this loop does not accept). Cannot fail; after it, kvw_acceptor_finish() is due. */
void kvw_acceptor_init(
	struct kvw_acceptor *acceptor, const struct kvw_acceptor_ops *ops, int fd);

/* Accepts from now on, whenever the set has news. Does nothing without a descriptor. */
enum kvw_err kvw_acceptor_watch(
	struct kvw_acceptor *acceptor, struct kvw_io_set *set) KVW_MUST_CHECK;

/* Accepts what has arrived, at most 64 clients: the set calls it, and a loop that is about
 * to stop does. */
void kvw_acceptor_run(struct kvw_acceptor *acceptor);

/* From the loop's tick: takes the reserve again where it was lost, and then accepts again. */
void kvw_acceptor_tick(struct kvw_acceptor *acceptor);

/* Closes the listening socket. The second time does nothing. */
void kvw_acceptor_stop(struct kvw_acceptor *acceptor);

/* The same, and gives up the reserve. */
void kvw_acceptor_finish(struct kvw_acceptor *acceptor);

#endif
