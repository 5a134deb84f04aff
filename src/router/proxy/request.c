/*
 * request.c - reads a request: its head, and its body as it arrives.
 */
#include "proxy/request.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "auth/credential.h"
#include "proxy/cors.h"
#include "proxy/front.h"
#include "proxy/groups.h"
#include "proxy/guard.h"
#include "proxy/local.h"
#include "fleet/pin.h"
#include "proxy/reply.h"
#include "proxy/rewrite.h"
#include "proxy/sagemaker.h"
#include "proxy/tracing.h"
#include "proxy/understand.h"
#include "proxy/unread.h"
#include "proxy/whose.h"

static const char continue_line[] = "HTTP/1.1 100 Continue\r\n\r\n";

/* --- head --- */

static void make_request_id(struct kvw_exchange *x)
{
	static const char digits[] = "0123456789abcdef";
	uint64_t parts[2] = {x->loop->request_id_prefix, x->loop->request_id_next++};

	for (int i = 0; i < 32; i++)
		x->id_text[i] = digits[parts[i / 16] >> (60 - i % 16 * 4) & 15];
	x->request_id = (struct kvw_slice){x->id_text, 32};
}

bool kvw_request_own_head(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_head_error error;

	if (loop->head_owner == x)
		return true;
	/* Another request's head was parsed since; this head has passed the parser once already. */
	loop->request_head.field_limit = (size_t)x->config->limits_headers;
	if (kvw_head_parse_request(&loop->request_head, kvw_upload_head(&x->upload),
		    x->upload.head_len, &error) != KVW_OK)
		return false;
	loop->head_owner = x;
	return true;
}

struct kvw_slice kvw_request_field(struct kvw_exchange *x, struct kvw_slice name)
{
	const struct kvw_field *field = NULL;

	if (kvw_request_own_head(x))
		field = kvw_head_find(&x->loop->request_head, name);
	return field == NULL ? (struct kvw_slice){NULL, 0} : field->value;
}

/* Returns the session key from headers or cookies; the scan finds the one in the body. If the
 * session's field is the one that showed a client's key, its bytes were overwritten: the name of
 * that key is used instead. */
static struct kvw_slice head_session(const struct kvw_exchange *x)
{
	const struct kvw_loop *loop = x->loop;
	const struct kvw_config *config = loop->config;

	for (size_t i = 0; i < config->session_headers.count; i++) {
		const struct kvw_field *field = kvw_head_find(
			&loop->request_head, kvw_slice_of(config->session_headers.items[i]));

		if (field != NULL && field->value.len > 0 &&
			!kvw_sagemaker_no_session(field->value))
			return x->caller.key != NULL && kvw_credential_field(field)
				       ? kvw_slice_of(x->caller.key->name)
				       : field->value;
	}
	for (size_t i = 0; i < config->session_cookies.count; i++) {
		struct kvw_slice value = kvw_head_cookie(
			&loop->request_head, kvw_slice_of(config->session_cookies.items[i]));

		if (value.len > 0)
			return value;
	}
	return (struct kvw_slice){NULL, 0};
}

/* Returns the value of x-kvway-pin, if the client may pin. */
static struct kvw_slice head_pin(const struct kvw_exchange *x)
{
	const struct kvw_field *field = x->config->http_pin ? kvw_head_find(&x->loop->request_head,
								      KVW_SLICE(KVW_PIN_FIELD))
							    : NULL;

	return field != NULL ? field->value : (struct kvw_slice){NULL, 0};
}

/* Only a POST carries a prompt or empties a cache. The API server alone answers other requests
 * for such a path (a browser's preflight, a monitor's HEAD): their answers show nothing of the
 * engine. */
static struct kvw_path_info path_of_head(const struct kvw_head *head)
{
	struct kvw_path_info path = kvw_path_classify(head->target);

	if (!head->post_method)
		path.prompt = path.repeatable = path.empties_cache = false;
	/* a POST to /v1/images/generations: `generations` is not an id */
	else if (!path.response && !kvw_path_cancels(head->target, path.made_id))
		path.made_id.len = 0;
	return path;
}

/* Copies the parsed head's parts that the exchange needs. */
static void note_head(struct kvw_exchange *x)
{
	const struct kvw_head *head = &x->loop->request_head;
	const struct kvw_field *id = kvw_head_field(head, KVW_FIELD_X_REQUEST_ID);

	x->loop->head_owner = x;
	x->method = head->method;
	x->target = head->target;
	x->close_client = !head->keep_alive;
	x->client_minor = head->minor;
	x->upload.framing = head->framing;
	x->upload.content_length = head->framing == KVW_FRAME_LENGTH ? head->content_length : 0;
	x->path = path_of_head(head);
	kvw_cors_note(x, head);
	if (id != NULL && id->value.len > 0)
		x->request_id = id->value;
	else
		make_request_id(x);
	if (x->client->trusted)
		kvw_front_client(&x->loop->shared->front, head, x->caller.via);
	kvw_trace_name(x->trace, x->request_id, x->path.api);
	if (x->loop->joins && x->path.kind != KVW_PATH_LOCAL)
		kvw_tracing_join(x, head);
	x->route.api = x->path.api;
	x->pin = head_pin(x);
	x->division.wish = kvw_groups_wish(x, head);
	kvw_sagemaker_note(x, head);
	if (x->path.kind == KVW_PATH_FORWARD)
		kvw_request_read_query(x);
	x->made.sought = kvw_whose_makes(x, head);
}

static void refuse_too_large(struct kvw_exchange *x)
{
	char message[128];

	(void)snprintf(message, sizeof(message), "the request body is larger than %s, %llu bytes",
		x->upload.body.limit < x->config->limits_body ? "this API key may send"
							      : "limits.body",
		(unsigned long long)x->upload.body.limit);
	kvw_reply_error(x, 413, message);
}

/* Refuses a request by its head alone. True: an answer was sent. */
static bool refuse_unserved(struct kvw_exchange *x)
{
	const struct kvw_head *head = &x->loop->request_head;
	const struct kvw_config *config = x->config;

	if (head->upgrade) {
		kvw_reply_error(x, 501, "protocol upgrades (WebSocket) are not supported");
	} else if (x->path.kind == KVW_PATH_ENGINE_CONTROL && !config->expose_engine_control) {
		kvw_reply_error(x, 403,
			"this path controls the engine and is not exposed; set "
			"expose.engine_control");
	} else if (x->path.kind == KVW_PATH_LORA && !config->expose_lora) {
		kvw_reply_error(
			x, 403, "loading LoRA adapters is not exposed; set expose.lora");
	} else if (x->upload.content_length > x->upload.body.limit) {
		refuse_too_large(x);
	} else {
		return false;
	}
	return true;
}

/* The client is checked first, so that a stranger learns nothing of the exposed paths. */
static bool refuse_head(struct kvw_exchange *x)
{
	return kvw_guard_head(x) || refuse_unserved(x);
}

static void no_body_memory(struct kvw_exchange *x)
{
	kvw_metrics_add(x->loop->metrics, KVW_COUNT_BODY_MEMORY_REFUSED, 1);
	kvw_reply_error_as(x, 503, NULL, NULL, "retry-after: 1\r\n",
		"request bodies in flight fill limits.body_memory");
}

static bool more_than_body_memory(struct kvw_exchange *x, uint64_t bytes)
{
	if (bytes <= x->config->limits_body_memory)
		return false;
	kvw_reply_error(x, 413, "the request body is larger than limits.body_memory");
	return true;
}

/* Refuses a request that would be read whole but whose announced body does not fit now, before its
 * body is read. True: refused. */
static bool refuse_length(struct kvw_exchange *x)
{
	if (more_than_body_memory(x, x->upload.content_length))
		return true;
	if (kvw_account_fits(x->loop->shared->memory, x->upload.content_length))
		return false;
	no_body_memory(x);
	return true;
}

/* Charges the memory of the arrived bytes of a request that is read whole. False: refused, and an
 * answer was sent. */
static bool charge_body(struct kvw_exchange *x)
{
	if (more_than_body_memory(x, x->upload.received + x->scan_memory))
		return false;
	if (kvw_upload_charge(&x->upload, x->loop->shared->memory))
		return true;
	no_body_memory(x);
	return false;
}

/* Returns whether the body is a form on an unknown path, such as images or video. If all workers
 * serve one model, such a form is not scanned. */
static bool is_form(const struct kvw_exchange *x, const struct kvw_head *head)
{
	const struct kvw_field *type = kvw_head_field(head, KVW_FIELD_CONTENT_TYPE);
	struct kvw_slice form = KVW_SLICE("multipart/form-data");

	return type != NULL && type->value.len >= form.len &&
	       strncasecmp(type->value.data, form.data, form.len) == 0 &&
	       kvw_fleet_divided(x->loop->fleet);
}

/* Returns whether the body is read before a worker is picked: all of it if `whole`, else until its
 * model is found, within the scan's limit. */
static bool choose_mode(struct kvw_exchange *x)
{
	const struct kvw_head *head = &x->loop->request_head;

	bool prompt = x->path.prompt && head->post_method &&
		      (head->json || x->path.api == KVW_API_AUDIO) &&
		      x->upload.framing != KVW_FRAME_NONE;

	/* An unknown path may belong to an engine that names its model, in JSON or a form. */
	bool unknown = x->path.kind == KVW_PATH_FORWARD && x->path.api == KVW_API_OTHER &&
		       x->path.made_id.len == 0 && head->post_method && !x->upload.body.done &&
		       (head->json || is_form(x, head));

	x->whole = prompt && x->upload.content_length <= x->config->routing_scan_limit;
	if (prompt || unknown)
		kvw_request_scan_begin(x);
	return prompt || unknown;
}

static void body_payload(void *arg, const char *data, size_t len)
{
	struct kvw_exchange *x = arg;

	if (x->scan != NULL)
		kvw_scan_feed(x->scan, data, len);
}

static void body_complete(struct kvw_exchange *x)
{
	kvw_timer_clear(&x->loop->timers, &x->client->timer);
	x->complete_ns = x->loop->now_ns;
	if (kvw_upload_split(&x->upload, &x->loop->blocks, &x->client->in) != KVW_OK)
		x->close_client = true;
}

/* Handles the end of a whole request: finds its model, prompt and session. */
static void whole_complete(struct kvw_exchange *x)
{
	kvw_request_scan_finish(x);
	if (kvw_request_scan_charge(x) && !charge_body(x))
		return;
	if (x->scan != NULL && !x->scanned)
		kvw_unread_body(x);
	if (kvw_rewrite_body(x) != KVW_OK) {
		kvw_reply_error_as(x, 503, NULL, NULL, "retry-after: 1\r\n", "out of memory");
		return;
	}
	kvw_exchange_request_state(x, KVW_REQUEST_ROUTING);
}

/* Sends 100 Continue. HTTP/1.0 knows no such line. */
static void send_continue(struct kvw_exchange *x)
{
	struct iovec iov = {(char *)continue_line, sizeof(continue_line) - 1};

	if (x->client_minor > 0)
		kvw_client_send(x->client, &iov, 1);
}

void kvw_request_head(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_head_error error;
	size_t arrived = x->upload.in.bytes - x->upload.head_len;
	bool read;

	x->upload.head_offset = x->upload.in.first->begin;
	x->attempt.cursor = x->upload.feed = kvw_upload_body(&x->upload);
	loop->head_owner = NULL; /* the head that was parsed before is overwritten in any case */
	loop->request_head.field_limit = (size_t)x->config->limits_headers;
	if (kvw_head_parse_request(&loop->request_head, kvw_upload_head(&x->upload),
		    x->upload.head_len, &error) != KVW_OK) {
		x->close_client = true;
		x->client_minor = 1;
		if (loop->auth != NULL) /* the head may contain a key that was not found */
			kvw_chain_wipe(&x->upload.in);
		kvw_reply_error(x, error.status, error.message);
		return;
	}
	note_head(x);
	kvw_body_begin(&x->upload.body, x->upload.framing, x->upload.content_length,
		loop->config->limits_body);
	if (x->upload.body.done)
		body_complete(x);
	if (kvw_local_preflight(x) || refuse_head(x) || kvw_local_answers(x))
		return;
	/* after the guard, which finds the key */
	x->head_session = x->route.session = head_session(x);
	kvw_rewrite_session(x);
	read = choose_mode(x);
	if (kvw_unread_refuses_encoded(x, read) || (x->whole && refuse_length(x)))
		return;
	if (!x->upload.body.done) {
		if (loop->request_head.expect_continue && arrived == 0)
			send_continue(x);
		kvw_loop_timer(
			loop, &x->client->timer, KVW_TIMER_BODY, loop->config->timeout_body_ms);
	}
	kvw_exchange_request_state(
		x, read ? KVW_REQUEST_READ_BODY : KVW_REQUEST_ROUTING);
	if (x->whole && x->upload.body.done)
		whole_complete(x);
}

/* --- body --- */

/* Returns whether arriving parts of the body are scanned for the model's name. */
static bool is_looking(const struct kvw_exchange *x)
{
	return x->request_state == KVW_REQUEST_READ_BODY && !x->whole;
}

bool kvw_request_wants_bytes(const struct kvw_exchange *x)
{
	if (x->upload.body.done || x->response_state >= KVW_RESPONSE_DONE)
		return false;
	return x->whole || is_looking(x) ||
	       x->upload.received - x->attempt.body_sent < x->config->limits_high_water;
}

/* Handles a body that is longer than the limit of whole reads: the part that is known decides the
 * route, and the rest is streamed. */
static void stream_after_all(struct kvw_exchange *x)
{
	x->whole = false;
	if (x->path.prompt)
		kvw_request_keep_model(x);
	else
		kvw_request_keep_known_model(x);
	kvw_request_scan_release(x);
	kvw_exchange_request_state(x, KVW_REQUEST_ROUTING);
}

/* Returns whether the scan for the model's name goes on. It goes on beyond the limit where the
 * prompt could otherwise reach a worker of another model. */
static bool looks_on(struct kvw_exchange *x)
{
	bool needed = x->path.prompt && kvw_fleet_divided(x->loop->fleet);

	if (x->upload.body.done || x->scan == NULL || kvw_scan_model(x->scan).len > 0 ||
		!kvw_scan_goes_on(x->scan) ||
		(x->upload.received > x->config->routing_scan_limit && !needed))
		return false;
	if (kvw_upload_charge(&x->upload, x->loop->shared->memory))
		return true;
	if (needed)
		no_body_memory(x);
	return needed;
}

static void body_refused(struct kvw_exchange *x, enum kvw_err err)
{
	if (kvw_exchange_answering(x))
		kvw_client_lose(x->client, true);
	else if (err == KVW_ELIMIT)
		refuse_too_large(x);
	else
		kvw_reply_error(x, 400, x->upload.body.error);
}

void kvw_request_body(struct kvw_exchange *x)
{
	enum kvw_err err = kvw_upload_feed(&x->upload, body_payload, x);

	if (err != KVW_OK) {
		body_refused(x, err);
		return;
	}
	if ((kvw_request_scan_charge(x) || x->upload.received > x->upload.memory) && x->whole &&
		!charge_body(x))
		return;
	if (x->upload.body.done)
		body_complete(x);
	if (is_looking(x)) {
		if (!looks_on(x))
			stream_after_all(x);
	} else if (x->upload.body.done) {
		if (x->whole)
			whole_complete(x);
	} else if (x->whole && x->upload.received > x->config->routing_scan_limit) {
		x->whole = false;
		if (!looks_on(x))
			stream_after_all(x);
	}
}

void kvw_request_too_slow(struct kvw_exchange *x)
{
	x->timeout = "limits.body_rate";
	if (kvw_exchange_answering(x)) {
		/* a part of an answer was sent, so that an error cannot follow */
		kvw_exchange_cut(x, KVW_END_TIMEOUT);
		return;
	}
	x->end = KVW_END_TIMEOUT;
	kvw_reply_error(x, 408, "the request body arrived more slowly than limits.body_rate");
}
