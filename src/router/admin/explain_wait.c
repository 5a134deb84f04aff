/*
 * explain_wait.c - keeps a request for an explanation open while it waits for its prompt's tokens.
 *
 * The control thread probes workers and answers /health, so it must not wait. The request stays
 * open; the box's event or a timer ends the wait, and the answer is then posted to the server's
 * loop. A connection that closes first ends it, too.
 */
#include <event2/event.h>
#include <stdlib.h>

#include "admin/explain_http.h"
#include "admin/http.h"
#include "base/clock.h"

struct wait {
	struct kvw_wait base; /* first */
	const struct kvw_explainer *explainer;
	struct kvw_dry_run *run; /* NULL: not begun */
	bool posted;             /* the answer was posted, and its delivery frees this */
	struct event *timer;     /* NULL: the question does not wait */
};

static void release_wait(struct wait *wait)
{
	if (wait->run != NULL)
		wait->explainer->end(wait->run);
	if (wait->timer != NULL)
		event_free(wait->timer);
	free(wait);
}

static void deliver_mail(struct kvw_mail *mail, struct kvw_server_loop *loop)
{
	struct wait *wait = (struct wait *)mail;
	struct kvw_conn *conn = kvw_conn_settle(&wait->base);

	(void)loop;
	if (conn != NULL) {
		kvw_explain_http_answer(wait->explainer, conn, wait->run, kvw_clock_ns());
		kvw_conn_advance(conn);
	}
	release_wait(wait);
}

static void post(void *user)
{
	struct wait *wait = user;

	(void)event_del(wait->timer);
	wait->posted = true;
	kvw_server_loop_post(wait->base.loop, &wait->base.mail);
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
	struct wait *wait = arg;

	(void)fd;
	(void)what;
	wait->explainer->expire(wait->run, kvw_clock_ns());
	post(wait);
}

static void gone(struct kvw_wait *base)
{
	struct wait *wait = (struct wait *)base;

	if (wait->posted)
		return;
	(void)!kvw_conn_settle(base);
	release_wait(wait);
}

static bool set_timer(struct wait *wait, const struct kvw_explain_desk *desk)
{
	const struct timeval limit = {
		.tv_sec = desk->wait_ms / 1000, .tv_usec = desk->wait_ms % 1000 * 1000};

	wait->timer = event_new(desk->base, -1, 0, on_time, wait);
	return wait->timer != NULL && event_add(wait->timer, &limit) == 0;
}

bool kvw_explain_begin(const struct kvw_explain_desk *desk, struct kvw_conn *conn,
	const struct kvw_explain_query *query, int64_t now_ns)
{
	struct wait *wait = calloc(1, sizeof(*wait));
	const struct kvw_explain_tokens tokens = {.box = desk->box, .done = post, .user = wait};
	bool waits = false;

	if (wait == NULL)
		return false;
	wait->base.mail.deliver = deliver_mail;
	wait->base.gone = gone;
	wait->explainer = desk->explainer;
	if (desk->explainer->begin(
		    desk->explainer->arg, query, &tokens, now_ns, &wait->run, &waits) != KVW_OK ||
		(waits && !set_timer(wait, desk))) {
		release_wait(wait);
		return false;
	}
	if (waits) {
		kvw_conn_await(conn, &wait->base);
		return true;
	}
	kvw_explain_http_answer(desk->explainer, conn, wait->run, now_ns);
	release_wait(wait);
	return true;
}
