/*
 * groups_http.c - serves the paths of /groups:
 *
 * 	GET /groups        a list, by model and name
 * 	PATCH /groups      new weights (groups_patch.h)
 *
 * Loops read a weight with each request that is divided, so that a change holds for the next one.
 * It holds until the next start, or until a reload reads other groups or weights of this model
 * (config/model_groups.h).
 */
#include "admin/groups_http.h"

#include <stdatomic.h>
#include <string.h>

#include "admin/groups_patch.h"
#include "admin/http.h"
#include "http/target.h"

static json_t *text_json(const char *text)
{
	return json_stringn(text, strlen(text));
}

static size_t usable_workers(const struct kvw_fleet *fleet, const struct kvw_model_group *group)
{
	struct kvw_candidate items[KVW_MAX_WORKERS];
	struct kvw_model *model;
	bool known;
	size_t count = kvw_fleet_candidates(
		       fleet, kvw_slice_of(group->serves), items, &known, &model),
	       usable = 0;

	for (size_t i = 0; known && i < count; i++) {
		const struct kvw_worker *worker = fleet->workers[items[i].id];

		usable +=
			items[i].usable && kvw_group_has(group, worker->group_key, worker->url_key);
	}
	return usable;
}

static json_t *page_of(const struct kvw_fleet *fleet, const struct kvw_model_group *group)
{
	json_t *page = json_object(), *workers = json_array();

	for (size_t i = 0; i < group->workers.count; i++)
		json_array_append_new(workers, text_json(group->workers.items[i]));
	json_object_set_new(page, "model", text_json(group->model));
	json_object_set_new(page, "group", text_json(group->group));
	json_object_set_new(page, "weight", json_real(atomic_load(group->weight_now)));
	json_object_set_new(page, "configured_weight", json_real(group->weight));
	json_object_set_new(page, "to", text_json(group->serves));
	json_object_set_new(page, "workers", workers);
	json_object_set_new(
		page, "usable_workers", json_integer((json_int_t)usable_workers(fleet, group)));
	return page;
}

/* Answers with the list. model: len 0: of all models. */
static void answer_list(
	const struct kvw_fleet *fleet, struct kvw_conn *conn, struct kvw_slice model)
{
	const struct kvw_config *config = fleet->config;
	json_t *pages = json_array();

	for (size_t i = 0; i < config->model_group_count; i++)
		if (model.len == 0 ||
			kvw_slice_equal(kvw_slice_of(config->model_groups[i].model), model))
			json_array_append_new(pages, page_of(fleet, &config->model_groups[i]));
	kvw_admin_http_json_take(conn, 200, "", pages);
}

static void change(const struct kvw_fleet *fleet, struct kvw_conn *conn)
{
	struct kvw_groups_patch patch;
	char why[160];
	int status = kvw_groups_patch_read(fleet->config, kvw_conn_body(conn), &patch, why);

	if (status != 200) {
		kvw_admin_http_error(conn, status, "", why);
		return;
	}
	kvw_groups_patch_apply(&patch);
	answer_list(fleet, conn, kvw_slice_of(patch.groups.items[0].model));
}

bool kvw_groups_http(const struct kvw_fleet *fleet, struct kvw_conn *conn)
{
	static const char *const none[] = {NULL};
	const struct kvw_head *head = &conn->clients->head;

	if (!kvw_slice_equal(kvw_target_path(head->target), KVW_SLICE("/groups")))
		return false;
	if (!kvw_admin_http_method(conn, "GET, HEAD, PATCH") ||
		!kvw_admin_http_query_is(conn, head, none))
		return true;
	if (head->get_method || head->head_method)
		answer_list(fleet, conn, (struct kvw_slice){NULL, 0});
	else
		change(fleet, conn);
	return true;
}
