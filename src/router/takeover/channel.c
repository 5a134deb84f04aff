/*
 * channel.c - sends and receives the packets of a takeover, with descriptors, over a Unix socket of
 * type SOCK_SEQPACKET.
 */
#include "takeover/channel.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Descriptors that a packet has brought, in any number of control messages. */
struct brought {
	int fds[KVW_TAKEOVER_FDS];
	size_t count;
	bool too_many;
};

union control {
	struct cmsghdr head; /* for its alignment */
	char bytes[CMSG_SPACE(KVW_TAKEOVER_FDS * sizeof(int))];
};

enum kvw_err kvw_takeover_send(
	int channel, const struct kvw_takeover_message *message, const int *fds, size_t fd_count)
{
	char text[KVW_TAKEOVER_BYTES];
	struct iovec iov = {text, kvw_takeover_format(message, text)};
	union control control = {0};
	struct msghdr packet = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t sent;

	if (fd_count > 0) {
		struct cmsghdr *head;

		packet.msg_control = control.bytes;
		packet.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		head = CMSG_FIRSTHDR(&packet);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(head), fds, fd_count * sizeof(int));
	}
	do {
		sent = sendmsg(channel, &packet, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	explicit_bzero(text, iov.iov_len);
	if (sent >= 0)
		return KVW_OK;
	return errno == EAGAIN ? KVW_EAGAIN : KVW_ECLOSED;
}

static void take_descriptors(struct msghdr *packet, struct brought *brought)
{
	for (struct cmsghdr *head = CMSG_FIRSTHDR(packet); head != NULL;
		head = CMSG_NXTHDR(packet, head)) {
		size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
			if (brought->count < KVW_TAKEOVER_FDS) {
				brought->fds[brought->count++] = fd;
			} else {
				brought->too_many = true;
				close(fd);
			}
		}
	}
}

/* Returns whether the peer has gone. Called after a packet without bytes, which reads like the end
 * of the connection. */
static bool is_gone(int channel)
{
	struct pollfd end = {.fd = channel, .events = POLLRDHUP};

	return poll(&end, 1, 0) == 1 && (end.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

enum kvw_err kvw_takeover_receive(int channel, struct kvw_takeover_message *out,
	int fds[KVW_TAKEOVER_FDS], size_t *fd_count)
{
	char text[KVW_TAKEOVER_BYTES];
	struct iovec iov = {text, sizeof(text)};
	union control control;
	struct msghdr packet = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes)};
	struct brought brought = {.count = 0};
	enum kvw_err err;
	bool carries;
	ssize_t got;

	do {
		got = recvmsg(channel, &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (got < 0 && errno == EINTR);
	if (got < 0)
		return errno == EAGAIN ? KVW_EAGAIN : KVW_ECLOSED;
	take_descriptors(&packet, &brought);
	if (got == 0 && brought.count == 0)
		return is_gone(channel) ? KVW_ECLOSED : KVW_EPROTO;
	err = (packet.msg_flags & MSG_TRUNC) != 0 ? KVW_ELIMIT
						  : kvw_takeover_parse(text, (size_t)got, out);
	explicit_bzero(text, sizeof(text));
	carries = err == KVW_OK &&
		  (out->kind == KVW_TAKEOVER_SOCKET || out->kind == KVW_TAKEOVER_SNAPSHOT ||
			  out->kind == KVW_TAKEOVER_CACHES);
	if (err == KVW_OK && ((packet.msg_flags & MSG_CTRUNC) != 0 || brought.too_many ||
				     (carries ? out->count : 0) != brought.count))
		err = KVW_ENOTFOUND;
	if (err != KVW_OK) {
		while (brought.count > 0)
			close(brought.fds[--brought.count]);
		return err;
	}
	memcpy(fds, brought.fds, brought.count * sizeof(fds[0]));
	*fd_count = brought.count;
	return KVW_OK;
}

bool kvw_takeover_peer(int channel, int64_t *pid)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(channel, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
		return false;
	*pid = peer.pid;
	return peer.uid == geteuid();
}
