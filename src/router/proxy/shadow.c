/*
 * shadow.c - sends copies of requests to watched groups.
 *
 * A copy has a connection of its own, which ends with the answer. kvway reads the answer's framing,
 * and its text for a comparison (fidelity.h): so that a cut answer counts as an error, and a worker
 * that keeps the connection open does not hold the copy's place. The worker is drawn by the
 * session, so that a session's copies meet its prefix.
 */
#include "proxy/shadow.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "openai/splice.h"
#include "proxy/fidelity.h"
#include "proxy/groups.h"
#include "proxy/prepare.h"
#include "proxy/rank.h"
#include "proxy/request.h"
#include "proxy/understand.h"

#define IO_AT_ONCE 8
#define HEAD_MOST 8192

struct kvw_shadow {
	TAILQ_ENTRY(kvw_shadow) entry; /* link in the loop's list of running or of ended copies */
	struct kvw_loop *loop;
	struct kvw_in_force *in_force; /* settings in which the copy counts as a request */
	uint8_t label;                 /* the label of its group in metrics */
	struct kvw_worker *worker;     /* held */
	struct kvw_link *link;
	struct kvw_lease lease;
	struct kvw_timer timer;
	bool connected;
	char *text; /* head and body; owned */
	size_t len, sent;
	size_t counted; /* bytes charged to groups.shadow_memory */
	uint64_t received, most;
	/* compares the copy's answer with the client's; NULL: no comparison */
	struct kvw_fidelity *fidelity;
	int64_t begun_ns;
	uint8_t matched; /* how many of the last bytes match the end of a head */
	bool body;       /* the head has ended */
	struct kvw_body answer; /* parser of the answer's body */
	int status;
	size_t head_len;
	char head[HEAD_MOST]; /* first head_len bytes of the answer */
};

/* --- its memory --- */

static bool take_copy_bytes(struct kvw_shadow *s, size_t bytes)
{
	if (!kvw_shared_shadow_take(
		    s->loop->shared, s->in_force->config->groups_shadow_memory, bytes))
		return false;
	s->counted += bytes;
	kvw_metrics_gauge(s->loop->metrics, KVW_GAUGE_SHADOW_BYTES, (int64_t)bytes);
	return true;
}

static void release_text(struct kvw_shadow *s)
{
	kvw_shared_shadow_release(s->loop->shared, s->counted);
	kvw_metrics_gauge(s->loop->metrics, KVW_GAUGE_SHADOW_BYTES, -(int64_t)s->counted);
	s->counted = 0;
	free(s->text);
	s->text = NULL;
}

/* --- the end --- */

static void end_copy(struct kvw_shadow *s, enum kvw_shadow_result result)
{
	struct kvw_loop *loop = s->loop;

	kvw_timer_clear(&loop->timers, &s->timer);
	if (s->link != NULL)
		kvw_link_close(s->link);
	s->link = NULL;
	kvw_lease_release(&s->lease, loop->now_ns);
	if (s->fidelity != NULL)
		kvw_fidelity_copy_end(s->fidelity, result == KVW_SHADOW_OK && s->status == 200);
	kvw_metrics_group_shadow(loop->metrics, s->label, result);
	kvw_metrics_gauge(loop->metrics, KVW_GAUGE_SHADOWS, -1);
	atomic_fetch_sub_explicit(&loop->shared->shadows, 1, memory_order_relaxed);
	TAILQ_REMOVE(&loop->shadows, s, entry);
	TAILQ_INSERT_TAIL(&loop->ended_shadows, s, entry);
}

void kvw_shadow_reap(struct kvw_loop *loop)
{
	struct kvw_shadow *s;

	while ((s = TAILQ_FIRST(&loop->ended_shadows)) != NULL) {
		TAILQ_REMOVE(&loop->ended_shadows, s, entry);
		kvw_links_unhold(&loop->links, s->worker);
		kvw_in_force_release(loop, s->in_force);
		release_text(s);
		free(s);
	}
}

void kvw_shadow_look(struct kvw_loop *loop)
{
	struct kvw_shadow *s, *next;

	for (s = TAILQ_FIRST(&loop->shadows); s != NULL; s = next) {
		next = TAILQ_NEXT(s, entry);
		if (loop->draining || kvw_worker_life(s->worker) == KVW_WORKER_GONE)
			end_copy(s, KVW_SHADOW_CANCELLED);
	}
}

void kvw_shadow_finish(struct kvw_loop *loop)
{
	while (!TAILQ_EMPTY(&loop->shadows))
		end_copy(TAILQ_FIRST(&loop->shadows), KVW_SHADOW_CANCELLED);
	kvw_shadow_reap(loop);
}

/* --- its connection --- */

/* Looks for the head's end. Returns how many of the bytes belong to the head. */
static size_t skip_head(struct kvw_shadow *s, const char *data, size_t len)
{
	static const char head_end[] = "\r\n\r\n";
	size_t i = 0;

	for (; i < len && s->matched < 4; i++)
		s->matched = data[i] == head_end[s->matched] ? (uint8_t)(s->matched + 1)
							     : data[i] == '\r';
	return i;
}

/* Handles a complete head. After an interim head (100, 102, 103) another one follows, else the
 * body. */
static bool take_answer_head(struct kvw_shadow *s)
{
	struct kvw_head *head = &s->loop->response_head;
	struct kvw_head_error error;

	head->field_limit = (size_t)s->in_force->config->limits_headers;
	if (kvw_head_parse_response(head, s->head, s->head_len, false, &error) != KVW_OK)
		return false;
	s->matched = 0;
	s->head_len = 0;
	s->status = head->status;
	s->body = head->status >= 200 || head->status == 101;
	if (s->body)
		kvw_body_begin(&s->answer, head->framing, head->content_length, 0);
	return true;
}

static void take_payload(void *arg, const char *data, size_t len)
{
	struct kvw_shadow *s = arg;

	if (s->fidelity != NULL)
		kvw_fidelity_copy(s->fidelity, data, len);
}

/* Takes bytes of the answer. KVW_ELIMIT: the answer is too long; KVW_EPROTO: malformed. */
static enum kvw_err take_answer(struct kvw_shadow *s, const char *data, size_t len)
{
	bool begun = s->body && s->answer.payload_bytes > 0;
	enum kvw_err err;
	size_t used;

	s->received += len;
	if (s->received > s->most)
		return KVW_ELIMIT;
	while (!s->body) {
		size_t head = skip_head(s, data, len);

		if (head > sizeof(s->head) - s->head_len)
			return KVW_EPROTO;
		memcpy(s->head + s->head_len, data, head);
		s->head_len += head;
		data += head;
		len -= head;
		if (s->matched < 4)
			return KVW_OK;
		if (!take_answer_head(s))
			return KVW_EPROTO;
	}
	err = kvw_body_feed(&s->answer, data, len, take_payload, s, &used);
	if (!begun && s->answer.payload_bytes > 0) {
		kvw_lease_first_token(&s->lease, s->loop->now_ns);
		kvw_metrics_group_shadow_answer(
			s->loop->metrics, s->label, s->loop->now_ns - s->begun_ns);
	}
	return err;
}

static bool is_good(struct kvw_shadow *s)
{
	return s->body && s->status >= 200 && s->status < 300 && kvw_body_close(&s->answer);
}

static void send_rest(struct kvw_shadow *s)
{
	struct kvw_io *io = &s->link->io;

	for (int i = 0; i < IO_AT_ONCE && io->writable && s->sent < s->len; i++) {
		struct iovec iov = {s->text + s->sent, s->len - s->sent};
		ssize_t n = kvw_io_writev(io, &iov, 1);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) { /* the next read will return the cause */
			io->writable = false;
			io->readable = true;
			return;
		}
		s->sent += (size_t)n;
	}
	if (io->writable && s->sent < s->len)
		kvw_io_again(io);
}

static void receive_answer(struct kvw_shadow *s)
{
	struct kvw_io *io = &s->link->io;

	for (int i = 0; i < IO_AT_ONCE && io->readable; i++) {
		struct iovec iov = {s->loop->scratch, KVW_LOOP_SCRATCH};
		ssize_t n = kvw_io_readv(io, &iov, 1, KVW_LOOP_SCRATCH);
		enum kvw_err err;

		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			end_copy(s, n == 0 && is_good(s) ? KVW_SHADOW_OK : KVW_SHADOW_ERROR);
			return;
		}
		err = take_answer(s, s->loop->scratch, (size_t)n);
		if (err != KVW_OK) {
			end_copy(s, err == KVW_ELIMIT ? KVW_SHADOW_LIMIT : KVW_SHADOW_ERROR);
			return;
		}
		if (s->body && s->answer.done) {
			end_copy(s, is_good(s) ? KVW_SHADOW_OK : KVW_SHADOW_ERROR);
			return;
		}
	}
	if (io->readable)
		kvw_io_again(io);
}

static void advance_copy(struct kvw_shadow *s)
{
	int cause = 0;
	enum kvw_err err = s->connected ? KVW_OK : kvw_link_connect_result(s->link, &cause);

	if (err == KVW_EAGAIN)
		return;
	if (err != KVW_OK) {
		end_copy(s, KVW_SHADOW_ERROR);
		return;
	}
	s->connected = true;
	if (s->sent < s->len && s->link->io.writable)
		send_rest(s);
	if (s->link->io.readable)
		receive_answer(s);
}

static void on_copy_link(struct kvw_link *link, void *user)
{
	struct kvw_shadow *s = user;

	(void)link;
	s->loop->now_ns = kvw_clock_ns();
	advance_copy(s);
}

static void on_copy_timer(struct kvw_timer *timer, int64_t now_ns)
{
	struct kvw_shadow *s =
		(struct kvw_shadow *)((char *)timer - offsetof(struct kvw_shadow, timer));

	s->loop->now_ns = now_ns;
	end_copy(s, KVW_SHADOW_TIMEOUT);
}

/* --- its beginning --- */

/* Copies the body with the group's name for the model, after `room` bytes for a head. NULL: not
 * possible. */
static char *copy_body_for_group(
	struct kvw_exchange *x, const struct kvw_model_group *group, size_t room, size_t *len)
{
	struct kvw_splice splice = {.count = 0};
	size_t body = (size_t)kvw_upload_payload(&x->upload),
	       most = (size_t)x->config->groups_shadow_body;
	char *plain = body > most ? NULL : malloc(room + body + 1), *text;

	if (plain == NULL || !kvw_upload_copy(&x->upload, plain + room, body))
		goto fail;
	*len = body;
	if (strcmp(group->serves, x->division.group->serves) == 0)
		return plain;
	kvw_request_scan_again(x);
	if (x->scan == NULL || !x->scanned ||
		kvw_splice_plan(x->scan, (struct kvw_slice){NULL, 0}, kvw_slice_of(group->serves),
			&splice) != KVW_OK ||
		splice.count == 0)
		goto fail;
	text = malloc(room + (size_t)((int64_t)body + splice.growth) + 1);
	if (text == NULL)
		goto fail;
	*len = kvw_splice_write(&splice, (struct kvw_slice){plain + room, body}, text + room);
	free(plain);
	kvw_request_scan_release(x);
	return text;
fail:
	kvw_request_scan_release(x);
	free(plain);
	return NULL;
}

/* Makes head and body. False: not possible. */
static bool make_text(
	struct kvw_exchange *x, const struct kvw_model_group *group, struct kvw_shadow *s)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_request_head_options options = {
		.prefix = kvw_slice_of(s->worker->path_prefix),
		.authority = kvw_slice_of(s->worker->authority),
		.request_id = x->request_id,
		.client = kvw_slice_of(x->client->address),
		.https = x->client->https,
		.framing = KVW_FRAME_LENGTH,
		/* the largest value, to make room for its digits */
		.content_length = UINT64_MAX >> 1,
		.bearer = kvw_slice_of(loop->auth != NULL ? s->worker->api_key : NULL),
		.extra = KVW_SLICE("Via: 1.1 kvway\r\nConnection: close\r\n"),
	};
	size_t room = kvw_head_request_bound(&loop->request_head, &options), body, head;
	struct kvw_writer w;

	if (loop->head_owner != x)
		return false;
	if (!take_copy_bytes(s, room + (size_t)kvw_upload_payload(&x->upload)))
		return false;
	s->text = copy_body_for_group(x, group, room, &body);
	if (s->text == NULL)
		return false;
	options.content_length = body;
	w = KVW_WRITER(s->text, room);
	head = kvw_head_write_request(&w, &loop->request_head, &options);
	if (head == 0 || head > room)
		return false;
	memmove(s->text + head, s->text + room, body);
	s->len = head + body;
	return true;
}

/* Chooses a usable worker by the session. NULL: none is usable. */
static struct kvw_worker *choose_worker(struct kvw_exchange *x, const struct kvw_model_group *group)
{
	struct kvw_fleet_table *table = &x->loop->candidates;
	const struct kvw_candidate *best = NULL;
	uint64_t most = 0;

	kvw_groups_read_of(x, group, table);
	for (size_t i = 0; i < table->count; i++) {
		uint64_t keys[2] = {x->division.key, table->items[i].key},
			 drawn = XXH3_64bits(keys, sizeof(keys));

		if (!table->items[i].usable || (best != NULL && drawn <= most))
			continue;
		best = &table->items[i];
		most = drawn;
	}
	return best == NULL ? NULL : x->loop->fleet->workers[best->id];
}

static bool start_copy(
	struct kvw_exchange *x, const struct kvw_model_group *group, struct kvw_shadow *s)
{
	struct kvw_loop *loop = x->loop;
	uint32_t tokens = x->attempt.decision.prompt_tokens;

	s->loop = loop;
	s->in_force = x->in_force;
	s->worker = choose_worker(x, group);
	if (s->worker == NULL || !make_text(x, group, s))
		return false;
	if (kvw_link_take(&loop->links, s->worker, true, on_copy_link, s, &s->link) != KVW_OK)
		return false;
	s->label = x->in_force->group_labels[group - x->config->model_groups];
	s->most = x->config->groups_shadow_answer;
	s->begun_ns = loop->now_ns;
	s->connected = s->link->connected;
	s->timer.fn = on_copy_timer;
	s->in_force->requests++;
	kvw_links_hold(&loop->links, s->worker);
	kvw_lease_take(&s->lease, &s->worker->load,
		(int64_t)((double)tokens * 1e9 / x->config->routing_prefill_rate), loop->now_ns);
	s->lease.plain = x->attempt.lease.plain;
	kvw_lease_hold(&s->lease, tokens);
	kvw_loop_timer(loop, &s->timer, KVW_TIMER_SHADOW, x->config->groups_shadow_timeout_ms);
	TAILQ_INSERT_TAIL(&loop->shadows, s, entry);
	kvw_metrics_gauge(loop->metrics, KVW_GAUGE_SHADOWS, 1);
	s->fidelity = kvw_fidelity_begin(x, s->label);
	if (s->connected)
		kvw_io_again(&s->link->io);
	return true;
}

/* Counted before the copy is made, so that all loops together keep to the limit. */
static void make_copy(struct kvw_exchange *x, const struct kvw_model_group *group)
{
	_Atomic int64_t *shadows = &x->loop->shared->shadows;
	struct kvw_shadow *s = NULL;

	if (atomic_fetch_add_explicit(shadows, 1, memory_order_relaxed) <
		x->config->groups_shadow_in_flight)
		s = calloc(1, sizeof(*s));
	if (s != NULL && start_copy(x, group, s))
		return;
	atomic_fetch_sub_explicit(shadows, 1, memory_order_relaxed);
	kvw_metrics_group_shadow(x->loop->metrics,
		x->in_force->group_labels[group - x->config->model_groups], KVW_SHADOW_DROPPED);
	if (s != NULL && s->loop != NULL)
		release_text(s);
	free(s);
}

/* Decides by chance whether a copy is made; each group draws for itself. */
static bool is_copy_due(const struct kvw_exchange *x, const struct kvw_model_group *group)
{
	uint64_t drawn = XXH3_64bits_withSeed(x->request_id.data, x->request_id.len, group->hash);

	return group != x->division.group && group->shadow > 0 &&
	       (double)(drawn >> 11) * 0x1p-53 < group->shadow;
}

void kvw_shadow_offer(struct kvw_exchange *x)
{
	struct kvw_model_groups groups;

	if (x->division.group == NULL || x->attempt.link == NULL || x->tried.attempts != 1 ||
		!x->whole || !x->scanned || !kvw_exchange_computes(x) || x->loop->draining)
		return;
	groups = kvw_config_groups(x->config, kvw_slice_of(x->division.group->model));
	for (size_t i = 0; i < groups.count; i++)
		if (is_copy_due(x, &groups.items[i]))
			make_copy(x, &groups.items[i]);
}
