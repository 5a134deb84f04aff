/*
 * send.c - sends a request to a worker: connects, and writes head and body.
 */
#include "proxy/send.h"

#include "base/log.h"
#include "proxy/loop.h"
#include "proxy/pd.h"
#include "proxy/reply.h"
#include "proxy/request.h"

#define SEND_AT_ONCE 8

/* --- the connection --- */

/* The shortage of descriptors or memory is kvway's own, and shows nothing of the worker. */
static void no_means(struct kvw_exchange *x)
{
	static const char message[] =
		"no memory, descriptor or port is left for a connection to a worker";

	kvw_metrics_add(x->loop->metrics, KVW_COUNT_OUT_OF_DESCRIPTORS, 1);
	if (kvw_shared_lacks(x->loop->shared, x->loop->now_ns))
		kvw_warn("proxy", "%s url=%s", message, x->attempt.worker->url);
	kvw_reply_error_as(x, 503, NULL, NULL, "retry-after: 1\r\n", message);
}

void kvw_connect(struct kvw_exchange *x, bool fresh, kvw_link_fn on_link)
{
	struct kvw_attempt *a = &x->attempt;
	struct kvw_loop *loop = x->loop;
	enum kvw_err err = kvw_link_take(&loop->links, a->worker, fresh, on_link, x, &a->link);

	a->written = 0;
	a->answered = false;
	a->partial_from = 0;
	if (x->whole || a->body_sent == 0)
		a->cursor = kvw_upload_body(&x->upload);
	kvw_cursor_advance(&a->cursor, a->led);
	a->body_sent = a->led;
	if (kvw_pd_body(x) != NULL) {
		a->body_sent = x->upload.received;
		x->pd->body_sent = 0;
	}
	if (err != KVW_OK) {
		a->link = NULL;
		if (err == KVW_ENOMEM)
			no_means(x);
		else
			kvw_attempt_failed(a, "it cannot be connected to");
		return;
	}
	kvw_metrics_add(loop->metrics,
		a->link->reused ? KVW_COUNT_UPSTREAM_REUSES : KVW_COUNT_UPSTREAM_CONNECTS, 1);
	if (a->link->connected) {
		kvw_exchange_request_state(x, KVW_REQUEST_SENDING);
		return;
	}
	kvw_exchange_request_state(x, KVW_REQUEST_CONNECTING);
	kvw_loop_timer(loop, &x->timer, KVW_TIMER_CONNECT, x->config->timeout_connect_ms);
}

/* --- head and body --- */

void kvw_request_await_token(struct kvw_exchange *x, int64_t attempt_ms)
{
	struct kvw_loop *loop = x->loop;
	int64_t first_token_ns =
		x->complete_ns + x->config->timeout_first_token_ms * KVW_NS_PER_MS;
	int64_t attempt_ns = loop->now_ns + attempt_ms * KVW_NS_PER_MS;

	if (attempt_ms > 0 && attempt_ns < first_token_ns)
		kvw_timer_set(&loop->timers, &x->timer, KVW_TIMER_ATTEMPT, attempt_ns);
	else
		kvw_timer_set(&loop->timers, &x->timer, KVW_TIMER_FIRST_TOKEN, first_token_ns);
}

static void all_sent(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;

	if (x->request_state == KVW_REQUEST_SENT)
		return;
	kvw_exchange_request_state(x, KVW_REQUEST_SENT);
	kvw_attempt_await(x, true);
	if (x->added_ns == 0 && x->complete_ns != 0)
		x->added_ns = kvw_clock_ns() - x->complete_ns - kvw_pd_prefill_ns(x);
	if (x->response_state == KVW_RESPONSE_WAITING || x->response_state == KVW_RESPONSE_HELD)
		kvw_request_await_token(x, x->config->timeout_attempt_ms);
	else if (x->response_state ==
		 KVW_RESPONSE_STREAMING) /* an early answer, while the upload was using the timer */
		kvw_loop_timer(loop, &x->timer, KVW_TIMER_STREAM_IDLE,
			x->config->timeout_stream_idle_ms);
}

/* Gathers all bytes that may be sent: head, then body from the cursor on. */
static int gather_unsent(struct kvw_exchange *x, struct iovec *iov)
{
	struct kvw_attempt *a = &x->attempt;
	const struct kvw_parted *pd = kvw_pd_body(x);
	size_t head_left = a->head->end - a->head_sent;
	int count = 0;

	if (head_left > 0) {
		iov[count].iov_base = a->head->data + a->head_sent;
		iov[count++].iov_len = head_left;
	}
	if (pd != NULL)
		count += kvw_pieces_from(&pd->body, pd->body_sent, iov + count);
	if (x->upload.received > a->body_sent)
		count += kvw_cursor_iov(&a->cursor, iov + count, KVW_LOOP_IOV - count);
	return count;
}

void kvw_request_send(struct kvw_exchange *x)
{
	struct kvw_attempt *a = &x->attempt;
	struct kvw_parted *pd = kvw_pd_body(x);

	if (pd != NULL && kvw_pd_too_late(x))
		return;
	for (int turn = 0; turn < SEND_AT_ONCE && a->link->io.writable; turn++) {
		struct iovec iov[KVW_LOOP_IOV];
		size_t head_left = a->head->end - a->head_sent, sent;
		int count = gather_unsent(x, iov);
		ssize_t n;

		if (count == 0)
			break;
		n = kvw_io_writev(&a->link->io, iov, count);
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			/* The worker may have answered before it closed the connection: the answer
			 * is read first. */
			a->link->io.writable = false;
			a->link->io.readable = true;
			return;
		}
		sent = (size_t)n;
		a->written += sent;
		if (x->pd != NULL)
			kvw_pd_handed(x);
		if (head_left > 0) {
			size_t of_head = sent < head_left ? sent : head_left;

			a->head_sent += of_head;
			sent -= of_head;
		}
		if (pd != NULL) {
			pd->body_sent += sent;
			continue;
		}
		kvw_cursor_advance(&a->cursor, sent);
		a->body_sent += sent;
		if (!x->whole)
			kvw_upload_free_before(&x->upload, &x->loop->blocks, a->cursor.block);
	}
	if (a->head_sent == a->head->end && a->body_sent == x->upload.received &&
		(pd == NULL || pd->body_sent == pd->body.len)) {
		if (x->upload.body.done)
			all_sent(x);
		else
			/* the next bytes must come from the client */
			kvw_timer_clear(&x->loop->timers, &x->timer);
	} else {
		kvw_loop_timer(x->loop, &x->timer, KVW_TIMER_STREAM_IDLE,
			x->config->timeout_stream_idle_ms);
		if (a->link->io.writable)
			/* no edge will follow, so that the loop calls again after others had their
			 * turn */
			kvw_io_again(&a->link->io);
	}
	if (!x->upload.body.done && !x->whole && x->client->io.readable &&
		kvw_request_wants_bytes(x))
		kvw_io_again(&x->client->io);
}
