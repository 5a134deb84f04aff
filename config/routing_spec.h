/*
 * routing_spec.h - `intelligentRoutingSpec`, a section of an InferenceEndpointConfig of SageMaker
 * HyperPod.
 *
 * A file may have that section of a manifest, unchanged, in place of `routing.strategy`. It may
 * have both if they mean the same.
 */
#ifndef KVW_CONFIG_ROUTING_SPEC_H
#define KVW_CONFIG_ROUTING_SPEC_H

#include "config/build.h"

/* Called by the walk: reads the section into build->spec. KVW_OK also after mistakes, which are in
 * the report. */
enum kvw_err kvw_routing_spec_walk(
	struct kvw_walk *walk, const struct kvw_node *node) KVW_MUST_CHECK;

/* To be called after the walk: sets the key that the section means. KVW_ENOMEM or KVW_OK. */
enum kvw_err kvw_routing_spec_apply(struct kvw_build *build) KVW_MUST_CHECK;

#endif
