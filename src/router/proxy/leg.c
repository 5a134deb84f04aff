/*
 * leg.c - see leg.h.
 *
 * The body goes out as pieces of the client's, with the members that differ between them; the answer,
 * which is small, is collected whole. A kept connection that was closed meanwhile is followed by one
 * fresh one, as with any attempt.
 */
#include "proxy/leg.h"

#include <stdlib.h>
#include <string.h>

#include "openai/legs.h"
#include "proxy/busy.h"
#include "proxy/loop.h"
#include "proxy/pd.h"
#include "proxy/rank.h"
#include "proxy/transfer.h"
#include "proxy/understand.h"
#include "proxy/worker_head.h"

#define IO_AT_ONCE  8
#define ANSWER_MOST ((size_t)4 << 20) /* block ids of some 500,000 tokens */

struct kvw_leg {
	TAILQ_ENTRY(kvw_leg) entry; /* of the loop's ended ones */
	struct kvw_exchange *x;     /* NULL: it has ended */
	struct kvw_loop *loop;
	struct kvw_worker *worker;  /* held by its exchange */
	bool booked;                /* the decoder's side asks the worker: it has no connection */
	struct kvw_link *link;
	struct kvw_lease lease;
	struct kvw_block *head;
	struct kvw_pieces text; /* the body */
	char ask[KVW_TRANSFER_PARAMS_ROOM]; /* the parameters in it */
	size_t sent;            /* of head and body */
	uint64_t memory;        /* of limits.body_memory, for the answer */
	bool connected, fresh, trial;
	bool heard;                 /* the present link brought a byte */
	kvw_leg_done_fn *done;
	int64_t begun_ns, until_ns; /* it must have ended by then */
	int status;                 /* 0: no head yet */
	size_t scanned;             /* of the head, where the search for its end goes on */
	struct kvw_chain in;        /* of the answer: its head until that is whole */
	struct kvw_body answer;
	char *body;                 /* owned; its payload */
	size_t len, room;
	bool cut;                   /* the answer had more than `body` */
	struct kvw_usage usage;
};

/* --- its end --- */

/* Returns the request, scanned once more, if the prefiller computed nothing for it that the
 * strategy could count on; else NULL. */
static const struct kvw_route_request *unserved(struct kvw_exchange *x, enum kvw_pd_leg outcome)
{
	if (outcome == KVW_PD_LEG_OK || outcome == KVW_PD_LEG_NO_PARAMS ||
		outcome == KVW_PD_LEG_CANCELLED || x->pd->decision.chains == 0)
		return NULL;
	return kvw_request_read_again(x);
}

static void report(struct kvw_leg *leg, enum kvw_pd_leg outcome)
{
	struct kvw_exchange *x = leg->x;
	int64_t now_ns = leg->loop->now_ns, ahead_ns = leg->lease.ahead_ns,
		behind_ns = leg->lease.behind_ns, served_ns;
	bool good = outcome == KVW_PD_LEG_OK && !leg->booked; /* its times are known */

	if (good)
		kvw_lease_first_token(&leg->lease, now_ns);
	served_ns = leg->lease.served_ns;
	kvw_lease_release(&leg->lease, now_ns);
	if (x->pd->picked && x->strategy->ops->done != NULL) {
		struct kvw_outcome told = {
			.status = leg->status,
			.first_token = good,
			.completed = outcome == KVW_PD_LEG_OK,
			.streamed = good, /* its first byte is its first token */
			.prompt_known = leg->usage.prompt_known,
			.cached_known = leg->usage.prompt_known && leg->usage.cached_known,
			.prompt_tokens = leg->usage.prompt_tokens,
			.cached_tokens = leg->usage.cached_tokens,
			.first_token_ns = good ? now_ns - leg->begun_ns : 0,
			.ahead_ns = ahead_ns,
			.behind_ns = behind_ns,
			.served_ns = served_ns,
			.unserved = unserved(x, outcome),
		};

		x->strategy->ops->done(x->strategy, &x->pd->decision, &told, now_ns);
		kvw_request_scan_release(x);
	}
	x->pd->picked = false;
}

static void grade(struct kvw_leg *leg, enum kvw_pd_leg outcome)
{
	static const enum kvw_grade grades[KVW_PD_LEGS] = {
		[KVW_PD_LEG_OK] = KVW_GRADE_GOOD,
		[KVW_PD_LEG_NO_PARAMS] = KVW_GRADE_GOOD,
		[KVW_PD_LEG_ERROR] = KVW_GRADE_BAD,
		[KVW_PD_LEG_LOST] = KVW_GRADE_BAD,
		[KVW_PD_LEG_TIMEOUT] = KVW_GRADE_BAD,
	};
	enum kvw_grade is = leg->booked ? KVW_GRADE_NONE : grades[outcome];

	if (outcome == KVW_PD_LEG_ERROR && leg->status < 500)
		is = KVW_GRADE_NONE; /* the request's own fault */
	if (is != KVW_GRADE_NONE || leg->trial)
		kvw_fleet_judge(leg->loop->fleet, leg->worker, is, leg->trial,
			kvw_pd_leg_why(outcome), leg->loop->now_ns);
}

static size_t unsent(const struct kvw_leg *leg)
{
	return leg->head->end + leg->text.len - leg->sent;
}

/* The one place where a leg ends. */
static void end_leg(struct kvw_leg *leg, enum kvw_pd_leg outcome)
{
	struct kvw_exchange *x = leg->x;
	struct kvw_loop *loop = leg->loop;

	if (leg->link != NULL && outcome <= KVW_PD_LEG_NO_PARAMS && leg->answer.done &&
		leg->answer.framing != KVW_FRAME_CLOSE && leg->connected && unsent(leg) == 0)
		kvw_link_release(leg->link, loop->now_ns);
	else if (leg->link != NULL)
		kvw_link_close(leg->link);
	leg->link = NULL;
	kvw_timer_clear(&loop->timers, &x->pd->timer);
	if (!leg->booked)
		kvw_stall_left(&leg->worker->stall);
	x->pd->prefill_ns = loop->now_ns - leg->begun_ns;
	x->pd->prompt_tokens = leg->usage.prompt_known ? leg->usage.prompt_tokens : 0;
	x->pd->cached_tokens = leg->usage.cached_known ? leg->usage.cached_tokens : 0;
	report(leg, outcome);
	grade(leg, outcome);
	x->pd->leg = NULL;
	kvw_pd_leg_ended(x, outcome, leg->status);
	kvw_block_put(&loop->blocks, leg->head);
	leg->head = NULL;
	kvw_account_update(loop->shared->memory, &leg->memory, 0);
	kvw_chain_clear(&leg->in, &loop->blocks);
	leg->x = NULL;
	TAILQ_INSERT_TAIL(&loop->ended_legs, leg, entry);
}

static void free_leg(struct kvw_leg *leg)
{
	free(leg->body);
	free(leg);
}

void kvw_leg_reap(struct kvw_loop *loop)
{
	struct kvw_leg *leg;

	while ((leg = TAILQ_FIRST(&loop->ended_legs)) != NULL) {
		TAILQ_REMOVE(&loop->ended_legs, leg, entry);
		free_leg(leg);
	}
}

/* Ends a leg for its own reason (its answer, its connection, its worker or its time), and not
 * because its exchange waits no longer; goes on with the exchange. */
static void finish(struct kvw_leg *leg, enum kvw_pd_leg outcome)
{
	struct kvw_exchange *x = leg->x;
	kvw_leg_done_fn *done = leg->done;
	bool first = x->pd->leg_time == KVW_LEG_FIRST;

	end_leg(leg, outcome);
	if (first)
		kvw_wait_end(x, KVW_WAITED);
	else if (outcome == KVW_PD_LEG_OK || x->first_token_ns != 0 || kvw_exchange_answering(x))
		return; /* the decoder goes on */
	else
		kvw_attempt_excused(&x->attempt, KVW_EXCUSE_LACKS, kvw_pd_leg_why(outcome));
	done(x);
}

bool kvw_leg_look(struct kvw_exchange *x)
{
	if (x->pd == NULL || x->pd->leg == NULL || x->pd->leg->booked || kvw_pd_prefiller_works(x))
		return false;
	finish(x->pd->leg, KVW_PD_LEG_LOST);
	return true;
}

void kvw_leg_late(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;

	if (x->pd->timer.kind == KVW_TIMER_PREFILL) {
		finish(x->pd->leg, KVW_PD_LEG_TIMEOUT);
		return;
	}
	kvw_metrics_add(loop->metrics, KVW_COUNT_TIMEOUT_CONNECT, 1);
	if (kvw_link_connect_elsewhere(x->pd->leg->link))
		kvw_loop_timer(loop, &x->pd->timer, KVW_TIMER_CONNECT,
			x->config->timeout_connect_ms);
	else
		finish(x->pd->leg, KVW_PD_LEG_LOST);
}

/* --- the wait --- */

static void wait_ended(struct kvw_exchange *x, enum kvw_waited how)
{
	/* The passed time of the whole request, or of its key, says nothing of the prefiller. */
	bool late = how == KVW_WAITED_EXPIRED && x->end != KVW_END_TIMEOUT;

	if (x->pd->leg != NULL)
		end_leg(x->pd->leg, late ? KVW_PD_LEG_TIMEOUT : KVW_PD_LEG_CANCELLED);
}

static void wait_expired(struct kvw_exchange *x)
{
	(void)x; /* the exchange goes on with the outcome that wait_ended has noted */
}

static const struct kvw_wait_kind prefill = {
	.name = "prefill",
	.text = "its prompt to be prefilled by another worker",
	.timer = KVW_TIMER_PREFILL,
	.ended = wait_ended,
	.expired = wait_expired,
};

/* --- the answer --- */

/* Appends payload. A longer answer than any with parameters is cut: its parameters are not used. */
static void keep_payload(void *arg, const char *data, size_t len)
{
	struct kvw_leg *leg = arg;
	char *more;

	kvw_usage_feed(&leg->usage, data, len);
	leg->cut = leg->cut || leg->len + len > ANSWER_MOST;
	if (!leg->cut && leg->len + len > leg->room) {
		size_t room = 2 * (leg->len + len) + 4096;

		more = realloc(leg->body, room);
		leg->cut = more == NULL;
		if (more != NULL) {
			leg->body = more;
			leg->room = room;
			kvw_account_update(leg->loop->shared->memory, &leg->memory, room);
		}
	}
	if (leg->cut)
		return;
	memcpy(leg->body + leg->len, data, len);
	leg->len += len;
}

/* Learns from the answer whether the server takes the number of its rank. */
static void note_rank(struct kvw_leg *leg)
{
	int64_t number = leg->x->pd->rank_number;

	if (number == KVW_RANK_NONE)
		return;
	if (leg->status == 200) {
		kvw_rank_accepted(leg->worker, number);
	} else if (leg->status == 400 && leg->body != NULL &&
		   kvw_rank_denies(leg->body, leg->len, number)) {
		kvw_metrics_add(leg->loop->metrics, KVW_COUNT_RANK_REFUSALS, 1);
		kvw_rank_refused(leg->worker, number, leg->loop->now_ns);
	}
}

static void take_whole_answer(struct kvw_leg *leg)
{
	kvw_usage_finish(&leg->usage);
	note_rank(leg);
	if (leg->status == 200)
		kvw_stall_heard(&leg->worker->stall, leg->loop->now_ns);
	if (leg->status != 200) {
		finish(leg, kvw_busy_says(leg->body == NULL ? "" : leg->body, leg->len)
				    ? KVW_PD_LEG_FULL
				    : KVW_PD_LEG_ERROR);
		return;
	}
	if (leg->body == NULL || leg->cut ||
		!kvw_pd_take_answer(leg->x, (struct kvw_slice){leg->body, leg->len})) {
		finish(leg, KVW_PD_LEG_NO_PARAMS);
		return;
	}
	finish(leg, KVW_PD_LEG_OK);
}

/* The head is whole in data[0..len). False: the leg has ended. */
static bool take_head(struct kvw_leg *leg, const char *data, size_t len)
{
	struct kvw_head *head = &leg->loop->response_head;
	struct kvw_head_error error;
	int64_t pause_ns = 0;

	head->field_limit = (size_t)leg->x->config->limits_headers;
	if (kvw_head_parse_response(head, data, len, false, &error) != KVW_OK ||
		head->status == 101) {
		finish(leg, KVW_PD_LEG_LOST);
		return false;
	}
	if (head->status < 200)
		return true;
	leg->status = head->status;
	if (kvw_busy_by_head(head, &pause_ns)) {
		kvw_load_refused(&leg->worker->load, 0, pause_ns, leg->loop->now_ns);
		finish(leg, KVW_PD_LEG_FULL);
		return false;
	}
	if (!head->keep_alive)
		leg->connected = false; /* it is not kept */
	kvw_body_begin(&leg->answer, head->framing, head->content_length, 0);
	return true;
}

/* Bytes of heads, up to the final one's end. Returns how many of data were used; SIZE_MAX: the leg
 * has ended. */
static size_t feed_head(struct kvw_leg *leg, const char *data, size_t len)
{
	size_t used = 0;

	while (leg->status == 0 && used < len) {
		struct kvw_block *block = leg->in.last;
		size_t before, end, more = len - used;

		if (block == NULL) {
			block = kvw_block_get(&leg->loop->blocks, KVW_BLOCK_LARGE);
			if (block == NULL) {
				finish(leg, KVW_PD_LEG_LOST);
				return SIZE_MAX;
			}
			kvw_chain_take(&leg->in, block);
		}
		before = block->end;
		more = more < kvw_block_room(block) ? more : kvw_block_room(block);
		memcpy(block->data + before, data + used, more);
		end = kvw_head_find_end(block->data, before + more, &leg->scanned);
		if (end == 0 && more < len - used) {
			finish(leg, KVW_PD_LEG_LOST); /* too large */
			return SIZE_MAX;
		}
		used += end == 0 ? more : end - before;
		block->end = end == 0 ? (uint32_t)(before + more) : 0;
		if (end == 0)
			return used;
		leg->scanned = 0;
		if (!take_head(leg, block->data, end))
			return SIZE_MAX;
	}
	return used;
}

static void feed_answer(struct kvw_leg *leg, const char *data, size_t len)
{
	size_t used = feed_head(leg, data, len), body_used;

	leg->heard = true;
	if (used == SIZE_MAX || leg->status == 0)
		return;
	if (kvw_body_feed(&leg->answer, data + used, len - used, keep_payload, leg, &body_used) !=
		KVW_OK)
		finish(leg, KVW_PD_LEG_LOST);
	else if (leg->answer.done) {
		if (used + body_used < len)
			leg->connected = false; /* what follows is no answer: it is not kept */
		take_whole_answer(leg);
	}
}

/* --- its connection --- */

static void on_leg_link(struct kvw_link *link, void *user);

/* Takes a connection to the prefiller. False: there is none; the leg is as it was. */
static bool connect_leg(struct kvw_leg *leg, bool fresh)
{
	struct kvw_loop *loop = leg->loop;

	leg->sent = 0;
	leg->heard = false;
	if (kvw_link_take(&loop->links, leg->worker, fresh, on_leg_link, leg, &leg->link) !=
		KVW_OK) {
		leg->link = NULL;
		return false;
	}
	leg->fresh = !leg->link->reused;
	leg->connected = leg->link->connected;
	if (!leg->connected)
		kvw_loop_timer(loop, &leg->x->pd->timer, KVW_TIMER_CONNECT,
			leg->x->config->timeout_connect_ms);
	kvw_metrics_add(loop->metrics,
		leg->link->reused ? KVW_COUNT_UPSTREAM_REUSES : KVW_COUNT_UPSTREAM_CONNECTS, 1);
	return true;
}

static void connection_lost(struct kvw_leg *leg)
{
	if (!leg->fresh && !leg->heard) {
		kvw_link_close(leg->link);
		leg->link = NULL;
		if (connect_leg(leg, true)) {
			kvw_metrics_add(leg->loop->metrics, KVW_COUNT_STALE_RETRIES, 1);
			return;
		}
	}
	finish(leg, KVW_PD_LEG_LOST);
}

static void send_rest(struct kvw_leg *leg)
{
	struct kvw_io *io = &leg->link->io;
	size_t head = leg->head->end;

	for (int i = 0; i < IO_AT_ONCE && io->writable && unsent(leg) > 0; i++) {
		bool begun = leg->sent >= head;
		struct iovec iov[1 + KVW_PIECES] = {
			{leg->head->data + leg->sent, begun ? 0 : head - leg->sent}};
		int count = kvw_pieces_from(
			&leg->text, begun ? leg->sent - head : 0, iov + !begun);
		ssize_t n = kvw_io_writev(io, iov, count + !begun);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) { /* reading will say why */
			io->writable = false;
			io->readable = true;
			return;
		}
		leg->sent += (size_t)n;
	}
	if (io->writable && unsent(leg) > 0)
		kvw_io_again(io);
}

static void receive(struct kvw_leg *leg)
{
	struct kvw_link *link = leg->link;
	struct kvw_io *io = &link->io;

	for (int i = 0; i < IO_AT_ONCE && io->readable; i++) {
		struct iovec iov = {leg->loop->scratch, KVW_LOOP_SCRATCH};
		ssize_t n = kvw_io_readv(io, &iov, 1, KVW_LOOP_SCRATCH);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n > 0)
			feed_answer(leg, leg->loop->scratch, (size_t)n);
		else if (n == 0 && leg->status != 0 && kvw_body_close(&leg->answer))
			take_whole_answer(leg);
		else
			connection_lost(leg);
		if (leg->link != link)
			return; /* it has ended, or begun again */
	}
	if (io->readable)
		kvw_io_again(io);
}

/* The leg is connected. Where the decoder waits at the same time, no wait of the exchange limits
 * the leg's time; once the decoder has given a token the leg's time does not matter. */
static void limit_time(struct kvw_leg *leg)
{
	struct kvw_exchange *x = leg->x;

	if (x->pd->leg_time == KVW_LEG_BESIDE && x->first_token_ns == 0)
		kvw_timer_set(
			&leg->loop->timers, &x->pd->timer, KVW_TIMER_PREFILL, leg->until_ns);
	else
		kvw_timer_clear(&leg->loop->timers, &x->pd->timer);
}

static void on_leg_link(struct kvw_link *link, void *user)
{
	struct kvw_leg *leg = user;
	int cause = 0;
	enum kvw_err err = KVW_OK;

	leg->loop->now_ns = kvw_clock_ns();
	if (!link->connected) {
		err = kvw_link_connect_result(link, &cause);
		leg->connected = err == KVW_OK;
	}
	if (err == KVW_EAGAIN)
		return;
	if (err != KVW_OK) {
		connection_lost(leg);
		return;
	}
	limit_time(leg);
	if (unsent(leg) > 0 && link->io.writable)
		send_rest(leg);
	if (link->io.readable)
		receive(leg);
}

/* --- its beginning --- */

/* Writes head and body for the prefiller. KVW_EINVAL: the request must stay whole. KVW_ENOMEM. */
static enum kvw_err make_text(struct kvw_leg *leg)
{
	struct kvw_exchange *x = leg->x;
	struct kvw_worker_body body = {.framing = KVW_FRAME_LENGTH, .prefills = true};
	struct kvw_writer w = KVW_WRITER(leg->ask, sizeof(leg->ask));
	struct kvw_splice splice;

	if (x->pd->kind->ask != NULL)
		x->pd->kind->ask(x, &w);
	if (!kvw_pd_read_body(x))
		return KVW_ENOMEM;
	if (kvw_leg_prefill(x->pd->plain, x->path.api, (struct kvw_slice){w.data, w.len},
		    &splice) != KVW_OK)
		return KVW_EINVAL;
	kvw_splice_pieces(&splice, x->pd->plain, &leg->text);
	body.content_length = leg->text.len;
	leg->head = kvw_worker_head(x, leg->worker, &body);
	return leg->head != NULL ? KVW_OK : KVW_ENOMEM;
}

/* Frees a leg of which nothing was sent. */
static enum kvw_err give_up(struct kvw_leg *leg, enum kvw_err err)
{
	kvw_block_put(&leg->loop->blocks, leg->head);
	free_leg(leg);
	return err;
}

static struct kvw_leg *create_leg(struct kvw_exchange *x)
{
	struct kvw_leg *leg = calloc(1, sizeof(*leg));

	if (leg == NULL)
		return NULL;
	leg->x = x;
	leg->loop = x->loop;
	leg->worker = x->pd->prefiller;
	leg->begun_ns = x->loop->now_ns;
	kvw_usage_init(&leg->usage);
	return leg;
}

/* Ends the leg under way, because the decoder's attempt ends. A first token of the decoder shows
 * that the leg's KV was there, although the leg's answer only comes later. */
static void end_with_attempt(struct kvw_exchange *x)
{
	end_leg(x->pd->leg, x->first_token_ns != 0 ? KVW_PD_LEG_OK : KVW_PD_LEG_CANCELLED);
}

/* Books the leg's work at the prefiller. */
static void take_lease(struct kvw_leg *leg)
{
	const struct kvw_decision *decision = &leg->x->pd->decision;

	kvw_lease_take(
		&leg->lease, &leg->worker->load, decision->prefill_ns, leg->loop->now_ns);
	kvw_lease_hold(&leg->lease, decision->prompt_tokens);
	leg->x->pd->leg = leg;
	leg->x->pd->end_leg = end_with_attempt;
}

enum kvw_err kvw_leg_begin(struct kvw_exchange *x, kvw_leg_done_fn *done)
{
	struct kvw_leg *leg = create_leg(x);
	struct kvw_loop *loop = x->loop;
	enum kvw_err err;

	if (leg == NULL)
		return KVW_ENOMEM;
	leg->done = done;
	leg->until_ns = kvw_pd_leg_until_ns(x);
	err = leg->until_ns > loop->now_ns ? make_text(leg) : KVW_EINVAL;
	if (err != KVW_EINVAL)
		kvw_trace_leg(x->trace, loop->now_ns, leg->worker->id, leg->worker->use,
			kvw_decision_cached(&x->pd->decision));
	if (err == KVW_OK && !connect_leg(leg, false))
		err = KVW_EIO;
	if (err != KVW_OK)
		return give_up(leg, err);
	leg->trial = kvw_fleet_picked(loop->fleet, leg->worker, loop->now_ns);
	take_lease(leg);
	kvw_stall_wait(&leg->worker->stall, x->pd->decision.prefill_ns, loop->now_ns);
	if (x->pd->leg_time == KVW_LEG_FIRST)
		kvw_wait_begin(x, &prefill, leg->until_ns);
	if (leg->connected)
		kvw_io_again(&leg->link->io);
	return KVW_OK;
}

enum kvw_err kvw_leg_book(struct kvw_exchange *x)
{
	struct kvw_leg *leg = create_leg(x);

	if (leg == NULL)
		return KVW_ENOMEM;
	leg->booked = true;
	kvw_trace_leg(x->trace, x->loop->now_ns, leg->worker->id, leg->worker->use,
		kvw_decision_cached(&x->pd->decision));
	take_lease(leg);
	return KVW_OK;
}

void kvw_leg_first_token(struct kvw_exchange *x)
{
	if (x->pd->leg != NULL && x->pd->leg->booked)
		end_leg(x->pd->leg, KVW_PD_LEG_OK);
}

void kvw_leg_unbegun(struct kvw_exchange *x)
{
	struct kvw_leg none = {.x = x, .loop = x->loop}; /* it has no lease */

	kvw_usage_init(&none.usage);
	report(&none, KVW_PD_LEG_LOST);
	kvw_pd_drop_sent(x);
}
