/*
 * advance.c - one function moves an exchange on, until the exchange has to wait.
 *
 * Events of an exchange come from five places: its client's socket (receive.c), its worker's
 * socket, its timer, the tokens thread, and the tick that finds new model lists. Each callback
 * notes its event and calls kvw_exchange_advance, which looks at the states and takes one step
 * after another:
 *
 *   anything noted   a lost client, a broken rule of ours, a failed worker, a finished answer
 *   READ_HEAD        check it; answer, or choose how the body is read           request.c
 *   (bytes came)     take the body's                                            request.c
 *   ROUTING          from step to step, until it waits or is on its way          steps.def, step.c
 *   CONNECTING       connected, or failed                                       here
 *   SENDING          request to the worker, answer to the client                send.c, response.c
 *   SENT             answer to the client                                       response.c
 *
 * No step calls another, and none calls this file: a step changes a state or notes a failure, and
 * returns. So every end of an exchange passes through advance_once(), and no memory is released
 * while a step still uses it.
 */
#include "proxy/advance.h"

#include "base/log.h"
#include "proxy/busy.h"
#include "proxy/forward.h"
#include "proxy/gates.h"
#include "proxy/lacking.h"
#include "proxy/leg.h"
#include "proxy/local.h"
#include "proxy/pd.h"
#include "proxy/prepare.h"
#include "proxy/reply.h"
#include "proxy/request.h"
#include "proxy/response.h"
#include "proxy/retry.h"
#include "proxy/send.h"
#include "proxy/silence.h"
#include "proxy/step.h"
#include "proxy/tried.h"
#include "proxy/waking.h"
#include "proxy/whose.h"

/* --- a connection to the worker --- */

static void on_worker_link(struct kvw_link *link, void *user)
{
	struct kvw_exchange *x = user;

	(void)link; /* the link's flags say what happened */
	x->loop->now_ns = kvw_clock_ns();
	kvw_exchange_advance(x);
}

/* --- a worker that failed --- */

static void give_request_up(struct kvw_exchange *x, const char *timed_out)
{
	/* Two workers broke under this request: a client that repeats it would break more. */
	const char *fields =
		x->tried.suspicions >= KVW_RETRY_SUSPICIONS ? "x-should-retry: false\r\n" : NULL;
	char message[512];

	if (x->tried.full) {
		kvw_reply_error_as(x, 503, NULL, NULL, KVW_BUSY_RETRY_AFTER,
			"every worker that could answer has as many requests as it takes");
		return;
	}
	if (timed_out != NULL) {
		x->end = KVW_END_TIMEOUT;
		x->timeout = timed_out;
		(void)snprintf(message, sizeof(message),
			"the worker did not answer in time; tried %s", x->tried.text);
		kvw_reply_error_as(x, 504, NULL, NULL, "x-should-retry: false\r\n", message);
		return;
	}
	(void)snprintf(message, sizeof(message), "no worker could answer; tried %s", x->tried.text);
	kvw_reply_error_as(x, 502, NULL, NULL, fields, message);
}

/* Asks the same worker again: it closed the kept connection meanwhile. */
static void retry_fresh(struct kvw_exchange *x)
{
	struct kvw_attempt *a = &x->attempt;

	x->tried.fresh++;
	kvw_metrics_add(x->loop->metrics, KVW_COUNT_STALE_RETRIES, 1);
	kvw_link_close(a->link);
	kvw_attempt_await(x, false);
	a->link = NULL;
	a->failure.why = NULL;
	a->head_sent = 0;
	kvw_block_put(&x->loop->blocks, a->partial);
	a->partial = NULL;
	kvw_exchange_response_state(x, KVW_RESPONSE_WAITING);
	kvw_connect(x, true, on_worker_link);
}

/* Notes whether the request may have broken the worker. A worker that received nothing of the
 * request, was slow, or itself declared that it cannot serve was not broken by it. The loss of a
 * kept connection counts once the fresh connection fails, too. */
static bool note_suspect(struct kvw_attempt *a)
{
	a->suspect = a->failure.excuse == KVW_EXCUSE_NONE &&
		     (a->suspect || (a->written > 0 && a->failure.timed_out == NULL));
	return a->suspect;
}

/* A busy or full worker is not at fault. A worker that was found down or stalled is graded by that
 * finding, except after a trial, which the worker has failed. */
static enum kvw_grade grade_of_failure(const struct kvw_attempt *a)
{
	bool excused = a->failure.excuse == KVW_EXCUSE_BUSY ||
		       a->failure.excuse == KVW_EXCUSE_FULL ||
		       (a->failure.excuse == KVW_EXCUSE_DOWN && !a->trial);

	return excused ? KVW_GRADE_NONE : KVW_GRADE_BAD;
}

/* Forgets an answer of which the client has seen nothing. */
static void forget_answer(struct kvw_exchange *x)
{
	kvw_whose_forget(&x->made);
	x->rating.events = 0;
	x->rating.line_ended = false;
	kvw_usage_init(&x->usage);
}

/* Notes that a timer cuts an answer: the client sees only a connection that ends, without a
 * cause. */
static void note_cut(const struct kvw_exchange *x, const char *why)
{
	kvw_warn("proxy", "answer cut: %s url=%s request_id=%.*s", why,
		x->attempt.worker == NULL ? "" : x->attempt.worker->url, (int)x->request_id.len,
		x->request_id.data);
}

/* Leaves a worker that lacks the requested object. The next worker may have it, so that asking that
 * one does not count as a retry. */
static void leave_without(struct kvw_exchange *x)
{
	kvw_trace_text(x->trace, x->loop->now_ns, KVW_TRACE_FAILED, KVW_RETRY_OTHER, 0,
		x->attempt.failure.why);
	kvw_timer_clear(&x->loop->timers, &x->timer);
	forget_answer(x);
	kvw_exchange_response_state(x, KVW_RESPONSE_NONE);
	kvw_exchange_request_state(x, KVW_REQUEST_ROUTING);
	kvw_attempt_end(x, false);
}

/* Decides whether the request may be sent again. A full worker refuses at no cost, so that leaving
 * it is neither counted nor paid for. */
static enum kvw_retry decide_retry(struct kvw_exchange *x, const struct kvw_retry_facts *facts)
{
	if (x->tried.full && !facts->first_token)
		return kvw_request_may_find_room(x) ? KVW_RETRY_OTHER : KVW_RETRY_NO;
	return kvw_retry_decide(facts);
}

/* Before the first token the request goes to another worker or is answered 502, 503 or 504; after
 * the first token kvway cuts the answer. */
static void worker_failed(struct kvw_exchange *x)
{
	struct kvw_attempt *a = &x->attempt;
	struct kvw_loop *loop = x->loop;
	const char *why = a->failure.why, *timed_out = a->failure.timed_out;
	struct kvw_retry_facts facts = {
		.first_token = x->first_token_ns != 0 || kvw_exchange_answering(x),
		.repeatable = x->path.repeatable,
		.idempotent = kvw_exchange_is_idempotent(x),
		.request_held = x->whole || a->body_sent == 0,
		.link_reused = a->link != NULL && a->link->reused &&
			       a->failure.excuse != KVW_EXCUSE_DOWN && !a->failure.left,
		.response_byte = a->answered,
		.waited_out = timed_out != NULL && !a->failure.left,
		.suspicions = x->tried.suspicions + note_suspect(a),
		.link_written = a->written,
		.retries = x->tried.count,
		.retry_limit = (uint32_t)x->config->retry_attempts,
	};
	enum kvw_retry retry;

	x->tried.full = a->failure.excuse == KVW_EXCUSE_FULL;
	retry = decide_retry(x, &facts);
	if (retry == KVW_RETRY_FRESH && kvw_pd_uses_up(x)) { /* the KV can be read only once */
		x->tried.fresh++;
		kvw_metrics_add(loop->metrics, KVW_COUNT_STALE_RETRIES, 1);
		leave_without(x);
		return;
	}
	if (retry == KVW_RETRY_OTHER && !x->tried.full && !kvw_attempt_pay_repeat(x))
		retry = KVW_RETRY_NO;
	kvw_trace_text(x->trace, loop->now_ns, KVW_TRACE_FAILED, retry, 0, why);
	kvw_timer_clear(&loop->timers, &x->timer);
	if (retry != KVW_RETRY_FRESH)
		kvw_attempt_grade(x, grade_of_failure(a), why);
	if (facts.first_token) {
		x->timeout = timed_out;
		if (timed_out != NULL)
			note_cut(x, why);
		kvw_exchange_cut(x, timed_out != NULL ? KVW_END_TIMEOUT : KVW_END_UPSTREAM_LOST);
		return;
	}
	forget_answer(x);
	kvw_exchange_response_state(x, KVW_RESPONSE_NONE);
	if (x->request_state != KVW_REQUEST_ROUTING)
		kvw_exchange_request_state(x, KVW_REQUEST_ROUTING);
	if (retry == KVW_RETRY_FRESH) {
		retry_fresh(x);
		return;
	}
	x->tried.suspicions = facts.suspicions;
	/* A request that may wait can come back to a full worker, if the end of another request of
	 * kvway makes room there. */
	if (!x->tried.full || !kvw_gates_want(x) || kvw_load_inflight(&a->worker->load) <= 1)
		kvw_tried_note(&x->tried, a->worker, why, kvw_exchange_names_workers(x));
	kvw_debug("proxy", "worker failed url=%s why=\"%s\" request_id=%.*s", a->worker->url, why,
		(int)x->request_id.len, x->request_id.data);
	kvw_attempt_end(x, false);
	if (retry != KVW_RETRY_OTHER)
		give_request_up(x, timed_out);
	else if (!x->tried.full)
		kvw_metrics_add(loop->metrics, KVW_COUNT_RETRIES, 1);
}

/* --- steps --- */

/* Handles events that were noted and come before the exchange's next step. True: there was one. */
static bool take_noted(struct kvw_exchange *x)
{
	if (x->client->state == KVW_CLIENT_LOST && x->said_all && x->client->out.bytes == 0) {
		kvw_exchange_end(x, KVW_END_COMPLETE); /* the client has read all that it wanted */
	} else if (x->client->state == KVW_CLIENT_LOST) {
		if (!x->faulty)
			kvw_trace_client(x->trace, x->loop->now_ns,
				x->client->io.broken ? KVW_TRACE_CLIENT_RESET
						     : KVW_TRACE_CLIENT_LEFT);
		kvw_metrics_add(x->loop->metrics, KVW_COUNT_CLIENT_GONE, 1);
		kvw_exchange_end(x, KVW_END_CLIENT_GONE);
	} else if (x->faulty) {
		kvw_client_lose(x->client, true);
	} else if (x->attempt.failure.why != NULL &&
		   x->attempt.failure.excuse == KVW_EXCUSE_LACKS) {
		leave_without(x);
	} else if (x->attempt.failure.why != NULL) {
		worker_failed(x);
	} else {
		return false;
	}
	return true;
}

static void on_prompt_tokens(void *user, const struct kvw_token_result *result)
{
	kvw_prepare_answered(user, result);
	kvw_exchange_advance(user);
}

static void on_lease(struct kvw_timer *timer, int64_t now_ns)
{
	struct kvw_parted *pd =
		(struct kvw_parted *)((char *)timer - offsetof(struct kvw_parted, timer));
	struct kvw_exchange *x = pd->x;

	x->loop->now_ns = now_ns;
	if (pd->leg != NULL) {
		kvw_trace_note(x->trace, now_ns, KVW_TRACE_TIMER, timer->kind);
		kvw_leg_connect_late(x);
		return;
	}
	if (!kvw_pd_lease_passed(x))
		return;
	kvw_trace_note(x->trace, now_ns, KVW_TRACE_TIMER, timer->kind);
	kvw_exchange_advance(x);
}

static bool route(struct kvw_exchange *x)
{
	struct kvw_way way = {.on_link = on_worker_link,
		.on_tokens = on_prompt_tokens,
		.on_leg = kvw_exchange_advance,
		.on_lease = on_lease};

	(void)kvw_steps_walk(x, &way);
	return true;
}

static bool connecting(struct kvw_exchange *x)
{
	struct kvw_link *link = x->attempt.link;
	int cause = 0;

	switch (kvw_link_connect_result(link, &cause)) {
	case KVW_OK:
		kvw_timer_clear(&x->loop->timers, &x->timer);
		kvw_exchange_request_state(x, KVW_REQUEST_SENDING);
		return true;
	case KVW_EAGAIN:
		return false;
	default:
		kvw_attempt_failed(&x->attempt, kvw_link_why(link, cause));
		return true;
	}
}

/* Moves bytes in both directions, as far as the sockets take them. */
static bool exchange_bytes(struct kvw_exchange *x)
{
	struct kvw_link *link = x->attempt.link;

	if (x->response_state == KVW_RESPONSE_PAUSED)
		kvw_response_resume(x);
	if (x->request_state == KVW_REQUEST_SENDING &&
		(link->io.writable || x->upload.received > x->attempt.body_sent))
		kvw_request_send(x);
	if (x->response_state != KVW_RESPONSE_PAUSED && link->io.readable)
		kvw_response_read(x);
	return x->response_state >= KVW_RESPONSE_DONE || x->attempt.failure.why != NULL ||
	       x->faulty || x->client->state == KVW_CLIENT_LOST;
}

/* Takes one step. False: the exchange has to wait, or has ended. */
static bool advance_once(struct kvw_exchange *x)
{
	if (kvw_exchange_ended(x))
		return false;
	if (take_noted(x))
		return true;
	if (x->response_state == KVW_RESPONSE_DONE) {
		if (x->wait.kind != NULL)
			/* the body was refused meanwhile, and the refusal is the answer */
			kvw_wait_end(x, KVW_WAITED_LEFT);
		if (x->client->out.bytes == 0)
			kvw_exchange_end(x, x->end);
		return false;
	}
	if (x->request_state == KVW_REQUEST_READ_HEAD) {
		kvw_request_head(x);
		return true;
	}
	if (kvw_upload_has_news(&x->upload)) {
		kvw_request_body(x);
		return true;
	}
	switch (x->request_state) {
	case KVW_REQUEST_ROUTING:
		return route(x);
	case KVW_REQUEST_CONNECTING:
		return connecting(x);
	case KVW_REQUEST_SENDING:
	case KVW_REQUEST_SENT:
		return exchange_bytes(x);
	default: /* READ_BODY and WAITING wait for their events */
		return false;
	}
}

void kvw_exchange_advance(struct kvw_exchange *x)
{
	while (advance_once(x))
		;
}

/* --- events --- */

/* A stream has paused for timeouts.stream_idle. True: its engine's counters have moved since, so
 * kvway waits until the counters stand still for as long. */
static bool computes_on(struct kvw_exchange *x)
{
	int64_t until_ns;

	if (x->response_state != KVW_RESPONSE_STREAMING || !kvw_exchange_computes(x))
		return false;
	until_ns = kvw_stall_moved_ns(&x->attempt.worker->stall) +
		   x->config->timeout_stream_idle_ms * KVW_NS_PER_MS;
	if (until_ns <= x->loop->now_ns)
		return false;
	kvw_timer_set(&x->loop->timers, &x->timer, KVW_TIMER_STREAM_IDLE, until_ns);
	return true;
}

static void on_exchange_timer(struct kvw_timer *timer, int64_t now_ns)
{
	struct kvw_exchange *x =
		(struct kvw_exchange *)((char *)timer - offsetof(struct kvw_exchange, timer));
	struct kvw_loop *loop = x->loop;
	struct kvw_attempt *a = &x->attempt;

	loop->now_ns = now_ns;
	kvw_trace_note(x->trace, now_ns, KVW_TRACE_TIMER, timer->kind);
	switch (timer->kind) {
	case KVW_TIMER_PARK:
	case KVW_TIMER_WAKE:
	case KVW_TIMER_TOKENS:
	case KVW_TIMER_PREFILL:
		kvw_wait_expire(x);
		break;
	case KVW_TIMER_CONNECT:
		kvw_metrics_add(loop->metrics, KVW_COUNT_TIMEOUT_CONNECT, 1);
		if (kvw_link_connect_elsewhere(a->link)) {
			kvw_loop_timer(
				loop, &x->timer, KVW_TIMER_CONNECT, x->config->timeout_connect_ms);
			return;
		}
		kvw_attempt_failed(a, "timeouts.connect passed");
		break;
	case KVW_TIMER_ATTEMPT:
		if (!kvw_request_may_leave(x, x->tried.suspicions)) {
			kvw_request_await_token(x, 0);
			break;
		}
		kvw_metrics_add(loop->metrics, KVW_COUNT_TIMEOUT_ATTEMPT, 1);
		a->failure.left = true;
		kvw_attempt_timed_out(a, "timeouts.attempt", "timeouts.attempt passed");
		break;
	case KVW_TIMER_FIRST_TOKEN:
		kvw_metrics_add(loop->metrics, KVW_COUNT_TIMEOUT_FIRST_TOKEN, 1);
		kvw_attempt_timed_out(a, "timeouts.first_token", "timeouts.first_token passed");
		break;
	default:
		if (computes_on(x))
			return;
		kvw_metrics_add(loop->metrics, KVW_COUNT_TIMEOUT_STREAM_IDLE, 1);
		kvw_attempt_timed_out(a, "timeouts.stream_idle", "timeouts.stream_idle passed");
	}
	kvw_exchange_advance(x);
}

void kvw_exchange_unpark(struct kvw_loop *loop)
{
	struct kvw_exchange *x, *next;

	for (x = TAILQ_FIRST(&loop->parked); x != NULL; x = next) {
		next = TAILQ_NEXT(x, entry);
		if (kvw_lacking_unpark(x))
			kvw_exchange_advance(x);
	}
	for (x = TAILQ_FIRST(&loop->want_metrics); x != NULL; x = next) {
		next = TAILQ_NEXT(x, entry);
		if (kvw_local_metrics(x))
			kvw_exchange_advance(x);
	}
}

/* limit of requests that go on in one tick, since other clients wait meanwhile */
#define WAKE_MOST    256
/* how often candidates are looked at again although nothing was reported: they may change with time
 * alone */
#define WAKE_LOOK_NS (100 * KVW_NS_PER_MS)
/* models without a worker that one pass remembers; for further models it looks at each request */
#define WAKE_ASLEEP  64

/* Models that had no worker when this pass looked at a request for them. */
struct asleep {
	const struct kvw_wake_model *models[WAKE_ASLEEP];
	size_t count;
};

static bool is_noted_asleep(const struct asleep *asleep, const struct kvw_wake_model *model)
{
	/* the model looked up last is likely to come again */
	for (size_t i = asleep->count; i-- > 0;)
		if (asleep->models[i] == model)
			return true;
	return false;
}

static void note_asleep(struct asleep *asleep, const struct kvw_wake_model *model)
{
	if (asleep->count < WAKE_ASLEEP)
		asleep->models[asleep->count++] = model;
}

void kvw_exchange_wake(struct kvw_loop *loop)
{
	uint64_t changes = atomic_load_explicit(&loop->fleet->changes, memory_order_acquire);
	struct kvw_exchange *x, *next;
	struct asleep asleep;
	size_t gone = 0;

	if (changes == loop->woken_changes && loop->now_ns - loop->woken_ns < WAKE_LOOK_NS)
		return;
	loop->woken_ns = loop->now_ns;
	asleep.count = 0;
	for (x = TAILQ_FIRST(&loop->waking); x != NULL && gone < WAKE_MOST; x = next) {
		next = TAILQ_NEXT(x, entry);
		if (is_noted_asleep(&asleep, x->waking.model))
			continue;
		if (kvw_waking_go_on(x)) {
			gone++;
			kvw_exchange_advance(x);
		} else {
			note_asleep(&asleep, x->waking.model);
		}
	}
	/* 0: the next tick takes further requests */
	loop->woken_changes = gone < WAKE_MOST ? changes : 0;
}

/* A sleeping engine has no request under way, and gives no token until it is woken. The sleep may
 * be short, so requests that wait there stay for a while. */
static bool waits_for_sleeper(const struct kvw_exchange *x)
{
	int64_t patience_ns = x->config->upstream_stall_ms * KVW_NS_PER_MS / 3;

	return kvw_worker_fell_asleep(x->attempt.worker) && patience_ns > 0 &&
	       !kvw_exchange_answering(x) && x->loop->now_ns - x->attempt.picked_ns > patience_ns;
}

/* Probes of the request's worker are late, and no worker that is up could replace it: the worker
 * may be busy with this very request. */
static bool is_only_late(const struct kvw_exchange *x)
{
	const struct kvw_fleet_table *table = &x->loop->candidates;

	if (!kvw_worker_is_late(x->attempt.worker))
		return false;
	if (!kvw_request_has_choice(x))
		return true;
	for (size_t i = 0; i < table->count; i++)
		if (table->items[i].usable &&
			kvw_worker_is_up(x->loop->fleet->workers[table->items[i].id]))
			return false;
	return true;
}

/* Returns why the exchange waits in vain: its worker is gone, down, asleep or stalled. NULL: it
 * does not wait in vain, since its answer still flows, it waits for its client, or it could not go
 * to another worker while its own may go on. */
static const char *waits_in_vain(const struct kvw_exchange *x)
{
	const struct kvw_config *config = x->config;
	const struct kvw_worker *worker = x->attempt.worker;
	int64_t patience_ns = config->health_timeout_ms * config->health_fall * KVW_NS_PER_MS;
	bool down, still, sleeps;

	if (kvw_exchange_ended(x) || x->attempt.link == NULL)
		return NULL;
	if (kvw_worker_life(worker) == KVW_WORKER_GONE)
		return "it was removed from the fleet";
	if (x->response_state == KVW_RESPONSE_PAUSED)
		return NULL;
	down = atomic_load_explicit(&worker->health, memory_order_relaxed) == KVW_HEALTH_DOWN;
	still = kvw_stall_state(&worker->stall) == KVW_STALL_FOUND;
	sleeps = waits_for_sleeper(x);
	if (!down && ((!still && !sleeps) || !x->attempt.awaited || !kvw_request_has_choice(x)))
		return NULL;
	if (kvw_exchange_answering(x) && x->loop->now_ns - x->last_data_ns <= patience_ns)
		return NULL;
	if (down && !still && !sleeps && !kvw_exchange_answering(x) && is_only_late(x))
		return NULL;
	if (down)
		return "its health probes fail";
	return sleeps ? "its engine sleeps" : "its engine stands still";
}

/* Returns whether any request waits for a worker that is gone, down, asleep or stalled. Most
 * workers that are down have no request. */
static bool any_waits_in_vain(const struct kvw_fleet *fleet)
{
	for (size_t i = 0; i < fleet->count; i++) {
		struct kvw_worker *worker = fleet->workers[i];

		if (kvw_load_inflight(&worker->load) > 0 &&
			(kvw_worker_life(worker) == KVW_WORKER_GONE ||
				kvw_worker_fell_asleep(worker) ||
				kvw_stall_state(&worker->stall) == KVW_STALL_FOUND ||
				atomic_load_explicit(&worker->health, memory_order_relaxed) ==
					KVW_HEALTH_DOWN) &&
			kvw_load_own_inflight(&worker->load) > 0)
			return true;
	}
	return false;
}

void kvw_exchange_fail_over(struct kvw_loop *loop)
{
	struct kvw_client *client, *next;

	if (!any_waits_in_vain(loop->fleet))
		return;
	for (client = TAILQ_FIRST(&loop->clients); client != NULL; client = next) {
		struct kvw_exchange *x = client->exchange;
		const char *why = x == NULL ? NULL : waits_in_vain(x);

		next = TAILQ_NEXT(client, entry);
		if (x == NULL || kvw_leg_look(x) || why == NULL)
			continue;
		kvw_metrics_add(loop->metrics, KVW_COUNT_FAILOVERS, 1);
		kvw_attempt_excused(&x->attempt, KVW_EXCUSE_DOWN, why);
		kvw_exchange_advance(x);
	}
}

/* Cuts the answer, which ends with `end`; if no answer has begun, sends an error with this
 * status. */
static void end_early(struct kvw_exchange *x, enum kvw_end end, int status, const char *fields,
	const char *message)
{
	char text[256];

	if (kvw_exchange_answering(x)) {
		if (end == KVW_END_TIMEOUT)
			note_cut(x, message);
		kvw_exchange_cut(x, end);
		return;
	}
	if (x->wait.kind != NULL) {
		(void)snprintf(text, sizeof(text), "%s; the request waited for %s", message,
			x->wait.kind->text);
		message = text;
		kvw_wait_end(x, x->end == KVW_END_TIMEOUT ? KVW_WAITED_EXPIRED : KVW_WAITED_LEFT);
	}
	kvw_reply_error_as(x, status, NULL, NULL, fields, message);
	kvw_exchange_advance(x);
}

void kvw_exchange_shut_down(struct kvw_exchange *x)
{
	/* The answer is complete, but the client has not taken it: closing the connection now drops
	 * the rest. Once all of it was sent, a reset would destroy the bytes that the kernel still
	 * holds. */
	if (x->response_state == KVW_RESPONSE_DONE) {
		kvw_client_lose(x->client, x->pass == KVW_PASS_PAYLOAD);
		kvw_exchange_end(x, KVW_END_SHUTDOWN);
		return;
	}
	end_early(x, KVW_END_SHUTDOWN, 503, "retry-after: 1\r\n", "kvway is shutting down");
}

static void on_deadline(struct kvw_timer *timer, int64_t now_ns)
{
	struct kvw_exchange *x =
		(struct kvw_exchange *)((char *)timer - offsetof(struct kvw_exchange, deadline));

	x->loop->now_ns = now_ns;
	if (x->response_state == KVW_RESPONSE_DONE)
		/* the exchange waits only for its client, which timeouts.client_write watches */
		return;
	kvw_metrics_add(x->loop->metrics, KVW_COUNT_TIMEOUT_REQUEST, 1);
	kvw_trace_note(x->trace, now_ns, KVW_TRACE_TIMER, timer->kind);
	x->end = KVW_END_TIMEOUT;
	x->timeout = timer->kind == KVW_TIMER_KEY ? "key" : "timeouts.request";
	end_early(x, KVW_END_TIMEOUT, 504, "x-should-retry: false\r\n",
		timer->kind == KVW_TIMER_KEY ? "the time of this API key for a request has passed"
					     : "timeouts.request passed");
}

static void on_silence(struct kvw_timer *timer, int64_t now_ns)
{
	struct kvw_exchange *x =
		(struct kvw_exchange *)((char *)timer -
					offsetof(struct kvw_exchange, silence.timer));

	x->loop->now_ns = now_ns;
	kvw_silence_comment(x);
	kvw_silence_await(x);
	kvw_exchange_advance(x);
}

enum kvw_err kvw_exchange_begin(struct kvw_client *client, size_t head_len)
{
	struct kvw_exchange *x = kvw_exchange_create(client, on_exchange_timer);
	struct kvw_loop *loop = client->loop;

	if (x == NULL)
		return KVW_ENOMEM;
	x->upload.head_len = head_len;
	x->deadline.fn = on_deadline;
	x->silence.timer.fn = on_silence;
	if (x->config->timeout_request_ms > 0)
		kvw_timer_set(&loop->timers, &x->deadline, KVW_TIMER_REQUEST,
			x->start_ns + x->config->timeout_request_ms * KVW_NS_PER_MS);
	kvw_exchange_advance(x);
	return KVW_OK;
}
