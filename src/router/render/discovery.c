/*
 * discovery.c - writes how kvway finds the workers.
 *
 * A single worker is found by the DNS name of its headless Service. kvway then needs no right in
 * the cluster, and its pods get no token. Several workers, or as many as an autoscaler makes, are
 * found by the EndpointSlices of the same Service, and those of two pools by the EndpointSlices of
 * both pools' Services: these change within a second, while a cluster's DNS takes 5 to 30 s; they
 * name the pod of each address, and have none of the pods' settings. kvway's account may then only
 * list and watch EndpointSlices in this namespace.
 *
 * In both cases a worker's pod waits before it ends (KVW_NOTICE_S), because other clients may find
 * it by DNS.
 */
#include "render/objects.h"
#include "render/yaml.h"

void kvw_render_discovery(FILE *out, const struct kvw_plan *plan)
{
	kvw_yaml_line(out, 0, "discovery:");
	if (plan->several) {
		kvw_yaml_line(out, 1, "kubernetes:");
		kvw_yaml_line(out, 2, "pools:");
		for (int id = 0; plan->split && id < KVW_POOLS; id++) {
			kvw_yaml_line(
				out, 2, "- service: %s%s", plan->name, plan->pools[id].suffix);
			kvw_yaml_line(out, 3, "port: http");
			kvw_yaml_line(out, 3, "role: %s", plan->pools[id].role);
		}
		if (plan->split)
			return;
		kvw_yaml_line(out, 2, "- service: %s-workers", plan->name);
		kvw_yaml_line(out, 3, "port: http");
		return;
	}
	kvw_yaml_line(out, 1, "dns:");
	kvw_yaml_line(out, 2, "- \"http://%s-workers.%s.svc.%s:%d\"", plan->name, plan->namespace,
		plan->options->cluster_domain, plan->port);
	kvw_yaml_line(out, 1, "dns_most: 5s");
}

void kvw_render_rights(FILE *out, const struct kvw_plan *plan)
{
	if (!plan->several)
		return;
	kvw_object_begin(
		out, plan, "rbac.authorization.k8s.io/v1", "Role", KVW_COMPONENT_ROUTER, "-kvway");
	kvw_yaml_line(out, 0, "rules:");
	kvw_yaml_line(out, 0, "- apiGroups:");
	kvw_yaml_line(out, 1, "- discovery.k8s.io");
	kvw_yaml_line(out, 1, "resources:");
	kvw_yaml_line(out, 1, "- endpointslices");
	kvw_yaml_line(out, 1, "verbs:");
	kvw_yaml_line(out, 1, "- list");
	kvw_yaml_line(out, 1, "- watch");
	kvw_object_begin(out, plan, "rbac.authorization.k8s.io/v1", "RoleBinding",
		KVW_COMPONENT_ROUTER, "-kvway");
	kvw_yaml_line(out, 0, "roleRef:");
	kvw_yaml_line(out, 1, "apiGroup: rbac.authorization.k8s.io");
	kvw_yaml_line(out, 1, "kind: Role");
	kvw_yaml_line(out, 1, "name: %s-kvway", plan->name);
	kvw_yaml_line(out, 0, "subjects:");
	kvw_yaml_line(out, 0, "- kind: ServiceAccount");
	kvw_yaml_line(out, 1, "name: %s-kvway", plan->name);
	kvw_yaml_pair(out, 1, "namespace", plan->namespace);
}
