/*
 * raw_redis.c - the fastest client of Redis that this folder could write: what ours is measured by.
 *
 * One thread, one epoll set, connections that do not block. Commands of a connection are pipelined
 * and leave in one writev from where the values lie; replies to GET come in one readv, each straight
 * into its place, since the length of all that will come is known beforehand. Nothing is parsed (the
 * beginning of a reply is compared, since an error must not look like speed), nothing is copied,
 * nothing is checksummed, nothing has a deadline.
 *
 * The send buffer is small on purpose: bytes that wait in it should still be in the processor's cache
 * when the server takes them out. Left to itself it grows to megabytes, and puts of 4 MiB take nearly
 * twice as long, for both sides' processors. The receive buffer gains nothing that way.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bench/l2/redis_job.h"
#include "bench/l2/wire.h"

#define MOST_DEPTH 64u /* of one connection */
#define HEAD_ROOM  128u
/* pieces of a command or a reply: the bytes before the value, the value, CRLF */
#define PIECES     3u
#define OK_BYTES   5u /* +OK CRLF */
#define SEND_ROOM  (256 << 10)

/* A ring of pieces of memory that are to be sent or received in order. */
struct line {
	struct iovec pieces[MOST_DEPTH * PIECES];
	uint32_t first, count;
};

/* One command under way, with the bytes of its reply around the value. */
struct slot {
	char head[HEAD_ROOM];
	char reply_head[HEAD_ROOM];
	char end[2], reply_end[2];
};

struct connection {
	int fd;
	uint32_t under_way;
	uint32_t partly; /* bytes or pieces of a reply that is not complete */
	bool waits;      /* waits for the socket to take more bytes */
	struct line out, in;
	uint32_t next_slot;
	struct slot slots[MOST_DEPTH];
};

struct client {
	const struct kvb_redis_job *job;
	struct connection *connections;
	uint32_t depth; /* of one connection */
	int epoll;
	char reply_head[HEAD_ROOM]; /* the bytes before the value in a reply to GET */
	uint32_t reply_head_bytes;
	uint64_t asked, done, target;
};

static void line_add(struct line *line, void *base, size_t bytes)
{
	uint32_t at = (line->first + line->count++) % (MOST_DEPTH * PIECES);

	line->pieces[at] = (struct iovec){base, bytes};
}

/* Returns the pieces that one call can move: those up to the ring's end. */
static struct msghdr line_message(struct line *line)
{
	uint32_t straight = MOST_DEPTH * PIECES - line->first;

	return (struct msghdr){.msg_iov = &line->pieces[line->first],
		.msg_iovlen = line->count < straight ? line->count : straight};
}

/* Removes the moved bytes from the ring; returns how many pieces are complete. */
static uint32_t line_moved(struct line *line, size_t bytes)
{
	uint32_t through = 0;

	while (bytes > 0) {
		struct iovec *piece = &line->pieces[line->first];

		if (bytes < piece->iov_len) {
			piece->iov_base = (char *)piece->iov_base + bytes;
			piece->iov_len -= bytes;
			break;
		}
		bytes -= piece->iov_len;
		line->first = (line->first + 1) % (MOST_DEPTH * PIECES);
		line->count--;
		through++;
	}
	return through;
}

static void ask(struct client *c, struct connection *n)
{
	uint64_t number = c->asked++ % c->job->keys;
	struct kvt_key key = kvb_key(number);
	struct slot *slot = &n->slots[n->next_slot++ % c->depth];
	int bytes = snprintf(slot->head, HEAD_ROOM,
		c->job->write ? "*3\r\n$3\r\nSET\r\n$32\r\n" : "*2\r\n$3\r\nGET\r\n$32\r\n");

	memcpy(slot->head + bytes, key.bytes, sizeof(key.bytes));
	bytes += (int)sizeof(key.bytes);
	n->under_way++;
	if (c->job->write) {
		bytes += snprintf(slot->head + bytes, HEAD_ROOM - (size_t)bytes, "\r\n$%llu\r\n",
			(unsigned long long)c->job->size);
		line_add(&n->out, slot->head, (size_t)bytes);
		line_add(&n->out, kvb_redis_value(c->job, number), c->job->size);
		memcpy(slot->end, "\r\n", 2);
		line_add(&n->out, slot->end, 2);
		return;
	}
	memcpy(slot->head + bytes, "\r\n", 2);
	line_add(&n->out, slot->head, (size_t)bytes + 2);
	line_add(&n->in, slot->reply_head, c->reply_head_bytes);
	line_add(&n->in, kvb_redis_value(c->job, number), c->job->size);
	line_add(&n->in, slot->reply_end, 2);
}

static void want(struct client *c, struct connection *n, bool room)
{
	struct epoll_event event = {.events = EPOLLIN | (room ? EPOLLOUT : 0), .data.ptr = n};

	if (n->waits == room)
		return;
	n->waits = room;
	if (epoll_ctl(c->epoll, EPOLL_CTL_MOD, n->fd, &event) != 0)
		kvb_fail("%s: epoll: %s", c->job->name, strerror(errno));
}

static void send_all(struct client *c, struct connection *n)
{
	while (n->out.count > 0) {
		struct msghdr message = line_message(&n->out);
		ssize_t sent = sendmsg(n->fd, &message, MSG_NOSIGNAL);

		if (sent < 0 && errno == EAGAIN)
			break;
		if (sent < 0 && errno != EINTR)
			kvb_fail("%s: sending: %s", c->job->name, strerror(errno));
		if (sent > 0)
			(void)line_moved(&n->out, (size_t)sent);
	}
	want(c, n, n->out.count > 0);
}

/* Adds commands in place of those that are done. */
static void refill(struct client *c, struct connection *n)
{
	while (n->under_way < c->depth && c->asked < c->target)
		ask(c, n);
	send_all(c, n);
}

static void answered(struct client *c, struct connection *n, uint32_t replies)
{
	n->under_way -= replies;
	c->done += replies;
	if (replies > 0)
		refill(c, n);
}

/* Returns false when nothing more has come. */
static bool receive_stored(struct client *c, struct connection *n)
{
	char text[MOST_DEPTH * OK_BYTES];
	ssize_t got = recv(n->fd, text, sizeof(text), 0);

	if (got < 0 && errno == EAGAIN)
		return false;
	if (got <= 0)
		kvb_fail("%s: receiving: %s", c->job->name, got == 0 ? "closed" : strerror(errno));
	for (ssize_t i = 0; i < got; i++)
		if ((n->partly + (uint32_t)i) % OK_BYTES == 0 && text[i] != '+')
			kvb_fail("%s: %.*s", c->job->name, (int)(got - i), text + i);
	n->partly += (uint32_t)got;
	answered(c, n, n->partly / OK_BYTES);
	n->partly %= OK_BYTES;
	return true;
}

/* Ends the program unless a reply begins with a value of the expected length. */
static void check_head(const struct client *c, const struct slot *slot, size_t have)
{
	if (memcmp(slot->reply_head, c->reply_head, have) != 0)
		kvb_fail("%s: a reply is no value of %llu bytes", c->job->name,
			(unsigned long long)c->job->size);
}

static bool receive_values(struct client *c, struct connection *n)
{
	struct msghdr message = line_message(&n->in);
	uint32_t slot = n->next_slot - n->under_way;
	ssize_t got = recvmsg(n->fd, &message, 0);
	uint32_t replies;

	if (got < 0 && errno == EAGAIN)
		return false;
	if (got <= 0)
		kvb_fail("%s: receiving: %s", c->job->name, got == 0 ? "closed" : strerror(errno));
	n->partly += line_moved(&n->in, (size_t)got);
	replies = n->partly / PIECES;
	n->partly %= PIECES;
	for (uint32_t i = 0; i < replies; i++)
		check_head(c, &n->slots[slot++ % c->depth], c->reply_head_bytes);
	if (n->in.count > 0) /* a part of the next reply has come */
		check_head(c, &n->slots[slot % c->depth],
			c->reply_head_bytes -
				(n->partly == 0 ? n->in.pieces[n->in.first].iov_len : 0));
	answered(c, n, replies);
	return true;
}

static void move(void *self, uint64_t values)
{
	struct client *c = self;
	struct epoll_event events[64];

	c->asked = c->done = 0;
	c->target = values;
	for (uint32_t i = 0; i < c->job->connections; i++)
		refill(c, &c->connections[i]);
	while (c->done < c->target) {
		int count = epoll_wait(c->epoll, events, 64, 10000);

		if (count == 0 || (count < 0 && errno != EINTR))
			kvb_fail("%s: no reply for ten seconds", c->job->name);
		for (int i = 0; i < count; i++) {
			struct connection *n = events[i].data.ptr;

			if ((events[i].events & EPOLLOUT) != 0)
				send_all(c, n);
			if ((events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 &&
				n->under_way > 0)
				(void)(c->job->write ? receive_stored(c, n) : receive_values(c, n));
		}
	}
}

static void open_all(struct client *c)
{
	c->epoll = epoll_create1(EPOLL_CLOEXEC);
	c->connections = calloc(c->job->connections, sizeof(*c->connections));
	if (c->epoll < 0 || c->connections == NULL)
		kvb_fail("%s: no memory", c->job->name);
	c->depth = (c->job->depth + c->job->connections - 1) / c->job->connections;
	if (c->depth > MOST_DEPTH)
		kvb_fail("%s: at most %u under way on a connection", c->job->name, MOST_DEPTH);
	c->reply_head_bytes = (uint32_t)snprintf(c->reply_head, sizeof(c->reply_head), "$%llu\r\n",
		(unsigned long long)c->job->size);
	for (uint32_t i = 0; i < c->job->connections; i++) {
		struct connection *n = &c->connections[i];
		int room = SEND_ROOM;
		struct epoll_event event = {.events = EPOLLIN, .data.ptr = n};

		n->fd = kvb_connect(c->job->host, c->job->port, false);
		if (setsockopt(n->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) != 0)
			kvb_fail("%s: SO_SNDBUF: %s", c->job->name, strerror(errno));
		if (epoll_ctl(c->epoll, EPOLL_CTL_ADD, n->fd, &event) != 0)
			kvb_fail("%s: epoll: %s", c->job->name, strerror(errno));
	}
}

int main(int argc, char **argv)
{
	struct kvb_redis_job job;
	struct client client = {.job = &job};

	kvb_redis_job_init(&job, argc, argv);
	open_all(&client);
	kvb_redis_job_run(&job, move, &client);
	for (uint32_t i = 0; i < job.connections; i++)
		(void)close(client.connections[i].fd);
	free(client.connections);
	(void)close(client.epoll);
	return 0;
}
