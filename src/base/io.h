/*
 * io.h - a non-blocking socket with what epoll has told about it.
 *
 * Every socket is registered once, edge-triggered for reading, writing and closing, and stays so
 * until it is closed: no system call to start or stop listening. The price is that we must remember
 * the edges: `readable` and `writable` stay true until a call says EAGAIN (or a read comes back
 * short), `peer_closed` stays true for ever.
 *
 * A transport other than plain TCP (TLS) sets ops; errors and EAGAIN are told the same way.
 */
#ifndef KVW_IO_H
#define KVW_IO_H

#include <errno.h>
#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct kvw_io;

/* Like readv(2) and writev(2): -1 with errno EAGAIN when nothing can be done now. */
struct kvw_io_ops {
	ssize_t (*readv)(struct kvw_io *io, const struct iovec *iov, int count);
	ssize_t (*writev)(struct kvw_io *io, const struct iovec *iov, int count);
	void (*close)(struct kvw_io *io); /* frees `state`; the descriptor is closed by the caller */
};

struct kvw_io {
	int fd;                       /* -1: closed */
	bool readable, writable;      /* no EAGAIN since the last edge */
	bool peer_closed;             /* the peer will send no more (FIN seen by epoll) */
	const struct kvw_io_ops *ops; /* NULL: plain */
	void *state;                  /* of ops */
};

/* Reads once. A short read means that the socket is drained, unless the peer has closed. */
static inline ssize_t kvw_io_readv(struct kvw_io *io, const struct iovec *iov, int count,
	size_t wanted)
{
	ssize_t n;

	do {
		n = io->ops == NULL ? readv(io->fd, iov, count) : io->ops->readv(io, iov, count);
	} while (n < 0 && errno == EINTR);
	if (n < 0) {
		if (errno == EAGAIN)
			io->readable = false;
	} else if ((size_t)n < wanted && !io->peer_closed && io->ops == NULL) {
		io->readable = false;
	}
	return n;
}

static inline ssize_t kvw_io_writev(struct kvw_io *io, const struct iovec *iov, int count)
{
	ssize_t n;

	do {
		n = io->ops == NULL ? writev(io->fd, iov, count) : io->ops->writev(io, iov, count);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		io->writable = false;
	return n;
}

/* Closes; the second time does nothing. reset: send RST, so that the peer sees a broken message. */
void kvw_io_close(struct kvw_io *io, bool reset);

#endif
