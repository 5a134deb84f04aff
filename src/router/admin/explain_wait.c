/*
 * explain_wait.c - a request for an explanation that waits for its prompt's tokens.
 *
 * The control thread probes workers and answers /health, so it must not wait. The request stays open;
 * its answer is given from the box's event, from a timer, or not at all when the connection closes
 * first. Each of the three ends the wait, and the first one takes the others back.
 */
#include <event2/event.h>
#include <event2/http.h>
#include <stdlib.h>

#include "base/clock.h"
#include "admin/explain_http.h"

struct wait {
	struct kvw_explain_source source;
	struct evhttp_request *request; /* libevent's until it is answered */
	struct kvw_token_job *job;
	struct event *timer;
	const char *tokens_from;
};

static void release(struct wait *wait)
{
	evhttp_connection_set_closecb(evhttp_request_get_connection(wait->request), NULL, NULL);
	event_free(wait->timer);
	free(wait);
}

static void finish(struct wait *wait, const struct kvw_token_result *result)
{
	struct kvw_explain_source source = wait->source;
	struct evhttp_request *request = wait->request;
	struct kvw_explain_query query;
	const char *from = wait->tokens_from;
	char *target_text;

	release(wait);
	if (!kvw_explain_http_query(source.config, request, &query, &target_text))
		return;
	query.tokens_seen = true;
	query.tokens_from = from;
	query.tokens = *result;
	kvw_explain_http_answer(&source, request, &query, kvw_clock_ns());
	free(target_text);
}

static void on_tokens(void *user, const struct kvw_token_result *result)
{
	finish(user, result);
	kvw_token_list_put(result->list);
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
	const struct kvw_token_result result = {.inexact = KVW_INEXACT_TIMEOUT};
	struct wait *wait = arg;

	(void)fd;
	(void)what;
	kvw_token_job_forget(wait->job);
	finish(wait, &result);
}

/* libevent frees the request itself. */
static void on_close(struct evhttp_connection *connection, void *arg)
{
	struct wait *wait = arg;

	(void)connection;
	kvw_token_job_forget(wait->job);
	release(wait);
}

bool kvw_explain_wait(const struct kvw_explain_source *source, const struct kvw_explain_desk *desk,
	struct evhttp_request *request, struct kvw_explain_query *query, int64_t now_ns)
{
	const struct timeval limit = {
		.tv_sec = desk->wait_ms / 1000, .tv_usec = desk->wait_ms % 1000 * 1000};
	struct wait *wait;
	struct kvw_token_ask like = {.box = desk->box, .done = on_tokens};
	const char *authorization = evhttp_find_header(
		evhttp_request_get_input_headers(request), "Authorization");

	if (desk->box == NULL || source->tokens == NULL)
		return false;
	wait = calloc(1, sizeof(*wait));
	if (wait == NULL)
		return false;
	wait->source = *source;
	wait->request = request;
	wait->timer = event_new(desk->base, -1, 0, on_time, wait);
	like.user = wait;
	like.authorization = kvw_slice_of(authorization);
	if (wait->timer == NULL || event_add(wait->timer, &limit) != 0 ||
		!kvw_explain_ask_tokens(source, query, now_ns, &like, &wait->job)) {
		if (wait->timer != NULL)
			event_free(wait->timer);
		free(wait);
		return false;
	}
	wait->tokens_from = query->tokens_from;
	evhttp_connection_set_closecb(evhttp_request_get_connection(request), on_close, wait);
	return true;
}
