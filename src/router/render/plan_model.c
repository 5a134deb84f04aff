/*
 * plan_model.c - finds the model's source, and the number of GPUs of a JumpStartModel.
 */
#include "render/plan_model.h"

#include <string.h>

#define BUCKET "^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$"

/* Names of the volumes that kvway adds. */
static const char *const own_volumes[] = {"kvway-model", "kvway-cache", "kvway-shm"};

/* Sets the folder, without slashes around it. */
static void set_location(struct kvw_plan *plan, const char *text, size_t len)
{
	while (len > 0 && text[0] == '/') {
		text++;
		len--;
	}
	while (len > 0 && text[len - 1] == '/')
		len--;
	snprintf(plan->location, sizeof(plan->location), "%.*s", (int)len, text);
}

/* s3://BUCKET[/FOLDER]?region=NAME */
static bool split_s3(struct kvw_plan *plan, const char *rest)
{
	size_t bucket = strcspn(rest, "/?");
	const char *query = strstr(rest, "?region=");

	if (query == NULL || bucket >= sizeof(plan->bucket) ||
		strlen(query + 8) >= sizeof(plan->region))
		return false;
	plan->source = KVW_SOURCE_S3;
	snprintf(plan->bucket, sizeof(plan->bucket), "%.*s", (int)bucket, rest);
	snprintf(plan->region, sizeof(plan->region), "%s", query + 8);
	set_location(plan, rest + bucket, (size_t)(query - rest) - bucket);
	return kvw_manifest_fits(plan->bucket, BUCKET) &&
	       kvw_manifest_fits(plan->region, "^[a-z0-9-]+$");
}

/* hf://ORG/MODEL[@COMMIT] */
static bool split_hf(struct kvw_plan *plan, const char *rest)
{
	size_t model = strcspn(rest, "@");

	plan->source = KVW_SOURCE_HF;
	if (model >= sizeof(plan->hf_model) || strlen(rest + model) >= sizeof(plan->hf_commit))
		return false;
	snprintf(plan->hf_model, sizeof(plan->hf_model), "%.*s", (int)model, rest);
	snprintf(plan->hf_commit, sizeof(plan->hf_commit), "%s",
		rest[model] == '@' ? rest + model + 1 : "main");
	return kvw_manifest_fits(plan->hf_model, kvw_fields[KVW_F_hfModel].limit) &&
	       kvw_manifest_fits(plan->hf_commit, "^(main|[0-9a-f]{40})$");
}

/* pvc://CLAIM[/FOLDER] */
static bool split_claim(struct kvw_plan *plan, const char *rest)
{
	size_t claim = strcspn(rest, "/");

	plan->source = KVW_SOURCE_CLAIM;
	if (claim >= sizeof(plan->claim))
		return false;
	snprintf(plan->claim, sizeof(plan->claim), "%.*s", (int)claim, rest);
	set_location(plan, rest + claim, strlen(rest + claim));
	return kvw_manifest_fits(plan->claim, KVW_DNS_NAME);
}

static void take_jumpstart(
	const struct kvw_manifest *manifest, struct kvw_report *mistakes, struct kvw_plan *plan)
{
	static const struct kvw_place on_line = {.flag = "--model-source"};
	const char *source = plan->options->model_source;
	const struct kvw_node *model = manifest->nodes[KVW_F_modelId];
	struct kvw_place place =
		model != NULL ? model->place : (struct kvw_place){.line = 1, .column = 1};
	bool good = false;

	plan->mount_name = "model";
	if (plan->options->image == NULL)
		kvw_report_mistake(mistakes, place, "spec.model.modelId",
			"found a model without an image, expected `--image`: kvway does not ask "
			"SageMaker's hub which one it has");
	if (source == NULL) {
		kvw_report_mistake(mistakes, place, "spec.model.modelId",
			"found a model without a place, expected `--model-source`: kvway does not "
			"ask SageMaker's hub where it is");
		return;
	}
	if (strncmp(source, "s3://", 5) == 0)
		good = split_s3(plan, source + 5);
	else if (strncmp(source, "hf://", 5) == 0)
		good = split_hf(plan, source + 5);
	else if (strncmp(source, "pvc://", 6) == 0)
		good = split_claim(plan, source + 6);
	if (!good)
		kvw_report_mistake(mistakes, on_line, NULL,
			"expected s3://BUCKET/FOLDER?region=NAME, hf://ORG/MODEL[@COMMIT] or "
			"pvc://CLAIM[/FOLDER]");
}

static void need(
	const struct kvw_manifest *manifest, struct kvw_report *mistakes, enum kvw_field_id id)
{
	const struct kvw_node *type = manifest->nodes[KVW_F_sourceType];

	if (manifest->nodes[id] == NULL)
		kvw_report_mistake(mistakes, type->place, kvw_fields[KVW_F_sourceType].path,
			"found `%s` without `%s`, expected that as well", type->text,
			strrchr(kvw_fields[id].path, '.') + 1);
}

static void ignored(
	const struct kvw_manifest *manifest, struct kvw_report *notes, enum kvw_field_id id)
{
	if (manifest->nodes[id] != NULL)
		kvw_report_mistake(notes, manifest->nodes[id]->key->place, kvw_fields[id].path,
			"not used: modelSourceType is %s",
			kvw_manifest_text(manifest, KVW_F_sourceType));
}

static bool is_own(const char *name)
{
	for (size_t i = 0; i < sizeof(own_volumes) / sizeof(own_volumes[0]); i++)
		if (strcmp(name, own_volumes[i]) == 0)
			return true;
	return false;
}

/* Checks the user's volumes: whether the model's must be among them, and that none has a name of
 * kvway's. */
static void check_volumes(const struct kvw_manifest *manifest, struct kvw_report *mistakes,
	const struct kvw_plan *plan)
{
	const struct kvw_node *volumes = manifest->nodes[KVW_F_volumes],
			      *type = manifest->nodes[KVW_F_sourceType];
	bool found = false;

	if (is_own(plan->mount_name))
		kvw_report_mistake(mistakes, manifest->nodes[KVW_F_mountName]->place,
			kvw_fields[KVW_F_mountName].path,
			"found `%s`, which is a volume of kvway's, expected another name",
			plan->mount_name);
	for (const struct kvw_node *node = volumes != NULL ? volumes->first : NULL; node != NULL;
		node = node->next) {
		const struct kvw_node *name = kvw_manifest_member(node, "name");
		bool taken;

		if (name == NULL || name->kind != KVW_NODE_SCALAR)
			continue;
		taken = is_own(name->text);
		if (strcmp(name->text, plan->mount_name) == 0) {
			found = true;
			taken = plan->source != KVW_SOURCE_VOLUME;
		}
		if (taken)
			kvw_report_mistake(mistakes, name->place, "spec.kubernetes.volumes",
				"found a volume of a name that is taken, expected another name");
	}
	if (plan->source == KVW_SOURCE_VOLUME && !found && type != NULL)
		kvw_report_mistake(mistakes, type->place, kvw_fields[KVW_F_sourceType].path,
			"found `kubernetesVolume`, expected the volume of "
			"`spec.worker.modelVolumeMount.name` in `spec.kubernetes.volumes`");
}

static void take_endpoint(const struct kvw_manifest *manifest, struct kvw_report *mistakes,
	struct kvw_report *notes, struct kvw_plan *plan)
{
	static const struct {
		const char *name;
		enum kvw_model_source source;
		enum kvw_field_id section; /* KVW_FIELD_COUNT: none */
	} types[] = {{"s3", KVW_SOURCE_S3, KVW_F_s3}, {"fsx", KVW_SOURCE_FSX, KVW_F_fsx},
		{"huggingface", KVW_SOURCE_HF, KVW_F_hf},
		{"kubernetesVolume", KVW_SOURCE_VOLUME, KVW_FIELD_COUNT}};
	const char *type = kvw_manifest_text(manifest, KVW_F_sourceType),
		   *location = kvw_manifest_text(manifest, KVW_F_modelLocation);

	for (size_t i = 0; type[0] != '\0' && i < sizeof(types) / sizeof(types[0]); i++) {
		bool mine = strcmp(type, types[i].name) == 0;

		if (mine)
			plan->source = types[i].source;
		if (types[i].section == KVW_FIELD_COUNT)
			continue;
		if (mine)
			need(manifest, mistakes, types[i].section);
		else
			ignored(manifest, notes, types[i].section);
	}
	if (plan->source == KVW_SOURCE_HF)
		ignored(manifest, notes, KVW_F_modelLocation);
	if (strlen(location) >= sizeof(plan->location))
		kvw_report_mistake(mistakes, manifest->nodes[KVW_F_modelLocation]->place,
			kvw_fields[KVW_F_modelLocation].path,
			"found a long text, expected less than 1024 bytes");
	set_location(plan, location, strlen(location));
	snprintf(plan->bucket, sizeof(plan->bucket), "%s",
		kvw_manifest_text(manifest, KVW_F_bucket));
	snprintf(plan->region, sizeof(plan->region), "%s",
		kvw_manifest_text(manifest, KVW_F_region));
	snprintf(plan->hf_model, sizeof(plan->hf_model), "%s",
		kvw_manifest_text(manifest, KVW_F_hfModel));
	snprintf(plan->hf_commit, sizeof(plan->hf_commit), "%s",
		kvw_manifest_text(manifest, KVW_F_hfCommit));
	plan->prefetch = kvw_manifest_bool(manifest, KVW_F_prefetch);
	plan->mount_name = kvw_manifest_text(manifest, KVW_F_mountName);
}

void kvw_plan_model(const struct kvw_manifest *manifest, struct kvw_report *mistakes,
	struct kvw_report *notes, struct kvw_plan *plan)
{
	static const struct kvw_place on_line = {.flag = "--model-source"};

	if (manifest->kind == KVW_KIND_JUMPSTART) {
		take_jumpstart(manifest, mistakes, plan);
	} else {
		take_endpoint(manifest, mistakes, notes, plan);
		check_volumes(manifest, mistakes, plan);
		if (plan->options->model_source != NULL)
			kvw_report_mistake(mistakes, on_line, NULL,
				"found with an InferenceEndpointConfig, expected only with a "
				"JumpStartModel");
	}
}

void kvw_plan_gpus(
	const struct kvw_manifest *manifest, struct kvw_report *mistakes, struct kvw_plan *plan)
{
	static const struct {
		const char *type;
		int gpus;
	} instances[] = {
#define KVW_INSTANCE_GPUS(family, size, gpus) {"ml." family "." size, gpus},
#include "render/instances.def"
	};
	const char *type = kvw_manifest_text(manifest, KVW_F_serverType);
	const char *partition = kvw_manifest_text(manifest, KVW_F_partition);

	plan->gpus = plan->options->gpus;
	if (partition[0] != '\0') {
		if (strlen(partition) > 60)
			kvw_report_mistake(mistakes, manifest->nodes[KVW_F_partition]->place,
				kvw_fields[KVW_F_partition].path,
				"found a long name, expected at most 60 characters");
		snprintf(plan->partition, sizeof(plan->partition), "nvidia.com/%s", partition);
		plan->gpu_resource = plan->partition;
		plan->gpus = plan->gpus > 0 ? plan->gpus : 1;
	}
	for (size_t i = 0; plan->gpus == 0 && i < sizeof(instances) / sizeof(instances[0]); i++)
		if (strcmp(type, instances[i].type) == 0)
			plan->gpus = instances[i].gpus;
	if (plan->gpus == 0 && type[0] != '\0')
		kvw_report_mistake(mistakes, manifest->nodes[KVW_F_serverType]->place,
			kvw_fields[KVW_F_serverType].path,
			"found a type that kvway does not know, expected `--gpus N` with it");
	if (plan->gpus == 0)
		plan->gpus = 1;
}
