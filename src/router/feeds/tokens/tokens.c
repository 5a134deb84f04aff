/*
 * tokens.c - passes questions for a prompt's tokens between loops and the tokenizer's thread.
 *
 * A worker's /tokenize applies the engine's own chat template and tokenizer, so its result for a
 * request's body is what the engine will compute; vLLM ignores unknown members there, so the body
 * can be posted unchanged. src/router/openai finds the bodies that are rendered differently on both
 * paths (kvw_scan_exact).
 *
 * The cache is keyed by a hash of the whole body. The chain of hashes that routing by text compares
 * would match more bodies, but it represents a prompt's meaning, not a template's output: it treats
 * one text part like a string, drops `cache_control` of a tool, and a template may render such
 * differences. Nor are tokens taken from a conversation's previous turn. That would save a question
 * if the new prompt's tokens began with the old one's, but templates may break that: they strip the
 * reasoning of earlier answers, move tools in front of the last user message, write the date.
 * Worse, the engine's cache includes the answer in between, whose tokens are unknown: the
 * prediction would always lack it. So a turn costs one question, which blocks no loop, and the
 * proxy asks only if two workers can be compared and one of them publishes its blocks.
 *
 * A job passes to the tokenizer's thread (`submitted`, under the lock), and back to its box. Only
 * the box's thread accesses `done` and `user`, so that a job can be forgotten without a race: it
 * still comes back, counts as in flight until then, and is freed there.
 */
#include "feeds/tokens/tokens.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <unistd.h>

#include <event2/event.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "feeds/tokens/token_job.h"

/* entries live only for this time, since a template may write the date into the prompt */
#define CACHE_TTL_NS   (5 * 60 * KVW_NS_PER_S)
/* How long a worker is not asked after it showed that it has no /tokenize. */
#define REFUSAL_NS     (60 * KVW_NS_PER_S)
/* least time limit of a job; an answer that comes too late for its request still fills the cache */
#define ASK_LEAST_MS   2000
#define ASK_PER_WAIT   4

/* --- boxes --- */

struct kvw_tokens_box {
	int fd;
	pthread_mutex_t lock; /* guards all below */
	struct kvw_token_jobs answered;
	uint32_t refs; /* references of the owner and of each job under way */
	bool closed;
};

static void free_job(struct kvw_token_job *job)
{
	struct kvw_tokens *tokens = job->tokens;

	atomic_fetch_sub_explicit(&tokens->inflight, 1, memory_order_relaxed);
	kvw_account_release(tokens->memory, job->charged);
	for (uint32_t i = 0; i < job->worker_count; i++)
		kvw_worker_let_go(job->workers[i]);
	kvw_token_list_put(job->result.list);
	free(job->authorization);
	free(job);
}

enum kvw_err kvw_tokens_box_create(struct kvw_tokens_box **out)
{
	struct kvw_tokens_box *box = calloc(1, sizeof(*box));

	if (box == NULL)
		return KVW_ENOMEM;
	box->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (box->fd < 0) {
		free(box);
		return KVW_EIO;
	}
	pthread_mutex_init(&box->lock, NULL);
	STAILQ_INIT(&box->answered);
	box->refs = 1;
	*out = box;
	return KVW_OK;
}

int kvw_tokens_box_fd(const struct kvw_tokens_box *box)
{
	return box->fd;
}

static void box_unref(struct kvw_tokens_box *box)
{
	bool last;

	pthread_mutex_lock(&box->lock);
	last = --box->refs == 0;
	pthread_mutex_unlock(&box->lock);
	if (!last)
		return;
	close(box->fd);
	pthread_mutex_destroy(&box->lock);
	free(box);
}

/* Takes all answered jobs out of the box. */
static void box_take(struct kvw_tokens_box *box, struct kvw_token_jobs *jobs)
{
	STAILQ_INIT(jobs);
	pthread_mutex_lock(&box->lock);
	STAILQ_CONCAT(jobs, &box->answered);
	pthread_mutex_unlock(&box->lock);
}

void kvw_tokens_box_read(struct kvw_tokens_box *box)
{
	struct kvw_token_jobs jobs;
	struct kvw_token_job *job;
	uint64_t count;

	(void)!read(box->fd, &count, sizeof(count));
	box_take(box, &jobs);
	while ((job = STAILQ_FIRST(&jobs)) != NULL) {
		struct kvw_token_result result = job->result;
		kvw_token_fn *done = job->done;
		void *user = job->user;

		STAILQ_REMOVE_HEAD(&jobs, entry);
		if (done != NULL)
			job->result.list = NULL; /* handed on */
		free_job(job);
		box_unref(box);
		if (done != NULL)
			done(user, &result);
	}
}

void kvw_tokens_box_close(struct kvw_tokens_box *box)
{
	struct kvw_token_jobs jobs;
	struct kvw_token_job *job;

	if (box == NULL)
		return;
	pthread_mutex_lock(&box->lock);
	box->closed = true;
	pthread_mutex_unlock(&box->lock);
	box_take(box, &jobs);
	while ((job = STAILQ_FIRST(&jobs)) != NULL) {
		STAILQ_REMOVE_HEAD(&jobs, entry);
		free_job(job);
		box_unref(box);
	}
	box_unref(box);
}

void kvw_token_job_answer(struct kvw_token_job *job)
{
	struct kvw_tokens_box *box = job->box;
	uint64_t one = 1;
	bool closed;

	pthread_mutex_lock(&box->lock);
	closed = box->closed;
	if (!closed) {
		STAILQ_INSERT_TAIL(&box->answered, job, entry);
		/* Written with the lock held, since the box may be freed once its owner has read
		 * the job. */
		(void)!write(box->fd, &one, sizeof(one));
	}
	pthread_mutex_unlock(&box->lock);
	if (!closed)
		return;
	free_job(job);
	box_unref(box);
}

/* --- jobs --- */

struct kvw_token_job *kvw_token_job_create(struct kvw_tokens *tokens, size_t body_len)
{
	int64_t limit = atomic_load_explicit(&tokens->inflight_limit, memory_order_relaxed);
	struct kvw_token_job *job;

	if (body_len > KVW_TOKENS_BODY_MAX)
		return NULL;
	if (atomic_fetch_add_explicit(&tokens->inflight, 1, memory_order_relaxed) >= limit)
		goto too_many;
	if (!kvw_account_take(tokens->memory, body_len))
		goto too_many;
	job = malloc(sizeof(*job) + body_len);
	if (job == NULL)
		goto no_memory;
	memset(job, 0, sizeof(*job));
	job->tokens = tokens;
	job->charged = job->body_len = body_len;
	return job;
no_memory:
	kvw_account_release(tokens->memory, body_len);
too_many:
	atomic_fetch_sub_explicit(&tokens->inflight, 1, memory_order_relaxed);
	return NULL;
}

char *kvw_token_job_body(struct kvw_token_job *job)
{
	return job->body;
}

void kvw_token_job_destroy(struct kvw_token_job *job)
{
	if (job != NULL)
		free_job(job);
}

/* The key covers the path, too: the same bytes on another path are another prompt. */
static struct kvw_token_key key_of(const struct kvw_token_job *job)
{
	XXH128_hash_t hash = XXH3_128bits_withSeed(
		job->body, job->body_len, job->tokens->seed ^ (uint64_t)job->api);

	return (struct kvw_token_key){hash.low64, hash.high64};
}

static bool refuse_job(
	struct kvw_token_job *job, enum kvw_inexact why, struct kvw_token_result *result)
{
	*result = (struct kvw_token_result){.inexact = why};
	free_job(job);
	return true;
}

bool kvw_token_job_submit(struct kvw_token_job *job, const struct kvw_token_ask *ask,
	struct kvw_token_result *result)
{
	struct kvw_tokens *tokens = job->tokens;
	struct kvw_token_list *list;
	uint64_t one = 1;

	job->api = ask->api;
	job->convert = ask->convert;
	job->key = key_of(job);
	list = kvw_token_cache_get(tokens->cache, job->key, kvw_clock_ns());
	if (list != NULL) {
		atomic_fetch_add_explicit(&tokens->cached, 1, memory_order_relaxed);
		(void)refuse_job(job, KVW_INEXACT_NOT, result);
		result->list = list;
		return true;
	}
	if (ask->cached_only)
		return refuse_job(job, KVW_INEXACT_NO_CHOICE, result);
	if (ask->worker_count == 0)
		return refuse_job(job, KVW_INEXACT_NO_TOKENS, result);
	for (uint32_t i = 0; i < ask->worker_count; i++) {
		struct kvw_worker *worker = tokens->fleet->workers[ask->workers[i]];

		if (kvw_worker_hold(worker))
			job->workers[job->worker_count++] = worker;
	}
	if (ask->authorization.len > 0) {
		job->authorization = strndup(ask->authorization.data, ask->authorization.len);
		if (job->authorization == NULL)
			return refuse_job(job, KVW_INEXACT_BUSY, result);
	}
	job->box = ask->box;
	job->done = ask->done;
	job->user = ask->user;
	pthread_mutex_lock(&job->box->lock);
	job->box->refs++;
	pthread_mutex_unlock(&job->box->lock);
	atomic_fetch_add_explicit(&tokens->asked, 1, memory_order_relaxed);
	pthread_mutex_lock(&tokens->lock);
	STAILQ_INSERT_TAIL(&tokens->submitted, job, entry);
	pthread_mutex_unlock(&tokens->lock);
	(void)!write(tokens->wake_fd, &one, sizeof(one));
	return false;
}

void kvw_token_job_forget(struct kvw_token_job *job)
{
	job->done = NULL;
	job->user = NULL;
}

/* --- choice of workers --- */

struct kvw_tokens_choice kvw_tokens_look(
	const struct kvw_exact *exact, const struct kvw_candidate *items, size_t count)
{
	struct kvw_tokens_choice choice = {0, false};

	for (size_t i = 0; i < count; i++) {
		if (!items[i].usable)
			continue;
		choice.usable++;
		for (int reporter = 0; reporter < KVW_REPORTER_COUNT && !choice.view; reporter++)
			choice.view = kvw_exact_coverage(exact, items[i].id,
					      (enum kvw_reporter)reporter) != KVW_COVERAGE_NONE;
	}
	return choice;
}

bool kvw_tokens_refused_by(const struct kvw_tokens *tokens, uint32_t worker, int64_t now_ns)
{
	return atomic_load_explicit(&tokens->refused_until_ns[worker], memory_order_relaxed) >
	       now_ns;
}

void kvw_tokens_note_refusal(struct kvw_tokens *tokens, uint32_t worker)
{
	const char *url = tokens->fleet->workers[worker]->url;

	if (!kvw_tokens_refused_by(tokens, worker, kvw_clock_ns()))
		kvw_warn("tokens",
			"no /tokenize url=%s; its prompts are routed by text if no other worker "
			"has one",
			url);
	atomic_store_explicit(&tokens->refused_until_ns[worker], kvw_clock_ns() + REFUSAL_NS,
		memory_order_relaxed);
}

void kvw_tokens_forget(struct kvw_tokens *tokens, uint32_t worker)
{
	atomic_store_explicit(&tokens->refused_until_ns[worker], 0, memory_order_relaxed);
}

uint32_t kvw_tokens_choose(struct kvw_tokens *tokens, const struct kvw_candidate *items,
	size_t count, int64_t now_ns, uint32_t workers[KVW_TOKENS_WORKERS])
{
	size_t from =
		count == 0
			? 0
			: atomic_fetch_add_explicit(&tokens->turn, 1, memory_order_relaxed) % count;
	uint32_t load[KVW_TOKENS_WORKERS] = {0}, found = 0;

	for (size_t i = 0; i < count; i++) {
		const struct kvw_candidate *item = &items[(from + i) % count];
		uint32_t inflight, at;

		if (!item->usable || kvw_tokens_refused_by(tokens, item->id, now_ns))
			continue;
		inflight = kvw_load_inflight(item->load);
		for (at = found; at > 0 && load[at - 1] > inflight; at--)
			if (at < KVW_TOKENS_WORKERS) {
				load[at] = load[at - 1];
				workers[at] = workers[at - 1];
			}
		if (at == KVW_TOKENS_WORKERS)
			continue;
		load[at] = inflight;
		workers[at] = item->id;
		if (found < KVW_TOKENS_WORKERS)
			found++;
	}
	return found;
}

/* --- life --- */

/* Takes the next submitted job. NULL: none, or the thread is to stop, which aborts the rest. */
static struct kvw_token_job *next_submitted(struct kvw_tokens *tokens, bool *stopping)
{
	struct kvw_token_job *job;

	pthread_mutex_lock(&tokens->lock);
	*stopping = tokens->stopping;
	job = *stopping ? NULL : STAILQ_FIRST(&tokens->submitted);
	if (job != NULL)
		STAILQ_REMOVE_HEAD(&tokens->submitted, entry);
	pthread_mutex_unlock(&tokens->lock);
	return job;
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
	struct kvw_tokens *tokens = arg;
	struct kvw_token_job *job;
	uint64_t count;
	bool stopping;

	(void)fd;
	(void)what;
	(void)!read(tokens->wake_fd, &count, sizeof(count));
	while ((job = next_submitted(tokens, &stopping)) != NULL)
		kvw_token_job_begin(job);
	if (stopping)
		event_base_loopbreak(tokens->base);
}

static void *tokenizer_main(void *arg)
{
	struct kvw_tokens *tokens = arg;

	(void)pthread_setname_np(pthread_self(), "kvway-tokens");
	if (event_base_dispatch(tokens->base) < 0)
		kvw_error("tokens", "the tokenizer thread's event loop failed");
	return NULL;
}

static enum kvw_err init_events(struct kvw_tokens *tokens)
{
	tokens->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	tokens->base = event_base_new();
	if (tokens->wake_fd < 0 || tokens->base == NULL)
		return KVW_ENOMEM;
	tokens->wake = event_new(
		tokens->base, tokens->wake_fd, EV_READ | EV_PERSIST, on_wake, tokens);
	if (tokens->wake == NULL || event_add(tokens->wake, NULL) != 0)
		return KVW_ENOMEM;
	return kvw_curl_loop_init(&tokens->transfers, tokens->base, kvw_token_job_finish);
}

static enum kvw_err start_thread(struct kvw_tokens *tokens)
{
	int failed = kvw_thread_start(&tokens->thread, tokenizer_main, tokens);

	tokens->started = failed == 0;
	return failed == 0 ? KVW_OK : KVW_ENOMEM;
}

static int64_t ask_limit_ms(const struct kvw_config *config)
{
	int64_t ms = ASK_PER_WAIT * config->kvaware_tokens_timeout_ms;

	return ms < ASK_LEAST_MS ? ASK_LEAST_MS : ms;
}

void kvw_tokens_reconfigure(struct kvw_tokens *tokens, const struct kvw_config *config)
{
	atomic_store(&tokens->ask_limit_ms, ask_limit_ms(config));
	atomic_store(&tokens->inflight_limit, config->kvaware_tokens_inflight);
}

enum kvw_err kvw_tokens_start(const struct kvw_config *config, struct kvw_fleet *fleet,
	struct kvw_account *memory, struct kvw_tokens **out)
{
	struct kvw_tokens *tokens = calloc(1, sizeof(*tokens));
	enum kvw_err err = KVW_ENOMEM;

	if (tokens == NULL)
		return KVW_ENOMEM;
	tokens->config = config;
	tokens->fleet = fleet;
	tokens->memory = memory;
	tokens->wake_fd = -1;
	kvw_tokens_reconfigure(tokens, config);
	STAILQ_INIT(&tokens->submitted);
	TAILQ_INIT(&tokens->running);
	pthread_mutex_init(&tokens->lock, NULL);
	if (getrandom(&tokens->seed, sizeof(tokens->seed), 0) < 0)
		tokens->seed = (uint64_t)kvw_clock_wall_ns();
	tokens->refused_until_ns = calloc(KVW_MAX_WORKERS, sizeof(tokens->refused_until_ns[0]));
	if (tokens->refused_until_ns == NULL)
		goto out;
	err = kvw_token_cache_create(
		(size_t)config->kvaware_tokens_cache, CACHE_TTL_NS, &tokens->cache);
	if (err == KVW_OK)
		err = init_events(tokens);
	if (err == KVW_OK)
		err = start_thread(tokens);
out:
	if (err == KVW_OK)
		*out = tokens;
	else
		kvw_tokens_stop(tokens);
	return err;
}

void kvw_tokens_stop(struct kvw_tokens *tokens)
{
	uint64_t one = 1;

	if (tokens == NULL)
		return;
	if (tokens->started) {
		pthread_mutex_lock(&tokens->lock);
		tokens->stopping = true;
		pthread_mutex_unlock(&tokens->lock);
		(void)!write(tokens->wake_fd, &one, sizeof(one));
		pthread_join(tokens->thread, NULL);
	}
	kvw_token_jobs_abort(tokens);
	kvw_curl_loop_finish(&tokens->transfers);
	if (tokens->wake != NULL)
		event_free(tokens->wake);
	if (tokens->base != NULL)
		event_base_free(tokens->base);
	if (tokens->wake_fd >= 0)
		close(tokens->wake_fd);
	kvw_token_cache_destroy(tokens->cache);
	free((void *)tokens->refused_until_ns);
	pthread_mutex_destroy(&tokens->lock);
	free(tokens);
}

void kvw_tokens_stats(struct kvw_tokens *tokens, struct kvw_tokens_stats *out)
{
	struct kvw_token_cache_stats cache;

	kvw_token_cache_stats(tokens->cache, &cache);
	*out = (struct kvw_tokens_stats){
		.asked = atomic_load_explicit(&tokens->asked, memory_order_relaxed),
		.cached = atomic_load_explicit(&tokens->cached, memory_order_relaxed),
		.answered = atomic_load_explicit(&tokens->answered, memory_order_relaxed),
		.failed = atomic_load_explicit(&tokens->failed, memory_order_relaxed),
		.asking_ns = atomic_load_explicit(&tokens->asking_ns, memory_order_relaxed),
		.inflight = (uint64_t)atomic_load_explicit(&tokens->inflight, memory_order_relaxed),
		.cache_lists = cache.lists,
		.cache_bytes = cache.bytes,
		.cache_bytes_limit = cache.bytes_limit,
	};
}
