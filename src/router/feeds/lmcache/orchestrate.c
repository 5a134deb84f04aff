/*
 * orchestrate.c - questions and commands from operators, carried out on the feed's thread.
 *
 * The asking thread hashes the tokens (that may take milliseconds) and posts a job. What the registry
 * knows is answered at once. A command goes to every rank of the instance, to the command socket that
 * it registered, each by a DEALER of its own that is closed after one answer or when time is up: a REQ
 * would not let go of a worker that never answers.
 *
 *	posted --> run: answered at once, or on lmcache->jobs --> last answer, or deadline --> done
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "base/clock.h"
#include "feeds/lmcache/controller.h"
#include "base/log.h"

/* One command to one rank. */
struct call {
	struct kvw_lmjob *job;
	void *socket; /* NULL: over */
	size_t row;   /* of the answer */
};

struct kvw_lmjob {
	struct kvw_lmjob *next;
	struct kvw_lmcache *lmcache;
	enum kvw_lmcache_verb verb;
	char event_id[128];
	char instance[KVW_LMC_TEXT_MAX + 1], location[KVW_LMC_TEXT_MAX + 1];
	uint32_t *tokens; /* owned; PIN */
	size_t token_count;
	/* LOOKUP: keys of the tokens in every space of LMCache. Owned. */
	uint64_t *keys[KVW_EXACT_CHAINS];
	size_t key_count[KVW_EXACT_CHAINS];

	kvw_lmcache_answer_fn *done;
	void *arg;
	struct kvw_lmcache_answer answer;
	struct kvw_lmcache_row *rows; /* owned */
	size_t row_room;

	struct call *calls; /* owned */
	size_t call_count, open;
	int64_t deadline_ns;
};

static void free_job(struct kvw_lmjob *job)
{
	for (size_t i = 0; i < KVW_EXACT_CHAINS; i++)
		free(job->keys[i]);
	free(job->tokens);
	free(job->rows);
	free(job->calls);
	free(job);
}

/* Notes an error; only the first one is reported. */
static void __attribute__((format(printf, 3, 4)))
fail(struct kvw_lmjob *job, enum kvw_err err, const char *format, ...)
{
	va_list arguments;

	if (job->answer.err != KVW_OK)
		return;
	job->answer.err = err;
	va_start(arguments, format);
	vsnprintf(job->answer.error, sizeof(job->answer.error), format, arguments);
	va_end(arguments);
}

static void finish(struct kvw_lmjob *job)
{
	job->answer.rows = job->rows;
	job->done(job->arg, &job->answer);
	free_job(job);
}

static struct kvw_lmcache_row *add_row(struct kvw_lmjob *job, const char *instance)
{
	struct kvw_lmcache_row *row;

	if (job->answer.count == job->row_room) {
		size_t room = job->row_room == 0 ? 8 : job->row_room * 2;
		void *wider = realloc(job->rows, room * sizeof(job->rows[0]));

		if (wider == NULL) {
			fail(job, KVW_ENOMEM, "out of memory");
			return NULL;
		}
		job->rows = wider;
		job->row_room = room;
	}
	row = &job->rows[job->answer.count++];
	*row = (struct kvw_lmcache_row){0};
	snprintf(row->instance, sizeof(row->instance), "%s", instance);
	return row;
}

/* --- what the registry knows --- */

static void lookup(struct kvw_lmjob *job)
{
	const struct kvw_lmreg *reg = job->lmcache->reg;

	for (size_t i = 0; i < reg->count; i++) {
		const struct kvw_lmreg_instance *instance = reg->instances[i];
		uint32_t space = instance->space, held, chunk;
		struct kvw_lmcache_row *row;
		const char *location;

		if (job->keys[space] == NULL)
			continue;
		held = kvw_lmreg_held(
			instance, job->keys[space], (uint32_t)job->key_count[space], &location);
		if (held == 0)
			continue;
		row = add_row(job, instance->id);
		if (row == NULL)
			return;
		chunk = kvw_kvspaces_get(job->lmcache->deps->spaces, space)->block_tokens;
		snprintf(row->location, sizeof(row->location), "%s", location);
		row->number = (int64_t)held * chunk;
		if (row->number > (int64_t)job->token_count)
			row->number = (int64_t)job->token_count;
	}
}

static void query(struct kvw_lmjob *job)
{
	const struct kvw_lmreg_instance *instance =
		kvw_lmreg_at(job->lmcache->reg, kvw_slice_of(job->instance));

	if (instance == NULL)
		fail(job, KVW_ENOTFOUND, "no instance is registered at %.64s", job->instance);
	else
		(void)add_row(job, instance->id);
}

static double seconds_ago(int64_t then_ns, int64_t now_ns)
{
	return (double)(kvw_clock_wall_ns() - (now_ns - then_ns)) / (double)KVW_NS_PER_S;
}

static void list_ranks(struct kvw_lmjob *job, const struct kvw_lmreg_instance *instance)
{
	int64_t now_ns = kvw_feed_now(job->lmcache->feed);

	for (uint32_t r = 0; r < instance->rank_count; r++) {
		const struct kvw_lmreg_rank *rank = &instance->ranks[r];
		struct kvw_lmcache_row *row = rank->gone ? NULL : add_row(job, instance->id);

		if (row == NULL)
			continue;
		snprintf(row->ip, sizeof(row->ip), "%s", rank->ip != NULL ? rank->ip : "");
		snprintf(row->p2p, sizeof(row->p2p), "%s", rank->p2p != NULL ? rank->p2p : "");
		row->rank = rank->id;
		row->port = rank->port;
		row->number = (int64_t)kvw_lmreg_key_count(rank);
		row->registered_s = (double)rank->registered_wall_ns / (double)KVW_NS_PER_S;
		row->heartbeat_s =
			rank->beats ? seconds_ago(rank->beat_ns, now_ns) : row->registered_s;
	}
}

static void list_workers(struct kvw_lmjob *job)
{
	const struct kvw_lmreg *reg = job->lmcache->reg;
	bool all = strcmp(job->instance, "all") == 0;

	for (size_t i = 0; i < reg->count; i++)
		if (all || strcmp(reg->instances[i]->id, job->instance) == 0)
			list_ranks(job, reg->instances[i]);
}

/* --- commands --- */

static void close_call(struct call *call)
{
	struct kvw_lmcache *lmcache = call->job->lmcache;

	if (call->socket == NULL)
		return;
	kvw_feed_unwatch(lmcache->feed, call->socket);
	zmq_close(call->socket);
	call->socket = NULL;
	call->job->open--;
	lmcache->job_count--;
}

static void unlink_job(struct kvw_lmjob *job)
{
	struct kvw_lmjob **at = &job->lmcache->jobs;

	while (*at != job)
		at = &(*at)->next;
	*at = job->next;
}

static void end_job(struct kvw_lmjob *job)
{
	for (size_t i = 0; i < job->call_count; i++)
		close_call(&job->calls[i]);
	unlink_job(job);
	if (job->answer.err != KVW_OK)
		job->lmcache->reg->stats.command_failures++;
	finish(job);
}

static void take_answer(struct call *call, struct kvw_slice frame)
{
	struct kvw_lmjob *job = call->job;
	struct kvw_lmcache_row *row = &job->rows[call->row];
	struct kvw_lmc_message message;

	if (kvw_lmc_read(&job->lmcache->reader, frame, &message) != KVW_OK)
		fail(job, KVW_EPROTO, "rank %u answered what cannot be read", row->rank);
	else if (message.type == KVW_LMC_ERROR)
		fail(job, KVW_EPROTO, "rank %u: %.*s", row->rank,
			(int)(message.error.len < 160 ? message.error.len : 160),
			message.error.data);
	else if (message.type == KVW_LMC_HEALTH && job->verb == KVW_LMCACHE_HEALTH)
		row->number = message.error_code;
	else if (message.type == KVW_LMC_TOKENS_DONE && job->verb != KVW_LMCACHE_HEALTH)
		row->number = (int64_t)message.num_tokens;
	else
		fail(job, KVW_EPROTO, "rank %u answered something else", row->rank);
}

static bool read_answer(void *socket, void *ctx)
{
	struct call *call = ctx;
	struct kvw_lmjob *job = call->job;
	zmq_msg_t frame;
	bool more = true, any = false;

	zmq_msg_init(&frame);
	while (more && zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) >= 0) {
		more = zmq_msg_more(&frame) != 0;
		any = true;
		if (!more)
			take_answer(call,
				(struct kvw_slice){zmq_msg_data(&frame), zmq_msg_size(&frame)});
	}
	zmq_msg_close(&frame);
	if (!any)
		return false;
	close_call(call);
	if (job->open == 0)
		end_job(job);
	return false; /* the socket is closed */
}

/* The command's bytes. Owned by the caller; NULL: no memory. */
static uint8_t *write_command(const struct kvw_lmjob *job, uint32_t rank, size_t *len)
{
	size_t room = 2048 + job->token_count * 5;
	uint8_t *data = malloc(room);
	struct kvw_mp_out out;
	char id[160];

	if (data == NULL)
		return NULL;
	snprintf(id, sizeof(id), "Worker%u%s", rank, job->event_id);
	kvw_mp_out_init(&out, data, room);
	if (job->verb == KVW_LMCACHE_CLEAR)
		kvw_lmc_put_clear(&out, kvw_slice_of(id), kvw_slice_of(job->location));
	else if (job->verb == KVW_LMCACHE_PIN)
		kvw_lmc_put_pin(&out, kvw_slice_of(id), kvw_slice_of(job->location), job->tokens,
			(uint32_t)job->token_count);
	else
		kvw_lmc_put_health(&out, kvw_slice_of(id));
	*len = out.len;
	return data;
}

static void *connect_rank(struct kvw_lmcache *lmcache, const struct kvw_lmreg_rank *rank)
{
	const int off = 0, on = 1;
	const int64_t most = 1 << 20;
	char url[KVW_LMC_TEXT_MAX + 32];
	void *socket = zmq_socket(kvw_feed_context(lmcache->feed), ZMQ_DEALER);

	if (socket == NULL)
		return NULL;
	zmq_setsockopt(socket, ZMQ_LINGER, &off, sizeof(off));
	zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof(most));
	if (strchr(rank->ip, ':') != NULL)
		zmq_setsockopt(socket, ZMQ_IPV6, &on, sizeof(on));
	snprintf(url, sizeof(url), strchr(rank->ip, ':') != NULL ? "tcp://[%s]:%u" : "tcp://%s:%u",
		rank->ip, rank->port);
	if (zmq_connect(socket, url) == 0)
		return socket;
	zmq_close(socket);
	return NULL;
}

/* Sends the command to one rank; a failure is noted in the job. */
static void call_rank(struct kvw_lmjob *job, struct call *call, const struct kvw_lmreg_rank *rank)
{
	struct kvw_lmcache *lmcache = job->lmcache;
	uint8_t *data = NULL;
	size_t len = 0;

	if (rank->ip == NULL || rank->port == 0) {
		fail(job, KVW_EIO, "rank %u never said where it takes commands", rank->id);
		return;
	}
	if (lmcache->job_count == KVW_LMCACHE_COMMANDS) {
		fail(job, KVW_ELIMIT, "%u commands are under way already", KVW_LMCACHE_COMMANDS);
		return;
	}
	call->socket = connect_rank(lmcache, rank);
	if (call->socket == NULL) {
		fail(job, KVW_EIO, "rank %u cannot be connected to: %s", rank->id,
			zmq_strerror(errno));
		return;
	}
	job->open++;
	lmcache->job_count++;
	lmcache->reg->stats.commands++;
	data = write_command(job, rank->id, &len);
	if (data == NULL || zmq_send(call->socket, "", 0, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0 ||
		zmq_send(call->socket, data, len, ZMQ_DONTWAIT) < 0 ||
		kvw_feed_watch(lmcache->feed, call->socket, read_answer, call) != KVW_OK)
		fail(job, KVW_EIO, "rank %u cannot be sent a command", rank->id);
	free(data);
}

static void command(struct kvw_lmjob *job)
{
	struct kvw_lmcache *lmcache = job->lmcache;
	const struct kvw_lmreg_instance *instance =
		kvw_lmreg_find(lmcache->reg, kvw_slice_of(job->instance));

	job->next = lmcache->jobs;
	lmcache->jobs = job;
	job->deadline_ns = kvw_feed_now(lmcache->feed) + KVW_LMCACHE_COMMAND_MS * KVW_NS_PER_MS;
	if (instance == NULL)
		fail(job, KVW_ENOTFOUND, "instance %.128s is not registered", job->instance);
	else
		job->calls = calloc(instance->rank_count + 1, sizeof(job->calls[0]));
	if (instance != NULL && job->calls == NULL)
		fail(job, KVW_ENOMEM, "out of memory");
	for (uint32_t r = 0; job->calls != NULL && r < instance->rank_count; r++) {
		const struct kvw_lmreg_rank *rank = &instance->ranks[r];
		struct kvw_lmcache_row *row = rank->gone ? NULL : add_row(job, instance->id);

		if (row == NULL)
			continue;
		row->rank = rank->id;
		job->calls[job->call_count] =
			(struct call){.job = job, .row = job->answer.count - 1};
		call_rank(job, &job->calls[job->call_count++], rank);
	}
	if (job->open == 0 || job->answer.err != KVW_OK)
		end_job(job);
}

void kvw_lmcache_jobs_tick(struct kvw_lmcache *lmcache, int64_t now_ns)
{
	struct kvw_lmjob *next;

	for (struct kvw_lmjob *job = lmcache->jobs; job != NULL; job = next) {
		next = job->next;
		if (now_ns < job->deadline_ns)
			continue;
		fail(job, KVW_ETIMEDOUT, "%zu of %zu ranks did not answer within %d s", job->open,
			job->call_count, KVW_LMCACHE_COMMAND_MS / 1000);
		end_job(job);
	}
}

void kvw_lmcache_jobs_end(struct kvw_lmcache *lmcache)
{
	while (lmcache->jobs != NULL) {
		fail(lmcache->jobs, KVW_ECLOSED, "kvway stops");
		end_job(lmcache->jobs);
	}
}

/* --- asking --- */

static void run(struct kvw_feed *feed, void *arg)
{
	struct kvw_lmjob *job = arg;

	if (kvw_feed_stopped(feed)) {
		fail(job, KVW_ECLOSED, "kvway stops");
		finish(job);
		return;
	}
	switch (job->verb) {
	case KVW_LMCACHE_LOOKUP:
		lookup(job);
		break;
	case KVW_LMCACHE_QUERY:
		query(job);
		break;
	case KVW_LMCACHE_WORKERS:
		list_workers(job);
		break;
	default:
		command(job); /* which finishes it, now or later */
		return;
	}
	finish(job);
}

static enum kvw_err hash_tokens(struct kvw_lmjob *job, const struct kvw_lmcache_question *question)
{
	const struct kvw_kvspaces *spaces = job->lmcache->deps->spaces;

	for (size_t i = 0; i < kvw_kvspaces_count(spaces); i++) {
		const struct kvw_kvspace *space = kvw_kvspaces_get(spaces, i);
		size_t room = question->token_count / space->block_tokens + 1;
		uint64_t state;
		enum kvw_err err;

		if (space->reporter != KVW_REPORTER_LMCACHE)
			continue;
		job->keys[i] = malloc(room * sizeof(uint64_t));
		if (job->keys[i] == NULL)
			return KVW_ENOMEM;
		err = kvw_lmcache_begin(&space->recipe, &state);
		if (err == KVW_OK)
			err = kvw_lmcache_hash(&space->recipe, &state, question->tokens,
				question->token_count, job->keys[i], room, &job->key_count[i]);
		if (err != KVW_OK)
			return err;
	}
	return KVW_OK;
}

static enum kvw_err copy_tokens(struct kvw_lmjob *job, const struct kvw_lmcache_question *question)
{
	job->tokens = malloc((question->token_count + 1) * sizeof(job->tokens[0]));
	if (job->tokens == NULL)
		return KVW_ENOMEM;
	if (question->token_count > 0)
		memcpy(job->tokens, question->tokens,
			question->token_count * sizeof(job->tokens[0]));
	return KVW_OK;
}

static void copy_text(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from != NULL ? from : "");
}

enum kvw_err kvw_lmcache_ask(struct kvw_lmcache *lmcache,
	const struct kvw_lmcache_question *question, kvw_lmcache_answer_fn *done, void *arg)
{
	struct kvw_lmjob *job = calloc(1, sizeof(*job));
	enum kvw_err err = KVW_OK;

	if (job == NULL)
		return KVW_ENOMEM;
	job->lmcache = lmcache;
	job->verb = question->verb;
	job->done = done;
	job->arg = arg;
	job->token_count = question->token_count;
	copy_text(job->event_id, sizeof(job->event_id), question->event_id);
	copy_text(job->instance, sizeof(job->instance),
		question->verb == KVW_LMCACHE_QUERY ? question->ip : question->instance);
	copy_text(job->location, sizeof(job->location), question->location);
	if (question->verb == KVW_LMCACHE_LOOKUP)
		err = hash_tokens(job, question);
	else if (question->verb == KVW_LMCACHE_PIN)
		err = copy_tokens(job, question);
	if (err == KVW_OK)
		err = kvw_feed_post(lmcache->feed, run, job);
	if (err != KVW_OK)
		free_job(job);
	return err;
}
