/*
 * explain_tokens.c - the exact tokens of a prompt that is explained: by the rules of the data plane.
 */
#include <string.h>

#include "admin/explanation.h"
#include "feeds/tokens/tokens.h"
#include "openai/splice.h"

/* What the data plane would do about the prompt's tokens. */
static enum kvw_inexact judge(const struct kvw_explanation *e, const struct kvw_scan_exact *exact)
{
	const struct kvw_explain_source *source = e->source;
	struct kvw_exact *view = source->strategy->ops->exact(source->strategy);
	struct kvw_tokens_choice choice = kvw_tokens_look(view, e->set.items, e->set.count);

	if (!e->path.prompt || (e->whole && !e->route.teaches))
		return KVW_INEXACT_NOT_WANTED;
	if (!e->whole || exact->form == KVW_FORM_NONE)
		return KVW_INEXACT_NO_TOKENS;
	if (!choice.view)
		return KVW_INEXACT_NO_VIEW;
	if (exact->form != KVW_FORM_IDS && choice.usable < 2)
		return KVW_INEXACT_NO_CHOICE;
	return KVW_INEXACT_NOT;
}

static void exact_of(const struct kvw_explanation *e, struct kvw_scan_exact *exact)
{
	*exact = (struct kvw_scan_exact){.form = KVW_FORM_NONE};
	if (e->whole)
		kvw_scan_exact(e->scan, exact);
}

static bool ask(struct kvw_explanation *e, struct kvw_explain_query *query, bool convert,
	int64_t now_ns, const struct kvw_token_ask *like, struct kvw_token_job **out)
{
	struct kvw_tokens *tokens = e->source->tokens;
	struct kvw_slice model = kvw_slice_of(e->alias == NULL ? NULL : e->alias->target);
	struct kvw_splice splice; /* workers do not know aliases */
	bool planned = kvw_splice_plan(e->scan, (struct kvw_slice){NULL, 0}, model, &splice) == KVW_OK;
	struct kvw_token_job *job = kvw_token_job_create(
		tokens, (size_t)((int64_t)query->body.len + (planned ? splice.growth : 0)));
	struct kvw_token_ask ask = *like;

	query->tokens_seen = true;
	query->tokens_from = "the cache of tokens";
	query->tokens.inexact = KVW_INEXACT_BUSY;
	if (job == NULL)
		return false;
	if (planned)
		(void)kvw_splice_write(&splice, query->body, kvw_token_job_body(job));
	else
		memcpy(kvw_token_job_body(job), query->body.data, query->body.len);
	ask.api = e->path.api;
	ask.convert = convert;
	ask.worker_count =
		kvw_tokens_choose(tokens, e->set.items, e->set.count, now_ns, ask.workers);
	if (kvw_token_job_submit(job, &ask, &query->tokens))
		return false;
	query->tokens_from = "a worker's /tokenize";
	*out = job;
	return true;
}

bool kvw_explain_ask_tokens(const struct kvw_explain_source *source, struct kvw_explain_query *query,
	int64_t now_ns, const struct kvw_token_ask *like, struct kvw_token_job **job)
{
	struct kvw_explanation e = {.source = source, .query = query};
	struct kvw_scan_exact exact;
	bool asked = false;

	if (source->tokens == NULL)
		return false;
	if (kvw_explanation_begin(&e) == KVW_OK) {
		exact_of(&e, &exact);
		if (judge(&e, &exact) == KVW_INEXACT_NOT && exact.form != KVW_FORM_IDS)
			asked = ask(&e, query, exact.form == KVW_FORM_CONVERT, now_ns, like, job);
	}
	kvw_explanation_finish(&e);
	return asked;
}

enum kvw_err kvw_explanation_tokens(struct kvw_explanation *e)
{
	const struct kvw_explain_query *query = e->query;
	struct kvw_kvprompt prompt = {0};
	struct kvw_scan_exact exact;
	enum kvw_err err;

	e->route.inexact = KVW_INEXACT_NOT_WANTED;
	if (e->source->tokens == NULL)
		return KVW_OK;
	exact_of(e, &exact);
	e->route.inexact = query->tokens_seen ? query->tokens.inexact : judge(e, &exact);
	if (e->route.inexact != KVW_INEXACT_NOT)
		return KVW_OK;
	prompt.cache_salt = exact.cache_salt;
	prompt.tokens = exact.ids;
	prompt.count = exact.id_count;
	if (query->tokens.list != NULL) {
		prompt.tokens = query->tokens.list->ids;
		prompt.count = query->tokens.list->count;
	}
	if (e->model != NULL && atomic_load_explicit(&e->model->adapter, memory_order_relaxed))
		prompt.lora = kvw_slice_of(e->model->name);
	err = kvw_kvchains_fill(&e->chains, e->source->spaces, &prompt);
	if (err != KVW_OK)
		return err;
	e->route.exact_tokens = (uint32_t)prompt.count;
	e->route.exact = e->chains.chains;
	e->route.exact_count = e->chains.count;
	return KVW_OK;
}

const char *kvw_explanation_tokens_from(const struct kvw_explanation *e)
{
	static const char *const why[KVW_INEXACT_COUNT] = {
		[KVW_INEXACT_NOT] = "the body",
		[KVW_INEXACT_NOT_WANTED] = "nowhere: not a prompt to be continued",
		[KVW_INEXACT_NO_TOKENS] = "nowhere: no worker can tokenize the prompt",
		[KVW_INEXACT_NO_VIEW] = "nowhere: no worker reports what its cache holds",
		[KVW_INEXACT_TIMEOUT] = "nowhere: /tokenize did not answer in time",
		[KVW_INEXACT_FAILED] = "nowhere: /tokenize failed",
		[KVW_INEXACT_BUSY] = "nowhere: too many prompts are being asked about",
		[KVW_INEXACT_NO_CHOICE] = "nowhere: one worker alone can serve it",
	};

	if (e->route.inexact == KVW_INEXACT_NOT && e->query->tokens_seen)
		return e->query->tokens_from;
	return why[e->route.inexact];
}
