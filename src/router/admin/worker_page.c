/*
 * worker_page.c - writes a worker as JSON.
 */
#include "admin/worker_page.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "admin/metrics_shard.h"
#include "config/schema.h"
#include "feeds/coordinator/coordinator.h"
#include "feeds/sources.h"

static json_t *text_json(struct kvw_slice text)
{
	return json_stringn(text.data, text.len);
}

static json_t *sources_json(uint32_t sources)
{
	json_t *list = json_array();

	for (int s = 0; s < KVW_SOURCE_COUNT; s++)
		if ((sources & 1u << s) != 0)
			json_array_append_new(list,
				json_string(kvw_member_source_name((enum kvw_member_source)s)));
	return list;
}

static json_t *models_json(const struct kvw_fleet *fleet, const struct kvw_worker *worker)
{
	const struct kvw_fleet_view *view =
		atomic_load_explicit(&fleet->view, memory_order_acquire);
	json_t *list = json_array();

	for (size_t i = 0; view != NULL && i < view->model_count; i++)
		if ((view->models[i].workers[worker->id / 64] >> worker->id % 64 & 1) != 0)
			json_array_append_new(list, json_string(view->models[i].model->name));
	return list;
}

static json_t *addresses_json(struct kvw_worker *worker)
{
	struct sockaddr_storage address;
	char host[NI_MAXHOST];
	json_t *list = json_array();

	for (size_t i = 0; i < KVW_ADDRESSES_MAX && kvw_worker_address(worker, i, &address); i++)
		if (getnameinfo((const struct sockaddr *)&address, kvw_address_len(&address), host,
			    sizeof(host), NULL, 0, NI_NUMERICHOST) == 0)
			json_array_append_new(list, json_string(host));
	return list;
}

static const char *health_name(const struct kvw_worker *worker)
{
	switch ((enum kvw_health)atomic_load_explicit(&worker->health, memory_order_relaxed)) {
	case KVW_HEALTH_UP:
		return "up";
	case KVW_HEALTH_DOWN:
		return "down";
	default:
		return "unknown";
	}
}

static void put_share(json_t *object, const char *key, uint64_t part, uint64_t whole)
{
	json_object_set_new(object, key,
		whole == 0 ? json_null()
			   : json_real(part >= whole ? 1 : (double)part / (double)whole));
}

/* Writes the cache hits that the worker's answers have reported. */
static void put_hits(
	json_t *object, const struct kvw_metrics *metrics, const struct kvw_worker *worker)
{
	struct kvw_worker_tokens tokens;

	kvw_metrics_worker_tokens(metrics, worker->id, &tokens);
	put_share(object, "predicted_hit_share", tokens.predicted,
		tokens.compared > 0 ? tokens.prompt : 0);
	put_share(object, "hit_share", tokens.cached, tokens.compared > 0 ? tokens.prompt : 0);
}

/* Writes what is known of the worker's cache by its own reports, and why that is not all. */
static void put_reports(
	json_t *object, const struct kvw_feed *feed, const struct kvw_worker *worker)
{
	json_t *reports = json_object();
	enum kvw_knowledge knowledge;
	char name[KVW_CE_INSTANCE_MOST + 1];

	for (int reporter = 0; feed != NULL && reporter < KVW_REPORTER_COUNT; reporter++) {
		struct kvw_feed_status status;
		json_t *report;

		if (kvw_feed_worker_status((struct kvw_feed *)feed, worker->id,
			    (enum kvw_reporter)reporter, &status) != KVW_OK)
			continue;
		report = json_object();
		json_object_set_new(
			report, "coverage", json_string(kvw_coverage_name(status.coverage)));
		json_object_set_new(report, "wrong", text_json(kvw_slice_of(status.wrong)));
		if (reporter == KVW_REPORTER_LMCACHE) {
			(void)kvw_sources_instance_of(feed, worker->id, name, sizeof(name));
			json_object_set_new(report, "instance", text_json(kvw_slice_of(name)));
		}
		json_object_set_new(
			reports, kvw_reporter_name((enum kvw_reporter)reporter), report);
	}
	json_object_set_new(object, "cache_told_by", reports);
	knowledge = feed == NULL ? KVW_KNOWS_NOT_ASKED : kvw_feed_knowledge(feed, worker->id);
	json_object_set_new(object, "knowledge",
		feed == NULL ? json_null() : json_string(kvw_knowledge_text(knowledge)->name));
}

/* Writes the numbers that the worker's entry in the configuration has, such as its weight. */
static void put_settings(json_t *object, const struct kvw_worker *worker)
{
	for (size_t i = 0; i < KVW_WORKER_KEY_COUNT; i++) {
		const struct kvw_key *key = &kvw_worker_keys[i];
		char text[KVW_KEY_PRINT];

		if (key->type->owned || key->type->item != NULL || key->type->secret ||
			key->type->words != NULL)
			continue;
		kvw_key_print(key, &worker->config, text);
		json_object_set_new(object, key->path, json_real(strtod(text, NULL)));
	}
}

static void put_worker(json_t *object, struct kvw_worker *worker, const struct kvw_fleet *fleet,
	const struct kvw_metrics *metrics, int64_t now_ns)
{
	char fault[KVW_MODELS_FAULT_ROOM], source[KVW_KV_SOURCE_ROOM];

	json_object_set_new(object, "health", json_string(health_name(worker)));
	json_object_set_new(object, "usable", json_boolean(kvw_worker_usable(worker)));
	json_object_set_new(object, "ejected",
		json_boolean(kvw_ejection_state(&worker->ejection) != KVW_EJECTION_IN));
	json_object_set_new(object, "models", models_json(fleet, worker));
	json_object_set_new(object, "models_error",
		kvw_worker_models_fault(worker, fault) ? json_string(fault) : json_null());
	json_object_set_new(object, "inflight", json_integer(kvw_load_own_inflight(&worker->load)));
	json_object_set_new(object, "queue_seconds",
		json_real((double)kvw_load_queue_ns(&worker->load, now_ns) / 1e9));
	put_hits(object, metrics, worker);
	put_settings(object, worker);
	json_object_set_new(object, "role", json_string(kvw_role_name(worker->config.role)));
	kvw_worker_kv_source(worker, source);
	json_object_set_new(object, "kv_source",
		source[0] == '\0' ? json_null() : json_string(source));
	json_object_set_new(object, "rank",
		worker->rank == KVW_RANK_NONE ? json_null() : json_integer(worker->rank));
	json_object_set_new(object, "global_rank",
		atomic_load(&worker->global_rank) == KVW_RANK_UNKNOWN || worker->rank < 0
			? json_null()
			: json_integer(atomic_load(&worker->global_rank)));
	json_object_set_new(object, "group", text_json(kvw_slice_of(worker->config.group)));
	json_object_set_new(object, "identity", text_json(kvw_slice_of(worker->config.identity)));
	json_object_set_new(object, "addresses", addresses_json(worker));
	put_reports(object, metrics->sources.feed, worker);
}

json_t *kvw_worker_page(const struct kvw_worker_list *list, size_t index,
	const struct kvw_fleet *fleet, const struct kvw_metrics *metrics, int64_t now_ns)
{
	const struct kvw_member_view *view = &list->items[index];
	json_t *object = json_object();

	if (object == NULL)
		return NULL;
	json_object_set_new(object, "id", text_json(kvw_worker_list_id(list, index)));
	json_object_set_new(object, "url", json_string(view->url));
	json_object_set_new(object, "state",
		json_string(
			view->worker == NULL ? "removed" : kvw_worker_state_name(view->worker)));
	json_object_set_new(object, "sources", sources_json(view->sources));
	json_object_set_new(object, "rests", json_boolean(view->rests));
	json_object_set_new(object, "leaves", json_boolean(view->leaves));
	json_object_set_new(object, "leaves_in_ms",
		view->leaves ? json_integer(view->leaves_in_ms) : json_null());
	if (view->worker != NULL)
		put_worker(object, view->worker, fleet, metrics, now_ns);
	return object;
}

/* Returns the pages of a server's ranks; NULL: it has none. */
static json_t *server_page(const struct kvw_worker_list *list, const char *url,
	struct kvw_fleet *fleet, const struct kvw_metrics *metrics, int64_t now_ns)
{
	size_t wanted = strlen(url), len, first;
	json_t *pages;

	if (kvw_worker_list_find_server(list, kvw_slice_of(url), &first) != KVW_OK)
		return NULL;
	pages = json_array();
	for (size_t i = first; i < list->count; i++)
		if (kvw_rank_split(list->items[i].url, &len) != KVW_RANK_NONE && len == wanted &&
			memcmp(list->items[i].url, url, len) == 0)
			json_array_append_new(
				pages, kvw_worker_page(list, i, fleet, metrics, now_ns));
	return pages;
}

json_t *kvw_worker_page_of(struct kvw_members *members, const char *url, struct kvw_fleet *fleet,
	const struct kvw_metrics *metrics, int64_t now_ns)
{
	struct kvw_worker_list list;
	json_t *page;
	size_t index;

	if (kvw_worker_list_read(members, &list) != KVW_OK)
		return NULL;
	page = server_page(&list, url, fleet, metrics, now_ns);
	if (page != NULL)
		;
	else if (kvw_worker_list_find(&list, kvw_slice_of(url), &index) == KVW_OK)
		page = kvw_worker_page(&list, index, fleet, metrics, now_ns);
	else
		page = json_pack("{s:s, s:s}", "url", url, "state", "removed");
	kvw_worker_list_finish(&list);
	return page;
}
