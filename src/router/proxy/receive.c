/*
 * receive.c - handles the events of a client's connection: bytes, its end, timers.
 *
 * A request is read into a small block, or a large one if the client's last request was large: one
 * buffer, which is cheaper than two, and nearly always enough. The rest of a body goes into the
 * tail of its chain and, in the same system call, into spare blocks of the loop. While an exchange
 * has its whole request the connection is not read: pipelined requests wait in the kernel. kvway
 * still notices a client that leaves, by the edges of a close or a reset.
 *
 * Callbacks note their event (bytes in x->upload.in, a lost client, a refusal) and advance the
 * exchange.
 */
#include "proxy/receive.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "proxy/advance.h"
#include "proxy/front.h"
#include "proxy/reply.h"
#include "proxy/request.h"
#include "tls/tls.h"

#define READS_AT_ONCE 16

static void client_timeout(struct kvw_timer *timer, int64_t now_ns);
static void client_write_timeout(struct kvw_timer *timer, int64_t now_ns);
static void client_event(struct kvw_io *io);

/* The handshake is limited by the time for a head, not by that for an idle connection. */
static bool begin_tls(struct kvw_client *client)
{
	if (client->loop->tls == NULL)
		return true;
	if (!kvw_shared_handshake_take(client->loop->shared))
		return false;
	if (kvw_tls_server_start(&client->io, client->loop->tls) == KVW_OK) {
		client->https = true;
		client->state = KVW_CLIENT_HANDSHAKE;
		return true;
	}
	kvw_shared_handshake_release(client->loop->shared);
	return false;
}

/* Checks whether this peer may send a header of the PROXY protocol, which then comes first. False:
 * the peer may not be served at all. */
static bool begin_front(struct kvw_client *client, const struct sockaddr *peer)
{
	const struct kvw_front *front = &client->loop->shared->front;
	enum kvw_proxy_protocol protocol = client->loop->shared->config->proxies_protocol;

	client->trusted = front->count > 0 && kvw_networks_hold(front->trusted, front->count, peer);
	if (protocol == KVW_PROXY_PROTOCOL_OFF)
		return true;
	if (client->trusted)
		client->state = KVW_CLIENT_PROXY;
	else if (protocol == KVW_PROXY_PROTOCOL_REQUIRE)
		kvw_metrics_add(client->loop->metrics, KVW_COUNT_PROXY_PROTOCOL_REFUSED, 1);
	return client->trusted || protocol == KVW_PROXY_PROTOCOL_ACCEPT;
}

void kvw_receive_client_take(struct kvw_loop *loop, int fd, const struct sockaddr *peer)
{
	struct kvw_client *client = calloc(1, sizeof(*client));

	if (client == NULL ||
		kvw_io_open(&client->io, &loop->sockets, fd, client_event) != KVW_OK) {
		kvw_metrics_add(loop->metrics, KVW_COUNT_CONNECTIONS_REFUSED, 1);
		free(client);
		close(fd);
		kvw_shared_connection_release(loop->shared);
		return;
	}
	client->io.writable = true;
	client->loop = loop;
	client->state = KVW_CLIENT_OPEN;
	kvw_front_format(client->address, peer);
	if (!begin_front(client, peer) ||
		(client->state != KVW_CLIENT_PROXY && !begin_tls(client))) {
		kvw_metrics_add(loop->metrics, KVW_COUNT_CONNECTIONS_REFUSED, 1);
		kvw_io_close(&client->io, false);
		free(client);
		kvw_shared_connection_release(loop->shared);
		return;
	}
	client->timer.fn = client_timeout;
	client->write_timer.fn = client_write_timeout;
	TAILQ_INSERT_TAIL(&loop->clients, client, entry);
	loop->client_count++;
	kvw_metrics_add(loop->metrics, KVW_COUNT_CONNECTIONS_ACCEPTED, 1);
	kvw_metrics_gauge(loop->metrics, KVW_GAUGE_CLIENT_CONNECTIONS, 1);
	if (client->state != KVW_CLIENT_OPEN)
		kvw_loop_timer(loop, &client->timer, KVW_TIMER_HEAD, loop->config->timeout_head_ms);
	else
		kvw_loop_timer(loop, &client->timer, KVW_TIMER_CLIENT_IDLE,
			loop->config->timeout_client_idle_ms);
}

void kvw_receive_drop(struct kvw_client *client, bool reset)
{
	kvw_client_lose(client, reset);
	if (client->exchange != NULL)
		kvw_exchange_advance(client->exchange);
}

/* --- timers --- */

/* Returns whether the body arrives fast enough. If so the timer checks again later. */
static bool body_in_time(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_timer *timer = &x->client->timer;

	if (!kvw_request_wants_bytes(x)) {
		/* The worker is slow to take the body, so that the client's time begins again. */
		kvw_upload_pace_begin(&x->upload, loop->now_ns);
		kvw_loop_timer(loop, timer, KVW_TIMER_BODY, loop->config->timeout_body_ms);
		return true;
	}
	if (!kvw_upload_keeps_pace(&x->upload, loop->now_ns, loop->config->limits_body_rate))
		return false;
	kvw_loop_timer(loop, timer, KVW_TIMER_BODY_RATE, 1000);
	return true;
}

static void client_timeout(struct kvw_timer *timer, int64_t now_ns)
{
	struct kvw_client *client =
		(struct kvw_client *)((char *)timer - offsetof(struct kvw_client, timer));
	struct kvw_exchange *x = client->exchange;
	static const struct kvw_head_error slow_head = {
		408, "the request head did not arrive in time"};

	client->loop->now_ns = now_ns;
	switch (timer->kind) {
	case KVW_TIMER_HEAD:
		kvw_metrics_add(client->loop->metrics, KVW_COUNT_TIMEOUT_HEAD, 1);
		if (client->state < KVW_CLIENT_OPEN)
			kvw_receive_drop(client, false);
		else
			kvw_reply_bad_head(client, &slow_head);
		return;
	case KVW_TIMER_BODY:
	case KVW_TIMER_BODY_RATE:
		if (body_in_time(x))
			return;
		kvw_metrics_add(client->loop->metrics, KVW_COUNT_TIMEOUT_BODY, 1);
		kvw_trace_note(x->trace, now_ns, KVW_TRACE_TIMER, timer->kind);
		kvw_request_too_slow(x);
		kvw_exchange_advance(x);
		return;
	default: /* idle, linger */
		kvw_receive_drop(client, false);
	}
}

static void client_write_timeout(struct kvw_timer *timer, int64_t now_ns)
{
	struct kvw_client *client =
		(struct kvw_client *)((char *)timer - offsetof(struct kvw_client, write_timer));

	client->loop->now_ns = now_ns;
	kvw_metrics_add(client->loop->metrics, KVW_COUNT_TIMEOUT_CLIENT_WRITE, 1);
	if (client->exchange != NULL)
		kvw_trace_client(client->exchange->trace, now_ns, KVW_TRACE_CLIENT_SLOW);
	kvw_info("proxy", "answer cut: timeouts.client_write passed client=%s", client->address);
	kvw_receive_drop(client, true);
}

/* --- receiving --- */

/* Begins an exchange if a whole head lies in client->in. */
static void client_parse(struct kvw_client *client)
{
	struct kvw_head_error too_large;
	struct kvw_loop *loop = client->loop;
	struct kvw_block *first = client->in.first;
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
	if (kvw_exchange_begin(client, end) != KVW_OK)
		kvw_receive_drop(client, false);
}

/* Joins the first blocks, so that a head that began near a block's end lies in one piece. */
static bool client_join(struct kvw_client *client)
{
	struct kvw_loop *loop = client->loop;
	struct kvw_block *first = client->in.first, *joined;

	if (first == NULL || (first->next == NULL && kvw_block_room(first) > 0))
		return true;
	if (first->size > KVW_BLOCK_SMALL && first->next == NULL && first->begin == 0)
		return true; /* full: the head is larger than any limit */
	joined = kvw_block_get(&loop->blocks, KVW_BLOCK_LARGE);
	if (joined == NULL)
		return false;
	while ((first = client->in.first) != NULL && kvw_block_room(joined) > 0) {
		size_t n = kvw_block_used(first);

		if (n > kvw_block_room(joined))
			n = kvw_block_room(joined);
		memcpy(joined->data + joined->end, first->data + first->begin, n);
		joined->end += (uint32_t)n;
		if (loop->auth != NULL) /* the bytes may hold a key */
			explicit_bzero(first->data + first->begin, n);
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
	if (client->state != KVW_CLIENT_OPEN || client->exchange != NULL || client->in.bytes == 0)
		return;
	if (client->in.first->next == NULL && kvw_block_room(client->in.first) > 0)
		return; /* in one piece already, and the block has room for more */
	if (!client_join(client)) {
		kvw_receive_drop(client, false);
		return;
	}
	client_parse(client);
}

/* Offers the chain's tail and spare blocks to one readv. */
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

/* Appends the n bytes that were read to the chain. */
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
	return client->state != KVW_CLIENT_LAST;
}

static void client_discard(struct kvw_client *client)
{
	struct iovec iov = {client->loop->scratch, KVW_LOOP_SCRATCH};
	ssize_t n = kvw_io_readv(&client->io, &iov, 1, KVW_LOOP_SCRATCH);

	if (n == 0 || (n < 0 && errno != EAGAIN))
		kvw_receive_drop(client, false);
}

static void client_read(struct kvw_client *client)
{
	struct kvw_loop *loop = client->loop;
	struct kvw_exchange *x = client->exchange;
	struct kvw_chain *chain = x != NULL ? &x->upload.in : &client->in;
	struct iovec iov[1 + KVW_LOOP_SPARES];
	/* The beginning of a request gets one buffer: that is cheaper, and another read can
	 * continue. */
	size_t spares = x == NULL ? 0 : KVW_LOOP_SPARES, room;
	int count = prepare_read(loop, chain, iov, client->large, spares, &room);
	ssize_t n;

	if (count == 0) {
		kvw_receive_drop(client, false);
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
		/* the client left, amid a request or between two */
		kvw_receive_drop(client, false);
		return;
	}
	if (x != NULL)
		kvw_exchange_advance(x);
	else
		client_advance_head(client);
}

/* Returns whether the client has gone. A reset always means that; a FIN after a whole request means
 * it if so configured. */
static bool client_gone(const struct kvw_client *client)
{
	if (client->exchange == NULL)
		return false;
	return client->io.broken ||
		(client->io.peer_closed && client->exchange->upload.body.done &&
			client->loop->config->half_close == KVW_HALF_CLOSE_ABORT);
}

static void client_run(struct kvw_client *client)
{
	if (client->exchange == NULL && client->in.bytes > 0 && client->state == KVW_CLIENT_OPEN)
		client_advance_head(client);
	for (int i = 0; i < READS_AT_ONCE; i++) {
		if (!kvw_client_alive(client) || !client->io.readable || !client_wants_read(client))
			return;
		/* A request was answered at once: requests that arrived with it are answered before
		 * the next read, so that they do not pile up. */
		if (client->exchange == NULL && client->io.again)
			return;
		if (client->state == KVW_CLIENT_LINGERING)
			client_discard(client);
		else
			client_read(client);
	}
	if (kvw_client_alive(client) && client->io.readable)
		kvw_io_again(&client->io);
}

static void client_send_waiting(struct kvw_client *client)
{
	if (!kvw_client_flush(client))
		return;
	if (client->exchange != NULL)
		kvw_exchange_advance(client->exchange);
	else if (client->out.bytes == 0 && client->state == KVW_CLIENT_LAST)
		kvw_client_finish(client, true);
}

/* Handles the end of the handshake, good or bad. */
static void handshake_ended(struct kvw_client *client)
{
	enum kvw_counter counter = KVW_COUNT_TLS_FAILED;

	if (kvw_tls_ready(&client->io)) {
		counter = kvw_tls_resumed(&client->io) ? KVW_COUNT_TLS_RESUMED : KVW_COUNT_TLS_FULL;
		client->certificate = kvw_tls_peer_subject(&client->io);
	}
	kvw_metrics_add(client->loop->metrics, counter, 1);
	kvw_shared_handshake_release(client->loop->shared);
}

static void client_opened(struct kvw_client *client)
{
	kvw_client_state(client, KVW_CLIENT_OPEN);
	kvw_loop_timer(client->loop, &client->timer, KVW_TIMER_CLIENT_IDLE,
		client->loop->config->timeout_client_idle_ms);
}

/* Reads the PROXY protocol's header, and then begins TLS or HTTP. */
static void read_proxy_header(struct kvw_client *client)
{
	switch (kvw_front_read(client)) {
	case KVW_FRONTED_MORE:
		return;
	case KVW_FRONTED_BAD:
		kvw_receive_drop(client, false);
		return;
	case KVW_FRONTED_OVER:
		break;
	}
	if (client->loop->tls == NULL)
		client_opened(client);
	else if (begin_tls(client))
		/* bytes that have arrived already raise no further edge */
		kvw_io_again(&client->io);
	else
		kvw_receive_drop(client, false);
}

static void client_event(struct kvw_io *io)
{
	struct kvw_client *client = (struct kvw_client *)io;

	client->loop->now_ns = kvw_clock_ns();
	if (client->state == KVW_CLIENT_PROXY) {
		read_proxy_header(client);
		if (client->state < KVW_CLIENT_OPEN) {
			if (client->loop->closed && client->state == KVW_CLIENT_PROXY &&
				kvw_client_idle(client))
				kvw_client_lose(client, false);
			return;
		}
		if (!kvw_client_alive(client))
			return;
	}
	/* the handshake has ended, since events come only after it */
	if (client->state == KVW_CLIENT_HANDSHAKE) {
		handshake_ended(client);
		client_opened(client);
	}
	if (client->out.bytes > 0 && client->io.writable)
		client_send_waiting(client);
	if (kvw_client_alive(client))
		client_run(client);
	if (kvw_client_alive(client) && client_gone(client))
		kvw_receive_drop(client, false);
	else if (client->loop->closed && kvw_client_idle(client))
		kvw_client_lose(client, false);
}
