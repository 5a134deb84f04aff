/*
 * check_lmcache.h - `kvtier check` for LMCache's configuration.
 */
#ifndef KVT_CHECK_LMCACHE_H
#define KVT_CHECK_LMCACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "kvtier/kvtier.h"

/* Prints mistakes and notes on standard error, and on standard output each given key and its
 * result; fills *config, as left by kvt_config_init, with the settings that would run, and adds to
 * *mistakes. name and yaml NULL: only source->variables are used. Returns false if memory is short,
 * which is reported. */
bool kvt_check_lmcache(const struct kvt_lmcache_source *source, const char *name, const char *yaml,
	size_t len, struct kvt_config *config, size_t *mistakes);

#endif
