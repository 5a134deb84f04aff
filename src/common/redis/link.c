/*
 * link.c - one connection to one server.
 *
 *	commands:  [first ... | unsent ... last]      in the order of their requests and replies
 *	            being answered, partly or not yet sent
 *
 * Replies come in the order of requests, so one list is enough: the next reply belongs to its first
 * command, requests are sent from `unsent` on. During the login the login's own commands form the
 * list, and the others wait.
 *
 * Receiving. One system call fills the rest of the value's own memory and then a small buffer, so
 * that it also receives the end of one value and the head of the next. Of each value at most that
 * buffer's size is copied.
 *
 * A link ends by the server or the network, by bytes that are no reply, by a late reply (the caller
 * may free the reply's memory), or by a login that is refused or takes too long. The link keeps the
 * cause as text, and its owner takes back its commands.
 */
#include "redis/link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/resp.h"
#include "redis/wire.h"

#define BUFFER_BYTES 16384
/* most system calls of one kind in one turn, so that other links get their turn */
#define TURN_CALLS   16
#define SEND_PIECES  128 /* most pieces in one system call */
#define ROOM_PIECES  (KVW_REDIS_MAX_PARTS + 1)

static const char asking_request[] = "*1\r\n$6\r\nASKING\r\n";
#define ASKING_LEN (sizeof(asking_request) - 1)

struct kvw_redis_link {
	void *owner;
	int epoll;
	enum kvw_redis_link_state state;
	bool refused; /* the login was refused */
	bool reading; /* the parser is reading the reply to the first command */
	bool asked;   /* the reply to the ASKING before the first command has come */
	int64_t give_up_ns;
	struct kvw_redis_wire wire;
	struct kvw_redis_resp resp;
	SSL_CTX *tls;
	const struct kvw_redis_link_login *who;
	struct kvw_redis_commands commands;
	struct kvw_redis_commands login_commands;
	/* first command of the present list that was not sent; NULL: none */
	struct kvw_redis_command *unsent;
	struct kvw_redis_command asking;  /* the command that gets the reply to ASKING */
	uint64_t bytes;                   /* bytes of all commands */
	struct kvw_redis_login login;
	char why[KVW_REDIS_REASON];
	char host[KVW_REDIS_URL_TEXT];
	char buffer[BUFFER_BYTES];
};

struct kvw_redis_link *kvw_redis_link_create(int epoll, void *owner)
{
	struct kvw_redis_link *l = calloc(1, sizeof(*l));

	if (l == NULL)
		return NULL;
	l->epoll = epoll;
	l->owner = owner;
	l->wire.fd = -1;
	return l;
}

void kvw_redis_link_destroy(struct kvw_redis_link *l)
{
	if (l == NULL)
		return;
	kvw_redis_link_close(l, "ended");
	free(l);
}

/* --- states ----------------------------------------------------------------------------------- */

void kvw_redis_link_close(struct kvw_redis_link *l, const char *why)
{
	if (l->state == KVW_REDIS_LINK_CLOSED)
		return;
	snprintf(l->why, sizeof(l->why), "%s", why);
	l->state = KVW_REDIS_LINK_CLOSED;
	kvw_redis_wire_close(&l->wire);
	kvw_redis_resp_abandon(&l->resp);
	kvw_redis_login_end(&l->login);
	l->login_commands = (struct kvw_redis_commands){0};
	l->unsent = NULL;
	l->reading = l->asked = false;
}

/* Closes the link. The cause is the connection's, with the state in which the link was. */
static void close_failed(struct kvw_redis_link *l)
{
	static const char *const during[] = {
		[KVW_REDIS_LINK_CLOSED] = "",
		[KVW_REDIS_LINK_CONNECTING] = "cannot connect: ",
		[KVW_REDIS_LINK_SECURING] = "",
		[KVW_REDIS_LINK_LOGIN] = "during login: ",
		[KVW_REDIS_LINK_READY] = "",
	};
	char why[KVW_REDIS_REASON];

	snprintf(why, sizeof(why), "%s%.120s", during[l->state], l->wire.why);
	kvw_redis_link_close(l, why);
}

void kvw_redis_link_open(
	struct kvw_redis_link *l, const struct kvw_redis_link_target *target, int64_t give_up_ns)
{
	l->state = KVW_REDIS_LINK_CONNECTING;
	l->refused = false;
	l->why[0] = '\0';
	l->give_up_ns = give_up_ns;
	l->tls = target->tls;
	l->who = target->login;
	snprintf(l->host, sizeof(l->host), "%s", target->host != NULL ? target->host : "");
	if (!kvw_redis_wire_open(&l->wire, target->address, target->address_len, l->epoll, l))
		close_failed(l);
}

static void begin_login(struct kvw_redis_link *l)
{
	l->state = KVW_REDIS_LINK_LOGIN;
	if (kvw_redis_login_begin(&l->login, l->who, &l->login_commands) != KVW_OK)
		kvw_redis_link_close(l, "out of memory");
	else
		l->unsent = l->login_commands.first;
}

static void end_login(struct kvw_redis_link *l)
{
	kvw_redis_login_end(&l->login);
	l->state = KVW_REDIS_LINK_READY;
	l->unsent = l->commands.first;
}

static void refuse_login(struct kvw_redis_link *l, const char *text)
{
	char why[KVW_REDIS_REASON];

	snprintf(why, sizeof(why), "login refused: %.140s", text);
	l->refused = true;
	kvw_redis_link_close(l, why);
}

/* --- commands --------------------------------------------------------------------------------- */

static struct kvw_redis_commands *current(struct kvw_redis_link *l)
{
	return l->state == KVW_REDIS_LINK_LOGIN ? &l->login_commands : &l->commands;
}

void kvw_redis_link_submit(struct kvw_redis_link *l, struct kvw_redis_command *command)
{
	command->progress.sent = 0;
	kvw_redis_commands_add(&l->commands, command);
	l->bytes += command->progress.bytes;
	if (l->state == KVW_REDIS_LINK_READY && l->unsent == NULL)
		l->unsent = command;
}

static void take_back(struct kvw_redis_link *l, struct kvw_redis_command *command)
{
	if (l->unsent == command)
		l->unsent = command->next;
	kvw_redis_commands_remove(&l->commands, command);
	l->bytes -= command->progress.bytes;
}

void kvw_redis_link_cancel(struct kvw_redis_link *l, struct kvw_redis_command *command)
{
	/* a TLS record that is partly sent may contain the first bytes of a command that counts as
	 * not sent */
	bool touched = command->progress.sent > 0 || l->wire.blocked;

	if (touched && l->state != KVW_REDIS_LINK_CLOSED)
		kvw_redis_link_close(l, "a reply did not come in time");
	take_back(l, command);
}

struct kvw_redis_command *kvw_redis_link_take(struct kvw_redis_link *l)
{
	struct kvw_redis_command *c = l->commands.first;

	if (c != NULL)
		take_back(l, c);
	return c;
}

/* --- sending ---------------------------------------------------------------------------------- */

static uint64_t request_bytes(const struct kvw_redis_command *c)
{
	uint64_t bytes = c->progress.asking ? ASKING_LEN : 0;

	for (uint32_t i = 0; i < c->part_count; i++)
		bytes += c->parts[i].iov_len;
	return bytes;
}

/* Appends a piece without its first *skip bytes, and lowers *skip by the number of bytes left
 * out. */
static size_t add_piece(
	struct iovec *pieces, size_t n, const void *data, size_t len, uint64_t *skip)
{
	if (*skip >= len) {
		*skip -= len;
		return n;
	}
	pieces[n] = (struct iovec){.iov_base = (char *)data + *skip, .iov_len = len - *skip};
	*skip = 0;
	return n + 1;
}

/* Collects the pieces of requests from `unsent` on, without the bytes that are sent already. */
static size_t gather(const struct kvw_redis_link *l, struct iovec *pieces)
{
	size_t n = 0;

	for (const struct kvw_redis_command *c = l->unsent; c != NULL; c = c->next) {
		uint64_t skip = c->progress.sent;

		if (n == SEND_PIECES)
			break;
		if (c->progress.asking)
			n = add_piece(pieces, n, asking_request, ASKING_LEN, &skip);
		for (uint32_t i = 0; i < c->part_count && n < SEND_PIECES; i++)
			n = add_piece(pieces, n, c->parts[i].iov_base, c->parts[i].iov_len, &skip);
	}
	return n;
}

static void sent(struct kvw_redis_link *l, uint64_t bytes)
{
	while (l->unsent != NULL) {
		struct kvw_redis_command *c = l->unsent;
		uint64_t left = request_bytes(c) - c->progress.sent;

		if (bytes < left) {
			c->progress.sent += bytes;
			return;
		}
		c->progress.sent += left;
		bytes -= left;
		l->unsent = c->next;
	}
}

/* --- receiving -------------------------------------------------------------------------------- */

/* Makes the parser read the reply to the command that is next. Returns false if no command waits
 * for a reply. */
static bool begin_reply(struct kvw_redis_link *l)
{
	struct kvw_redis_command *c = current(l)->first;

	/* a server with too many clients sends an error before it gets any request */
	if (c == NULL || (c->progress.sent == 0 && l->state == KVW_REDIS_LINK_READY)) {
		kvw_redis_link_close(l, "the server sent a reply without a command");
		return false;
	}
	if (c->progress.asking && !l->asked) {
		l->asking = (struct kvw_redis_command){0};
		c = &l->asking;
	}
	kvw_redis_resp_begin(&l->resp, c);
	l->reading = true;
	return true;
}

static void login_replied(struct kvw_redis_link *l)
{
	bool early = l->login_commands.first == l->unsent;
	struct kvw_redis_command *c = kvw_redis_commands_take(&l->login_commands);
	const char *complaint = kvw_redis_login_judge(&l->login, c);

	if (complaint == NULL && early)
		complaint = "answered before it was asked";
	if (complaint != NULL)
		refuse_login(l, complaint);
	else if (l->login_commands.count == 0)
		end_login(l);
}

/* Called at the end of the reply to the first command, also when the bytes were no reply
 * (KVW_EPROTO). */
static void replied(struct kvw_redis_link *l, struct kvw_redis_commands *answered)
{
	struct kvw_redis_command *c = l->commands.first;
	bool early = c == l->unsent;

	if (c->progress.asking && !l->asked) {
		l->asked = true;
		return;
	}
	l->asked = false;
	c->progress.asking = false;
	take_back(l, c);
	kvw_redis_commands_add(answered, c);
	/* the reply came before the whole request was sent: the server would take the rest for
	 * another request */
	if (early)
		kvw_redis_link_close(l, c->reply == KVW_REDIS_ERROR
						? c->text
						: "the server answered before it was asked");
}

/* Called when the received bytes are no reply: ends their command with KVW_EPROTO, unless it is one
 * of the login. */
static void corrupt(struct kvw_redis_link *l, struct kvw_redis_commands *answered)
{
	struct kvw_redis_command *c = l->commands.first;
	char why[KVW_REDIS_REASON];

	snprintf(why, sizeof(why), "not Redis' protocol: %s", l->resp.why);
	if (l->state == KVW_REDIS_LINK_READY && c != NULL) {
		take_back(l, c);
		c->status = KVW_EPROTO;
		c->progress.asking = false;
		snprintf(c->text, sizeof(c->text), "%s", why);
		kvw_redis_commands_add(answered, c);
	}
	kvw_redis_link_close(l, why);
}

/* Parses bytes that were received into the buffer. */
static void take_bytes(
	struct kvw_redis_link *l, const char *data, size_t len, struct kvw_redis_commands *answered)
{
	while (len > 0 && l->state != KVW_REDIS_LINK_CLOSED) {
		enum kvw_redis_resp_state state;
		size_t used;

		if (!l->reading && !begin_reply(l))
			return;
		state = kvw_redis_resp_feed(&l->resp, data, len, &used);
		data += used;
		len -= used;
		if (state == KVW_REDIS_RESP_MORE)
			return;
		l->reading = false;
		if (state == KVW_REDIS_RESP_BROKEN)
			corrupt(l, answered);
		else if (l->state == KVW_REDIS_LINK_LOGIN)
			login_replied(l);
		else
			replied(l, answered);
	}
}

/* Receives. Returns true if it stopped before the socket was empty. */
static bool receive_turn(struct kvw_redis_link *l, struct kvw_redis_commands *answered)
{
	struct iovec pieces[ROOM_PIECES + 1];

	for (int calls = 0; l->state != KVW_REDIS_LINK_CLOSED; calls++) {
		size_t n = l->reading ? kvw_redis_resp_room(&l->resp, pieces, ROOM_PIECES) : 0;
		uint64_t room = 0, direct;
		ssize_t got;

		if (calls == TURN_CALLS)
			return true;
		for (size_t i = 0; i < n; i++)
			room += pieces[i].iov_len;
		pieces[n] = (struct iovec){.iov_base = l->buffer, .iov_len = sizeof(l->buffer)};
		got = kvw_redis_wire_receive(&l->wire, pieces, n + 1);
		if (got < 0)
			close_failed(l);
		if (got <= 0)
			break;
		direct = (uint64_t)got < room ? (uint64_t)got : room;
		if (direct > 0)
			kvw_redis_resp_arrived(&l->resp, direct);
		take_bytes(l, l->buffer, (size_t)((uint64_t)got - direct), answered);
	}
	return false;
}

/* Called when sending has failed: reads what the server sent before, which may have the reason. */
static void hear_last_words(struct kvw_redis_link *l, struct kvw_redis_commands *answered)
{
	char why[KVW_REDIS_WIRE_WHY];

	memcpy(why, l->wire.why, sizeof(why));
	l->wire.why[0] = '\0';
	l->wire.readable = true;
	while (receive_turn(l, answered))
		;
	if (l->state == KVW_REDIS_LINK_CLOSED)
		return;
	memcpy(l->wire.why, why, sizeof(why));
	close_failed(l);
}

/* Sends. Returns true if it stopped before the socket was full. */
static bool send_turn(struct kvw_redis_link *l, struct kvw_redis_commands *answered)
{
	struct iovec pieces[SEND_PIECES];

	for (int calls = 0; l->unsent != NULL; calls++) {
		ssize_t n;

		if (calls == TURN_CALLS)
			return true;
		n = kvw_redis_wire_send(&l->wire, pieces, gather(l, pieces));
		if (n < 0)
			hear_last_words(l, answered);
		if (n <= 0)
			return false;
		sent(l, (uint64_t)n);
	}
	return false;
}

/* --- turns ------------------------------------------------------------------------------------ */

void kvw_redis_link_event(struct kvw_redis_link *l, uint32_t events)
{
	if (l->state != KVW_REDIS_LINK_CLOSED)
		kvw_redis_wire_event(&l->wire, events);
}

/* Continues connecting and TLS. */
static void get_ready(struct kvw_redis_link *l)
{
	enum kvw_redis_wire_go go = KVW_REDIS_WIRE_WAIT;

	if (l->state == KVW_REDIS_LINK_CONNECTING) {
		go = kvw_redis_wire_connected(&l->wire);
		if (go == KVW_REDIS_WIRE_GO && l->tls != NULL) {
			go = kvw_redis_wire_secure(&l->wire, l->tls, l->host)
				     ? KVW_REDIS_WIRE_WAIT
				     : KVW_REDIS_WIRE_FAILED;
			l->state = KVW_REDIS_LINK_SECURING;
		}
	}
	if (l->state == KVW_REDIS_LINK_SECURING && go != KVW_REDIS_WIRE_FAILED)
		go = kvw_redis_wire_handshake(&l->wire);
	if (go == KVW_REDIS_WIRE_FAILED)
		close_failed(l);
	else if (go == KVW_REDIS_WIRE_GO)
		begin_login(l);
}

bool kvw_redis_link_turn(struct kvw_redis_link *l, struct kvw_redis_commands *answered)
{
	bool more = false;

	if (l->state == KVW_REDIS_LINK_CONNECTING || l->state == KVW_REDIS_LINK_SECURING)
		get_ready(l);
	if (l->state == KVW_REDIS_LINK_LOGIN || l->state == KVW_REDIS_LINK_READY)
		more = receive_turn(l, answered);
	if (l->state == KVW_REDIS_LINK_LOGIN || l->state == KVW_REDIS_LINK_READY)
		more |= send_turn(l, answered);
	return more;
}

/* --- eyes ------------------------------------------------------------------------------------- */

const struct kvw_redis_commands *kvw_redis_link_commands(const struct kvw_redis_link *l)
{
	return &l->commands;
}

enum kvw_redis_link_state kvw_redis_link_state(const struct kvw_redis_link *l)
{
	return l->state;
}

const char *kvw_redis_link_why(const struct kvw_redis_link *l)
{
	return l->why;
}

bool kvw_redis_link_refused(const struct kvw_redis_link *l)
{
	return l->refused;
}

uint64_t kvw_redis_link_bytes(const struct kvw_redis_link *l)
{
	return l->bytes;
}

int64_t kvw_redis_link_give_up_ns(const struct kvw_redis_link *l)
{
	return l->give_up_ns;
}

const char *kvw_redis_link_info(const struct kvw_redis_link *l)
{
	return l->login.info;
}

void *kvw_redis_link_owner(const struct kvw_redis_link *l)
{
	return l->owner;
}

uint64_t kvw_redis_link_sent_bytes(const struct kvw_redis_link *l)
{
	return l->wire.sent;
}

uint64_t kvw_redis_link_received_bytes(const struct kvw_redis_link *l)
{
	return l->wire.received;
}
