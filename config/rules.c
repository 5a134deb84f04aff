/*
 * rules.c - rules between keys.
 *
 * A mistake is shown at the key that the user wrote; if the user wrote both, at the one that the
 * rule limits. A rule between two defaults cannot fail: the tests load an empty configuration.
 */
#include "config/rules.h"

#include <inttypes.h>
#include <string.h>

#include "redis/url.h"
#include "settings/address.h"

/* Two keys for sizes, of which the first must have the lower value. */
struct order_rule {
	enum kvw_key_index less, more;
	const char *why;
};

static const struct order_rule order_rules[] = {
	{KVW_KEY_limits_low_water, KVW_KEY_limits_high_water,
		"reading must pause before it may go on"},
};

static uint64_t size_of_key(const struct kvw_config *config, enum kvw_key_index key)
{
	uint64_t size;

	memcpy(&size, (const char *)config + kvw_keys[key].offset, sizeof(size));
	return size;
}

static void check_order(struct kvw_build *build, const struct order_rule *rule)
{
	uint64_t less = size_of_key(build->config, rule->less);
	uint64_t more = size_of_key(build->config, rule->more);
	bool at_less = build->met[rule->less].given;
	enum kvw_key_index shown = at_less ? rule->less : rule->more;

	if (!build->met[rule->less].valid || !build->met[rule->more].valid)
		return;
	if (less < more)
		return;
	kvw_report_mistake(build->walk.report, build->met[shown].place, kvw_keys[shown].path,
		"found %" PRIu64 " bytes, expected %s than `%s` (%" PRIu64 " bytes): %s",
		at_less ? less : more, at_less ? "less" : "more",
		kvw_keys[at_less ? rule->more : rule->less].path, at_less ? more : less, rule->why);
}

static bool is_any_address(struct kvw_slice host)
{
	return kvw_slice_equal(host, KVW_SLICE("0.0.0.0")) ||
	       kvw_slice_equal(host, KVW_SLICE("::"));
}

/* Two equal addresses could both be bound, because event loops share ports, and each would get half
 * of the other's connections. So that is a mistake. */
static void check_listeners(struct kvw_build *build)
{
	struct kvw_address clients, admin;
	enum kvw_key_index shown =
		build->met[KVW_KEY_admin_listen].given ? KVW_KEY_admin_listen : KVW_KEY_listen;

	if (!build->met[KVW_KEY_listen].valid || !build->met[KVW_KEY_admin_listen].valid ||
		kvw_address_split(kvw_slice_of(build->config->listen), &clients) !=
			KVW_ADDRESS_OK ||
		kvw_address_split(kvw_slice_of(build->config->admin_listen), &admin) !=
			KVW_ADDRESS_OK)
		return;
	if (clients.port == 0 || clients.port != admin.port)
		return;
	if (!kvw_slice_equal_nocase(clients.host, admin.host) && !is_any_address(clients.host) &&
		!is_any_address(admin.host))
		return;
	kvw_report_mistake(build->walk.report, build->met[shown].place, kvw_keys[shown].path,
		"found `%s`, expected a port that differs from `%s` (%s)",
		shown == KVW_KEY_listen ? build->config->listen : build->config->admin_listen,
		kvw_keys[shown == KVW_KEY_listen ? KVW_KEY_admin_listen : KVW_KEY_listen].path,
		shown == KVW_KEY_listen ? build->config->admin_listen : build->config->listen);
}

static void check_redis(struct kvw_build *build, enum kvw_key_index key, const char *text)
{
	const struct kvw_met *met = &build->met[key];
	struct kvw_redis_url url;
	const char *expected;

	if (!met->valid || text[0] == '\0')
		return;
	expected = kvw_redis_url_parse(text, &url);
	if (expected != NULL)
		kvw_report_mistake(build->walk.report, met->place, kvw_keys[key].path,
			"found a value that is not printed here, expected %s", expected);
}

/* A replica must not be forgotten because a single message of it is late. */
static void check_life(struct kvw_build *build)
{
	const struct kvw_config *config = build->config;
	enum kvw_key_index shown = build->met[KVW_KEY_replicas_life_ms].given ? KVW_KEY_replicas_life_ms
									   : KVW_KEY_replicas_interval_ms;

	if (!build->met[KVW_KEY_replicas_life_ms].valid || !build->met[KVW_KEY_replicas_interval_ms].valid ||
		config->replicas_life_ms >= 3 * config->replicas_interval_ms)
		return;
	kvw_report_mistake(build->walk.report, build->met[shown].place, kvw_keys[shown].path,
		"found a life of %" PRId64 " ms with an interval of %" PRId64
		" ms, expected at least three intervals",
		config->replicas_life_ms, config->replicas_interval_ms);
}

/* Checks the prefix for braces. Names in Redis are {PREFIX:GROUP}:load and :seen and must be in one
 * slot of a Cluster, which braces inside the prefix would prevent. */
static void check_prefix(struct kvw_build *build)
{
	const struct kvw_met *met = &build->met[KVW_KEY_replicas_prefix];

	if (met->valid && strpbrk(build->config->replicas_prefix, "{}") != NULL)
		kvw_report_mistake(build->walk.report, met->place, kvw_keys[KVW_KEY_replicas_prefix].path,
			"found `%.60s`, expected neither { nor }: kvway puts those around it, for Redis Cluster",
			build->config->replicas_prefix);
}

void kvw_rules_check(struct kvw_build *build)
{
	for (size_t i = 0; i < sizeof(order_rules) / sizeof(order_rules[0]); i++)
		check_order(build, &order_rules[i]);
	check_listeners(build);
	check_redis(build, KVW_KEY_rate_sharing_redis, build->config->rate_sharing_redis);
	check_redis(build, KVW_KEY_replicas_redis, build->config->replicas_redis);
	check_life(build);
	check_prefix(build);
}

void kvw_rules_check_worker(
	struct kvw_report *report, const struct kvw_config *config, struct kvw_place url_place)
{
	size_t newest = config->worker_count - 1;
	const char *url = config->workers[newest].url;
	char shown[48];

	for (size_t i = 0; i < newest; i++) {
		if (config->workers[i].url == NULL || strcmp(config->workers[i].url, url) != 0)
			continue;
		snprintf(shown, sizeof(shown), "workers[%zu].url", newest);
		kvw_report_mistake(report, url_place, shown,
			"found `%s` again, expected each worker once: it is workers[%zu] already",
			url, i);
		return;
	}
}

void kvw_rules_missing_url(struct kvw_report *report, size_t index, struct kvw_place place)
{
	char shown[48];

	snprintf(shown, sizeof(shown), "workers[%zu].url", index);
	kvw_report_mistake(report, place, shown,
		"found nothing, expected the worker's URL such as http://127.0.0.1:8000");
}
