/*
 * vllm_discover.c - asks workers for the addresses of their KV events.
 *
 * libcurl's multi interface, polled by a timer: the requests are few and tiny, and no client's
 * request waits for them. No name is resolved here (probe_request.h), so nothing blocks.
 */
#include "feeds/vllm_discover.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "fleet/probe_request.h"

#define BODY_MAX      (256u << 10)
#define TIMEOUT_MS    5000L
#define PAUSE_NS      (500 * KVW_NS_PER_MS)
#define PAUSE_MOST_NS (30 * KVW_NS_PER_S)
#define LEAST_NS      (5 * KVW_NS_PER_S)
#define AT_ONCE       64 /* transfers */

struct target {
	struct kvw_worker *worker; /* borrowed from the caller; NULL: none */
	struct kvw_probe_request request; /* request of the running transfer */
	bool running;
	int64_t due_ns;   /* time of the next request; INT64_MAX: none is wanted */
	int64_t asked_ns; /* 0: never */
	int64_t pause_ns;
	char *body; /* owned */
	size_t len;
	char error[CURL_ERROR_SIZE];
};

struct kvw_vllm_discover {
	struct kvw_feed *feed;
	kvw_vllm_found_fn *found;
	void *ctx;
	CURLM *multi;
	struct target *targets; /* [KVW_MAX_WORKERS], by slot */
	size_t count;           /* number of targets that have been used */
	size_t running;
};

enum kvw_err kvw_vllm_discover_create(
	struct kvw_feed *feed, kvw_vllm_found_fn *found, void *ctx, struct kvw_vllm_discover **out)
{
	struct kvw_vllm_discover *discover = calloc(1, sizeof(*discover));

	if (discover == NULL)
		return KVW_ENOMEM;
	discover->feed = feed;
	discover->found = found;
	discover->ctx = ctx;
	discover->targets = calloc(KVW_MAX_WORKERS, sizeof(*discover->targets));
	/* libcurl counts these calls; the prober makes its own. */
	if (discover->targets == NULL || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
		free(discover->targets);
		free(discover);
		return KVW_ENOMEM;
	}
	for (size_t i = 0; i < KVW_MAX_WORKERS; i++) {
		discover->targets[i].due_ns = INT64_MAX;
		discover->targets[i].pause_ns = PAUSE_NS;
	}
	discover->multi = curl_multi_init();
	if (discover->multi == NULL) {
		kvw_vllm_discover_destroy(discover);
		return KVW_ENOMEM;
	}
	*out = discover;
	return KVW_OK;
}

/* Frees a transfer that has ended or is given up. */
static void release_target(struct kvw_vllm_discover *discover, struct target *target)
{
	if (target->running)
		discover->running--;
	if (target->running && target->request.easy != NULL)
		curl_multi_remove_handle(discover->multi, target->request.easy);
	target->running = false;
	kvw_probe_request_finish(&target->request);
	free(target->body);
	target->body = NULL;
	target->len = 0;
}

void kvw_vllm_discover_destroy(struct kvw_vllm_discover *discover)
{
	if (discover == NULL)
		return;
	for (size_t i = 0; i < discover->count; i++)
		release_target(discover, &discover->targets[i]);
	if (discover->multi != NULL)
		curl_multi_cleanup(discover->multi);
	curl_global_cleanup();
	free(discover->targets);
	free(discover);
}

void kvw_vllm_discover_drop(struct kvw_vllm_discover *discover, const struct kvw_worker *worker)
{
	struct target *target = &discover->targets[worker->id];

	release_target(discover, target);
	*target = (struct target){.due_ns = INT64_MAX, .pause_ns = PAUSE_NS};
}

void kvw_vllm_discover_want(struct kvw_vllm_discover *discover, struct kvw_worker *worker)
{
	struct target *target = &discover->targets[worker->id];
	int64_t due_ns = kvw_feed_now(discover->feed);

	target->worker = worker;
	if (discover->count <= worker->id)
		discover->count = worker->id + 1;
	if (target->running)
		return;
	if (target->asked_ns != 0 && due_ns < target->asked_ns + LEAST_NS)
		due_ns = target->asked_ns + LEAST_NS;
	if (due_ns < target->due_ns)
		target->due_ns = due_ns;
	target->pause_ns = PAUSE_NS;
}

const char *kvw_vllm_discover_error(const struct kvw_vllm_discover *discover, uint32_t worker)
{
	return discover->targets[worker].error;
}

static size_t take_body(char *data, size_t size, size_t count, void *ctx)
{
	struct target *target = ctx;
	size_t len = size * count;
	char *body;

	if (len > BODY_MAX - target->len)
		return 0;
	body = realloc(target->body, target->len + len);
	if (body == NULL)
		return 0;
	memcpy(body + target->len, data, len);
	target->body = body;
	target->len += len;
	return len;
}

static void start_probe(struct kvw_vllm_discover *discover, struct target *target)
{
	CURL *easy;
	bool ok;

	target->due_ns = INT64_MAX;
	target->asked_ns = kvw_feed_now(discover->feed);
	ok = kvw_probe_request_init(&target->request, kvw_feed_deps(discover->feed)->config,
		     target->worker, "/kv_event_sources") == KVW_OK;
	easy = target->request.easy;
	ok = ok && curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body) == CURLE_OK &&
	     curl_easy_setopt(easy, CURLOPT_WRITEDATA, target) == CURLE_OK &&
	     curl_easy_setopt(easy, CURLOPT_PRIVATE, target) == CURLE_OK &&
	     curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, TIMEOUT_MS) == CURLE_OK &&
	     curl_multi_add_handle(discover->multi, easy) == CURLM_OK;
	if (ok) {
		target->running = true;
		discover->running++;
		return;
	}
	release_target(discover, target);
	snprintf(target->error, sizeof(target->error), "cannot prepare a request");
	target->due_ns = target->asked_ns + PAUSE_MOST_NS;
}

/* Returns whether another request would soon have the same result. */
static bool is_final(CURLcode code, long status)
{
	return code == CURLE_OK && (status == 200 || status == 404 || status == 405);
}

static void finish_probe(struct kvw_vllm_discover *discover, struct target *target, CURLcode code)
{
	long status = 0;

	curl_easy_getinfo(target->request.easy, CURLINFO_RESPONSE_CODE, &status);
	if (is_final(code, status)) {
		target->error[0] = '\0';
		target->pause_ns = PAUSE_NS;
		discover->found(discover->ctx, target->worker->id, status,
			target->body == NULL ? "" : target->body, target->len);
	} else {
		if (code != CURLE_OK)
			snprintf(target->error, sizeof(target->error), "%s",
				curl_easy_strerror(code));
		else
			snprintf(target->error, sizeof(target->error), "it answered %ld", status);
		target->due_ns = kvw_feed_now(discover->feed) + target->pause_ns;
		target->pause_ns *= 2;
		if (target->pause_ns > PAUSE_MOST_NS)
			target->pause_ns = PAUSE_MOST_NS;
		discover->found(discover->ctx, target->worker->id, 0, "", 0);
	}
	release_target(discover, target);
}

void kvw_vllm_discover_tick(struct kvw_vllm_discover *discover)
{
	int64_t now_ns = kvw_feed_now(discover->feed);
	struct target *target;
	CURLMsg *message;
	int left;

	for (size_t i = 0; i < discover->count && discover->running < AT_ONCE; i++)
		if (!discover->targets[i].running && discover->targets[i].due_ns <= now_ns)
			start_probe(discover, &discover->targets[i]);
	if (discover->running == 0)
		return;
	if (curl_multi_perform(discover->multi, &left) != CURLM_OK)
		kvw_warn("feed", "libcurl cannot go on with asking for event sources");
	while ((message = curl_multi_info_read(discover->multi, &left)) != NULL) {
		CURLcode code = message->data.result;

		if (message->msg != CURLMSG_DONE)
			continue;
		if (curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&target) ==
			CURLE_OK)
			finish_probe(discover, target, code);
	}
}
