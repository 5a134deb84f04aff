/*
 * read.c - reads a cache's configuration from YAML, and checks rules between its keys.
 */
#include <string.h>

#include "chunk/l2_url.h"
#include "options/reader.h"

static bool is_empty(const char *text)
{
	return text == NULL || text[0] == '\0';
}

static void check_pauses(
	struct kvt_reader *r, size_t first, struct kvt_config *now, const struct kvt_config *before)
{
	const struct kvw_key *keys = r->walk.schema->keys;
	size_t open = first + KVT_SETTING_breaker_open_ns;
	size_t most = first + KVT_SETTING_breaker_open_max_ns;
	size_t at = r->walk.met[most].given ? most : open;

	if (now->breaker_open_max_ns >= now->breaker_open_ns ||
		(!r->walk.met[open].given && !r->walk.met[most].given))
		return;
	kvw_report_mistake(&r->report, r->walk.met[at].place, keys[at].path,
		"found a longest pause that is shorter than the first one, expected %s to be at "
		"least %s",
		keys[most].path, keys[open].path);
	now->breaker_open_ns = before->breaker_open_ns;
	now->breaker_open_max_ns = before->breaker_open_max_ns;
}

static void check_replay(
	struct kvt_reader *r, size_t first, struct kvt_config *now, const struct kvt_config *before)
{
	const struct kvw_met *met = &r->walk.met[first + KVT_SETTING_events_replay];
	const char *replay = r->walk.schema->keys[first + KVT_SETTING_events_replay].path;
	const char *publish = r->walk.schema->keys[first + KVT_SETTING_events_publish].path;

	if (!met->given || is_empty(now->events_replay))
		return;
	if (is_empty(now->events_publish)) {
		kvw_report_mistake(&r->report, met->place, replay,
			"found an address for replay but nothing to replay, expected `%s` to be "
			"set too",
			publish);
	} else if (strcmp(now->events_publish, now->events_replay) == 0) {
		kvw_report_mistake(&r->report, met->place, replay,
			"found the address of `%s`, expected an address of its own", publish);
	} else {
		return;
	}
	now->events_replay = before->events_replay;
}

static void check_node(
	struct kvt_reader *r, size_t first, struct kvt_config *now, const struct kvt_config *before)
{
	const struct kvw_met *met = &r->walk.met[first + KVT_SETTING_node_url];
	struct kvt_l2_url url;

	if (!met->given || (kvt_l2_url_parse(now->node_url, &url) == NULL &&
				   url.kind == KVT_L2_TIER_kvtierd))
		return;
	kvw_report_mistake(&r->report, met->place,
		r->walk.schema->keys[first + KVT_SETTING_node_url].path,
		"found another server, expected kvtierd://HOST:PORT");
	now->node_url = before->node_url;
}

/* Refuses a limit that the cache could not keep. */
static void check_quota(
	struct kvt_reader *r, size_t first, struct kvt_config *now, const struct kvt_config *before)
{
	size_t at = first + KVT_SETTING_tenant_l2_bytes;
	struct kvt_l2_url url;

	if (!r->walk.met[at].given || now->tenant_l2_bytes == 0 || is_empty(now->l2_url) ||
		kvt_l2_url_parse(now->l2_url, &url) != NULL || url.kind != KVT_L2_TIER_kvtierd)
		return;
	kvw_report_mistake(&r->report, r->walk.met[at].place, r->walk.schema->keys[at].path,
		"found a limit in tiered storage, expected `cache.protect.tenant_l1_bytes` and "
		"`cache.protect.tenant_nvme_bytes` in the configuration of kvtierd");
	now->tenant_l2_bytes = before->tenant_l2_bytes;
}

void kvt_reader_cache_rules(
	struct kvt_reader *r, size_t first, struct kvt_config *now, const struct kvt_config *before)
{
	check_pauses(r, first, now, before);
	check_replay(r, first, now, before);
	check_node(r, first, now, before);
	check_quota(r, first, now, before);
}

static void check_all(struct kvt_reader *r)
{
	kvt_reader_cache_rules(r, 0, r->walk.values, r->before);
}

enum kvt_status kvt_config_read(
	struct kvt_config *config, const char *name, const char *yaml, size_t len, char **report)
{
	struct kvt_config now;
	struct kvt_reader reader = {
		.walk = {.schema = &kvt_cache_settings, .values = &now},
		.before = config,
		.rules = check_all,
	};
	enum kvt_status status;

	if (config->abi != KVT_ABI || config->size < sizeof(*config))
		return KVT_EINVAL;
	now = *config;
	status = kvt_reader_run(&reader, name, yaml, len, &now.texts, report);
	if (status != KVT_ENOMEM)
		*config = now;
	return status;
}
