/*
 * io.h - non-blocking sockets, registered once, and what the kernel has reported about them.
 *
 * Every socket is registered edge-triggered for reading, writing and closing when it is made, and
 * stays so until it is closed: no system call to start or stop listening. The price is that we must
 * remember the edges: `readable` and `writable` stay true until a call says EAGAIN (or a read comes
 * back short), `peer_closed` and `broken` stay true for ever.
 *
 * The sockets of a loop sit in one epoll set on which the loop waits. Why not libevent events:
 * libevent reports an error or hang-up as "readable and writable", which is what an ordinary
 * arrival of bytes looks like too. Under edge triggering bytes followed by a reset are one edge;
 * without knowing of the reset, a short read would be taken for the end of the bytes that have
 * come, and the peer's death go unnoticed until a timeout. And a set of our own behind libevent's
 * means that every wake-up passes two sets, some percent of a small request's cost.
 *
 * A transport other than plain TCP (TLS) sets ops; errors and EAGAIN are reported the same way.
 *
 * Between two events of one socket lie the bodies of all others, so the memory of an event is
 * seldom in the cache any more. Sockets with news are therefore handled kind by kind (all clients,
 * then all workers, or the other way round), which keeps the code in the cache, and while one is
 * handled, the memory of the next is fetched.
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

/* The socket has news; its flags say which. */
typedef void (*kvw_io_fn)(struct kvw_io *io);

/* Like readv(2) and writev(2): -1 with errno EAGAIN when nothing can be done now. */
struct kvw_io_ops {
	ssize_t (*readv)(struct kvw_io *io, const struct iovec *iov, int count);
	ssize_t (*writev)(struct kvw_io *io, const struct iovec *iov, int count);
	void (*shutdown)(struct kvw_io *io); /* says that no more will be sent */
	/* Frees `state`; the descriptor is closed by the caller. */
	void (*close)(struct kvw_io *io);
};

/* One socket. Embedded in its owner, whose memory must outlive the loop's turn. */
struct kvw_io {
	int fd;                       /* -1: closed */
	bool readable, writable;      /* no EAGAIN since the last edge */
	bool peer_closed;             /* the peer will send no more (FIN) */
	bool broken;                  /* reset, or closed both ways */
	bool again;                   /* queued by kvw_io_again */
	kvw_io_fn on_event;
	struct kvw_io_set *set;
	TAILQ_ENTRY(kvw_io) again_entry;
	const struct kvw_io_ops *ops; /* NULL: plain */
	void *state;                  /* of ops */
	const void *needs; /* memory that on_event will look at: fetched ahead. NULL: none */
};

TAILQ_HEAD(kvw_io_list, kvw_io);

#define KVW_IO_EVENTS_AT_ONCE 256 /* sockets with news that one dispatch looks at */

/* All sockets of one loop. */
struct kvw_io_set {
	int fd; /* of epoll: readable when any socket has an event */
	struct kvw_io_list again;
	size_t again_count;
};

enum kvw_err kvw_io_set_init(struct kvw_io_set *set) KVW_MUST_CHECK;
void kvw_io_set_finish(struct kvw_io_set *set);

/* Waits for news, at most timeout_ms (0: not at all; not at all either while the set is busy).
 * Calls on_event of every socket with news, then of those queued before this call. Callbacks may
 * close any socket; memory may be freed only after this has returned. False: waiting failed. */
bool kvw_io_set_wait(struct kvw_io_set *set, int timeout_ms);

/* Like kvw_io_set_wait, without waiting. */
static inline void kvw_io_set_dispatch(struct kvw_io_set *set)
{
	(void)kvw_io_set_wait(set, 0);
}

/* True if kvw_io_again was called and dispatch has not been since: do not sleep. */
static inline bool kvw_io_set_busy(const struct kvw_io_set *set)
{
	return !TAILQ_EMPTY(&set->again);
}

/* Registers fd (non-blocking) in io and takes it; on failure it is still the caller's. */
enum kvw_err kvw_io_open(struct kvw_io *io, struct kvw_io_set *set, int fd, kvw_io_fn on_event)
	KVW_MUST_CHECK;

/* Has on_event called at every dispatch while there is something to read from fd, which stays the
 * caller's: for descriptors that are no connections. */
enum kvw_err kvw_io_watch(struct kvw_io *io, struct kvw_io_set *set, int fd, kvw_io_fn on_event)
	KVW_MUST_CHECK;

/* Ends kvw_io_watch. The second time does nothing. */
void kvw_io_unwatch(struct kvw_io *io);

/* on_event is called once more at the next dispatch, after the others had their turn. */
void kvw_io_again(struct kvw_io *io);

/* Sends no more; reading goes on. */
void kvw_io_shutdown(struct kvw_io *io);

/* Closes; the second time does nothing. reset: send RST, so that the peer sees a broken message. */
void kvw_io_close(struct kvw_io *io, bool reset);

/*
 * The bare system calls: glibc's wrappers are cancellation points, which costs two atomic
 * operations each in a program with threads, and one buffer needs no vector. The calls of sockets
 * skip the work that readv and writev do for files.
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

/* Reads once. A short read means that the socket is drained, unless the peer has closed. */
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
