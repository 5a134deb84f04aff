/* io.c - non-blocking sockets, registered once, and their readiness. */
#include "base/io.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define LINES_AHEAD 10 /* number of cache lines that are prefetched for each event */

enum kvw_err kvw_io_set_init(struct kvw_io_set *set)
{
	TAILQ_INIT(&set->again);
	set->again_count = 0;
	set->fd = epoll_create1(EPOLL_CLOEXEC);
	return set->fd < 0 ? KVW_EIO : KVW_OK;
}

void kvw_io_set_finish(struct kvw_io_set *set)
{
	if (set->fd >= 0)
		close(set->fd);
	set->fd = -1;
}

static enum kvw_err add_socket(
	struct kvw_io *io, struct kvw_io_set *set, int fd, uint32_t events, kvw_io_fn on_event)
{
	struct epoll_event event = {.events = events, .data.ptr = io};

	memset(io, 0, sizeof(*io));
	io->fd = -1;
	if (epoll_ctl(set->fd, EPOLL_CTL_ADD, fd, &event) != 0)
		return KVW_EIO;
	io->fd = fd;
	io->set = set;
	io->on_event = on_event;
	return KVW_OK;
}

enum kvw_err kvw_io_open(struct kvw_io *io, struct kvw_io_set *set, int fd, kvw_io_fn on_event)
{
	return add_socket(io, set, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, on_event);
}

enum kvw_err kvw_io_watch(struct kvw_io *io, struct kvw_io_set *set, int fd, kvw_io_fn on_event)
{
	return add_socket(io, set, fd, EPOLLIN, on_event);
}

void kvw_io_unwatch(struct kvw_io *io)
{
	if (io->fd < 0)
		return;
	(void)epoll_ctl(io->set->fd, EPOLL_CTL_DEL, io->fd, NULL);
	io->fd = -1;
}

static void note_events(struct kvw_io *io, unsigned events)
{
	if (events & EPOLLIN)
		io->readable = true;
	if (events & EPOLLOUT)
		io->writable = true;
	if (events & EPOLLRDHUP)
		io->peer_closed = io->readable = true;
	if (events & (EPOLLERR | EPOLLHUP))
		io->broken = io->readable = io->writable = true;
}

/* Calls on_event for the sockets that are queued now; those that are queued meanwhile wait for the
 * next turn. */
static void run_queued(struct kvw_io_set *set)
{
	for (size_t n = set->again_count; n > 0 && !TAILQ_EMPTY(&set->again); n--) {
		struct kvw_io *io = TAILQ_FIRST(&set->again);

		TAILQ_REMOVE(&set->again, io, again_entry);
		set->again_count--;
		io->again = false;
		io->on_event(io);
	}
}

/* Decides the order in which events are handled: first those of the same kind as the first one,
 * then the rest. */
static void sort_by_kind(const struct epoll_event *events, int count, uint16_t *order)
{
	kvw_io_fn first = count > 0 ? ((struct kvw_io *)events[0].data.ptr)->on_event : NULL;
	int n = 0;

	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < count; i++) {
			const struct kvw_io *io = events[i].data.ptr;

			if ((io->on_event == first) == (pass == 0))
				order[n++] = (uint16_t)i;
		}
}

/* Prefetches the first cache lines that handling this socket will read. */
static void fetch(const struct kvw_io *io)
{
	const char *lines = io->needs;

	for (unsigned i = 0; i < LINES_AHEAD && lines != NULL; i++)
		__builtin_prefetch(lines + 64 * i, 1);
}

bool kvw_io_set_wait(struct kvw_io_set *set, int timeout_ms)
{
	/* if there are more events, they wait for the next turn */
	struct epoll_event events[KVW_IO_EVENTS_AT_ONCE];
	uint16_t order[KVW_IO_EVENTS_AT_ONCE];
	int count = epoll_wait(set->fd, events, KVW_IO_EVENTS_AT_ONCE,
		kvw_io_set_busy(set) ? 0 : timeout_ms);

	sort_by_kind(events, count, order);
	for (int i = 0; i < count; i++) {
		struct kvw_io *io = events[order[i]].data.ptr;

		if (i + 1 < count)
			fetch(events[order[i + 1]].data.ptr);
		if (io->fd < 0)
			continue; /* an earlier callback has closed this socket */
		note_events(io, events[order[i]].events);
		io->on_event(io);
	}
	run_queued(set);
	return count >= 0 || errno == EINTR;
}

void kvw_io_again(struct kvw_io *io)
{
	if (io->again || io->fd < 0)
		return;
	io->again = true;
	io->set->again_count++;
	TAILQ_INSERT_TAIL(&io->set->again, io, again_entry);
}

void kvw_io_shutdown(struct kvw_io *io)
{
	if (io->fd < 0)
		return;
	if (io->ops != NULL)
		io->ops->shutdown(io);
	(void)shutdown(io->fd, SHUT_WR);
}

void kvw_io_close(struct kvw_io *io, bool reset)
{
	if (io->fd < 0)
		return;
	if (reset) {
		struct linger now = {.l_onoff = 1, .l_linger = 0};

		(void)setsockopt(io->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		/* after a read error, an end must not look like the end of a complete message */
		io->broken = true;
	}
	if (io->ops != NULL)
		io->ops->close(io);
	if (io->again) {
		TAILQ_REMOVE(&io->set->again, io, again_entry);
		io->set->again_count--;
		io->again = false;
	}
	(void)close(io->fd); /* closing also removes it from the epoll set */
	io->fd = -1;
	io->readable = io->writable = false;
}
