/*
 * serve.c - finds a request's route, and serves the routes that need no wait.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/server_parts.h"

/* A loop that has not turned for longer than this counts as stuck. */
#define LOOP_STUCK_NS (10 * KVW_NS_PER_S)

enum where { PUBLIC, ADMIN, BOTH, ERASE };

/* One line of routes.def. */
struct route {
	const char *method;
	enum kvt_path path;
	enum where where;
	void (*serve)(struct kvt_conn *conn);
};

static const struct route routes[] = {
#define KVT_ROUTE(name, method, path, where, text)                                                 \
	[KVT_ROUTE_##name] = {#method, KVT_PATH_##path, where, kvt_serve_##name},
#include "daemon/routes.def"
};
#define ROUTES (sizeof(routes) / sizeof(routes[0]))

/* --- finding the route ------------------------------------------------------------------------ */

static bool is_open(const struct kvt_conn *conn, const struct route *route)
{
	bool admin = kvt_conn_loop(conn)->admin;

	switch (route->where) {
	case PUBLIC:
		return !admin;
	case ADMIN:
		return admin;
	case BOTH:
		return true;
	case ERASE:
		return admin || kvt_conn_loop(conn)->server->config->client_erase != 0;
	}
	return false;
}

/* Refuses a known path with a wrong method, or one that this address does not serve. */
static void refuse_route(struct kvt_conn *conn, enum kvt_path path, bool known_method)
{
	char allow[64] = "Allow: ";
	bool any = false;

	for (size_t i = 0; i < ROUTES; i++) {
		if (routes[i].path != path || !is_open(conn, &routes[i]))
			continue;
		strncat(allow, any ? ", " : "", sizeof(allow) - strlen(allow) - 1);
		strncat(allow, routes[i].method, sizeof(allow) - strlen(allow) - 1);
		any = true;
	}
	strncat(allow, "\r\n", sizeof(allow) - strlen(allow) - 1);
	if (known_method && kvt_conn_loop(conn)->admin)
		kvt_conn_refuse(conn, 404, NULL, "served at `listen`, not at the admin address");
	else if (known_method &&
		 kvw_slice_equal(kvt_conn_loop(conn)->base.head.method, KVW_SLICE("DELETE")))
		kvt_conn_refuse(conn, 403, NULL,
			"served at the admin address only; `client_erase: true` allows erasing "
			"here");
	else if (known_method || !any)
		kvt_conn_refuse(conn, 404, NULL, "served at the admin address only");
	else
		kvt_conn_refuse(conn, 405, allow, "this method is not served here");
}

void kvt_serve(struct kvt_conn *conn)
{
	struct kvt_loop *loop = kvt_conn_loop(conn);
	struct kvt_refusal refusal;
	bool known_method = false;

	if (!kvt_target_parse(loop->base.head.target, &loop->target, &refusal)) {
		kvt_conn_refuse(conn, refusal.status, NULL, "%s", refusal.message);
		return;
	}
	for (size_t i = 0; i < ROUTES; i++) {
		if (routes[i].path != loop->target.path ||
			!kvw_slice_equal(loop->base.head.method, kvw_slice_of(routes[i].method)))
			continue;
		known_method = true;
		if (!is_open(conn, &routes[i]))
			continue;
		conn->route = (enum kvt_route)i;
		if (conn->extra && routes[i].where != BOTH) {
			kvt_conn_turn_away(conn);
			return;
		}
		if (i != KVT_ROUTE_put && (conn->base.body_left > KVT_OTHER_BODY || conn->base.expects ||
						  loop->base.head.framing == KVW_FRAME_CHUNKED)) {
			conn->base.body_unread = true;
			kvt_conn_refuse(conn, 413, NULL, "this request takes no body");
			return;
		}
		routes[i].serve(conn);
		return;
	}
	refuse_route(conn, loop->target.path, known_method);
}

/* --- leases given back ------------------------------------------------------------------------ */

void kvt_serve_release(struct kvt_conn *conn)
{
	struct kvt_loop *loop = kvt_conn_loop(conn);

	if (kvt_object_release(loop->server->objects, loop->target.id) == KVT_OK)
		kvw_conn_answer(&conn->base, &(struct kvw_http_answer){.status = 200});
	else
		kvt_conn_refuse(conn, 404, NULL,
			"no lease of this id: it was released, its time is over, or it never was");
}

/* --- health, metrics -------------------------------------------------------------------------- */

/* Returns the seconds until writes are allowed; 0: they are. */
static double quiet_seconds(const struct kvt_server *server)
{
	int64_t until = kvt_segment_quiet_until(server->segment);
	int64_t left = until == 0 ? 0 : until - kvw_clock_wall_ns();

	return left <= 0 ? 0 : (double)left / KVW_NS_PER_S;
}

void kvt_serve_health(struct kvt_conn *conn)
{
	struct kvt_server *server = kvt_conn_loop(conn)->server;
	int64_t now = kvw_clock_ns();
	size_t stuck = 0;
	char text[96];
	int n;

	for (size_t i = 0; i < server->all_loops; i++)
		stuck += now - atomic_load_explicit(
				       &server->loops[i].base.loop.turn_ns, memory_order_relaxed) >
			 LOOP_STUCK_NS;
	n = snprintf(text, sizeof(text), "{\"status\":\"%s\",\"stuck_loops\":%zu}\n",
		stuck == 0 ? "ok" : "stuck", stuck);
	kvt_conn_answer_json(conn, stuck == 0 ? 200 : 503, text, (size_t)n);
}

void kvt_serve_ready(struct kvt_conn *conn)
{
	struct kvt_server *server = kvt_conn_loop(conn)->server;
	bool draining = atomic_load(&server->base.draining);
	char text[96];
	int n = snprintf(text, sizeof(text), "{\"status\":\"%s\",\"quiet_seconds\":%.3f}\n",
		draining ? "draining" : "ready", quiet_seconds(server));

	kvt_conn_answer_json(conn, draining ? 503 : 200, text, (size_t)n);
}

static bool write_metrics(struct kvt_server *server, struct kvw_exposition *out)
{
	const struct kvt_meters **meters = calloc(server->all_loops, sizeof(meters[0]));
	struct kvt *cache = kvt_objects_cache(server->objects);
	char *text = NULL;

	if (meters == NULL)
		return false;
	for (size_t i = 0; i < server->all_loops; i++)
		meters[i] = &server->loops[i].meters;
	kvt_daemon_metrics(
		&(struct kvt_daemon_metrics_input){
			.meters = meters,
			.meter_count = server->all_loops,
			.connections = atomic_load(&server->base.connections),
			.puts = atomic_load(&server->puts),
			.wall_ns = kvw_clock_wall_ns(),
			.objects = server->objects,
			.segment = server->segment,
		},
		out);
	free(meters);
	if (cache != NULL && kvt_metrics(cache, &text) == KVT_OK)
		kvw_page_string(&out->page, text);
	kvt_text_free(text);
	return true;
}

void kvt_serve_metrics(struct kvt_conn *conn)
{
	char *text = NULL;
	size_t len = 0;
	struct kvw_exposition out = {.numbers = KVW_NUMBERS_NINE};
	bool counted = write_metrics(kvt_conn_loop(conn)->server, &out);

	if (kvw_exposition_take(&out, &text, &len) == KVW_OK && counted)
		kvw_conn_answer(&conn->base, &(struct kvw_http_answer){.status = 200,
					      .type = "text/plain; version=0.0.4",
					      .body = {text, len}});
	else
		kvt_conn_fail(conn, "", "out of memory");
	free(text);
}

/* --- trace ------------------------------------------------------------------------------------ */

void kvt_serve_trace(struct kvt_conn *conn)
{
	struct kvt_loop *loop = kvt_conn_loop(conn);
	char *text = NULL;
	enum kvt_status status =
		kvt_trace(kvt_objects_cache(loop->server->objects), loop->target.limit, &text);

	if (status == KVT_OK)
		kvw_conn_answer(&conn->base, &(struct kvw_http_answer){.status = 200,
						     .type = "application/x-ndjson",
						     .body = {text, strlen(text)}});
	else if (status == KVT_ENOTSUP)
		kvt_conn_refuse(
			conn, 404, NULL, "nothing is traced: cache.control.trace_events is 0");
	else
		kvt_conn_fail(conn, "", "out of memory");
	kvt_text_free(text);
}
