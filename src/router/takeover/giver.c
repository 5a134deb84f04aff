/*
 * giver.c - gives this process's listening sockets to a new kvway.
 *
 * A peer may do only this: say hello once, receive descriptors of the sockets, and say ready. It
 * runs as the same user (the path has mode 0600, and SO_PEERCRED is checked), so that the checks
 * are against mistakes: a program that is not kvway, one of another version, one that hangs. None
 * of them changes anything in this process before `ready`: the descriptors are copies, and both
 * processes may accept from one socket.
 *
 * Keys of session tickets are given late, when the new process is about to make its TLS contexts,
 * so that few keys are made afterwards.
 *
 * Only one new process at a time has the sockets. A peer has 5 s to say hello, then timeout_ns to
 * be ready.
 */
#include "takeover/giver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "takeover/channel.h"

#define HELLO_NS (5 * KVW_NS_PER_S)
#define BACKLOG  16
/* pause after accepting failed because no descriptor was free */
#define PAUSE_NS (100 * KVW_NS_PER_MS)

/* A process that has connected. */
struct peer {
	int channel; /* -1: free */
	int64_t pid;
	int64_t deadline_ns;
	bool given; /* the peer has copies of the sockets */
	bool waits; /* ... and waits for a snapshot */
	bool asked; /* ... and has asked for the keys of session tickets */
	bool reads_caches; /* the peer is ready, and wants the caches that workers have reported */
};

struct kvw_giver {
	struct kvw_giver_deps deps;
	int listen_fd;    /* -1: none, or closed */
	int64_t pause_until_ns; /* after accepting failed: until then the socket is not polled */
	bool bound;       /* this process has bound deps.path */
	const char *shut; /* why no process may take over now; NULL: one may */
	struct peer peers[KVW_GIVER_PEERS];
	struct peer *heir; /* the peer that has said ready; NULL: none yet */
};

/* --- the path --------------------------------------------------------------------------------- */

static int try_bind(const char *path)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), saved;

	if (fd < 0)
		return -1;
	memcpy(name.sun_path, path, strlen(path));
	/* Set before bind, so that no other user can connect in between. */
	if (fchmod(fd, 0600) == 0 && bind(fd, (const struct sockaddr *)&name, sizeof(name)) == 0 &&
		listen(fd, BACKLOG) == 0)
		return fd;
	saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

/* Returns whether the path is a socket at which no process listens. */
static bool is_left_over(const char *path)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	struct stat file;
	bool refused;
	int fd;

	if (lstat(path, &file) != 0 || !S_ISSOCK(file.st_mode))
		return false;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	memcpy(name.sun_path, path, strlen(path));
	refused = connect(fd, (const struct sockaddr *)&name, sizeof(name)) != 0 &&
		  errno == ECONNREFUSED;
	close(fd);
	return refused;
}

static enum kvw_err open_path(struct kvw_giver *giver, FILE *errors)
{
	const char *path = giver->deps.path;

	if (kvw_sockets_adopt(
		    giver->deps.sockets, KVW_SOCKET_TAKEOVER, path, &giver->listen_fd, 1) == 1)
		return KVW_OK;
	if (strlen(path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path)) {
		fprintf(errors,
			"kvway: takeover.socket: the path is too long for a Unix socket: %s\n",
			path);
		return KVW_EIO;
	}
	giver->listen_fd = try_bind(path);
	if (giver->listen_fd < 0 && errno == EADDRINUSE && is_left_over(path)) {
		(void)unlink(path);
		giver->listen_fd = try_bind(path);
	}
	if (giver->listen_fd < 0) {
		fprintf(errors, "kvway: takeover.socket: cannot listen at %s: %s%s\n", path,
			strerror(errno),
			errno == EADDRINUSE
				? "; if a kvway runs there, --takeover takes over from it"
				: "");
		return KVW_EIO;
	}
	giver->bound = true;
	kvw_sockets_note(giver->deps.sockets, KVW_SOCKET_TAKEOVER, giver->listen_fd);
	return KVW_OK;
}

enum kvw_err kvw_giver_create(
	const struct kvw_giver_deps *deps, FILE *errors, struct kvw_giver **out)
{
	struct kvw_giver *giver = calloc(1, sizeof(*giver));
	enum kvw_err err = KVW_OK;

	if (giver == NULL)
		return KVW_ENOMEM;
	giver->deps = *deps;
	giver->listen_fd = -1;
	for (size_t i = 0; i < KVW_GIVER_PEERS; i++)
		giver->peers[i].channel = -1;
	if (deps->path[0] != '\0')
		err = open_path(giver, errors);
	if (err == KVW_OK)
		*out = giver;
	else
		kvw_giver_destroy(giver);
	return err;
}

void kvw_giver_begin(struct kvw_giver *giver)
{
	giver->bound = giver->listen_fd >= 0;
}

static void stop_listening(struct kvw_giver *giver)
{
	if (giver->listen_fd >= 0)
		close(giver->listen_fd);
	giver->listen_fd = -1;
}

void kvw_giver_destroy(struct kvw_giver *giver)
{
	if (giver == NULL)
		return;
	for (size_t i = 0; i < KVW_GIVER_PEERS; i++)
		if (giver->peers[i].channel >= 0)
			close(giver->peers[i].channel);
	if (giver->bound && giver->heir == NULL)
		(void)unlink(giver->deps.path);
	stop_listening(giver);
	free(giver);
}

/* --- peers ------------------------------------------------------------------------------------ */

_Static_assert(KVW_TAKEOVER_KEYS >= KVW_TLS_TICKETS_MOST, "the keys of a context are one packet");

static void say(struct peer *peer, const struct kvw_takeover_message *message)
{
	if (kvw_takeover_send(peer->channel, message, NULL, 0) != KVW_OK)
		kvw_debug("takeover", "a peer does not listen pid=%lld", (long long)peer->pid);
}

/* Disconnects the peer. If it had the sockets, its takeover has failed. */
static void let_go(struct kvw_giver *giver, struct peer *peer, const char *why, bool tell)
{
	struct kvw_takeover_state *state = giver->deps.state;
	struct kvw_takeover_message message = {.kind = KVW_TAKEOVER_REFUSED};

	(void)snprintf(message.why, sizeof(message.why), "%s", why);
	if (tell)
		say(peer, &message);
	if (peer->given) {
		atomic_fetch_add(&state->failed, 1);
		atomic_store(&state->under_way, false);
		kvw_warn("takeover", "failed: this process serves on pid=%lld why=\"%s\"",
			(long long)peer->pid, why);
	} else if (tell) {
		atomic_fetch_add(&state->refused, 1);
		kvw_warn("takeover", "refused pid=%lld why=\"%s\"", (long long)peer->pid, why);
	}
	close(peer->channel);
	*peer = (struct peer){.channel = -1};
}

static struct peer *free_place(struct kvw_giver *giver)
{
	for (size_t i = 0; i < KVW_GIVER_PEERS; i++)
		if (giver->peers[i].channel < 0)
			return &giver->peers[i];
	return NULL;
}

void kvw_giver_serve_take(struct kvw_giver *giver, int channel, int64_t pid)
{
	struct peer *peer = free_place(giver);

	if (peer == NULL) {
		close(channel);
		return;
	}
	*peer = (struct peer){
		.channel = channel, .pid = pid, .deadline_ns = kvw_clock_ns() + HELLO_NS};
}

static void accept_peers(struct kvw_giver *giver)
{
	int64_t now_ns = kvw_clock_ns();

	while (giver->listen_fd >= 0 && now_ns >= giver->pause_until_ns &&
		free_place(giver) != NULL) {
		int fd = accept4(giver->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		int64_t pid = 0;

		if (fd < 0) {
			if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
				giver->pause_until_ns = now_ns + PAUSE_NS;
			return;
		}
		if (kvw_takeover_peer(fd, &pid)) {
			kvw_giver_serve_take(giver, fd, pid);
			continue;
		}
		atomic_fetch_add(&giver->deps.state->refused, 1);
		kvw_warn("takeover", "refused pid=%lld why=\"a process of another user\"",
			(long long)pid);
		close(fd);
	}
}

/* Sends the sockets of one use and address, several in a packet. *sent counts them. False: the
 * peer's queue is full. */
static bool give_sockets(struct kvw_giver *giver, struct peer *peer, uint32_t *sent)
{
	const struct kvw_sockets *sockets = giver->deps.sockets;
	const struct kvw_socket *socket = kvw_sockets_used(sockets, 0);

	for (size_t n = 0; socket != NULL;) {
		struct kvw_takeover_message message = {
			.kind = KVW_TAKEOVER_SOCKET, .use = socket->use};
		int fds[KVW_TAKEOVER_FDS];

		memcpy(message.address, socket->address, sizeof(message.address));
		while (socket != NULL && message.count < KVW_TAKEOVER_FDS &&
			socket->use == message.use &&
			strcmp(socket->address, message.address) == 0) {
			fds[message.count++] = socket->fd;
			socket = kvw_sockets_used(sockets, ++n);
		}
		if (kvw_takeover_send(peer->channel, &message, fds, message.count) != KVW_OK)
			return false;
		*sent += message.count;
	}
	return true;
}

static struct peer *who_has_sockets(struct kvw_giver *giver)
{
	for (size_t i = 0; i < KVW_GIVER_PEERS; i++)
		if (giver->peers[i].channel >= 0 && giver->peers[i].given)
			return &giver->peers[i];
	return NULL;
}

static void greet(
	struct kvw_giver *giver, struct peer *peer, const struct kvw_takeover_message *hello)
{
	const struct kvw_giver_deps *deps = &giver->deps;
	struct kvw_takeover_message welcome = {.kind = KVW_TAKEOVER_WELCOME,
		.pid = getpid(),
		.version = KVW_VERSION,
		.count = deps->usable(deps->usable_arg),
		.snapshot = deps->keeps,
		.tickets = deps->certificates != NULL};
	struct kvw_takeover_message end = {.kind = KVW_TAKEOVER_END};

	if (giver->shut != NULL || who_has_sockets(giver) != NULL) {
		let_go(giver, peer,
			giver->shut != NULL ? giver->shut : "another process is taking over", true);
		return;
	}
	peer->given = true;
	peer->deadline_ns = kvw_clock_ns() + deps->timeout_ns;
	atomic_fetch_add(&deps->state->asked, 1);
	atomic_store(&deps->state->under_way, true);
	if (kvw_takeover_send(peer->channel, &welcome, NULL, 0) != KVW_OK ||
		!give_sockets(giver, peer, &end.count) ||
		kvw_takeover_send(peer->channel, &end, NULL, 0) != KVW_OK) {
		let_go(giver, peer, "it does not read", false);
		return;
	}
	kvw_info("takeover",
		"asked for: sockets given, serving on until it is ready pid=%lld version=%s "
		"sockets=%u",
		(long long)peer->pid, hello->version[0] != '\0' ? hello->version : "?", end.count);
}

/* Sends the keys of session tickets, one packet for each use. */
static void give_tickets(struct kvw_giver *giver, struct peer *peer)
{
	struct kvw_takeover_message message = {.kind = KVW_TAKEOVER_TICKETS};
	enum kvw_err err = KVW_OK;
	struct kvw_tls_passed passed;
	const char *use;

	for (size_t n = 0; err == KVW_OK && kvw_tls_watch_pass(giver->deps.certificates, n,
						    kvw_clock_ns(), &use, &passed);
		n++) {
		message.use = kvw_socket_use_of(use);
		if (message.use == KVW_SOCKET_USES)
			continue;
		message.count = passed.age_s;
		message.keys_len = passed.len;
		memcpy(message.keys, passed.keys, passed.len);
		err = kvw_takeover_send(peer->channel, &message, NULL, 0);
	}
	explicit_bzero(&passed, sizeof(passed));
	explicit_bzero(message.keys, sizeof(message.keys));
	message.keys_len = message.count = 0;
	if (err == KVW_OK)
		err = kvw_takeover_send(peer->channel, &message, NULL, 0);
	peer->asked = true;
	if (err != KVW_OK)
		let_go(giver, peer, "it does not read", false);
}

/* Reads one packet of a peer. True: there may be more. */
static bool read_peer(struct kvw_giver *giver, struct peer *peer)
{
	struct kvw_takeover_message message;
	int fds[KVW_TAKEOVER_FDS];
	size_t count = 0;
	enum kvw_err err = kvw_takeover_receive(peer->channel, &message, fds, &count);

	while (count > 0)
		close(fds[--count]); /* no message that a peer sends has descriptors */
	if (err == KVW_EAGAIN)
		return false;
	if (err == KVW_ECLOSED)
		let_go(giver, peer, "it ended before it was ready", false);
	else if (err == KVW_EINVAL)
		let_go(giver, peer, "it speaks another version of the takeover's protocol", true);
	else if (err != KVW_OK)
		let_go(giver, peer, "this is no message of a takeover", true);
	else if (message.kind == KVW_TAKEOVER_HELLO && !peer->given)
		greet(giver, peer, &message);
	else if (message.kind == KVW_TAKEOVER_SNAPSHOT && peer->given && giver->deps.keeps &&
		 !peer->waits)
		peer->waits = true;
	else if (message.kind == KVW_TAKEOVER_TICKETS && peer->given &&
		 giver->deps.certificates != NULL && !peer->asked)
		give_tickets(giver, peer);
	else if (message.kind == KVW_TAKEOVER_READY && peer->given && giver->heir == NULL) {
		giver->heir = peer;
		peer->reads_caches = message.caches > 0;
	} else
		let_go(giver, peer, "this message is not expected now", true);
	return peer->channel >= 0 && giver->heir != peer;
}

/* --- turns ------------------------------------------------------------------------------------ */

static void wait_at_most(int64_t left_ns, int *wait_ms)
{
	int64_t left_ms = left_ns < 0 ? 0 : left_ns / KVW_NS_PER_MS + 1;

	if (*wait_ms < 0 || left_ms < *wait_ms)
		*wait_ms = (int)left_ms;
}

size_t kvw_giver_poll(const struct kvw_giver *giver, struct pollfd *polls, int *wait_ms)
{
	int64_t now_ns = kvw_clock_ns();
	size_t count = 0, free_places = 0;

	for (size_t i = 0; i < KVW_GIVER_PEERS; i++) {
		const struct peer *peer = &giver->peers[i];

		free_places += peer->channel < 0;
		if (peer->channel < 0)
			continue;
		polls[count++] = (struct pollfd){.fd = peer->channel, .events = POLLIN};
		wait_at_most(peer->deadline_ns - now_ns, wait_ms);
	}
	if (giver->listen_fd < 0 || free_places == 0)
		return count;
	if (now_ns < giver->pause_until_ns)
		wait_at_most(giver->pause_until_ns - now_ns, wait_ms);
	else
		polls[count++] = (struct pollfd){.fd = giver->listen_fd, .events = POLLIN};
	return count;
}

bool kvw_giver_turn(struct kvw_giver *giver)
{
	int64_t now_ns = kvw_clock_ns();

	if (giver->heir != NULL)
		return false;
	accept_peers(giver);
	for (size_t i = 0; i < KVW_GIVER_PEERS; i++) {
		struct peer *peer = &giver->peers[i];

		while (peer->channel >= 0 && giver->heir == NULL && read_peer(giver, peer))
			;
		if (peer->channel >= 0 && giver->heir == NULL && now_ns >= peer->deadline_ns)
			let_go(giver, peer,
				peer->given ? "it was not ready in time" : "it said nothing", true);
	}
	return giver->heir != NULL;
}

bool kvw_giver_owes_snapshot(const struct kvw_giver *giver)
{
	for (size_t i = 0; i < KVW_GIVER_PEERS; i++)
		if (giver->peers[i].channel >= 0 && giver->peers[i].waits)
			return true;
	return false;
}

void kvw_giver_give_snapshot_take(struct kvw_giver *giver, int fd)
{
	struct kvw_takeover_message message = {.kind = KVW_TAKEOVER_SNAPSHOT, .count = fd >= 0};

	for (size_t i = 0; i < KVW_GIVER_PEERS; i++) {
		struct peer *peer = &giver->peers[i];

		if (peer->channel < 0 || !peer->waits)
			continue;
		peer->waits = false;
		if (kvw_takeover_send(peer->channel, &message, &fd, message.count) != KVW_OK)
			kvw_debug("takeover", "a peer does not listen pid=%lld",
				(long long)peer->pid);
	}
	if (fd >= 0)
		close(fd);
}

int64_t kvw_giver_heir(const struct kvw_giver *giver)
{
	return giver->heir->pid;
}

bool kvw_giver_heir_reads_caches(const struct kvw_giver *giver)
{
	return giver->heir->reads_caches;
}

void kvw_giver_give_caches_take(struct kvw_giver *giver, int fd)
{
	struct kvw_takeover_message message = {.kind = KVW_TAKEOVER_CACHES, .count = 1};

	if (kvw_takeover_send(giver->heir->channel, &message, &fd, 1) != KVW_OK)
		kvw_debug(
			"takeover", "a peer does not listen pid=%lld", (long long)giver->heir->pid);
	close(fd);
}

void kvw_giver_say_goodbye(struct kvw_giver *giver)
{
	struct kvw_takeover_state *state = giver->deps.state;
	struct peer *heir = giver->heir;

	atomic_store(&state->heir, heir->pid);
	atomic_store(&state->under_way, false);
	atomic_store(&state->handed, true);
	say(heir, &(struct kvw_takeover_message){.kind = KVW_TAKEOVER_GOODBYE, .pid = getpid()});
	stop_listening(giver); /* the path belongs to the new process now */
	for (size_t i = 0; i < KVW_GIVER_PEERS; i++)
		if (giver->peers[i].channel >= 0 && &giver->peers[i] != heir)
			let_go(giver, &giver->peers[i], "another process has taken over", true);
	close(heir->channel);
	heir->channel = -1;
}

void kvw_giver_close(struct kvw_giver *giver, const char *why)
{
	giver->shut = why;
	for (size_t i = 0; i < KVW_GIVER_PEERS; i++)
		if (giver->peers[i].channel >= 0)
			let_go(giver, &giver->peers[i], why, true);
}
