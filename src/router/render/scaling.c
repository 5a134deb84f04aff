/*
 * scaling.c - writes HorizontalPodAutoscalers for workers and kvway. The objects that they scale
 * have no `replicas`, since each `kubectl apply` would set that number again.
 *
 * Workers are scaled by how late their answers will be: kvway's prediction of the time to first
 * token over the promised one, which nine of ten requests stay below, of the pool's role where
 * there are pools. An adapter brings the metric into the cluster (deploy/README.md). It has the
 * label `service` from the ServiceMonitor, so that one endpoint does not scale another's workers.
 */
#include "render/objects.h"
#include "render/yaml.h"

#define LATE "0.8" /* predicted over promised, above which workers are added */
#define CPU  70    /* percent of the CPU that kvway requests */

/* A worker needs minutes until it serves: while some come, no more than half as many are added. One
 * that leaves takes a warm cache with it. */
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
	if (component == KVW_COMPONENT_WORKER) {
		kvw_yaml_line(out, 3, "policies:");
		kvw_yaml_line(out, 3, "- {type: Percent, value: 50, periodSeconds: 180}");
		kvw_yaml_line(out, 3, "- {type: Pods, value: 1, periodSeconds: 180}");
	}
	kvw_yaml_line(out, 2, "scaleDown:");
	kvw_yaml_line(out, 3, "stabilizationWindowSeconds: %d", scaling->down_s);
	if (component == KVW_COMPONENT_WORKER) {
		kvw_yaml_line(out, 3, "policies:");
		kvw_yaml_line(out, 3, "- {type: Pods, value: 1, periodSeconds: 120}");
	}
	kvw_yaml_line(out, 1, "metrics:");
}

void kvw_render_scaling_workers(FILE *out, const struct kvw_plan *plan)
{
	const char *suffix = plan->pool != NULL ? plan->pool->suffix : "-worker";

	if (!plan->scaling.on)
		return;
	begin_scaler(out, plan, KVW_COMPONENT_WORKER, suffix, &plan->scaling);
	kvw_yaml_line(out, 1, "- type: External");
	kvw_yaml_line(out, 2, "external:");
	kvw_yaml_line(out, 3, "metric:");
	kvw_yaml_line(out, 4, "name: kvway_fleet_predicted_over_promised");
	kvw_yaml_line(out, 4, "selector:");
	kvw_yaml_line(out, 5, "matchLabels:");
	kvw_yaml_pair(out, 6, "service", plan->name);
	if (plan->pool != NULL)
		kvw_yaml_pair(out, 6, "role", plan->pool->role);
	kvw_yaml_line(out, 6, "quantile: \"0.9\"");
	kvw_yaml_line(out, 3, "target:");
	kvw_yaml_line(out, 4, "type: Value");
	kvw_yaml_line(out, 4, "value: \"" LATE "\"");
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
