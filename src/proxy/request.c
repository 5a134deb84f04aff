/*
 * request.c - the request side of an exchange: head, body, route, send.
 */
#include "exchange.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "error_body.h"
#include "log.h"
#include "retry.h"

#define PARK_MS    1000 /* a request for an unknown model waits so long for a fresh list */
#define SEND_AT_ONCE 8

static const char continue_line[] = "HTTP/1.1 100 Continue\r\n\r\n";

static bool is_method(const struct kvw_exchange *x, const char *name)
{
	return kvw_slice_equal(x->method, kvw_slice_of(name));
}

static const char *raw_head(const struct kvw_exchange *x)
{
	return x->in.first->data + x->head_offset;
}

/* --- head --- */

static void make_request_id(struct kvw_exchange *x)
{
	static const char digits[] = "0123456789abcdef";
	uint64_t parts[2] = {x->loop->request_id_prefix, x->loop->request_id_next++};

	for (int i = 0; i < 32; i++)
		x->id_text[i] = digits[parts[i / 16] >> (60 - i % 16 * 4) & 15];
	x->request_id = (struct kvw_slice){x->id_text, 32};
}

/* Session key from headers or cookies; the body's own is the scan's. */
static struct kvw_slice head_session(const struct kvw_loop *loop)
{
	const struct kvw_config *config = loop->config;

	for (size_t i = 0; i < config->session_headers.count; i++) {
		const struct kvw_field *field = kvw_head_find(
			&loop->request_head, kvw_slice_of(config->session_headers.items[i]));

		if (field != NULL && field->value.len > 0)
			return field->value;
	}
	for (size_t i = 0; i < config->session_cookies.count; i++) {
		struct kvw_slice value = kvw_head_cookie(
			&loop->request_head, kvw_slice_of(config->session_cookies.items[i]));

		if (value.len > 0)
			return value;
	}
	return (struct kvw_slice){NULL, 0};
}

/* Copies what the exchange needs of the parsed head. */
static void note_head(struct kvw_exchange *x)
{
	const struct kvw_head *head = &x->loop->request_head;
	const struct kvw_field *id = kvw_head_field(head, KVW_FIELD_X_REQUEST_ID);

	x->loop->head_owner = x;
	x->method = head->method;
	x->target = head->target;
	x->head_request = head->head_method;
	x->keep_alive = head->keep_alive;
	x->client_minor = head->minor;
	x->framing = head->framing;
	x->content_length = head->framing == KVW_FRAME_LENGTH ? head->content_length : 0;
	x->path = kvw_path_classify(head->target);
	x->idempotent = head->get_method || head->head_method || is_method(x, "PUT") ||
		is_method(x, "DELETE") || is_method(x, "OPTIONS");
	if (id != NULL && id->value.len > 0)
		x->request_id = id->value;
	else
		make_request_id(x);
	x->route.api = x->path.api;
	x->route.session = head_session(x->loop);
	x->watch_usage = x->path.prompt;
}

static void too_large(struct kvw_exchange *x)
{
	char message[128];

	(void)snprintf(message, sizeof(message), "the request body is larger than limits.body, %llu bytes",
		(unsigned long long)x->loop->config->limits_body);
	kvw_reply_error(x, 413, message);
}

/* Refusals by head alone. True if one was sent. */
static bool refuse(struct kvw_exchange *x)
{
	const struct kvw_head *head = &x->loop->request_head;
	const struct kvw_config *config = x->loop->config;

	if (head->upgrade) {
		kvw_reply_error(x, 501, "protocol upgrades (WebSocket) are not supported");
	} else if (x->path.kind == KVW_PATH_ENGINE_CONTROL && !config->expose_engine_control) {
		kvw_reply_error(x, 403,
			"this path controls the engine and is not exposed; set expose.engine_control");
	} else if (x->path.kind == KVW_PATH_LORA && !config->expose_lora) {
		kvw_reply_error(
			x, 403, "loading LoRA adapters is not exposed; set expose.lora");
	} else if (x->content_length > config->limits_body) {
		too_large(x);
	} else {
		return false;
	}
	return true;
}

static bool answer_locally(struct kvw_exchange *x)
{
	struct kvw_slice path = x->target;
	const char *mark = memchr(path.data, '?', path.len);
	struct kvw_local_answer answer;

	if (x->path.kind != KVW_PATH_LOCAL)
		return false;
	if (!x->head_request && !x->loop->request_head.get_method) {
		kvw_reply_error_as(x, 405, NULL, NULL, "allow: GET, HEAD\r\n",
			"this path answers GET and HEAD");
		return true;
	}
	if (mark != NULL)
		path.len = (size_t)(mark - path.data);
	if (kvw_admin_answer(x->loop->admin, path, x->loop->now_ns, &answer) != KVW_OK) {
		kvw_reply_error(x, 500, "out of memory");
		return true;
	}
	kvw_reply(x, answer.status, answer.content_type, NULL, answer.body, answer.len);
	free(answer.body);
	return true;
}

/* Takes body memory for a whole request. False: refused, an answer was sent. */
static bool take_body_memory(struct kvw_exchange *x, uint64_t bytes)
{
	if (kvw_proxy_body_memory_take(x->loop->proxy, bytes)) {
		x->body_memory += bytes;
		kvw_metrics_gauge(x->loop->metrics, KVW_GAUGE_BODY_BYTES, (int64_t)bytes);
		return true;
	}
	kvw_metrics_add(x->loop->metrics, KVW_COUNT_BODY_MEMORY_REFUSED, 1);
	kvw_reply_error_as(x, 503, NULL, NULL, "retry-after: 1\r\n",
		"request bodies in flight fill limits.body_memory");
	return false;
}

static void choose_mode(struct kvw_exchange *x)
{
	const struct kvw_head *head = &x->loop->request_head;

	x->whole = x->path.prompt && head->post_method && head->json &&
		x->framing != KVW_FRAME_NONE &&
		x->content_length <= x->loop->config->routing_scan_limit;
	if (x->whole)
		x->scan = kvw_loop_scan_get(x->loop);
	if (x->scan != NULL)
		kvw_scan_reset(x->scan, x->path.api);
}

static void body_payload(void *arg, const char *data, size_t len)
{
	struct kvw_exchange *x = arg;

	if (x->scan != NULL)
		kvw_scan_feed(x->scan, data, len);
}

/* What lies behind the body's end belongs to the next request. */
static void return_leftover(struct kvw_exchange *x)
{
	struct kvw_block *last = x->feed.block, *rest = last->next;
	struct kvw_client *client = x->client;
	size_t n = last->end - x->feed.offset;

	if (n > 0 && kvw_chain_append(&client->in, &x->loop->blocks,
			     last->data + x->feed.offset, n) != KVW_OK)
		x->close_client = true;
	last->end = x->feed.offset;
	last->next = NULL;
	x->in.last = last;
	while (rest != NULL) {
		struct kvw_block *next = rest->next;

		rest->next = NULL;
		kvw_chain_take(&client->in, rest);
		rest = next;
	}
}

static void body_complete(struct kvw_exchange *x)
{
	kvw_timer_clear(&x->loop->timers, &x->client->timer);
	x->complete_ns = x->loop->now_ns;
	return_leftover(x);
}

/* A whole request has been read: what does it ask for, and who shall serve it? */
static void whole_complete(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;

	if (x->scan != NULL) {
		struct kvw_slice session = x->route.session;

		if (kvw_scan_finish(x->scan, &x->route) == KVW_OK)
			x->scanned = true;
		else
			kvw_metrics_add(loop->metrics, KVW_COUNT_SCAN_REJECTED, 1);
		if (session.len > 0)
			x->route.session = session;
		for (uint32_t c = 0, begin = 0; c < x->route.chain_count; c++) {
			uint32_t end = x->route.chain_ends[c];

			if (end > begin)
				x->prompt_units += x->route.chunks[end - 1].end;
			begin = end;
		}
		if (x->route.token_ids)
			x->prompt_units = 0; /* nothing to learn about bytes */
	}
	kvw_request_forward(x);
}

/* False: the client went away. */
static bool send_continue(struct kvw_exchange *x)
{
	struct iovec iov = {(char *)continue_line, sizeof(continue_line) - 1};

	if (x->client_minor > 0)
		kvw_client_send(x->client, &iov, 1);
	return !x->ended;
}

void kvw_request_begin(struct kvw_exchange *x, size_t head_len)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_block *first = x->in.first;
	struct kvw_head_error error;
	size_t arrived = x->in.bytes - head_len;

	x->head_offset = first->begin;
	x->head_len = head_len;
	x->feed = (struct kvw_cursor){first, first->begin + (uint32_t)head_len};
	x->cursor = x->feed;
	if (kvw_head_parse_request(&loop->request_head, raw_head(x), head_len, &error) != KVW_OK) {
		x->close_client = true;
		x->client_minor = 1;
		kvw_reply_error(x, error.status, error.message);
		return;
	}
	note_head(x);
	kvw_body_begin(&x->body, x->framing, x->content_length, loop->config->limits_body);
	if (x->body.done)
		body_complete(x);
	if (refuse(x) || answer_locally(x))
		return;
	choose_mode(x);
	if (x->whole) {
		if (!take_body_memory(x, x->content_length))
			return;
		kvw_exchange_request_state(x, KVW_REQUEST_READ_BODY);
	}
	if (!x->body.done) {
		if (loop->request_head.expect_continue && arrived == 0 && !send_continue(x))
			return;
		kvw_loop_timer(loop, &x->client->timer, KVW_TIMER_BODY, loop->config->timeout_body_ms);
		kvw_request_body(x, arrived);
	} else if (x->whole) {
		whole_complete(x);
	}
	/* Not whole: what came with the head leaves with the head. */
	if (!x->ended && !x->whole && x->request_state == KVW_REQUEST_READ_HEAD)
		kvw_request_forward(x);
}

/* --- body --- */

bool kvw_request_wants_bytes(const struct kvw_exchange *x)
{
	if (x->body.done || x->response_state >= KVW_RESPONSE_DONE)
		return false;
	return x->whole || x->body_received - x->body_sent < x->loop->config->limits_high_water;
}

/* The body outgrew what is read whole: route on what is known and stream the rest. */
static void stream_after_all(struct kvw_exchange *x)
{
	x->whole = false;
	if (x->scan != NULL)
		kvw_loop_scan_put(x->loop, x->scan);
	x->scan = NULL;
	kvw_request_forward(x);
}

static void body_refused(struct kvw_exchange *x, enum kvw_err err)
{
	if (x->response_state == KVW_RESPONSE_STREAMING)
		kvw_client_close(x->client, true);
	else if (err == KVW_ELIMIT)
		too_large(x);
	else
		kvw_reply_error(x, 400, x->body.error);
}

void kvw_request_body(struct kvw_exchange *x, size_t n)
{
	struct iovec iov[KVW_LOOP_IOV];
	int count = n == 0 ? 0 : kvw_cursor_iov(&x->feed, iov, KVW_LOOP_IOV);

	for (int i = 0; i < count && !x->body.done; i++) {
		size_t used = 0;
		enum kvw_err err = kvw_body_feed(&x->body, iov[i].iov_base, iov[i].iov_len,
			body_payload, x, &used);

		if (err != KVW_OK) {
			body_refused(x, err);
			return;
		}
		kvw_cursor_advance(&x->feed, used);
		x->body_received += used;
	}
	if (x->framing == KVW_FRAME_CHUNKED && x->whole && x->body_received > x->body_memory &&
		!take_body_memory(x, x->body_received - x->body_memory))
		return;
	if (x->body.done) {
		body_complete(x);
		if (x->whole)
			whole_complete(x);
	} else if (x->whole && x->body_received > x->loop->config->routing_scan_limit) {
		stream_after_all(x);
	}
	if (!x->ended && x->request_state == KVW_REQUEST_SENDING)
		kvw_request_send(x);
}

void kvw_request_cut(struct kvw_exchange *x)
{
	kvw_client_close(x->client, false); /* ends the exchange too */
}

/* --- route --- */

static void no_model(struct kvw_exchange *x)
{
	char message[512];
	struct kvw_slice model = x->route.model;
	int shown = (int)(model.len < 256 ? model.len : 256);

	(void)snprintf(message, sizeof(message), "The model `%.*s` does not exist.", shown, model.data);
	kvw_reply_error_as(x, 404, "NotFoundError", "model", NULL, message);
}

static void no_worker(struct kvw_exchange *x)
{
	char message[1024];
	int len = snprintf(message, sizeof(message), "no usable worker");

	if (x->tried_count > 0) {
		(void)snprintf(message, sizeof(message), "no worker could answer; tried %s", x->tried_text);
	} else {
		for (size_t i = 0; i < x->loop->fleet->count && len < (int)sizeof(message) - 1; i++) {
			const struct kvw_worker *worker = x->loop->fleet->workers[i];

			len += snprintf(message + len, sizeof(message) - (size_t)len, "%s %s is %s",
				i == 0 ? ":" : ",", worker->url,
				kvw_worker_usable(worker) ? "up, without this model" : "down");
		}
	}
	kvw_reply_error_as(x, x->tried_count > 0 ? 502 : 503, NULL, NULL, "retry-after: 1\r\n", message);
}

/* Asks workers for their lists; true if any has to be asked. */
static bool want_models(struct kvw_loop *loop)
{
	bool asked = false;

	for (size_t i = 0; i < loop->fleet->count; i++) {
		struct kvw_worker *worker = loop->fleet->workers[i];

		if (worker->models_given)
			continue;
		atomic_store_explicit(&worker->models_wanted, true, memory_order_relaxed);
		asked = true;
	}
	return asked;
}

static bool all_models_known(const struct kvw_loop *loop)
{
	return atomic_load_explicit(&loop->fleet->view, memory_order_acquire)->all_known;
}

static void unknown_model(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;

	if (!kvw_timer_running(&x->timer) && want_models(loop) && !x->parked) {
		x->parked = true;
		TAILQ_INSERT_TAIL(&loop->parked, x, entry);
		kvw_loop_timer(loop, &x->timer, KVW_TIMER_PARK, PARK_MS);
	} else if (all_models_known(loop)) {
		no_model(x);
	} else {
		kvw_reply_error_as(x, 503, NULL, NULL, "retry-after: 1\r\n",
			"the models of some workers are not known yet");
	}
}

static void unpark(struct kvw_exchange *x)
{
	TAILQ_REMOVE(&x->loop->parked, x, entry);
	x->parked = false;
	kvw_timer_clear(&x->loop->timers, &x->timer);
}

void kvw_request_unpark(struct kvw_loop *loop)
{
	struct kvw_exchange *x, *next;

	for (x = TAILQ_FIRST(&loop->parked); x != NULL; x = next) {
		struct kvw_model *model;
		bool known;

		next = TAILQ_NEXT(x, entry);
		(void)kvw_fleet_candidates(loop->fleet, x->route.model, loop->candidates, &known, &model);
		if (!known)
			continue;
		unpark(x);
		kvw_request_forward(x);
	}
}

/* Leaves out workers that this request has tried. */
static size_t drop_tried(const struct kvw_exchange *x, struct kvw_candidate *items, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++) {
		bool tried = false;

		for (uint32_t t = 0; t < x->tried_count && !tried; t++)
			tried = x->tried[t] == items[i].id;
		if (!tried)
			items[kept++] = items[i];
	}
	return kept;
}

static bool pick(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_candidates set = {.items = loop->candidates};
	bool known;

	set.count = kvw_fleet_candidates(
		loop->fleet, x->route.model, loop->candidates, &known, &x->model);
	if (!known) {
		unknown_model(x);
		return false;
	}
	set.count = drop_tried(x, loop->candidates, set.count);
	x->route.tokens_per_unit = x->route.token_ids
		? 1.0f
		: kvw_model_tokens_per_unit(x->model, loop->config->routing_bytes_per_token);
	if (loop->strategy->ops->pick(loop->strategy, &x->route, &set, loop->now_ns, &x->decision) !=
		KVW_OK) {
		no_worker(x);
		return false;
	}
	x->picked = x->decided = true;
	x->picked_ns = loop->now_ns;
	x->worker = loop->fleet->workers[x->decision.worker_id];
	x->attempts++;
	kvw_lease_take(&x->lease, &x->worker->load, x->decision.prefill_ns, loop->now_ns);
	return true;
}

/* Builds the head for x->worker into x->out_head. */
static bool build_head(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_head_error error;
	struct kvw_request_head_options options = {
		.prefix = kvw_slice_of(x->worker->path_prefix),
		.authority = kvw_slice_of(x->worker->authority),
		.request_id = x->request_id,
		.client = kvw_slice_of(x->client->address),
		.x_forwarded = loop->config->forwarded == KVW_FORWARDED_BOTH ||
			loop->config->forwarded == KVW_FORWARDED_X,
		.forwarded = loop->config->forwarded == KVW_FORWARDED_BOTH ||
			loop->config->forwarded == KVW_FORWARDED_STANDARD,
		.framing = x->framing,
		.content_length = x->content_length,
	};
	struct kvw_writer w;

	if (loop->head_owner != x) {
		/* Another request was parsed meanwhile; this one was found good once already. */
		if (kvw_head_parse_request(&loop->request_head, raw_head(x), x->head_len, &error) !=
			KVW_OK)
			return false;
		loop->head_owner = x;
	}
	x->out_head = kvw_block_get(
		&loop->blocks, kvw_head_request_bound(&loop->request_head, &options) + sizeof(*x->out_head));
	if (x->out_head == NULL)
		return false;
	w = KVW_WRITER(x->out_head->data, x->out_head->size);
	x->out_head->end = (uint32_t)kvw_head_write_request(&w, &loop->request_head, &options);
	x->out_head_sent = 0;
	return x->out_head->end > 0;
}

/* Opens or takes a connection to x->worker and begins to send. */
static void attach(struct kvw_exchange *x, bool fresh)
{
	struct kvw_loop *loop = x->loop;
	enum kvw_err err = kvw_link_take(
		&loop->links, x->worker, fresh, kvw_request_link_event, x, &x->link);

	x->link_written = 0;
	x->response_byte = false;
	if (x->whole || x->body_sent == 0)
		x->cursor = (struct kvw_cursor){x->in.first, x->head_offset + (uint32_t)x->head_len};
	x->body_sent = 0;
	if (err != KVW_OK) {
		x->link = NULL;
		kvw_request_worker_failed(x, "no socket for a connection", false);
		return;
	}
	kvw_metrics_add(loop->metrics,
		x->link->reused ? KVW_COUNT_UPSTREAM_REUSES : KVW_COUNT_UPSTREAM_CONNECTS, 1);
	if (x->link->connected) {
		kvw_exchange_request_state(x, KVW_REQUEST_SENDING);
		kvw_request_send(x);
		return;
	}
	kvw_exchange_request_state(x, KVW_REQUEST_CONNECTING);
	kvw_loop_timer(loop, &x->timer, KVW_TIMER_CONNECT, loop->config->timeout_connect_ms);
}

void kvw_request_forward(struct kvw_exchange *x)
{
	if (x->request_state != KVW_REQUEST_PREPARING)
		kvw_exchange_request_state(x, KVW_REQUEST_PREPARING);
	if (!pick(x))
		return;
	if (x->response_state != KVW_RESPONSE_WAITING)
		kvw_exchange_response_state(x, KVW_RESPONSE_WAITING);
	if (!build_head(x)) {
		kvw_reply_error(x, 431, "the request head is too large to forward");
		return;
	}
	attach(x, false);
}

/* --- send --- */

/* Blocks that were sent and will not be needed for a retry. */
static void free_sent_blocks(struct kvw_exchange *x)
{
	struct kvw_block *first = x->in.first;

	while (first->next != NULL && first != x->cursor.block && first->next != x->cursor.block) {
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
}

/* Everything that may be sent: head, then body from the cursor on. */
static int gather(struct kvw_exchange *x, struct iovec *iov)
{
	size_t head_left = x->out_head->end - x->out_head_sent;
	int count = 0;

	if (head_left > 0) {
		iov[count].iov_base = x->out_head->data + x->out_head_sent;
		iov[count++].iov_len = head_left;
	}
	if (x->body_received > x->body_sent)
		count += kvw_cursor_iov(&x->cursor, iov + count, KVW_LOOP_IOV - count);
	return count;
}

void kvw_request_send(struct kvw_exchange *x)
{
	for (int turn = 0; turn < SEND_AT_ONCE && x->link->io.writable; turn++) {
		struct iovec iov[KVW_LOOP_IOV];
		size_t head_left = x->out_head->end - x->out_head_sent, sent;
		int count = gather(x, iov);
		ssize_t n;

		if (count == 0)
			break;
		n = kvw_io_writev(&x->link->io, iov, count);
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			/* The worker may have answered before it closed: look first. */
			x->link->io.writable = false;
			x->link->io.readable = true;
			kvw_response_read(x);
			return;
		}
		sent = (size_t)n;
		x->link_written += sent;
		if (head_left > 0) {
			size_t of_head = sent < head_left ? sent : head_left;

			x->out_head_sent += of_head;
			sent -= of_head;
		}
		kvw_cursor_advance(&x->cursor, sent);
		x->body_sent += sent;
		if (!x->whole)
			free_sent_blocks(x);
	}
	if (x->out_head_sent == x->out_head->end && x->body_sent == x->body_received) {
		if (x->body.done)
			all_sent(x);
		else
			kvw_timer_clear(&x->loop->timers, &x->timer); /* it is the client's turn */
	} else {
		kvw_loop_timer(x->loop, &x->timer, KVW_TIMER_STREAM_IDLE,
			x->loop->config->timeout_stream_idle_ms);
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
			kvw_request_worker_failed(x, strerror(cause), false);
			return;
		}
	}
	if (x->request_state == KVW_REQUEST_SENDING && link->io.writable)
		kvw_request_send(x);
	if (!x->ended && x->link == link && link->io.readable && !x->paused)
		kvw_response_read(x);
}

/* --- failure --- */

static void note_tried(struct kvw_exchange *x, const char *why)
{
	size_t len = strlen(x->tried_text);

	if (x->tried_count < KVW_TRIED_MAX)
		x->tried[x->tried_count++] = x->worker->id;
	(void)snprintf(x->tried_text + len, sizeof(x->tried_text) - len, "%s%s: %s",
		len == 0 ? "" : "; ", x->worker->url, why);
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
		.request_held = x->whole || x->body_sent == 0,
		.link_reused = x->link != NULL && x->link->reused,
		.response_byte = x->response_byte,
		.waited_out = timed_out,
		.link_written = x->link_written,
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
		kvw_link_close(x->link);
		x->link = NULL;
		x->out_head_sent = 0;
		kvw_block_put(&loop->blocks, x->partial);
		x->partial = NULL;
		kvw_exchange_request_state(x, KVW_REQUEST_PREPARING);
		kvw_exchange_response_state(x, KVW_RESPONSE_WAITING);
		attach(x, true);
		return;
	}
	kvw_fleet_request_failed(loop->fleet, x->worker, why);
	note_tried(x, why);
	kvw_debug("proxy", "worker failed url=%s why=\"%s\" request_id=%.*s", x->worker->url, why,
		(int)x->request_id.len, x->request_id.data);
	kvw_exchange_drop_worker(x, false);
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
		TAILQ_REMOVE(&loop->parked, x, entry);
		x->parked = false;
		if (all_models_known(loop))
			no_model(x);
		else
			kvw_reply_error_as(x, 503, NULL, NULL, "retry-after: 1\r\n",
				"the models of some workers are not known yet");
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
