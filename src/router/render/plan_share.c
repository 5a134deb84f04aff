/*
 * plan_share.c - decides how kvtierds and kvways share data.
 *
 * kvtierds of several nodes share through a Redis: the manifest's, else one that is rendered.
 * kvways use the same one to share their loads. A kvtierd also uses the node's own disk, if the
 * instance type has one.
 */
#include "render/plan_share.h"

#include <string.h>

#include "redis/url.h"

#define NVME "/opt/dlami/nvme" /* folder in which HyperPod mounts the disks of an instance */

static bool is_listed(const char *type)
{
	static const char *const types[] = {
#define KVW_INSTANCE_GPUS(family, size, gpus) "ml." family "." size,
#include "render/instances.def"
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(type, types[i]) == 0)
			return true;
	return false;
}

/* Returns whether each node that the manifest's instance types allow has disks of its own. */
static bool nodes_have_nvme(const struct kvw_manifest *manifest)
{
	const struct kvw_node *types = manifest->nodes[KVW_F_instanceTypes];
	const char *type = kvw_manifest_text(manifest,
		manifest->kind == KVW_KIND_JUMPSTART ? KVW_F_serverType : KVW_F_instanceType);

	if (types == NULL || types->count == 0)
		return is_listed(type);
	for (const struct kvw_node *node = types->first; node != NULL; node = node->next)
		if (node->kind != KVW_NODE_SCALAR || !is_listed(node->text))
			return false;
	return true;
}

static void take_nvme(const struct kvw_manifest *manifest, struct kvw_plan *plan)
{
	const char *asked = plan->options->nvme_path;

	if (asked == NULL)
		plan->nvme = nodes_have_nvme(manifest) ? NVME : "";
	else if (strcmp(asked, "none") != 0)
		plan->nvme = asked;
}

/* Sets the manifest's Redis for kvtierds and kvways. One that is on the workers' own machine can
 * only be used by workers. */
static void take_redis(
	const struct kvw_manifest *manifest, struct kvw_report *mistakes, struct kvw_plan *plan)
{
	const char *url = plan->joined ? kvw_manifest_text(manifest, KVW_F_l2Url) : plan->l2_url,
		   *expected;
	struct kvw_redis_url at;

	if (plan->own_redis)
		snprintf(plan->redis_url, sizeof(plan->redis_url), "redis://%s-redis.%s.svc.%s:%d",
			plan->name, plan->namespace, plan->options->cluster_domain, KVW_PORT_REDIS);
	else
		snprintf(plan->redis_url, sizeof(plan->redis_url), "%s", url);
	expected = kvw_redis_url_parse(plan->redis_url, &at);
	if (expected == NULL && at.kind == KVW_REDIS_UNIX)
		expected = "a server that every node reaches";
	if (expected != NULL) {
		if (plan->joined && !plan->own_redis)
			kvw_report_mistake(mistakes, manifest->nodes[KVW_F_l2Url]->place,
				kvw_fields[KVW_F_l2Url].path,
				"found a value that is not printed here, expected %s", expected);
		plan->redis_url[0] = '\0';
		return;
	}
	kvw_redis_url_print(&at, plan->redis_shown, sizeof(plan->redis_shown));
	plan->redis_secret = strchr(plan->redis_url, '@') != NULL;
}

static void say_kvtierd(const struct kvw_manifest *manifest, struct kvw_report *remarks,
	const struct kvw_plan *plan)
{
	char disk[400] = "; without a disk below, which `--nvme-path` names";

	if (plan->nvme[0] != '\0')
		snprintf(disk, sizeof(disk),
			"; below its memory are %.6g GiB in %.256s of the node",
			(double)plan->options->nvme_size / (double)(UINT64_C(1) << 30), plan->nvme);
	kvw_report_mistake(remarks, manifest->nodes[KVW_F_l2Backend]->place,
		kvw_fields[KVW_F_l2Backend].path, "%s%s%s",
		plan->joined ? "each node's kvtierd shares what it stores with the others through "
			     : "one worker, whose node's kvtierd shares with none",
		plan->own_redis ? "a Redis, which is rendered"
		: plan->joined  ? "the Redis of `l2CacheLocalUrl`"
				: "",
		disk);
}

void kvw_plan_share(
	const struct kvw_manifest *manifest, struct kvw_report *mistakes, struct kvw_plan *plan)
{
	bool named = kvw_manifest_text(manifest, KVW_F_l2Url)[0] != '\0';

	if (!plan->l2)
		return;
	if (plan->own_kvtierd) {
		plan->joined = named || plan->several;
		plan->own_redis = plan->joined && !named;
		take_nvme(manifest, plan);
	}
	if (plan->own_redis || plan->joined || kvw_redis_scheme_of(plan->l2_url) != NULL)
		take_redis(manifest, mistakes, plan);
}

static void say_routers(const struct kvw_manifest *manifest, struct kvw_report *remarks,
	const struct kvw_plan *plan)
{
	static const struct kvw_place on_line = {.flag = "--kvway-replicas"};
	const char *alone = "without a Redis each kvway knows its own load alone, and first tokens "
			    "take half as long again (simulated, deploy/README.md)";

	if (plan->redis_url[0] != '\0' || plan->controller)
		return;
	if (plan->kvway_scaling.on)
		kvw_report_mistake(remarks, manifest->nodes[KVW_F_routingScaling]->key->place,
			kvw_fields[KVW_F_routingScaling].path, "%s", alone);
	else if (plan->kvway_replicas > 1)
		kvw_report_mistake(remarks, on_line, NULL, "%s", alone);
	else if (plan->options->kvway_replicas == 0)
		kvw_report_mistake(remarks, manifest->nodes[KVW_F_spec]->key->place,
			kvw_fields[KVW_F_spec].path,
			"one kvway is rendered: two need a Redis to know each other's load "
			"(`--kvway-replicas 2`: without)");
}

void kvw_plan_share_remarks(const struct kvw_manifest *manifest, struct kvw_report *remarks,
	const struct kvw_plan *plan)
{
	if (plan->own_kvtierd)
		say_kvtierd(manifest, remarks, plan);
	say_routers(manifest, remarks, plan);
}
