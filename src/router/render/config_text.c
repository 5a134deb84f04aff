/*
 * config_text.c - writes kvway's configuration file (config/REFERENCE.md).
 *
 * The admin address is on loopback only: probes and Prometheus use the clients' address, which has
 * /health, /ready and /metrics as well, and nothing by which a router could be changed.
 */
#include <inttypes.h>

#include "render/objects.h"
#include "render/yaml.h"

static void kvaware(FILE *out, const struct kvw_plan *plan)
{
	kvw_yaml_line(out, 0, "kvaware:");
	kvw_yaml_line(out, 1, "events:");
	kvw_yaml_line(out, 2, "endpoint: \"tcp://{host}:%d\"", KVW_PORT_EVENTS);
	kvw_yaml_line(out, 2, "replay: \"tcp://{host}:%d\"", KVW_PORT_REPLAY);
	if (!plan->controller)
		return;
	kvw_yaml_line(out, 1, "lmcache:");
	if (plan->server) {
		kvw_yaml_line(out, 2, "coordinator: 0.0.0.0:%d", KVW_PORT_SERVERS);
		/* Redis and kvtierd empty themselves, and a server takes no requests from outside
		 * its pod. */
		kvw_yaml_line(out, 2, "l2_evict: false");
		return;
	}
	kvw_yaml_line(out, 2, "pull: 0.0.0.0:%d", KVW_PORT_PULL);
	kvw_yaml_line(out, 2, "reply: 0.0.0.0:%d", KVW_PORT_REPLY);
	kvw_yaml_line(out, 2, "heartbeat: 0.0.0.0:%d", KVW_PORT_BEATS);
	kvw_yaml_line(out, 2, "advertise: \"%s-controller.%s.svc.%s:%d\"", plan->name,
		plan->namespace, plan->options->cluster_domain, KVW_PORT_BEATS);
	if (plan->hash_seed[0] != '\0')
		kvw_yaml_pair(out, 2, "hash_seed", plan->hash_seed);
}

void kvw_render_config(FILE *out, const struct kvw_plan *plan)
{
	kvw_yaml_line(out, 0, "listen: 0.0.0.0:%d", KVW_PORT_CLIENTS);
	kvw_yaml_line(out, 0, "config:");
	kvw_yaml_line(out, 1, "watch: true");
	if (plan->tls) {
		kvw_yaml_line(out, 0, "tls:");
		kvw_yaml_line(out, 1, "certificate: /etc/kvway/tls/tls.crt");
		kvw_yaml_line(out, 1, "key: /etc/kvway/tls/tls.key");
	}
	kvw_yaml_line(out, 0, "routing:");
	kvw_yaml_line(out, 1, "strategy: %s", plan->strategy);
	if (plan->session_key[0] != '\0') {
		kvw_yaml_line(out, 1, "session:");
		kvw_yaml_line(out, 2, "headers:");
		kvw_yaml_item(out, 2, plan->session_key);
		kvw_yaml_line(out, 2, "body_fields:");
		kvw_yaml_item(out, 2, plan->session_key);
	}
	if (plan->redis_url[0] != '\0') {
		kvw_yaml_line(out, 0, "replicas:");
		kvw_yaml_pair(out, 1, "redis", plan->redis_url);
		kvw_yaml_line(out, 1, "group: \"%s.%s\"", plan->namespace, plan->name);
	}
	kvw_render_discovery(out, plan);
	if (plan->split) {
		kvw_yaml_line(out, 0, "pd:");
		kvw_yaml_line(out, 1, "transfer: %s", plan->transfer);
		if (plan->threshold >= 0)
			kvw_yaml_line(out, 1, "threshold: %" PRId64, plan->threshold);
	}
	if (plan->events)
		kvaware(out, plan);
	kvw_yaml_line(out, 0, "health:");
	kvw_yaml_pair(out, 1, "path", plan->health_path);
	kvw_yaml_line(out, 0, "drain:");
	kvw_yaml_line(out, 1, "settle: %ds", KVW_SETTLE_S);
	kvw_yaml_line(out, 1, "timeout: %ds", KVW_DRAIN_S);
	kvw_yaml_line(out, 1, "worker: %ds", KVW_DRAIN_S);
}
