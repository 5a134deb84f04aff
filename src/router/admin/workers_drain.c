/*
 * workers_drain.c - keeps a request to the admin address open until a worker has no request any
 * more.
 *
 * The control thread must not wait, so that a timer looks again and again. The worker is identified
 * by its slot and the number of the slot's use, since it may be removed meanwhile, and its slot be
 * given to another one. As in explain_wait.c the answer is posted to the server's loop.
 */
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "admin/http.h"
#include "admin/worker_page.h"
#include "admin/workers.h"
#include "base/clock.h"

#define LOOK_MS  20
/* until then a loop may still pick the worker from an older table */
#define LEAST_NS (100 * KVW_NS_PER_MS)

struct drain {
	struct kvw_wait base; /* first */
	struct kvw_workers_desk desk;
	struct kvw_worker *worker;
	uint32_t use;
	char *url;
	bool server; /* waits for all data-parallel ranks of the server */
	int64_t begun_ns, until_ns;
	struct event *timer;
	bool over; /* the answer was posted, and its delivery frees this */
	bool drained;
};

static void release_drain(struct drain *drain)
{
	if (drain->timer != NULL)
		event_free(drain->timer);
	free(drain->url);
	free(drain);
}

static void answer_drain(struct drain *drain, struct kvw_conn *conn)
{
	int64_t now_ns = kvw_clock_ns();
	json_t *page = kvw_worker_page_of(
		drain->desk.members, drain->url, drain->desk.fleet, drain->desk.metrics, now_ns);

	for (size_t i = 0; i < (json_is_array(page) ? json_array_size(page) : 1); i++) {
		json_t *one = json_is_array(page) ? json_array_get(page, i) : page;

		if (one == NULL)
			break;
		json_object_set_new(one, "drained", json_boolean(drain->drained));
		json_object_set_new(one, "waited_ms",
			json_integer((now_ns - drain->begun_ns) / KVW_NS_PER_MS));
	}
	kvw_admin_http_json_take(conn, 200, "", page);
}

static void deliver_mail(struct kvw_mail *mail, struct kvw_server_loop *loop)
{
	struct drain *drain = (struct drain *)mail;
	struct kvw_conn *conn = kvw_conn_settle(&drain->base);

	(void)loop;
	if (conn != NULL) {
		answer_drain(drain, conn);
		kvw_conn_advance(conn);
	}
	release_drain(drain);
}

static void gone(struct kvw_wait *base)
{
	struct drain *drain = (struct drain *)base;

	if (drain->over)
		return;
	(void)!kvw_conn_settle(base);
	release_drain(drain);
}

/* Returns whether the worker has no request. Before LEAST_NS that is not certain, so that it counts
 * only at the end of the wait. */
static bool is_idle(const struct drain *drain, int64_t now_ns)
{
	struct kvw_worker *worker = drain->worker, *rank;
	uint32_t inflight = kvw_load_own_inflight(&worker->load);

	if (worker->use != drain->use || kvw_worker_life(worker) != KVW_WORKER_LIVE)
		return true;
	for (size_t at = 0;
		drain->server && (rank = kvw_ranks_next(drain->desk.fleet, worker, &at)) != NULL;)
		inflight += kvw_load_own_inflight(&rank->load);
	return inflight == 0 &&
	       (now_ns - drain->begun_ns >= LEAST_NS || now_ns >= drain->until_ns);
}

static void on_look(evutil_socket_t fd, short what, void *arg)
{
	struct drain *drain = arg;
	int64_t now_ns = kvw_clock_ns();

	(void)fd;
	(void)what;
	drain->drained = is_idle(drain, now_ns);
	if (!drain->drained && now_ns < drain->until_ns)
		return;
	drain->over = true;
	(void)event_del(drain->timer);
	kvw_server_loop_post(drain->base.loop, &drain->base.mail);
}

void kvw_workers_await_drain(const struct kvw_workers_desk *desk, struct kvw_conn *conn,
	struct kvw_worker *worker, const char *url, int64_t wait_ms)
{
	const struct timeval look = {.tv_usec = LOOK_MS * 1000};
	struct drain *drain = calloc(1, sizeof(*drain));

	if (drain != NULL) {
		drain->base.mail.deliver = deliver_mail;
		drain->base.gone = gone;
		drain->desk = *desk;
		drain->worker = worker;
		drain->use = worker->use;
		drain->url = strdup(url);
		drain->server = strcmp(url, worker->url) != 0;
		drain->begun_ns = kvw_clock_ns();
		drain->until_ns = drain->begun_ns + wait_ms * KVW_NS_PER_MS;
		drain->timer = event_new(desk->base, -1, EV_PERSIST, on_look, drain);
	}
	if (drain != NULL && drain->url != NULL && drain->timer != NULL &&
		event_add(drain->timer, &look) == 0) {
		kvw_conn_await(conn, &drain->base);
		return;
	}
	if (drain != NULL)
		release_drain(drain);
	kvw_admin_http_error(conn, 500, "", "out of memory");
}
