/*
 * discovery.c - how a rendered kvway finds its workers.
 *
 * By the DNS name of their headless Service, which has an address for each pod that is ready: kvway then
 * needs no right in the cluster, and its pods get no token. A cluster's DNS keeps an answer for 5 to 30 s,
 * which is what a worker's pod waits for before it ends (KVW_NOTICE_S). Another way to find them is another
 * text here; one that asks the Kubernetes API also needs a Role for kvway's account in router.c.
 */
#include "render/objects.h"
#include "render/yaml.h"

void kvw_render_discovery(FILE *out, const struct kvw_plan *plan)
{
	kvw_yaml_line(out, 0, "discovery:");
	kvw_yaml_line(out, 1, "dns:");
	kvw_yaml_line(out, 2, "- \"http://%s-workers.%s.svc.%s:%d\"", plan->name, plan->namespace,
		plan->options->cluster_domain, plan->port);
	kvw_yaml_line(out, 1, "dns_most: 5s");
}
