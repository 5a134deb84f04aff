/*
 * cache.c - renders the caches' settings for the workers, and the shared cache if the manifest
 * names none: a Redis, or kvtierd on each node.
 *
 * The settings are in LMCache's format, which kvtier reads, too. kvtierd is reached by a Service
 * that stays on its node, and its segment by the node's /dev/shm; the segment's name includes the
 * endpoint's, since one node may have several, and so does its folder on the node's disk. Several
 * kvtierds share through a Redis, which is rendered unless the manifest names one. Neither has a
 * password: a network policy limits the pods that may connect.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "render/objects.h"
#include "render/yaml.h"

#define MIB (UINT64_C(1) << 20)

/* MiB of memory for the names of chunks on disk. A name takes 300 bytes, there is one for each 512
 * KiB, and there are at most 8M. */
#define NAMES(disk_mib) ((disk_mib) / 1536 < 2816 ? (disk_mib) / 1536 : 2816)

/* FNV-1a, with the NUL. */
static uint64_t mix(uint64_t hash, const char *text)
{
	do
		hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	while (*text++ != '\0');
	return hash;
}

static uint64_t mix_node(uint64_t hash, const struct kvw_node *node)
{
	if (node == NULL)
		return mix(hash, "");
	if (node->kind == KVW_NODE_SCALAR)
		return mix(hash, node->text);
	for (const struct kvw_node *child = node->first; child != NULL; child = child->next)
		hash = mix_node(child->key != NULL ? mix(hash, child->key->text) : hash, child);
	return mix(hash, ".");
}

/* Hashes everything on which a chunk's values depend. LMCache's own keys have only a model's path,
 * which is often the same. */
static uint64_t model_hash(const struct kvw_plan *plan)
{
	static const enum kvw_field_id fields[] = {
		KVW_F_source, KVW_F_volumes, KVW_F_modelId, KVW_F_command};
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	hash = mix(hash, plan->options->model_source != NULL ? plan->options->model_source : "");
	hash = mix(mix(mix(hash, plan->model_path), plan->model_version), plan->image);
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		hash = mix_node(hash, plan->manifest->nodes[fields[i]]);
	return mix_node(mix_node(hash, plan->args), plan->env);
}

static void settings_text(FILE *out, const struct kvw_plan *plan)
{
	kvw_yaml_line(out, 0, "chunk_size: 256");
	kvw_yaml_line(out, 0, "local_cpu: %s", plan->l1 ? "true" : "false");
	kvw_yaml_line(out, 0, "max_local_cpu_size: %.3f",
		(double)plan->options->l1_size / (double)(UINT64_C(1) << 30));
	if (plan->l2) {
		kvw_yaml_pair(out, 0, "remote_url", plan->l2_url);
		kvw_yaml_line(out, 0, "remote_serde: naive");
	}
	if (plan->own_kvtierd) {
		kvw_yaml_line(out, 0, "extra_config:");
		kvw_yaml_line(out, 1, "sagemaker_hyperpod_bucket: \"%s.%s.%016" PRIx64 "\"",
			plan->namespace, plan->name, model_hash(plan));
		kvw_yaml_line(out, 1, "sagemaker_hyperpod_shared_memory_name: \"kvway-%s-%s\"",
			plan->namespace, plan->name);
	}
	if (!plan->controller)
		return;
	kvw_yaml_line(out, 0, "enable_controller: true");
	kvw_yaml_line(out, 0, "controller_pull_url: \"%s-controller.%s.svc.%s:%d\"", plan->name,
		plan->namespace, plan->options->cluster_domain, KVW_PORT_PULL);
	kvw_yaml_line(out, 0, "controller_reply_url: \"%s-controller.%s.svc.%s:%d\"", plan->name,
		plan->namespace, plan->options->cluster_domain, KVW_PORT_REPLY);
	kvw_yaml_line(out, 0, "lmcache_worker_heartbeat_time: 10");
	kvw_yaml_line(out, 0, "lmcache_worker_ports:");
	for (int rank = 0; rank < plan->ranks && rank < 64; rank++)
		kvw_yaml_line(out, 0, "- %d", KVW_PORT_COMMANDS + rank);
}

#define TEXT(name, value) "\\\"" name "\\\":\\\"" value "\\\"" /* a member, within a text of JSON */
#define ADAPTER(members)  " --l2-adapter '{" members ",\\\"shared\\\":true}'"
#define TIERED            TEXT("type", "sagemaker-hyperpod") "," TEXT("url", "%s")

/* Writes the server's argument for the shared cache. */
static size_t adapter(const struct kvw_plan *plan, char *text, size_t size)
{
	const char *host = plan->l2_url + strlen("redis://");
	size_t len = strcspn(host, ":/");

	if (strncmp(plan->l2_url, "redis://", strlen("redis://")) == 0)
		return (size_t)snprintf(text, size,
			ADAPTER(TEXT("type", "resp") "," TEXT("host", "%.*s") ",\\\"port\\\":%d"),
			(int)len, host, host[len] == ':' ? atoi(host + len + 1) : KVW_PORT_REDIS);
	if (!plan->own_kvtierd)
		return (size_t)snprintf(text, size, ADAPTER(TIERED), plan->l2_url);
	return (size_t)snprintf(text, size,
		ADAPTER(TIERED "," TEXT("bucket", "%s.%s.%016" PRIx64) ","
			TEXT("shared_memory_name", "kvway-%s-%s")),
		plan->l2_url, plan->namespace, plan->name, model_hash(plan), plan->namespace,
		plan->name);
}

/* The server is a child of vLLM in the same container, so it sees the same GPUs, and kvway knows it
 * by the pod's address. It keeps what all ranks store. Driven by LMCache, its reports have token
 * ids. */
void kvw_render_server(const struct kvw_plan *plan, char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size,
		"{\"kv_connector\":\"LMCacheMPConnector\",\"kv_role\":\"kv_both\",\"kv_connector_"
		"extra_config\":{\"lmcache.mp.mp_transfer_mode\":\"lmcache_driven\","
		"\"lmcache.mp.autostart\":true,"
		"\"lmcache.mp.autostart.server_args\":\""
		"--chunk-size 256 --l1-size-gb %.3f --eviction-policy LRU --http-port %d",
		(double)plan->options->l1_size * plan->ranks / (double)(UINT64_C(1) << 30),
		KVW_PORT_SERVER);

	if (plan->l2)
		used += adapter(plan, text + used, size - used);
	if (plan->controller)
		used += (size_t)snprintf(text + used, size - used,
			" --coordinator-url http://%s-coordinator.%s.svc.%s:%d "
			"--coordinator-event-reporting",
			plan->name, plan->namespace, plan->options->cluster_domain,
			KVW_PORT_SERVERS);
	snprintf(text + used, size - used, "\"}}");
}

/* Writes a hash of kvtierd's file into its pods. kvtierd reads its file only once, so a change of
 * the file must change the pods, too. */
static void tiers(FILE *out, const struct kvw_plan *plan)
{
	char text[1200];
	int used = snprintf(
		text, sizeof(text), "segment %" PRIu64 "MiB", plan->options->l2_size / MIB);

	if (plan->nvme[0] != '\0')
		used += snprintf(text + used, sizeof(text) - (size_t)used, ", nvme %" PRIu64 "MiB",
			plan->options->nvme_size / MIB);
	if (plan->joined)
		snprintf(text + used, sizeof(text) - (size_t)used, ", %s", plan->redis_shown);
	kvw_yaml_line(out, 3, "annotations:");
	kvw_yaml_pair(out, 4, "kvway/tiers", text);
}

static void pod(FILE *out, const struct kvw_plan *plan, enum kvw_component component, int user)
{
	kvw_yaml_line(out, 1, "selector:");
	kvw_yaml_line(out, 2, "matchLabels:");
	kvw_object_selector(out, 3, plan, component);
	kvw_yaml_line(out, 1, "template:");
	kvw_yaml_line(out, 2, "metadata:");
	kvw_yaml_line(out, 3, "labels:");
	kvw_object_labels(out, 4, plan, component);
	if (component == KVW_COMPONENT_KVTIERD)
		tiers(out, plan);
	kvw_yaml_line(out, 2, "spec:");
	kvw_yaml_line(out, 3, "automountServiceAccountToken: false");
	kvw_yaml_line(out, 3, "enableServiceLinks: false");
	kvw_yaml_line(out, 3, "terminationGracePeriodSeconds: 40");
	kvw_object_unprivileged_pod(out, 3, user);
}

static void memory(FILE *out, uint64_t mebibytes)
{
	kvw_yaml_line(out, 4, "resources:");
	kvw_yaml_line(out, 5, "requests:");
	kvw_yaml_line(out, 6, "cpu: \"1\"");
	kvw_yaml_line(out, 6, "memory: %" PRIu64 "Mi", mebibytes);
	kvw_yaml_line(out, 5, "limits:");
	kvw_yaml_line(out, 6, "memory: %" PRIu64 "Mi", mebibytes);
}

static void service(FILE *out, const struct kvw_plan *plan, enum kvw_component component,
	const char *name, int port)
{
	kvw_object_begin(out, plan, "v1", "Service", component, name);
	kvw_yaml_line(out, 0, "spec:");
	if (component == KVW_COMPONENT_KVTIERD)
		kvw_yaml_line(out, 1, "internalTrafficPolicy: Local");
	kvw_yaml_line(out, 1, "selector:");
	kvw_object_selector(out, 2, plan, component);
	kvw_yaml_line(out, 1, "ports:");
	kvw_yaml_line(out, 1, "- name: cache");
	kvw_yaml_line(out, 2, "port: %d", port);
	kvw_yaml_line(out, 2, "targetPort: cache");
}

static void redis(FILE *out, const struct kvw_plan *plan)
{
	static const char *const words[] = {
		"--save", "", "--appendonly", "no", "--maxmemory-policy", "allkeys-lru"};
	uint64_t mebibytes = plan->options->l2_size / MIB;

	kvw_object_begin(out, plan, "apps/v1", "Deployment", KVW_COMPONENT_REDIS, "-redis");
	kvw_yaml_line(out, 0, "spec:");
	kvw_yaml_line(out, 1, "replicas: 1");
	kvw_yaml_line(out, 1, "strategy:");
	kvw_yaml_line(out, 2, "type: Recreate");
	pod(out, plan, KVW_COMPONENT_REDIS, 999);
	kvw_yaml_line(out, 3, "containers:");
	kvw_yaml_line(out, 3, "- name: redis");
	kvw_yaml_pair(out, 4, "image", plan->options->redis_image);
	kvw_yaml_line(out, 4, "args:");
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		kvw_yaml_item(out, 4, words[i]);
	kvw_yaml_line(out, 4, "- \"--maxmemory\"");
	kvw_yaml_line(out, 4, "- \"%" PRIu64 "mb\"", mebibytes);
	kvw_yaml_line(out, 4, "ports:");
	kvw_yaml_line(out, 4, "- name: cache");
	kvw_yaml_line(out, 5, "containerPort: %d", KVW_PORT_REDIS);
	memory(out, mebibytes + mebibytes / 4 + 256);
	kvw_yaml_line(out, 4, "readinessProbe:");
	kvw_yaml_line(out, 5, "tcpSocket:");
	kvw_yaml_line(out, 6, "port: cache");
	kvw_yaml_line(out, 5, "periodSeconds: 5");
	kvw_yaml_line(out, 4, "livenessProbe:");
	kvw_yaml_line(out, 5, "tcpSocket:");
	kvw_yaml_line(out, 6, "port: cache");
	kvw_yaml_line(out, 5, "periodSeconds: 10");
	kvw_object_unprivileged(out, 4);
	service(out, plan, KVW_COMPONENT_REDIS, "-redis", KVW_PORT_REDIS);
	kvw_object_policy(out, plan, KVW_COMPONENT_REDIS, "-redis", KVW_PORT_REDIS,
		1u << (plan->joined ? KVW_COMPONENT_KVTIERD : KVW_COMPONENT_WORKER) |
			1u << KVW_COMPONENT_ROUTER,
		false);
}

static void kvtierd_text(FILE *out, const struct kvw_plan *plan)
{
	kvw_yaml_line(out, 0, "listen: 0.0.0.0:%d", KVW_PORT_KVTIERD);
	kvw_yaml_line(out, 0, "segment:");
	kvw_yaml_line(out, 1, "name: \"kvway-%s-%s\"", plan->namespace, plan->name);
	kvw_yaml_line(out, 1, "size: %" PRIu64 "MiB", plan->options->l2_size / MIB);
	/* the workers' user is chosen by their image, so any user must have access */
	kvw_yaml_line(out, 1, "access: all");
	if (plan->nvme[0] != '\0' || plan->joined)
		kvw_yaml_line(out, 0, "cache:");
	if (plan->nvme[0] != '\0') {
		kvw_yaml_line(out, 1, "nvme:");
		kvw_yaml_line(out, 2, "path: /var/lib/kvtierd");
		kvw_yaml_line(out, 2, "capacity: %" PRIu64 "MiB", plan->options->nvme_size / MIB);
	}
	if (plan->joined) {
		kvw_yaml_line(out, 1, "l2:");
		kvw_yaml_pair(out, 2, "url", plan->redis_url);
	}
}

static void kvtierd_probe(FILE *out, const char *name, const char *path, int period, int failures)
{
	kvw_object_probe(out, &(struct kvw_probe){name, path, "cache", false, period, 5, failures});
}

static void store_mount(FILE *out, const struct kvw_plan *plan)
{
	kvw_yaml_line(out, 4, "- name: store");
	kvw_yaml_line(out, 5, "mountPath: /var/lib/kvtierd");
	kvw_yaml_line(out, 5, "subPath: kvway/%s-%s", plan->namespace, plan->name);
}

/* Changes the owner of the node's folder, which belongs to root at first. */
static void own_folder(FILE *out, const struct kvw_plan *plan)
{
	kvw_yaml_line(out, 3, "initContainers:");
	kvw_yaml_line(out, 3, "- name: own-folder");
	kvw_yaml_pair(out, 4, "image", plan->options->kvtierd_image);
	kvw_yaml_line(out, 4, "command:");
	kvw_yaml_line(out, 4, "- chown");
	kvw_yaml_line(out, 4, "- \"65532:65532\"");
	kvw_yaml_line(out, 4, "- /var/lib/kvtierd");
	kvw_object_unprivileged(out, 4);
	kvw_yaml_line(out, 6, "add:");
	kvw_yaml_line(out, 6, "- CHOWN");
	kvw_yaml_line(out, 5, "runAsNonRoot: false");
	kvw_yaml_line(out, 5, "runAsUser: 0");
	kvw_yaml_line(out, 4, "volumeMounts:");
	store_mount(out, plan);
}

static void kvtierd_volumes(FILE *out, const struct kvw_plan *plan)
{
	kvw_yaml_line(out, 3, "volumes:");
	kvw_yaml_line(out, 3, "- name: config");
	kvw_yaml_line(out, 4, plan->redis_secret ? "secret:" : "configMap:");
	kvw_yaml_line(
		out, 5, "%s: %s-kvtierd", plan->redis_secret ? "secretName" : "name", plan->name);
	kvw_yaml_line(out, 3, "- name: shm");
	kvw_yaml_line(out, 4, "hostPath:");
	kvw_yaml_line(out, 5, "path: /dev/shm");
	kvw_yaml_line(out, 5, "type: Directory");
	if (plan->nvme[0] == '\0')
		return;
	kvw_yaml_line(out, 3, "- name: store");
	kvw_yaml_line(out, 4, "hostPath:");
	kvw_yaml_pair(out, 5, "path", plan->nvme);
	/* The folder is not created if the disk is not mounted: it would fill the system's disk. */
	kvw_yaml_line(out, 5, "type: Directory");
}

static bool kvtierd(FILE *out, const struct kvw_plan *plan)
{
	if (!kvw_object_file(out, plan, plan->redis_secret ? "Secret" : "ConfigMap",
		    KVW_COMPONENT_KVTIERD, "-kvtierd", "kvtierd.yaml", kvtierd_text))
		return false;
	kvw_object_begin(out, plan, "apps/v1", "DaemonSet", KVW_COMPONENT_KVTIERD, "-kvtierd");
	kvw_yaml_line(out, 0, "spec:");
	pod(out, plan, KVW_COMPONENT_KVTIERD, 65532);
	kvw_render_placing(out, plan);
	if (plan->nvme[0] != '\0')
		own_folder(out, plan);
	kvw_yaml_line(out, 3, "containers:");
	kvw_yaml_line(out, 3, "- name: kvtierd");
	kvw_yaml_pair(out, 4, "image", plan->options->kvtierd_image);
	kvw_yaml_line(out, 4, "command:");
	kvw_yaml_line(out, 4, "- kvtierd");
	kvw_yaml_line(out, 4, "args:");
	kvw_yaml_line(out, 4, "- \"-c\"");
	kvw_yaml_line(out, 4, "- /etc/kvtierd/kvtierd.yaml");
	kvw_yaml_line(out, 4, "ports:");
	kvw_yaml_line(out, 4, "- name: cache");
	kvw_yaml_line(out, 5, "containerPort: %d", KVW_PORT_KVTIERD);
	memory(out, plan->options->l2_size / MIB + 1024 +
			    (plan->nvme[0] != '\0' ? NAMES(plan->options->nvme_size / MIB) : 0));
	/* Allocating a large segment takes a while. */
	kvtierd_probe(out, "startupProbe", "/health", 2, 300);
	kvtierd_probe(out, "readinessProbe", "/ready", 10, 3);
	kvtierd_probe(out, "livenessProbe", "/health", 10, 3);
	kvw_object_unprivileged(out, 4);
	kvw_yaml_line(out, 4, "volumeMounts:");
	kvw_yaml_line(out, 4, "- name: config");
	kvw_yaml_line(out, 5, "mountPath: /etc/kvtierd");
	kvw_yaml_line(out, 5, "readOnly: true");
	kvw_yaml_line(out, 4, "- name: shm");
	kvw_yaml_line(out, 5, "mountPath: /dev/shm");
	if (plan->nvme[0] != '\0')
		store_mount(out, plan);
	kvtierd_volumes(out, plan);
	service(out, plan, KVW_COMPONENT_KVTIERD, "-kvtierd", KVW_PORT_KVTIERD);
	kvw_object_policy(out, plan, KVW_COMPONENT_KVTIERD, "-kvtierd", KVW_PORT_KVTIERD,
		1u << KVW_COMPONENT_WORKER, plan->metrics);
	return true;
}

bool kvw_render_cache(FILE *out, const struct kvw_plan *plan)
{
	if (plan->settings &&
		!kvw_object_file(out, plan, plan->l2_secret ? "Secret" : "ConfigMap",
			KVW_COMPONENT_WORKER, "-cache", "lmcache_config.yaml", settings_text))
		return false;
	if (plan->own_redis)
		redis(out, plan);
	return !plan->own_kvtierd || kvtierd(out, plan);
}
