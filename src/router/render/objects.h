/*
 * objects.h - the writers: each writes its documents of Kubernetes objects, in a fixed order.
 *
 * The writers write only texts that plan.h has checked or that yaml.h quotes. Errors of the stream
 * are its own (ferror).
 */
#ifndef KVW_RENDER_OBJECTS_H
#define KVW_RENDER_OBJECTS_H

#include <stdio.h>

#include "render/plan.h"

/* Part of an object's name and of its labels. */
enum kvw_component {
	KVW_COMPONENT_WORKER,
	KVW_COMPONENT_ROUTER,
	KVW_COMPONENT_REDIS,
	KVW_COMPONENT_KVTIERD
};

/* "---", apiVersion, kind, and metadata with labels. name: suffix of the plan's name ("": none).
 * The caller may add metadata at depth 1. */
void kvw_object_begin(FILE *out, const struct kvw_plan *plan, const char *version, const char *kind,
	enum kvw_component component, const char *name);

/* Writes a ConfigMap or Secret with one file, which write() fills. False: out of memory, and
 * nothing was written. */
bool kvw_object_file(FILE *out, const struct kvw_plan *plan, const char *kind,
	enum kvw_component component, const char *name, const char *file,
	void (*write)(FILE *, const struct kvw_plan *)) KVW_MUST_CHECK;

/* The labels that select a component's pods; all labels of one. */
void kvw_object_selector(
	FILE *out, int depth, const struct kvw_plan *plan, enum kvw_component component);
void kvw_object_labels(
	FILE *out, int depth, const struct kvw_plan *plan, enum kvw_component component);

/* A container's probe of its HTTP port, at depth 4. */
struct kvw_probe {
	const char *name; /* "livenessProbe", ... */
	const char *path;
	const char *port; /* by name */
	bool tls;
	int period_s, timeout_s, failures;
};
void kvw_object_probe(FILE *out, const struct kvw_probe *probe);

/* Members of a container that needs no rights: no root, nothing to write to. */
void kvw_object_unprivileged(FILE *out, int depth);
/* The same of its pod. */
void kvw_object_unprivileged_pod(FILE *out, int depth, int user);

/* An account without rights in the cluster; a pod of it gets a token only where it asks for one. */
void kvw_object_account(
	FILE *out, const struct kvw_plan *plan, enum kvw_component component, const char *name);

/* Lets only pods of these components (bits) and, with metrics, Prometheus connect to a component's
 * pods, whose ports have no password. */
void kvw_object_policy(FILE *out, const struct kvw_plan *plan, enum kvw_component component,
	const char *name, int port, unsigned from, bool metrics);

void kvw_render_workers(FILE *out, const struct kvw_plan *plan);
/* PersistentVolume and its claim. */
void kvw_render_volumes(FILE *out, const struct kvw_plan *plan);
/* False: out of memory. */
bool kvw_render_cache(FILE *out, const struct kvw_plan *plan) KVW_MUST_CHECK;
bool kvw_render_router(FILE *out, const struct kvw_plan *plan) KVW_MUST_CHECK;
void kvw_render_tls(FILE *out, const struct kvw_plan *plan);
void kvw_render_monitoring(FILE *out, const struct kvw_plan *plan);
void kvw_render_scaling_workers(FILE *out, const struct kvw_plan *plan);
void kvw_render_scaling_router(FILE *out, const struct kvw_plan *plan);

/* kvway's configuration. */
void kvw_render_config(FILE *out, const struct kvw_plan *plan);

/* Writes kvway's discovery of workers: keys of its configuration, and the rights that they need. */
void kvw_render_discovery(FILE *out, const struct kvw_plan *plan);
void kvw_render_rights(FILE *out, const struct kvw_plan *plan);

/* Flags of vLLM, or variables of LMI, for caches and events: JSON; NULL: none. Static. */
const char *kvw_render_connector(const struct kvw_plan *plan);
const char *kvw_render_events(const struct kvw_plan *plan);

/* Members of a pod that goes to the workers' nodes, at depth 3. */
void kvw_render_placing(FILE *out, const struct kvw_plan *plan);

/* Members of the worker's pod and container that bring the model,
 * the caches' settings and shared memory. */
void kvw_render_pod_volumes(FILE *out, int depth, const struct kvw_plan *plan);
void kvw_render_mounts(FILE *out, int depth, const struct kvw_plan *plan);
void kvw_render_init(FILE *out, int depth, const struct kvw_plan *plan);

#endif
