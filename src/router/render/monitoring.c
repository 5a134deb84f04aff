/*
 * monitoring.c - writes ServiceMonitors for the Prometheus operator.
 */
#include "render/objects.h"
#include "render/yaml.h"

/* Alerting rules find kvway and kvtierd by the label `job`, for which the operator would take the
 * Service's name; so the name is set here. job NULL: the Service's name is right. */
static void monitor(FILE *out, const struct kvw_plan *plan, enum kvw_component component,
	const char *name, const char *job, const char *port, const char *path)
{
	bool tls = component == KVW_COMPONENT_ROUTER && plan->tls;

	kvw_object_begin(out, plan, "monitoring.coreos.com/v1", "ServiceMonitor", component, name);
	kvw_yaml_line(out, 0, "spec:");
	kvw_yaml_line(out, 1, "selector:");
	kvw_yaml_line(out, 2, "matchLabels:");
	kvw_object_selector(out, 3, plan, component);
	kvw_yaml_line(out, 1, "endpoints:");
	kvw_yaml_line(out, 1, "- port: %s", port);
	kvw_yaml_pair(out, 2, "path", path);
	kvw_yaml_line(out, 2, "interval: %ds", plan->interval);
	if (job != NULL) {
		kvw_yaml_line(out, 2, "relabelings:");
		kvw_yaml_line(out, 2, "- targetLabel: job");
		kvw_yaml_line(out, 3, "replacement: %s", job);
	}
	if (!tls)
		return;
	kvw_yaml_line(out, 2, "scheme: https");
	kvw_yaml_line(out, 2, "tlsConfig:");
	kvw_yaml_line(out, 3, "serverName: \"%s.%s.svc\"", plan->name, plan->namespace);
	kvw_yaml_line(out, 3, "ca:");
	kvw_yaml_line(out, 4, "secret:");
	kvw_yaml_line(out, 5, "name: %s-tls", plan->name);
	kvw_yaml_line(out, 5, "key: ca.crt");
}

void kvw_render_monitoring(FILE *out, const struct kvw_plan *plan)
{
	if (!plan->metrics)
		return;
	monitor(out, plan, KVW_COMPONENT_WORKER, "-workers", NULL, "http", plan->metrics_path);
	monitor(out, plan, KVW_COMPONENT_ROUTER, "-kvway", "kvway", plan->tls ? "https" : "http",
		"/metrics");
	if (plan->own_kvtierd)
		monitor(out, plan, KVW_COMPONENT_KVTIERD, "-kvtierd", "kvtierd", "cache",
			"/metrics");
}
