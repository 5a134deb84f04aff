/*
 * broadcast.c - sends a request to every worker, and collects the answers.
 *
 * A request becomes a cast, with a call for each worker. Calls of all casts start in turn, up to
 * the limit; when the last call of a cast has ended, its answer is posted to the server's loop. If
 * the client leaves before that, the workers are asked all the same, except those whose turn comes
 * later than KVW_BROADCAST_DESERTED_MS after it left. There are at most KVW_BROADCASTS_MOST casts.
 */
#include "admin/broadcast.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "admin/broadcast_call.h"
#include "admin/http.h"
#include "admin/worker_id.h"
#include "base/clock.h"
#include "base/log.h"
#include "settings/suggest.h"
#include "http/target.h"

#define PREFIX     "/broadcast/"
#define TARGET_MAX 8192

static const struct path {
	const char *name, *path, *method;
	int effects;
} paths[] = {
	{"sleep", "/sleep", "POST", KVW_SLEEPS | KVW_EMPTIES},
	{"wake_up", "/wake_up", "POST", KVW_WAKES},
	{"is_sleeping", "/is_sleeping", "GET", 0},
	{"reset_prefix_cache", "/reset_prefix_cache", "POST", KVW_EMPTIES},
	{"load_lora_adapter", "/v1/load_lora_adapter", "POST", KVW_OTHER_MODELS},
	{"unload_lora_adapter", "/v1/unload_lora_adapter", "POST", KVW_OTHER_MODELS},
};

/* One request to the admin address. */
struct cast {
	struct kvw_wait base; /* first */
	TAILQ_ENTRY(cast) entry;
	struct kvw_broadcaster *broadcaster;
	const struct path *path;
	char target[TARGET_MAX]; /* target of the calls */
	char *body, *type;
	struct kvw_broadcast_ask ask; /* borrows from all members above */
	struct kvw_call *calls;
	size_t count, begun, ended;
	bool over;       /* the answer was posted, and its delivery frees the cast */
	bool gone;       /* the connection is closed, so that no answer is posted */
	int64_t left_ns; /* when the client was seen to have closed its side; 0: it has not */
};

struct kvw_broadcaster {
	struct kvw_curl_loop curl;
	struct kvw_fleet *fleet;
	struct kvw_members *members;
	struct kvw_prober *prober;
	TAILQ_HEAD(, cast) casts; /* casts that are not over */
	size_t running;
	struct kvw_broadcast_state state;
};

/* --- the answer ------------------------------------------------------------------------------- */

static void cast_destroy(struct cast *cast)
{
	for (size_t i = 0; i < cast->count; i++)
		kvw_call_release(&cast->calls[i], &cast->broadcaster->curl);
	free(cast->calls);
	free(cast->body);
	free(cast->type);
	free(cast);
}

static void answer_client(struct cast *cast, struct kvw_conn *conn)
{
	json_t *list = json_array();
	json_int_t failed = 0;

	for (size_t i = 0; i < cast->count; i++) {
		json_array_append_new(list, kvw_call_json(&cast->calls[i]));
		failed += cast->calls[i].status < 200 || cast->calls[i].status > 299;
	}
	kvw_admin_http_json_take(conn, failed == 0 ? 200 : 207, "",
		json_pack("{s:s, s:I, s:o}", "path", cast->path->path, "failed", failed, "workers",
			list));
}

static void deliver_mail(struct kvw_mail *mail, struct kvw_server_loop *loop)
{
	struct cast *cast = (struct cast *)mail;
	struct kvw_conn *conn = kvw_conn_settle(&cast->base);

	(void)loop;
	if (conn != NULL) {
		answer_client(cast, conn);
		kvw_conn_advance(conn);
	}
	cast_destroy(cast);
}

static void gone(struct kvw_wait *base)
{
	struct cast *cast = (struct cast *)base;

	if (cast->over)
		return;
	(void)!kvw_conn_settle(base);
	cast->gone = true;
	if (cast->left_ns == 0)
		cast->left_ns = kvw_clock_ns();
}

/* A client that closes its side may still read the answer, but mostly does not. */
static void look_for_client(struct cast *cast)
{
	if (cast->left_ns == 0 && !cast->gone && cast->base.conn->io.peer_closed)
		cast->left_ns = kvw_clock_ns();
}

static void cast_over(struct cast *cast)
{
	struct kvw_broadcast_state *state = &cast->broadcaster->state;

	TAILQ_REMOVE(&cast->broadcaster->casts, cast, entry);
	atomic_fetch_sub(&state->running, 1);
	look_for_client(cast);
	atomic_fetch_add(cast->left_ns != 0 ? &state->deserted : &state->answered, 1);
	cast->over = true;
	if (cast->gone)
		cast_destroy(cast);
	else
		kvw_server_loop_post(cast->base.loop, &cast->base.mail);
}

/* --- casts ------------------------------------------------------------------------------------ */

static void call_begin(struct kvw_broadcaster *broadcaster, struct kvw_call *call)
{
	struct cast *cast = call->cast;

	cast->begun++;
	if (kvw_call_start(call, &cast->ask, broadcaster->fleet, &broadcaster->curl))
		broadcaster->running++;
	else
		cast->ended++;
}

/* Leaves out workers that have not been asked, since the client has left and its time is over. */
static void give_up(struct cast *cast)
{
	size_t left = cast->count - cast->begun;

	look_for_client(cast);
	if (cast->left_ns == 0 || left == 0 ||
		kvw_clock_ns() - cast->left_ns < KVW_BROADCAST_DESERTED_MS * KVW_NS_PER_MS)
		return;
	kvw_warn("admin",
		"a broadcast ends before all workers were asked: its client has left path=%s "
		"asked=%zu left=%zu",
		cast->path->path, cast->begun, left);
	atomic_fetch_add(&cast->broadcaster->state.given_up, 1);
	for (; cast->begun < cast->count; cast->begun++)
		(void)snprintf(cast->calls[cast->begun].error, CURL_ERROR_SIZE,
			"not asked: the client has left");
	cast->ended += left;
}

/* Starts calls that can start, and ends casts whose calls have ended. */
static void pump(struct kvw_broadcaster *broadcaster)
{
	struct cast *cast, *next;

	for (cast = TAILQ_FIRST(&broadcaster->casts); cast != NULL; cast = next) {
		next = TAILQ_NEXT(cast, entry);
		give_up(cast);
		while (broadcaster->running < KVW_BROADCAST_AT_ONCE && cast->begun < cast->count)
			call_begin(broadcaster, &cast->calls[cast->begun]);
		if (cast->ended == cast->count)
			cast_over(cast);
	}
}

static void on_done(void *user, CURLcode code)
{
	struct kvw_call *call = user;
	struct kvw_broadcaster *broadcaster = call->cast->broadcaster;

	broadcaster->running--;
	kvw_call_end(call, &call->cast->ask, code, broadcaster->fleet, broadcaster->prober);
	call->cast->ended++;
	pump(broadcaster);
}

/* --- requests --------------------------------------------------------------------------------- */

/* Writes path and query of the calls. False: too long. */
static bool set_target(struct cast *cast, const struct kvw_head *head)
{
	struct kvw_slice own = kvw_target_path(head->target);
	const char *at = own.data + own.len + 1, *end = head->target.data + head->target.len;
	struct kvw_writer w = KVW_WRITER(cast->target, sizeof(cast->target) - 1);
	const char *sign = "?";

	if (head->target.len + strlen(cast->path->path) >= sizeof(cast->target) - 1)
		return false;
	kvw_write(&w, kvw_slice_of(cast->path->path));
	while (at < end) {
		const char *stop = memchr(at, '&', (size_t)(end - at));
		struct kvw_slice part;

		stop = stop == NULL ? end : stop;
		part = (struct kvw_slice){at, (size_t)(stop - at)};
		at = stop + 1;
		if (part.len >= 8 && memcmp(part.data, "workers=", 8) == 0)
			continue;
		kvw_write(&w, kvw_slice_of(sign));
		kvw_write(&w, part);
		sign = "&";
	}
	cast->target[w.len] = '\0';
	return true;
}

static bool add_call(struct cast *cast, const struct kvw_worker_list *list, size_t index)
{
	struct kvw_call *call = &cast->calls[cast->count];
	struct kvw_slice id = kvw_worker_list_id(list, index);
	struct kvw_worker *worker = list->items[index].worker;
	const char *mark = memrchr(id.data, '@', id.len);

	if (worker != NULL && worker->rank != KVW_RANK_NONE) {
		worker = worker->lead; /* one call is enough for all ranks of a server */
		id.len = mark == NULL ? id.len : (size_t)(mark - id.data);
	}
	for (size_t i = 0; i < cast->count; i++)
		if (cast->calls[i].worker == worker)
			return true; /* named twice */
	if (worker == NULL || list->items[index].leaves || !kvw_worker_hold(worker))
		return false;
	call->cast = cast;
	call->worker = worker;
	call->id = strndup(id.data, id.len);
	cast->count++;
	return true;
}

/* Adds a call for each worker. names: the workers of ?workers=; NULL: all. *unknown: a name that is
 * no worker. */
static void add_calls(
	struct cast *cast, const struct kvw_worker_list *list, char *names, char **unknown)
{
	char *save = NULL, *name;
	size_t index;

	for (size_t i = 0; names == NULL && i < list->count; i++)
		(void)!add_call(cast, list, i);
	if (names == NULL)
		return;
	for (name = strtok_r(names, ",", &save); name != NULL; name = strtok_r(NULL, ",", &save)) {
		if ((kvw_worker_list_find(list, kvw_slice_of(name), &index) == KVW_OK ||
			    kvw_worker_list_find_server(list, kvw_slice_of(name), &index) ==
				    KVW_OK) &&
			add_call(cast, list, index))
			continue;
		*unknown = name;
		return;
	}
}

/* Copies the parts of the request that must outlive it. */
static bool take_body(struct cast *cast, struct kvw_conn *conn)
{
	const struct kvw_field *type =
		kvw_head_find(&conn->clients->head, KVW_SLICE("Content-Type"));
	struct kvw_slice body = kvw_conn_body(conn);
	int made;

	cast->body = malloc(body.len + 1);
	if (cast->body == NULL)
		return false;
	if (body.len > 0)
		memcpy(cast->body, body.data, body.len);
	if (type != NULL)
		made = asprintf(
			&cast->type, "Content-Type: %.*s", (int)type->value.len, type->value.data);
	else
		made = asprintf(
			&cast->type, "Content-Type:%s", body.len > 0 ? " application/json" : "");
	if (made < 0)
		cast->type = NULL;
	return cast->type != NULL;
}

/* Prepares a cast. Returns 0 if it may begin, or else the status of its refusal, with *why. names:
 * the wanted workers; NULL: all. */
static int prepare_cast(struct cast *cast, struct kvw_conn *conn, char *names, char why[320])
{
	struct kvw_worker_list list = {0};
	char *unknown = NULL;

	if (kvw_conn_body(conn).len > KVW_BROADCAST_BODY_MAX) {
		(void)snprintf(why, 320, "found a body above 1 MiB, expected less");
		return 413;
	}
	if (!set_target(cast, &conn->clients->head)) {
		(void)snprintf(why, 320, "the query is too long");
		return 414;
	}
	if (!take_body(cast, conn) ||
		kvw_worker_list_read(cast->broadcaster->members, &list) != KVW_OK) {
		(void)snprintf(why, 320, "out of memory");
		return 500;
	}
	cast->ask = (struct kvw_broadcast_ask){.effects = cast->path->effects,
		.method = cast->path->method,
		.target = cast->target,
		.body = cast->body,
		.type = cast->type,
		.body_len = kvw_conn_body(conn).len};
	cast->calls = calloc(list.count + 1, sizeof(*cast->calls));
	if (cast->calls != NULL)
		add_calls(cast, &list, names, &unknown);
	kvw_worker_list_finish(&list);
	if (unknown != NULL)
		(void)snprintf(
			why, 320, "workers: no worker `%.200s`; GET /workers lists them", unknown);
	else if (cast->count == 0)
		(void)snprintf(why, 320, "there is no worker to ask");
	return cast->calls == NULL ? 500 : unknown != NULL || cast->count == 0 ? 404 : 0;
}

/* Checks the query, which goes to the workers: a misspelt `workers` would ask all of them. False:
 * the request was refused. */
static bool query_is_clear(struct kvw_conn *conn)
{
	const struct kvw_head *head = &conn->clients->head;
	struct kvw_slice path = kvw_target_path(head->target);
	const char *at = path.data + path.len + 1, *end = head->target.data + head->target.len;
	bool named = false, clear = true;
	char message[192];

	while (at < end && clear) {
		const char *stop = memchr(at, '&', (size_t)(end - at)), *equals;
		struct kvw_suggest near;
		char *name;

		stop = stop == NULL ? end : stop;
		equals = memchr(at, '=', (size_t)(stop - at));
		name = kvw_admin_http_decode(
			(struct kvw_slice){at, (size_t)((equals == NULL ? stop : equals) - at)},
			true);
		kvw_suggest_start(&near, name == NULL ? "" : name);
		kvw_suggest_offer(&near, "workers", "workers");
		clear = name != NULL &&
			(near.best == NULL || (strcmp(name, "workers") == 0 && !named));
		named = named || near.best != NULL;
		(void)snprintf(message, sizeof(message),
			"found the parameter `%.40s`%s, expected `workers=ID,ID` once, or what the "
			"workers know",
			name == NULL ? "?" : name,
			named && !clear && strcmp(name, "workers") == 0 ? " twice" : "");
		free(name);
		at = stop + 1;
	}
	if (!clear)
		kvw_admin_http_error(conn, 400, "", message);
	return clear;
}

static void begin_broadcast(
	struct kvw_broadcaster *broadcaster, struct kvw_conn *conn, const struct path *path)
{
	struct cast *cast;
	char why[320] = "out of memory", *names;
	int status;

	if (!query_is_clear(conn))
		return;
	if (atomic_load(&broadcaster->state.running) >= KVW_BROADCASTS_MOST) {
		atomic_fetch_add(&broadcaster->state.refused, 1);
		(void)snprintf(why, sizeof(why),
			"%d broadcasts are under way, the most there may be", KVW_BROADCASTS_MOST);
		kvw_admin_http_error(conn, 503, "Retry-After: 10\r\n", why);
		return;
	}
	if (!kvw_admin_http_parameter(&conn->clients->head, "workers", &names)) {
		kvw_admin_http_error(
			conn, 400, "", "the query cannot be read, expected NAME=VALUE&NAME=VALUE");
		return;
	}
	cast = calloc(1, sizeof(*cast));
	status = 500;
	if (cast != NULL) {
		cast->base.mail.deliver = deliver_mail;
		cast->base.gone = gone;
		cast->broadcaster = broadcaster;
		cast->path = path;
		status = prepare_cast(cast, conn, names, why);
	}
	free(names);
	if (status != 0) {
		if (cast != NULL)
			cast_destroy(cast);
		kvw_admin_http_error(conn, status, "", why);
		return;
	}
	kvw_conn_await(conn, &cast->base);
	TAILQ_INSERT_TAIL(&broadcaster->casts, cast, entry);
	atomic_fetch_add(&broadcaster->state.running, 1);
	pump(broadcaster);
}

bool kvw_broadcast_http(struct kvw_broadcaster *broadcaster, struct kvw_conn *conn)
{
	struct kvw_slice path = kvw_target_path(conn->clients->head.target), name;

	if (path.len < sizeof(PREFIX) - 1 || memcmp(path.data, PREFIX, sizeof(PREFIX) - 1) != 0)
		return false;
	name = (struct kvw_slice){path.data + sizeof(PREFIX) - 1, path.len - (sizeof(PREFIX) - 1)};
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		if (!kvw_slice_equal(name, kvw_slice_of(paths[i].name)))
			continue;
		if (kvw_admin_http_method(conn, paths[i].method))
			begin_broadcast(broadcaster, conn, &paths[i]);
		return true;
	}
	kvw_admin_http_error(conn, 404, "",
		"found another path, expected " PREFIX
		" with sleep, wake_up, is_sleeping, reset_prefix_cache, load_lora_adapter or "
		"unload_lora_adapter");
	return true;
}

/* --- life ------------------------------------------------------------------------------------- */

enum kvw_err kvw_broadcaster_create(struct event_base *base, struct kvw_fleet *fleet,
	struct kvw_members *members, struct kvw_prober *prober, struct kvw_broadcaster **out)
{
	struct kvw_broadcaster *broadcaster = calloc(1, sizeof(*broadcaster));
	enum kvw_err err;

	if (broadcaster == NULL)
		return KVW_ENOMEM;
	broadcaster->fleet = fleet;
	broadcaster->members = members;
	broadcaster->prober = prober;
	TAILQ_INIT(&broadcaster->casts);
	err = kvw_curl_loop_init(&broadcaster->curl, base, on_done);
	if (err == KVW_OK)
		*out = broadcaster;
	else
		kvw_broadcaster_destroy(broadcaster);
	return err;
}

const struct kvw_broadcast_state *kvw_broadcaster_state(const struct kvw_broadcaster *broadcaster)
{
	return &broadcaster->state;
}

void kvw_broadcaster_destroy(struct kvw_broadcaster *broadcaster)
{
	struct cast *cast;

	if (broadcaster == NULL)
		return;
	while ((cast = TAILQ_FIRST(&broadcaster->casts)) != NULL) {
		TAILQ_REMOVE(&broadcaster->casts, cast, entry);
		cast_destroy(cast);
	}
	kvw_curl_loop_finish(&broadcaster->curl);
	free(broadcaster);
}
