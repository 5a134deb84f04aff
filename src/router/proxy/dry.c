/*
 * dry.c - a request that is only explained: it passes the steps of any request, and reaches no
 * worker.
 */
#include "proxy/dry.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/explanation.h"
#include "auth/auth.h"
#include "openai/scan.h"
#include "proxy/groups.h"
#include "proxy/prepare.h"
#include "proxy/request.h"
#include "proxy/step.h"

/* limit of walks through the steps: when a group has no worker the request begins again with the
 * next group */
#define PASSES 4

struct kvw_dry_run {
	struct kvw_explanation e;
	struct kvw_explain_tokens tokens;
	bool waited;                    /* the request waited, so its walk begins again */
	/* given to functions that write the loop's last turn; not read here */
	_Atomic int64_t turn_ns;
	struct kvw_metrics *counts;     /* given to functions that count; not read here */
	/* a client's key made up for the question, of the tenant that it names */
	struct kvw_client_key stranger;
	char *tenant;                   /* that key's tenant; owned */
	struct kvw_loop loop;
	bool loop_made;
	struct kvw_client client;
	struct kvw_exchange *x; /* NULL: no exchange was made */
};

__attribute__((format(printf, 4, 5))) static void refuse_question(
	struct kvw_explanation *e, int status, const char *param, const char *format, ...)
{
	va_list arguments;

	e->status = status;
	e->param = param;
	va_start(arguments, format);
	(void)vsnprintf(e->message, sizeof(e->message), format, arguments);
	va_end(arguments);
}

/* --- the question as a request --- */

static const char chat_path[] = "/v1/chat/completions";
static const char completions_path[] = "/v1/completions";

static bool holds_prompt(struct kvw_scan *scan, enum kvw_api api, struct kvw_slice body)
{
	struct kvw_route_request route;

	kvw_scan_reset(scan, api);
	kvw_scan_feed(scan, body.data, body.len);
	return kvw_scan_finish(scan, &route) == KVW_OK && route.content_known;
}

/* Returns the path that fits the body: the one for `messages`, or for `prompt`. data NULL: out of
 * memory. */
static struct kvw_slice guess_target(const struct kvw_config *config, struct kvw_slice body)
{
	const struct kvw_scan_options options = {0};
	struct kvw_slice found = KVW_SLICE(chat_path);
	struct kvw_scan *scan;

	if (body.len > config->routing_scan_limit)
		return found;
	if (kvw_scan_create(&options, &scan) != KVW_OK)
		return (struct kvw_slice){NULL, 0};
	if (!holds_prompt(scan, KVW_API_CHAT, body) &&
		holds_prompt(scan, KVW_API_COMPLETIONS, body))
		found = KVW_SLICE(completions_path);
	kvw_scan_destroy(scan);
	return found;
}

/* Returns whether the explained request gets no copy of this field of POST /explain: the field
 * concerns the connection, or kvway writes the request's own. */
static bool is_own_field(const struct kvw_dry_run *run, const struct kvw_field *field)
{
	static const char *const names[] = {"host", "connection", "content-length",
		"transfer-encoding", "content-encoding", "expect", "te", "trailer", "upgrade",
		"keep-alive", "accept", "x-kvway-tenant"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (kvw_slice_equal_nocase(field->name, kvw_slice_of(names[i])))
			return true;
	if (kvw_slice_equal_nocase(field->name, KVW_SLICE("content-type")))
		return field->value.len < 9 || strncasecmp(field->value.data, "multipart", 9) != 0;
	/* With keys of clients this field is a key of the admin address. */
	return run->loop.auth != NULL &&
	       kvw_slice_equal_nocase(field->name, KVW_SLICE("authorization"));
}

static void write_question_head(struct kvw_writer *w, const struct kvw_dry_run *run,
	const struct kvw_explain_query *query, struct kvw_slice target)
{
	bool typed = false;

	kvw_write_literal(w, "POST ");
	kvw_write(w, target);
	kvw_write_literal(w, " HTTP/1.1\r\nhost: kvway\r\n");
	for (size_t i = 0; i < query->head->field_count; i++) {
		const struct kvw_field *field = &query->head->fields[i];

		if (is_own_field(run, field))
			continue;
		typed = typed || kvw_slice_equal_nocase(field->name, KVW_SLICE("content-type"));
		kvw_write_field(w, field->name, field->value);
	}
	if (!typed)
		kvw_write_literal(w, "content-type: application/json\r\n");
	kvw_write_literal(w, "content-length: ");
	kvw_write_u64(w, query->body.len);
	kvw_write_literal(w, "\r\n\r\n");
}

/* Stores head and body as if they had been received. Returns the head's length; 0: out of
 * memory. */
static size_t receive_question(
	struct kvw_dry_run *run, const struct kvw_explain_query *query, struct kvw_slice target)
{
	size_t room = target.len + 256;
	struct kvw_block *block;
	struct kvw_writer w;

	for (size_t i = 0; i < query->head->field_count; i++)
		room += query->head->fields[i].name.len + query->head->fields[i].value.len + 4;
	block = kvw_block_get(&run->loop.blocks, room);
	if (block == NULL)
		return 0;
	w = KVW_WRITER(block->data, block->size);
	write_question_head(&w, run, query, target);
	block->end = (uint32_t)w.len;
	kvw_chain_take(&run->client.in, block);
	if (kvw_chain_append(&run->client.in, &run->loop.blocks, query->body.data,
		    query->body.len) != KVW_OK)
		return 0;
	return w.len;
}

/* Takes the key that the question names, or makes one of the tenant that it names. */
static bool take_key(struct kvw_dry_run *run, const struct kvw_explain_query *query)
{
	const struct kvw_field *tenant = kvw_head_find(query->head, KVW_SLICE("x-kvway-tenant"));

	run->e.keyring = query->keyring;
	run->e.key = query->key;
	if (query->key != NULL || tenant == NULL || tenant->value.len == 0 ||
		run->loop.auth == NULL)
		return true;
	run->tenant = strndup(tenant->value.data, tenant->value.len);
	run->stranger = (struct kvw_client_key){.tenant = run->tenant, .trusted = true};
	run->e.key = &run->stranger;
	return run->tenant != NULL;
}

/* The loop never turns, so none of its timers runs out. */
static void never_due(struct kvw_timer *timer, int64_t now_ns)
{
	(void)timer;
	(void)now_ns;
}

/* Head and body pass the same functions as those of any request. */
static enum kvw_err understand_question(struct kvw_dry_run *run, size_t head_len)
{
	struct kvw_explanation *e = &run->e;
	struct kvw_exchange *x = kvw_exchange_create(&run->client, never_due);

	if (x == NULL)
		return KVW_ENOMEM;
	run->x = x;
	x->dry = e;
	x->deadline.fn = never_due;
	x->upload.head_len = head_len;
	kvw_request_head(x);
	while (x->response_state == KVW_RESPONSE_NONE &&
		x->request_state == KVW_REQUEST_READ_BODY && kvw_upload_has_news(&x->upload))
		kvw_request_body(x);
	if (e->status == 0 && x->whole && x->scan == NULL)
		return KVW_ENOMEM;
	e->target = x->target;
	e->strategy = x->strategy->ops->name;
	if (e->status == 0 && x->path.prompt && x->whole && !x->scanned)
		refuse_question(e, 400, NULL,
			"the body is not what %.*s takes; its worker would refuse it",
			(int)(x->target.len < 128 ? x->target.len : 128), x->target.data);
	return KVW_OK;
}

/* Returns whether the target could not stand in a request line. */
static bool is_no_path(struct kvw_slice target)
{
	for (size_t i = 0; i < target.len; i++)
		if ((unsigned char)target.data[i] <= ' ' || target.data[i] == 0x7F)
			return true;
	return target.data[0] != '/';
}

static enum kvw_err take_question(struct kvw_dry_run *run, const struct kvw_explain_query *query)
{
	struct kvw_slice target = query->target;
	size_t head_len;

	if (target.len == 0)
		target = guess_target(run->loop.config, query->body);
	if (target.len == 0 || !take_key(run, query))
		return KVW_ENOMEM;
	if (is_no_path(target)) {
		refuse_question(&run->e, 400, "path",
			"the path must begin with a slash and have no blanks, for example %s",
			chat_path);
		return KVW_OK;
	}
	if (kvw_path_classify(target).kind == KVW_PATH_LOCAL) {
		refuse_question(&run->e, 400, "path",
			"kvway answers this path itself, no worker is chosen");
		return KVW_OK;
	}
	run->e.by_chance = kvw_head_field(query->head, KVW_FIELD_X_REQUEST_ID) == NULL;
	head_len = receive_question(run, query, target);
	return head_len == 0 ? KVW_ENOMEM : understand_question(run, head_len);
}

/* --- its way --- */

static void on_dry_tokens(void *user, const struct kvw_token_result *result)
{
	struct kvw_exchange *x = user;
	struct kvw_dry_run *run =
		(struct kvw_dry_run *)((char *)x->client - offsetof(struct kvw_dry_run, client));

	x->loop->now_ns = kvw_clock_ns();
	kvw_prepare_answered(x, result);
	run->tokens.done(run->tokens.user);
}

/* Walks the steps as far as the request goes now. */
static void walk_steps(struct kvw_dry_run *run)
{
	struct kvw_explanation *e = &run->e;
	struct kvw_exchange *x = run->x;
	struct kvw_way way = {.on_tokens = on_dry_tokens};
	bool passed = false;

	for (int i = 0; i < PASSES && !passed && e->status == 0 && x->wait.kind == NULL; i++) {
		e->step_count = e->limit_count = 0;
		passed = kvw_steps_walk(x, &way);
	}
	e->set = way.set;
	e->costs = x->loop->gates.costs;
	if (!passed && e->status == 0 && x->wait.kind == NULL)
		refuse_question(e, 503, NULL, "no group of workers can have it");
}

/* --- the result --- */

static const char *tokens_from(const struct kvw_exchange *x)
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

	if (x->route.inexact == KVW_INEXACT_NOT && !x->exact.in_body)
		return x->wait.longest != NULL ? "a worker's /tokenize" : "the cache of tokens";
	return why[x->route.inexact];
}

/* Notes a worker that a step before the strategy has chosen, whatever the cost there. */
static void note_choice(struct kvw_explanation *e, const struct kvw_decision *decision)
{
	for (size_t i = 0; i < e->set.count; i++)
		if (e->costs[i].verdict != KVW_VERDICT_UNUSABLE)
			e->costs[i].verdict = KVW_VERDICT_NOT_ITS_TURN;
	e->costs[decision->pos].verdict = KVW_VERDICT_CHOSEN;
	e->decision = (struct kvw_decision){.pos = decision->pos,
		.reason = decision->reason,
		.prompt_tokens = e->decision.prompt_tokens,
		.worker_id = decision->worker_id};
}

static void describe_run(struct kvw_dry_run *run)
{
	struct kvw_explanation *e = &run->e;
	const struct kvw_exchange *x = run->x;

	e->model = x->route.model;
	e->body_read = x->whole;
	e->content_known = x->route.content_known;
	e->session_known = x->route.session.len > 0;
	for (size_t i = 0; i < e->limit_count; i++)
		if (strcmp(e->limits[i].of, "model") == 0)
			e->limits[i].served_as = x->route.model;
	e->group = x->division.group;
	e->group_by = kvw_group_by_name(x->division.by);
	if (x->loop->sources != NULL) {
		e->tokens = kvw_inexact_name(x->route.inexact);
		e->tokens_from = tokens_from(x);
		e->exact_tokens = x->route.exact_tokens;
	}
	if (x->attempt.decision.reason == KVW_REASON_OWNER ||
		x->attempt.decision.reason == KVW_REASON_PINNED ||
		x->attempt.decision.reason == KVW_REASON_SPLIT ||
		x->attempt.decision.reason == KVW_REASON_PREFILLER)
		note_choice(e, &x->attempt.decision);
}

/* --- a run --- */

static void end_run(struct kvw_dry_run *run)
{
	if (run->x != NULL)
		kvw_exchange_end(run->x, KVW_END_CLIENT_GONE);
	if (run->loop_made) {
		kvw_chain_clear(&run->client.in, &run->loop.blocks);
		run->loop.token_box = NULL;
		kvw_loop_finish(&run->loop);
	}
	kvw_metrics_destroy(run->counts);
	free(run->tenant);
	free(run);
}

static enum kvw_err make_loop(struct kvw_dry_run *run, const struct kvw_dry_deps *deps)
{
	struct kvw_proxy_deps own = deps->proxy;
	enum kvw_err err = kvw_metrics_create(1, own.fleet, &run->counts);

	if (err != KVW_OK)
		return err;
	own.metrics = run->counts;
	own.loop_turn_ns = &run->turn_ns;
	own.access_log = NULL;
	if (run->tokens.box == NULL)
		own.sources = NULL;
	err = kvw_loop_init(&run->loop, deps->shared, 0, &own, NULL, 0);
	if (err != KVW_OK)
		return err;
	run->loop_made = true;
	kvw_tokens_box_close(run->loop.token_box);
	/* answers to the question's lookups arrive there */
	run->loop.token_box = run->tokens.box;
	run->loop.gates.costs = calloc(KVW_MAX_WORKERS, sizeof(run->loop.gates.costs[0]));
	run->client = (struct kvw_client){.loop = &run->loop, .state = KVW_CLIENT_OPEN};
	run->client.io.fd = -1;
	run->client.timer.fn = never_due;
	return run->loop.gates.costs != NULL ? KVW_OK : KVW_ENOMEM;
}

static enum kvw_err begin_run(void *arg, const struct kvw_explain_query *query,
	const struct kvw_explain_tokens *tokens, int64_t now_ns, struct kvw_dry_run **out,
	bool *waits)
{
	const struct kvw_dry_deps *deps = arg;
	struct kvw_dry_run *run = calloc(1, sizeof(*run));
	enum kvw_err err;

	if (run == NULL)
		return KVW_ENOMEM;
	run->tokens = *tokens;
	err = make_loop(run, deps);
	if (err == KVW_OK) {
		run->loop.now_ns = now_ns;
		run->e = (struct kvw_explanation){.now_ns = now_ns,
			.cold = deps->cold,
			.config = run->loop.config,
			.fleet = deps->proxy.fleet,
			.metrics = deps->proxy.metrics,
			.feed = deps->feed};
		err = take_question(run, query);
	}
	if (err != KVW_OK) { /* this covers descriptors that a loop needs */
		end_run(run);
		return KVW_ENOMEM;
	}
	if (run->e.status == 0)
		walk_steps(run);
	*waits = run->waited = run->x != NULL && run->x->wait.kind != NULL;
	*out = run;
	return KVW_OK;
}

static void expire_wait(struct kvw_dry_run *run, int64_t now_ns)
{
	run->loop.now_ns = now_ns;
	if (run->x->wait.kind != NULL)
		kvw_wait_expire(run->x);
}

static enum kvw_err answer_question(
	struct kvw_dry_run *run, int64_t now_ns, struct kvw_local_answer *out)
{
	struct kvw_explanation *e = &run->e;

	run->loop.now_ns = e->now_ns = now_ns;
	if (run->waited)
		walk_steps(run);
	if (e->status == 0)
		describe_run(run);
	return kvw_explanation_answer(e, out);
}

struct kvw_explainer kvw_dry_explainer(struct kvw_dry_deps *deps)
{
	return (struct kvw_explainer){.arg = deps,
		.begin = begin_run,
		.expire = expire_wait,
		.answer = answer_question,
		.end = end_run};
}
