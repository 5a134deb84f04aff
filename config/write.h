/*
 * write.h - writes a configuration as a file from which the same configuration is read.
 */
#ifndef KVW_CONFIG_WRITE_H
#define KVW_CONFIG_WRITE_H

#include "config/config.h"

/* Writes YAML: `listen`, the strategy, each other key that differs from its default, and the
 * workers. A secret is not written: a comment says where it is missing. KVW_ENOMEM: some of the
 * text may have been written. */
enum kvw_err kvw_config_write(FILE *out, const struct kvw_config *config,
	const struct kvw_strategy_ops *const *strategies) KVW_MUST_CHECK;

#endif
