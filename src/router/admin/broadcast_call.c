/*
 * broadcast_call.c - sends a broadcast's request to one worker.
 */
#include "admin/broadcast_call.h"

#include <stdlib.h>
#include <string.h>

#include "admin/broadcast.h"
#include "base/clock.h"
#include "openai/api_path.h"

static size_t on_data(char *data, size_t size, size_t count, void *arg)
{
	struct kvw_call *call = arg;
	size_t n = size * count, room = KVW_BROADCAST_ANSWER_MAX - call->len;
	char *grown;

	call->cut = call->cut || n > room;
	room = n < room ? n : room;
	grown = room == 0 ? call->body : realloc(call->body, call->len + room);
	if (room > 0 && grown == NULL)
		return 0;
	if (room > 0)
		memcpy(grown + call->len, data, room);
	call->body = grown;
	call->len += room;
	return n;
}

static bool add_header(struct kvw_call *call, const char *line)
{
	struct curl_slist *list = curl_slist_append(call->request.headers, line);

	return list != NULL; /* `list` stays the head of the list */
}

static bool set_request(struct kvw_call *call, const struct kvw_broadcast_ask *ask)
{
	CURL *easy = call->request.easy;
	bool ok =
		curl_easy_setopt(easy, CURLOPT_PRIVATE, call) == CURLE_OK &&
		curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data) == CURLE_OK &&
		curl_easy_setopt(easy, CURLOPT_WRITEDATA, call) == CURLE_OK &&
		curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->error) == CURLE_OK &&
		curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)KVW_BROADCAST_TIME_MS) == CURLE_OK;

	if (!ok || strcmp(ask->method, "POST") != 0)
		return ok;
	return curl_easy_setopt(easy, CURLOPT_POST, 1L) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_POSTFIELDS, ask->body) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)ask->body_len) ==
		       CURLE_OK &&
	       add_header(call, ask->type) && add_header(call, "Expect:");
}

static void finish_call(struct kvw_call *call)
{
	kvw_probe_request_finish(&call->request);
	if (call->worker != NULL)
		kvw_worker_let_go(call->worker);
	call->worker = NULL;
}

/* Does what kvw_call_start does, but does not finish the call on failure. */
static bool start_call(struct kvw_call *call, const struct kvw_broadcast_ask *ask,
	struct kvw_fleet *fleet, struct kvw_curl_loop *curl)
{
	bool asleep = (atomic_load(&call->worker->barred) & KVW_BARRED_ASLEEP) != 0;
	enum kvw_err err = kvw_probe_request_init(
		&call->request, fleet->config, call->worker, ask->target);

	if (err != KVW_OK || !set_request(call, ask)) {
		(void)snprintf(call->error, sizeof(call->error), "%s",
			err == KVW_ENOTFOUND ? "its name has no address" : "out of memory");
		return false;
	}
	call->barred = (ask->effects & KVW_SLEEPS) != 0 && !asleep;
	if (call->barred)
		kvw_fleet_puts_to_sleep(fleet, call->worker);
	if (kvw_curl_loop_start(curl, call->request.easy) == KVW_OK)
		return true;
	if (call->barred)
		kvw_fleet_said_sleep(fleet, call->worker, false, kvw_clock_ns());
	(void)snprintf(call->error, sizeof(call->error), "out of memory");
	return false;
}

bool kvw_call_start(struct kvw_call *call, const struct kvw_broadcast_ask *ask,
	struct kvw_fleet *fleet, struct kvw_curl_loop *curl)
{
	call->running = start_call(call, ask, fleet, curl);
	if (!call->running)
		finish_call(call);
	return call->running;
}

/* Updates kvway's state of the worker. unsure: the worker may have carried the request out although
 * it did not answer. */
static void take_effect(struct kvw_call *call, const struct kvw_broadcast_ask *ask, bool unsure,
	struct kvw_fleet *fleet, struct kvw_prober *prober)
{
	int effects = ask->effects;
	bool done = call->status >= 200 && call->status < 300;

	if (call->barred)
		kvw_fleet_said_sleep(fleet, call->worker, done || unsure, kvw_clock_ns());
	if (!done && !unsure)
		return;
	if ((effects & KVW_EMPTIES) != 0)
		kvw_fleet_cache_lost(fleet, call->worker, "a broadcast that empties it");
	if ((effects & KVW_WAKES) != 0 && done &&
		!kvw_target_wakes_parts(kvw_slice_of(ask->target)))
		kvw_fleet_said_sleep(fleet, call->worker, false, kvw_clock_ns());
	/* Before the broadcast is answered, so that the client's next request finds the models. */
	if ((effects & KVW_OTHER_MODELS) != 0)
		kvw_worker_models_changed(call->worker, kvw_clock_ns());
	if ((effects & (KVW_WAKES | KVW_OTHER_MODELS)) != 0 && prober != NULL)
		kvw_prober_hurry(prober, call->worker);
}

void kvw_call_end(struct kvw_call *call, const struct kvw_broadcast_ask *ask, CURLcode code,
	struct kvw_fleet *fleet, struct kvw_prober *prober)
{
	bool unsure = code != CURLE_OK && code != CURLE_COULDNT_CONNECT &&
		      code != CURLE_COULDNT_RESOLVE_HOST && code != CURLE_SSL_CONNECT_ERROR &&
		      code != CURLE_PEER_FAILED_VERIFICATION;

	call->running = false;
	if (code == CURLE_OK) {
		(void)curl_easy_getinfo(call->request.easy, CURLINFO_RESPONSE_CODE, &call->status);
		kvw_probe_request_connected(&call->request, call->worker);
	} else if (call->error[0] == '\0') {
		(void)snprintf(call->error, sizeof(call->error), "%s", curl_easy_strerror(code));
	}
	take_effect(call, ask, unsure, fleet, prober);
	finish_call(call);
}

static json_t *answer_json(const struct kvw_call *call)
{
	json_t *answer =
		call->cut ? NULL : json_loadb(call->body, call->len, JSON_DECODE_ANY, NULL);

	if (answer == NULL)
		answer = json_stringn(call->len == 0 ? "" : call->body, call->len);
	return answer == NULL ? json_null() : answer; /* no UTF-8 */
}

json_t *kvw_call_json(const struct kvw_call *call)
{
	json_t *page = json_pack("{s:s}", "id", call->id);

	if (page == NULL)
		return NULL;
	if (call->status == 0) {
		json_object_set_new(page, "error", json_string(call->error));
		return page;
	}
	json_object_set_new(page, "status", json_integer(call->status));
	json_object_set_new(page, "answer", answer_json(call));
	if (call->cut)
		json_object_set_new(page, "truncated", json_true());
	return page;
}

void kvw_call_release(struct kvw_call *call, struct kvw_curl_loop *curl)
{
	if (call->running)
		kvw_curl_loop_abort(curl, call->request.easy);
	finish_call(call);
	free(call->body);
	free(call->id);
}
