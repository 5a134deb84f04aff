/*
 * chat.c - conversations: shared system prompts, questions, histories that grow by the answers.
 *
 * `users` conversations are open at once; each goes through its rounds, then its user begins the
 * next one. The order of users is fixed before the run: users take turns in blocks, each block in
 * another random order, so that every run with the same seed asks the same questions and no fixed
 * rhythm happens to match a router's own turns. A user whose last answer is still
 * under way asks when it has come. The answer's text goes into the history as the assistant's
 * message, so the next prompt continues what the worker has in its cache.
 */
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load/arrivals.h"
#include "base/clock.h"
#include "bench/load/run.h"
#include "bench/load/text.h"

struct chat;

/* One user and its open conversation. */
struct user {
	struct chat *chat;
	uint64_t session;        /* number of the conversation */
	int64_t round;           /* questions asked in it */
	struct kvb_buf history;  /* its messages so far, JSON objects joined by commas */
	struct kvb_buf question; /* message under way, JSON */
	bool busy;
	uint64_t waiting; /* arrivals that came while busy */
};

struct chat {
	const struct kvb_options *options;
	struct kvb_run *run;
	const char *model;
	struct user *users;
	uint32_t *order; /* user of each arrival */
	uint64_t total, asked;
	uint64_t random;
	double offset_s; /* moment of the last arrival, simulated */
};

/* Returns the text id of a kind and two numbers; seeds have different ids. */
static uint64_t text_id(const struct chat *chat, uint64_t kind, uint64_t a, uint64_t b)
{
	uint64_t state = chat->options->seed;

	state = kvb_random(&state) ^ kind;
	state = kvb_random(&state) ^ a;
	state = kvb_random(&state) ^ b;
	return kvb_random(&state);
}

static void add_message(struct kvb_buf *buf, const char *role, const char *text, size_t len)
{
	kvb_buf_printf(buf, "%s{\"role\":\"%s\",\"content\":\"", buf->len > 0 ? "," : "", role);
	kvb_buf_json_text(buf, text, len);
	kvb_buf_text(buf, "\"}");
}

static size_t text_bytes(const struct chat *chat, int64_t tokens)
{
	return (size_t)((double)tokens * chat->options->bytes_per_token);
}

static void add_text_message(
	const struct chat *chat, struct kvb_buf *buf, const char *role, uint64_t id, int64_t tokens)
{
	struct kvb_buf text = {0};

	kvb_text_add(&text, id, text_bytes(chat, tokens));
	add_message(buf, role, text.data, text.len);
	kvb_buf_finish(&text);
}

static void begin_session(struct user *user, uint64_t session)
{
	const struct chat *chat = user->chat;
	const struct kvb_options *options = chat->options;
	uint64_t system = session % (uint64_t)options->system_prompts;

	user->session = session;
	user->round = 0;
	user->history.len = 0;
	if (options->system_tokens > 0)
		add_text_message(chat, &user->history, "system", text_id(chat, 1, system, 0),
			options->system_tokens);
}

static void on_done(void *arg, const struct kvb_record *record, const struct kvb_buf *text);

static void ask(struct user *user, int64_t due_ns)
{
	struct chat *chat = user->chat;
	const struct kvb_options *options = chat->options;
	struct kvb_request request = {
		.session = user->session + 1, .due_ns = due_ns, .done = on_done, .arg = user};
	struct kvb_buf *body = &request.body;

	if (user->round == options->rounds)
		begin_session(user, user->session + (uint64_t)options->users);
	user->busy = true;
	request.session = user->session + 1;
	user->question.len = 0;
	add_text_message(chat, &user->question, "user",
		text_id(chat, 2, user->session, (uint64_t)user->round), options->question_tokens);
	user->round++;
	chat->asked++;
	kvb_buf_text(body, "{\"model\":\"");
	kvb_buf_json_text(body, chat->model, strlen(chat->model));
	kvb_buf_text(body, "\",\"messages\":[");
	kvb_buf_add(body, user->history.data, user->history.len);
	if (user->history.len > 0)
		kvb_buf_text(body, ",");
	kvb_buf_add(body, user->question.data, user->question.len);
	request.planned_tokens = (int64_t)((double)body->len / options->bytes_per_token);
	kvb_buf_printf(body,
		"],\"max_tokens\":%lld,\"temperature\":0,%s\"stream\":true,"
		"\"stream_options\":{\"include_usage\":true}}",
		(long long)options->answer_tokens,
		options->ignore_eos ? "\"ignore_eos\":true," : "");
	kvb_run_submit(chat->run, &request);
}

/* Adds an answer to the conversation; after a failure the conversation goes on as if its question
 * had not been asked. */
static void on_done(void *arg, const struct kvb_record *record, const struct kvb_buf *text)
{
	struct user *user = arg;
	struct chat *chat = user->chat;

	user->busy = false;
	if (record->ok) {
		if (user->history.len > 0)
			kvb_buf_text(&user->history, ",");
		kvb_buf_add(&user->history, user->question.data, user->question.len);
		add_message(&user->history, "assistant", text->data, text->len);
	}
	if (chat->options->qps == 0 && chat->asked < chat->total) {
		bool last = user->round == chat->options->rounds &&
			    user->session + (uint64_t)chat->options->users >=
				    (uint64_t)chat->options->sessions;

		user->waiting = last ? 0 : 1;
	}
	if (user->waiting > 0) {
		user->waiting--;
		ask(user, kvw_clock_ns());
	}
}

static void on_arrival(void *arg, uint64_t n, int64_t due_ns)
{
	struct chat *chat = arg;
	struct user *user = &chat->users[chat->order[n]];

	if (user->busy)
		user->waiting++;
	else
		ask(user, due_ns);
}

static int64_t arrival_offset(void *arg, uint64_t n)
{
	struct chat *chat = arg;
	const struct kvb_options *options = chat->options;

	if (options->qps == 0)
		return 0;
	if (n > 0)
		chat->offset_s += options->poisson
					  ? kvb_random_exponential(&chat->random, 1 / options->qps)
					  : 1 / options->qps;
	return (int64_t)(chat->offset_s / options->speed * 1e9);
}

/* Returns how many questions a user asks in all its conversations. */
static uint64_t questions_of(const struct kvb_options *options, uint64_t user)
{
	uint64_t users = (uint64_t)options->users, sessions = (uint64_t)options->sessions;

	return (sessions - user + users - 1) / users * (uint64_t)options->rounds;
}

/* Decides which user asks when: blocks of every user that has questions left, shuffled. */
static void make_order(struct chat *chat)
{
	uint32_t users = (uint32_t)chat->options->users;
	uint32_t *block = kvb_alloc(users, sizeof(*block));
	uint64_t filled = 0;

	chat->order = kvb_alloc(chat->total, sizeof(*chat->order));
	for (uint64_t turn = 0; filled < chat->total; turn++) {
		uint32_t in_block = 0;

		for (uint32_t u = 0; u < users; u++)
			if (questions_of(chat->options, u) > turn)
				block[in_block++] = u;
		for (uint32_t i = in_block; i > 1; i--) {
			uint32_t other = (uint32_t)(kvb_random(&chat->random) % i);
			uint32_t swapped = block[i - 1];

			block[i - 1] = block[other];
			block[other] = swapped;
		}
		for (uint32_t i = 0; i < in_block && filled < chat->total; i++)
			chat->order[filled++] = block[i];
	}
	free(block);
}

enum kvw_err kvb_chat(
	struct kvb_run *run, struct event_base *base, const struct kvb_options *options)
{
	struct chat chat = {.options = options, .run = run, .random = options->seed};
	struct kvb_arrivals arrivals = {.when = arrival_offset, .arrive = on_arrival, .arg = &chat};

	chat.model = kvb_run_model(run);
	if (chat.model == NULL)
		return KVW_ENOTFOUND;
	chat.total = (uint64_t)options->sessions * (uint64_t)options->rounds;
	if (options->requests > 0 && (uint64_t)options->requests < chat.total)
		chat.total = (uint64_t)options->requests;
	chat.users = kvb_alloc((size_t)options->users, sizeof(*chat.users));
	for (uint64_t i = 0; i < (uint64_t)options->users; i++) {
		chat.users[i].chat = &chat;
		begin_session(&chat.users[i], i);
	}
	make_order(&chat);
	kvb_run_expect(run, chat.total);
	arrivals.total = chat.total;
	if (options->qps == 0 && arrivals.total > (uint64_t)options->users)
		/* the other questions follow when answers have come */
		arrivals.total = (uint64_t)options->users;
	kvb_arrivals_begin(&arrivals, base);
	kvb_run_wait(run);
	kvb_arrivals_finish(&arrivals);
	for (size_t i = 0; i < (size_t)options->users; i++) {
		kvb_buf_finish(&chat.users[i].history);
		kvb_buf_finish(&chat.users[i].question);
	}
	free(chat.users);
	free(chat.order);
	return KVW_OK;
}
