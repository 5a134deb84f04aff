/*
 * broadcast.c - see broadcast.h.
 *
 * A request becomes a cast, with a call for each worker. Calls of all casts start in turn, up to the limit;
 * when the last call of a cast has ended its answer is given by mail to the server's loop. A client that
 * does not wait for it changes nothing: the workers are asked all the same.
 */
#include "admin/broadcast.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "admin/http.h"
#include "admin/worker_id.h"
#include "base/clock.h"
#include "fleet/curl_loop.h"
#include "fleet/probe_request.h"

#define PREFIX     "/broadcast/"
#define TARGET_MAX 8192

/* What a request does to a worker that carries it out. Bits. */
enum effect { SLEEPS = 1, WAKES = 2, EMPTIES = 4, OTHER_MODELS = 8 };

static const struct path {
	const char *name, *path, *method;
	int effects;
} paths[] = {
	{"sleep", "/sleep", "POST", SLEEPS | EMPTIES},
	{"wake_up", "/wake_up", "POST", WAKES},
	{"is_sleeping", "/is_sleeping", "GET", 0},
	{"reset_prefix_cache", "/reset_prefix_cache", "POST", EMPTIES},
	{"load_lora_adapter", "/v1/load_lora_adapter", "POST", OTHER_MODELS},
	{"unload_lora_adapter", "/v1/unload_lora_adapter", "POST", OTHER_MODELS},
};

struct cast;

/* One worker's part. */
struct call {
	struct cast *cast;
	struct kvw_worker *worker; /* held until it has ended */
	char *id;
	struct kvw_probe_request request;
	char *body;
	size_t len;
	bool running, barred, cut; /* barred: by this call. cut: its answer is longer */
	long status;               /* 0: error says why there is none */
	char error[CURL_ERROR_SIZE];
};

/* One request to the admin address. */
struct cast {
	struct kvw_wait base; /* first */
	TAILQ_ENTRY(cast) entry;
	struct kvw_broadcaster *broadcaster;
	const struct path *path;
	char target[TARGET_MAX]; /* of the calls */
	char *body, *type;       /* type: a field line */
	size_t body_len;
	struct call *calls;
	size_t count, begun, ended;
	bool over;     /* the mail is on its way, and frees it */
	bool deserted; /* the client has gone */
};

struct kvw_broadcaster {
	struct kvw_curl_loop curl;
	struct kvw_fleet *fleet;
	struct kvw_members *members;
	struct kvw_prober *prober;
	TAILQ_HEAD(, cast) casts; /* that are not over */
	size_t running;
};

/* --- calls ------------------------------------------------------------------------------------ */

static void call_finish(struct call *call)
{
	kvw_probe_request_finish(&call->request);
	if (call->worker != NULL)
		kvw_worker_let_go(call->worker);
	call->worker = NULL;
}

static void cast_destroy(struct cast *cast)
{
	for (size_t i = 0; i < cast->count; i++) {
		struct call *call = &cast->calls[i];

		if (call->running)
			kvw_curl_loop_abort(&cast->broadcaster->curl, call->request.easy);
		call_finish(call);
		free(call->body);
		free(call->id);
	}
	free(cast->calls);
	free(cast->body);
	free(cast->type);
	free(cast);
}

static size_t on_data(char *data, size_t size, size_t count, void *arg)
{
	struct call *call = arg;
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

static bool add_header(struct call *call, const char *line)
{
	struct curl_slist *list = curl_slist_append(call->request.headers, line);

	return list != NULL; /* the head of the list stays */
}

static bool set_request(struct call *call)
{
	const struct cast *cast = call->cast;
	CURL *easy = call->request.easy;
	bool ok = curl_easy_setopt(easy, CURLOPT_PRIVATE, call) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_WRITEDATA, call) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->error) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)KVW_BROADCAST_TIME_MS) == CURLE_OK;

	if (!ok || strcmp(cast->path->method, "POST") != 0)
		return ok;
	return curl_easy_setopt(easy, CURLOPT_POST, 1L) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_POSTFIELDS, cast->body) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)cast->body_len) ==
		       CURLE_OK &&
	       add_header(call, cast->type) && add_header(call, "Expect:");
}

static void said_sleep(struct call *call, bool asleep)
{
	kvw_fleet_said_sleep(call->cast->broadcaster->fleet, call->worker, asleep, kvw_clock_ns());
}

/* False: call->error says why. */
static bool call_start(struct call *call)
{
	struct cast *cast = call->cast;
	struct kvw_broadcaster *broadcaster = cast->broadcaster;
	bool asleep = (atomic_load(&call->worker->barred) & KVW_BARRED_ASLEEP) != 0;
	enum kvw_err err = kvw_probe_request_init(
		&call->request, broadcaster->fleet->config, call->worker, cast->target);

	if (err != KVW_OK || !set_request(call)) {
		(void)snprintf(call->error, sizeof(call->error), "%s",
			err == KVW_ENOTFOUND ? "its name has no address" : "out of memory");
		return false;
	}
	call->barred = (cast->path->effects & SLEEPS) != 0 && !asleep;
	if (call->barred)
		kvw_fleet_puts_to_sleep(broadcaster->fleet, call->worker);
	if (kvw_curl_loop_start(&broadcaster->curl, call->request.easy) == KVW_OK)
		return true;
	if (call->barred)
		said_sleep(call, false);
	(void)snprintf(call->error, sizeof(call->error), "out of memory");
	return false;
}

/* unsure: it may have carried it out all the same. */
static void take_effect(struct call *call, bool unsure)
{
	struct kvw_broadcaster *broadcaster = call->cast->broadcaster;
	bool done = call->status >= 200 && call->status < 300;
	int effects = call->cast->path->effects;

	if (call->barred)
		said_sleep(call, done || unsure);
	if (!done && !unsure)
		return;
	if ((effects & EMPTIES) != 0)
		kvw_fleet_cache_lost(broadcaster->fleet, call->worker, "a broadcast that empties it");
	if ((effects & WAKES) != 0 && done)
		said_sleep(call, false);
	if ((effects & (WAKES | OTHER_MODELS)) != 0 && broadcaster->prober != NULL)
		kvw_prober_hurry(broadcaster->prober, call->worker);
}

/* --- the answer ------------------------------------------------------------------------------- */

static json_t *answer_json(const struct call *call)
{
	json_t *answer = call->cut ? NULL : json_loadb(call->body, call->len, JSON_DECODE_ANY, NULL);

	if (answer == NULL)
		answer = json_stringn(call->len == 0 ? "" : call->body, call->len);
	return answer == NULL ? json_null() : answer; /* no UTF-8 */
}

static json_t *call_json(const struct call *call)
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

static void answer(struct cast *cast, struct kvw_conn *conn)
{
	json_t *list = json_array();
	json_int_t failed = 0;

	for (size_t i = 0; i < cast->count; i++) {
		json_array_append_new(list, call_json(&cast->calls[i]));
		failed += cast->calls[i].status < 200 || cast->calls[i].status > 299;
	}
	kvw_admin_http_json_take(conn, failed == 0 ? 200 : 207, "",
		json_pack("{s:s, s:I, s:o}", "path", cast->path->path, "failed", failed, "workers", list));
}

static void deliver(struct kvw_mail *mail, struct kvw_server_loop *loop)
{
	struct cast *cast = (struct cast *)mail;
	struct kvw_conn *conn = kvw_conn_settle(&cast->base);

	(void)loop;
	if (conn != NULL) {
		answer(cast, conn);
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
	cast->deserted = true;
}

static void cast_over(struct cast *cast)
{
	TAILQ_REMOVE(&cast->broadcaster->casts, cast, entry);
	cast->over = true;
	if (cast->deserted)
		cast_destroy(cast);
	else
		kvw_server_loop_post(cast->base.loop, &cast->base.mail);
}

/* --- casts ------------------------------------------------------------------------------------ */

static void call_begin(struct kvw_broadcaster *broadcaster, struct call *call)
{
	call->cast->begun++;
	call->running = call_start(call);
	if (call->running) {
		broadcaster->running++;
		return;
	}
	call_finish(call);
	call->cast->ended++;
}

/* Starts what may start, and ends what has ended. */
static void pump(struct kvw_broadcaster *broadcaster)
{
	struct cast *cast, *next;

	for (cast = TAILQ_FIRST(&broadcaster->casts); cast != NULL; cast = next) {
		next = TAILQ_NEXT(cast, entry);
		while (broadcaster->running < KVW_BROADCAST_AT_ONCE && cast->begun < cast->count)
			call_begin(broadcaster, &cast->calls[cast->begun]);
		if (cast->ended == cast->count)
			cast_over(cast);
	}
}

static void on_done(void *user, CURLcode code)
{
	struct call *call = user;
	struct kvw_broadcaster *broadcaster = call->cast->broadcaster;
	bool unsure = code != CURLE_OK && code != CURLE_COULDNT_CONNECT &&
		      code != CURLE_COULDNT_RESOLVE_HOST && code != CURLE_SSL_CONNECT_ERROR &&
		      code != CURLE_PEER_FAILED_VERIFICATION;

	call->running = false;
	broadcaster->running--;
	if (code == CURLE_OK) {
		(void)curl_easy_getinfo(call->request.easy, CURLINFO_RESPONSE_CODE, &call->status);
		kvw_probe_request_connected(&call->request, call->worker);
	} else if (call->error[0] == '\0') {
		(void)snprintf(call->error, sizeof(call->error), "%s", curl_easy_strerror(code));
	}
	take_effect(call, unsure);
	call_finish(call);
	call->cast->ended++;
	pump(broadcaster);
}

/* --- requests --------------------------------------------------------------------------------- */

/* path and query of the calls. False: too long. */
static bool set_target(struct cast *cast, const struct kvw_head *head)
{
	struct kvw_slice own = kvw_admin_http_path(head);
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
	struct call *call = &cast->calls[cast->count];
	struct kvw_slice id = kvw_worker_list_id(list, index);
	struct kvw_worker *worker = list->items[index].worker;

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

/* names: of ?workers=, NULL: all. Sets *unknown to one that is none. */
static void add_calls(struct cast *cast, const struct kvw_worker_list *list, char *names, char **unknown)
{
	char *save = NULL, *name;
	size_t index;

	for (size_t i = 0; names == NULL && i < list->count; i++)
		(void)!add_call(cast, list, i);
	if (names == NULL)
		return;
	for (name = strtok_r(names, ",", &save); name != NULL; name = strtok_r(NULL, ",", &save)) {
		if (kvw_worker_list_find(list, kvw_slice_of(name), &index) == KVW_OK &&
			add_call(cast, list, index))
			continue;
		*unknown = name;
		return;
	}
}

/* Copies what outlives the request. */
static bool take_body(struct cast *cast, struct kvw_conn *conn)
{
	const struct kvw_field *type = kvw_head_find(&conn->clients->head, KVW_SLICE("Content-Type"));
	struct kvw_slice body = kvw_conn_body(conn);
	int made;

	cast->body = malloc(body.len + 1);
	cast->body_len = body.len;
	if (cast->body == NULL)
		return false;
	if (body.len > 0)
		memcpy(cast->body, body.data, body.len);
	if (type != NULL)
		made = asprintf(&cast->type, "Content-Type: %.*s", (int)type->value.len, type->value.data);
	else
		made = asprintf(&cast->type, "Content-Type:%s", body.len > 0 ? " application/json" : "");
	if (made < 0)
		cast->type = NULL;
	return cast->type != NULL;
}

/* 0: it may begin; else the status, with *why. names: NULL, all. */
static int prepare(struct cast *cast, struct kvw_conn *conn, char *names, char why[320])
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
	cast->calls = calloc(list.count + 1, sizeof(*cast->calls));
	if (cast->calls != NULL)
		add_calls(cast, &list, names, &unknown);
	kvw_worker_list_finish(&list);
	if (unknown != NULL)
		(void)snprintf(why, 320, "workers: no worker `%.200s`; GET /workers lists them", unknown);
	else if (cast->count == 0)
		(void)snprintf(why, 320, "there is no worker to ask");
	return cast->calls == NULL ? 500 : unknown != NULL || cast->count == 0 ? 404 : 0;
}

static void begin(struct kvw_broadcaster *broadcaster, struct kvw_conn *conn, const struct path *path)
{
	struct cast *cast;
	char why[320] = "out of memory", *names;
	int status;

	if (!kvw_admin_http_parameter(&conn->clients->head, "workers", &names)) {
		kvw_admin_http_error(conn, 400, "", "the query cannot be read, expected NAME=VALUE&NAME=VALUE");
		return;
	}
	cast = calloc(1, sizeof(*cast));
	status = 500;
	if (cast != NULL) {
		cast->base.mail.deliver = deliver;
		cast->base.gone = gone;
		cast->broadcaster = broadcaster;
		cast->path = path;
		status = prepare(cast, conn, names, why);
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
	pump(broadcaster);
}

bool kvw_broadcast_http(struct kvw_broadcaster *broadcaster, struct kvw_conn *conn)
{
	struct kvw_slice path = kvw_admin_http_path(&conn->clients->head), name;

	if (path.len < sizeof(PREFIX) - 1 || memcmp(path.data, PREFIX, sizeof(PREFIX) - 1) != 0)
		return false;
	name = (struct kvw_slice){path.data + sizeof(PREFIX) - 1, path.len - (sizeof(PREFIX) - 1)};
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		if (!kvw_slice_equal(name, kvw_slice_of(paths[i].name)))
			continue;
		if (kvw_admin_http_method(conn, paths[i].method))
			begin(broadcaster, conn, &paths[i]);
		return true;
	}
	kvw_admin_http_error(conn, 404, "",
		"found another path, expected " PREFIX " with sleep, wake_up, is_sleeping, reset_prefix_cache, "
		"load_lora_adapter or unload_lora_adapter");
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
