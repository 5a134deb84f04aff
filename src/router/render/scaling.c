/*
 * scaling.c - writes HorizontalPodAutoscalers for workers and kvway. The objects that they scale
 * have no `replicas`, since each `kubectl apply` would set that number again.
 *
 * Workers are scaled by the number of requests that wait at kvway because all workers are full. A
 * pool that prefills for others is scaled by the requests that wait in its own vLLM, since every
 * request ends at a worker that decodes. An adapter brings both metrics into the cluster
 * (deploy/README.md). They have the label `service` from the ServiceMonitor, so that the queue of
 * one endpoint does not scale another's workers.
 */
#include <string.h>

#include "render/objects.h"
#include "render/yaml.h"

#define WAITING 4  /* waiting requests for each worker at which one is added */
#define CPU     70 /* percent of the CPU that kvway requests */

static void begin_scaler(FILE *out, const struct kvw_plan *plan, enum kvw_component component,
	const char *name, const struct kvw_scaling *scaling)
{
	kvw_object_begin(out, plan, "autoscaling/v2", "HorizontalPodAutoscaler", component, name);
	kvw_yaml_line(out, 0, "spec:");
	kvw_yaml_line(out, 1, "scaleTargetRef:");
	kvw_yaml_line(out, 2, "apiVersion: apps/v1");
	kvw_yaml_line(out, 2, "kind: Deployment");
	kvw_yaml_line(out, 2, "name: %s%s", plan->name, name);
	kvw_yaml_line(out, 1, "minReplicas: %d", scaling->least);
	kvw_yaml_line(out, 1, "maxReplicas: %d", scaling->most);
	kvw_yaml_line(out, 1, "behavior:");
	kvw_yaml_line(out, 2, "scaleUp:");
	kvw_yaml_line(out, 3, "stabilizationWindowSeconds: %d", scaling->up_s);
	kvw_yaml_line(out, 2, "scaleDown:");
	kvw_yaml_line(out, 3, "stabilizationWindowSeconds: %d", scaling->down_s);
	kvw_yaml_line(out, 1, "metrics:");
}

void kvw_render_scaling_workers(FILE *out, const struct kvw_plan *plan)
{
	const char *suffix = plan->pool != NULL ? plan->pool->suffix : "-worker";
	bool prefills = plan->pool != NULL && strcmp(plan->pool->role, "prefill") == 0;
	char service[KVW_RENDER_NAME * 2];

	if (!plan->scaling.on)
		return;
	snprintf(service, sizeof(service), "%s%s", plan->name, prefills ? suffix : "");
	begin_scaler(out, plan, KVW_COMPONENT_WORKER, suffix, &plan->scaling);
	kvw_yaml_line(out, 1, "- type: External");
	kvw_yaml_line(out, 2, "external:");
	kvw_yaml_line(out, 3, "metric:");
	kvw_yaml_line(out, 4, "name: %s",
		prefills ? "vllm_num_requests_waiting" : "kvway_waiting_requests");
	kvw_yaml_line(out, 4, "selector:");
	kvw_yaml_line(out, 5, "matchLabels:");
	kvw_yaml_pair(out, 6, "service", service);
	kvw_yaml_line(out, 3, "target:");
	kvw_yaml_line(out, 4, "type: AverageValue");
	kvw_yaml_line(out, 4, "averageValue: \"%d\"", WAITING);
}

void kvw_render_scaling_router(FILE *out, const struct kvw_plan *plan)
{
	if (!plan->kvway_scaling.on)
		return;
	begin_scaler(out, plan, KVW_COMPONENT_ROUTER, "-kvway", &plan->kvway_scaling);
	kvw_yaml_line(out, 1, "- type: Resource");
	kvw_yaml_line(out, 2, "resource:");
	kvw_yaml_line(out, 3, "name: cpu");
	kvw_yaml_line(out, 3, "target:");
	kvw_yaml_line(out, 4, "type: Utilization");
	kvw_yaml_line(out, 4, "averageUtilization: %d", CPU);
}
