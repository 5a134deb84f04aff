/*
 * plan_lmcache.h - in which mode the workers' LMCache runs.
 */
#ifndef KVW_RENDER_PLAN_LMCACHE_H
#define KVW_RENDER_PLAN_LMCACHE_H

#include "render/plan.h"

/* The first version that runs as a server here. Older ones have a coordinator as well, but kvway
 * was tested with this one's protocol. */
#define KVW_LMCACHE_SERVER "0.5.6"

/* To be called when the cache is decided: sets settings, server and version_unknown. */
void kvw_plan_lmcache(
	const struct kvw_manifest *manifest, struct kvw_report *mistakes, struct kvw_plan *plan);

#endif
