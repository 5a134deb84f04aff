/*
 * client.c - see client.h.
 *
 * A request is read into a small block, or a large one if the client's last request was large: one
 * buffer, which is cheaper than two, and nearly always enough. The rest of a body goes into the tail of
 * its chain and, in the same system call, into spare blocks of the loop.
 * While an exchange has its whole request nothing is read: what a client pipelines waits in the
 * kernel. A client that leaves is noticed all the same, by the edges of a close or a reset.
 */
#include "proxy/client.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "proxy/exchange.h"
#include "proxy/reply.h"
#include "proxy/request.h"
#include "tls/tls.h"

/* After an answer that ended a connection early, what the client still sends is read away for so long
 * and so much, lest a reset destroy the answer on its way. */
#define LINGER_MS    2000
#define READS_AT_ONCE 16

static void client_timeout(struct kvw_timer *timer, int64_t now_ns);
static void client_write_timeout(struct kvw_timer *timer, int64_t now_ns);
static void client_event(struct kvw_io *io);

/* Until it is done the time for a head counts, not that for an idle connection. */
static bool begin_tls(struct kvw_client *client)
{
	if (client->loop->tls == NULL)
		return true;
	client->https = client->handshaking = true;
	return kvw_tls_server_start(&client->io, client->loop->tls) == KVW_OK;
}

static void format_address(char *text, size_t size, const struct sockaddr *peer)
{
	const void *raw = peer->sa_family == AF_INET6
		? (const void *)&((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr
		: (const void *)&((const struct sockaddr_in *)(const void *)peer)->sin_addr;

	if (inet_ntop(peer->sa_family, raw, text, (socklen_t)size) == NULL)
		(void)snprintf(text, size, "unknown");
	if (strncmp(text, "::ffff:", 7) == 0 && strchr(text, '.') != NULL)
		memmove(text, text + 7, strlen(text + 7) + 1);
}

void kvw_client_create_take(struct kvw_loop *loop, int fd, const struct sockaddr *peer)
{
	struct kvw_client *client = calloc(1, sizeof(*client));

	if (client == NULL || kvw_io_open(&client->io, &loop->sockets, fd, client_event) != KVW_OK) {
		free(client);
		close(fd);
		kvw_shared_connection_release(loop->shared);
		kvw_metrics_add(loop->metrics, KVW_COUNT_CONNECTIONS_REFUSED, 1);
		return;
	}
	client->io.writable = true;
	client->loop = loop;
	if (!begin_tls(client)) {
		kvw_io_close(&client->io, false);
		free(client);
		kvw_shared_connection_release(loop->shared);
		kvw_metrics_add(loop->metrics, KVW_COUNT_CONNECTIONS_REFUSED, 1);
		return;
	}
	client->timer.fn = client_timeout;
	client->write_timer.fn = client_write_timeout;
	format_address(client->address, sizeof(client->address), peer);
	TAILQ_INSERT_TAIL(&loop->clients, client, entry);
	loop->client_count++;
	kvw_metrics_add(loop->metrics, KVW_COUNT_CONNECTIONS_ACCEPTED, 1);
	kvw_metrics_gauge(loop->metrics, KVW_GAUGE_CLIENT_CONNECTIONS, 1);
	if (client->handshaking)
		kvw_loop_timer(loop, &client->timer, KVW_TIMER_HEAD, loop->config->timeout_head_ms);
	else
		kvw_loop_timer(loop, &client->timer, KVW_TIMER_CLIENT_IDLE,
			loop->config->timeout_client_idle_ms);
}

void kvw_client_close(struct kvw_client *client, bool reset)
{
	struct kvw_loop *loop = client->loop;

	if (client->dead)
		return;
	client->dead = true;
	kvw_timer_clear(&loop->timers, &client->timer);
	kvw_timer_clear(&loop->timers, &client->write_timer);
	kvw_io_close(&client->io, reset);
	kvw_metrics_gauge(loop->metrics, KVW_GAUGE_PENDING_BYTES, -(int64_t)client->out.bytes);
	kvw_chain_clear(&client->in, &loop->blocks);
	kvw_chain_clear(&client->out, &loop->blocks);
	if (client->exchange != NULL)
		kvw_exchange_client_gone(client->exchange);
	TAILQ_REMOVE(&loop->clients, client, entry);
	TAILQ_INSERT_TAIL(&loop->dead, client, entry);
	loop->client_count--;
	kvw_shared_connection_release(loop->shared);
	kvw_metrics_gauge(loop->metrics, KVW_GAUGE_CLIENT_CONNECTIONS, -1);
}

/* The last answer was sent. What the client has sent or may still be sending is discarded for a while:
 * closing with bytes unread would reset the connection, and the answer with it. */
static void client_finish(struct kvw_client *client, bool unread)
{
	if (!unread || client->io.broken || client->reset ||
		(client->io.peer_closed && !client->io.readable)) {
		kvw_client_close(client, client->reset);
		return;
	}
	kvw_io_shutdown(&client->io);
	client->lingering = true;
	kvw_chain_clear(&client->in, &client->loop->blocks);
	kvw_loop_timer(client->loop, &client->timer, KVW_TIMER_LINGER, LINGER_MS);
	kvw_io_again(&client->io);
}

void kvw_client_answered(struct kvw_client *client)
{
	client_finish(client, true);
}

/* Does the body come fast enough? If so the timer looks again later. */
static bool body_in_time(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_timer *timer = &x->client->timer;
	double seconds = (double)(loop->now_ns - x->rate_from_ns) / KVW_NS_PER_S;

	if (!kvw_request_wants_bytes(x)) {
		/* The worker is slow. The client's time begins again. */
		x->rate_from_ns = loop->now_ns;
		x->rate_from_bytes = x->body_received;
		kvw_loop_timer(loop, timer, KVW_TIMER_BODY, loop->config->timeout_body_ms);
		return true;
	}
	if (loop->config->limits_body_rate > 0 &&
		(double)(x->body_received - x->rate_from_bytes) <
			seconds * (double)loop->config->limits_body_rate)
		return false;
	kvw_loop_timer(loop, timer, KVW_TIMER_BODY_RATE, 1000);
	return true;
}

static void client_timeout(struct kvw_timer *timer, int64_t now_ns)
{
	struct kvw_client *client =
		(struct kvw_client *)((char *)timer - offsetof(struct kvw_client, timer));
	struct kvw_exchange *x = client->exchange;
	static const struct kvw_head_error slow_head = {408, "the request head did not arrive in time"};

	client->loop->now_ns = now_ns;
	switch (timer->kind) {
	case KVW_TIMER_HEAD:
		kvw_metrics_add(client->loop->metrics, KVW_COUNT_TIMEOUT_HEAD, 1);
		if (client->handshaking)
			kvw_client_close(client, false);
		else
			kvw_reply_bad_head(client, &slow_head);
		return;
	case KVW_TIMER_BODY:
	case KVW_TIMER_BODY_RATE:
		if (body_in_time(x))
			return;
		kvw_metrics_add(client->loop->metrics, KVW_COUNT_TIMEOUT_BODY, 1);
		x->end = KVW_END_TIMEOUT;
		if (x->response_state == KVW_RESPONSE_STREAMING)
			kvw_exchange_cut(x); /* the worker's answer has begun: no place for another */
		else
			kvw_reply_error(
				x, 408, "the request body arrived more slowly than limits.body_rate");
		return;
	default: /* idle, linger */
		kvw_client_close(client, false);
	}
}

static void client_write_timeout(struct kvw_timer *timer, int64_t now_ns)
{
	struct kvw_client *client =
		(struct kvw_client *)((char *)timer - offsetof(struct kvw_client, write_timer));

	client->loop->now_ns = now_ns;
	kvw_metrics_add(client->loop->metrics, KVW_COUNT_TIMEOUT_CLIENT_WRITE, 1);
	kvw_client_close(client, true);
}

/* --- sending --- */

void kvw_client_send(struct kvw_client *client, const struct iovec *iov, int count)
{
	struct kvw_loop *loop = client->loop;
	size_t before = client->out.bytes;
	enum kvw_err err = KVW_OK;
	ssize_t n = 0;

	if (client->dead)
		return;
	if (before == 0 && client->io.writable) {
		n = kvw_io_writev(&client->io, iov, count);
		if (n < 0 && errno != EAGAIN) {
			kvw_client_close(client, false);
			return;
		}
		if (n < 0)
			n = 0;
	}
	for (int i = 0; i < count && err == KVW_OK; i++) {
		size_t skip = (size_t)n < iov[i].iov_len ? (size_t)n : iov[i].iov_len;

		n -= (ssize_t)skip;
		if (skip == iov[i].iov_len)
			continue;
		err = kvw_chain_append(&client->out, &loop->blocks,
			(const char *)iov[i].iov_base + skip, iov[i].iov_len - skip);
	}
	if (client->out.bytes != before)
		kvw_metrics_gauge(loop->metrics, KVW_GAUGE_PENDING_BYTES,
			(int64_t)(client->out.bytes - before));
	if (err != KVW_OK) {
		kvw_warn("proxy", "out of memory: client cut client=%s", client->address);
		kvw_client_close(client, true);
	} else if (client->out.bytes != before && !kvw_timer_running(&client->write_timer)) {
		kvw_loop_timer(loop, &client->write_timer, KVW_TIMER_WRITE,
			loop->config->timeout_client_write_ms);
	}
}

static void client_flush(struct kvw_client *client)
{
	struct kvw_loop *loop = client->loop;
	size_t before = client->out.bytes;

	while (client->io.writable && client->out.bytes > 0) {
		struct iovec iov[KVW_LOOP_IOV];
		int count = kvw_chain_iov(&client->out, iov, KVW_LOOP_IOV);
		ssize_t n = kvw_io_writev(&client->io, iov, count);

		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			kvw_client_close(client, false);
			return;
		}
		kvw_chain_consume(&client->out, &loop->blocks, (size_t)n);
		kvw_metrics_gauge(loop->metrics, KVW_GAUGE_PENDING_BYTES, -(int64_t)n);
	}
	if (client->out.bytes == before)
		return;
	if (client->out.bytes > 0)
		kvw_loop_timer(loop, &client->write_timer, KVW_TIMER_WRITE,
			loop->config->timeout_client_write_ms);
	else
		kvw_timer_clear(&loop->timers, &client->write_timer);
	if (client->exchange != NULL)
		kvw_exchange_flushed(client->exchange);
	else if (client->out.bytes == 0 && client->close_after_flush)
		client_finish(client, true);
}

/* --- receiving --- */

/* Begins an exchange if a whole head lies in client->in. */
static void client_parse(struct kvw_client *client)
{
	struct kvw_head_error too_large;
	struct kvw_loop *loop = client->loop;
	struct kvw_block *first = client->in.first;
	struct kvw_exchange *x;
	size_t blank, end;

	blank = kvw_head_skip_blank(first->data + first->begin, kvw_block_used(first));
	if (blank > 0) {
		kvw_chain_consume(&client->in, &loop->blocks, blank);
		client->find_from = 0;
		first = client->in.first;
	}
	if (first == NULL || kvw_block_used(first) == 0)
		return;
	if (client->head_start_ns == 0) {
		client->head_start_ns = loop->now_ns;
		kvw_loop_timer(loop, &client->timer, KVW_TIMER_HEAD, loop->config->timeout_head_ms);
	}
	end = kvw_head_find_end(
		first->data + first->begin, kvw_block_used(first), &client->find_from);
	if (end > loop->config->limits_head ||
		(end == 0 && kvw_block_used(first) >= loop->config->limits_head)) {
		kvw_head_too_large(first->data + first->begin, kvw_block_used(first), &too_large);
		kvw_reply_bad_head(client, &too_large);
		return;
	}
	if (end == 0)
		return;
	kvw_timer_clear(&loop->timers, &client->timer);
	x = kvw_exchange_create(client);
	if (x == NULL) {
		kvw_client_close(client, false);
		return;
	}
	kvw_request_begin(x, end);
}

/* Joins the first blocks, so that a head that began near a block's end lies in one piece. */
static bool client_join(struct kvw_client *client)
{
	struct kvw_loop *loop = client->loop;
	struct kvw_block *first = client->in.first, *joined;

	if (first == NULL || (first->next == NULL && kvw_block_room(first) > 0))
		return true;
	if (first->size > KVW_BLOCK_SMALL && first->next == NULL && first->begin == 0)
		return true; /* full: larger than any limit on heads */
	joined = kvw_block_get(&loop->blocks, KVW_BLOCK_LARGE);
	if (joined == NULL)
		return false;
	while ((first = client->in.first) != NULL && kvw_block_room(joined) > 0) {
		size_t n = kvw_block_used(first);

		if (n > kvw_block_room(joined))
			n = kvw_block_room(joined);
		memcpy(joined->data + joined->end, first->data + first->begin, n);
		joined->end += (uint32_t)n;
		kvw_chain_consume(&client->in, &loop->blocks, n);
	}
	joined->next = client->in.first;
	client->in.first = joined;
	if (client->in.last == NULL)
		client->in.last = joined;
	client->in.bytes += kvw_block_used(joined);
	return true;
}

static void client_advance_head(struct kvw_client *client)
{
	client_parse(client);
	if (client->dead || client->exchange != NULL || client->in.bytes == 0 ||
		client->close_after_flush)
		return;
	if (client->in.first->next == NULL && kvw_block_room(client->in.first) > 0)
		return; /* in one piece already, and room for more */
	if (!client_join(client)) {
		kvw_client_close(client, false);
		return;
	}
	client_parse(client);
}

/* Offers the tail of chain and spare blocks to one readv. */
static int prepare_read(struct kvw_loop *loop, struct kvw_chain *chain, struct iovec *iov,
	bool large, size_t spares, size_t *room)
{
	struct kvw_block *tail = chain->last;
	int count = 0;

	*room = 0;
	if (tail == NULL || kvw_block_room(tail) == 0) {
		if (tail == NULL) {
			tail = kvw_block_get(
				&loop->blocks, large ? KVW_BLOCK_LARGE : KVW_BLOCK_SMALL);
			if (tail == NULL)
				return 0;
			kvw_chain_take(chain, tail);
		} else {
			tail = NULL;
		}
	}
	if (tail != NULL) {
		iov[count].iov_base = tail->data + tail->end;
		iov[count].iov_len = kvw_block_room(tail);
		*room += iov[count++].iov_len;
	}
	for (size_t i = 0; i < spares; i++) {
		if (loop->spares[i] == NULL)
			loop->spares[i] = kvw_block_get(&loop->blocks, KVW_BLOCK_LARGE);
		if (loop->spares[i] == NULL)
			break;
		iov[count].iov_base = loop->spares[i]->data;
		iov[count].iov_len = loop->spares[i]->size;
		*room += iov[count++].iov_len;
	}
	return count;
}

/* Puts the n bytes that were read where they belong. */
static void commit_read(struct kvw_loop *loop, struct kvw_chain *chain, size_t n)
{
	struct kvw_block *tail = chain->last;
	size_t here = kvw_block_room(tail) < n ? kvw_block_room(tail) : n;

	tail->end += (uint32_t)here;
	chain->bytes += here;
	n -= here;
	for (size_t i = 0; i < KVW_LOOP_SPARES && n > 0; i++) {
		struct kvw_block *spare = loop->spares[i];

		here = spare->size < n ? spare->size : n;
		spare->end = (uint32_t)here;
		kvw_chain_take(chain, spare);
		loop->spares[i] = NULL;
		n -= here;
	}
}

static bool client_wants_read(const struct kvw_client *client)
{
	if (client->exchange != NULL)
		return kvw_request_wants_bytes(client->exchange);
	return !client->close_after_flush || client->lingering;
}

static void client_read_ended(struct kvw_client *client)
{
	if (client->exchange != NULL)
		kvw_request_cut(client->exchange);
	else
		kvw_client_close(client, false);
}

static void client_discard(struct kvw_client *client)
{
	struct iovec iov = {client->loop->scratch, KVW_LOOP_SCRATCH};
	ssize_t n = kvw_io_readv(&client->io, &iov, 1, KVW_LOOP_SCRATCH);

	if (n == 0 || (n < 0 && errno != EAGAIN))
		kvw_client_close(client, false);
}

static void client_read(struct kvw_client *client)
{
	struct kvw_loop *loop = client->loop;
	struct kvw_exchange *x = client->exchange;
	struct kvw_chain *chain = x != NULL ? &x->in : &client->in;
	struct iovec iov[1 + KVW_LOOP_SPARES];
	/* One buffer for what begins a request: cheaper, and more can be read. */
	size_t spares = x == NULL ? 0 : KVW_LOOP_SPARES, room;
	int count = prepare_read(loop, chain, iov, client->large, spares, &room);
	ssize_t n;

	if (count == 0) {
		kvw_client_close(client, false);
		return;
	}
	n = kvw_io_readv(&client->io, iov, count, room);
	if (n > 0)
		commit_read(loop, chain, (size_t)n);
	if (n > 0 && x == NULL)
		client->large = (size_t)n == room || (size_t)n > KVW_BLOCK_SMALL;
	if (x == NULL && chain->bytes == 0)
		kvw_chain_clear(chain, &loop->blocks);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		client_read_ended(client);
		return;
	}
	if (x != NULL)
		kvw_request_body(x, (size_t)n);
	else
		client_advance_head(client);
}

/* Has the client gone? A reset always means that, a FIN after a whole request as configured. */
static bool client_gone(const struct kvw_client *client)
{
	if (client->exchange == NULL)
		return false;
	return client->io.broken ||
		(client->io.peer_closed && client->exchange->body.done &&
			client->loop->config->half_close == KVW_HALF_CLOSE_ABORT);
}

static void client_run(struct kvw_client *client)
{
	if (client->exchange == NULL && client->in.bytes > 0 && !client->lingering &&
		!client->close_after_flush)
		client_advance_head(client);
	for (int i = 0; i < READS_AT_ONCE; i++) {
		if (client->dead || !client->io.readable || !client_wants_read(client))
			return;
		/* A request was answered at once: those that came with it are answered before more is
		 * read, lest they pile up. */
		if (client->exchange == NULL && client->io.again)
			return;
		if (client->lingering)
			client_discard(client);
		else
			client_read(client);
	}
	if (!client->dead && client->io.readable)
		kvw_io_again(&client->io);
}

static void client_event(struct kvw_io *io)
{
	struct kvw_client *client = (struct kvw_client *)io;

	client->loop->now_ns = kvw_clock_ns();
	if (client->handshaking) { /* no longer: events come only after it */
		client->handshaking = false;
		kvw_loop_timer(client->loop, &client->timer, KVW_TIMER_CLIENT_IDLE,
			client->loop->config->timeout_client_idle_ms);
	}
	if (client->out.bytes > 0 && client->io.writable)
		client_flush(client);
	if (!client->dead)
		client_run(client);
	if (!client->dead && client_gone(client))
		kvw_client_close(client, false);
}

void kvw_client_exchange_ended(struct kvw_client *client)
{
	struct kvw_loop *loop = client->loop;
	bool unread = !client->exchange->body.done;

	if (client->exchange->close_client || loop->draining)
		client->close_after_flush = true;
	client->exchange = NULL;
	client->head_start_ns = 0;
	client->find_from = 0;
	if (client->dead)
		return;
	kvw_timer_clear(&loop->timers, &client->timer);
	if (client->close_after_flush) {
		if (client->out.bytes == 0)
			client_finish(client, unread || client->io.readable);
		return;
	}
	if (client->in.bytes > 0 || client->io.readable)
		kvw_io_again(&client->io);
	kvw_loop_timer(loop, &client->timer, KVW_TIMER_CLIENT_IDLE,
		loop->config->timeout_client_idle_ms);
}
