/* connect.c - see connect.h. */
#include "proxy/connect.h"

#include "base/log.h"
#include "proxy/loop.h"
#include "proxy/reply.h"

/* The lack is ours, and says nothing of the worker. */
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
	a->body_sent = 0;
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
