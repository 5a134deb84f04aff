/*
 * io.h - non-blocking sockets, registered once, and their readiness.
 *
 * Every socket is registered edge-triggered for reading, writing and closing when it is made, and
 * stays so until it is closed: no system call starts or stops listening. The price is that edges
 * must be remembered: `readable` and `writable` stay true until a call returns EAGAIN (or a read is
 * short), `peer_closed` and `broken` stay true for ever.
 *
 * The sockets of a loop sit in one epoll set on which the loop waits. Why not libevent events:
 * libevent reports an error or hang-up as "readable and writable", like an ordinary arrival of
 * bytes. With edge triggering, bytes followed by a reset are one edge; without notice of the reset,
 * a short read would seem to drain the socket, and the peer's end go unnoticed until a timeout. And
 * with a set behind libevent's every wake-up would pass two sets, some percent of a small request's
 * cost.
 *
 * A transport other than plain TCP (TLS) sets ops; errors and EAGAIN are reported the same way.
 *
 * Between two events of one socket the bodies of all others pass through the cache, so its memory
 * is seldom cached any more. So ready sockets are handled kind by kind (all clients, then all
 * workers, or the other way round), which keeps the code in the cache, and while one is handled,
 * the memory of the next is prefetched.
 *
 * Threads: a set and its sockets belong to one loop.
 */
#ifndef KVW_IO_H
#define KVW_IO_H

#include <errno.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "kvway/err.h"

struct kvw_io;
struct kvw_io_set;

/* Called when one of the socket's flags has changed. */
typedef void (*kvw_io_fn)(struct kvw_io *io);

/* These return like readv(2) and writev(2): -1 with errno EAGAIN if the call would block. */
struct kvw_io_ops {
	ssize_t (*readv)(struct kvw_io *io, const struct iovec *iov, int count);
	ssize_t (*writev)(struct kvw_io *io, const struct iovec *iov, int count);
	void (*shutdown)(struct kvw_io *io); /* ends sending */
	/* Frees `state`; the descriptor is closed by the caller. */
	void (*close)(struct kvw_io *io);
};

/* One socket. Embedded in its owner, whose memory must outlive the loop's turn. */
struct kvw_io {
	int fd;                       /* -1: closed */
	bool readable, writable;      /* no call has returned EAGAIN since the last edge */
	bool peer_closed;             /* the peer will send no more (FIN) */
	bool broken;                  /* the connection was reset, or closed in both directions */
	bool again;                   /* kvw_io_again has queued the socket */
	kvw_io_fn on_event;
	struct kvw_io_set *set;
	TAILQ_ENTRY(kvw_io) again_entry;
	const struct kvw_io_ops *ops; /* NULL: plain */
	void *state;                  /* used by ops */
	/* memory that on_event will read, prefetched before the call; NULL: none */
	const void *needs;
};

TAILQ_HEAD(kvw_io_list, kvw_io);

#define KVW_IO_EVENTS_AT_ONCE 256 /* most ready sockets that one dispatch handles */

/* All sockets of one loop. */
struct kvw_io_set {
	int fd; /* descriptor of the epoll set: readable when a socket has an event */
	struct kvw_io_list again;
	size_t again_count;
};

enum kvw_err kvw_io_set_init(struct kvw_io_set *set) KVW_MUST_CHECK;
void kvw_io_set_finish(struct kvw_io_set *set);

/* Waits for events, at most timeout_ms (0, or a busy set: does not wait). Calls on_event of every
 * ready socket, then of those queued before this call. Callbacks may close any socket; memory may
 * be freed only after this has returned. Returns false if waiting failed. */
bool kvw_io_set_wait(struct kvw_io_set *set, int timeout_ms);

/* Like kvw_io_set_wait, without waiting. */
static inline void kvw_io_set_dispatch(struct kvw_io_set *set)
{
	(void)kvw_io_set_wait(set, 0);
}

/* Returns true if kvw_io_again was called since the last dispatch: then the loop must not sleep. */
static inline bool kvw_io_set_busy(const struct kvw_io_set *set)
{
	return !TAILQ_EMPTY(&set->again);
}

/* Registers fd, which must be non-blocking, and takes it over; on failure it stays the caller's. */
enum kvw_err kvw_io_open(struct kvw_io *io, struct kvw_io_set *set, int fd, kvw_io_fn on_event)
	KVW_MUST_CHECK;

/* Calls on_event at every dispatch while fd is readable. For descriptors that are no connections;
 * fd stays the caller's. */
enum kvw_err kvw_io_watch(struct kvw_io *io, struct kvw_io_set *set, int fd, kvw_io_fn on_event)
	KVW_MUST_CHECK;

/* Ends kvw_io_watch. A second call does nothing. */
void kvw_io_unwatch(struct kvw_io *io);

/* Queues a call of on_event for the next dispatch, after the turn of the other sockets. */
void kvw_io_again(struct kvw_io *io);

/* Ends sending; reading goes on. */
void kvw_io_shutdown(struct kvw_io *io);

/* Closes the socket; a second call does nothing. reset: a RST is sent, so that the peer notices
 * that its message is incomplete. */
void kvw_io_close(struct kvw_io *io, bool reset);

/*
 * Direct system calls, for three reasons: glibc's wrappers are cancellation points, which cost two
 * atomic operations each in a program with threads; a single buffer needs no vector; and the calls
 * for sockets skip work that readv and writev do for files.
 */
static inline ssize_t kvw_io_plain_read(int fd, const struct iovec *iov, int count)
{
	if (count == 1)
		return syscall(SYS_recvfrom, fd, iov->iov_base, iov->iov_len, 0, NULL, NULL);
	return syscall(SYS_recvmsg, fd,
		&(struct msghdr){.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count}, 0);
}

static inline ssize_t kvw_io_plain_write(int fd, const struct iovec *iov, int count)
{
	if (count == 1)
		return syscall(SYS_sendto, fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL, NULL, 0);
	return syscall(SYS_sendmsg, fd,
		&(struct msghdr){.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count},
		MSG_NOSIGNAL);
}

/* Reads once. If fewer bytes came than there was room for, the socket is empty, unless the peer has
 * closed. */
static inline ssize_t kvw_io_readv(struct kvw_io *io, const struct iovec *iov, int count,
	size_t wanted)
{
	ssize_t n;

	do {
		n = io->ops == NULL ? kvw_io_plain_read(io->fd, iov, count)
				    : io->ops->readv(io, iov, count);
	} while (n < 0 && errno == EINTR);
	if (n < 0) {
		if (errno == EAGAIN)
			io->readable = false;
	} else if ((size_t)n < wanted && !io->peer_closed && !io->broken && io->ops == NULL) {
		io->readable = false;
	}
	return n;
}

static inline ssize_t kvw_io_writev(struct kvw_io *io, const struct iovec *iov, int count)
{
	ssize_t n;

	do {
		n = io->ops == NULL ? kvw_io_plain_write(io->fd, iov, count)
				    : io->ops->writev(io, iov, count);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		io->writable = false;
	return n;
}

#endif
