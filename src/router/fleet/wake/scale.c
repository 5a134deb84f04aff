/*
 * scale.c - scales a pool's Deployment or StatefulSet from zero to one replica by the API of
 * Kubernetes.
 */
#include "fleet/wake/scale.h"

#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "fleet/discovery/kube_call.h"

struct kvw_scale {
	struct kvw_kube_call *call;
	kvw_wake_ended_fn *ended;
	void *arg;
	char *path;
	bool patching;
};

static void on_open(void *arg)
{
	(void)arg;
}

static bool on_line(void *arg, struct kvw_slice line)
{
	(void)arg;
	(void)line;
	return false;
}

/* Makes the patch for a `scale` without replicas. NULL: if *why is NULL, it has a replica
 * already. */
static char *patch_of(struct kvw_slice body, const char **why)
{
	json_t *scale = json_loadb(body.data, body.len, 0, NULL), *replicas, *patch;
	const char *version = json_string_value(
		json_object_get(json_object_get(scale, "metadata"), "resourceVersion"));
	char *text = NULL;

	*why = NULL;
	replicas = json_object_get(json_object_get(scale, "spec"), "replicas"); /* left out: 0 */
	if (version == NULL || (replicas != NULL && !json_is_integer(replicas))) {
		*why = "not a scale of Kubernetes";
	} else if (json_integer_value(replicas) <= 0) {
		patch = json_pack("{s:{s:s}, s:{s:i}}", "metadata", "resourceVersion", version,
			"spec", "replicas", 1);
		text = patch == NULL ? NULL : json_dumps(patch, JSON_COMPACT);
		json_decref(patch);
		if (text == NULL)
			*why = "out of memory";
	}
	json_decref(scale);
	return text;
}

static void on_ended(void *arg, const struct kvw_kube_result *result)
{
	struct kvw_scale *scale = arg;
	const char *why;
	char *patch;

	if (result->fault != KVW_KUBE_NONE) {
		scale->ended(scale->arg, result->why, result->wait_ms);
		return;
	}
	if (scale->patching) {
		scale->ended(scale->arg, NULL, 0);
		return;
	}
	patch = patch_of(result->body, &why);
	if (patch == NULL) {
		scale->ended(scale->arg, why, 0);
		return;
	}
	scale->patching = true;
	kvw_kube_call_patch(scale->call, scale->path, patch);
	free(patch);
}

static const struct kvw_kube_call_ops ops = {
	.open = on_open,
	.line = on_line,
	.ended = on_ended,
};

enum kvw_err kvw_scale_start(struct kvw_curl_loop *loop, const struct kvw_config *config,
	size_t pool, kvw_wake_ended_fn *ended, void *arg, char *why, size_t room,
	struct kvw_scale **out)
{
	struct kvw_scale *scale = calloc(1, sizeof(*scale));
	char *namespace, *escaped;
	enum kvw_err err = KVW_EIO;

	snprintf(why, room, "out of memory");
	if (scale == NULL)
		return KVW_ENOMEM;
	scale->ended = ended;
	scale->arg = arg;
	namespace = kvw_kube_namespace(config, pool, why, room);
	if (namespace != NULL) {
		escaped = curl_easy_escape(NULL, namespace, 0);
		if (escaped == NULL ||
			asprintf(&scale->path, "/apis/apps/v1/namespaces/%s/%s/scale", escaped,
				config->pools[pool].scale) < 0)
			scale->path = NULL;
		curl_free(escaped);
		free(namespace);
		err = scale->path == NULL
			      ? KVW_ENOMEM
			      : kvw_kube_call_create(loop, config, &ops, scale, &scale->call);
	}
	if (err != KVW_OK) {
		kvw_scale_destroy(scale);
		return err;
	}
	kvw_kube_call_start(scale->call, scale->path, false);
	*out = scale;
	return KVW_OK;
}

void kvw_scale_destroy(struct kvw_scale *scale)
{
	if (scale == NULL)
		return;
	kvw_kube_call_destroy(scale->call);
	free(scale->path);
	free(scale);
}
