/*
 * load.c - from a file to a configuration.
 *
 * The text becomes a tree (document.h), the tree is walked once in the order of the file: sections
 * are descended into, keys are looked up in the schema, values go to the build (build.h). The walk
 * only knows names; what a value may be is the type's business, what fits together the rules'.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/build.h"
#include "kvway/route.h"
#include "settings/suggest.h"
#include "settings/unknown.h"

/* One pass over a tree. */
struct walk {
	struct kvw_build *build;
	struct kvw_report *report;
	size_t section_lines[KVW_ALL_SECTIONS]; /* where each began; 0: not met */
	const struct kvw_node *workers;         /* the value of `workers`; NULL: not met */
	const struct kvw_schema *schema;
};

static enum kvw_err walk_section(struct walk *w, size_t section, const struct kvw_node *map);

/* A key of a section, for an example. */
static const char *first_name(const struct walk *w, const char *section)
{
	const char *name = NULL;

	for (size_t i = 0; i < w->schema->key_count && name == NULL; i++)
		name = kvw_name_in(section, w->schema->keys[i].path);
	return name != NULL ? name : "";
}

static enum kvw_err on_section(struct walk *w, size_t section, const struct kvw_node *node)
{
	const char *path = w->schema->sections[section].path;

	if (w->section_lines[section] != 0) {
		kvw_report_mistake(w->report, node->key->place, path,
			"found a second time, expected once: first given in line %zu",
			w->section_lines[section]);
		return KVW_OK;
	}
	w->section_lines[section] = node->key->place.line;
	if (node->kind == KVW_NODE_MAP)
		return walk_section(w, section, node);
	if (node->kind != KVW_NODE_BAD && !kvw_node_is_null(node))
		kvw_report_mistake(w->report, node->place, path,
			"found %s, expected keys such as `%s:` below it, indented",
			kvw_node_kind_name(node), first_name(w, path));
	return KVW_OK;
}

/* One key of a worker. */
static enum kvw_err walk_worker_key(struct walk *w, size_t index, const struct kvw_node *node,
	bool given[KVW_WORKER_KEY_COUNT], struct kvw_place *url_place)
{
	struct kvw_given value = {
		.place = node->place, .text = {node->text, node->len}, .node = node};
	char shown[KVW_SCHEMA_MAX_PATH];
	size_t key = kvw_schema_find_key(&kvw_worker_schema, node->key->text);
	struct kvw_suggest near;

	snprintf(shown, sizeof(shown), "workers[%zu].%s", index, node->key->text);
	if (key == KVW_WORKER_KEY_COUNT) {
		kvw_suggest_start(&near, node->key->text);
		for (size_t i = 0; i < KVW_WORKER_KEY_COUNT; i++)
			kvw_suggest_offer(&near, kvw_worker_keys[i].path, kvw_worker_keys[i].path);
		kvw_report_mistake(w->report, node->key->place, shown,
			"found an unknown key, expected one of url, models, api_key%s%s%s",
			near.best != NULL ? "; did you mean `" : "",
			near.best != NULL ? near.best : "", near.best != NULL ? "`?" : "");
		return KVW_OK;
	}
	if (given[key]) {
		kvw_report_mistake(
			w->report, node->key->place, shown, "found a second time, expected once");
		return KVW_OK;
	}
	given[key] = true;
	if (key == KVW_WORKER_KEY_url)
		*url_place = node->place;
	return kvw_build_set_worker(w->build, key, shown, &value);
}

static enum kvw_err walk_worker(struct walk *w, size_t index, const struct kvw_node *worker)
{
	bool given[KVW_WORKER_KEY_COUNT] = {false};
	struct kvw_place url_place = worker->place;
	char shown[48];
	enum kvw_err err = KVW_OK;

	kvw_build_add_worker(w->build);
	if (worker->kind == KVW_NODE_BAD)
		return KVW_OK;
	if (worker->kind != KVW_NODE_MAP) {
		snprintf(shown, sizeof(shown), "workers[%zu]", index);
		kvw_report_mistake(w->report, worker->place, shown,
			"found %s, expected an entry such as `- url: http://127.0.0.1:8000`",
			kvw_node_is_null(worker) ? "nothing" : kvw_node_kind_name(worker));
		return KVW_OK;
	}
	for (const struct kvw_node *node = worker->first; node != NULL && err == KVW_OK;
		node = node->next)
		if (node->key->kind == KVW_NODE_SCALAR)
			err = walk_worker_key(w, index, node, given, &url_place);
	return err == KVW_OK ? kvw_build_end_worker(w->build, given, worker->place, url_place)
			     : err;
}

static enum kvw_err walk_workers(struct walk *w, const struct kvw_node *list)
{
	size_t count = list->count < KVW_MAX_WORKERS ? list->count : KVW_MAX_WORKERS;
	const struct kvw_node *node = list->first;
	enum kvw_err err;

	if (list->kind == KVW_NODE_BAD)
		return KVW_OK;
	if (list->kind != KVW_NODE_LIST || list->count == 0) {
		kvw_report_mistake(w->report, list->place, "workers",
			"found %s, expected a list with an entry `- url: http://HOST:PORT` for "
			"each "
			"worker",
			list->kind == KVW_NODE_LIST ? "an empty list"
			: kvw_node_is_null(list)    ? "nothing"
						    : kvw_node_kind_name(list));
		return KVW_OK;
	}
	err = kvw_build_reserve_workers(w->build, count);
	for (size_t i = 0; i < count && err == KVW_OK; i++, node = node->next)
		err = walk_worker(w, i, node);
	if (err == KVW_OK && node != NULL)
		kvw_report_mistake(w->report, node->place, "workers",
			"found %zu workers, expected at most %d", list->count, KVW_MAX_WORKERS);
	return err;
}

/* One name of a section: a key, a section in it, the workers, or unknown. */
static enum kvw_err walk_name(struct walk *w, size_t section, const struct kvw_node *node)
{
	const struct kvw_own_keys *own = &w->build->own;
	const char *parent = w->schema->sections[section].path;
	struct kvw_given value = {
		.place = node->place, .text = {node->text, node->len}, .node = node};
	char path[KVW_SCHEMA_MAX_PATH];
	bool whole = node->key->len == strlen(node->key->text); /* no NUL inside */
	size_t key, inner;
	int n;

	n = snprintf(path, sizeof(path), "%s%s%s", parent, parent[0] != '\0' ? "." : "",
		node->key->text);
	whole = whole && n > 0 && (size_t)n < sizeof(path) && kvw_name_in(parent, path) != NULL;
	key = kvw_own_find_key(own, path);
	inner = kvw_own_find_section(own, path);
	if (whole && key < w->schema->key_count) {
		if (w->build->given[key]) /* a second one is shown at its name */
			value.place = node->key->place;
		return kvw_build_set(w->build, key, &value);
	}
	if (whole && inner < w->schema->section_count)
		return on_section(w, inner, node);
	if (!whole || section != KVW_SECTION_top || strcmp(path, "workers") != 0) {
		kvw_report_unknown(w->report, w->schema, parent, path, node->key);
		return KVW_OK;
	}
	if (w->workers != NULL) {
		kvw_report_mistake(w->report, node->key->place, path,
			"found a second time, expected once: first given in line %zu",
			w->workers->key->place.line);
		return KVW_OK;
	}
	w->workers = node;
	return walk_workers(w, node);
}

static enum kvw_err walk_section(struct walk *w, size_t section, const struct kvw_node *map)
{
	enum kvw_err err = KVW_OK;

	for (const struct kvw_node *node = map->first; node != NULL && err == KVW_OK;
		node = node->next)
		if (node->key->kind == KVW_NODE_SCALAR)
			err = walk_name(w, section, node);
	return err;
}

static enum kvw_err walk_root(struct walk *w, const struct kvw_node *root)
{
	struct kvw_place start = {.line = 1, .column = 1};
	enum kvw_err err = KVW_OK;

	if (root != NULL && root->kind == KVW_NODE_MAP) {
		err = walk_section(w, KVW_SECTION_top, root);
	} else if (root != NULL && !kvw_node_is_null(root)) {
		if (root->kind != KVW_NODE_BAD)
			kvw_report_mistake(w->report, root->place, NULL,
				"found %s, expected keys such as `listen:` and `workers:`",
				kvw_node_kind_name(root));
		return KVW_OK;
	}
	if (err == KVW_OK && w->workers == NULL)
		kvw_report_mistake(w->report, start, "workers",
			"found nothing, expected a list with an entry `- url: http://HOST:PORT` "
			"for "
			"each worker");
	return err;
}

enum kvw_err kvw_config_parse(const char *name, const char *text, size_t len,
	const struct kvw_strategy_ops *const *strategies, FILE *errors, struct kvw_config **out)
{
	struct kvw_document document = {0};
	struct kvw_report report;
	struct kvw_build build;
	struct walk w = {.build = &build, .report = &report};
	enum kvw_err err;

	kvw_report_start(&report, name, errors);
	err = kvw_document_parse(len > 0 ? text : "", len, &report, &document);
	if (err != KVW_OK)
		goto out;
	err = kvw_build_start(&build, &report, strategies);
	if (err != KVW_OK)
		goto out_document;
	w.schema = &build.own.schema;
	err = walk_root(&w, document.root);
	if (err == KVW_OK)
		err = kvw_build_end(&build, out);
	else
		kvw_build_drop(&build);
out_document:
	kvw_document_finish(&document);
out:
	kvw_report_finish(&report);
	return err;
}

/* Reads what there is, one byte more than allowed at most. Works for pipes too. */
static enum kvw_err read_all(int fd, char *buffer, size_t room, size_t *len)
{
	*len = 0;
	while (*len < room) {
		ssize_t n = read(fd, buffer + *len, room - *len);

		if (n == 0)
			break;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return KVW_EIO;
		*len += (size_t)n;
	}
	return KVW_OK;
}

enum kvw_err kvw_config_load(const char *path, const struct kvw_strategy_ops *const *strategies,
	FILE *errors, struct kvw_config **out)
{
	const size_t room = KVW_CONFIG_MAX_BYTES + 1;
	enum kvw_err err = KVW_EIO;
	char *buffer = NULL;
	size_t len = 0;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		fprintf(errors, "%s: cannot be opened: %s\n", path, strerror(errno));
		return KVW_EIO;
	}
	buffer = malloc(room);
	if (buffer == NULL) {
		err = KVW_ENOMEM;
		goto out;
	}
	err = read_all(fd, buffer, room, &len);
	if (err != KVW_OK) {
		fprintf(errors, "%s: cannot be read: %s\n", path, strerror(errno));
		goto out;
	}
	if (len == room) {
		fprintf(errors, "%s: found more than %u bytes, expected a configuration\n", path,
			KVW_CONFIG_MAX_BYTES);
		err = KVW_EINVAL;
		goto out;
	}
	err = kvw_config_parse(path, buffer, len, strategies, errors, out);
out:
	free(buffer);
	close(fd);
	return err;
}
