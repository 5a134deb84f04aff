/*
 * kvtierd_http.c - exchanges and the connections that carry them.
 *
 * A connection's state is one enum, which begin() and the functions below it change:
 *
 * 	CLOSED -> CONNECTING -> BUSY -> IDLE -> BUSY ...
 * 	                          |
 * 	                          +--> DRAINING -> IDLE    a lease that arrived too late
 *
 * Sockets are registered edge-triggered, once. Any failure closes a connection; an exchange ends exactly once, in
 * end_exchange, and its `done` may free it.
 *
 * Memory: for each connection a head and a body (KVTIERD_HEAD_ROOM, KVTIERD_BODY_ROOM).
 */
#include "tiers/kvtierd/kvtierd_http.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#define READ_BYTES    65536u
#define SEND_PIECES   64
/* after sending this much of a body, a connection lets the others have their turn */
#define SEND_AT_ONCE  ((size_t)8 << 20)
#define EVENTS_ATONCE 32

enum connection_state { CLOSED, CONNECTING, IDLE, BUSY, DRAINING };

struct kvtierd_connection {
	struct kvtierd_http *h;
	enum connection_state state;
	int fd;                    /* -1: CLOSED */
	struct kvtierd_exchange *x; /* CONNECTING, BUSY */
	struct kvtierd_reader reader;
	size_t sent, total; /* bytes of the request sent so far; bytes of the whole request */
	bool used;          /* this connection has carried an answer before */
	bool may_send;      /* send(2) has not returned EAGAIN since the last event */
	size_t tried;       /* number of addresses tried for this exchange */
	int64_t begun_ns;   /* time when the present CONNECTING, BUSY or DRAINING began */
};

struct exchange_list {
	struct kvtierd_exchange *first, *last;
	uint32_t count;
	int64_t due_ns; /* no exchange in the list has an earlier deadline */
};

struct kvtierd_http {
	struct kvtierd_http_options o;
	struct kvtierd_connection *connections; /* o.connections members */
	struct exchange_list talk, puts;       /* waiting */
	uint32_t puts_under_way;
	struct kvw_resolve_addresses addresses;
	size_t address; /* index of the address that worked last */
	bool stalled;
	int epoll, bell;
	char *buffer;
	pthread_mutex_t lock; /* guards stats */
	struct kvtierd_http_stats stats;
};

/* --- lists ------------------------------------------------------------------------------------ */

static struct exchange_list *list_of(struct kvtierd_http *h, const struct kvtierd_exchange *x)
{
	return x->kind == KVTIERD_PUT ? &h->puts : &h->talk;
}

static void list_add(struct exchange_list *list, struct kvtierd_exchange *x, bool front)
{
	x->in = list;
	x->next = front ? list->first : NULL;
	x->prev = front ? NULL : list->last;
	*(x->next != NULL ? &x->next->prev : &list->last) = x;
	*(x->prev != NULL ? &x->prev->next : &list->first) = x;
	if (list->count++ == 0 || x->deadline_ns < list->due_ns)
		list->due_ns = x->deadline_ns;
}

/* Removes an exchange from its list, which may be the temporary list of expired exchanges. */
static void list_remove(struct kvtierd_exchange *x)
{
	struct exchange_list *list = x->in;

	*(x->next != NULL ? &x->next->prev : &list->last) = x->prev;
	*(x->prev != NULL ? &x->prev->next : &list->first) = x->next;
	x->next = x->prev = NULL;
	x->in = NULL;
	list->count--;
}

/* --- ends ------------------------------------------------------------------------------------- */

static void end_exchange(struct kvtierd_exchange *x, enum kvt_status status)
{
	x->status = status;
	x->connection = NULL;
	x->done(x);
}

static void say_why(struct kvtierd_http *h, const char *what, const char *detail)
{
	pthread_mutex_lock(&h->lock);
	(void)snprintf(h->stats.why, sizeof(h->stats.why), "%s%s%s", what,
		detail[0] != '\0' ? ": " : "", detail);
	pthread_mutex_unlock(&h->lock);
}

static void count(struct kvtierd_http *h, uint64_t *counter)
{
	pthread_mutex_lock(&h->lock);
	(*counter)++;
	pthread_mutex_unlock(&h->lock);
}

static void close_connection(struct kvtierd_connection *c)
{
	if (c->fd >= 0)
		(void)close(c->fd);
	c->fd = -1;
	c->state = CLOSED;
	c->used = false;
}

/* Separates an exchange from its connection, and returns it. */
static struct kvtierd_exchange *take_exchange(struct kvtierd_connection *c)
{
	struct kvtierd_exchange *x = c->x;

	c->x = NULL;
	if (x != NULL && x->kind == KVTIERD_PUT)
		c->h->puts_under_way--;
	return x;
}

static void close_idle(struct kvtierd_http *h)
{
	for (uint32_t i = 0; i < h->o.connections; i++)
		if (h->connections[i].state == IDLE)
			close_connection(&h->connections[i]);
}

/* Closes a failed connection. Its exchange is sent over a new one, or fails. */
static void fail(struct kvtierd_connection *c, enum kvt_status status, const char *what, int error)
{
	struct kvtierd_http *h = c->h;
	struct kvtierd_exchange *x = take_exchange(c);
	bool kept_too_long = c->state == BUSY && c->used && !c->reader.begun;
	char text[96] = "";

	close_connection(c);
	if (x != NULL && status == KVT_EIO && kept_too_long && !x->again && !x->once) {
		x->again = true;
		/* the daemon has closed the idle connections, too, or is a new process by now */
		close_idle(h);
		count(h, &h->stats.retries);
		list_add(list_of(h, x), x, true);
		return;
	}
	say_why(h, what, error != 0 ? strerror_r(error, text, sizeof(text)) : "");
	count(h, &h->stats.broken);
	if (x != NULL)
		end_exchange(x, status);
}

/* Handles a complete answer. */
static void answered(struct kvtierd_connection *c, bool more)
{
	struct kvtierd_http *h = c->h;
	bool was_late = c->state == DRAINING;
	bool keep = c->reader.keep_alive && !more && c->sent == c->total;
	struct kvtierd_exchange *x = take_exchange(c);

	h->stalled = false;
	pthread_mutex_lock(&h->lock);
	h->stats.answers++;
	h->stats.why[0] = '\0';
	pthread_mutex_unlock(&h->lock);
	c->state = IDLE;
	c->used = true;
	if (was_late) {
		h->o.late(h->o.self, &c->reader);
	} else {
		x->answer = &c->reader;
		end_exchange(x, KVT_OK);
	}
	kvtierd_reader_begin(&c->reader);
	if (!keep)
		close_connection(c);
}

/* --- sending ---------------------------------------------------------------------------------- */

static size_t length_of(const struct kvtierd_exchange *x)
{
	return x->head_len + x->segment_bytes + x->tail_bytes;
}

/* Appends these bytes to `out`, without the first `skip` of them. */
static int add_piece(
	struct iovec *out, int n, const void *bytes, size_t len, size_t *skip, size_t *left)
{
	size_t here;

	if (n == SEND_PIECES || *left == 0)
		return n;
	if (*skip >= len) {
		*skip -= len;
		return n;
	}
	here = len - *skip < *left ? len - *skip : *left;
	out[n] = (struct iovec){.iov_base = (char *)(uintptr_t)bytes + *skip, .iov_len = here};
	*skip = 0;
	*left -= here;
	return n + 1;
}

static int gather(const struct kvtierd_exchange *x, size_t sent, size_t most, struct iovec *out)
{
	size_t skip = sent, left = most, body = x->segment_bytes;
	int n = add_piece(out, 0, x->head, x->head_len, &skip, &left);

	for (uint32_t i = 0; i < x->segment_count && body > 0; i++) {
		const struct kvt_segment *s = &x->segments[i];
		size_t len = s->bytes < body ? s->bytes : body;

		n = add_piece(out, n, s->base, len, &skip, &left);
		body -= len;
	}
	return add_piece(out, n, x->tail, x->tail_bytes, &skip, &left);
}

/* Sends more of the request. Returns false if the connection has failed. */
static bool send_more(struct kvtierd_connection *c)
{
	size_t left = SEND_AT_ONCE;

	while (c->state == BUSY && c->may_send && c->sent < c->total && left > 0) {
		struct iovec pieces[SEND_PIECES];
		struct msghdr message = {.msg_iov = pieces};
		ssize_t n;

		message.msg_iovlen = (size_t)gather(c->x, c->sent, left, pieces);
		n = sendmsg(c->fd, &message, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			c->may_send = false;
			return true;
		}
		if (n < 0)
			/* the daemon may have answered before it closed the connection, so received
			 * bytes are read first */
			return false;
		c->sent += (size_t)n;
		left -= (size_t)n;
	}
	return true;
}

/* --- receiving -------------------------------------------------------------------------------- */

/* Feeds received bytes to the reader. Returns false if the connection is closed afterwards. */
static bool take_bytes(struct kvtierd_connection *c, const char *data, size_t len)
{
	while (len > 0) {
		enum kvt_status status;
		size_t used = 0;

		if (c->state != BUSY && c->state != DRAINING) {
			close_connection(c); /* the daemon sent bytes that no request asked for */
			return false;
		}
		status = kvtierd_reader_feed(&c->reader, data, len, &used);
		data += used;
		len -= used;
		if (status == KVT_ECORRUPT) {
			fail(c, KVT_ECORRUPT, c->reader.error, 0);
			return false;
		}
		if (status == KVT_OK) {
			answered(c, len > 0);
			if (c->state != IDLE)
				return false;
		}
	}
	return true;
}

static void peer_closed(struct kvtierd_connection *c, int error)
{
	if (c->state == IDLE)
		close_connection(c);
	else if (error == 0 && kvtierd_reader_close(&c->reader) == KVT_OK)
		answered(c, true);
	else
		fail(c, KVT_EIO, "the daemon closed the connection", error);
}

static void receive(struct kvtierd_connection *c)
{
	struct kvtierd_http *h = c->h;

	while (c->fd >= 0) {
		ssize_t n = recv(c->fd, h->buffer, READ_BYTES, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (n <= 0) {
			peer_closed(c, n < 0 ? errno : 0);
			return;
		}
		if (!take_bytes(c, h->buffer, (size_t)n))
			return;
	}
}

/* Sends more of the request; if that fails, reads an answer that may have arrived before. */
static void push(struct kvtierd_connection *c)
{
	if (send_more(c))
		return;
	receive(c);
	if (c->fd >= 0 && c->state == BUSY)
		fail(c, KVT_EIO, "the daemon closed the connection", EPIPE);
}

/* --- connecting ------------------------------------------------------------------------------- */

static bool open_socket(
	struct kvtierd_connection *c, const struct kvw_resolve_address *address, int *error)
{
	struct kvtierd_http *h = c->h;
	struct epoll_event event = {
		.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
	int fd = socket(address->to.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int yes = 1;

	if (fd < 0) {
		*error = errno;
		return false;
	}
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	if ((connect(fd, &address->to.any, address->len) < 0 && errno != EINPROGRESS) ||
		epoll_ctl(h->epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
		*error = errno;
		(void)close(fd);
		return false;
	}
	c->fd = fd;
	c->used = false;
	c->may_send = false;
	c->state = CONNECTING;
	return true;
}

/* Connects to the address that worked last, or to the next one not tried; fails if none is left. */
static void connect_next(struct kvtierd_connection *c, int error)
{
	struct kvtierd_http *h = c->h;

	if (c->fd >= 0)
		close_connection(c);
	while (c->tried < h->addresses.count) {
		size_t i = (h->address + c->tried++) % h->addresses.count;

		if (open_socket(c, &h->addresses.items[i], &error)) {
			count(h, &h->stats.connects);
			return;
		}
	}
	kvtierd_resolver_again(h->o.resolver);
	fail(c, KVT_EIO, h->addresses.count == 0 ? "the host's address is not known" : "connect",
		h->addresses.count == 0 ? 0 : error);
}

static void connected(struct kvtierd_connection *c)
{
	struct kvtierd_http *h = c->h;

	h->address = (h->address + c->tried - 1) % h->addresses.count;
	c->state = BUSY;
	c->may_send = true;
	c->begun_ns = kvt_now(h->o.surroundings);
	c->x->sent_ns = c->begun_ns;
}

/* Gives an exchange to a connection that is CLOSED or IDLE. */
static void begin(struct kvtierd_connection *c, struct kvtierd_exchange *x)
{
	struct kvtierd_http *h = c->h;

	c->x = x;
	x->connection = c;
	c->sent = 0;
	c->total = length_of(x);
	c->tried = 0;
	c->begun_ns = kvt_now(h->o.surroundings);
	kvtierd_reader_begin(&c->reader);
	if (x->kind == KVTIERD_PUT)
		h->puts_under_way++;
	if (c->state == IDLE && x->once)
		/* the daemon may close a kept connection at any time, and this exchange must not be
		 * sent twice */
		close_connection(c);
	if (c->state == IDLE) {
		c->state = BUSY;
		x->sent_ns = c->begun_ns;
		push(c);
	} else {
		kvtierd_resolver_get(h->o.resolver, &h->addresses);
		if (h->address >= h->addresses.count)
			h->address = 0;
		connect_next(c, 0);
	}
}

/* --- waiting exchanges ------------------------------------------------------------------------ */

static struct kvtierd_connection *free_connection(struct kvtierd_http *h)
{
	struct kvtierd_connection *closed = NULL;

	for (uint32_t i = 0; i < h->o.connections; i++) {
		if (h->connections[i].state == IDLE)
			return &h->connections[i];
		if (h->connections[i].state == CLOSED && closed == NULL)
			closed = &h->connections[i];
	}
	return closed;
}

static struct kvtierd_exchange *next_waiting(struct kvtierd_http *h)
{
	uint32_t puts = h->o.connections > 1 ? h->o.connections - 1 : 1;

	if (h->talk.first != NULL)
		return h->talk.first;
	return h->puts_under_way < puts ? h->puts.first : NULL;
}

static size_t begin_waiting(struct kvtierd_http *h)
{
	struct kvtierd_connection *c;
	struct kvtierd_exchange *x;
	size_t n = 0;

	while ((x = next_waiting(h)) != NULL && (c = free_connection(h)) != NULL) {
		list_remove(x);
		begin(c, x);
		n++;
	}
	return n;
}

/* --- time ------------------------------------------------------------------------------------- */

static enum kvt_status lateness(const struct kvtierd_http *h)
{
	return h->stalled ? KVT_EIO : KVT_MISS;
}

static size_t expire_list(struct kvtierd_http *h, struct exchange_list *list, int64_t now_ns)
{
	struct kvtierd_exchange *x, *next;
	struct exchange_list late = {0};
	int64_t due_ns = INT64_MAX;
	size_t n = 0;

	if (list->count == 0 || now_ns < list->due_ns)
		return 0;
	for (x = list->first; x != NULL; x = next) {
		next = x->next;
		if (x->deadline_ns <= now_ns) {
			list_remove(x);
			list_add(&late, x, false);
		} else if (x->deadline_ns < due_ns) {
			due_ns = x->deadline_ns;
		}
	}
	list->due_ns = due_ns;
	while ((x = late.first) != NULL) {
		list_remove(x);
		count(h, &h->stats.timeouts);
		/* `done` may submit another exchange, which is put into `list` */
		end_exchange(x, lateness(h));
		n++;
	}
	return n;
}

/* Ends an exchange that is past its deadline. The connection stays open, to receive the lease when
 * the daemon grants it. */
static void leave(struct kvtierd_connection *c)
{
	struct kvtierd_exchange *x = take_exchange(c);

	count(c->h, &c->h->stats.timeouts);
	if (x->kind == KVTIERD_LEASE && c->sent == c->total)
		c->state = DRAINING;
	else
		close_connection(c);
	end_exchange(x, lateness(c->h));
}

/* Returns the time when this connection must be looked at again, at the latest. */
static int64_t due_of(const struct kvtierd_connection *c)
{
	const struct kvtierd_http_options *o = &c->h->o;
	int64_t due_ns = c->begun_ns;

	if (c->state == CLOSED || c->state == IDLE)
		return INT64_MAX;
	due_ns += (int64_t)(c->state == CONNECTING ? o->connect_ns : o->answer_ns);
	return c->x != NULL && c->x->deadline_ns < due_ns ? c->x->deadline_ns : due_ns;
}

static bool expire_connection(struct kvtierd_connection *c, int64_t now_ns)
{
	struct kvtierd_http *h = c->h;

	if (due_of(c) > now_ns)
		return false;
	if (c->state == CONNECTING) {
		fail(c, KVT_EIO, "connect: no answer", 0);
	} else if (now_ns - c->begun_ns >= (int64_t)h->o.answer_ns) {
		h->stalled = true;
		count(h, &h->stats.timeouts);
		c->used = false; /* no second try */
		fail(c, KVT_EIO, "the daemon does not answer", 0);
	} else {
		leave(c);
	}
	return true;
}

static size_t expire(struct kvtierd_http *h)
{
	int64_t now_ns = kvt_now(h->o.surroundings);
	size_t n = expire_list(h, &h->talk, now_ns) + expire_list(h, &h->puts, now_ns);

	for (uint32_t i = 0; i < h->o.connections; i++)
		n += expire_connection(&h->connections[i], now_ns);
	return n;
}

static int64_t next_due(const struct kvtierd_http *h)
{
	int64_t due_ns = INT64_MAX;

	if (h->talk.count > 0)
		due_ns = h->talk.due_ns;
	if (h->puts.count > 0 && h->puts.due_ns < due_ns)
		due_ns = h->puts.due_ns;
	for (uint32_t i = 0; i < h->o.connections; i++) {
		int64_t at_ns = due_of(&h->connections[i]);

		due_ns = at_ns < due_ns ? at_ns : due_ns;
	}
	return due_ns;
}

/* --- step ------------------------------------------------------------------------------------- */

/* Handles an event of a connection that is being established. */
static void look_at_connect(struct kvtierd_connection *c, uint32_t events)
{
	int error = 0;
	socklen_t len = sizeof(error);

	if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) == 0)
		return;
	if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	if (error == 0)
		connected(c);
	else
		connect_next(c, error);
}

static void on_event(struct kvtierd_connection *c, uint32_t events)
{
	if (c->state == CONNECTING)
		look_at_connect(c, events);
	if (c->fd < 0 || c->state == CONNECTING)
		return;
	if ((events & EPOLLOUT) != 0)
		c->may_send = true;
	push(c);
	if ((events & ~(uint32_t)EPOLLOUT) != 0)
		receive(c);
}

static int milliseconds(int64_t ns)
{
	if (ns <= 0)
		return 0;
	return ns >= 60000000000 ? 60000 : (int)((ns + 999999) / 1000000);
}

/* A descriptor that is closed in this round gets no later event, since the kernel forgets it;
 * events that were fetched before are filtered by the connection's state. */
static size_t wait_for_events(struct kvtierd_http *h, int64_t wait_ns)
{
	struct epoll_event events[EVENTS_ATONCE];
	int n = epoll_wait(h->epoll, events, EVENTS_ATONCE, milliseconds(wait_ns));

	for (int i = 0; i < n; i++) {
		struct kvtierd_connection *c = events[i].data.ptr;
		uint64_t rings;

		if (c == NULL)
			(void)!read(h->bell, &rings, sizeof(rings));
		else if (c->fd >= 0)
			on_event(c, events[i].events);
	}
	return n > 0 ? (size_t)n : 0;
}

/* Sends more of those bodies that were interrupted to give other connections their turn. */
static size_t go_on_sending(struct kvtierd_http *h)
{
	size_t n = 0;

	for (uint32_t i = 0; i < h->o.connections; i++) {
		struct kvtierd_connection *c = &h->connections[i];

		if (c->state != BUSY || !c->may_send || c->sent == c->total)
			continue;
		push(c);
		n++;
	}
	return n;
}

static void publish(struct kvtierd_http *h)
{
	uint32_t connections = 0, under_way = 0;

	for (uint32_t i = 0; i < h->o.connections; i++) {
		connections += h->connections[i].state != CLOSED;
		under_way += h->connections[i].x != NULL;
	}
	pthread_mutex_lock(&h->lock);
	h->stats.connections = connections;
	h->stats.under_way = under_way;
	h->stats.waiting = h->talk.count + h->puts.count;
	pthread_mutex_unlock(&h->lock);
}

size_t kvtierd_http_step(struct kvtierd_http *h, int64_t wait_ns, int64_t *next_ns)
{
	size_t n = begin_waiting(h);
	int64_t due_ns;

	n += go_on_sending(h);
	due_ns = next_due(h);
	if (n > 0)
		wait_ns = 0;
	else if (due_ns != INT64_MAX && wait_ns > 0 &&
		 due_ns - kvt_now(h->o.surroundings) < wait_ns)
		wait_ns = due_ns - kvt_now(h->o.surroundings);
	n += wait_for_events(h, wait_ns);
	n += expire(h);
	n += begin_waiting(h);
	publish(h);
	due_ns = next_due(h);
	if (due_ns < *next_ns)
		*next_ns = due_ns;
	return n;
}

void kvtierd_http_wake(struct kvtierd_http *h)
{
	uint64_t one = 1;

	(void)!write(h->bell, &one, sizeof(one));
}

void kvtierd_http_submit(struct kvtierd_http *h, struct kvtierd_exchange *x)
{
	x->connection = NULL;
	x->again = false;
	x->sent_ns = 0;
	x->answer = NULL;
	count(h, &h->stats.exchanges);
	list_add(list_of(h, x), x, false);
}

void kvtierd_http_abandon(struct kvtierd_http *h, struct kvtierd_exchange *x)
{
	(void)h; /* the exchange knows its list, so the client is not needed */
	if (x->in == NULL)
		return;
	list_remove(x);
	end_exchange(x, KVT_ECANCELED);
}

bool kvtierd_http_stalled(const struct kvtierd_http *h)
{
	return h->stalled;
}

void kvtierd_http_stats(struct kvtierd_http *h, struct kvtierd_http_stats *out)
{
	pthread_mutex_lock(&h->lock);
	*out = h->stats;
	pthread_mutex_unlock(&h->lock);
}

/* --- life ------------------------------------------------------------------------------------- */

static enum kvt_status make_parts(struct kvtierd_http *h)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};

	h->connections = calloc(h->o.connections, sizeof(h->connections[0]));
	h->buffer = malloc(READ_BYTES);
	if (h->connections == NULL || h->buffer == NULL)
		return KVT_ENOMEM;
	for (uint32_t i = 0; i < h->o.connections; i++) {
		h->connections[i].h = h;
		h->connections[i].fd = -1;
	}
	for (uint32_t i = 0; i < h->o.connections; i++)
		if (kvtierd_reader_init(&h->connections[i].reader) != KVT_OK)
			return KVT_ENOMEM;
	h->epoll = epoll_create1(EPOLL_CLOEXEC);
	h->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (h->epoll < 0 || h->bell < 0 || epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->bell, &event) < 0)
		return KVT_EIO;
	return KVT_OK;
}

enum kvt_status kvtierd_http_create(
	const struct kvtierd_http_options *options, struct kvtierd_http **out)
{
	struct kvtierd_http *h = calloc(1, sizeof(*h));
	enum kvt_status status;

	if (h == NULL)
		return KVT_ENOMEM;
	h->o = *options;
	h->epoll = h->bell = -1;
	(void)pthread_mutex_init(&h->lock, NULL);
	status = make_parts(h);
	if (status == KVT_OK)
		*out = h;
	else
		kvtierd_http_destroy(h);
	return status;
}

static void cancel_all(struct exchange_list *list)
{
	struct kvtierd_exchange *x;

	while ((x = list->first) != NULL) {
		list_remove(x);
		end_exchange(x, KVT_ECANCELED);
	}
}

void kvtierd_http_destroy(struct kvtierd_http *h)
{
	if (h == NULL)
		return;
	for (uint32_t i = 0; h->connections != NULL && i < h->o.connections; i++) {
		struct kvtierd_exchange *x = take_exchange(&h->connections[i]);

		close_connection(&h->connections[i]);
		kvtierd_reader_finish(&h->connections[i].reader);
		if (x != NULL)
			end_exchange(x, KVT_ECANCELED);
	}
	/* the `done` of an exchange may submit others */
	while (h->talk.count + h->puts.count > 0) {
		cancel_all(&h->talk);
		cancel_all(&h->puts);
	}
	free(h->connections);
	free(h->buffer);
	if (h->bell >= 0)
		(void)close(h->bell);
	if (h->epoll >= 0)
		(void)close(h->epoll);
	(void)pthread_mutex_destroy(&h->lock);
	free(h);
}
