/* io.c - closing a socket, politely or with a reset. */
#include "io.h"

#include <sys/socket.h>

void kvw_io_close(struct kvw_io *io, bool reset)
{
	if (io->fd < 0)
		return;
	if (reset) {
		struct linger now = {.l_onoff = 1, .l_linger = 0};

		(void)setsockopt(io->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	}
	if (io->ops != NULL)
		io->ops->close(io);
	(void)close(io->fd);
	io->fd = -1;
	io->readable = io->writable = false;
}
