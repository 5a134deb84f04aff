/*
 * explain_wait.c - a request for an explanation that waits for its prompt's tokens.
 *
 * The control thread probes workers and answers /health, so it must not wait. The request stays open;
 * the box's event or a timer ends the wait, and the answer is then given by mail to the server's loop. A
 * connection that closes first ends it, too.
 */
#include <event2/event.h>
#include <stdlib.h>

#include "admin/explain_http.h"
#include "admin/http.h"
#include "base/clock.h"

struct wait {
	struct kvw_wait base; /* first */
	struct kvw_explain_source source;
	struct kvw_explain_query query; /* its body is the connection's */
	char *target, *session, *tenant, *key, *pin; /* of query; owned */
	struct kvw_token_job *job;      /* NULL: it is done, or forgotten */
	struct event *timer;
};

static void release(struct wait *wait)
{
	if (wait->job != NULL)
		kvw_token_job_forget(wait->job);
	kvw_token_list_put(wait->query.tokens.list);
	if (wait->timer != NULL)
		event_free(wait->timer);
	free(wait->target);
	free(wait->session);
	free(wait->tenant);
	free(wait->key);
	free(wait->pin);
	free(wait);
}

static void deliver(struct kvw_mail *mail, struct kvw_server_loop *loop)
{
	struct wait *wait = (struct wait *)mail;
	struct kvw_conn *conn = kvw_conn_settle(&wait->base);

	(void)loop;
	if (conn != NULL) {
		/* A reload may have replaced them meanwhile. */
		wait->source.config = wait->source.fleet->config;
		wait->source.strategy = wait->source.fleet->strategy;
		kvw_explain_http_answer(&wait->source, conn, &wait->query, kvw_clock_ns());
		kvw_conn_advance(conn);
	}
	release(wait);
}

static void finish(struct wait *wait, const struct kvw_token_result *result)
{
	wait->query.tokens_seen = true;
	wait->query.tokens = *result;
	(void)event_del(wait->timer);
	kvw_server_loop_post(wait->base.loop, &wait->base.mail);
}

static void on_tokens(void *user, const struct kvw_token_result *result)
{
	struct wait *wait = user;

	wait->job = NULL;
	finish(wait, result);
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
	const struct kvw_token_result result = {.inexact = KVW_INEXACT_TIMEOUT};
	struct wait *wait = arg;

	(void)fd;
	(void)what;
	kvw_token_job_forget(wait->job);
	wait->job = NULL;
	finish(wait, &result);
}

/* Without a job the mail is on its way, and frees it. */
static void gone(struct kvw_wait *base)
{
	struct wait *wait = (struct wait *)base;

	if (wait->job == NULL)
		return;
	(void)!kvw_conn_settle(base);
	release(wait);
}

static char *copy(struct kvw_slice *text)
{
	char *own = text->len > 0 ? strndup(text->data, text->len) : NULL;

	*text = kvw_slice_of(own);
	return own;
}

/* Makes what outlives the request's head. */
static struct wait *make_wait(const struct kvw_explain_source *source,
	const struct kvw_explain_desk *desk, const struct kvw_explain_query *query)
{
	const struct timeval limit = {
		.tv_sec = desk->wait_ms / 1000, .tv_usec = desk->wait_ms % 1000 * 1000};
	struct wait *wait = calloc(1, sizeof(*wait));

	if (wait == NULL)
		return NULL;
	wait->base.mail.deliver = deliver;
	wait->base.gone = gone;
	wait->source = *source;
	wait->query = *query;
	wait->target = copy(&wait->query.target);
	wait->session = copy(&wait->query.session);
	wait->tenant = copy(&wait->query.tenant);
	wait->key = copy(&wait->query.key);
	wait->pin = copy(&wait->query.pin);
	wait->timer = event_new(desk->base, -1, 0, on_time, wait);
	if (wait->query.target.len == query->target.len &&
		wait->query.session.len == query->session.len &&
		wait->query.tenant.len == query->tenant.len && wait->query.key.len == query->key.len &&
		wait->query.pin.len == query->pin.len &&
		wait->timer != NULL &&
		event_add(wait->timer, &limit) == 0)
		return wait;
	release(wait);
	return NULL;
}

bool kvw_explain_wait(const struct kvw_explain_source *source, const struct kvw_explain_desk *desk,
	struct kvw_conn *conn, struct kvw_explain_query *query, int64_t now_ns)
{
	const struct kvw_field *authorization =
		kvw_head_find(&conn->clients->head, KVW_SLICE("Authorization"));
	struct kvw_token_ask like = {.box = desk->box, .done = on_tokens};
	struct wait *wait;

	if (desk->box == NULL || source->tokens == NULL)
		return false;
	wait = make_wait(source, desk, query);
	if (wait == NULL)
		return false;
	like.user = wait;
	if (authorization != NULL && !desk->keys)
		like.authorization = authorization->value;
	if (!kvw_explain_ask_tokens(source, query, now_ns, &like, &wait->job)) {
		release(wait);
		return false;
	}
	wait->query.tokens_from = query->tokens_from;
	kvw_conn_await(conn, &wait->base);
	return true;
}
