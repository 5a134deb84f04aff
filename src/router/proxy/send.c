/*
 * send.c - the request on its way to a worker, and what happens when it does not get there.
 */
#include "proxy/send.h"

#include <string.h>

#include "base/log.h"
#include "proxy/forward.h"
#include "proxy/prepare.h"
#include "proxy/reply.h"
#include "proxy/request.h"
#include "proxy/response.h"
#include "proxy/retry.h"

#define SEND_AT_ONCE 8

/* Blocks that were sent and will not be needed for a retry. */
static void free_sent_blocks(struct kvw_exchange *x)
{
	struct kvw_attempt *a = &x->attempt;
	struct kvw_block *first = x->in.first;

	while (first->next != NULL && first != a->cursor.block && first->next != a->cursor.block) {
		struct kvw_block *sent = first->next;

		first->next = sent->next;
		kvw_block_put(&x->loop->blocks, sent);
	}
}

static void all_sent(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;

	if (x->request_state == KVW_REQUEST_SENT)
		return;
	kvw_exchange_request_state(x, KVW_REQUEST_SENT);
	x->sent_ns = loop->now_ns;
	if (x->added_ns == 0 && x->complete_ns != 0)
		x->added_ns = kvw_clock_ns() - x->complete_ns;
	if (x->response_state == KVW_RESPONSE_WAITING || x->response_state == KVW_RESPONSE_HELD)
		kvw_loop_timer(loop, &x->timer, KVW_TIMER_FIRST_TOKEN,
			loop->config->timeout_first_token_ms);
	else if (!x->paused) /* an early answer, whose timer the upload had */
		kvw_loop_timer(loop, &x->timer, KVW_TIMER_STREAM_IDLE,
			loop->config->timeout_stream_idle_ms);
}

/* Everything that may be sent: head, then body from the cursor on. */
static int gather(struct kvw_exchange *x, struct iovec *iov)
{
	struct kvw_attempt *a = &x->attempt;
	size_t head_left = a->head->end - a->head_sent;
	int count = 0;

	if (head_left > 0) {
		iov[count].iov_base = a->head->data + a->head_sent;
		iov[count++].iov_len = head_left;
	}
	if (x->body_received > a->body_sent)
		count += kvw_cursor_iov(&a->cursor, iov + count, KVW_LOOP_IOV - count);
	return count;
}

void kvw_request_send(struct kvw_exchange *x)
{
	struct kvw_attempt *a = &x->attempt;
	for (int turn = 0; turn < SEND_AT_ONCE && a->link->io.writable; turn++) {
		struct iovec iov[KVW_LOOP_IOV];
		size_t head_left = a->head->end - a->head_sent, sent;
		int count = gather(x, iov);
		ssize_t n;

		if (count == 0)
			break;
		n = kvw_io_writev(&a->link->io, iov, count);
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			/* The worker may have answered before it closed: look first. */
			a->link->io.writable = false;
			a->link->io.readable = true;
			kvw_response_read(x);
			return;
		}
		sent = (size_t)n;
		a->written += sent;
		if (head_left > 0) {
			size_t of_head = sent < head_left ? sent : head_left;

			a->head_sent += of_head;
			sent -= of_head;
		}
		kvw_cursor_advance(&a->cursor, sent);
		a->body_sent += sent;
		if (!x->whole)
			free_sent_blocks(x);
	}
	if (a->head_sent == a->head->end && a->body_sent == x->body_received) {
		if (x->body.done)
			all_sent(x);
		else
			kvw_timer_clear(&x->loop->timers, &x->timer); /* it is the client's turn */
	} else {
		kvw_loop_timer(x->loop, &x->timer, KVW_TIMER_STREAM_IDLE,
			x->loop->config->timeout_stream_idle_ms);
		if (a->link->io.writable)
			kvw_io_again(&a->link->io); /* no edge will come: others have their turn first */
	}
	if (!x->body.done && !x->whole && x->client->io.readable && kvw_request_wants_bytes(x))
		kvw_io_again(&x->client->io);
}

void kvw_request_link_event(struct kvw_link *link, void *user)
{
	struct kvw_exchange *x = user;
	int cause = 0;

	x->loop->now_ns = kvw_clock_ns();
	if (!link->connected) {
		switch (kvw_link_connect_result(link, &cause)) {
		case KVW_OK:
			kvw_timer_clear(&x->loop->timers, &x->timer);
			kvw_exchange_request_state(x, KVW_REQUEST_SENDING);
			break;
		case KVW_EAGAIN:
			return;
		default:
			kvw_request_worker_failed(x, kvw_link_why(link, cause), false);
			return;
		}
	}
	if (x->request_state == KVW_REQUEST_SENDING && link->io.writable)
		kvw_request_send(x);
	if (!x->ended && x->attempt.link == link && link->io.readable && !x->paused)
		kvw_response_read(x);
}

/* --- failure --- */

static void note_tried(struct kvw_exchange *x, const char *why)
{
	size_t len = strlen(x->tried_text);

	if (x->tried_count < KVW_TRIED_MAX)
		x->tried[x->tried_count++] = x->attempt.worker->id;
	(void)snprintf(x->tried_text + len, sizeof(x->tried_text) - len, "%s%s: %s",
		len == 0 ? "" : "; ", x->attempt.worker->url, why);
}

static void give_up(struct kvw_exchange *x, bool timed_out)
{
	char message[512];

	if (timed_out) {
		x->end = KVW_END_TIMEOUT;
		(void)snprintf(message, sizeof(message), "the worker did not answer in time; tried %s",
			x->tried_text);
		kvw_reply_error_as(x, 504, NULL, NULL, "x-should-retry: false\r\n", message);
		return;
	}
	(void)snprintf(message, sizeof(message), "no worker could answer; tried %s", x->tried_text);
	kvw_reply_error_as(x, 502, NULL, NULL, NULL, message);
}

void kvw_request_worker_failed(struct kvw_exchange *x, const char *why, bool timed_out)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_retry_facts facts = {
		.first_token = x->first_token || x->response_state == KVW_RESPONSE_STREAMING,
		.repeatable = x->path.repeatable,
		.idempotent = x->idempotent,
		.request_held = x->whole || x->attempt.body_sent == 0,
		.link_reused = x->attempt.link != NULL && x->attempt.link->reused,
		.response_byte = x->attempt.answered,
		.waited_out = timed_out,
		.link_written = x->attempt.written,
		.retries = x->tried_count,
		.retry_limit = (uint32_t)loop->config->retry_attempts,
	};
	enum kvw_retry retry = kvw_retry_decide(&facts);

	kvw_timer_clear(&loop->timers, &x->timer);
	if (facts.first_token) {
		x->end = timed_out ? KVW_END_TIMEOUT : KVW_END_UPSTREAM_LOST;
		kvw_exchange_cut(x);
		return;
	}
	if (x->response_state == KVW_RESPONSE_HELD || x->response_state == KVW_RESPONSE_WAITING)
		kvw_exchange_response_state(x, KVW_RESPONSE_NONE);
	if (retry == KVW_RETRY_FRESH) {
		x->stale_retries++;
		kvw_metrics_add(loop->metrics, KVW_COUNT_STALE_RETRIES, 1);
		kvw_link_close(x->attempt.link);
		x->attempt.link = NULL;
		x->attempt.head_sent = 0;
		kvw_block_put(&loop->blocks, x->attempt.partial);
		x->attempt.partial = NULL;
		kvw_exchange_request_state(x, KVW_REQUEST_PREPARING);
		kvw_exchange_response_state(x, KVW_RESPONSE_WAITING);
		kvw_request_attach(x, true);
		return;
	}
	kvw_fleet_request_failed(loop->fleet, x->attempt.worker, why);
	note_tried(x, why);
	kvw_debug("proxy", "worker failed url=%s why=\"%s\" request_id=%.*s", x->attempt.worker->url, why,
		(int)x->request_id.len, x->request_id.data);
	kvw_attempt_end(x, false);
	if (retry == KVW_RETRY_OTHER) {
		kvw_metrics_add(loop->metrics, KVW_COUNT_RETRIES, 1);
		kvw_request_forward(x);
		return;
	}
	give_up(x, timed_out);
}

void kvw_request_timeout(struct kvw_timer *timer, int64_t now_ns)
{
	struct kvw_exchange *x =
		(struct kvw_exchange *)((char *)timer - offsetof(struct kvw_exchange, timer));
	struct kvw_loop *loop = x->loop;

	loop->now_ns = now_ns;
	switch (timer->kind) {
	case KVW_TIMER_PARK:
		kvw_request_park_timeout(x);
		return;
	case KVW_TIMER_TOKENS:
		kvw_prepare_timeout(x);
		return;
	case KVW_TIMER_CONNECT:
		kvw_metrics_add(loop->metrics, KVW_COUNT_TIMEOUT_CONNECT, 1);
		kvw_request_worker_failed(x, "timeouts.connect passed", false);
		return;
	case KVW_TIMER_FIRST_TOKEN:
		kvw_metrics_add(loop->metrics, KVW_COUNT_TIMEOUT_FIRST_TOKEN, 1);
		kvw_request_worker_failed(x, "timeouts.first_token passed", true);
		return;
	default:
		kvw_metrics_add(loop->metrics, KVW_COUNT_TIMEOUT_STREAM_IDLE, 1);
		kvw_request_worker_failed(x, "timeouts.stream_idle passed", true);
	}
}
