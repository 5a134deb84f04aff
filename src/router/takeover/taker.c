/*
 * taker.c - takes the listening sockets of a running kvway over.
 *
 * If the old process ends in the middle, the takeover goes on: this process has the sockets, and no
 * other process serves them. If the old process says `refused`, or sends a message that is
 * unreadable or unexpected, it lives and goes on serving, and then this process must not serve.
 */
#include "takeover/taker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "takeover/channel.h"

#define ANSWER_NS  (5 * KVW_NS_PER_S)  /* longest wait for each answer of the old process */
#define WHY_BYTES  256                 /* of an explanation */
/* after this time without a goodbye the old process counts as dead */
#define GOODBYE_NS (10 * KVW_NS_PER_S)

struct kvw_taker {
	struct kvw_takeover_state *state;
	int channel; /* -1: the old process has gone */
	int64_t asked_ns;
	uint32_t usable_before;
	bool keeps; /* the old process offers a snapshot */
	bool seals; /* ... and the keys of session tickets */
};

/* Waits for the next message with its descriptors. KVW_ETIMEDOUT; otherwise the errors of
 * kvw_takeover_receive. */
static enum kvw_err hear(struct kvw_taker *taker, int64_t wait_ns,
	struct kvw_takeover_message *message, int fds[KVW_TAKEOVER_FDS], size_t *count)
{
	int64_t until_ns = kvw_clock_ns() + wait_ns;

	*count = 0;
	for (;;) {
		enum kvw_err err = kvw_takeover_receive(taker->channel, message, fds, count);
		int64_t left_ns = until_ns - kvw_clock_ns();
		struct pollfd news = {.fd = taker->channel, .events = POLLIN};

		if (err != KVW_EAGAIN)
			return err;
		if (left_ns <= 0)
			return KVW_ETIMEDOUT;
		(void)poll(&news, 1, (int)(left_ns / KVW_NS_PER_MS) + 1);
	}
}

/* Connects, and waits if the old process's queue is full of others. */
static bool join(int fd, const struct sockaddr_un *name)
{
	const struct timespec pause = {.tv_nsec = 10 * KVW_NS_PER_MS};
	int64_t until_ns = kvw_clock_ns() + ANSWER_NS;

	while (connect(fd, (const struct sockaddr *)name, sizeof(*name)) != 0) {
		if (errno != EAGAIN || kvw_clock_ns() > until_ns)
			return false;
		(void)nanosleep(&pause, NULL);
	}
	return true;
}

static int open_channel(const char *from, FILE *errors)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int64_t pid;
	int fd;

	if (strncmp(from, "fd:", 3) == 0) {
		fd = (int)strtol(from + 3, NULL, 10);
		if (fd > 2 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0)
			return fd;
		fprintf(errors, "kvway: --takeover %s: no such descriptor\n", from);
		return -1;
	}
	if (strlen(from) >= sizeof(name.sun_path)) {
		fprintf(errors, "kvway: --takeover %s: the path is too long for a Unix socket\n",
			from);
		return -1;
	}
	memcpy(name.sun_path, from, strlen(from));
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0 || !join(fd, &name)) {
		fprintf(errors,
			"kvway: --takeover %s: %s; no kvway with this takeover.socket runs there\n",
			from, strerror(errno));
	} else if (!kvw_takeover_peer(fd, &pid)) {
		fprintf(errors, "kvway: --takeover %s: a process of another user listens there\n",
			from);
	} else {
		return fd;
	}
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Puts the sockets of a packet into the set. False: they are not as the message says, and all are
 * closed. */
static bool take_sockets(struct kvw_sockets *sockets, const struct kvw_takeover_message *message,
	const int *fds, size_t count, char *why)
{
	bool good = true;

	for (size_t i = 0; i < count; i++) {
		if (!good || message->use >= KVW_SOCKET_ANY) { /* of a later version */
			close(fds[i]);
			continue;
		}
		good = kvw_sockets_offer_take(sockets, message->use, fds[i]) == KVW_OK;
		if (!good)
			(void)snprintf(why, WHY_BYTES,
				"what it hands over as use=%s address=%s cannot be used as a "
				"listening socket",
				kvw_socket_use_name(message->use), message->address);
	}
	return good;
}

/* Writes why the answer to `asked` failed (NULL: nothing was asked). */
static void explain_failure(
	char *why, enum kvw_err err, const struct kvw_takeover_message *message, const char *asked)
{
	char what[64] = "what it says unasked";

	if (asked != NULL)
		(void)snprintf(what, sizeof(what), "its answer to %s", asked);
	if (err == KVW_OK && message->kind == KVW_TAKEOVER_REFUSED)
		(void)snprintf(why, WHY_BYTES, "%s",
			message->why[0] != '\0' ? message->why : "it does not say why");
	else if (err == KVW_OK)
		(void)snprintf(why, WHY_BYTES, "%s is not to be expected: %s", what,
			kvw_takeover_kind_name(message->kind));
	else if (err == KVW_ETIMEDOUT)
		(void)snprintf(why, WHY_BYTES, "%s does not come", what);
	else if (err == KVW_ECLOSED)
		(void)snprintf(why, WHY_BYTES, "it has closed the connection");
	else if (err == KVW_EINVAL)
		(void)snprintf(why, WHY_BYTES,
			"%s is of another version of the takeover's protocol", what);
	else if (err == KVW_ELIMIT)
		(void)snprintf(
			why, WHY_BYTES, "%s is longer than %d bytes", what, KVW_TAKEOVER_BYTES);
	else if (err == KVW_ENOTFOUND)
		(void)snprintf(
			why, WHY_BYTES, "%s does not bring the descriptors that it names", what);
	else
		(void)snprintf(why, WHY_BYTES, "%s is no message of a takeover", what);
}

/* Returns false on failure; why[] has the reason. */
static bool hear_sockets(struct kvw_taker *taker, struct kvw_sockets *sockets, char *why)
{
	struct kvw_takeover_message message;
	int fds[KVW_TAKEOVER_FDS];
	size_t count;
	uint32_t got = 0;
	enum kvw_err err;

	for (;;) {
		err = hear(taker, ANSWER_NS, &message, fds, &count);
		if (err != KVW_OK || message.kind != KVW_TAKEOVER_SOCKET)
			break;
		if (!take_sockets(sockets, &message, fds, count, why))
			return false;
		got += (uint32_t)count;
	}
	if (err == KVW_OK && message.kind == KVW_TAKEOVER_END && message.count == got)
		return true;
	if (err == KVW_OK && message.kind == KVW_TAKEOVER_END)
		(void)snprintf(why, WHY_BYTES,
			"it has handed %u sockets over and says that there were %u", got,
			message.count);
	else
		explain_failure(why, err, &message, "hello");
	while (count > 0)
		close(fds[--count]);
	return false;
}

static bool ask_giver(struct kvw_taker *taker, struct kvw_sockets *sockets, char *why)
{
	struct kvw_takeover_message message = {
		.kind = KVW_TAKEOVER_HELLO, .pid = getpid(), .version = KVW_VERSION};
	int fds[KVW_TAKEOVER_FDS];
	size_t count = 0;
	enum kvw_err err;

	/* The old process may have refused and closed already: its message is read before the
	 * failure counts. */
	(void)!kvw_takeover_send(taker->channel, &message, NULL, 0);
	err = hear(taker, ANSWER_NS, &message, fds, &count);
	while (count > 0)
		close(fds[--count]);
	if (err != KVW_OK || message.kind != KVW_TAKEOVER_WELCOME) {
		explain_failure(why, err, &message, "hello");
		return false;
	}
	atomic_store(&taker->state->forebear, message.pid);
	taker->usable_before = message.count;
	taker->keeps = message.snapshot > 0;
	taker->seals = message.tickets > 0;
	kvw_info("takeover", "taking over from pid=%lld version=%s", (long long)message.pid,
		message.version);
	return hear_sockets(taker, sockets, why);
}

enum kvw_err kvw_taker_create(const char *from, struct kvw_sockets *sockets,
	struct kvw_takeover_state *state, FILE *errors, struct kvw_taker **out)
{
	struct kvw_taker *taker = calloc(1, sizeof(*taker));
	enum kvw_err err = KVW_EIO;
	char why[WHY_BYTES];

	if (taker == NULL)
		return KVW_ENOMEM;
	taker->state = state;
	taker->asked_ns = kvw_clock_ns();
	taker->channel = open_channel(from, errors);
	if (taker->channel >= 0 && ask_giver(taker, sockets, why))
		err = KVW_OK;
	else if (taker->channel >= 0)
		fprintf(errors, "kvway: --takeover %s: the running kvway does not hand over: %s\n",
			from, why);
	if (err == KVW_OK)
		*out = taker;
	else
		kvw_taker_destroy(taker);
	return err;
}

void kvw_taker_destroy(struct kvw_taker *taker)
{
	if (taker == NULL)
		return;
	if (taker->channel >= 0)
		close(taker->channel);
	free(taker);
}

uint32_t kvw_taker_usable_before(const struct kvw_taker *taker)
{
	return taker->usable_before;
}

/* Decides by the answer to `asked` (NULL: nothing was asked) whether the takeover goes on. The old
 * process counts as dead only if it has gone or is silent for long; one that sends an unreadable
 * message is alive, and serves. */
static bool goes_on(struct kvw_taker *taker, enum kvw_err err, struct kvw_takeover_message *message,
	const char *asked, char *why)
{
	if (err == KVW_OK)
		explicit_bzero(message->keys, sizeof(message->keys));
	if (err == KVW_OK &&
		(message->kind == KVW_TAKEOVER_SNAPSHOT || message->kind == KVW_TAKEOVER_TICKETS))
		return true; /* a message that comes too late is ignored */
	explain_failure(why, err, message, asked);
	if (err != KVW_ECLOSED && err != KVW_ETIMEDOUT)
		return false;
	kvw_warn("takeover", "the process before us is gone: %s", why);
	close(taker->channel);
	taker->channel = -1;
	return true;
}

bool kvw_taker_snapshot(struct kvw_taker *taker, int64_t wait_ns, int *fd, char *why)
{
	struct kvw_takeover_message message = {.kind = KVW_TAKEOVER_SNAPSHOT};
	int fds[KVW_TAKEOVER_FDS];
	size_t count = 0;
	enum kvw_err err;

	*fd = -1;
	if (taker->channel < 0 || !taker->keeps)
		return true;
	(void)!kvw_takeover_send(taker->channel, &message, NULL, 0);
	err = hear(taker, wait_ns, &message, fds, &count);
	if (err == KVW_OK && message.kind == KVW_TAKEOVER_SNAPSHOT && count == 1)
		*fd = fds[--count];
	while (count > 0)
		close(fds[--count]);
	/* Without a snapshot the new process only starts with less knowledge, so that the takeover
	 * goes on, and the old process does not count as dead. */
	if (err == KVW_OK || err == KVW_ECLOSED || err == KVW_EINVAL)
		return goes_on(taker, err, &message, "snapshot", why);
	explain_failure(why, err, &message, "snapshot");
	kvw_warn("takeover", "no snapshot from the process before us: %s", why);
	return true;
}

static void inherit(struct kvw_tls_watch *certificates, struct kvw_takeover_message *message)
{
	struct kvw_tls_passed passed = {.len = message->keys_len, .age_s = message->count};

	if (message->use < KVW_SOCKET_USES && passed.len <= sizeof(passed.keys)) {
		memcpy(passed.keys, message->keys, passed.len);
		if (!kvw_tls_watch_inherit(certificates, kvw_socket_use_name(message->use),
			    kvw_clock_ns(), &passed))
			kvw_warn("takeover", "keys of session tickets are left out use=%s",
				kvw_socket_use_name(message->use));
	}
	explicit_bzero(&passed, sizeof(passed));
	explicit_bzero(message->keys, sizeof(message->keys));
}

bool kvw_taker_tickets(struct kvw_taker *taker, struct kvw_tls_watch *certificates, char *why)
{
	struct kvw_takeover_message message = {.kind = KVW_TAKEOVER_TICKETS};
	int fds[KVW_TAKEOVER_FDS];
	size_t count = 0, uses = 0;
	enum kvw_err err;

	if (taker->channel < 0 || !taker->seals)
		return true;
	(void)!kvw_takeover_send(taker->channel, &message, NULL, 0);
	for (;;) {
		err = hear(taker, ANSWER_NS, &message, fds, &count);
		while (count > 0)
			close(fds[--count]); /* a snapshot that came too late */
		if (err != KVW_OK || (message.kind != KVW_TAKEOVER_TICKETS &&
					     message.kind != KVW_TAKEOVER_SNAPSHOT))
			break;
		if (message.kind == KVW_TAKEOVER_SNAPSHOT)
			continue;
		if (message.keys_len == 0)
			return true;
		if (uses++ == KVW_TLS_HEIRLOOMS) {
			err = KVW_EPROTO;
			break;
		}
		inherit(certificates, &message);
	}
	if (err != KVW_ETIMEDOUT)
		return goes_on(taker, err, &message, "tickets", why);
	kvw_warn("takeover",
		"no keys of session tickets from the process before us: its answer does not come");
	return true;
}

bool kvw_taker_may_go_on(struct kvw_taker *taker, char *why)
{
	struct kvw_takeover_message message;
	int fds[KVW_TAKEOVER_FDS];
	size_t count = 0;
	enum kvw_err err;

	if (taker->channel < 0)
		return true;
	err = kvw_takeover_receive(taker->channel, &message, fds, &count);
	while (count > 0)
		close(fds[--count]);
	return err == KVW_EAGAIN || goes_on(taker, err, &message, NULL, why);
}

/* Waits for the next message before goodbye; keeps the descriptor of the caches that workers have
 * reported to the old process. */
static enum kvw_err hear_end(
	struct kvw_taker *taker, struct kvw_takeover_message *message, int *caches)
{
	int fds[KVW_TAKEOVER_FDS];
	size_t count = 0;
	enum kvw_err err = hear(taker, GOODBYE_NS, message, fds, &count);

	if (err == KVW_OK && message->kind == KVW_TAKEOVER_CACHES && count == 1 && *caches < 0)
		*caches = fds[--count];
	while (count > 0)
		close(fds[--count]);
	return err;
}

static bool comes_before_goodbye(enum kvw_takeover_kind kind)
{
	return kind == KVW_TAKEOVER_SNAPSHOT || kind == KVW_TAKEOVER_TICKETS ||
	       kind == KVW_TAKEOVER_CACHES;
}

bool kvw_taker_ready(struct kvw_taker *taker, int *caches, char *why)
{
	struct kvw_takeover_message message = {
		.kind = KVW_TAKEOVER_READY, .pid = getpid(), .caches = 1};
	bool lost = false, first_loss;
	enum kvw_err err;

	*caches = -1;
	if (taker->channel >= 0) {
		/* The old process may have refused and closed already: its message is read before
		 * the failure counts. */
		(void)!kvw_takeover_send(taker->channel, &message, NULL, 0);
		do {
			err = hear_end(taker, &message, caches);
			/* If no descriptor is free for the reported caches, only they are lost: the
			 * old process says goodbye all the same. */
			first_loss = err == KVW_ENOTFOUND && !lost;
			lost = lost || first_loss;
		} while (first_loss || (err == KVW_OK && comes_before_goodbye(message.kind)));
		if ((err != KVW_OK || message.kind != KVW_TAKEOVER_GOODBYE) &&
			!goes_on(taker, err, &message, "ready", why)) {
			if (*caches >= 0)
				close(*caches);
			*caches = -1;
			return false;
		}
	}
	atomic_store(&taker->state->took_ns, kvw_clock_ns() - taker->asked_ns);
	return true;
}
