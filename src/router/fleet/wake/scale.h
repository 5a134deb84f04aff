/*
 * scale.h - scales a pool's Deployment or StatefulSet from zero to one replica by the API of
 * Kubernetes.
 *
 * The object's subresource `scale` is read first: an object with a replica stays unchanged, so that
 * nothing is ever scaled down. The patch contains the read version; if another client has scaled
 * the object meanwhile, Kubernetes answers 409 and changes nothing.
 *
 * Threads: that of the transfers' loop, whose `done` must be kvw_kube_call_done.
 */
#ifndef KVW_SCALE_H
#define KVW_SCALE_H

#include "fleet/wake/webhook.h"

struct kvw_scale;

/* Starts to scale the pool, which has `scale` configured. config is borrowed until the end. `ended`
 * comes later, once, unless the struct is destroyed first. */
enum kvw_err kvw_scale_start(struct kvw_curl_loop *loop, const struct kvw_config *config,
	size_t pool, kvw_wake_ended_fn *ended, void *arg, char *why, size_t room,
	struct kvw_scale **out) KVW_MUST_CHECK;
/* NULL is allowed; must not be called from `ended` */
void kvw_scale_destroy(struct kvw_scale *scale);

#endif
