/*
 * write.h - a configuration as a file that gives the same.
 */
#ifndef KVW_CONFIG_WRITE_H
#define KVW_CONFIG_WRITE_H

#include "config/config.h"

/* Writes YAML: `listen`, the strategy and each other key that differs from its default, and the workers.
 * A secret becomes a comment that says where it is missing. KVW_ENOMEM: something may be written. */
enum kvw_err kvw_config_write(FILE *out, const struct kvw_config *config,
	const struct kvw_strategy_ops *const *strategies) KVW_MUST_CHECK;

#endif
