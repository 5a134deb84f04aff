/*
 * open.c - opens a cache over the tiers of this build.
 */
#include "core/kvt_open.h"
#include "tiers/tiers.h"

enum kvt_status kvt_open(const struct kvt_config *config, struct kvt **out)
{
	return kvt_open_with(config, kvt_tiers(), out);
}
