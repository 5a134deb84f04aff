/*
 * router.c - writes the objects of kvway: account and its rights, configuration, Deployment,
 * Services, disruption budget, Ingress.
 */
#include "render/objects.h"
#include "render/yaml.h"

static void probe(FILE *out, const struct kvw_plan *plan, const char *name, const char *path,
	int period, int failures)
{
	kvw_object_probe(
		out, &(struct kvw_probe){name, path, "http", plan->tls, period, 2, failures});
}

static void container(FILE *out, const struct kvw_plan *plan)
{
	kvw_yaml_line(out, 3, "containers:");
	kvw_yaml_line(out, 3, "- name: kvway");
	kvw_yaml_pair(out, 4, "image", plan->options->kvway_image);
	kvw_yaml_line(out, 4, "command:");
	kvw_yaml_line(out, 4, "- kvway");
	kvw_yaml_line(out, 4, "args:");
	kvw_yaml_line(out, 4, "- \"-c\"");
	kvw_yaml_line(out, 4, "- /etc/kvway/config/kvway.yaml");
	kvw_yaml_line(out, 4, "ports:");
	kvw_yaml_line(out, 4, "- name: http");
	kvw_yaml_line(out, 5, "containerPort: %d", KVW_PORT_CLIENTS);
	kvw_yaml_line(out, 4, "resources:");
	kvw_yaml_line(out, 5, "requests:");
	kvw_yaml_line(out, 6, "cpu: \"1\"");
	kvw_yaml_line(out, 6, "memory: 1Gi");
	/* enough for limits.body_memory, prefix tree and index of kvaware, with a reserve */
	kvw_yaml_line(out, 5, "limits:");
	kvw_yaml_line(out, 6, "memory: 4Gi");
	probe(out, plan, "startupProbe", "/health", 1, 60);
	probe(out, plan, "livenessProbe", "/health", 10, 3);
	probe(out, plan, "readinessProbe", "/ready", 2, 2);
	kvw_object_unprivileged(out, 4);
	kvw_yaml_line(out, 4, "volumeMounts:");
	kvw_yaml_line(out, 4, "- name: config");
	kvw_yaml_line(out, 5, "mountPath: /etc/kvway/config");
	kvw_yaml_line(out, 5, "readOnly: true");
	if (plan->tls) {
		kvw_yaml_line(out, 4, "- name: tls");
		kvw_yaml_line(out, 5, "mountPath: /etc/kvway/tls");
		kvw_yaml_line(out, 5, "readOnly: true");
	}
}

static void deployment(FILE *out, const struct kvw_plan *plan)
{
	kvw_object_begin(out, plan, "apps/v1", "Deployment", KVW_COMPONENT_ROUTER, "-kvway");
	kvw_yaml_line(out, 0, "spec:");
	if (!plan->kvway_scaling.on)
		kvw_yaml_line(out, 1, "replicas: %d", plan->kvway_replicas);
	kvw_yaml_line(out, 1, "selector:");
	kvw_yaml_line(out, 2, "matchLabels:");
	kvw_object_selector(out, 3, plan, KVW_COMPONENT_ROUTER);
	kvw_yaml_line(out, 1, "strategy:");
	kvw_yaml_line(out, 2, "rollingUpdate:");
	kvw_yaml_line(out, 3, "maxSurge: 1");
	kvw_yaml_line(out, 3, "maxUnavailable: 0");
	kvw_yaml_line(out, 2, "type: RollingUpdate");
	kvw_yaml_line(out, 1, "template:");
	kvw_yaml_line(out, 2, "metadata:");
	kvw_yaml_line(out, 3, "labels:");
	kvw_object_labels(out, 4, plan, KVW_COMPONENT_ROUTER);
	if (plan->redis_url[0] != '\0') { /* a running kvway would not use another URL */
		kvw_yaml_line(out, 3, "annotations:");
		kvw_yaml_pair(out, 4, "kvway/replicas", plan->redis_shown);
	}
	kvw_yaml_line(out, 2, "spec:");
	kvw_yaml_line(out, 3, "serviceAccountName: %s-kvway", plan->name);
	kvw_yaml_line(out, 3, "automountServiceAccountToken: %s", plan->several ? "true" : "false");
	kvw_yaml_line(out, 3, "enableServiceLinks: false");
	kvw_yaml_line(out, 3, "terminationGracePeriodSeconds: %d", KVW_KVWAY_GRACE_S);
	kvw_object_unprivileged_pod(out, 3, 65532);
	kvw_yaml_line(out, 3, "topologySpreadConstraints:");
	kvw_yaml_line(out, 3, "- maxSkew: 1");
	kvw_yaml_line(out, 4, "topologyKey: kubernetes.io/hostname");
	kvw_yaml_line(out, 4, "whenUnsatisfiable: ScheduleAnyway");
	kvw_yaml_line(out, 4, "labelSelector:");
	kvw_yaml_line(out, 5, "matchLabels:");
	kvw_object_selector(out, 6, plan, KVW_COMPONENT_ROUTER);
	container(out, plan);
	kvw_yaml_line(out, 3, "volumes:");
	kvw_yaml_line(out, 3, "- name: config");
	kvw_yaml_line(out, 4, plan->redis_secret ? "secret:" : "configMap:");
	kvw_yaml_line(
		out, 5, "%s: %s-kvway", plan->redis_secret ? "secretName" : "name", plan->name);
	if (plan->tls) {
		kvw_yaml_line(out, 3, "- name: tls");
		kvw_yaml_line(out, 4, "secret:");
		kvw_yaml_line(out, 5, "secretName: %s-tls", plan->name);
	}
}

static void service(FILE *out, const struct kvw_plan *plan)
{
	kvw_object_begin(out, plan, "v1", "Service", KVW_COMPONENT_ROUTER, "");
	if (plan->manifest->kind == KVW_KIND_ENDPOINT) {
		kvw_yaml_line(out, 1, "annotations:");
		kvw_yaml_pair(out, 2, "kvway/invocation-endpoint", plan->invocation);
	}
	kvw_yaml_line(out, 0, "spec:");
	kvw_yaml_line(out, 1, "selector:");
	kvw_object_selector(out, 2, plan, KVW_COMPONENT_ROUTER);
	kvw_yaml_line(out, 1, "ports:");
	kvw_yaml_line(out, 1, "- name: %s", plan->tls ? "https" : "http");
	kvw_yaml_line(out, 2, "port: %d", plan->tls ? 443 : 80);
	kvw_yaml_line(out, 2, "targetPort: http");
}

/* Writes the Service for reports of LMCache. It also has pods that are not ready, because these
 * reports make kvway ready. */
static void controller(FILE *out, const struct kvw_plan *plan)
{
	static const struct {
		const char *name;
		int port;
	} ports[] = {{"coordinator", KVW_PORT_SERVERS}, {"pull", KVW_PORT_PULL},
		{"reply", KVW_PORT_REPLY}, {"heartbeat", KVW_PORT_BEATS}};
	size_t first = plan->server ? 0 : 1, end = plan->server ? 1 : 4;

	kvw_object_begin(out, plan, "v1", "Service", KVW_COMPONENT_ROUTER,
		plan->server ? "-coordinator" : "-controller");
	kvw_yaml_line(out, 0, "spec:");
	kvw_yaml_line(out, 1, "publishNotReadyAddresses: true");
	kvw_yaml_line(out, 1, "selector:");
	kvw_object_selector(out, 2, plan, KVW_COMPONENT_ROUTER);
	kvw_yaml_line(out, 1, "ports:");
	for (size_t i = first; i < end; i++) {
		kvw_yaml_line(out, 1, "- name: %s", ports[i].name);
		kvw_yaml_line(out, 2, "port: %d", ports[i].port);
		kvw_yaml_line(out, 2, "targetPort: %d", ports[i].port);
	}
}

static void budget(FILE *out, const struct kvw_plan *plan)
{
	kvw_object_begin(
		out, plan, "policy/v1", "PodDisruptionBudget", KVW_COMPONENT_ROUTER, "-kvway");
	kvw_yaml_line(out, 0, "spec:");
	kvw_yaml_line(out, 1, "maxUnavailable: 1");
	kvw_yaml_line(out, 1, "selector:");
	kvw_yaml_line(out, 2, "matchLabels:");
	kvw_object_selector(out, 3, plan, KVW_COMPONENT_ROUTER);
}

static void ingress(FILE *out, const struct kvw_plan *plan)
{
	const char *algorithm = kvw_manifest_text(plan->manifest, KVW_F_balancing);

	kvw_object_begin(out, plan, "networking.k8s.io/v1", "Ingress", KVW_COMPONENT_ROUTER, "");
	kvw_yaml_line(out, 1, "annotations:");
	kvw_yaml_line(out, 2, "alb.ingress.kubernetes.io/scheme: internal");
	kvw_yaml_line(out, 2, "alb.ingress.kubernetes.io/target-type: ip");
	kvw_yaml_line(out, 2, "alb.ingress.kubernetes.io/backend-protocol: %s",
		plan->tls ? "HTTPS" : "HTTP");
	kvw_yaml_line(out, 2, "alb.ingress.kubernetes.io/healthcheck-protocol: %s",
		plan->tls ? "HTTPS" : "HTTP");
	kvw_yaml_line(out, 2, "alb.ingress.kubernetes.io/healthcheck-path: /ready");
	kvw_yaml_line(out, 2, "alb.ingress.kubernetes.io/healthcheck-interval-seconds: \"5\"");
	kvw_yaml_line(out, 2, "alb.ingress.kubernetes.io/healthcheck-timeout-seconds: \"2\"");
	kvw_yaml_line(out, 2,
		"alb.ingress.kubernetes.io/target-group-attributes: "
		"\"load_balancing.algorithm.type=%s,deregistration_delay.timeout_seconds=%d\"",
		algorithm, KVW_DRAIN_S);
	kvw_yaml_line(out, 2,
		"alb.ingress.kubernetes.io/load-balancer-attributes: "
		"idle_timeout.timeout_seconds=600");
	if (plan->acm[0] != '\0') {
		kvw_yaml_line(
			out, 2, "alb.ingress.kubernetes.io/listen-ports: '[{\"HTTPS\": 443}]'");
		kvw_yaml_pair(out, 2, "alb.ingress.kubernetes.io/certificate-arn", plan->acm);
	}
	kvw_yaml_line(out, 0, "spec:");
	kvw_yaml_line(out, 1, "ingressClassName: alb");
	kvw_yaml_line(out, 1, "rules:");
	if (plan->domain[0] != '\0') {
		kvw_yaml_line(out, 1, "- host: \"%s\"", plan->domain);
		kvw_yaml_line(out, 2, "http:");
	} else {
		kvw_yaml_line(out, 1, "- http:");
	}
	kvw_yaml_line(out, 3, "paths:");
	kvw_yaml_line(out, 3, "- path: /");
	kvw_yaml_line(out, 4, "pathType: Prefix");
	kvw_yaml_line(out, 4, "backend:");
	kvw_yaml_line(out, 5, "service:");
	kvw_yaml_pair(out, 6, "name", plan->name);
	kvw_yaml_line(out, 6, "port:");
	kvw_yaml_line(out, 7, "name: %s", plan->tls ? "https" : "http");
}

bool kvw_render_router(FILE *out, const struct kvw_plan *plan)
{
	kvw_object_account(out, plan, KVW_COMPONENT_ROUTER, "-kvway");
	kvw_render_rights(out, plan);
	if (!kvw_object_file(out, plan, plan->redis_secret ? "Secret" : "ConfigMap",
		    KVW_COMPONENT_ROUTER, "-kvway", "kvway.yaml", kvw_render_config))
		return false;
	deployment(out, plan);
	service(out, plan);
	if (plan->controller)
		controller(out, plan);
	if (plan->kvway_replicas > 1 || plan->kvway_scaling.on)
		budget(out, plan);
	kvw_render_scaling_router(out, plan);
	if (plan->ingress)
		ingress(out, plan);
	return true;
}

void kvw_render_tls(FILE *out, const struct kvw_plan *plan)
{
	if (!plan->tls)
		return;
	kvw_object_begin(out, plan, "cert-manager.io/v1", "Issuer", KVW_COMPONENT_ROUTER, "-tls");
	kvw_yaml_line(out, 0, "spec:");
	kvw_yaml_line(out, 1, "selfSigned: {}");
	kvw_object_begin(
		out, plan, "cert-manager.io/v1", "Certificate", KVW_COMPONENT_ROUTER, "-tls");
	kvw_yaml_line(out, 0, "spec:");
	kvw_yaml_line(out, 1, "secretName: %s-tls", plan->name);
	kvw_yaml_line(out, 1, "duration: 8760h");
	kvw_yaml_line(out, 1, "renewBefore: 720h");
	kvw_yaml_line(out, 1, "privateKey:");
	kvw_yaml_line(out, 2, "algorithm: ECDSA");
	kvw_yaml_line(out, 2, "size: 256");
	kvw_yaml_line(out, 1, "dnsNames:");
	for (size_t i = 0; i < 4; i++) {
		char name[512];
		size_t used = (size_t)snprintf(name, sizeof(name), "%s", plan->name);

		if (i > 0)
			used += (size_t)snprintf(name + used, sizeof(name) - used, ".%s%s",
				plan->namespace, i > 1 ? ".svc" : "");
		if (i > 2)
			snprintf(name + used, sizeof(name) - used, ".%s",
				plan->options->cluster_domain);
		kvw_yaml_item(out, 1, name);
	}
	if (plan->domain[0] != '\0')
		kvw_yaml_item(out, 1, plan->domain);
	kvw_yaml_line(out, 1, "issuerRef:");
	kvw_yaml_line(out, 2, "kind: Issuer");
	kvw_yaml_line(out, 2, "name: %s-tls", plan->name);
}
