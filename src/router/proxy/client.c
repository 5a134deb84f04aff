/* client.c - a client's connection: its state, and the bytes sent on it. */
#include "proxy/client.h"

#include "base/log.h"
#include "proxy/exchange.h"

/* After an answer that ended a connection early, kvway reads and discards the client's bytes for
 * this long, since a reset could destroy the answer on its way. */
#define LINGER_MS 2000

#define BIT(state) (1u << (state))

static const unsigned client_next[KVW_CLIENT_STATES] = {
	[KVW_CLIENT_PROXY] =
		BIT(KVW_CLIENT_HANDSHAKE) | BIT(KVW_CLIENT_OPEN) | BIT(KVW_CLIENT_CLOSED),
	[KVW_CLIENT_HANDSHAKE] = BIT(KVW_CLIENT_OPEN) | BIT(KVW_CLIENT_CLOSED),
	[KVW_CLIENT_OPEN] = BIT(KVW_CLIENT_LAST) | BIT(KVW_CLIENT_LOST) | BIT(KVW_CLIENT_CLOSED),
	[KVW_CLIENT_LAST] =
		BIT(KVW_CLIENT_LINGERING) | BIT(KVW_CLIENT_LOST) | BIT(KVW_CLIENT_CLOSED),
	[KVW_CLIENT_LINGERING] = BIT(KVW_CLIENT_CLOSED),
	[KVW_CLIENT_LOST] = BIT(KVW_CLIENT_CLOSED),
};

void kvw_client_state(struct kvw_client *client, enum kvw_client_state state)
{
	if (client_next[client->state] & BIT(state)) {
		client->state = state;
		return;
	}
	kvw_error("proxy", "internal error: forbidden step of a client from=%u to=%u client=%s",
		client->state, state, client->address);
	kvw_metrics_add(client->loop->metrics, KVW_COUNT_INTERNAL_ERRORS, 1);
}

void kvw_client_drop_input(struct kvw_client *client)
{
	if (client->loop->auth != NULL)
		kvw_chain_wipe(&client->in);
	kvw_chain_clear(&client->in, &client->loop->blocks);
}

/* Counts bytes of answers that wait for the client; a negative number: fewer. */
static void count_pending(struct kvw_client *client, int64_t bytes)
{
	kvw_metrics_gauge(client->loop->metrics, KVW_GAUGE_PENDING_BYTES, bytes);
	/* a negative number wraps around to less */
	kvw_account_add(client->loop->shared->memory, (uint64_t)bytes);
}

static void client_close(struct kvw_client *client, bool reset)
{
	struct kvw_loop *loop = client->loop;

	if (client->state == KVW_CLIENT_HANDSHAKE)
		kvw_shared_handshake_release(loop->shared);
	kvw_client_state(client, KVW_CLIENT_CLOSED);
	kvw_timer_clear(&loop->timers, &client->timer);
	kvw_timer_clear(&loop->timers, &client->write_timer);
	kvw_io_close(&client->io, reset);
	if (client->out.bytes > 0)
		count_pending(client, -(int64_t)client->out.bytes);
	kvw_client_drop_input(client);
	kvw_chain_clear(&client->out, &loop->blocks);
	TAILQ_REMOVE(&loop->clients, client, entry);
	TAILQ_INSERT_TAIL(&loop->dead, client, entry);
	loop->client_count--;
	kvw_shared_connection_release(loop->shared);
	kvw_metrics_gauge(loop->metrics, KVW_GAUGE_CLIENT_CONNECTIONS, -1);
}

void kvw_client_lose(struct kvw_client *client, bool reset)
{
	if (!kvw_client_alive(client))
		return;
	client->reset = reset;
	if (client->exchange == NULL)
		client_close(client, reset);
	else
		kvw_client_state(client, KVW_CLIENT_LOST);
}

/* A close with unread bytes would reset the connection, and destroy the answer. */
void kvw_client_finish(struct kvw_client *client, bool unread)
{
	if (!unread || client->io.broken || client->reset ||
		(client->io.peer_closed && !client->io.readable)) {
		client_close(client, client->reset);
		return;
	}
	kvw_io_shutdown(&client->io);
	kvw_client_state(client, KVW_CLIENT_LINGERING);
	kvw_client_drop_input(client);
	kvw_loop_timer(client->loop, &client->timer, KVW_TIMER_LINGER, LINGER_MS);
	kvw_io_again(&client->io);
}

void kvw_client_send(struct kvw_client *client, const struct iovec *iov, int count)
{
	struct kvw_loop *loop = client->loop;
	size_t before = client->out.bytes;
	enum kvw_err err = KVW_OK;
	ssize_t n = 0;

	if (!kvw_client_alive(client))
		return;
	if (before == 0 && client->io.writable) {
		n = kvw_io_writev(&client->io, iov, count);
		if (n < 0 && errno != EAGAIN) {
			kvw_client_lose(client, false);
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
		count_pending(client, (int64_t)(client->out.bytes - before));
	if (err != KVW_OK) {
		kvw_warn("proxy", "out of memory: client cut client=%s", client->address);
		kvw_client_lose(client, true);
	} else if (client->out.bytes != before && !kvw_timer_running(&client->write_timer)) {
		kvw_loop_timer(loop, &client->write_timer, KVW_TIMER_WRITE,
			loop->config->timeout_client_write_ms);
	}
}

bool kvw_client_flush(struct kvw_client *client)
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
			kvw_client_lose(client, false);
			return true;
		}
		kvw_chain_consume(&client->out, &loop->blocks, (size_t)n);
		count_pending(client, -(int64_t)n);
	}
	if (client->out.bytes == before)
		return false;
	if (client->out.bytes > 0)
		kvw_loop_timer(loop, &client->write_timer, KVW_TIMER_WRITE,
			loop->config->timeout_client_write_ms);
	else
		kvw_timer_clear(&loop->timers, &client->write_timer);
	return true;
}

void kvw_client_exchange_ended(struct kvw_client *client)
{
	struct kvw_loop *loop = client->loop;
	bool unread = !client->exchange->upload.body.done;
	bool last = client->exchange->close_client;

	client->exchange = NULL;
	client->head_start_ns = 0;
	client->find_from = 0;
	if (client->state == KVW_CLIENT_LOST) {
		client_close(client, client->reset);
		return;
	}
	kvw_timer_clear(&loop->timers, &client->timer);
	if (last) {
		kvw_client_state(client, KVW_CLIENT_LAST);
		if (client->out.bytes == 0)
			kvw_client_finish(client, unread || client->io.readable);
		return;
	}
	if (client->in.bytes > 0 || client->io.readable) {
		kvw_io_again(&client->io);
	} else if (loop->closed) { /* the answer, begun before the drain, lacks `close` */
		client_close(client, false);
		return;
	}
	/* If another process accepts connections, that process better serves the client's next
	 * request. */
	kvw_loop_timer(loop, &client->timer, KVW_TIMER_CLIENT_IDLE,
		loop->handed && loop->config->drain_settle_ms < loop->config->timeout_client_idle_ms
			? loop->config->drain_settle_ms
			: loop->config->timeout_client_idle_ms);
}
