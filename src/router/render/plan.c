/*
 * plan.c - makes and checks the plan.
 *
 * Some facts about the cluster and AWS are known to HyperPod's operator only, and missing in a
 * manifest. kvway asks neither the cluster nor AWS, so the user has to state some of these facts;
 * messages name the flags.
 */
#include "render/plan.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "openai/api_path.h"
#include "render/plan_engine.h"
#include "render/plan_lmcache.h"
#include "render/plan_model.h"
#include "render/plan_pools.h"
#include "render/plan_share.h"
#include "settings/suggest.h"

#define REDIS      "redis://"
#define REDIS_URL  "^((redis|rediss|valkey|valkeys)(-cluster|-sentinel)?://[^/]|unix:///)"
#define TIERED_URL "^sagemaker-hyperpod://[^/]"
#define HOST_PORT  "^([A-Za-z0-9][A-Za-z0-9.-]*|\\[[0-9A-Fa-f:.]+\\]):[0-9]{1,5}$"

/* The plan being made. */
struct maker {
	const struct kvw_manifest *manifest;
	struct kvw_report *mistakes, *notes, *remarks;
	struct kvw_plan *plan;
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

static void take_names(struct maker *m)
{
	const struct kvw_manifest *manifest = m->manifest;
	const struct kvw_render_options *options = m->plan->options;
	bool jumpstart = manifest->kind == KVW_KIND_JUMPSTART;

	m->plan->name = kvw_manifest_text(manifest, KVW_F_name);
	if (strlen(m->plan->name) > KVW_RENDER_NAME)
		mistake(m, KVW_F_name,
			"found a long name, expected at most 40 characters: names of objects are "
			"made from it");
	m->plan->namespace = options->namespace != NULL
				     ? options->namespace
				     : kvw_manifest_text(manifest, KVW_F_namespace);
	if (strlen(m->plan->namespace) > 63)
		kvw_report_mistake(m->mistakes, (struct kvw_place){.line = 1, .column = 1},
			"metadata.namespace", "found a long name, expected at most 63 characters");
	m->plan->model = kvw_manifest_text(manifest, jumpstart ? KVW_F_modelId : KVW_F_modelName);
	m->plan->model_version =
		kvw_manifest_text(manifest, jumpstart ? KVW_F_hubVersion : KVW_F_modelVersion);
	if (strlen(m->plan->model_version) > 63)
		mistake(m, KVW_F_modelVersion,
			"found a long text, expected at most 63 characters: it becomes a label");
}

static void take_l2(struct maker *m)
{
	const struct kvw_manifest *manifest = m->manifest;
	struct kvw_plan *plan = m->plan;
	bool redis = strcasecmp(kvw_manifest_text(manifest, KVW_F_l2Backend), "redis") == 0;
	const char *url = kvw_manifest_text(manifest, KVW_F_l2Url), *scheme = "";
	bool fits = strlen(REDIS) + strlen(url) < sizeof(plan->l2_url),
	     between = !redis && fits && kvw_manifest_fits(url, REDIS_URL);

	if (!field_given(m, KVW_F_l2Backend)) {
		kvw_report_mistake(m->mistakes, manifest->nodes[KVW_F_l2]->place,
			kvw_fields[KVW_F_l2].path,
			"found true without `l2CacheSpec`, expected `l2CacheSpec: {l2CacheBackend: "
			"redis}` or tieredstorage below kvCacheSpec");
		return;
	}
	if (url[0] == '\0' || between) { /* the kvtierds of several nodes share by this Redis */
		plan->own_redis = redis;
		plan->own_kvtierd = !redis;
		snprintf(plan->l2_url, sizeof(plan->l2_url),
			redis ? "redis://%s-redis.%s.svc.%s:%d"
			      : "sagemaker-hyperpod://%s-kvtierd.%s.svc.%s:%d",
			plan->name, plan->namespace, plan->options->cluster_domain,
			redis ? KVW_PORT_REDIS : KVW_PORT_KVTIERD);
		return;
	}
	if (redis && fits && kvw_manifest_fits(url, HOST_PORT)) {
		scheme = REDIS;
		kvw_report_mistake(m->remarks, manifest->nodes[KVW_F_l2Url]->place,
			kvw_fields[KVW_F_l2Url].path,
			"found no scheme, taken for a Redis without TLS: `" REDIS
			"` is put before it");
	} else if (!fits || !kvw_manifest_fits(url, redis ? REDIS_URL : TIERED_URL)) {
		mistake(m, KVW_F_l2Url,
			redis ? "found no URL of a Redis, expected such as "
				"redis://redis.default.svc.cluster.local:6379 (rediss, valkey, "
				"redis-cluster, redis-sentinel)"
			      : "found no URL of tiered storage, expected such as "
				"sagemaker-hyperpod://HOST:9200, the URL of a Redis through which "
				"the nodes share, or nothing");
	}
	snprintf(plan->l2_url, sizeof(plan->l2_url), "%s%s", scheme, url);
	plan->l2_secret = strchr(url, '@') != NULL;
}

static void take_cache(struct maker *m)
{
	struct kvw_plan *plan = m->plan;
	const struct kvw_manifest *manifest = m->manifest;

	if (!field_given(m, KVW_F_cache))
		return;
	plan->cache_file = kvw_manifest_text(manifest, KVW_F_cacheFile);
	plan->l1 = kvw_manifest_bool(manifest, KVW_F_l1);
	plan->l2 = kvw_manifest_bool(manifest, KVW_F_l2);
	if (plan->cache_file[0] != '\0')
		plan->l1 = plan->l2 = false; /* the file decides that */
	if (plan->l2)
		take_l2(m);
	else if (field_given(m, KVW_F_l2Spec))
		kvw_report_mistake(m->notes, manifest->nodes[KVW_F_l2Spec]->key->place,
			kvw_fields[KVW_F_l2Spec].path, "not used: %s",
			plan->cache_file[0] != '\0' ? "cacheConfigFile says it all"
						    : "enableL2Cache is not true");
	plan->connector = plan->l1 || plan->l2 || plan->cache_file[0] != '\0';
	if (plan->connector && (kvw_plan_flag(plan, "kv-transfer-config", NULL) ||
				       kvw_plan_env(plan, "OPTION_KV_TRANSFER_CONFIG"))) {
		kvw_report_mistake(m->notes, manifest->nodes[KVW_F_cache]->key->place,
			kvw_fields[KVW_F_cache].path,
			"no connector is added: the workers' own `kv-transfer-config` stays as it "
			"is");
	} else if (plan->connector && plan->engine_flags == KVW_BY_NONE) {
		kvw_report_mistake(m->notes, manifest->nodes[KVW_F_command]->place,
			kvw_fields[KVW_F_command].path,
			"flags cannot be put behind a shell's command: add --kv-transfer-config to "
			"it");
	}
}

/* If the Large Model Inference container is to choose the size of a cache that a file describes, it
 * ends with an error, so that is reported. */
static void check_auto_config(struct maker *m)
{
	static const char name[] = "OPTION_LMCACHE_AUTO_CONFIG";
	const struct kvw_plan *plan = m->plan;
	const char *on = kvw_plan_env_text(plan, name);

	if (on == NULL || strcasecmp(on, "true") != 0)
		return;
	if (kvw_plan_env_text(plan, "OPTION_LMCACHE_CONFIG_FILE") != NULL)
		kvw_plan_env_report(plan, name, m->mistakes,
			"found together with `OPTION_LMCACHE_CONFIG_FILE`, expected one of them: "
			"the container refuses both");
	else if (plan->connector && plan->engine_flags == KVW_BY_ENV)
		kvw_plan_env_report(plan, name, m->mistakes,
			"found together with `spec.kvCacheSpec`, for which kvway sets "
			"`OPTION_LMCACHE_CONFIG_FILE`, expected one of them: the container refuses "
			"both");
}

/* Checks the seed by Python's rule. kvway needs it to be a number, with which it computes the
 * hashes that LMCache's workers report. */
static void take_seed(struct maker *m)
{
	static const char name[] = "PYTHONHASHSEED";
	struct kvw_plan *plan = m->plan;
	const char *text = kvw_plan_env_text(plan, name);
	const struct kvw_node *entry = kvw_plan_env(plan, name);
	bool number = text != NULL && kvw_manifest_fits(text, "^[0-9]{1,10}$") &&
		      strtoull(text, NULL, 10) <= UINT32_MAX;

	plan->hash_seed = entry == NULL ? "0" : number ? text : "";
	if (text != NULL && !number && strcmp(text, "random") != 0)
		kvw_plan_env_report(plan, name, m->mistakes,
			"found no seed of Python, expected a number from 0 to 4294967295");
	if (!plan->controller || plan->server || plan->hash_seed[0] != '\0')
		return;
	if (kvw_manifest_member(entry, "valueFrom") != NULL)
		kvw_plan_env_report(plan, name, m->remarks,
			"not in the manifest: kvway tries 0, and then what fits the workers' "
			"hashes (`kvaware.lmcache`)");
	else
		kvw_plan_env_report(plan, name, m->mistakes,
			"found no number, expected one with `kvaware`: no other worker and no "
			"router computes hashes of a random seed");
}

/* Sets the session key as the operator's router does: it is the name of a header field, or else of
 * a member of the body. */
static void take_session_key(struct maker *m)
{
	static const char name[] = "SESSION_KEY";
	struct kvw_plan *plan = m->plan;
	const char *text = kvw_plan_env_text(plan, name);
	char why[160];

	plan->session_key = text != NULL ? text : "";
	if (text != NULL && !kvw_manifest_fits(text, "^[A-Za-z0-9._-]{1,128}$"))
		kvw_plan_env_report(plan, name, m->mistakes,
			"found no name, expected one of letters, digits and `._-`");
	if (text == NULL && kvw_plan_env(plan, name) != NULL)
		kvw_plan_env_report(
			plan, name, m->notes, "not used: its value is not in the manifest");
	if (text == NULL || strcmp(plan->strategy, "session") == 0)
		return;
	snprintf(why, sizeof(why),
		"not used by `%s`: `routingStrategy: session` keeps a session with its worker",
		plan->strategy);
	kvw_plan_env_report(plan, name, m->notes, why);
}

static void take_routing(struct maker *m)
{
	struct kvw_plan *plan = m->plan;
	const struct kvw_render_options *options = plan->options;
	bool reports;

	plan->strategy = kvw_manifest_bool(m->manifest, KVW_F_routingEnabled)
				 ? kvw_manifest_text(m->manifest, KVW_F_strategy)
				 : "roundrobin";
	plan->events = strcmp(plan->strategy, "kvaware") == 0;
	reports = plan->events && plan->l1 && !options->kvtier;
	plan->controller = reports && options->kvway_replicas <= 1;
	plan->kvway_replicas = options->kvway_replicas > 0 ? options->kvway_replicas
			       : plan->controller || plan->redis_url[0] == '\0' ? 1
										: 2;
	if (reports && !plan->controller)
		kvw_report_mistake(m->notes, m->manifest->nodes[KVW_F_strategy]->place,
			kvw_fields[KVW_F_strategy].path,
			"with %d kvways LMCache's workers report to none, since they know one "
			"%s only: what vLLM's own cache holds is known",
			plan->kvway_replicas, plan->server ? "coordinator" : "controller");
	if (reports && plan->version_unknown)
		kvw_report_mistake(m->remarks, m->manifest->nodes[KVW_F_strategy]->place,
			kvw_fields[KVW_F_strategy].path,
			"the image's name does not say which LMCache it has: taken for one before "
			KVW_LMCACHE_SERVER ", in vLLM's processes, as HyperPod's operators have it "
			"(0.4.3). `--lmcache VERSION` says which; from " KVW_LMCACHE_SERVER
			" on it is a server, and kvway its coordinator");
	take_seed(m);
	take_session_key(m);
}

static void take_metrics(struct maker *m)
{
	const struct kvw_manifest *manifest = m->manifest;
	struct kvw_plan *plan = m->plan;
	char text[128];

	plan->metrics =
		field_given(m, KVW_F_metrics) && kvw_manifest_bool(manifest, KVW_F_metricsEnabled);
	plan->interval = (int)kvw_manifest_int(manifest, KVW_F_metricsInterval);
	plan->metrics_path = kvw_manifest_text(manifest, KVW_F_metricsPath);
	if (field_given(m, KVW_F_metricsPort) &&
		kvw_manifest_int(manifest, KVW_F_metricsPort) != plan->port) {
		snprintf(text, sizeof(text),
			"found %.20s, expected %d as the workers' port: vLLM has its metrics there",
			kvw_manifest_text(manifest, KVW_F_metricsPort), plan->port);
		mistake(m, KVW_F_metricsPort, text);
	}
}

static bool is_served(const char *path)
{
	for (size_t i = 0; i < kvw_inference_path_count; i++)
		if (strcmp(path, kvw_inference_paths[i]) == 0)
			return kvw_path_classify(kvw_slice_of(path)).prompt;
	return false;
}

/* Sets the path of vLLM. Pages about HyperPod write some paths without the /v1 at their begin. */
static void take_invocation(struct maker *m)
{
	const char *found = kvw_manifest_text(m->manifest, KVW_F_invocationEndpoint),
		   *path = found + (found[0] == '/');
	char *served = m->plan->invocation, text[256], quoted[KVW_REPORT_QUOTE];
	const size_t room = sizeof(m->plan->invocation);
	struct kvw_suggest near;

	snprintf(served, room, "/%s", path);
	if (is_served(served))
		return;
	kvw_suggest_start(&near, served);
	for (size_t i = 0; i < kvw_inference_path_count; i++)
		if (is_served(kvw_inference_paths[i]))
			kvw_suggest_offer(&near, kvw_inference_paths[i], kvw_inference_paths[i]);
	kvw_report_quote(quoted, found, strlen(found));
	snprintf(served, room, "/v1/%s", path);
	if (is_served(served)) {
		kvw_report_mistake(m->remarks, m->manifest->nodes[KVW_F_invocationEndpoint]->place,
			kvw_fields[KVW_F_invocationEndpoint].path,
			"found %s, shown as `%s`: vLLM serves it there", quoted, served);
		return;
	}
	snprintf(text, sizeof(text), "found %s, expected a path that vLLM serves, %s%s%s", quoted,
		near.best != NULL ? "did you mean `" : "such as `",
		near.best != NULL ? near.best : "/v1/chat/completions",
		near.best != NULL ? "`?" : "`");
	mistake(m, KVW_F_invocationEndpoint, text);
}

static void take_front(struct maker *m)
{
	const struct kvw_manifest *manifest = m->manifest;
	struct kvw_plan *plan = m->plan;

	take_invocation(m);
	plan->health_path = field_given(m, KVW_F_balancer)
				    ? kvw_manifest_text(manifest, KVW_F_healthPath)
				    : "/health";
	plan->tls = field_given(m, KVW_F_tls);
	plan->acm = kvw_manifest_text(manifest, KVW_F_acmArn);
	plan->domain = kvw_manifest_text(manifest, KVW_F_domain);
	plan->ingress = field_given(m, KVW_F_balancer) || plan->acm[0] != '\0';
	plan->deploy_s = (int)kvw_manifest_int(manifest, KVW_F_maxDeployTimeInSeconds);
}

static void check_placing(struct maker *m)
{
	static const enum kvw_field_id ways[] = {
		KVW_F_instanceType, KVW_F_instanceTypes, KVW_F_nodeAffinity};
	const struct kvw_node *first = NULL;

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		const struct kvw_node *node = m->manifest->nodes[ways[i]];

		if (node == NULL)
			continue;
		if (first != NULL)
			kvw_report_mistake(m->mistakes, node->key->place, kvw_fields[ways[i]].path,
				"found together with `%s` of line %zu, expected one of "
				"instanceType, instanceTypes and nodeAffinity",
				first->key->text, first->key->place.line);
		else
			first = node;
	}
}

void kvw_plan_make(const struct kvw_manifest *manifest, const struct kvw_render_options *options,
	struct kvw_report *mistakes, struct kvw_report *notes, struct kvw_report *remarks,
	struct kvw_plan *out)
{
	struct maker m = {.manifest = manifest,
		.mistakes = mistakes,
		.notes = notes,
		.remarks = remarks,
		.plan = out};

	*out = (struct kvw_plan){.manifest = manifest,
		.options = options,
		.cache_file = "",
		.nvme = "",
		.zone = "",
		.gpu_resource = "nvidia.com/gpu"};
	take_names(&m);
	kvw_plan_engine(manifest, mistakes, out);
	kvw_plan_model(manifest, mistakes, notes, out);
	take_cache(&m);
	kvw_plan_lmcache(manifest, mistakes, out);
	check_auto_config(&m);
	kvw_plan_share(manifest, mistakes, out);
	take_routing(&m);
	kvw_plan_workers(manifest, mistakes, notes, remarks, out);
	take_metrics(&m);
	take_front(&m);
	check_placing(&m);
	if (mistakes->mistakes == 0)
		kvw_plan_share_remarks(manifest, remarks, out);
}
