/*
 * workload_multi_round_chat.c - sessions that go on, in turns, at a fixed rate.
 *
 * As many sessions as fit the volume, each with a system prompt and a history of its own. Question
 * k is due at k / qps and belongs to session k modulo their number. A session whose last answer is
 * still under way keeps its turn: this question and all behind it wait for that answer, and those
 * that are overdue then follow at once. Nothing is asked from the duration's end on; what was due
 * before and could not be asked is missing from `planned`, which the engine reports.
 *
 * An answer joins its session's history together with the question. A question that failed leaves
 * none: the next one goes on from the last answer.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load/workload.h"

/* One conversation. */
struct session {
	struct kvb_buf exchanges; /* JSON messages after the history, joined by commas */
	bool busy;
};

struct multi_round_chat {
	struct kvb_workload base;
	const struct kvb_engine_options *options;
	struct session *sessions;
	uint64_t count;
	int64_t duration_ns;
};

static int64_t due_of(const struct multi_round_chat *chat, uint64_t question)
{
	return llround((double)question * 1e9 / chat->options->mrc.qps);
}

static void destroy(struct kvb_workload *workload)
{
	struct multi_round_chat *chat = (struct multi_round_chat *)workload;

	if (chat == NULL)
		return;
	for (uint64_t i = 0; i < chat->count; i++)
		kvb_buf_finish(&chat->sessions[i].exchanges);
	free(chat->sessions);
	free(chat);
}

/* Returns how many questions are due before the end of the run. */
static uint64_t count_questions(const struct multi_round_chat *chat)
{
	uint64_t n = (uint64_t)(chat->options->mrc.duration_s * chat->options->mrc.qps);

	while (n > 0 && due_of(chat, n - 1) >= chat->duration_ns)
		n--;
	while (due_of(chat, n) < chat->duration_ns)
		n++;
	return n;
}

static enum kvw_err create(
	const struct kvb_engine_options *options, struct kvb_workload **out, FILE *error)
{
	uint64_t sessions = kvb_fits(options->kv_cache_volume_gb, options->tokens_per_gb,
		options->mrc.shared_prompt + options->mrc.history);
	double questions = options->mrc.qps * options->mrc.duration_s;
	struct multi_round_chat *chat;

	if (kvb_check_count(kvb_multi_round_chat.name, questions + (double)sessions, error) !=
		KVW_OK)
		return KVW_EINVAL;
	chat = kvb_alloc(1, sizeof(*chat));
	chat->base.ops = &kvb_multi_round_chat;
	chat->options = options;
	chat->count = sessions;
	chat->sessions = kvb_alloc(sessions, sizeof(*chat->sessions));
	chat->duration_ns = llround(options->mrc.duration_s * 1e9);
	chat->base.planned = count_questions(chat);
	chat->base.warm_count = sessions;
	chat->base.at_once = sessions;
	*out = &chat->base;
	return KVW_OK;
}

static void describe(const struct kvb_workload *workload, FILE *out)
{
	const struct multi_round_chat *chat = (const struct multi_round_chat *)workload;
	const struct kvb_engine_options *o = chat->options;

	fprintf(out,
		"  sessions %llu, each with a prompt of %lld and a history of %lld tokens\n"
		"  questions of %lld tokens, answers of %lld, %g a second for %g s\n",
		(unsigned long long)chat->count, (long long)o->mrc.shared_prompt,
		(long long)o->mrc.history, (long long)o->mrc.user_input, (long long)o->mrc.output,
		o->mrc.qps, o->mrc.duration_s);
}

/* Appends a text of about `tokens` words: some words of its own, then the filler. */
static void add_filled(struct kvb_ask *out, const char *role, struct kvb_buf *begun_take,
	int64_t words, const char *filler, int64_t tokens)
{
	kvb_fill(begun_take, filler, tokens - words);
	kvb_ask_message(out, role, begun_take->data, begun_take->len);
	kvb_buf_finish(begun_take);
}

static void add_history(const struct multi_round_chat *chat, uint64_t session, struct kvb_ask *out)
{
	static const char read[] = "Understood, I have read the context above.";
	const struct kvb_engine_options *o = chat->options;
	struct kvb_buf text = {0};

	kvb_buf_printf(
		&text, "Session %llu. You are a helpful assistant. ", (unsigned long long)session);
	add_filled(out, "system", &text, 7, "help", o->mrc.shared_prompt);
	kvb_buf_printf(&text, "[Session %llu history] ", (unsigned long long)session);
	add_filled(out, "user", &text, 3, "hi", o->mrc.history);
	kvb_ask_message(out, "assistant", read, sizeof(read) - 1);
}

static void add_question(const struct multi_round_chat *chat, struct kvb_buf *messages)
{
	struct kvb_ask ask = {.messages = *messages};
	struct kvb_buf text = {0};

	add_filled(&ask, "user", &text, 0, "tell", chat->options->mrc.user_input);
	*messages = ask.messages;
}

static void warm(struct kvb_workload *workload, uint64_t n, struct kvb_ask *out)
{
	*out = (struct kvb_ask){.max_tokens = 1, .session = n + 1};
	snprintf(out->id, sizeof(out->id), "warmup_s%llu", (unsigned long long)n);
	add_history((struct multi_round_chat *)workload, n, out);
	kvb_ask_message(out, "user", "Hello", 5);
}

static enum kvb_turn next(
	struct kvb_workload *workload, int64_t now_ns, struct kvb_ask *out, int64_t *wake_ns)
{
	struct multi_round_chat *chat = (struct multi_round_chat *)workload;
	uint64_t n = chat->base.asked % chat->count;
	struct session *session = &chat->sessions[n];
	int64_t due_ns = due_of(chat, chat->base.asked);

	if (now_ns >= chat->duration_ns)
		return KVB_DONE;
	*wake_ns = due_ns < chat->duration_ns ? due_ns : chat->duration_ns;
	if (now_ns < due_ns)
		return KVB_WAIT;
	*wake_ns = chat->duration_ns;
	if (session->busy)
		return KVB_WAIT;
	session->busy = true;
	*out = (struct kvb_ask){.max_tokens = chat->options->mrc.output,
		.session = n + 1,
		.tag = n,
		.due_ns = due_ns};
	snprintf(out->id, sizeof(out->id), "s%llu_r%llu", (unsigned long long)n,
		(unsigned long long)chat->base.asked);
	add_history(chat, n, out);
	if (session->exchanges.len > 0)
		kvb_buf_text(&out->messages, ",");
	kvb_buf_add(&out->messages, session->exchanges.data, session->exchanges.len);
	add_question(chat, &out->messages);
	return KVB_ASK;
}

static void ended(
	struct kvb_workload *workload, uint64_t tag, bool ok, const char *text, size_t len)
{
	struct multi_round_chat *chat = (struct multi_round_chat *)workload;
	struct session *session = &chat->sessions[tag];
	struct kvb_ask answer = {.messages = session->exchanges};

	session->busy = false;
	if (!ok)
		return;
	add_question(chat, &answer.messages);
	kvb_ask_message(&answer, "assistant", text, len);
	session->exchanges = answer.messages;
}

const struct kvb_workload_ops kvb_multi_round_chat = {
	.name = "multi-round-chat",
	.needs_volume = true,
	.create = create,
	.describe = describe,
	.warm = warm,
	.next = next,
	.ended = ended,
	.destroy = destroy,
};
