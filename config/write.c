/*
 * write.c - writes a configuration as YAML.
 *
 * Keys are written section by section, in the order of the reference; a section is begun before its
 * first key.
 */
#include "config/write.h"

#include <stdlib.h>
#include <string.h>

#include "config/model_aliases.h"
#include "config/model_groups.h"
#include "config/own_keys.h"
#include "config/pools.h"
#include "config/rate_limits.h"
#include "config/service_levels.h"

#define ANY_WORKER "workers: [{url: http://127.0.0.1:8000}]"

struct writer {
	FILE *out;
	const struct kvw_config *config, *defaults;
	const char *open; /* path of the section that was begun last */
};

/* Writes a line such as `api_key: TEXT` at this depth. */
static enum kvw_err write_value(
	FILE *out, const struct kvw_key *key, const void *values, const char *name, size_t depth)
{
	char *text = NULL;
	enum kvw_err err = kvw_key_text(key, values, &text);

	if (err != KVW_OK)
		return err;
	fprintf(out, "%*s%s%s: %s\n", (int)(2 * depth), "", key->type->secret ? "# " : "", name,
		text);
	free(text);
	return KVW_OK;
}

/* Writes the lines that begin those sections, down to this one, that are not begun yet; returns the
 * depth of its keys. */
static size_t open_section(struct writer *w, const char *section)
{
	size_t depth = 0, len;
	bool same = true;

	for (const char *part = section; *part != '\0'; part += len + (part[len] == '.')) {
		size_t end = (size_t)(part - section) + strcspn(part, ".");

		len = strcspn(part, ".");
		same = same && strncmp(w->open, section, end) == 0 &&
		       (w->open[end] == '\0' || w->open[end] == '.');
		if (!same)
			fprintf(w->out, "%*s%.*s:\n", (int)(2 * depth), "", (int)len, part);
		depth++;
	}
	w->open = section;
	return depth;
}

/* Returns whether a key is written. Those that readers expect always are. */
static bool is_written(const struct writer *w, const struct kvw_key *key)
{
	return strcmp(key->path, "listen") == 0 || strcmp(key->path, "routing.strategy") == 0 ||
	       !kvw_key_same(key, w->config, w->defaults);
}

/* Writes the pools, after the other keys of their section. */
static enum kvw_err write_pools(struct writer *w)
{
	size_t depth;
	enum kvw_err err = KVW_OK;

	if (w->config->pool_count == 0)
		return KVW_OK;
	depth = open_section(w, "discovery.kubernetes");
	fprintf(w->out, "%*spools:\n", (int)(2 * depth), "");
	for (size_t p = 0; p < w->config->pool_count && err == KVW_OK; p++) {
		const struct kvw_pool_config *pool = &w->config->pools[p];
		const char *dash = "- ";

		for (size_t i = 0; i < KVW_POOL_KEY_COUNT && err == KVW_OK; i++) {
			if (!kvw_pool_has(pool, i))
				continue;
			fprintf(w->out, "%*s%s", (int)(2 * depth + 2), "", dash);
			dash = "  ";
			err = write_value(w->out, &kvw_pool_keys[i], pool, kvw_pool_keys[i].path, 0);
		}
	}
	return err;
}

static enum kvw_err write_keys(struct writer *w, const struct kvw_schema *schema)
{
	enum kvw_err err = KVW_OK;

	for (size_t s = 0; s < schema->section_count; s++) {
		const char *section = schema->sections[s].path;

		for (size_t i = 0; i < schema->key_count && err == KVW_OK; i++) {
			const struct kvw_key *key = &schema->keys[i];
			const char *name = kvw_name_in(section, key->path);

			if (name != NULL && is_written(w, key))
				err = write_value(
					w->out, key, w->config, name, open_section(w, section));
		}
		if (err == KVW_OK && strcmp(section, "discovery.kubernetes") == 0)
			err = write_pools(w);
	}
	return err;
}

static enum kvw_err write_worker(
	FILE *out, const struct kvw_worker_config *worker, const struct kvw_worker_config *defaults)
{
	const struct kvw_key *keys = kvw_worker_keys;
	enum kvw_err err;

	fputs("  - ", out);
	err = write_value(out, &keys[KVW_WORKER_KEY_url], worker, "url", 0);
	for (size_t i = 0; i < KVW_WORKER_KEY_COUNT && err == KVW_OK; i++)
		if (i != KVW_WORKER_KEY_url && !kvw_key_same(&keys[i], worker, defaults))
			err = write_value(out, &keys[i], worker, keys[i].path, 2);
	return err;
}

static enum kvw_err write_level(FILE *out, const struct kvw_service_level *level)
{
	const char *dash = "  - ";
	enum kvw_err err = KVW_OK;

	for (size_t i = 0; i < KVW_LEVEL_KEY_COUNT && err == KVW_OK; i++) {
		if (!kvw_service_level_has(level, i))
			continue;
		fputs(dash, out);
		dash = "    ";
		err = write_value(out, &kvw_level_keys[i], level, kvw_level_keys[i].path, 0);
	}
	return err;
}

static enum kvw_err write_rate(FILE *out, const struct kvw_rate_limit *limit)
{
	const char *dash = "  - ";
	enum kvw_err err = KVW_OK;

	for (size_t i = 0; i < KVW_RATE_KEY_COUNT && err == KVW_OK; i++) {
		if (!kvw_rate_limit_has(limit, i))
			continue;
		fputs(dash, out);
		dash = "    ";
		err = write_value(out, &kvw_rate_keys[i], limit, kvw_rate_keys[i].path, 0);
	}
	return err;
}

static enum kvw_err write_aliases(FILE *out, const struct kvw_config *config)
{
	char *text = NULL;
	enum kvw_err err = config->model_alias_count > 0 ? kvw_model_aliases_text(config, &text) : KVW_OK;

	if (text != NULL)
		fprintf(out, KVW_MODELS ": %s\n", text);
	free(text);
	return err;
}

static enum kvw_err write_group(FILE *out, const struct kvw_model_group *group)
{
	const char *dash = "  - ";
	enum kvw_err err = KVW_OK;

	for (size_t i = 0; i < KVW_GROUP_KEY_COUNT && err == KVW_OK; i++) {
		if (!kvw_model_group_has(group, i))
			continue;
		fputs(dash, out);
		dash = "    ";
		err = write_value(out, &kvw_group_keys[i], group, kvw_group_keys[i].path, 0);
	}
	return err;
}

enum kvw_err kvw_config_write(FILE *out, const struct kvw_config *config,
	const struct kvw_strategy_ops *const *strategies)
{
	struct kvw_config *defaults = NULL;
	struct kvw_own_keys own;
	struct writer w = {.out = out, .config = config, .open = ""};
	enum kvw_err err = kvw_config_parse(
		"defaults", ANY_WORKER, strlen(ANY_WORKER), strategies, out, &defaults);

	if (err != KVW_OK)
		return err;
	w.defaults = defaults;
	kvw_own_keys_init(&own, strategies);
	err = write_keys(&w, &own.schema);
	if (err == KVW_OK && config->service_level_count > 0)
		fputs(KVW_SERVICE_LEVELS ":\n", out);
	for (size_t i = 0; i < config->service_level_count && err == KVW_OK; i++)
		err = write_level(out, &config->service_levels[i]);
	if (err == KVW_OK && config->rate_limit_count > 0)
		fputs(KVW_RATE_LIMITS ":\n", out);
	for (size_t i = 0; i < config->rate_limit_count && err == KVW_OK; i++)
		err = write_rate(out, &config->rate_limits[i]);
	if (err == KVW_OK)
		err = write_aliases(out, config);
	if (err == KVW_OK && config->model_group_count > 0)
		fputs(KVW_MODEL_GROUPS ":\n", out);
	for (size_t i = 0; i < config->model_group_count && err == KVW_OK; i++)
		err = write_group(out, &config->model_groups[i]);
	if (err == KVW_OK && config->worker_count > 0) /* none: `discovery` finds them */
		fputs("workers:\n", out);
	for (size_t i = 0; i < config->worker_count && err == KVW_OK; i++)
		err = write_worker(out, &config->workers[i], &defaults->workers[0]);
	kvw_config_destroy(defaults);
	return err;
}
