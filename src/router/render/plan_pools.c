/*
 * plan_pools.c - see plan_pools.h.
 *
 * Both pools have workers like others, with their own arguments behind the common ones: the
 * writers read a plan with `pool` set as any plan. vLLM's NixlConnector brings the KV from one pool
 * to the other, unless the manifest's own arguments name another connector. kvway must then know
 * that connector, and both pools must have the same.
 */
#include "render/plan_pools.h"

#include <string.h>

#include "render/plan_engine.h"
#include "settings/document.h"

#define INSTANCE_TYPE "node.kubernetes.io/instance-type"
#define ZONE          "topology.kubernetes.io/zone"
#define THRESHOLD     4096 /* the operator's default */

/* The plan being made. */
struct maker {
	const struct kvw_manifest *manifest;
	struct kvw_report *mistakes, *notes, *remarks;
	struct kvw_plan *plan;
};

/* The fields of an autoscaler. */
struct scaler_fields {
	enum kvw_field_id map, least, most, up, down;
};

/* The fields of a pool. */
struct pool_fields {
	const char *role, *suffix;
	enum kvw_field_id args, selector, replicas, resources, limits, requests;
	struct scaler_fields scaler;
};

static const struct scaler_fields workers_scaler = {KVW_F_scaling, KVW_F_scalingLeast,
					  KVW_F_scalingMost, KVW_F_scalingUp, KVW_F_scalingDown},
				  kvways_scaler = {KVW_F_routingScaling, KVW_F_routingScalingLeast,
					  KVW_F_routingScalingMost, KVW_F_routingScalingUp,
					  KVW_F_routingScalingDown};

static const struct pool_fields pool_fields[KVW_POOLS] = {
	[KVW_POOL_PREFILL] = {"prefill", "-prefill", KVW_F_prefillArgs, KVW_F_prefillSelector,
		KVW_F_prefillReplicas, KVW_F_prefillResources, KVW_F_prefillLimits,
		KVW_F_prefillRequests,
		{KVW_F_prefillScaling, KVW_F_prefillScalingLeast, KVW_F_prefillScalingMost,
			KVW_F_prefillScalingUp, KVW_F_prefillScalingDown}},
	[KVW_POOL_DECODE] = {"decode", "-decode", KVW_F_decodeArgs, KVW_F_decodeSelector,
		KVW_F_decodeReplicas, KVW_F_decodeResources, KVW_F_decodeLimits,
		KVW_F_decodeRequests,
		{KVW_F_decodeScaling, KVW_F_decodeScalingLeast, KVW_F_decodeScalingMost,
			KVW_F_decodeScalingUp, KVW_F_decodeScalingDown}},
};

static bool field_given(const struct maker *m, enum kvw_field_id id)
{
	return m->manifest->nodes[id] != NULL;
}

static void mistake(struct maker *m, enum kvw_field_id id, const char *text)
{
	kvw_report_mistake(
		m->mistakes, m->manifest->nodes[id]->place, kvw_fields[id].path, "%s", text);
}

/* Notes that a field has no effect, if the manifest has it. */
static void unused(struct maker *m, enum kvw_field_id id, const char *why)
{
	if (field_given(m, id))
		kvw_report_mistake(m->notes, m->manifest->nodes[id]->key->place,
			kvw_fields[id].path, "not used: %s", why);
}

static struct kvw_scaling read_scaling(struct maker *m, const struct scaler_fields *fields)
{
	const struct kvw_manifest *manifest = m->manifest;
	struct kvw_scaling scaling = {.on = true,
		.least = (int)kvw_manifest_int(manifest, fields->least),
		.most = (int)kvw_manifest_int(manifest, fields->most),
		.up_s = (int)kvw_manifest_int(manifest, fields->up),
		.down_s = (int)kvw_manifest_int(manifest, fields->down)};
	char text[160];

	if (scaling.least > scaling.most) {
		snprintf(text, sizeof(text),
			"found at least %d and at most %d replicas, expected no more than "
			"`maxReplicaCount`",
			scaling.least, scaling.most);
		mistake(m, field_given(m, fields->least) ? fields->least : fields->most, text);
	}
	if (scaling.least == 0) {
		scaling.least = 1;
		unused(m, fields->least, "a HorizontalPodAutoscaler keeps at least one pod");
	}
	return scaling;
}

static void scale_workers(struct maker *m)
{
	if (!field_given(m, KVW_F_scaling))
		return;
	m->plan->scaling = read_scaling(m, &workers_scaler);
	unused(m, KVW_F_replicas,
		"the autoscaler says how many workers there are, from `minReplicaCount` on");
}

static void scale_kvways(struct maker *m)
{
	if (!field_given(m, KVW_F_routingScaling))
		return;
	if (m->plan->controller)
		unused(m, KVW_F_routingScaling,
			"there is one kvway, to which LMCache's workers report");
	else if (m->plan->options->kvway_replicas > 0)
		unused(m, KVW_F_routingScaling, "`--kvway-replicas` says how many there are");
	else
		m->plan->kvway_scaling = read_scaling(m, &kvways_scaler);
}

/* Checks that a node selector and the fields of all workers do not name two places. */
static void check_selector(struct maker *m, const struct pool_fields *fields)
{
	const struct kvw_node *selector = m->manifest->nodes[fields->selector];
	bool types = field_given(m, KVW_F_instanceType) || field_given(m, KVW_F_instanceTypes);

	if (types && kvw_manifest_member(selector, INSTANCE_TYPE) != NULL)
		mistake(m, fields->selector,
			"found `" INSTANCE_TYPE "` together with `spec.instanceType` or "
			"`spec.instanceTypes`, expected one of them");
	if (m->plan->zone[0] != '\0' && kvw_manifest_member(selector, ZONE) != NULL)
		mistake(m, fields->selector,
			"found `" ZONE "` together with `topologySpec.availabilityZone`, expected "
			"one of them");
}

static void take_pool(struct maker *m, enum kvw_pool_id id)
{
	const struct pool_fields *fields = &pool_fields[id];
	struct kvw_plan *plan = m->plan, view;
	struct kvw_pool *pool = &plan->pools[id];
	bool own = field_given(m, fields->resources);

	*pool = (struct kvw_pool){.role = fields->role,
		.suffix = fields->suffix,
		.args = fields->args,
		.selector = fields->selector,
		.limits = own ? fields->limits : KVW_F_limits,
		.requests = own ? fields->requests : KVW_F_requests,
		.replicas = (int)kvw_manifest_int(m->manifest, fields->replicas)};
	if (field_given(m, fields->scaler.map)) {
		pool->scaling = read_scaling(m, &fields->scaler);
		unused(m, fields->replicas, "the autoscaler says how many there are");
	}
	if (field_given(m, fields->args) && plan->engine_flags != KVW_BY_ARGS)
		mistake(m, fields->args,
			plan->engine_flags == KVW_BY_ENV
				? "found arguments, expected none with `OPTION_` variables, which "
				  "all workers share"
				: "found arguments, expected none: they cannot be put behind a "
				  "shell's command");
	check_selector(m, fields);
	kvw_plan_pool(plan, id, &view);
	if (plan->connector && kvw_plan_flag(&view, "kv-transfer-config", NULL) &&
		!kvw_plan_flag(plan, "kv-transfer-config", NULL))
		kvw_report_mistake(m->notes, m->manifest->nodes[fields->args]->key->place,
			kvw_fields[fields->args].path,
			"no connector is added for `spec.kvCacheSpec`: the pool's own "
			"`kv-transfer-config` stays as it is");
	kvw_plan_ranks(m->manifest, m->mistakes, &view);
	pool->tensor_parallel = view.tensor_parallel;
	pool->ranks = view.ranks;
	if (plan->ranks < view.ranks)
		plan->ranks = view.ranks;
}

/* Returns the pd.transfer of a connector of vLLM; NULL: kvway knows none. */
static const char *connector_transfer(const struct kvw_node *config)
{
	static const struct {
		const char *connector, *transfer;
	} known[] = {{"NixlConnector", "nixl"}, {"NixlPullConnector", "nixl"},
		{"NixlPushConnector", "nixl-push"}, {"MooncakeConnector", "mooncake"},
		{"MooncakeStoreConnector", "shared"}, {"LMCacheMPConnector", "shared"},
		{"KVTierConnector", "shared"}};
	const struct kvw_node *name = kvw_manifest_member(config, "kv_connector");

	for (size_t i = 0; name != NULL && i < sizeof(known) / sizeof(known[0]); i++)
		if (name->kind == KVW_NODE_SCALAR && strcmp(name->text, known[i].connector) == 0)
			return known[i].transfer;
	return NULL;
}

/* Returns the pd.transfer of a kv-transfer-config in JSON, which is YAML. A MultiConnector has that
 * of its first connector that kvway knows. NULL: kvway knows none. */
static const char *config_transfer(const char *text)
{
	struct kvw_report silent = {.mistakes = KVW_REPORT_MOST};
	struct kvw_document document;
	const struct kvw_node *list, *node;
	const char *transfer;

	if (kvw_document_parse(text, strlen(text), &silent, &document) != KVW_OK)
		return NULL;
	transfer = connector_transfer(document.root);
	list = kvw_manifest_member(
		kvw_manifest_member(document.root, "kv_connector_extra_config"), "connectors");
	for (node = list != NULL ? list->first : NULL; node != NULL && transfer == NULL;
		node = node->next)
		transfer = connector_transfer(node);
	kvw_document_finish(&document);
	return transfer;
}

/* Returns a pool's pd.transfer: NIXL's, unless the manifest has a connector of its own. */
static const char *pool_transfer(const struct kvw_plan *plan, enum kvw_pool_id id)
{
	static const char name[] = "OPTION_KV_TRANSFER_CONFIG";
	struct kvw_plan view;
	const char *text;

	kvw_plan_pool(plan, id, &view);
	if (!kvw_plan_flag(&view, "kv-transfer-config", &text)) {
		if (kvw_plan_env(plan, name) == NULL)
			return "nixl";
		text = kvw_plan_env_text(plan, name);
	}
	return text != NULL ? config_transfer(text) : NULL;
}

static void take_transfer(struct maker *m)
{
	struct kvw_plan *plan = m->plan;
	const char *prefill = pool_transfer(plan, KVW_POOL_PREFILL),
		   *decode = pool_transfer(plan, KVW_POOL_DECODE);

	plan->transfer = prefill != NULL ? prefill : "nixl";
	if (prefill == NULL || decode == NULL)
		mistake(m, KVW_F_pdSpec,
			"found a `kv-transfer-config` among the workers' settings by which no KV "
			"gets from one pool to the other as far as kvway knows, expected none or "
			"one with NixlConnector, NixlPushConnector, MooncakeConnector, "
			"MooncakeStoreConnector, LMCacheMPConnector or KVTierConnector");
	else if (strcmp(prefill, decode) != 0)
		mistake(m, KVW_F_pdSpec,
			"found another `kv-transfer-config` for one pool than for the other, "
			"expected the same connector for both");
	if (plan->engine_flags == KVW_BY_NONE && !plan->connector)
		kvw_report_mistake(m->notes, m->manifest->nodes[KVW_F_command]->place,
			kvw_fields[KVW_F_command].path,
			"flags cannot be put behind a shell's command: add --kv-transfer-config "
			"with the NixlConnector to it");
}

static void take_threshold(struct maker *m)
{
	const char *strategy = m->plan->strategy;
	bool predicts = strcmp(strategy, "prefixaware") == 0 || strcmp(strategy, "kvaware") == 0;

	if (field_given(m, KVW_F_routingThreshold)) {
		m->plan->threshold = kvw_manifest_int(m->manifest, KVW_F_routingThreshold);
		return;
	}
	m->plan->threshold = predicts ? -1 : THRESHOLD;
	kvw_report_mistake(m->remarks, m->manifest->nodes[KVW_F_pdSpec]->key->place,
		kvw_fields[KVW_F_routingThreshold].path, "left out, so that kvway splits %s",
		predicts ? "by predicted seconds; the operator would from 4096 tokens on"
			 : "from 4096 tokens on, as the operator: only prefixaware and kvaware "
			   "predict seconds");
}

static void take_pools(struct maker *m)
{
	struct kvw_plan *plan = m->plan;

	unused(m, KVW_F_replicas, "`spec.pdSpec` says how many workers there are");
	unused(m, KVW_F_scaling, "`spec.pdSpec` says how many workers there are");
	plan->zone = kvw_manifest_text(m->manifest, KVW_F_zone);
	plan->same_zone = plan->zone[0] == '\0' && kvw_manifest_bool(m->manifest, KVW_F_sameAZ);
	take_pool(m, KVW_POOL_PREFILL);
	take_pool(m, KVW_POOL_DECODE);
	take_transfer(m);
	take_threshold(m);
}

void kvw_plan_workers(const struct kvw_manifest *manifest, struct kvw_report *mistakes,
	struct kvw_report *notes, struct kvw_report *remarks, struct kvw_plan *plan)
{
	struct maker m = {.manifest = manifest,
		.mistakes = mistakes,
		.notes = notes,
		.remarks = remarks,
		.plan = plan};

	if (plan->split)
		take_pools(&m);
	else
		scale_workers(&m);
	scale_kvways(&m);
}

void kvw_plan_pool(const struct kvw_plan *plan, enum kvw_pool_id id, struct kvw_plan *out)
{
	const struct kvw_pool *pool = &plan->pools[id];

	*out = *plan;
	out->pool = pool;
	out->limits = pool->limits;
	out->requests = pool->requests;
	out->replicas = pool->replicas;
	out->scaling = pool->scaling;
	out->tensor_parallel = pool->tensor_parallel;
	out->ranks = pool->ranks;
}
