/*
 * objects.c - writes parts that many objects have: names, labels, accounts, rights.
 */
#include "render/objects.h"

#include <stdlib.h>
#include <string.h>

#include "render/yaml.h"

static const struct component {
	const char *app, *component;
} components[] = {
	[KVW_COMPONENT_WORKER] = {"vllm", "worker"},
	[KVW_COMPONENT_ROUTER] = {"kvway", "router"},
	[KVW_COMPONENT_REDIS] = {"redis", "cache"},
	[KVW_COMPONENT_KVTIERD] = {"kvtierd", "cache"},
};

#define ROLE_LABEL "kvway.io/role" /* kvway's own label of the objects of one pool */

/* Returns whether a label is the user's: kvway's own begin with app.kubernetes.io/. */
static bool is_users(const struct kvw_node *label)
{
	return strncmp(label->key->text, "app.kubernetes.io/", 18) != 0;
}

void kvw_object_selector(
	FILE *out, int depth, const struct kvw_plan *plan, enum kvw_component component)
{
	kvw_yaml_line(out, depth, "app.kubernetes.io/name: %s", components[component].app);
	kvw_yaml_pair(out, depth, "app.kubernetes.io/instance", plan->name);
	kvw_yaml_line(
		out, depth, "app.kubernetes.io/component: %s", components[component].component);
	if (component == KVW_COMPONENT_WORKER && plan->pool != NULL)
		kvw_yaml_line(out, depth, ROLE_LABEL ": %s", plan->pool->role);
}

void kvw_object_labels(
	FILE *out, int depth, const struct kvw_plan *plan, enum kvw_component component)
{
	const struct kvw_node *users = plan->manifest->nodes[KVW_F_labels];

	kvw_object_selector(out, depth, plan, component);
	kvw_yaml_pair(out, depth, "app.kubernetes.io/part-of", plan->name);
	kvw_yaml_line(out, depth, "app.kubernetes.io/managed-by: kvway-render");
	if (component == KVW_COMPONENT_WORKER && plan->model_version[0] != '\0')
		kvw_yaml_pair(out, depth, "app.kubernetes.io/version", plan->model_version);
	for (const struct kvw_node *node = users != NULL ? users->first : NULL; node != NULL;
		node = node->next)
		if (is_users(node) &&
			(plan->pool == NULL || strcmp(node->key->text, ROLE_LABEL) != 0))
			kvw_yaml_texts(out, depth, node->key->text, node->text);
}

void kvw_object_begin(FILE *out, const struct kvw_plan *plan, const char *version, const char *kind,
	enum kvw_component component, const char *name)
{
	char whole[128];

	snprintf(whole, sizeof(whole), "%s%s", plan->name, name);
	kvw_yaml_line(out, 0, "---");
	kvw_yaml_line(out, 0, "apiVersion: %s", version);
	kvw_yaml_line(out, 0, "kind: %s", kind);
	kvw_yaml_line(out, 0, "metadata:");
	kvw_yaml_pair(out, 1, "name", whole);
	kvw_yaml_pair(out, 1, "namespace", plan->namespace);
	kvw_yaml_line(out, 1, "labels:");
	kvw_object_labels(out, 2, plan, component);
}

bool kvw_object_file(FILE *out, const struct kvw_plan *plan, const char *kind,
	enum kvw_component component, const char *name, const char *file,
	void (*write)(FILE *, const struct kvw_plan *))
{
	char *text = NULL;
	size_t size = 0;
	FILE *memory = open_memstream(&text, &size);
	bool whole;

	if (memory == NULL)
		return false;
	write(memory, plan);
	whole = ferror(memory) == 0;
	whole = fclose(memory) == 0 && whole;
	if (whole) {
		kvw_object_begin(out, plan, "v1", kind, component, name);
		kvw_yaml_line(out, 0, kind[0] == 'S' ? "stringData:" : "data:");
		kvw_yaml_block(out, 1, file, text);
	}
	free(text);
	return whole;
}

void kvw_object_probe(FILE *out, const struct kvw_probe *probe)
{
	kvw_yaml_line(out, 4, "%s:", probe->name);
	kvw_yaml_line(out, 5, "httpGet:");
	kvw_yaml_pair(out, 6, "path", probe->path);
	kvw_yaml_line(out, 6, "port: %s", probe->port);
	if (probe->tls)
		kvw_yaml_line(out, 6, "scheme: HTTPS");
	kvw_yaml_line(out, 5, "periodSeconds: %d", probe->period_s);
	kvw_yaml_line(out, 5, "timeoutSeconds: %d", probe->timeout_s);
	kvw_yaml_line(out, 5, "failureThreshold: %d", probe->failures);
}

void kvw_object_unprivileged(FILE *out, int depth)
{
	kvw_yaml_line(out, depth, "securityContext:");
	kvw_yaml_line(out, depth + 1, "allowPrivilegeEscalation: false");
	kvw_yaml_line(out, depth + 1, "readOnlyRootFilesystem: true");
	kvw_yaml_line(out, depth + 1, "capabilities:");
	kvw_yaml_line(out, depth + 2, "drop:");
	kvw_yaml_line(out, depth + 2, "- ALL");
}

void kvw_object_unprivileged_pod(FILE *out, int depth, int user)
{
	kvw_yaml_line(out, depth, "securityContext:");
	kvw_yaml_line(out, depth + 1, "runAsNonRoot: true");
	kvw_yaml_line(out, depth + 1, "runAsUser: %d", user);
	kvw_yaml_line(out, depth + 1, "runAsGroup: %d", user);
	kvw_yaml_line(out, depth + 1, "fsGroup: %d", user);
	kvw_yaml_line(out, depth + 1, "seccompProfile:");
	kvw_yaml_line(out, depth + 2, "type: RuntimeDefault");
}

void kvw_object_account(
	FILE *out, const struct kvw_plan *plan, enum kvw_component component, const char *name)
{
	const char *role = kvw_manifest_text(plan->manifest, KVW_F_executionRole);

	kvw_object_begin(out, plan, "v1", "ServiceAccount", component, name);
	if (component == KVW_COMPONENT_WORKER && role[0] != '\0') {
		kvw_yaml_line(out, 1, "annotations:");
		kvw_yaml_pair(out, 2, "eks.amazonaws.com/role-arn", role);
	}
	kvw_yaml_line(out, 0, "automountServiceAccountToken: false");
}

void kvw_object_policy(FILE *out, const struct kvw_plan *plan, enum kvw_component component,
	const char *name, int port, unsigned from, bool metrics)
{
	kvw_object_begin(out, plan, "networking.k8s.io/v1", "NetworkPolicy", component, name);
	kvw_yaml_line(out, 0, "spec:");
	kvw_yaml_line(out, 1, "podSelector:");
	kvw_yaml_line(out, 2, "matchLabels:");
	kvw_object_selector(out, 3, plan, component);
	kvw_yaml_line(out, 1, "policyTypes:");
	kvw_yaml_line(out, 1, "- Ingress");
	kvw_yaml_line(out, 1, "ingress:");
	kvw_yaml_line(out, 1, "- from:");
	for (size_t i = 0; i < sizeof(components) / sizeof(components[0]); i++) {
		if ((from & 1u << i) == 0)
			continue;
		kvw_yaml_line(out, 2, "- podSelector:");
		kvw_yaml_line(out, 4, "matchLabels:");
		kvw_object_selector(out, 5, plan, (enum kvw_component)i);
	}
	if (metrics) { /* Prometheus, which is in a namespace of its own */
		kvw_yaml_line(out, 2, "- namespaceSelector: {}");
		kvw_yaml_line(out, 3, "podSelector:");
		kvw_yaml_line(out, 4, "matchLabels:");
		kvw_yaml_line(out, 5, "app.kubernetes.io/name: prometheus");
	}
	kvw_yaml_line(out, 2, "ports:");
	kvw_yaml_line(out, 2, "- protocol: TCP");
	kvw_yaml_line(out, 3, "port: %d", port);
}
