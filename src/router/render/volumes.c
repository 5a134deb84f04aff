/*
 * volumes.c - writes the volumes of a worker's pod: the model, the caches' settings and shared
 * memory.
 *
 * The model's volume is a claim, a volume of the user, or a folder that an init container fills, by
 * the worker's own image, so that no other one is needed. With `prefetchEnabled` an init container
 * copies it to memory.
 */
#include <string.h>

#include "render/objects.h"
#include "render/yaml.h"

#define DOWNLOAD                                                                                   \
	"import sys; from huggingface_hub import snapshot_download as get; get(sys.argv[1], "      \
	"revision=sys.argv[2], local_dir=sys.argv[3])"

/* Returns the name of the volume that the worker itself mounts. */
static const char *worker_volume(const struct kvw_plan *plan)
{
	return plan->prefetch && plan->source != KVW_SOURCE_HF ? "kvway-model" : plan->mount_name;
}

static void volume(FILE *out, int depth, const char *name, const char *key)
{
	kvw_yaml_pair(out, depth, "- name", name);
	kvw_yaml_line(out, depth + 1, "%s", key);
}

void kvw_render_pod_volumes(FILE *out, int depth, const struct kvw_plan *plan)
{
	switch (plan->source) {
	case KVW_SOURCE_S3:
	case KVW_SOURCE_FSX:
		volume(out, depth, plan->mount_name, "persistentVolumeClaim:");
		kvw_yaml_line(out, depth + 2, "claimName: %s-model", plan->name);
		break;
	case KVW_SOURCE_CLAIM:
		volume(out, depth, plan->mount_name, "persistentVolumeClaim:");
		kvw_yaml_pair(out, depth + 2, "claimName", plan->claim);
		break;
	case KVW_SOURCE_HF:
		volume(out, depth, plan->mount_name, plan->prefetch ? "emptyDir:" : "emptyDir: {}");
		if (plan->prefetch)
			kvw_yaml_line(out, depth + 2, "medium: Memory");
		break;
	case KVW_SOURCE_VOLUME:
		break;
	}
	if (strcmp(worker_volume(plan), "kvway-model") == 0) {
		volume(out, depth, "kvway-model", "emptyDir:");
		kvw_yaml_line(out, depth + 2, "medium: Memory");
	}
	if (plan->settings) {
		volume(out, depth, "kvway-cache", plan->l2_secret ? "secret:" : "configMap:");
		kvw_yaml_line(out, depth + 2, "%s: %s-cache",
			plan->l2_secret ? "secretName" : "name", plan->name);
	}
	if (plan->own_kvtierd) { /* kvtierd's segment is shared by all pods on the node */
		volume(out, depth, "kvway-shm", "hostPath:");
		kvw_yaml_line(out, depth + 2, "path: /dev/shm");
		kvw_yaml_line(out, depth + 2, "type: Directory");
	} else {
		volume(out, depth, "kvway-shm", "emptyDir:");
		kvw_yaml_line(out, depth + 2, "medium: Memory");
	}
	kvw_yaml_entries(out, depth, plan->manifest->nodes[KVW_F_volumes]);
}

/* Writes the model's path within its volume. With S3 the claim itself begins at that folder. */
static void sub_path(FILE *out, int depth, const struct kvw_plan *plan)
{
	if (plan->location[0] != '\0' && plan->source != KVW_SOURCE_S3 &&
		plan->source != KVW_SOURCE_HF)
		kvw_yaml_pair(out, depth, "subPath", plan->location);
}

static void mount(FILE *out, int depth, const char *name, const char *path)
{
	kvw_yaml_pair(out, depth, "- name", name);
	kvw_yaml_pair(out, depth + 1, "mountPath", path);
}

void kvw_render_mounts(FILE *out, int depth, const struct kvw_plan *plan)
{
	const char *model = worker_volume(plan);

	mount(out, depth, model, plan->model_path);
	if (strcmp(model, "kvway-model") != 0) {
		sub_path(out, depth + 1, plan);
		if (plan->source != KVW_SOURCE_VOLUME)
			kvw_yaml_line(out, depth + 1, "readOnly: true");
	}
	if (plan->settings) {
		mount(out, depth, "kvway-cache", "/etc/kvway/cache");
		kvw_yaml_line(out, depth + 1, "readOnly: true");
	}
	mount(out, depth, "kvway-shm", "/dev/shm");
}

static void download(FILE *out, int depth, const struct kvw_plan *plan)
{
	const struct kvw_node *token = plan->manifest->nodes[KVW_F_hfToken];

	kvw_yaml_line(out, depth, "- name: kvway-download");
	kvw_yaml_pair(out, depth + 1, "image", plan->image);
	kvw_yaml_line(out, depth + 1, "command:");
	kvw_yaml_line(out, depth + 1, "- python3");
	kvw_yaml_line(out, depth + 1, "- \"-c\"");
	kvw_yaml_item(out, depth + 1, DOWNLOAD);
	kvw_yaml_item(out, depth + 1, plan->hf_model);
	kvw_yaml_item(out, depth + 1, plan->hf_commit);
	kvw_yaml_item(out, depth + 1, plan->model_path);
	if (token != NULL) {
		kvw_yaml_line(out, depth + 1, "env:");
		kvw_yaml_line(out, depth + 1, "- name: HF_TOKEN");
		kvw_yaml_line(out, depth + 2, "valueFrom:");
		kvw_yaml_member(out, depth + 3, "secretKeyRef", token);
	}
	kvw_yaml_line(out, depth + 1, "volumeMounts:");
	mount(out, depth + 1, plan->mount_name, plan->model_path);
}

static void prefetch(FILE *out, int depth, const struct kvw_plan *plan)
{
	kvw_yaml_line(out, depth, "- name: kvway-prefetch");
	kvw_yaml_pair(out, depth + 1, "image", plan->image);
	kvw_yaml_line(out, depth + 1, "command:");
	kvw_yaml_line(out, depth + 1, "- cp");
	kvw_yaml_line(out, depth + 1, "- \"-rL\"");
	kvw_yaml_line(out, depth + 1, "- /kvway-source/.");
	kvw_yaml_item(out, depth + 1, plan->model_path);
	kvw_yaml_line(out, depth + 1, "volumeMounts:");
	mount(out, depth + 1, plan->mount_name, "/kvway-source");
	sub_path(out, depth + 2, plan);
	kvw_yaml_line(out, depth + 2, "readOnly: true");
	mount(out, depth + 1, "kvway-model", plan->model_path);
}

void kvw_render_init(FILE *out, int depth, const struct kvw_plan *plan)
{
	const struct kvw_node *users = plan->manifest->nodes[KVW_F_initContainers];
	bool copied = strcmp(worker_volume(plan), "kvway-model") == 0;

	if ((users == NULL || users->count == 0) && plan->source != KVW_SOURCE_HF && !copied)
		return;
	kvw_yaml_line(out, depth, "initContainers:");
	kvw_yaml_entries(out, depth, users);
	if (plan->source == KVW_SOURCE_HF)
		download(out, depth, plan);
	if (copied)
		prefetch(out, depth, plan);
}

/* Options of Mountpoint for S3. */
static void s3(FILE *out, const struct kvw_plan *plan)
{
	char prefix[1100];

	kvw_yaml_line(out, 1, "mountOptions:");
	kvw_yaml_line(out, 1, "- read-only");
	kvw_yaml_line(out, 1, "- allow-other");
	kvw_yaml_line(out, 1, "- \"region %s\"", plan->region);
	if (plan->location[0] != '\0') {
		snprintf(prefix, sizeof(prefix), "prefix %s/", plan->location);
		kvw_yaml_item(out, 1, prefix);
	}
	kvw_yaml_line(out, 1, "csi:");
	kvw_yaml_line(out, 2, "driver: s3.csi.aws.com");
	kvw_yaml_line(out, 2, "volumeHandle: \"%s-%s-model\"", plan->namespace, plan->name);
	kvw_yaml_line(out, 2, "volumeAttributes:");
	kvw_yaml_line(out, 3, "bucketName: \"%s\"", plan->bucket);
}

static void fsx(FILE *out, const struct kvw_plan *plan)
{
	kvw_yaml_line(out, 1, "mountOptions:");
	kvw_yaml_line(out, 1, "- flock");
	kvw_yaml_line(out, 1, "csi:");
	kvw_yaml_line(out, 2, "driver: fsx.csi.aws.com");
	kvw_yaml_pair(out, 2, "volumeHandle", kvw_manifest_text(plan->manifest, KVW_F_fsxId));
	kvw_yaml_line(out, 2, "volumeAttributes:");
	kvw_yaml_pair(out, 3, "dnsname", kvw_manifest_text(plan->manifest, KVW_F_fsxDns));
	kvw_yaml_pair(out, 3, "mountname", kvw_manifest_text(plan->manifest, KVW_F_fsxMount));
}

void kvw_render_volumes(FILE *out, const struct kvw_plan *plan)
{
	if (plan->source != KVW_SOURCE_S3 && plan->source != KVW_SOURCE_FSX)
		return;
	kvw_yaml_line(out, 0, "---"); /* without a namespace: volumes belong to the whole cluster */
	kvw_yaml_line(out, 0, "apiVersion: v1");
	kvw_yaml_line(out, 0, "kind: PersistentVolume");
	kvw_yaml_line(out, 0, "metadata:");
	kvw_yaml_line(out, 1, "name: \"%s-%s-model\"", plan->namespace, plan->name);
	kvw_yaml_line(out, 1, "labels:");
	kvw_object_labels(out, 2, plan, KVW_COMPONENT_WORKER);
	kvw_yaml_line(out, 0, "spec:");
	kvw_yaml_line(out, 1, "capacity:");
	kvw_yaml_line(out, 2, "storage: 1200Gi"); /* neither driver uses it */
	kvw_yaml_line(out, 1, "accessModes:");
	kvw_yaml_line(out, 1, "- ReadOnlyMany");
	kvw_yaml_line(out, 1, "persistentVolumeReclaimPolicy: Retain");
	kvw_yaml_line(out, 1, "storageClassName: \"\"");
	kvw_yaml_line(out, 1, "claimRef:");
	kvw_yaml_pair(out, 2, "namespace", plan->namespace);
	kvw_yaml_line(out, 2, "name: %s-model", plan->name);
	if (plan->source == KVW_SOURCE_S3)
		s3(out, plan);
	else
		fsx(out, plan);
	kvw_object_begin(out, plan, "v1", "PersistentVolumeClaim", KVW_COMPONENT_WORKER, "-model");
	kvw_yaml_line(out, 0, "spec:");
	kvw_yaml_line(out, 1, "accessModes:");
	kvw_yaml_line(out, 1, "- ReadOnlyMany");
	kvw_yaml_line(out, 1, "storageClassName: \"\"");
	kvw_yaml_line(out, 1, "volumeName: \"%s-%s-model\"", plan->namespace, plan->name);
	kvw_yaml_line(out, 1, "resources:");
	kvw_yaml_line(out, 2, "requests:");
	kvw_yaml_line(out, 3, "storage: 1200Gi");
}
