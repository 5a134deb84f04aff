/*
 * response.c - passes a worker's answer on, from the worker's socket to the client's.
 *
 * kvway reads bytes into the loop's scratch buffer, examines them in place, and writes them to the
 * client in the same turn, head and body in one writev; only bytes that the client's socket does
 * not take are copied. Chunked answers pass with their framing untouched (checked, not rewritten),
 * so an SSE event leaves unchanged.
 *
 * The head of an inference answer is held until the first body byte, the head of a stream until its
 * first token: earlier bytes (preamble.h) show nothing of the engine, are held with the head, and
 * start or stop no clock. Until then the client has seen nothing and the request can still go to
 * another worker.
 */
#include "proxy/response.h"

#include <string.h>

#include "openai/event.h"
#include "proxy/asked.h"
#include "proxy/busy.h"
#include "proxy/cors.h"
#include "proxy/fidelity.h"
#include "proxy/fits.h"
#include "proxy/forward.h"
#include "proxy/groups.h"
#include "proxy/location.h"
#include "proxy/leg.h"
#include "proxy/pd.h"
#include "proxy/rank.h"
#include "proxy/rate.h"
#include "proxy/sagemaker.h"
#include "proxy/send.h"
#include "proxy/silence.h"
#include "proxy/unread.h"
#include "proxy/used.h"
#include "proxy/whose.h"
#include "proxy/worker_head.h"

#define READS_AT_ONCE 8
#define CHUNK_LINES   2048 /* room for the chunk-size lines of one read, in kvway's own framing */
/* limit of held bytes: a longer preamble is passed on, and then the request cannot leave its
 * worker */
#define EARLY_MOST    ((size_t)256 << 10)

/* The pieces of one read for the client. Lives on the stack for that read. */
struct outgoing {
	struct kvw_exchange *x;
	struct iovec iov[KVW_LOOP_IOV];
	int count;
	char lines[CHUNK_LINES];
	size_t lines_len;
	size_t payload;  /* bytes of the body without the preamble */
};

/* Sends the gathered pieces to make room. From then on the answer has begun for the client. */
static void send_pieces(struct outgoing *out)
{
	if (out->x->response_state == KVW_RESPONSE_HELD)
		kvw_exchange_response_state(out->x, KVW_RESPONSE_STREAMING);
	kvw_client_send(out->x->client, out->iov, out->count);
	out->count = 0;
	out->lines_len = 0;
}

static void push_piece(struct outgoing *out, const void *data, size_t len)
{
	if (out->count == KVW_LOOP_IOV)
		send_pieces(out);
	out->iov[out->count].iov_base = (void *)data;
	out->iov[out->count++].iov_len = len;
}

/* Adds a chunk of kvway's own around len bytes. */
static void push_chunk(struct outgoing *out, const char *data, size_t len)
{
	struct kvw_writer w;

	if (CHUNK_LINES - out->lines_len < 20 || out->count > KVW_LOOP_IOV - 3)
		send_pieces(out);
	w = KVW_WRITER(out->lines + out->lines_len, CHUNK_LINES - out->lines_len);
	kvw_chunk_line(&w, len);
	push_piece(out, w.data, w.len);
	out->lines_len += w.len;
	push_piece(out, data, len);
	push_piece(out, KVW_CHUNK_END, sizeof(KVW_CHUNK_END) - 1);
}

static void first_token(struct kvw_exchange *x)
{
	struct kvw_attempt *a = &x->attempt;
	struct kvw_loop *loop = x->loop;

	x->first_token_ns = loop->now_ns;
	kvw_trace_note(x->trace, loop->now_ns, KVW_TRACE_FIRST_TOKEN, 0);
	if (kvw_exchange_computes(x) && x->status == 200)
		kvw_attempt_grade(x, KVW_GRADE_GOOD, "");
	a->decoding = true;
	kvw_metrics_decoding(loop->metrics, a->worker->id, 1);
	a->lease.plain = !x->event_stream;
	kvw_lease_first_token(&a->lease, loop->now_ns);
	if (x->strategy->ops->first_token != NULL)
		x->strategy->ops->first_token(x->strategy, &a->decision, &a->lease, loop->now_ns);
	if (a->routed != 0)
		kvw_sources_first_token(loop->sources, a->routed, loop->now_ns);
	kvw_gates_first_token(x);
	if (kvw_pd_hands(x)) {
		kvw_pd_first_token(x);
		kvw_leg_first_token(x);
	}
}

/* Notes that a stream brought an error after the client had received a part of it. */
static void note_stream_error(struct kvw_exchange *x)
{
	if (x->attempt.opening.full)
		kvw_busy_note(x, 0);
	else
		kvw_attempt_grade(x, KVW_GRADE_BAD, "its stream brought an error");
}

/* Takes bytes that the engine has computed, or its error. */
static void take_computed(struct kvw_exchange *x, const char *data, size_t len)
{
	struct kvw_opening *o = &x->attempt.opening;
	bool held = x->response_state == KVW_RESPONSE_HELD;

	if (kvw_used_watches(x))
		kvw_used_watch(x, data, len);
	if (x->status != 200)
		return;
	if (x->event_stream) {
		if (kvw_opening_find_error(o, held, data, len) && !held)
			note_stream_error(x);
		x->said_all = x->said_all || kvw_event_is_last(data, len);
	}
	if (kvw_exchange_computes(x))
		kvw_opening_find_token(o, x->event_stream, data, len);
}

static void answer_payload(void *arg, const char *data, size_t len)
{
	struct outgoing *out = arg;
	struct kvw_exchange *x = out->x;
	struct kvw_opening *o = &x->attempt.opening;
	size_t skipped = 0;

	if (kvw_exchange_streams_tokens(x) && len > 0)
		skipped = kvw_opening_skip(o, data, len);
	out->payload += len - skipped;
	if (len > skipped)
		take_computed(x, data + skipped, len - skipped);
	if (o->rank_asked)
		o->rank_refused = o->rank_refused || kvw_rank_denies(data, len, x->attempt.rank_number);
	if (o->doubtful && x->status == 400)
		o->too_long = o->too_long || kvw_fits_denies(data, len);
	else if (o->doubtful && !o->full)
		o->full = kvw_busy_says(data, len);
	if (x->path.prompt && x->status == 200)
		kvw_usage_feed(&x->usage, data, len);
	if (x->fidelity != NULL)
		kvw_fidelity_client(x, data, len);
	if (x->made.sought && x->status == 200)
		kvw_whose_note(x, data, len);
	if (x->pass == KVW_PASS_PAYLOAD)
		push_piece(out, data, len);
	else if (x->pass == KVW_PASS_REFRAME)
		push_chunk(out, data, len);
	else if (x->pass == KVW_PASS_EVENT && x->attempt.held.body.bytes + len <= EARLY_MOST &&
		 kvw_chain_append(&x->attempt.held.body, &x->loop->blocks, data, len) != KVW_OK)
		kvw_attempt_failed(&x->attempt, "no memory for its answer");
}

/* --- head --- */

static struct kvw_slice decision_fields(const struct kvw_exchange *x, char *buf, size_t size)
{
	struct kvw_writer w = KVW_WRITER(buf, size);
	const struct kvw_knowledge_text *knowledge =
		kvw_knowledge_text(x->attempt.decision.knowledge);

	if (!x->show_decision || !x->attempt.decided)
		return (struct kvw_slice){NULL, 0};
	kvw_write_field(&w, KVW_SLICE("x-kvway-worker"), kvw_slice_of(x->attempt.worker->url));
	kvw_write_field(&w, KVW_SLICE("x-kvway-reason"),
		kvw_slice_of(kvw_reason_name(x->attempt.decision.reason)));
	kvw_write_literal(&w, "x-kvway-predicted-cached-tokens: ");
	kvw_write_u64(&w, kvw_decision_cached(&x->attempt.decision));
	kvw_write_literal(&w, "\r\n");
	if (x->attempt.decision.fragment_tokens > 0) {
		kvw_write_literal(&w, "x-kvway-predicted-fragment-tokens: ");
		kvw_write_u64(&w, x->attempt.decision.fragment_tokens);
		kvw_write_literal(&w, "\r\n");
	}
	if (knowledge != NULL)
		kvw_write_field(
			&w, KVW_SLICE("x-kvway-knowledge"), kvw_slice_of(knowledge->name));
	return (struct kvw_slice){buf, w.overflow ? 0 : w.len};
}

/* Writes fields of kvway's own in the answer's head, and the worker's fields that kvway
 * rewrites. */
static struct kvw_slice own_fields(
	struct kvw_exchange *x, struct kvw_head *head, char *buf, size_t size)
{
	static const struct kvw_slice later = KVW_SLICE(KVW_BUSY_RETRY_AFTER);
	size_t len = kvw_location_fields(x, head, buf);
	struct kvw_writer w = KVW_WRITER(buf + len, KVW_CORS_ROOM);

	kvw_cors_answered(x, head, &w);
	len += w.len;
	len += decision_fields(x, buf + len, size - len - KVW_RATE_ROOM - later.len).len;
	if (kvw_rate_holds(x))
		len += kvw_rate_fields(x, buf + len);
	if (kvw_busy_lacks_time(head)) {
		memcpy(buf + len, later.data, later.len);
		len += later.len;
	}
	return (struct kvw_slice){buf, len};
}

/* Chooses how the client gets the body, and whether its connection can go on. */
static enum kvw_framing choose_pass(struct kvw_exchange *x, const struct kvw_head *head)
{
	if (x->silence.opened) {
		x->pass = kvw_silence_pass(x, head);
		return head->framing;
	}
	x->pass = KVW_PASS_RAW;
	if (head->framing == KVW_FRAME_NONE || head->framing == KVW_FRAME_LENGTH)
		return head->framing;
	if (x->client_minor == 0) {
		x->pass = KVW_PASS_PAYLOAD;
		x->close_client = true;
		return KVW_FRAME_CLOSE;
	}
	if (head->framing == KVW_FRAME_CLOSE)
		x->pass = KVW_PASS_REFRAME;
	return KVW_FRAME_CHUNKED;
}

/* Writes the head for the client into x->attempt.held. False: too large. */
static bool build_answer_head(struct kvw_exchange *x, struct kvw_head *head)
{
	struct kvw_loop *loop = x->loop;
	/* room for a long URL of a worker */
	char extra[KVW_LOCATION_ROOM + KVW_CORS_ROOM + 2048 + KVW_RATE_ROOM];
	struct kvw_response_head_options options = {
		.framing = choose_pass(x, head),
		.content_length = head->content_length,
		.request_id = x->request_id,
		.date = kvw_date(&loop->date, kvw_clock_wall_ns()),
		.extra = own_fields(x, head, extra, sizeof(extra)),
	};
	struct kvw_held *held = &x->attempt.held;
	struct kvw_writer w;

	if (!x->upload.body.done || loop->draining)
		x->close_client = true;
	if (x->close_client)
		options.connection = KVW_CONNECTION_CLOSE;
	else if (x->client_minor == 0)
		options.connection = KVW_CONNECTION_KEEP_ALIVE;
	held->head = kvw_block_get(
		&loop->blocks, kvw_head_response_bound(head, &options) + sizeof(*held->head));
	if (held->head == NULL)
		return false;
	w = KVW_WRITER(held->head->data, held->head->size);
	if (x->silence.opened) /* the client already has been sent a head */
		return true;
	held->head->end = held->head_len = (uint32_t)kvw_head_write_response(&w, head, &options);
	return held->head_len > 0;
}

/* Passes 102 and 103 on at once; kvway answers 100 itself. False: the client is gone. */
static bool pass_interim(struct kvw_exchange *x, const struct kvw_head *head)
{
	struct kvw_response_head_options options = {.framing = KVW_FRAME_NONE};
	char buf[8192];
	struct kvw_writer w = KVW_WRITER(buf, sizeof(buf));
	struct iovec iov;

	if (head->status == 100 || x->client_minor == 0 || x->silence.opened ||
		kvw_head_write_response(&w, head, &options) == 0)
		return true;
	iov = (struct iovec){buf, w.len};
	kvw_client_send(x->client, &iov, 1);
	return kvw_client_alive(x->client);
}

/* Handles a bad answer. True: noted as a failure, and another worker will be asked; else the client
 * gets this answer. */
static bool go_elsewhere(struct kvw_exchange *x, enum kvw_excuse excuse, const char *why)
{
	if (kvw_pd_refused(x, why))
		return true;
	if (kvw_request_may_leave(x, x->tried.suspicions + (excuse == KVW_EXCUSE_NONE))) {
		kvw_attempt_excused(&x->attempt, excuse, why);
		return true;
	}
	kvw_attempt_grade(x, excuse >= KVW_EXCUSE_BUSY ? KVW_GRADE_NONE : KVW_GRADE_BAD, why);
	return false;
}

static const char *bad_status(int status)
{
	switch (status) {
	case 429:
		return "it answered 429";
	case 500:
		return "it answered 500";
	case 502:
		return "it answered 502";
	case 503:
		return "it answered 503";
	case 504:
		return "it answered 504";
	default:
		return "it answered 5xx";
	}
}

/* A worker that denies its model may lack a model that its list names, for instance after an
 * adapter was removed directly, or a restart with other models. kvway reads that list again at
 * once, and another worker may have the model meanwhile; so, too, where the list was read while the
 * worker had the request. A 404 may have other reasons: where the list still names the model, the
 * next read comes a second later. */
static bool denies_model(struct kvw_exchange *x)
{
	struct kvw_worker *worker = x->attempt.worker;
	int64_t now_ns = kvw_clock_ns();

	if (!x->path.prompt || x->model == NULL || kvw_exchange_kept(x).len > 0 ||
		worker->models_given)
		return false;
	if (kvw_worker_models_stale(worker) ||
		!kvw_fleet_lists(x->loop->fleet, worker, kvw_slice_of(x->model->name)))
		return true;
	if (now_ns - atomic_load_explicit(&worker->lead->models_changed_ns, memory_order_relaxed) <
		KVW_NS_PER_S)
		return false;
	kvw_worker_models_changed(worker, now_ns);
	return true;
}

/* Handles a full worker. True: noted as a failure, since another worker has room, or will have room
 * for the waiting request; else the client gets this answer. */
static bool find_room(struct kvw_exchange *x, int64_t pause_ns, const char *why)
{
	kvw_busy_note(x, pause_ns);
	if (kvw_request_may_find_room(x)) {
		kvw_attempt_excused(&x->attempt, KVW_EXCUSE_FULL, why);
		return true;
	}
	kvw_attempt_grade(x, KVW_GRADE_NONE, why);
	return false;
}

/* Handles a held answer whose body says that the worker is full: the worker counts as full, and
 * where no other can have the request kvway answers in its own words. */
static void found_full(struct kvw_exchange *x)
{
	kvw_busy_note(x, 0);
	kvw_attempt_excused(&x->attempt, KVW_EXCUSE_FULL, "it is full");
}

/* Handles a lost connection, or a connection that ended amid the answer. */
static void broke_off(struct kvw_exchange *x, const char *why)
{
	if (!kvw_busy_broke_off(x)) {
		kvw_attempt_failed(&x->attempt, why);
		return;
	}
	found_full(x);
	x->tried.broke_off++;
}

/* Takes the answer's status. A bad status counts against the worker. A good status shows nothing of
 * its engine: the first token does. False: another worker is asked. */
static bool take_status(struct kvw_exchange *x, const struct kvw_head *head)
{
	int64_t pause_ns = 0;

	if (head->status == 404 && denies_model(x))
		return !go_elsewhere(x, KVW_EXCUSE_BUSY, "it answered 404");
	if (kvw_busy_by_head(head, &pause_ns))
		return !find_room(x, pause_ns, bad_status(head->status));
	/* until the body has been read */
	x->attempt.opening.doubtful =
		head->status == 503 || (head->status == 400 && kvw_fits_another(x));
	kvw_rank_answered(x, head->status);
	if (x->attempt.opening.doubtful || head->status < 500 || head->status == 501)
		return true;
	return !go_elsewhere(x, head->status == 502 ? KVW_EXCUSE_REFUSED : KVW_EXCUSE_NONE,
		bad_status(head->status));
}

/* Handles the final head, in data[0..len). False: the exchange took another turn. */
static bool take_final_head(struct kvw_exchange *x, struct kvw_head *head)
{
	if (head->status == 101) {
		kvw_attempt_failed(&x->attempt, "it switched protocols unasked");
		return false;
	}
	if (kvw_asked_leaves(x, head) || !take_status(x, head))
		return false;
	x->status = head->status;
	x->event_stream = head->event_stream;
	x->attempt.keep_alive = head->keep_alive;
	kvw_body_begin(&x->attempt.answer, head->framing, head->content_length, 0);
	kvw_worker_head_answered(x, head);
	if (!build_answer_head(x, head)) {
		x->status = 0;
		kvw_attempt_failed(&x->attempt, "its answer's head is too large");
		return false;
	}
	kvw_exchange_response_state(x, KVW_RESPONSE_HELD);
	kvw_sagemaker_answered(x, head);
	kvw_unread_answer(x, head);
	kvw_exchange_note_emptied(x);
	kvw_attempt_note_sleep(x);
	if (x->path.kind == KVW_PATH_LORA && head->status / 100 == 2)
		kvw_worker_models_changed(x->attempt.worker, kvw_clock_ns());
	return true;
}

/* Keeps an incomplete head for the next read. False: gave up. */
static bool keep_partial(struct kvw_exchange *x, const char *data, size_t len)
{
	struct kvw_attempt *a = &x->attempt;
	struct kvw_loop *loop = x->loop;

	if (a->partial == NULL)
		a->partial = kvw_block_get(&loop->blocks, KVW_BLOCK_LARGE);
	if (a->partial == NULL || a->partial->end + len > x->config->limits_head ||
		len > kvw_block_room(a->partial)) {
		kvw_attempt_failed(&x->attempt, "its answer's head is larger than limits.head");
		return false;
	}
	memcpy(a->partial->data + a->partial->end, data, len);
	a->partial->end += (uint32_t)len;
	return true;
}

/*
 * Takes heads (interim ones too) off the front of data. Returns the bytes used, with the response
 * HELD once the final head was found; SIZE_MAX: the exchange took another turn.
 */
static size_t feed_head(struct kvw_exchange *x, const char *data, size_t len)
{
	struct kvw_attempt *a = &x->attempt;
	struct kvw_loop *loop = x->loop;
	struct kvw_head_error error;
	size_t used = 0;

	while (x->response_state == KVW_RESPONSE_WAITING && used < len) {
		const char *head = data + used;
		size_t have = len - used, before = 0, end;

		if (a->partial != NULL) {
			before = a->partial->end;
			if (have > kvw_block_room(a->partial))
				have = kvw_block_room(a->partial);
			memcpy(a->partial->data + before, head, have);
			head = a->partial->data;
			have += before;
		}
		end = kvw_head_find_end(head, have, &a->partial_from);
		if (end == 0) {
			if (a->partial != NULL)
				return keep_partial(x, data + used, len - used) ? len : SIZE_MAX;
			return keep_partial(x, head, have) ? len : SIZE_MAX;
		}
		used += end - before;
		a->partial_from = 0;
		loop->response_head.field_limit = (size_t)x->config->limits_headers;
		if (kvw_head_parse_response(&loop->response_head, head, end,
			    kvw_exchange_is_head(x), &error) != KVW_OK) {
			kvw_attempt_failed(&x->attempt, error.message);
			return SIZE_MAX;
		}
		if (loop->response_head.status >= 100 && loop->response_head.status < 200 &&
			loop->response_head.status != 101) {
			if (!pass_interim(x, &loop->response_head))
				return SIZE_MAX;
		} else if (!take_final_head(x, &loop->response_head)) {
			return SIZE_MAX;
		}
		kvw_block_put(&loop->blocks, a->partial);
		a->partial = NULL;
	}
	return used;
}

/* --- body --- */

static void answer_complete(struct kvw_exchange *x, bool leftovers)
{
	struct kvw_attempt *a = &x->attempt;
	struct kvw_loop *loop = x->loop;
	bool reusable = a->keep_alive && !leftovers &&
		x->request_state == KVW_REQUEST_SENT && a->answer.framing != KVW_FRAME_CLOSE;

	kvw_usage_finish(&x->usage);
	kvw_timer_clear(&loop->timers, &x->timer);
	/* the timer of a body that the exchange does not wait for now */
	kvw_timer_clear(&loop->timers, &x->client->timer);
	if (reusable)
		kvw_link_release(a->link, loop->now_ns);
	else
		kvw_link_close(a->link);
	a->link = NULL;
	kvw_exchange_response_state(x, KVW_RESPONSE_DONE);
	kvw_attempt_end(x, true);
	if (!x->upload.body.done)
		x->close_client = true;
}

static void another_token(struct kvw_exchange *x)
{
	int64_t gap_ns = x->loop->now_ns - x->last_data_ns;

	kvw_metrics_stream_gap(x->loop->metrics, gap_ns);
	if (x->division.group != NULL)
		kvw_metrics_group_gap(x->loop->metrics, kvw_groups_label(x), gap_ns);
	kvw_gates_token(x, gap_ns);
}

static void count_payload(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;

	if (x->first_token_ns == 0 && x->status >= 200 && x->status < 300)
		first_token(x);
	else if (x->event_stream && x->first_token_ns != 0)
		another_token(x);
	x->last_data_ns = loop->now_ns;
	if (x->event_stream)
		x->stream_chunks++;
}

/* Sends the gathered pieces, after the head if that is still held. */
static void send_gathered(struct kvw_exchange *x, struct outgoing *out)
{
	bool beginning = x->attempt.held.head != NULL;

	if (x->response_state == KVW_RESPONSE_HELD)
		kvw_exchange_response_state(x, KVW_RESPONSE_STREAMING);
	if (out->count > 0)
		kvw_client_send(x->client, out->iov, out->count);
	if (!kvw_client_alive(x->client))
		return;
	if (beginning) {
		kvw_held_drop(&x->attempt.held, &x->loop->blocks, x->loop->shared->memory);
		x->added_ns += kvw_clock_ns() - x->loop->now_ns;
	}
	/* If the answer has no tokens, kvw_attempt_end removes the prompt from the routing's
	 * records. */
	if (x->request_state == KVW_REQUEST_SENT &&
		(x->first_token_ns != 0 || x->attempt.decision.chains == 0))
		kvw_exchange_drop_request(x);
}

/* Returns whether no byte yet allows a judgement of the answer, so that the head waits. */
static bool must_hold(const struct kvw_exchange *x, const struct outgoing *out)
{
	const struct kvw_opening *o = &x->attempt.opening;

	if (x->response_state != KVW_RESPONSE_HELD || x->attempt.answer.done)
		return false;
	if (o->doubtful || o->rank_asked)
		return !o->full && !o->too_long && !o->rank_refused;
	if (!x->path.prompt)
		return false;
	if (x->status != 200 || x->pass == KVW_PASS_EVENT)
		return x->pass == KVW_PASS_EVENT;
	return (out->payload == 0 && o->first_len == 0) ||
	       (kvw_exchange_streams_tokens(x) && kvw_opening_lacks_token(o));
}

/* Judges an answer to a prompt before it is sent. False: the answer is bad, and another worker is
 * asked. */
static bool begins_well(struct kvw_exchange *x, const struct outgoing *out)
{
	struct kvw_opening *o = &x->attempt.opening;

	if (x->response_state != KVW_RESPONSE_HELD)
		return true;
	if (o->rank_asked && o->rank_refused) {
		kvw_rank_leave(x);
		return false;
	}
	if (o->doubtful) {
		o->doubtful = false;
		if (o->too_long)
			kvw_fits_leave(x);
		if (x->status == 400)
			return !o->too_long;
		if (!o->full)
			return !go_elsewhere(x, KVW_EXCUSE_REFUSED, bad_status(x->status));
		found_full(x);
		return false;
	}
	if (!x->path.prompt || x->status != 200)
		return true;
	if (o->full || (x->attempt.answer.done && kvw_busy_broke_off(x))) {
		bool silent = !o->full;

		found_full(x);
		x->tried.broke_off += silent;
		return false;
	}
	if (x->attempt.answer.done && out->payload == 0 && o->first_len == 0 &&
		!x->sagemaker.handled)
		return !go_elsewhere(x, KVW_EXCUSE_NONE, "its answer ended before the first token");
	if (o->tokens == KVW_TOKENS_NONE)
		return !go_elsewhere(
			x, KVW_EXCUSE_BUSY, "its engine aborted it before the first token");
	return !o->error_event ||
	       !go_elsewhere(x, KVW_EXCUSE_NONE, "its stream began with an error");
}

/* Keeps the bytes of a read: gathered pieces after those held already, and raw bytes. False: too
 * many bytes, or no memory; the bytes not kept are to be sent. */
static bool keep_held(
	struct kvw_exchange *x, struct outgoing *out, int held, const char *data, size_t used)
{
	struct kvw_block_pool *pool = &x->loop->blocks;
	struct kvw_held *kept = &x->attempt.held;
	size_t len = x->pass == KVW_PASS_RAW ? used : 0;

	if (x->pass == KVW_PASS_EVENT)
		return true; /* the head was built before */
	for (int i = held; i < out->count; i++)
		len += out->iov[i].iov_len;
	if (kept->body.bytes + len > EARLY_MOST)
		return false;
	for (int i = held; i < out->count; i++)
		if (!kvw_held_keep(kept, pool, out->iov[i].iov_base, out->iov[i].iov_len))
			return false;
	return x->pass != KVW_PASS_RAW || kvw_held_keep(kept, pool, data, used);
}

static void pause_if_slow(struct kvw_exchange *x)
{
	bool full = !kvw_account_fits(x->loop->shared->memory, 0);

	if (x->client->out.bytes <=
		(full ? x->config->limits_low_water : x->config->limits_high_water))
		return;
	kvw_exchange_response_state(x, KVW_RESPONSE_PAUSED);
	kvw_attempt_await(x, false); /* from here on the exchange waits for its client */
	kvw_timer_clear(&x->loop->timers, &x->timer); /* the write timer watches the client */
	kvw_metrics_add(x->loop->metrics, KVW_COUNT_BACKPRESSURE_PAUSES, 1);
}

static void feed_body(struct kvw_exchange *x, const char *data, size_t len)
{
	struct outgoing out;
	size_t used = 0;
	enum kvw_err err;
	int held;

	out.x = x;
	out.count = 0;
	out.lines_len = out.payload = 0;
	if (x->response_state == KVW_RESPONSE_HELD)
		out.count = kvw_held_iov(&x->attempt.held, out.iov, KVW_LOOP_IOV);
	held = out.count;
	err = x->attempt.answer.done
		? KVW_OK
		: kvw_body_feed(&x->attempt.answer, data, len, answer_payload, &out, &used);
	if (!kvw_client_alive(x->client))
		return;
	if (err != KVW_OK) {
		kvw_attempt_failed(&x->attempt, x->attempt.answer.error);
		return;
	}
	if (must_hold(x, &out) && keep_held(x, &out, held, data, used)) {
		kvw_held_charge(&x->attempt.held, x->loop->shared->memory);
		if (x->attempt.opening.preamble.commented)
			kvw_silence_comment(x);
		x->attempt.opening.preamble.commented = false;
		return;
	}
	if (!begins_well(x, &out))
		return;
	/* Heads and errors come from the API server, also when the engine has stopped. */
	if (out.payload > 0 && x->attempt.awaited && x->status == 200)
		kvw_stall_heard(&x->attempt.worker->stall, x->loop->now_ns);
	if (out.payload > 0 && (x->first_token_ns != 0 || !x->attempt.opening.error_event))
		count_payload(x);
	if (x->pass == KVW_PASS_RAW && used > 0)
		push_piece(&out, data, used);
	if (x->pass == KVW_PASS_EVENT) {
		kvw_silence_held(x);
		if (kvw_client_alive(x->client))
			answer_complete(x, used < len);
		return;
	}
	if (x->attempt.answer.done && x->pass == KVW_PASS_REFRAME)
		push_piece(&out, KVW_CHUNK_LAST, sizeof(KVW_CHUNK_LAST) - 1);
	send_gathered(x, &out);
	if (!kvw_client_alive(x->client))
		return;
	if (x->attempt.answer.done) {
		answer_complete(x, used < len);
		return;
	}
	/* other bytes are comments, which are no progress, so that the wait goes on */
	if (out.payload > 0 || !kvw_exchange_streams_tokens(x))
		kvw_loop_timer(x->loop, &x->timer, KVW_TIMER_STREAM_IDLE,
			x->config->timeout_stream_idle_ms);
	pause_if_slow(x);
}

static void feed_answer(struct kvw_exchange *x, const char *data, size_t len)
{
	size_t used = 0;

	x->attempt.answered = true;
	if (x->response_state == KVW_RESPONSE_WAITING) {
		used = feed_head(x, data, len);
		if (used == SIZE_MAX || x->response_state == KVW_RESPONSE_WAITING)
			return;
	}
	feed_body(x, data + used, len - used);
}

/* Handles a worker that closed its side. */
static void answer_closed(struct kvw_exchange *x)
{
	if (x->response_state == KVW_RESPONSE_WAITING) {
		kvw_attempt_failed(&x->attempt, "it closed the connection without an answer");
		return;
	}
	if (!kvw_body_close(&x->attempt.answer)) {
		broke_off(x, "it closed the connection in the middle of its answer");
		return;
	}
	x->attempt.keep_alive = false;
	feed_body(x, NULL, 0);
}

/* Returns whether reading goes on: no noted event comes first. */
static bool reads_on(const struct kvw_exchange *x)
{
	return x->response_state != KVW_RESPONSE_PAUSED && x->attempt.failure.why == NULL &&
	       !x->faulty && kvw_client_alive(x->client);
}

void kvw_response_read(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_link *link = x->attempt.link;

	for (int i = 0; i < READS_AT_ONCE; i++) {
		struct iovec iov = {loop->scratch, KVW_LOOP_SCRATCH};
		ssize_t n;

		if (!reads_on(x) || x->attempt.link != link || !link->io.readable)
			return;
		n = kvw_io_readv(&link->io, &iov, 1, KVW_LOOP_SCRATCH);
		if (n < 0 && errno == EAGAIN)
			return;
		if (n > 0)
			feed_answer(x, loop->scratch, (size_t)n);
		else if (n == 0)
			answer_closed(x);
		else
			broke_off(x, kvw_link_why(link, errno));
	}
	if (reads_on(x) && x->attempt.link == link && link->io.readable)
		kvw_io_again(&link->io);
}

void kvw_response_resume(struct kvw_exchange *x)
{
	if (x->client->out.bytes > x->config->limits_low_water)
		return;
	kvw_exchange_response_state(x, KVW_RESPONSE_STREAMING);
	kvw_attempt_await(x, x->request_state == KVW_REQUEST_SENT);
	x->last_data_ns = x->loop->now_ns;
	/* this timer was stopped by the pause */
	if (kvw_exchange_streams_tokens(x) && x->first_token_ns == 0)
		kvw_request_await_token(x, 0);
	else
		kvw_loop_timer(x->loop, &x->timer, KVW_TIMER_STREAM_IDLE,
			x->config->timeout_stream_idle_ms);
}
