/*
 * config.h - the configuration as the program reads it.
 *
 * Every member comes from config/keys.def; the loader fills all of them, so a reader never asks
 * whether a key was given. A loaded configuration is immutable and owned by whoever loaded it.
 */
#ifndef KVW_CONFIG_H
#define KVW_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kvway/err.h"

struct kvw_strings {
	char **items;
	size_t count;
};

enum kvw_half_close { KVW_HALF_CLOSE_ABORT, KVW_HALF_CLOSE_SERVE };
enum kvw_forwarded {
	KVW_FORWARDED_BOTH,
	KVW_FORWARDED_STANDARD, /* Forwarded, RFC 7239 */
	KVW_FORWARDED_X,        /* X-Forwarded-For and friends */
	KVW_FORWARDED_OFF
};

/* C type of each type in keys.def. */
#define KVW_CTYPE_BOOL             bool
#define KVW_CTYPE_INT              int64_t
#define KVW_CTYPE_SIZE             uint64_t /* bytes */
#define KVW_CTYPE_DURATION         int64_t  /* milliseconds */
#define KVW_CTYPE_RATIO            double
#define KVW_CTYPE_STRING           char *   /* never NULL */
#define KVW_CTYPE_ADDRESS          char *   /* host:port or [v6]:port, syntax checked */
#define KVW_CTYPE_STRATEGY         char *   /* name of a strategy that is built in */
#define KVW_CTYPE_STRINGS          struct kvw_strings
#define KVW_CTYPE_ENUM_half_close  enum kvw_half_close
#define KVW_CTYPE_ENUM_forwarded   enum kvw_forwarded
#define KVW_CTYPE_ENUM_log_level   int /* enum kvw_log_level of base/log.h */

/* One entry of `workers:`. */
struct kvw_worker_config {
#define KVW_WORKER_KEY(path, type, field, def, min, max, reload, text) KVW_CTYPE_##type field;
#include "keys.def"
};

struct kvw_config {
#define KVW_KEY(path, type, field, def, min, max, reload, text) KVW_CTYPE_##type field;
#include "keys.def"
	struct kvw_worker_config *workers;
	size_t worker_count; /* at least 1 after a successful load */
};

/*
 * Reads a YAML file. Every mistake found is written to `errors`, a line each:
 * FILE:LINE:COLUMN: KEY: what was found, what was expected, a suggestion.
 * KVW_EINVAL: at least one mistake. KVW_EIO: the file cannot be read (also told).
 */
enum kvw_err kvw_config_load(const char *path, FILE *errors, struct kvw_config **out)
	KVW_MUST_CHECK;

/* The same from memory; `name` stands where the file's path would. */
enum kvw_err kvw_config_parse(const char *name, const char *text, size_t len, FILE *errors,
	struct kvw_config **out) KVW_MUST_CHECK;

/* NULL is allowed. */
void kvw_config_destroy(struct kvw_config *config);

#endif
