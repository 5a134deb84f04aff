/* reload.c - takes over a changed configuration file while requests run. */
#include "admin/reload.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <event2/event.h>

#include "auth/auth.h"
#include "base/clock.h"
#include "base/log.h"
#include "config/diff.h"
#include "config/model_groups.h"
#include "feeds/coordinator/coordinator.h"
#include "feeds/lmcache/lmcache.h"
#include "feeds/sources.h"
#include "feeds/tokens/tokens.h"
#include "fleet/members.h"

struct kvw_reload {
	struct kvw_reload_deps deps;
	struct kvw_reload_state state;
	struct event *watch; /* NULL: config.watch is off */
	struct stat seen;    /* the file's identity and time when it was last read or looked at */
};

/* --- the result, in JSON --- */

static json_t *keys_of(const struct kvw_config_change *keys, size_t count, bool reload)
{
	json_t *list = json_array();

	for (size_t i = 0; i < count; i++)
		if (keys[i].reload == reload)
			json_array_append_new(
				list, json_pack("{s:s, s:s, s:s}", "key", keys[i].path, "before",
					      keys[i].before, "after", keys[i].after));
	return list;
}

static json_t *workers_of(const struct kvw_config_diff *diff, enum kvw_worker_change_kind kind)
{
	json_t *list = json_array();

	for (size_t i = 0; i < diff->worker_count; i++)
		if (diff->workers[i].kind == kind)
			json_array_append_new(list, json_string(diff->workers[i].url));
	return list;
}

static json_t *answer_ok(const struct kvw_config_diff *diff)
{
	return json_pack("{s:s, s:o, s:o, s:{s:o, s:o, s:o}}", "result", "ok", "changed",
		keys_of(diff->keys, diff->key_count, true), "needs_restart",
		keys_of(diff->keys, diff->key_count, false), "workers", "added",
		workers_of(diff, KVW_WORKER_ADDED), "removed", workers_of(diff, KVW_WORKER_REMOVED),
		"changed", workers_of(diff, KVW_WORKER_CHANGED));
}

/* mistakes: a line each. */
static json_t *answer_refused(const char *message, const char *mistakes, int status)
{
	json_t *list = json_array();

	for (const char *line = mistakes; line != NULL && *line != '\0';) {
		size_t len = strcspn(line, "\n");

		json_array_append_new(list, json_stringn(line, len));
		line += len + (line[len] == '\n');
	}
	return json_pack("{s:s, s:{s:s, s:i}, s:o}", "result", "refused", "error", "message",
		message, "code", status, "mistakes", list);
}

/* --- in order --- */

static void log_lines(const char *text)
{
	for (const char *line = text; *line != '\0';) {
		int len = (int)strcspn(line, "\n");

		kvw_error("config", "%.*s", len, line);
		line += len + (line[len] == '\n');
	}
}

static int refuse_reload(struct kvw_reload *reload, int status, const char *message,
	const char *mistakes, json_t **answer)
{
	atomic_store(&reload->state.last_refused, true);
	atomic_fetch_add(&reload->state.refused, 1);
	kvw_error("config", "reload is refused, nothing has changed why=\"%s\"", message);
	log_lines(mistakes);
	*answer = answer_refused(message, mistakes, status);
	return status;
}

static bool needs_feeds(const char *strategy)
{
	const struct kvw_strategy_ops *ops = kvw_strategy_find(strategy);

	return ops != NULL && ops->prepare >= KVW_PREPARE_TOKENS;
}

/* Keeps the strategy if the change would need feeds to be started or stopped, since these are only
 * started and stopped with the process. */
static enum kvw_err keep_strategy(const struct kvw_config *before, struct kvw_config *after,
	struct kvw_config_diff *diff)
{
	char *kept;

	if (needs_feeds(before->routing_strategy) == needs_feeds(after->routing_strategy) ||
		strcmp(before->routing_strategy, after->routing_strategy) == 0)
		return KVW_OK;
	kept = strdup(before->routing_strategy);
	if (kept == NULL)
		return KVW_ENOMEM;
	free(after->routing_strategy);
	after->routing_strategy = kept;
	for (size_t i = 0; i < diff->key_count; i++)
		if (strcmp(diff->keys[i].path, "routing.strategy") == 0) {
			diff->keys[i].reload = false;
			diff->restart_count++;
		}
	return KVW_OK;
}

static void log_changes(const struct kvw_config_diff *diff)
{
	for (size_t i = 0; i < diff->key_count; i++) {
		const struct kvw_config_change *key = &diff->keys[i];

		if (key->reload)
			kvw_info("config", "changed key=%s before=%s after=%s", key->path,
				key->before, key->after);
		else
			kvw_warn("config", "needs a restart key=%s in_force=%s file=%s", key->path,
				key->before, key->after);
	}
}

/* Notifies parts that do not read the settings each time. */
static void notify_parts(struct kvw_reload *reload, const struct kvw_config *config)
{
	kvw_log_set_level((enum kvw_log_level)config->log_level);
	if (reload->deps.tokens != NULL)
		kvw_tokens_reconfigure(reload->deps.tokens, config);
	if (reload->deps.sources != NULL)
		kvw_sources_reconfigure(reload->deps.sources, config);
	if (reload->deps.feed != NULL) {
		kvw_lmcache_reconfigure(reload->deps.feed, config);
		kvw_coordinator_reconfigure(reload->deps.feed, config);
	}
	if (reload->deps.auth != NULL)
		kvw_auth_reload(reload->deps.auth);
}

/* Puts the configuration into force; takes it. Nothing has changed unless KVW_OK is returned. */
static enum kvw_err put_into_force(struct kvw_reload *reload, struct kvw_config *config)
{
	struct kvw_fleet *fleet = reload->deps.fleet;
	struct kvw_members_change change;
	struct kvw_settings *settings;
	enum kvw_err err;

	kvw_model_groups_keep(fleet->config, config);
	err = kvw_settings_next(fleet->settings, config, &settings);

	if (err != KVW_OK) {
		kvw_config_destroy(config);
		return err;
	}
	kvw_fleet_set_settings(fleet, settings);
	kvw_settings_apply(settings);
	notify_parts(reload, config);
	if (kvw_members_set(reload->deps.members, KVW_SOURCE_CONFIG, config->workers,
		    config->worker_count, &change) != KVW_OK)
		kvw_error("config", "out of memory: not all workers of the file are known");
	/* Only now, so that a worker that the file no longer lists does not come back for a
	 * moment. */
	kvw_members_forgive(reload->deps.members);
	return KVW_OK;
}

static int take_over(
	struct kvw_reload *reload, struct kvw_config *config, const char *by, json_t **answer)
{
	const struct kvw_config *before = reload->deps.fleet->config;
	struct kvw_config_diff *diff = NULL;
	enum kvw_err err = kvw_config_diff(before, config, kvw_strategies, &diff);

	if (err == KVW_OK)
		err = kvw_config_take_restart_keys(before, config, kvw_strategies);
	if (err == KVW_OK)
		err = keep_strategy(before, config, diff);
	if (err == KVW_OK)
		err = put_into_force(reload, config);
	else
		kvw_config_destroy(config);
	if (err != KVW_OK) {
		kvw_config_diff_destroy(diff);
		return refuse_reload(reload, 500, "out of memory", "", answer);
	}
	kvw_info("config", "reloaded by=%s keys=%zu workers=%zu need_restart=%zu", by,
		diff->key_count, diff->worker_count, diff->restart_count);
	log_changes(diff);
	atomic_store(&reload->state.need_restart, (uint32_t)diff->restart_count);
	atomic_store(&reload->state.last_refused, false);
	atomic_store(&reload->state.last_ok_s, kvw_clock_wall_ns() / KVW_NS_PER_S);
	atomic_fetch_add(&reload->state.ok, 1);
	*answer = answer_ok(diff);
	kvw_config_diff_destroy(diff);
	return 200;
}

int kvw_reload_run(struct kvw_reload *reload, const char *by, json_t **answer)
{
	struct kvw_config *config = NULL;
	char *mistakes = NULL;
	size_t len = 0;
	FILE *errors;
	enum kvw_err err;
	int status;

	if (reload->deps.path == NULL)
		return refuse_reload(reload, 409,
			"kvway was started with flags: there is no file to read (start it with -c "
			"FILE)",
			"", answer);
	errors = open_memstream(&mistakes, &len);
	if (errors == NULL)
		return refuse_reload(reload, 500, "out of memory", "", answer);
	(void)stat(reload->deps.path, &reload->seen);
	err = kvw_config_load(reload->deps.path, kvw_strategies, errors, &config);
	fclose(errors);
	if (err == KVW_OK)
		status = take_over(reload, config, by, answer);
	else if (err == KVW_ENOMEM)
		status = refuse_reload(reload, 500, "out of memory", "", answer);
	else
		status = refuse_reload(reload, 422,
			err == KVW_EIO ? "the file cannot be read" : "the file has mistakes",
			mistakes, answer);
	free(mistakes);
	return status;
}

/* --- watching the file --- */

/* Looks whether the file has changed. Kubernetes changes a mounted ConfigMap by replacing a
 * symbolic link, which stat follows. */
static void on_watch(evutil_socket_t fd, short what, void *arg)
{
	struct kvw_reload *reload = arg;
	struct stat now;
	json_t *answer;

	(void)fd;
	(void)what;
	if (stat(reload->deps.path, &now) != 0)
		return; /* the file is being replaced */
	if (now.st_mtim.tv_sec == reload->seen.st_mtim.tv_sec &&
		now.st_mtim.tv_nsec == reload->seen.st_mtim.tv_nsec &&
		now.st_size == reload->seen.st_size && now.st_ino == reload->seen.st_ino)
		return;
	(void)kvw_reload_run(reload, "config.watch", &answer);
	json_decref(answer);
}

enum kvw_err kvw_reload_create(
	struct event_base *base, const struct kvw_reload_deps *deps, struct kvw_reload **out)
{
	const struct timeval second = {.tv_sec = 1};
	struct kvw_reload *reload = calloc(1, sizeof(*reload));

	if (reload == NULL)
		return KVW_ENOMEM;
	reload->deps = *deps;
	atomic_store(&reload->state.last_ok_s, kvw_clock_wall_ns() / KVW_NS_PER_S);
	if (deps->path != NULL && deps->fleet->config->config_watch) {
		(void)stat(deps->path, &reload->seen);
		reload->watch = event_new(base, -1, EV_PERSIST, on_watch, reload);
		if (reload->watch == NULL || event_add(reload->watch, &second) != 0) {
			kvw_reload_destroy(reload);
			return KVW_ENOMEM;
		}
	}
	*out = reload;
	return KVW_OK;
}

void kvw_reload_destroy(struct kvw_reload *reload)
{
	if (reload == NULL)
		return;
	if (reload->watch != NULL)
		event_free(reload->watch);
	free(reload);
}

const struct kvw_reload_state *kvw_reload_state(const struct kvw_reload *reload)
{
	return &reload->state;
}
