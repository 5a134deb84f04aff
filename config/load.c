/*
 * load.c - reads a file into a configuration.
 *
 * The text becomes a tree (settings/document.h), which is walked by the schema (settings/walk.h).
 * Lists and sections that the schema cannot express have their own files: the list of workers is
 * read here, intelligentRoutingSpec in routing_spec.c, service_levels in service_levels.c,
 * rate_limits in rate_limits.c, models in model_aliases.c, model_groups in model_groups.c,
 * discovery.kubernetes.pools in pools.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/read_file.h"
#include "config/model_aliases.h"
#include "config/model_groups.h"
#include "config/pools.h"
#include "config/routing_spec.h"
#include "config/rate_limits.h"
#include "config/service_levels.h"
#include "kvway/route.h"

#define WORKERS "a list with an entry `- url: http://HOST:PORT` for each worker"

static enum kvw_err walk_workers(struct kvw_walk *w, const struct kvw_node *list)
{
	struct kvw_build *build = (struct kvw_build *)w;

	if (build->workers != NULL) {
		kvw_report_mistake(w->report, list->key->place, "workers",
			"found a second time, expected once: first given in line %zu",
			build->workers->key->place.line);
		return KVW_OK;
	}
	build->workers = list;
	if (list->kind == KVW_NODE_BAD)
		return KVW_OK;
	if (list->kind != KVW_NODE_LIST) {
		kvw_report_mistake(w->report, list->place, "workers", "found %s, expected " WORKERS,
			kvw_given_kind(list));
		return KVW_OK;
	}
	return list->count == 0 ? KVW_OK : kvw_build_list_workers(build, list);
}

static enum kvw_err walk_extra(struct kvw_walk *w, const struct kvw_node *value)
{
	if (strcmp(value->key->text, KVW_SERVICE_LEVELS) == 0)
		return kvw_service_levels_walk(w, value);
	if (strcmp(value->key->text, KVW_RATE_LIMITS) == 0)
		return kvw_rate_limits_walk(w, value);
	if (strcmp(value->key->text, KVW_MODELS) == 0)
		return kvw_model_aliases_walk(w, value);
	if (strcmp(value->key->text, KVW_MODEL_GROUPS) == 0)
		return kvw_model_groups_walk(w, value);
	if (strcmp(value->key->text, strrchr(KVW_POOLS, '.') + 1) == 0)
		return kvw_pools_walk(w, value);
	return kvw_routing_spec_walk(w, value);
}

/* Something else lists workers. */
static bool discovers(const struct kvw_build *build)
{
	const struct kvw_config *config = build->config;

	return (config->discovery_file != NULL && config->discovery_file[0] != '\0') ||
	       config->discovery_dns.count > 0 || build->pools != NULL;
}

static enum kvw_err walk_root(struct kvw_build *build, const struct kvw_node *root)
{
	struct kvw_place start = {.line = 1, .column = 1};
	enum kvw_err err = kvw_walk_root(&build->walk, root);
	bool keys = root == NULL || root->kind == KVW_NODE_MAP || kvw_node_is_null(root);

	if (err != KVW_OK || !keys || discovers(build))
		return err;
	if (build->workers == NULL)
		kvw_report_mistake(build->walk.report, start, "workers",
			"found nothing, expected " WORKERS
			", or `discovery.file`, `discovery.dns` or `discovery.kubernetes`");
	else if (build->workers->kind == KVW_NODE_LIST && build->workers->count == 0)
		kvw_report_mistake(build->walk.report, build->workers->place, "workers",
			"found an empty list, expected " WORKERS
			", or `discovery.file`, `discovery.dns` or `discovery.kubernetes`");
	return KVW_OK;
}

enum kvw_err kvw_config_parse(const char *name, const char *text, size_t len,
	const struct kvw_strategy_ops *const *strategies, FILE *errors, struct kvw_config **out)
{
	struct kvw_document document = {0};
	struct kvw_report report;
	struct kvw_build build;
	enum kvw_err err;

	kvw_report_start(&report, name, errors);
	err = kvw_document_parse(len > 0 ? text : "", len, &report, &document);
	if (err != KVW_OK)
		goto out;
	err = kvw_build_start(&build, &report, strategies);
	if (err != KVW_OK)
		goto out_document;
	build.walk.list = walk_workers;
	build.walk.extra = walk_extra;
	err = walk_root(&build, document.root);
	if (err == KVW_OK)
		err = kvw_routing_spec_apply(&build);
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
	err = kvw_read_all(fd, buffer, room, &len);
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
