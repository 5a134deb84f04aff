/*
 * admin.c - serves and asks the socket of a store's owner.
 *
 * A store's path may be longer than a socket's address (108 bytes), so both sides open the folder
 * and name the socket through /proc/self/fd. The owner binds the socket, restricts it to one user,
 * and only then listens: no peer can connect earlier.
 *
 * A peer may send nothing, or a byte now and then, and read nothing: so a request and an answer
 * each have one second in all, and the end of the cache ends the wait at once.
 */
#include "admin/admin.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"

#define NAME       "admin"
#define PEER_S     1 /* time to send a request, or to take an answer */
#define WAITING    8 /* connections that may wait for their turn */
#define NANOSECOND 1000000000ull

struct kvt_admin {
	const struct kvt_surroundings *s;
	kvt_admin_answer answer;
	void *self;
	int folder, listener, stop;
	pthread_t thread;
	bool has_thread;
	bool bound; /* this owner has bound the socket's name in the folder */
	char request[KVT_ADMIN_LINE], out[KVT_ADMIN_LINE];
};

/* --- both sides ------------------------------------------------------------------------------- */

static void address_of(int folder, struct sockaddr_un *out)
{
	*out = (struct sockaddr_un){.sun_family = AF_UNIX};
	(void)snprintf(out->sun_path, sizeof(out->sun_path), "/proc/self/fd/%d/" NAME, folder);
}

/* The transfer of one line in one direction. */
struct talk {
	int fd, stop; /* fd: the socket; stop: readable when the transfer must end; -1: never */
	int64_t until_ns;
};

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * (int64_t)NANOSECOND + t.tv_nsec;
}

static struct talk talk_with(int fd, int stop, uint64_t ns)
{
	return (struct talk){fd, stop, now_ns() + (int64_t)ns};
}

/* Waits for events. Returns false if the time is over (ETIMEDOUT), or the transfer must end
 * (ECANCELED). */
static bool await(const struct talk *t, short events)
{
	struct pollfd fds[] = {{.fd = t->fd, .events = events}, {.fd = t->stop, .events = POLLIN}};
	int64_t left_ns = t->until_ns - now_ns();

	if (left_ns <= 0) {
		errno = ETIMEDOUT;
		return false;
	}
	if (poll(fds, 2, (int)(left_ns / 1000000 + 1)) < 0)
		return errno == EINTR;
	if (fds[1].revents != 0)
		errno = ECANCELED;
	return fds[1].revents == 0;
}

/* Receives a line without its end. Returns false if no line arrived, or the line was too long. */
static bool receive_line(const struct talk *t, char out[KVT_ADMIN_LINE])
{
	size_t len = 0;

	while (len < KVT_ADMIN_LINE) {
		ssize_t n = recv(t->fd, out + len, KVT_ADMIN_LINE - len, MSG_DONTWAIT);
		char *end;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN && await(t, POLLIN))
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

static bool send_all(const struct talk *t, const char *text, size_t len)
{
	while (len > 0) {
		ssize_t n = send(t->fd, text, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN && await(t, POLLOUT))
			continue;
		if (n <= 0)
			return false;
		text += n;
		len -= (size_t)n;
	}
	return true;
}

static bool send_line(const struct talk *t, const char *text)
{
	return send_all(t, text, strlen(text)) && send_all(t, "\n", 1);
}

/* Returns whether the peer's user is this process's user, root, or `also`. */
static bool is_of(int fd, uid_t also)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
	       (peer.uid == 0 || peer.uid == geteuid() || peer.uid == also);
}

/* --- the owner's side ------------------------------------------------------------------------- */

static void serve(struct kvt_admin *a)
{
	int fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC);
	struct talk talk;

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
			/* avoids a busy loop until a descriptor is free */
			(void)poll(NULL, 0, 100);
		return;
	}
	talk = talk_with(fd, a->stop, PEER_S * NANOSECOND);
	if (is_of(fd, geteuid()) && receive_line(&talk, a->request)) {
		a->out[0] = '\0';
		a->answer(a->self, a->request, a->out);
		talk = talk_with(fd, a->stop, PEER_S * NANOSECOND);
		(void)!send_line(&talk, a->out);
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

/* Starts the thread with signals blocked, since the caller's threads handle them, and lets it run
 * on every processor. */
static bool start_thread(struct kvt_admin *a)
{
	cpu_set_t everywhere;

	a->has_thread = kvw_thread_start(&a->thread, run, a) == 0;
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
	a->bound = bind(a->listener, (struct sockaddr *)&address, sizeof(address)) == 0;
	return a->bound && fchmodat(a->folder, NAME, S_IRUSR | S_IWUSR, 0) == 0 &&
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
	}
	if (a->bound)
		(void)unlinkat(a->folder, NAME, 0);
	if (a->listener >= 0)
		close(a->listener);
	if (a->stop >= 0)
		close(a->stop);
	if (a->folder >= 0)
		close(a->folder);
	free(a);
}

/* --- the client's side ------------------------------------------------------------------------ */

/* The limit is for a connect, too: that waits while other connections have their turn. */
static void set_patience(int fd, uint64_t ns)
{
	struct timeval t = {.tv_sec = (time_t)(ns / NANOSECOND),
		.tv_usec = (suseconds_t)(ns % NANOSECOND / 1000 | 1)}; /* 0: without limit */

	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
}

/* Any user that may write to the folder could have put a socket there, so only answers of the
 * folder's owner count. */
static bool is_owners(int folder, int fd)
{
	struct stat info;

	if (fstat(folder, &info) != 0)
		return false;
	if (is_of(fd, info.st_uid))
		return true;
	errno = EPERM;
	return false;
}

static enum kvt_status ask_at(
	int folder, int fd, const char *request, uint64_t timeout_ns, char *answer)
{
	const struct talk talk = talk_with(fd, -1, timeout_ns);
	struct sockaddr_un address;

	address_of(folder, &address);
	set_patience(fd, timeout_ns);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		return errno == ENOENT || errno == ECONNREFUSED ? KVT_MISS : KVT_EIO;
	return is_owners(folder, fd) && send_line(&talk, request) && receive_line(&talk, answer)
		       ? KVT_OK
		       : KVT_EIO;
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
