/*
 * worker.c - writes the objects of vLLM: account, headless Service, Deployment.
 *
 * A rollout removes one worker before it adds one, because there is seldom a free GPU. A pod delays
 * its end: its address leaves the Service at once, kvway drains it, and vLLM would cut running
 * answers.
 */
#include <string.h>

#include "render/objects.h"
#include "render/yaml.h"

#define LMCACHE_CONNECTOR "{\"kv_connector\":\"LMCacheConnectorV1\",\"kv_role\":\"kv_both\"}"
#define KVTIER_CONNECTOR                                                                           \
	"{\"kv_connector\":\"KVTierConnector\",\"kv_connector_module_path\":\"kvtier.vllm\",\"kv_" \
	"role\":\"kv_both\"}"
#define NIXL_CONNECTOR "{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_both\"}"
/* vLLM asks the connectors in this order. */
#define NIXL_AND(other)                                                                            \
	"{\"kv_connector\":\"MultiConnector\",\"kv_role\":\"kv_both\",\"kv_connector_extra_"       \
	"config\":{\"connectors\":[" NIXL_CONNECTOR "," other "]}}"
#define EVENTS                                                                                     \
	"{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"endpoint\":\"tcp://"             \
	"*:5557\",\"replay_endpoint\":\"tcp://*:5558\"}"

const char *kvw_render_connector(
	const struct kvw_plan *plan, char room[static KVW_CONNECTOR_ROOM])
{
	bool kvtier = plan->options->kvtier;
	char server[KVW_CONNECTOR_ROOM - 512];

	if (kvw_plan_flag(plan, "kv-transfer-config", NULL) ||
		kvw_plan_env(plan, "OPTION_KV_TRANSFER_CONFIG"))
		return NULL;
	if (!plan->connector)
		return plan->split ? NIXL_CONNECTOR : NULL;
	if (plan->server) {
		kvw_render_server(plan, server, sizeof(server));
		snprintf(room, KVW_CONNECTOR_ROOM, plan->split ? NIXL_AND("%s") : "%s", server);
		return room;
	}
	if (plan->split)
		return kvtier ? NIXL_AND(KVTIER_CONNECTOR) : NIXL_AND(LMCACHE_CONNECTOR);
	return kvtier ? KVTIER_CONNECTOR : LMCACHE_CONNECTOR;
}

const char *kvw_render_events(const struct kvw_plan *plan)
{
	if (!plan->events || kvw_plan_flag(plan, "kv-events-config", NULL) ||
		kvw_plan_env(plan, "OPTION_KV_EVENTS_CONFIG"))
		return NULL;
	return EVENTS;
}

/* Writes a flag with its value, unless the user gave that flag. */
static void flag(FILE *out, const struct kvw_plan *plan, const char *name, const char *value)
{
	if (kvw_plan_flag(plan, name, NULL))
		return;
	kvw_yaml_line(out, 4, "- \"--%s\"", name);
	if (value != NULL)
		kvw_yaml_item(out, 4, value);
}

static void args(FILE *out, const struct kvw_plan *plan)
{
	char number[16], room[KVW_CONNECTOR_ROOM];
	const char *connector = kvw_render_connector(plan, room), *events = kvw_render_events(plan);

	if (plan->engine_flags != KVW_BY_ARGS && plan->args == NULL)
		return;
	kvw_yaml_line(out, 4, "args:");
	kvw_yaml_entries(out, 4, plan->args);
	if (plan->pool != NULL)
		kvw_yaml_entries(out, 4, plan->manifest->nodes[plan->pool->args]);
	if (plan->engine_flags != KVW_BY_ARGS)
		return;
	if (plan->args == NULL)
		flag(out, plan, "model", plan->model_path);
	if (plan->tensor_parallel > 1) {
		snprintf(number, sizeof(number), "%d", plan->tensor_parallel);
		flag(out, plan, "tensor-parallel-size", number);
	}
	if (plan->port != 8000) {
		snprintf(number, sizeof(number), "%d", plan->port);
		flag(out, plan, "port", number);
	}
	/* If there are several names, the path stays one of them. */
	if (!kvw_plan_flag(plan, "served-model-name", NULL)) {
		flag(out, plan, "served-model-name", plan->model);
		kvw_yaml_item(out, 4, plan->model_path);
	}
	flag(out, plan, "enable-prompt-tokens-details", NULL);
	if (connector != NULL)
		flag(out, plan, "kv-transfer-config", connector);
	if (events != NULL)
		flag(out, plan, "kv-events-config", events);
}

static void variable(FILE *out, const struct kvw_plan *plan, const char *name, const char *value)
{
	if (value == NULL || kvw_plan_env(plan, name))
		return;
	kvw_yaml_line(out, 4, "- name: %s", name);
	kvw_yaml_pair(out, 5, "value", value);
}

/* Names the pod's own address as the one where a decoding worker's NIXL finds this worker. */
static void side_channel(FILE *out, const struct kvw_plan *plan)
{
	static const char name[] = "VLLM_NIXL_SIDE_CHANNEL_HOST";

	if (kvw_plan_env(plan, name))
		return;
	kvw_yaml_line(out, 4, "- name: %s", name);
	kvw_yaml_line(out, 5, "valueFrom:");
	kvw_yaml_line(out, 6, "fieldRef:");
	kvw_yaml_line(out, 7, "fieldPath: status.podIP");
}

static void environment(FILE *out, const struct kvw_plan *plan)
{
	bool lmi = plan->engine_flags == KVW_BY_ENV,
	     nixl = plan->split && strncmp(plan->transfer, "nixl", 4) == 0;
	const char *file =
		plan->settings ? "/etc/kvway/cache/lmcache_config.yaml" : plan->cache_file;
	char room[KVW_CONNECTOR_ROOM];
	const char *connector = kvw_render_connector(plan, room);

	if (plan->env == NULL && !plan->connector && !plan->controller && !nixl)
		return;
	kvw_yaml_line(out, 4, "env:");
	for (const struct kvw_node *node = plan->env != NULL ? plan->env->first : NULL;
		node != NULL; node = node->next) {
		const struct kvw_node *value = kvw_manifest_member(node, "value");
		const struct kvw_node *from = kvw_manifest_member(node, "valueFrom");

		kvw_yaml_pair(out, 4, "- name", kvw_manifest_member(node, "name")->text);
		if (from != NULL)
			kvw_yaml_member(out, 5, "valueFrom", from);
		else
			kvw_yaml_pair(out, 5, "value", value != NULL ? value->text : "");
	}
	if (file[0] != '\0')
		variable(out, plan, lmi ? "OPTION_LMCACHE_CONFIG_FILE" : "LMCACHE_CONFIG_FILE",
			file);
	if (lmi) {
		variable(out, plan, "OPTION_KV_TRANSFER_CONFIG", connector);
		variable(out, plan, "OPTION_KV_EVENTS_CONFIG", kvw_render_events(plan));
	}
	if (plan->connector) /* so that all workers and kvway compute the same hashes */
		variable(out, plan, "PYTHONHASHSEED", plan->hash_seed);
	if (nixl)
		side_channel(out, plan);
	/* With this folder vLLM's /metrics has LMCache's counters from all processes of the engine.
	 * The folder must exist, and be emptied when the container restarts. */
	if (plan->metrics && !lmi && !plan->options->kvtier && !plan->server && plan->connector &&
		connector != NULL)
		variable(out, plan, "PROMETHEUS_MULTIPROC_DIR", "/var/tmp");
}

static void resources(FILE *out, const struct kvw_plan *plan)
{
	const struct kvw_node *limits = plan->manifest->nodes[plan->limits],
			      *requests = plan->manifest->nodes[plan->requests];

	if (plan->manifest->kind == KVW_KIND_JUMPSTART) {
		kvw_yaml_line(out, 4, "resources:");
		kvw_yaml_line(out, 5, "limits:");
		kvw_yaml_line(out, 6, "%s: \"%d\"", plan->gpu_resource, plan->gpus);
		return;
	}
	if (limits == NULL && requests == NULL)
		return;
	kvw_yaml_line(out, 4, "resources:");
	if (limits != NULL)
		kvw_yaml_member(out, 5, "limits", limits);
	if (requests != NULL)
		kvw_yaml_member(out, 5, "requests", requests);
}

static void probe(FILE *out, const struct kvw_plan *plan, const char *name, enum kvw_field_id users,
	const char *path, int failures)
{
	if (plan->manifest->nodes[users] != NULL) {
		kvw_yaml_member(out, 4, name, plan->manifest->nodes[users]);
		return;
	}
	kvw_object_probe(out, &(struct kvw_probe){name, path, "http", false, 10, 5, failures});
}

static void ports(FILE *out, const struct kvw_plan *plan)
{
	kvw_yaml_line(out, 4, "ports:");
	kvw_yaml_line(out, 4, "- name: http");
	kvw_yaml_line(out, 5, "containerPort: %d", plan->port);
	if (!plan->events)
		return;
	kvw_yaml_line(out, 4, "- name: kv-events");
	kvw_yaml_line(out, 5, "containerPort: %d", KVW_PORT_EVENTS);
	kvw_yaml_line(out, 4, "- name: kv-replay");
	kvw_yaml_line(out, 5, "containerPort: %d", KVW_PORT_REPLAY);
}

static void container(FILE *out, const struct kvw_plan *plan)
{
	const struct kvw_node *command = plan->manifest->nodes[KVW_F_command];
	const char *folder = kvw_manifest_text(plan->manifest, KVW_F_workingDir);

	kvw_yaml_line(out, 3, "containers:");
	kvw_yaml_line(out, 3, "- name: vllm");
	kvw_yaml_pair(out, 4, "image", plan->image);
	if (command != NULL)
		kvw_yaml_member(out, 4, "command", command);
	args(out, plan);
	if (folder[0] != '\0')
		kvw_yaml_pair(out, 4, "workingDir", folder);
	environment(out, plan);
	ports(out, plan);
	resources(out, plan);
	probe(out, plan, "startupProbe", KVW_F_startup, "/health", (plan->deploy_s + 9) / 10);
	probe(out, plan, "livenessProbe", KVW_F_liveness, "/health", 3);
	probe(out, plan, "readinessProbe", KVW_F_readiness, plan->health_path, 2);
	kvw_yaml_line(out, 4, "lifecycle:");
	kvw_yaml_line(out, 5, "preStop:");
	kvw_yaml_line(out, 6, "exec:");
	kvw_yaml_line(out, 7, "command:");
	kvw_yaml_line(out, 7, "- sleep");
	kvw_yaml_line(out, 7, "- \"%d\"", KVW_WORKER_PAUSE_S);
	/* Images of engines run as root, and write to their own folders, so only this much is
	 * restricted. */
	kvw_yaml_line(out, 4, "securityContext:");
	kvw_yaml_line(out, 5, "allowPrivilegeEscalation: false");
	kvw_yaml_line(out, 4, "volumeMounts:");
	kvw_render_mounts(out, 4, plan);
}

/* Requires one of several instance types, and prefers the first. */
static void types_affinity(FILE *out, const struct kvw_node *types)
{
	int weight = 100;

	kvw_yaml_line(out, 4, "nodeAffinity:");
	kvw_yaml_line(out, 5, "requiredDuringSchedulingIgnoredDuringExecution:");
	kvw_yaml_line(out, 6, "nodeSelectorTerms:");
	kvw_yaml_line(out, 6, "- matchExpressions:");
	kvw_yaml_line(out, 7, "- key: node.kubernetes.io/instance-type");
	kvw_yaml_line(out, 8, "operator: In");
	kvw_yaml_line(out, 8, "values:");
	kvw_yaml_entries(out, 8, types);
	kvw_yaml_line(out, 5, "preferredDuringSchedulingIgnoredDuringExecution:");
	for (const struct kvw_node *node = types->first; node != NULL; node = node->next) {
		kvw_yaml_line(out, 5, "- weight: %d", weight);
		kvw_yaml_line(out, 6, "preference:");
		kvw_yaml_line(out, 7, "matchExpressions:");
		kvw_yaml_line(out, 7, "- key: node.kubernetes.io/instance-type");
		kvw_yaml_line(out, 8, "operator: In");
		kvw_yaml_line(out, 8, "values:");
		kvw_yaml_item(out, 8, node->text);
		weight = weight > 10 ? weight - 10 : 1;
	}
}

/* Requires the zone where the workers of both pools are; the first worker may go to any. */
static void zone_affinity(FILE *out, const struct kvw_plan *plan)
{
	struct kvw_plan both = *plan;

	both.pool = NULL;
	kvw_yaml_line(out, 4, "podAffinity:");
	kvw_yaml_line(out, 5, "requiredDuringSchedulingIgnoredDuringExecution:");
	kvw_yaml_line(out, 5, "- topologyKey: topology.kubernetes.io/zone");
	kvw_yaml_line(out, 6, "labelSelector:");
	kvw_yaml_line(out, 7, "matchLabels:");
	kvw_object_selector(out, 8, &both, KVW_COMPONENT_WORKER);
}

static void affinity(FILE *out, const struct kvw_plan *plan)
{
	const struct kvw_node *types = plan->manifest->nodes[KVW_F_instanceTypes],
			      *own = plan->manifest->nodes[KVW_F_nodeAffinity];
	bool has_own = own != NULL && own->count > 0, has_types = types != NULL && types->count > 0,
	     same_zone = plan->pool != NULL && plan->same_zone;

	if (!has_own && !has_types && !same_zone)
		return;
	kvw_yaml_line(out, 3, "affinity:");
	if (has_own)
		kvw_yaml_member(out, 4, "nodeAffinity", own);
	if (has_types)
		types_affinity(out, types);
	if (same_zone)
		zone_affinity(out, plan);
}

static void selector(FILE *out, const struct kvw_plan *plan)
{
	const char *type = kvw_manifest_text(plan->manifest,
		plan->manifest->kind == KVW_KIND_JUMPSTART ? KVW_F_serverType : KVW_F_instanceType);
	const struct kvw_node *own =
		plan->pool != NULL ? plan->manifest->nodes[plan->pool->selector] : NULL;

	if (type[0] == '\0' && plan->zone[0] == '\0' && (own == NULL || own->count == 0))
		return;
	kvw_yaml_line(out, 3, "nodeSelector:");
	if (type[0] != '\0')
		kvw_yaml_pair(out, 4, "node.kubernetes.io/instance-type", type);
	if (plan->zone[0] != '\0')
		kvw_yaml_pair(out, 4, "topology.kubernetes.io/zone", plan->zone);
	for (const struct kvw_node *node = own != NULL ? own->first : NULL; node != NULL;
		node = node->next)
		kvw_yaml_texts(out, 4, node->key->text, node->text);
}

void kvw_render_placing(FILE *out, const struct kvw_plan *plan)
{
	const char *scheduler = kvw_manifest_text(plan->manifest, KVW_F_schedulerName);

	if (scheduler[0] != '\0')
		kvw_yaml_pair(out, 3, "schedulerName", scheduler);
	selector(out, plan);
	affinity(out, plan);
	kvw_yaml_line(out, 3, "tolerations:");
	kvw_yaml_line(out, 3, "- key: nvidia.com/gpu");
	kvw_yaml_line(out, 4, "operator: Exists");
	kvw_yaml_line(out, 4, "effect: NoSchedule");
}

static void annotations(FILE *out, const struct kvw_plan *plan)
{
	const struct kvw_node *users = plan->manifest->nodes[KVW_F_annotations];
	bool begun = false;

	for (const struct kvw_node *node = users != NULL ? users->first : NULL; node != NULL;
		node = node->next) {
		if (strncmp(node->key->text, "kubectl.kubernetes.io/", 22) == 0)
			continue;
		if (!begun)
			kvw_yaml_line(out, 1, "annotations:");
		begun = true;
		kvw_yaml_texts(out, 2, node->key->text, node->text);
	}
}

static void deployment(FILE *out, const struct kvw_plan *plan)
{
	const char *account = kvw_manifest_text(plan->manifest, KVW_F_serviceAccount);
	char own[64];

	snprintf(own, sizeof(own), "%s-worker", plan->name);
	kvw_object_begin(out, plan, "apps/v1", "Deployment", KVW_COMPONENT_WORKER,
		plan->pool != NULL ? plan->pool->suffix : "-worker");
	annotations(out, plan);
	kvw_yaml_line(out, 0, "spec:");
	if (!plan->scaling.on)
		kvw_yaml_line(out, 1, "replicas: %d", plan->replicas);
	kvw_yaml_line(out, 1, "progressDeadlineSeconds: %d", plan->deploy_s);
	kvw_yaml_line(out, 1, "selector:");
	kvw_yaml_line(out, 2, "matchLabels:");
	kvw_object_selector(out, 3, plan, KVW_COMPONENT_WORKER);
	kvw_yaml_line(out, 1, "strategy:");
	kvw_yaml_line(out, 2, "rollingUpdate:");
	kvw_yaml_line(out, 3, "maxSurge: 0");
	kvw_yaml_line(out, 3, "maxUnavailable: 1");
	kvw_yaml_line(out, 2, "type: RollingUpdate");
	kvw_yaml_line(out, 1, "template:");
	kvw_yaml_line(out, 2, "metadata:");
	kvw_yaml_line(out, 3, "labels:");
	kvw_object_labels(out, 4, plan, KVW_COMPONENT_WORKER);
	kvw_yaml_line(out, 2, "spec:");
	kvw_yaml_pair(out, 3, "serviceAccountName", account[0] != '\0' ? account : own);
	if (account[0] == '\0')
		kvw_yaml_line(out, 3, "automountServiceAccountToken: false");
	/* Otherwise the variables VLLM_... that Kubernetes sets for Services would be read by vLLM
	 * as settings. */
	kvw_yaml_line(out, 3, "enableServiceLinks: false");
	kvw_yaml_line(out, 3, "terminationGracePeriodSeconds: %d", KVW_WORKER_GRACE_S);
	kvw_yaml_line(out, 3, "securityContext:");
	kvw_yaml_line(out, 4, "seccompProfile:");
	kvw_yaml_line(out, 5, "type: RuntimeDefault");
	kvw_render_placing(out, plan);
	kvw_render_init(out, 3, plan);
	container(out, plan);
	kvw_yaml_line(out, 3, "volumes:");
	kvw_render_pod_volumes(out, 3, plan);
}

static void pool(FILE *out, const struct kvw_plan *plan)
{
	deployment(out, plan);
	kvw_render_scaling_workers(out, plan);
	kvw_object_begin(out, plan, "v1", "Service", KVW_COMPONENT_WORKER,
		plan->pool != NULL ? plan->pool->suffix : "-workers");
	kvw_yaml_line(out, 0, "spec:");
	kvw_yaml_line(out, 1, "clusterIP: None");
	kvw_yaml_line(out, 1, "selector:");
	kvw_object_selector(out, 2, plan, KVW_COMPONENT_WORKER);
	kvw_yaml_line(out, 1, "ports:");
	kvw_yaml_line(out, 1, "- name: http");
	kvw_yaml_line(out, 2, "port: %d", plan->port);
	kvw_yaml_line(out, 2, "targetPort: http");
}

void kvw_render_workers(FILE *out, const struct kvw_plan *plan)
{
	struct kvw_plan view;

	if (kvw_manifest_text(plan->manifest, KVW_F_serviceAccount)[0] == '\0')
		kvw_object_account(out, plan, KVW_COMPONENT_WORKER, "-worker");
	kvw_render_volumes(out, plan);
	if (!plan->split) {
		pool(out, plan);
		return;
	}
	for (int id = 0; id < KVW_POOLS; id++) {
		kvw_plan_pool(plan, (enum kvw_pool_id)id, &view);
		pool(out, &view);
	}
}
