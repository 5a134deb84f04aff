/*
 * groups_http.c - see groups_http.h.
 *
 *	GET /groups        a list, by model and name
 *	PATCH /groups      {"model": NAME, "weights": {GROUP: NUMBER, ...}}; null: the file's weight
 *
 * Loops read a weight with each request that is divided, so that a change holds for the next one. It holds until the
 * next start, or until a reload reads other groups or weights of this model (config/model_groups.h).
 */
#include "admin/groups_http.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "admin/http.h"

#define WEIGHT_MOST 1e6

static json_t *text_json(const char *text)
{
	return json_stringn(text, strlen(text));
}

static size_t usable_workers(const struct kvw_fleet *fleet, const struct kvw_model_group *group)
{
	struct kvw_candidate items[KVW_MAX_WORKERS];
	struct kvw_model *model;
	bool known;
	size_t count = kvw_fleet_candidates(fleet, kvw_slice_of(group->serves), items, &known, &model), usable = 0;

	for (size_t i = 0; known && i < count; i++) {
		const struct kvw_worker *worker = fleet->workers[items[i].id];

		usable += items[i].usable && kvw_group_has(group, worker->group_key, worker->url_key);
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
	json_object_set_new(page, "usable_workers", json_integer((json_int_t)usable_workers(fleet, group)));
	return page;
}

/* len 0: of all models. */
static void answer_list(const struct kvw_fleet *fleet, struct kvw_conn *conn, struct kvw_slice model)
{
	const struct kvw_config *config = fleet->config;
	json_t *pages = json_array();

	for (size_t i = 0; i < config->model_group_count; i++)
		if (model.len == 0 || kvw_slice_equal(kvw_slice_of(config->model_groups[i].model), model))
			json_array_append_new(pages, page_of(fleet, &config->model_groups[i]));
	kvw_admin_http_json_take(conn, 200, "", pages);
}

/* What the body says of a group; false: nothing. *weight below 0: no weight. */
static bool said_of(const json_t *weights, const struct kvw_model_group *group, double *weight)
{
	const json_t *value = json_object_get(weights, group->group);

	if (value == NULL)
		return false;
	*weight = json_is_null(value) ? group->weight : json_is_number(value) ? json_number_value(value) : -1;
	if (!(*weight >= 0 && *weight <= WEIGHT_MOST))
		*weight = -1;
	return true;
}

/* NULL: all is good, and weights has each group's. */
static const char *check(
	const json_t *weights, struct kvw_model_groups groups, double new[KVW_MAX_MODEL_GROUPS], char why[160])
{
	size_t said = 0;
	double sum = 0;

	if (!json_is_object(weights) || json_object_size(weights) == 0)
		return "weights: expected a mapping from groups to numbers";
	for (size_t i = 0; i < groups.count; i++) {
		new[i] = atomic_load(groups.items[i].weight_now);
		said += said_of(weights, &groups.items[i], &new[i]);
		if (new[i] < 0) {
			(void)snprintf(why, 160, "weights.%s: expected a number from 0 to 1000000, or null",
				groups.items[i].group);
			return why;
		}
		sum += new[i];
	}
	if (said != json_object_size(weights))
		return "weights: found a group that the model does not have";
	return sum > 0 ? NULL : "weights: found 0 for every group, expected one above 0";
}

static void change(const struct kvw_fleet *fleet, struct kvw_conn *conn)
{
	struct kvw_slice body = kvw_conn_body(conn);
	json_t *root = json_loadb(body.data == NULL ? "" : body.data, body.len, JSON_REJECT_DUPLICATES, NULL);
	const char *model = json_string_value(json_object_get(root, "model")), *wrong;
	const json_t *weights = json_object_get(root, "weights");
	struct kvw_model_groups groups = kvw_config_groups(fleet->config, kvw_slice_of(model));
	double new[KVW_MAX_MODEL_GROUPS];
	char why[160];

	if (model == NULL || weights == NULL || json_object_size(root) != 2) {
		kvw_admin_http_error(
			conn, 400, "", "expected {\"model\": NAME, \"weights\": {GROUP: NUMBER}}");
	} else if (groups.count == 0) {
		kvw_admin_http_error(conn, 404, "", "model: this one has no groups (model_groups)");
	} else if ((wrong = check(weights, groups, new, why)) != NULL) {
		kvw_admin_http_error(conn, 400, "", wrong);
	} else {
		for (size_t i = 0; i < groups.count; i++)
			atomic_store(groups.items[i].weight_now, new[i]);
		answer_list(fleet, conn, kvw_slice_of(model));
	}
	json_decref(root);
}

bool kvw_groups_http(const struct kvw_fleet *fleet, struct kvw_conn *conn)
{
	static const char *const none[] = {NULL};
	const struct kvw_head *head = &conn->clients->head;

	if (!kvw_slice_equal(kvw_admin_http_path(head), KVW_SLICE("/groups")))
		return false;
	if (!kvw_admin_http_method(conn, "GET, HEAD, PATCH") || !kvw_admin_http_query_is(conn, head, none))
		return true;
	if (head->get_method || head->head_method)
		answer_list(fleet, conn, (struct kvw_slice){NULL, 0});
	else
		change(fleet, conn);
	return true;
}
