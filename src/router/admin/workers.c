/*
 * workers.c - serves /workers on the admin address: lists, adds, changes, drains and removes
 * workers.
 *
 * 	GET /workers            GET /workers/ID          POST /workers/ID/drain
 * 	POST /workers           PATCH /workers/ID        POST /workers/ID/undrain
 * 	                        DELETE /workers/ID
 */
#include "admin/workers.h"

#include <stdlib.h>
#include <string.h>

#include "admin/http.h"
#include "admin/worker_body.h"
#include "admin/worker_page.h"
#include "base/clock.h"
#include "settings/types.h"
#include "http/target.h"

#define WAIT_MOST_MS (INT64_C(3600) * 1000)
#define PATH         "/workers"

/* One request. */
struct visit {
	const struct kvw_workers_desk *desk;
	struct kvw_conn *conn;
	const struct kvw_head *head;
};

static void out_of_memory(const struct visit *visit)
{
	kvw_admin_http_error(visit->conn, 500, "", "out of memory");
}

/* Refuses a request; takes the text, which may be NULL. */
static void refuse_take(const struct visit *visit, int status, char *why)
{
	if (why == NULL)
		out_of_memory(visit);
	else
		kvw_admin_http_error(visit->conn, status, "", why);
	free(why);
}

static bool query_is_empty(const struct visit *visit)
{
	static const char *const none[] = {NULL};

	return kvw_admin_http_query_is(visit->conn, visit->head, none);
}

/* Reads the request's body. False: it is too large, and the request was answered. */
static bool body_of(const struct visit *visit, struct kvw_slice *body)
{
	*body = kvw_conn_body(visit->conn);
	if (body->len <= KVW_WORKER_BODY_MOST)
		return true;
	kvw_admin_http_error(
		visit->conn, 413, "", "found a body above 1 MiB, expected a list of workers");
	return false;
}

/* --- looking ---------------------------------------------------------------------------------- */

static json_t *list_page(const struct kvw_workers_desk *desk)
{
	struct kvw_worker_list list;
	int64_t now_ns = kvw_clock_ns();
	json_t *pages = json_array();

	if (pages == NULL || kvw_worker_list_read(desk->members, &list) != KVW_OK) {
		json_decref(pages);
		return NULL;
	}
	for (size_t i = 0; i < list.count && pages != NULL; i++) {
		json_t *page = kvw_worker_page(&list, i, desk->fleet, desk->metrics, now_ns);

		if (page == NULL || json_array_append_new(pages, page) != 0) {
			json_decref(pages);
			pages = NULL;
		}
	}
	kvw_worker_list_finish(&list);
	return pages;
}

static json_t *page_of(const struct kvw_workers_desk *desk, const char *url)
{
	return kvw_worker_page_of(desk->members, url, desk->fleet, desk->metrics, kvw_clock_ns());
}

void kvw_workers_answer(
	const struct kvw_workers_desk *desk, struct kvw_conn *conn, int status, const char *url)
{
	kvw_admin_http_json_take(conn, status, "", page_of(desk, url));
}

/* --- adding ----------------------------------------------------------------------------------- */

/* Checks the new workers before any is added. Returns 0, or the status of the refusal. */
static int check_new(const struct visit *visit, const struct kvw_config *config, char **why)
{
	size_t live = atomic_load(&visit->desk->fleet->live), added = 0;

	for (size_t i = 0; i < config->worker_count; i++) {
		const char *url = config->workers[i].url;
		uint32_t ranks = kvw_ranks_configured(
			visit->desk->fleet->config, &config->workers[i]);

		added += ranks > 0 ? ranks : 1;
		if (kvw_members_find(visit->desk->members, url) == NULL)
			continue;
		if (asprintf(why, "`%s` is a worker already; PATCH " PATH "/ID changes one", url) <
			0)
			*why = NULL;
		return 409;
	}
	if (added <= KVW_MAX_WORKERS - live)
		return 0;
	if (asprintf(why, "found %zu new workers, expected at most %zu: there are %zu already",
		    added, KVW_MAX_WORKERS - live, live) < 0)
		*why = NULL;
	return 507;
}

/* All, or none. */
static int add_all(const struct visit *visit, const struct kvw_config *config, char **why)
{
	struct kvw_members *members = visit->desk->members;
	char text[320] = "out of memory";
	int status = check_new(visit, config, why);
	enum kvw_err err = KVW_OK;
	size_t added = 0;

	if (status != 0)
		return status;
	while (added < config->worker_count && err == KVW_OK) {
		err = kvw_members_add(members, &config->workers[added], text, sizeof(text));
		added += err == KVW_OK;
	}
	if (err == KVW_OK)
		return 0;
	/* Not at once: a worker that had left and was taken back may have requests. */
	while (added-- > 0)
		(void)!kvw_members_remove(members, config->workers[added].url, false);
	*why = strdup(text);
	return err == KVW_ELIMIT ? 507 : err == KVW_EINVAL ? 409 : 500;
}

static json_t *added_page(const struct visit *visit, const struct kvw_config *config, bool many)
{
	json_t *pages;

	if (!many)
		return page_of(visit->desk, config->workers[0].url);
	pages = json_array();
	for (size_t i = 0; i < config->worker_count; i++)
		json_array_append_new(pages, page_of(visit->desk, config->workers[i].url));
	return pages;
}

static void add_worker(const struct visit *visit)
{
	struct kvw_config *config = NULL;
	struct kvw_slice body;
	char *why = NULL;
	bool many;
	enum kvw_err err;
	int status;

	if (!query_is_empty(visit) || !body_of(visit, &body))
		return;
	err = kvw_worker_body_read(body, &many, &config, &why);
	status = err == KVW_OK ? add_all(visit, config, &why) : 400;
	if (status == 0)
		kvw_admin_http_json_take(visit->conn, 201, "", added_page(visit, config, many));
	else
		refuse_take(visit, status, why);
	kvw_config_destroy(config);
}

/* --- one worker ------------------------------------------------------------------------------- */

/* Refuses a change of a single rank, since ranks have their server's settings and leave with it.
 * True: it is a rank, and the request was answered. */
static bool is_rank(const struct visit *visit, const char *url)
{
	char message[384];
	size_t len;

	if (kvw_rank_split(url, &len) == KVW_RANK_NONE)
		return false;
	(void)snprintf(message, sizeof(message),
		"found `%.200s`, expected its server `%.*s`: data-parallel ranks have its settings "
		"and leave with it; drain lets one rank rest",
		url, (int)(len < 100 ? len : 100), url);
	kvw_admin_http_error(visit->conn, 409, "", message);
	return true;
}

static void change(const struct visit *visit, const char *url)
{
	const struct kvw_worker_config *now = kvw_members_find(visit->desk->members, url);
	struct kvw_config *config = NULL;
	struct kvw_slice body;
	char *why = NULL, text[320] = "out of memory";
	enum kvw_err err;

	if (is_rank(visit, url) || !query_is_empty(visit) || !body_of(visit, &body))
		return;
	err = kvw_worker_body_change(body, now, &config, &why);
	if (err != KVW_OK) {
		refuse_take(visit, 400, why);
		return;
	}
	err = kvw_members_change(visit->desk->members, &config->workers[0], text, sizeof(text));
	if (err == KVW_OK)
		kvw_workers_answer(visit->desk, visit->conn, 200, url);
	else
		refuse_take(visit,
			err == KVW_ELIMIT   ? 507
			: err == KVW_EINVAL ? 409
					    : 500,
			strdup(text));
	kvw_config_destroy(config);
}

static void delete(const struct visit *visit, const char *url)
{
	static const char *const names[] = {"now", NULL};
	bool at_once;

	if (is_rank(visit, url) || !kvw_admin_http_query_is(visit->conn, visit->head, names) ||
		!kvw_admin_http_flag(visit->conn, visit->head, "now", &at_once))
		return;
	if (kvw_members_remove(visit->desk->members, url, at_once) == KVW_OK)
		kvw_workers_answer(visit->desk, visit->conn, 200, url);
	else
		out_of_memory(visit);
}

/* Reads ?wait=; 0 without it. False: it is wrong, and the request was answered. */
static bool wait_of(const struct visit *visit, int64_t *wait_ms)
{
	const struct kvw_type *type = &kvw_type_DURATION;
	struct kvw_fault fault = {0};
	union kvw_value value = {0};
	char *text, message[160];
	bool good = kvw_admin_http_parameter(visit->head, "wait", &text);

	*wait_ms = 0;
	if (good && text == NULL)
		return true;
	good = good && type->parse(type, kvw_slice_of(text), NULL, &value, &fault) == KVW_OK &&
	       value.integer >= 0 && value.integer <= WAIT_MOST_MS;
	*wait_ms = good ? value.integer : 0;
	if (!good) {
		(void)snprintf(message, sizeof(message),
			"wait: found `%.40s`, expected a time up to 1h such as 30s",
			text == NULL ? "" : text);
		kvw_admin_http_error(visit->conn, 400, "", message);
	}
	free(text);
	return good;
}

/* Reads ?remove=, or {"remove": true} in the body. False: it is wrong, and the request was
 * answered. */
static bool remove_of(const struct visit *visit, bool *remove)
{
	struct kvw_slice body;
	json_t *root, *flag;
	bool good;

	if (!kvw_admin_http_flag(visit->conn, visit->head, "remove", remove) ||
		!body_of(visit, &body))
		return false;
	if (body.len == 0)
		return true;
	root = json_loadb(body.data, body.len, JSON_REJECT_DUPLICATES, NULL);
	flag = json_object_get(root, "remove");
	good = json_is_object(root) && json_object_size(root) == (flag != NULL ? 1u : 0u) &&
	       (flag == NULL || json_is_boolean(flag));
	if (good)
		*remove = *remove || json_is_true(flag);
	else
		kvw_admin_http_error(visit->conn, 400, "",
			"found another body, expected none, or {\"remove\":true}");
	json_decref(root);
	return good;
}

static void not_joined(const struct visit *visit, const char *url)
{
	char message[384];

	(void)snprintf(message, sizeof(message),
		"`%.200s` is listed, but the fleet has no room for it (the log says why); "
		"DELETE " PATH "/ID gives it up",
		url);
	kvw_admin_http_error(visit->conn, 409, "", message);
}

/* Drains a worker. url: the worker's, or its server's for all ranks. */
static void drain_worker(
	const struct visit *visit, const struct kvw_member_view *view, const char *url)
{
	static const char *const names[] = {"wait", "remove", NULL};
	struct kvw_members *members = visit->desk->members;
	struct kvw_worker *worker = view->worker;
	bool remove;
	int64_t wait_ms;
	enum kvw_err err;

	if (!kvw_admin_http_query_is(visit->conn, visit->head, names) ||
		!wait_of(visit, &wait_ms) || !remove_of(visit, &remove))
		return;
	if (worker == NULL) {
		not_joined(visit, view->url);
		return;
	}
	if (remove && is_rank(visit, url))
		return;
	err = remove ? kvw_members_remove(members, url, false)
		     : kvw_members_rest(members, url, true);
	if (err != KVW_OK)
		out_of_memory(visit);
	else
		kvw_workers_await_drain(visit->desk, visit->conn, worker, url, wait_ms);
}

static void undrain(const struct visit *visit, const char *url)
{
	if (!query_is_empty(visit))
		return;
	if (kvw_members_rest(visit->desk->members, url, false) == KVW_OK)
		kvw_workers_answer(visit->desk, visit->conn, 200, url);
	else
		out_of_memory(visit);
}

/* Checks that a worker to be changed is a member that stays. False: it is not, and the request was
 * answered. */
static bool stays(const struct visit *visit, const struct kvw_member_view *view)
{
	char message[320];

	if (kvw_members_find(visit->desk->members, view->url) != NULL && !view->leaves)
		return true;
	(void)snprintf(message, sizeof(message), "`%.200s` %s; POST " PATH " adds it again",
		view->url, view->leaves ? "leaves" : "was removed");
	kvw_admin_http_error(visit->conn, 409, "", message);
	return false;
}

/* Serves a path below a worker's ID. verb: the part after the ID, with its slash. url: a copy of
 * the view's, which a change may free, or its server's. */
static void on_worker(const struct visit *visit, const struct kvw_worker_list *list, size_t index,
	struct kvw_slice verb, const char *url)
{
	const struct kvw_member_view *view = &list->items[index];

	if (kvw_slice_equal(verb, KVW_SLICE("/drain"))) {
		if (kvw_admin_http_method(visit->conn, "POST") && stays(visit, view))
			drain_worker(visit, view, url);
	} else if (kvw_slice_equal(verb, KVW_SLICE("/undrain"))) {
		if (kvw_admin_http_method(visit->conn, "POST") && stays(visit, view))
			undrain(visit, url);
	} else if (verb.len > 0) {
		kvw_admin_http_error(visit->conn, 404, "",
			"not found; here are " PATH "/ID, " PATH "/ID/drain and " PATH
			"/ID/undrain");
	} else if (!kvw_admin_http_method(visit->conn, "GET, HEAD, PATCH, DELETE")) {
		return;
	} else if (visit->head->get_method || visit->head->head_method) {
		if (query_is_empty(visit))
			kvw_admin_http_json_take(visit->conn, 200, "",
				strcmp(url, view->url) != 0
					? page_of(visit->desk, url)
					: kvw_worker_page(list, index, visit->desk->fleet,
						  visit->desk->metrics, kvw_clock_ns()));
	} else if (stays(visit, view)) {
		if (kvw_slice_equal(visit->head->method, KVW_SLICE("PATCH")))
			change(visit, url);
		else
			delete(visit, url);
	}
}

static void on_id(const struct visit *visit, struct kvw_slice coded, struct kvw_slice verb)
{
	char *id = kvw_admin_http_decode(coded, false), *url = NULL, message[384];
	struct kvw_worker_list list = {0};
	enum kvw_err err =
		id == NULL ? KVW_ENOTFOUND : kvw_worker_list_read(visit->desk->members, &list);
	size_t index, len;

	if (err == KVW_OK) {
		err = kvw_worker_list_find(&list, kvw_slice_of(id), &index);
		len = err == KVW_OK ? strlen(list.items[index].url) : 0;
	}
	if (err == KVW_ENOTFOUND && list.count > 0) {
		err = kvw_worker_list_find_server(&list, kvw_slice_of(id), &index);
		if (err == KVW_OK)
			(void)kvw_rank_split(list.items[index].url, &len);
	}
	if (err == KVW_OK) {
		url = strndup(list.items[index].url, len);
		err = url == NULL ? KVW_ENOMEM : KVW_OK;
	}
	if (err == KVW_OK) {
		on_worker(visit, &list, index, verb, url);
	} else if (err == KVW_ENOMEM) {
		out_of_memory(visit);
	} else {
		(void)snprintf(message, sizeof(message),
			err == KVW_ELIMIT ? "several workers have `%.200s`; give the whole URL, "
					    "percent-encoded"
					  : "no worker `%.200s`; GET " PATH " lists them",
			id == NULL ? "" : id);
		kvw_admin_http_error(visit->conn, err == KVW_ELIMIT ? 409 : 404, "", message);
	}
	kvw_worker_list_finish(&list);
	free(url);
	free(id);
}

bool kvw_workers_http(const struct kvw_workers_desk *desk, struct kvw_conn *conn)
{
	const struct visit visit = {desk, conn, &conn->clients->head};
	struct kvw_slice path = kvw_target_path(visit.head->target), id, verb;
	const size_t own = sizeof(PATH) - 1;
	const char *slash;

	if (path.len < own || memcmp(path.data, PATH, own) != 0 ||
		(path.len > own && path.data[own] != '/'))
		return false;
	if (path.len <= own + 1) {
		if (!kvw_admin_http_method(conn, "GET, HEAD, POST"))
			return true;
		if (visit.head->post_method)
			add_worker(&visit);
		else if (query_is_empty(&visit))
			kvw_admin_http_json_take(conn, 200, "", list_page(desk));
		return true;
	}
	id = (struct kvw_slice){path.data + own + 1, path.len - own - 1};
	slash = memchr(id.data, '/', id.len);
	verb = slash == NULL ? (struct kvw_slice){NULL, 0}
			     : (struct kvw_slice){slash, (size_t)(id.data + id.len - slash)};
	id.len -= verb.len;
	on_id(&visit, id, verb);
	return true;
}
