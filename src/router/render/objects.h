/*
 * objects.h - functions that write Kubernetes objects, each a fixed set of documents in a fixed
 * order.
 *
 * They write only texts that plan.h has checked or that yaml.h puts into quotes. If writing fails,
 * the stream has the error (ferror).
 */
#ifndef KVW_RENDER_OBJECTS_H
#define KVW_RENDER_OBJECTS_H

#include <stdio.h>

#include "render/plan.h"

/* The parts of an installation. A part's name is in the names and labels of its objects. */
enum kvw_component {
	KVW_COMPONENT_WORKER,
	KVW_COMPONENT_ROUTER,
	KVW_COMPONENT_REDIS,
	KVW_COMPONENT_KVTIERD
};

/* Writes "---", apiVersion, kind, and metadata with labels. name is appended to the plan's name
 * ("": nothing is). The caller may add metadata at depth 1. */
void kvw_object_begin(FILE *out, const struct kvw_plan *plan, const char *version, const char *kind,
	enum kvw_component component, const char *name);

/* Writes a ConfigMap or Secret with one file, whose contents write() writes. Returns false if
 * memory is short; then nothing was written. */
bool kvw_object_file(FILE *out, const struct kvw_plan *plan, const char *kind,
	enum kvw_component component, const char *name, const char *file,
	void (*write)(FILE *, const struct kvw_plan *)) KVW_MUST_CHECK;

/* These write the labels that select a component's pods, and all labels of a pod. */
void kvw_object_selector(
	FILE *out, int depth, const struct kvw_plan *plan, enum kvw_component component);
void kvw_object_labels(
	FILE *out, int depth, const struct kvw_plan *plan, enum kvw_component component);

/* A probe of a container's HTTP port, written at depth 4. */
struct kvw_probe {
	const char *name; /* "livenessProbe", ... */
	const char *path;
	const char *port; /* by name */
	bool tls;
	int period_s, timeout_s, failures;
};
void kvw_object_probe(FILE *out, const struct kvw_probe *probe);

/* Writes the settings of a container that needs no rights: it does not run as root, and cannot
 * write to its file system. */
void kvw_object_unprivileged(FILE *out, int depth);
/* Writes such settings for the container's pod. */
void kvw_object_unprivileged_pod(FILE *out, int depth, int user);

/* Writes an account without rights in the cluster. A pod with it gets a token only if the pod asks
 * for one. */
void kvw_object_account(
	FILE *out, const struct kvw_plan *plan, enum kvw_component component, const char *name);

/* Writes a policy by which only pods of these components (as bits) and, with metrics, Prometheus
 * may connect to a component's pods, because their ports have no password. */
void kvw_object_policy(FILE *out, const struct kvw_plan *plan, enum kvw_component component,
	const char *name, int port, unsigned from, bool metrics);

void kvw_render_workers(FILE *out, const struct kvw_plan *plan);
/* PersistentVolume and its claim. */
void kvw_render_volumes(FILE *out, const struct kvw_plan *plan);
/* Returns false if memory is short. */
bool kvw_render_cache(FILE *out, const struct kvw_plan *plan) KVW_MUST_CHECK;
bool kvw_render_router(FILE *out, const struct kvw_plan *plan) KVW_MUST_CHECK;
void kvw_render_tls(FILE *out, const struct kvw_plan *plan);
void kvw_render_monitoring(FILE *out, const struct kvw_plan *plan);
void kvw_render_scaling_workers(FILE *out, const struct kvw_plan *plan);
void kvw_render_scaling_router(FILE *out, const struct kvw_plan *plan);

/* kvway's configuration. */
void kvw_render_config(FILE *out, const struct kvw_plan *plan);

/* Writes how kvway finds workers: the keys in its configuration, and the rights that they need. */
void kvw_render_discovery(FILE *out, const struct kvw_plan *plan);
void kvw_render_rights(FILE *out, const struct kvw_plan *plan);

#define KVW_CONNECTOR_ROOM 4096

/* Returns the value, in JSON, of vLLM's flag or LMI's variable for caches and events; NULL: there
 * is none. Static, or in room. */
const char *kvw_render_connector(
	const struct kvw_plan *plan, char room[static KVW_CONNECTOR_ROOM]);
const char *kvw_render_events(const struct kvw_plan *plan);

/* Writes the part of it by which vLLM starts LMCache's server. */
void kvw_render_server(const struct kvw_plan *plan, char *text, size_t size);

/* Writes the settings that put a pod on the workers' nodes, at depth 3. */
void kvw_render_placing(FILE *out, const struct kvw_plan *plan);

/* These write the parts of the worker's pod and container for the model, the caches' settings and
 * shared memory. */
void kvw_render_pod_volumes(FILE *out, int depth, const struct kvw_plan *plan);
void kvw_render_mounts(FILE *out, int depth, const struct kvw_plan *plan);
void kvw_render_init(FILE *out, int depth, const struct kvw_plan *plan);

#endif
