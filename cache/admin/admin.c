/*
 * admin.c - the socket of a store's owner.
 *
 * A store's path may be longer than a socket's address (108 bytes), so both sides open the folder and
 * name the socket through /proc/self/fd. The socket is bound, restricted to its owner, and only
 * then listens: nothing can connect before.
 */
#include "admin/admin.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define NAME       "admin"
#define PEER_S     1 /* to send a request, or to take an answer */
#define WAITING    8 /* connections that wait for their turn */
#define NANOSECOND 1000000000ull

struct kvt_admin {
	const struct kvt_surroundings *s;
	kvt_admin_answer answer;
	void *self;
	int folder, listener, stop;
	pthread_t thread;
	bool has_thread;
	char request[KVT_ADMIN_LINE], out[KVT_ADMIN_LINE];
};

/* --- both sides ------------------------------------------------------------------------------- */

static void address_of(int folder, struct sockaddr_un *out)
{
	*out = (struct sockaddr_un){.sun_family = AF_UNIX};
	(void)snprintf(out->sun_path, sizeof(out->sun_path), "/proc/self/fd/%d/" NAME, folder);
}

static void set_patience(int fd, uint64_t ns)
{
	struct timeval t = {.tv_sec = (time_t)(ns / NANOSECOND),
		.tv_usec = (suseconds_t)(ns % NANOSECOND / 1000 + 1)};

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
}

/* A line without its end. False: none came, or it was too long. */
static bool receive_line(int fd, char out[KVT_ADMIN_LINE])
{
	size_t len = 0;

	while (len < KVT_ADMIN_LINE) {
		ssize_t n = recv(fd, out + len, KVT_ADMIN_LINE - len, 0);
		char *end;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			errno = n == 0 ? ECONNRESET : errno;
			return false;
		}
		end = memchr(out + len, '\n', (size_t)n);
		if (end != NULL) {
			*end = '\0';
			return true;
		}
		len += (size_t)n;
	}
	errno = EMSGSIZE;
	return false;
}

static bool send_all(int fd, const char *text, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, text, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		text += n;
		len -= (size_t)n;
	}
	return true;
}

static bool send_line(int fd, const char *text)
{
	return send_all(fd, text, strlen(text)) && send_all(fd, "\n", 1);
}

/* --- the owner's side ------------------------------------------------------------------------- */

static bool may_ask(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
	       (peer.uid == 0 || peer.uid == geteuid());
}

static void serve(struct kvt_admin *a)
{
	int fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
			(void)poll(NULL, 0, 100); /* does not run hot until there is one */
		return;
	}
	set_patience(fd, PEER_S * NANOSECOND);
	if (may_ask(fd) && receive_line(fd, a->request)) {
		a->out[0] = '\0';
		a->answer(a->self, a->request, a->out);
		(void)!send_line(fd, a->out);
	}
	close(fd);
}

static void *run(void *self)
{
	struct kvt_admin *a = self;
	struct pollfd fds[] = {
		{.fd = a->stop, .events = POLLIN}, {.fd = a->listener, .events = POLLIN}};

	for (;;) {
		if (poll(fds, 2, -1) < 0)
			continue;
		if (fds[0].revents != 0)
			return NULL;
		serve(a);
	}
}

/* Signals are for the caller's threads, and it may run on every processor. */
static bool start_thread(struct kvt_admin *a)
{
	sigset_t all, before;
	cpu_set_t everywhere;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	a->has_thread = pthread_create(&a->thread, NULL, run, a) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!a->has_thread)
		return false;
	memset(&everywhere, 0xff, sizeof(everywhere));
	pthread_setaffinity_np(a->thread, sizeof(everywhere), &everywhere);
	pthread_setname_np(a->thread, "kvt-admin");
	return true;
}

static bool open_socket(struct kvt_admin *a, const char *folder)
{
	struct sockaddr_un address;

	a->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	a->stop = eventfd(0, EFD_CLOEXEC);
	a->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (a->folder < 0 || a->stop < 0 || a->listener < 0)
		return false;
	if (unlinkat(a->folder, NAME, 0) != 0 && errno != ENOENT)
		return false;
	address_of(a->folder, &address);
	return bind(a->listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
	       fchmodat(a->folder, NAME, S_IRUSR | S_IWUSR, 0) == 0 &&
	       listen(a->listener, WAITING) == 0;
}

enum kvt_status kvt_admin_create(const char *folder, const struct kvt_surroundings *surroundings,
	kvt_admin_answer answer, void *self, struct kvt_admin **out)
{
	struct kvt_admin *a = calloc(1, sizeof(*a));
	char why[64];

	if (a == NULL)
		return KVT_ENOMEM;
	*a = (struct kvt_admin){.s = surroundings, .answer = answer, .self = self};
	a->folder = a->listener = a->stop = -1;
	if (!open_socket(a, folder) || !start_thread(a)) {
		kvt_note(surroundings, KVT_LOG_WARN,
			"admin: %s/" NAME ": %s; `kvtier erase` cannot reach this cache", folder,
			strerror_r(errno, why, sizeof(why)));
		kvt_admin_destroy(a);
		return KVT_EIO;
	}
	*out = a;
	return KVT_OK;
}

void kvt_admin_destroy(struct kvt_admin *a)
{
	const uint64_t one = 1;

	if (a == NULL)
		return;
	if (a->has_thread) {
		(void)!write(a->stop, &one, sizeof(one));
		pthread_join(a->thread, NULL);
		(void)unlinkat(a->folder, NAME, 0);
	}
	if (a->listener >= 0)
		close(a->listener);
	if (a->stop >= 0)
		close(a->stop);
	if (a->folder >= 0)
		close(a->folder);
	free(a);
}

/* --- the client's side ------------------------------------------------------------------------ */

static enum kvt_status ask_at(
	int folder, int fd, const char *request, uint64_t timeout_ns, char *answer)
{
	struct sockaddr_un address;

	address_of(folder, &address);
	set_patience(fd, timeout_ns);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		return errno == ENOENT || errno == ECONNREFUSED ? KVT_MISS : KVT_EIO;
	return send_line(fd, request) && receive_line(fd, answer) ? KVT_OK : KVT_EIO;
}

enum kvt_status kvt_admin_ask(
	const char *folder, const char *request, uint64_t timeout_ns, char *answer)
{
	int at = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), error;
	enum kvt_status status = KVT_EIO;

	if (at >= 0 && fd >= 0)
		status = ask_at(at, fd, request, timeout_ns, answer);
	error = errno;
	if (fd >= 0)
		close(fd);
	if (at >= 0)
		close(at);
	errno = error;
	return status;
}
