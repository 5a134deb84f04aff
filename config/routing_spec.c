/*
 * routing_spec.c - reads intelligentRoutingSpec and sets the strategy that it means.
 *
 * If `enabled` is true, HyperPod's operator starts a router for the workers, with the strategy
 * `routingStrategy` or else prefixaware; otherwise a Kubernetes service gives the workers
 * connections in turn, which is roundrobin here. The section may come before or after `routing`, so
 * it is applied when the whole file was read.
 */
#include "config/routing_spec.h"

#include <stdlib.h>
#include <string.h>

#include "settings/suggest.h"

#define ENABLED  "enabled"
#define STRATEGY "routingStrategy"
#define SCALING  "autoScalingSpec"
#define EXPECTED "`" ENABLED ": true` and `" STRATEGY ": NAME` below it, indented"

static void report(struct kvw_build *build, const struct kvw_node *node, const char *member,
	const char *found, const char *expected)
{
	char shown[KVW_SCHEMA_MAX_PATH];

	snprintf(shown, sizeof(shown), KVW_ROUTING_SPEC "%s%s", member[0] != '\0' ? "." : "",
		member);
	kvw_report_mistake(
		build->walk.report, node->place, shown, "found %s, expected %s", found, expected);
	build->spec.whole = false;
}

static void report_unknown(struct kvw_build *build, const struct kvw_node *key)
{
	struct kvw_suggest near;
	char expected[128];

	kvw_suggest_start(&near, key->text);
	kvw_suggest_offer(&near, ENABLED, ENABLED);
	kvw_suggest_offer(&near, STRATEGY, STRATEGY);
	snprintf(expected, sizeof(expected), "one of " ENABLED ", " STRATEGY "%s%s%s",
		near.best != NULL ? "; did you mean `" : "", near.best != NULL ? near.best : "",
		near.best != NULL ? "`?" : "");
	report(build, key, key->text, "an unknown key", expected);
}

/* Parses a member's value into *out; *met becomes its node. A member that is there twice is a
 * mistake. */
static enum kvw_err walk_value(struct kvw_build *build, const struct kvw_type *type,
	const char *member, const struct kvw_node *node, const struct kvw_node **met, void *out)
{
	const struct kvw_key key = {.path = member, .type = type, .min = "", .max = ""};
	const struct kvw_given given = kvw_given_of(node);
	char shown[KVW_SCHEMA_MAX_PATH], once[64];
	enum kvw_err err;
	bool valid;

	if (*met != NULL) {
		snprintf(once, sizeof(once), "once: first given in line %zu",
			(*met)->key->place.line);
		report(build, node->key, member, "a second time", once);
		return KVW_OK;
	}
	*met = node;
	snprintf(shown, sizeof(shown), KVW_ROUTING_SPEC ".%s", member);
	err = kvw_walk_value(&build->walk, &key, shown, &given, out, &valid);
	build->spec.whole = build->spec.whole && valid;
	return err;
}

static enum kvw_err walk_member(struct kvw_build *build, const struct kvw_node *node)
{
	const char *name = node->key->text;
	char *strategy = NULL;
	enum kvw_err err;

	if (node->key->len != strlen(name)) /* a NUL inside */
		name = "";
	if (strcmp(name, ENABLED) == 0)
		return walk_value(build, &kvw_type_BOOL, ENABLED, node, &build->spec.enabled,
			&build->spec.on);
	if (strcmp(name, STRATEGY) == 0) {
		err = walk_value(build, &kvw_type_STRATEGY, STRATEGY, node, &build->spec.strategy,
			&strategy);
		free(strategy);
		return err;
	}
	if (strcmp(name, SCALING) == 0)
		report(build, node->key, SCALING, "a setting for Kubernetes",
			"none: kvway does not start replicas of itself, a HorizontalPodAutoscaler "
			"does");
	else
		report_unknown(build, node->key);
	return KVW_OK;
}

enum kvw_err kvw_routing_spec_walk(struct kvw_walk *walk, const struct kvw_node *node)
{
	struct kvw_build *build = (struct kvw_build *)walk;
	struct kvw_routing_spec *spec = &build->spec;
	enum kvw_err err = KVW_OK;
	char once[64];

	if (spec->node != NULL) {
		snprintf(once, sizeof(once), "once: first given in line %zu",
			spec->node->key->place.line);
		report(build, node->key, "", "a second time", once);
		return KVW_OK;
	}
	spec->node = node;
	spec->whole = node->kind != KVW_NODE_BAD;
	if (node->kind == KVW_NODE_MAP && node->count > 0) {
		for (const struct kvw_node *n = node->first; n != NULL && err == KVW_OK;
			n = n->next)
			if (n->key->kind == KVW_NODE_SCALAR)
				err = walk_member(build, n);
		if (err == KVW_OK && spec->enabled == NULL)
			report(build, node, ENABLED, "nothing", "true or false");
	} else if (node->kind != KVW_NODE_BAD) {
		report(build, node, "",
			node->kind == KVW_NODE_MAP ? "an empty mapping" : kvw_given_kind(node),
			EXPECTED);
	}
	return err;
}

enum kvw_err kvw_routing_spec_apply(struct kvw_build *build)
{
	const struct kvw_routing_spec *spec = &build->spec;
	struct kvw_met *met = &build->met[KVW_KEY_routing_strategy];
	const struct kvw_key *key = &kvw_keys[KVW_KEY_routing_strategy];
	struct kvw_given given;
	const char *wanted = "roundrobin";

	if (spec->node == NULL || !spec->whole)
		return KVW_OK;
	if (spec->on)
		wanted = spec->strategy != NULL ? spec->strategy->text : "prefixaware";
	given = (struct kvw_given){
		.place = spec->node->key->place, .text = kvw_slice_of(wanted), .node = NULL};
	if (!met->given) {
		met->given = true;
		met->place = given.place;
		return kvw_walk_value(
			&build->walk, key, KVW_ROUTING_SPEC, &given, build->config, &met->valid);
	}
	if (met->valid && strcmp(build->config->routing_strategy, wanted) != 0)
		kvw_report_mistake(build->walk.report, met->place, key->path,
			"found `%s`, expected `%s` as `" KVW_ROUTING_SPEC
			"` in line %zu says; keep one of the two",
			build->config->routing_strategy, wanted, given.place.line);
	return KVW_OK;
}
