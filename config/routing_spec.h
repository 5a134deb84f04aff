/*
 * routing_spec.h - `intelligentRoutingSpec`, as in an InferenceEndpointConfig of SageMaker HyperPod.
 *
 * A file may hold that section of a manifest as it is instead of `routing.strategy`. Both may be there
 * as long as they say the same.
 */
#ifndef KVW_CONFIG_ROUTING_SPEC_H
#define KVW_CONFIG_ROUTING_SPEC_H

#include "config/build.h"

/* A walk's `extra`: reads the section into build->spec. KVW_OK: mistakes are in the report. */
enum kvw_err kvw_routing_spec_walk(
	struct kvw_walk *walk, const struct kvw_node *node) KVW_MUST_CHECK;

/* After the walk: sets the key that the section stands for. KVW_ENOMEM or KVW_OK. */
enum kvw_err kvw_routing_spec_apply(struct kvw_build *build) KVW_MUST_CHECK;

#endif
