/*
 * rules_pools.c - rules for discovery.kubernetes.pools.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/label_selector.h"
#include "config/pools.h"
#include "config/rules.h"

#define DNS_LABEL_MOST 63
#define PORT_NAME_MOST 15
#define DNS_NAME_MOST  253

/* Returns whether the text is a DNS label in lower case, the form of names of Services, namespaces
 * and ports. */
static bool is_label(const char *text, size_t most)
{
	size_t len = strlen(text);

	if (len == 0 || len > most || text[0] == '-' || text[len - 1] == '-')
		return false;
	return strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == len;
}

static bool is_port(const char *text)
{
	char *end;
	unsigned long port = strtoul(text, &end, 10);

	if (*end == '\0' && text[0] >= '0' && text[0] <= '9')
		return port >= 1 && port <= 65535;
	return is_label(text, PORT_NAME_MOST) && strspn(text, "0123456789-") < strlen(text);
}

static bool is_scale(const char *text)
{
	size_t len;

	if (strncmp(text, "deployments/", 12) == 0)
		text += 12;
	else if (strncmp(text, "statefulsets/", 13) == 0)
		text += 13;
	else
		return false;
	len = strlen(text);
	return len > 0 && len <= DNS_NAME_MOST && text[0] != '-' && text[0] != '.' &&
	       strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-.") == len && strstr(text, "..") == NULL;
}

struct checked {
	struct kvw_build *build;
	size_t index;
};

static void report(const struct checked *c, size_t key, const char *text, const char *expected)
{
	const struct kvw_met *met = &c->build->pool_met[c->index][key];
	char shown[80], quoted[KVW_REPORT_QUOTE];

	snprintf(shown, sizeof(shown), KVW_POOLS "[%zu].%s", c->index, kvw_pool_keys[key].path);
	kvw_report_mistake(c->build->walk.report,
		met->given ? met->place : c->build->pool_places[c->index], shown,
		"found %s, expected %s",
		text[0] == '\0' ? "nothing" : kvw_report_quote(quoted, text, strlen(text)), expected);
}

static void check_texts(const struct checked *c, const struct kvw_pool_config *pool)
{
	if (pool->selector[0] != '\0' && !kvw_label_selector_is_valid(kvw_slice_of(pool->selector)))
		report(c, KVW_POOL_KEY_selector, pool->selector,
			"a label selector such as `app=vllm,tier in (a, b),!canary`");
	if (pool->service[0] != '\0' && !is_label(pool->service, DNS_LABEL_MOST))
		report(c, KVW_POOL_KEY_service, pool->service, "the name of a Service");
	if (pool->namespace[0] != '\0' && !is_label(pool->namespace, DNS_LABEL_MOST))
		report(c, KVW_POOL_KEY_namespace, pool->namespace, "the name of a namespace");
	if (pool->port[0] != '\0' ? !is_port(pool->port) : pool->selector[0] != '\0')
		report(c, KVW_POOL_KEY_port, pool->port,
			"a port's number such as `8000`, or its name");
	if (pool->scale[0] != '\0' && !is_scale(pool->scale))
		report(c, KVW_POOL_KEY_scale, pool->scale, "`deployments/NAME` or `statefulsets/NAME`");
	if (pool->models_from[0] != '\0' &&
		!kvw_label_key_is_valid(kvw_slice_of(pool->models_from)))
		report(c, KVW_POOL_KEY_models_from, pool->models_from,
			"the name of an annotation or a label");
	if (pool->weight_from[0] != '\0' &&
		!kvw_label_key_is_valid(kvw_slice_of(pool->weight_from)))
		report(c, KVW_POOL_KEY_weight_from, pool->weight_from,
			"the name of an annotation or a label");
}

static bool is_whole(const struct kvw_build *build, size_t index)
{
	for (size_t key = 0; key < KVW_POOL_KEY_COUNT; key++)
		if (!build->pool_met[index][key].valid)
			return false;
	return true;
}

/* Checks that the pool's name in metrics is not another pool's: two pools of Services with the same
 * name in different namespaces need names of their own. */
static void check_name(const struct checked *c)
{
	char name[KVW_POOL_SHOWN], other[KVW_POOL_SHOWN];

	kvw_pool_shown(c->build->config, c->index, name);
	for (size_t i = 0; i < c->index; i++) {
		if (!is_whole(c->build, i))
			continue;
		kvw_pool_shown(c->build->config, i, other);
		if (strcmp(name, other) == 0) {
			report(c, KVW_POOL_KEY_name, name, "a name of its own for each pool");
			return;
		}
	}
}

static void check_pool(struct kvw_build *build, size_t index)
{
	const struct kvw_pool_config *pool = &build->config->pools[index];
	const struct checked c = {build, index};
	char shown[64];

	if (!is_whole(build, index))
		return;
	snprintf(shown, sizeof(shown), KVW_POOLS "[%zu]", index);
	if ((pool->selector[0] == '\0') == (pool->service[0] == '\0'))
		kvw_report_mistake(build->walk.report, build->pool_places[index], shown,
			"found %s, expected one of the two",
			pool->selector[0] == '\0' ? "neither `selector` nor `service`"
						  : "both `selector` and `service`");
	else
		check_texts(&c, pool);
	check_name(&c);
}

void kvw_rules_check_pools(struct kvw_build *build)
{
	const char *name = build->config->discovery_kube_namespace;
	const struct kvw_met *met = &build->met[KVW_KEY_discovery_kube_namespace];
	char quoted[KVW_REPORT_QUOTE];

	for (size_t i = 0; i < build->config->pool_count; i++)
		check_pool(build, i);
	if (met->valid && name[0] != '\0' && !is_label(name, DNS_LABEL_MOST))
		kvw_report_mistake(build->walk.report, met->place, "discovery.kubernetes.namespace",
			"found %s, expected the name of a namespace",
			kvw_report_quote(quoted, name, strlen(name)));
}
