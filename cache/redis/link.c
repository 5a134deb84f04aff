/*
 * link.c - one connection to one server.
 *
 *	commands:  [first ... | unsent ... last]      in the order of their requests and replies
 *	            being answered, partly or not yet sent
 *
 * Replies come in the order of requests, so one list is all there is: replies are read for its
 * first command, requests are sent from `unsent` on. During the login the list is that of the
 * login's own commands, and the others wait.
 *
 * Receiving. One system call fills what is left of the value's own memory and, behind it, a small
 * buffer, so that the end of one value and the head of the next come with it. Of each value at most
 * that buffer's size is copied.
 *
 * What ends a link: the server or the network, bytes that are no reply to anything, a late reply
 * (its memory is about to be somebody else's), a login that is refused or takes too long. The cause
 * is kept in words, its commands are left for the owner.
 */
#include "redis/link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/resp.h"
#include "redis/wire.h"

#define BUFFER_BYTES 16384
#define TURN_CALLS   16  /* system calls of one kind in one turn, so that other links get theirs */
#define SEND_PIECES  128 /* of one system call */
#define ROOM_PIECES  (KVT_REDIS_MAX_PARTS + 1)

static const char asking_request[] = "*1\r\n$6\r\nASKING\r\n";
#define ASKING_LEN (sizeof(asking_request) - 1)

struct kvt_link {
	void *owner;
	int epoll;
	enum kvt_link_state state;
	bool refused; /* the login was */
	bool reading; /* resp reads the first command's reply */
	bool asked;   /* the reply of ASKING for the first command has come */
	int64_t give_up_ns;
	struct kvt_wire wire;
	struct kvt_resp resp;
	SSL_CTX *tls;
	const struct kvt_link_login *who;
	struct kvt_commands commands;
	struct kvt_commands login_commands;
	struct kvt_redis_command *unsent; /* of the list that is sent now; NULL: all of it is */
	struct kvt_redis_command asking;  /* takes the reply of ASKING */
	uint64_t bytes;                   /* of commands */
	struct kvt_login login;
	char why[KVW_REDIS_REASON];
	char host[KVW_REDIS_URL_TEXT];
	char buffer[BUFFER_BYTES];
};

struct kvt_link *kvt_link_create(int epoll, void *owner)
{
	struct kvt_link *l = calloc(1, sizeof(*l));

	if (l == NULL)
		return NULL;
	l->epoll = epoll;
	l->owner = owner;
	l->wire.fd = -1;
	return l;
}

void kvt_link_destroy(struct kvt_link *l)
{
	if (l == NULL)
		return;
	kvt_link_close(l, "ended");
	free(l);
}

/* --- states ----------------------------------------------------------------------------------- */

void kvt_link_close(struct kvt_link *l, const char *why)
{
	if (l->state == KVT_LINK_CLOSED)
		return;
	snprintf(l->why, sizeof(l->why), "%s", why);
	l->state = KVT_LINK_CLOSED;
	kvt_wire_close(&l->wire);
	kvt_resp_abandon(&l->resp);
	kvt_login_end(&l->login);
	l->login_commands = (struct kvt_commands){0};
	l->unsent = NULL;
	l->reading = l->asked = false;
}

/* What the wire says ended it, and when in a connection's life that was. */
static void close_failed(struct kvt_link *l)
{
	static const char *const during[] = {
		[KVT_LINK_CLOSED] = "",
		[KVT_LINK_CONNECTING] = "cannot connect: ",
		[KVT_LINK_SECURING] = "",
		[KVT_LINK_LOGIN] = "during login: ",
		[KVT_LINK_READY] = "",
	};
	char why[KVW_REDIS_REASON];

	snprintf(why, sizeof(why), "%s%.120s", during[l->state], l->wire.why);
	kvt_link_close(l, why);
}

void kvt_link_open(struct kvt_link *l, const struct kvt_link_target *target, int64_t give_up_ns)
{
	l->state = KVT_LINK_CONNECTING;
	l->refused = false;
	l->why[0] = '\0';
	l->give_up_ns = give_up_ns;
	l->tls = target->tls;
	l->who = target->login;
	snprintf(l->host, sizeof(l->host), "%s", target->host != NULL ? target->host : "");
	if (!kvt_wire_open(&l->wire, target->address, target->address_len, l->epoll, l))
		close_failed(l);
}

static void begin_login(struct kvt_link *l)
{
	l->state = KVT_LINK_LOGIN;
	if (kvt_login_begin(&l->login, l->who, &l->login_commands) != KVW_OK)
		kvt_link_close(l, "out of memory");
	else
		l->unsent = l->login_commands.first;
}

static void end_login(struct kvt_link *l)
{
	kvt_login_end(&l->login);
	l->state = KVT_LINK_READY;
	l->unsent = l->commands.first;
}

static void refuse_login(struct kvt_link *l, const char *text)
{
	char why[KVW_REDIS_REASON];

	snprintf(why, sizeof(why), "login refused: %.140s", text);
	l->refused = true;
	kvt_link_close(l, why);
}

/* --- commands --------------------------------------------------------------------------------- */

static struct kvt_commands *current(struct kvt_link *l)
{
	return l->state == KVT_LINK_LOGIN ? &l->login_commands : &l->commands;
}

void kvt_link_submit(struct kvt_link *l, struct kvt_redis_command *command)
{
	command->progress.sent = 0;
	kvt_commands_add(&l->commands, command);
	l->bytes += command->progress.bytes;
	if (l->state == KVT_LINK_READY && l->unsent == NULL)
		l->unsent = command;
}

static void take_back(struct kvt_link *l, struct kvt_redis_command *command)
{
	if (l->unsent == command)
		l->unsent = command->next;
	kvt_commands_remove(&l->commands, command);
	l->bytes -= command->progress.bytes;
}

void kvt_link_cancel(struct kvt_link *l, struct kvt_redis_command *command)
{
	/* a TLS record that is half on its way may hold the first bytes of what counts as unsent */
	bool touched = command->progress.sent > 0 || l->wire.blocked;

	if (touched && l->state != KVT_LINK_CLOSED)
		kvt_link_close(l, "a reply did not come in time");
	take_back(l, command);
}

struct kvt_redis_command *kvt_link_take(struct kvt_link *l)
{
	struct kvt_redis_command *c = l->commands.first;

	if (c != NULL)
		take_back(l, c);
	return c;
}

/* --- sending ---------------------------------------------------------------------------------- */

static uint64_t request_bytes(const struct kvt_redis_command *c)
{
	uint64_t bytes = c->progress.asking ? ASKING_LEN : 0;

	for (uint32_t i = 0; i < c->part_count; i++)
		bytes += c->parts[i].iov_len;
	return bytes;
}

/* Adds what lies behind the first *skip bytes of a piece, and lowers *skip by its length. */
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

/* The pieces of requests from `unsent` on, behind what has left already. */
static size_t gather(const struct kvt_link *l, struct iovec *pieces)
{
	size_t n = 0;

	for (const struct kvt_redis_command *c = l->unsent; c != NULL; c = c->next) {
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

static void sent(struct kvt_link *l, uint64_t bytes)
{
	while (l->unsent != NULL) {
		struct kvt_redis_command *c = l->unsent;
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

/* Tells the parser whose reply comes next. False: nobody's. */
static bool begin_reply(struct kvt_link *l)
{
	struct kvt_redis_command *c = current(l)->first;

	/* a server that wants nobody more says so before it is asked anything */
	if (c == NULL || (c->progress.sent == 0 && l->state == KVT_LINK_READY)) {
		kvt_link_close(l, "the server sent what nobody had asked for");
		return false;
	}
	if (c->progress.asking && !l->asked) {
		l->asking = (struct kvt_redis_command){0};
		c = &l->asking;
	}
	kvt_resp_begin(&l->resp, c);
	l->reading = true;
	return true;
}

static void login_replied(struct kvt_link *l)
{
	bool early = l->login_commands.first == l->unsent;
	struct kvt_redis_command *c = kvt_commands_take(&l->login_commands);
	const char *complaint = kvt_login_judge(&l->login, c);

	if (complaint == NULL && early)
		complaint = "answered before it was asked";
	if (complaint != NULL)
		refuse_login(l, complaint);
	else if (l->login_commands.count == 0)
		end_login(l);
}

/* The first command has its whole reply, or something that is none (KVW_EPROTO). */
static void replied(struct kvt_link *l, struct kvt_commands *answered)
{
	struct kvt_redis_command *c = l->commands.first;
	bool early = c == l->unsent;

	if (c->progress.asking && !l->asked) {
		l->asked = true;
		return;
	}
	l->asked = false;
	c->progress.asking = false;
	take_back(l, c);
	kvt_commands_add(answered, c);
	if (early) /* the rest of its request would be taken for another one */
		kvt_link_close(l, c->reply == KVT_REDIS_ERROR
					  ? c->text
					  : "the server answered before it was asked");
}

/* What was received is no reply: the command it was for gets to know, unless that is a login's. */
static void corrupt(struct kvt_link *l, struct kvt_commands *answered)
{
	struct kvt_redis_command *c = l->commands.first;
	char why[KVW_REDIS_REASON];

	snprintf(why, sizeof(why), "not Redis' protocol: %s", l->resp.why);
	if (l->state == KVT_LINK_READY && c != NULL) {
		take_back(l, c);
		c->status = KVW_EPROTO;
		c->progress.asking = false;
		snprintf(c->text, sizeof(c->text), "%s", why);
		kvt_commands_add(answered, c);
	}
	kvt_link_close(l, why);
}

/* Goes through bytes that came by the buffer. */
static void take_bytes(
	struct kvt_link *l, const char *data, size_t len, struct kvt_commands *answered)
{
	while (len > 0 && l->state != KVT_LINK_CLOSED) {
		enum kvt_resp_state state;
		size_t used;

		if (!l->reading && !begin_reply(l))
			return;
		state = kvt_resp_feed(&l->resp, data, len, &used);
		data += used;
		len -= used;
		if (state == KVT_RESP_MORE)
			return;
		l->reading = false;
		if (state == KVT_RESP_BROKEN)
			corrupt(l, answered);
		else if (l->state == KVT_LINK_LOGIN)
			login_replied(l);
		else
			replied(l, answered);
	}
}

/* True: stopped before the socket was empty. */
static bool receive_turn(struct kvt_link *l, struct kvt_commands *answered)
{
	struct iovec pieces[ROOM_PIECES + 1];

	for (int calls = 0; l->state != KVT_LINK_CLOSED; calls++) {
		size_t n = l->reading ? kvt_resp_room(&l->resp, pieces, ROOM_PIECES) : 0;
		uint64_t room = 0, direct;
		ssize_t got;

		if (calls == TURN_CALLS)
			return true;
		for (size_t i = 0; i < n; i++)
			room += pieces[i].iov_len;
		pieces[n] = (struct iovec){.iov_base = l->buffer, .iov_len = sizeof(l->buffer)};
		got = kvt_wire_receive(&l->wire, pieces, n + 1);
		if (got < 0)
			close_failed(l);
		if (got <= 0)
			break;
		direct = (uint64_t)got < room ? (uint64_t)got : room;
		if (direct > 0)
			kvt_resp_arrived(&l->resp, direct);
		take_bytes(l, l->buffer, (size_t)((uint64_t)got - direct), answered);
	}
	return false;
}

/* Nothing can be sent any more; what the server said before it hung up may tell why. */
static void hear_last_words(struct kvt_link *l, struct kvt_commands *answered)
{
	char why[KVT_WIRE_WHY];

	memcpy(why, l->wire.why, sizeof(why));
	l->wire.why[0] = '\0';
	l->wire.readable = true;
	while (receive_turn(l, answered))
		;
	if (l->state == KVT_LINK_CLOSED)
		return;
	memcpy(l->wire.why, why, sizeof(why));
	close_failed(l);
}

/* True: stopped before the socket was full. */
static bool send_turn(struct kvt_link *l, struct kvt_commands *answered)
{
	struct iovec pieces[SEND_PIECES];

	for (int calls = 0; l->unsent != NULL; calls++) {
		ssize_t n;

		if (calls == TURN_CALLS)
			return true;
		n = kvt_wire_send(&l->wire, pieces, gather(l, pieces));
		if (n < 0)
			hear_last_words(l, answered);
		if (n <= 0)
			return false;
		sent(l, (uint64_t)n);
	}
	return false;
}

/* --- turns ------------------------------------------------------------------------------------ */

void kvt_link_event(struct kvt_link *l, uint32_t events)
{
	if (l->state != KVT_LINK_CLOSED)
		kvt_wire_event(&l->wire, events);
}

/* Connecting and TLS. */
static void get_ready(struct kvt_link *l)
{
	enum kvt_wire_go go = KVT_WIRE_WAIT;

	if (l->state == KVT_LINK_CONNECTING) {
		go = kvt_wire_connected(&l->wire);
		if (go == KVT_WIRE_GO && l->tls != NULL) {
			go = kvt_wire_secure(&l->wire, l->tls, l->host) ? KVT_WIRE_WAIT
									: KVT_WIRE_FAILED;
			l->state = KVT_LINK_SECURING;
		}
	}
	if (l->state == KVT_LINK_SECURING && go != KVT_WIRE_FAILED)
		go = kvt_wire_handshake(&l->wire);
	if (go == KVT_WIRE_FAILED)
		close_failed(l);
	else if (go == KVT_WIRE_GO)
		begin_login(l);
}

bool kvt_link_turn(struct kvt_link *l, struct kvt_commands *answered)
{
	bool more = false;

	if (l->state == KVT_LINK_CONNECTING || l->state == KVT_LINK_SECURING)
		get_ready(l);
	if (l->state == KVT_LINK_LOGIN || l->state == KVT_LINK_READY)
		more = receive_turn(l, answered);
	if (l->state == KVT_LINK_LOGIN || l->state == KVT_LINK_READY)
		more |= send_turn(l, answered);
	return more;
}

/* --- eyes ------------------------------------------------------------------------------------- */

const struct kvt_commands *kvt_link_commands(const struct kvt_link *l)
{
	return &l->commands;
}

enum kvt_link_state kvt_link_state(const struct kvt_link *l)
{
	return l->state;
}

const char *kvt_link_why(const struct kvt_link *l)
{
	return l->why;
}

bool kvt_link_refused(const struct kvt_link *l)
{
	return l->refused;
}

uint64_t kvt_link_bytes(const struct kvt_link *l)
{
	return l->bytes;
}

int64_t kvt_link_give_up_ns(const struct kvt_link *l)
{
	return l->give_up_ns;
}

const char *kvt_link_info(const struct kvt_link *l)
{
	return l->login.info;
}

void *kvt_link_owner(const struct kvt_link *l)
{
	return l->owner;
}

uint64_t kvt_link_sent_bytes(const struct kvt_link *l)
{
	return l->wire.sent;
}

uint64_t kvt_link_received_bytes(const struct kvt_link *l)
{
	return l->wire.received;
}
