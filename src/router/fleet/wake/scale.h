/*
 * scale.h - scales a pool's Deployment or StatefulSet from zero to one replica by the API of
 * Kubernetes.
 *
 * Its `scale` is read first: an object with a replica stays unchanged, so that nothing is ever
 * scaled down. The patch contains the read version; if another client has scaled it meanwhile,
 * Kubernetes answers 409 and changes nothing.
 *
 * Threads: that of the transfers' loop, whose `done` must be kvw_kube_call_done.
 */
#ifndef KVW_SCALE_H
#define KVW_SCALE_H

#include "fleet/wake/webhook.h"

struct kvw_scale;

/* config is borrowed during its life; its pool has `scale`.
 * `ended` comes later, once, unless it is destroyed first. */
enum kvw_err kvw_scale_start(struct kvw_curl_loop *loop, const struct kvw_config *config,
	size_t pool, kvw_wake_ended_fn *ended, void *arg, char *why, size_t room,
	struct kvw_scale **out) KVW_MUST_CHECK;
void kvw_scale_destroy(struct kvw_scale *scale); /* NULL is allowed; not from `ended` */

#endif
