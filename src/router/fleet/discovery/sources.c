/*
 * sources.c - the list of discovery sources.
 */
#include "fleet/discovery/source.h"

const struct kvw_source_ops *const kvw_sources[] = {
#define KVW_SOURCE(name) &kvw_source_##name,
#include "fleet/discovery/sources.def"
	NULL};
