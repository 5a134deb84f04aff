/*
 * prepare.c - asks for the exact tokens of a prompt, before the strategy picks a worker by them.
 *
 * The step exists only with a strategy that wants exact tokens.
 *
 *	ROUTING -> kvw_prepare_tokens -- known, or unavailable -------------> pick
 *	   ^               |
 *	   |               +-- asked: waits
 *	   +--- answer in the loop's box, or timer
 *	        (client gone: kvw_exchange_end ends the wait)
 *
 * kvway does not ask where the answer could not change the choice: with one usable worker, or
 * without a worker that reports its blocks. The prompt's tokens are kept until the answer's first
 * token, so that a retry on another worker neither asks nor waits again. A waiting exchange holds
 * its scan, since the text's chain routes the request if no tokens arrive.
 */
#include "proxy/prepare.h"

#include <string.h>

#include "proxy/groups.h"
#include "proxy/request.h"

static void note_tokens(struct kvw_exchange *x, enum kvw_inexact inexact)
{
	x->exact.seen = true;
	x->exact.inexact = inexact;
	if (inexact != KVW_INEXACT_NOT_WANTED)
		kvw_metrics_inexact(x->loop->metrics, inexact);
}

/* --- asking --- */

static struct kvw_slice authorization(struct kvw_exchange *x)
{
	/* a key for kvway is not passed on to workers */
	return x->loop->auth != NULL ? (struct kvw_slice){NULL, 0}
				     : kvw_request_field(x, KVW_SLICE("authorization"));
}

static void take_tokens(struct kvw_exchange *x, const struct kvw_token_result *result)
{
	x->exact.list = result->list;
	note_tokens(x, result->inexact);
}

/* Leaves the wait for tokens. If the answer has come, it has freed the job already. */
static void leave_tokens(struct kvw_exchange *x, enum kvw_waited how)
{
	if (x->exact.job != NULL)
		kvw_token_job_forget(x->exact.job);
	x->exact.job = NULL;
	if (how != KVW_WAITED_LEFT)
		kvw_metrics_token_wait(x->loop->metrics, x->loop->now_ns - x->wait.since_ns);
}

static void go_by_text(struct kvw_exchange *x)
{
	note_tokens(x, KVW_INEXACT_TIMEOUT);
}

static const struct kvw_wait_kind prompt_tokens = {
	.name = "tokens",
	.text = "the prompt's tokens",
	.timer = KVW_TIMER_TOKENS,
	.ended = leave_tokens,
	.expired = go_by_text,
};

/* Asks one of the loop's candidates for the prompt's tokens; `done` will be called with the answer.
 * True: no question was asked, or the answer is known already, so that the request goes on. */
static bool ask_for_tokens(struct kvw_exchange *x, bool convert, kvw_token_fn *done)
{
	struct kvw_loop *loop = x->loop;
	const struct kvw_fleet_table *candidates = &loop->candidates;
	size_t len = (size_t)kvw_upload_payload(&x->upload);
	struct kvw_token_job *job = kvw_token_job_create(loop->sources->tokens, len);
	struct kvw_token_result result;
	struct kvw_token_ask ask = {
		.api = x->path.api,
		.convert = convert,
		.box = loop->token_box,
		.done = done,
		.user = x,
	};

	if (job == NULL) {
		note_tokens(
			x, len > KVW_TOKENS_BODY_MAX ? KVW_INEXACT_NO_TOKENS : KVW_INEXACT_BUSY);
		return true;
	}
	if (!kvw_upload_copy(&x->upload, kvw_token_job_body(job), len)) {
		kvw_token_job_destroy(job);
		note_tokens(x, KVW_INEXACT_NO_TOKENS);
		return true;
	}
	ask.worker_count = kvw_tokens_choose(loop->sources->tokens, candidates->items,
		candidates->count, loop->now_ns, ask.workers);
	ask.authorization = authorization(x);
	if (kvw_token_job_submit(job, &ask, &result)) {
		take_tokens(x, &result);
		return true;
	}
	x->exact.job = job;
	kvw_wait_begin(
		x, &prompt_tokens, loop->now_ns + loop->sources->tokens_timeout_ms * KVW_NS_PER_MS);
	return false;
}

bool kvw_prepare_tokens(struct kvw_exchange *x, kvw_token_fn *done)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_scan_exact exact = {.form = KVW_FORM_NONE};
	struct kvw_tokens_choice choice;
	struct kvw_model *model;
	bool known;

	if (x->exact.seen)
		return true;
	if (!x->path.prompt || !x->route.teaches) {
		/* The path has no prompt to tokenize, or the prompt was streamed without being
		 * read. */
		note_tokens(x, x->path.prompt && !x->whole ? KVW_INEXACT_NO_TOKENS
						    : KVW_INEXACT_NOT_WANTED);
		return true;
	}
	kvw_groups_read(x, &loop->candidates, &known, &model);
	if (!known)
		return true; /* the request will be parked until the model is known */
	choice = kvw_tokens_look(
		loop->sources->exact, loop->candidates.items, loop->candidates.count);
	if (x->scan != NULL && x->scanned)
		kvw_scan_exact(x->scan, &exact);
	x->exact.in_body = exact.form == KVW_FORM_IDS;
	if (exact.form == KVW_FORM_NONE)
		note_tokens(x, KVW_INEXACT_NO_TOKENS);
	else if (!choice.view && !kvw_sources_unmapped(loop->sources))
		note_tokens(x, KVW_INEXACT_NO_VIEW);
	else if (x->exact.in_body)
		note_tokens(x, KVW_INEXACT_NOT);
	else if (choice.usable < 2)
		note_tokens(x, KVW_INEXACT_NO_CHOICE);
	else
		return ask_for_tokens(x, exact.form == KVW_FORM_CONVERT, done);
	return true;
}

void kvw_prepare_answered(struct kvw_exchange *x, const struct kvw_token_result *result)
{
	x->exact.job = NULL;
	take_tokens(x, result);
	kvw_wait_end(x, KVW_WAITED);
}

void kvw_prepare_box(struct kvw_io *io)
{
	struct kvw_loop *loop =
		(struct kvw_loop *)((char *)io - offsetof(struct kvw_loop, token_io));

	loop->now_ns = kvw_clock_ns();
	kvw_tokens_box_read(loop->token_box);
}
