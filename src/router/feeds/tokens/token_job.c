/*
 * token_job.c - one prompt on its way through a worker's /tokenize.
 *
 * Each attempt is a curl handle of its own: making one costs microseconds on a thread that waits
 * anyway, and the multi handle owns and reuses the connections (unlike the prober's, which must
 * prove that new ones are accepted). After a failure the job asks the next worker, unless the
 * prompt or the client's key is at fault, since the next worker would refuse it, too.
 *
 * The size of an answer is limited by the most digits that a prompt of this size can have.
 */
#include "feeds/tokens/token_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "feeds/tokens/token_answer.h"
#include "feeds/tokens/token_body.h"

#define PATH              "/tokenize"
/* bytes allowed for the tokens of the template itself */
#define ANSWER_BASE       ((size_t)256 << 10)
/* A token stands for at least one byte, and takes up to 12 characters in the list. */
#define ANSWER_PER_BYTE   16
#define CONNECT_MS        1000L
/* vLLM closes connections that were idle for 5 s. */
#define IDLE_CONNECTION_S 3L

/* Charges the job's memory to the account. */
static void charge(struct kvw_token_job *job)
{
	kvw_account_update(job->tokens->memory, &job->charged,
		job->body_len + job->converted_len + job->answer_room);
}

static void release_attempt(struct kvw_token_job *job)
{
	kvw_probe_request_finish(&job->request);
	curl_slist_free_all(job->headers);
	job->headers = NULL;
	free(job->answer);
	job->answer = NULL;
	job->answer_len = job->answer_room = 0;
	charge(job);
}

static void answer_job(struct kvw_token_job *job, enum kvw_inexact inexact)
{
	struct kvw_tokens *tokens = job->tokens;

	free(job->converted);
	job->converted = NULL;
	job->converted_len = 0;
	release_attempt(job);
	job->result.inexact = inexact;
	if (inexact == KVW_INEXACT_NOT) {
		atomic_fetch_add_explicit(&tokens->answered, 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&tokens->asking_ns,
			(uint64_t)(kvw_clock_ns() - job->begun_ns), memory_order_relaxed);
	} else if (inexact != KVW_INEXACT_NO_TOKENS) {
		atomic_fetch_add_explicit(&tokens->failed, 1, memory_order_relaxed);
	}
	kvw_token_job_answer(job);
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
	struct kvw_token_job *job = arg;
	size_t len = size * count, limit = ANSWER_BASE + job->body_len * ANSWER_PER_BYTE;

	if (len > limit - job->answer_len)
		return 0; /* 0: libcurl ends the transfer with an error */
	if (len > job->answer_room - job->answer_len) {
		size_t room = job->answer_room == 0 ? 16384 : job->answer_room;
		char *grown;

		while (room - job->answer_len < len)
			room *= 2;
		grown = realloc(job->answer, room);
		if (grown == NULL)
			return 0;
		job->answer = grown;
		job->answer_room = room;
		charge(job);
	}
	memcpy(job->answer + job->answer_len, data, len);
	job->answer_len += len;
	return len;
}

static bool add_header(struct kvw_token_job *job, const char *line)
{
	struct curl_slist *list = curl_slist_append(job->headers, line);

	if (list == NULL)
		return false;
	job->headers = list;
	return true;
}

static bool make_headers(struct kvw_token_job *job, const struct kvw_worker *worker)
{
	char *line;
	bool ok;

	for (const struct curl_slist *at = job->request.headers; at != NULL; at = at->next)
		if (!add_header(job, at->data))
			return false;
	/* No "Expect: 100-continue", whose answer would cost a round trip. */
	if (!add_header(job, "Content-Type: application/json") || !add_header(job, "Expect:"))
		return false;
	if (worker->api_key[0] != '\0' || job->authorization == NULL)
		return true;
	if (asprintf(&line, "Authorization: %s", job->authorization) < 0)
		return false;
	ok = add_header(job, line);
	free(line);
	return ok;
}

static bool set_options(struct kvw_token_job *job, int64_t left_ms)
{
	CURL *easy = job->request.easy;
	const char *body = job->converted != NULL ? job->converted : job->body;
	size_t len = job->converted != NULL ? job->converted_len : job->body_len;

	return curl_easy_setopt(easy, CURLOPT_HTTPHEADER, job->headers) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 0L) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 0L) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, IDLE_CONNECTION_S) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)left_ms) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_WRITEDATA, job) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_PRIVATE, job) == CURLE_OK;
}

static struct kvw_worker *asked(const struct kvw_token_job *job)
{
	return job->workers[job->next_worker - 1];
}

/* Asks the next worker. False: there is none, or time or memory is out. */
static bool ask_next(struct kvw_token_job *job)
{
	struct kvw_tokens *tokens = job->tokens;
	int64_t left_ms =
		tokens->ask_limit_ms - (kvw_clock_ns() - job->begun_ns) / KVW_NS_PER_MS;

	release_attempt(job);
	if (job->next_worker == job->worker_count || left_ms <= 0)
		return false;
	job->next_worker++;
	if (kvw_probe_request_init(&job->request, tokens->config, asked(job), PATH) != KVW_OK ||
		!make_headers(job, asked(job)) || !set_options(job, left_ms) ||
		kvw_curl_loop_start(&tokens->transfers, job->request.easy) != KVW_OK)
		return false;
	TAILQ_INSERT_TAIL(&tokens->running, job, running);
	return true;
}

void kvw_token_job_begin(struct kvw_token_job *job)
{
	enum kvw_err err = KVW_OK;

	job->begun_ns = kvw_clock_ns();
	if (job->convert)
		err = kvw_token_body_convert(
			job->api, job->body, job->body_len, &job->converted, &job->converted_len);
	if (err != KVW_OK)
		answer_job(job, err == KVW_ENOMEM ? KVW_INEXACT_FAILED : KVW_INEXACT_NO_TOKENS);
	else if (!ask_next(job))
		answer_job(job, KVW_INEXACT_FAILED);
}

static enum kvw_err take_list(struct kvw_token_job *job)
{
	enum kvw_err err = kvw_token_answer_read(
		job->answer == NULL ? "" : job->answer, job->answer_len, &job->result.list);

	if (err == KVW_OK)
		kvw_token_cache_put(
			job->tokens->cache, job->key, job->result.list, kvw_clock_ns());
	return err;
}

/* Returns whether a 404 concerns the path rather than the model: for an unknown model vLLM answers
 * in OpenAI's form. */
static bool has_no_tokenize(const struct kvw_token_job *job, long status)
{
	static const char error[] = "\"error\"";

	if (status == 405 || status == 501)
		return true;
	return status == 404 && (job->answer_len == 0 || memmem(job->answer, job->answer_len, error,
								 sizeof(error) - 1) == NULL);
}

void kvw_token_job_finish(void *user, CURLcode code)
{
	struct kvw_token_job *job = user;
	struct kvw_tokens *tokens = job->tokens;
	long status = 0;
	bool refused;

	TAILQ_REMOVE(&tokens->running, job, running);
	curl_easy_getinfo(job->request.easy, CURLINFO_RESPONSE_CODE, &status);
	if (code == CURLE_OK && status == 200 && take_list(job) == KVW_OK) {
		answer_job(job, KVW_INEXACT_NOT);
		return;
	}
	kvw_debug("tokens", "no tokens url=%s status=%ld error=\"%s\"", asked(job)->url, status,
		code == CURLE_OK ? "not what /tokenize answers" : curl_easy_strerror(code));
	refused = code == CURLE_OK && has_no_tokenize(job, status);
	if (refused)
		kvw_tokens_note_refusal(tokens, asked(job)->id);
	else if (code == CURLE_OK && status >= 400 && status < 500) {
		/* the prompt or the API key is at fault, so that other workers are not asked */
		answer_job(job, KVW_INEXACT_FAILED);
		return;
	}
	if (!ask_next(job))
		answer_job(job, refused ? KVW_INEXACT_NO_TOKENS : KVW_INEXACT_FAILED);
}

void kvw_token_jobs_abort(struct kvw_tokens *tokens)
{
	struct kvw_token_job *job;

	while ((job = TAILQ_FIRST(&tokens->running)) != NULL) {
		TAILQ_REMOVE(&tokens->running, job, running);
		kvw_curl_loop_abort(&tokens->transfers, job->request.easy);
		answer_job(job, KVW_INEXACT_FAILED);
	}
	while ((job = STAILQ_FIRST(&tokens->submitted)) != NULL) {
		STAILQ_REMOVE_HEAD(&tokens->submitted, entry);
		answer_job(job, KVW_INEXACT_FAILED);
	}
}
