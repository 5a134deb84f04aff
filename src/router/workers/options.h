/*
 * options.h - parses the command line of `kvway workers`.
 *
 * To be called once, before any thread is started, because getopt_long keeps its state in global
 * variables.
 */
#ifndef KVW_WORKERS_OPTIONS_H
#define KVW_WORKERS_OPTIONS_H

#include <stdint.h>

#include "admin_options.h"

enum kvw_workers_verb {
	KVW_WORKERS_LIST,
	KVW_WORKERS_ADD,
	KVW_WORKERS_DRAIN,
	KVW_WORKERS_UNDRAIN,
	KVW_WORKERS_REMOVE,
	KVW_WORKERS_WEIGHT,
};

#define KVW_WORKERS_MODELS_MAX 64

/* Borrowed from argv. */
struct kvw_workers_options {
	struct kvw_admin_options router;
	enum kvw_workers_verb verb;
	/* the words after the verb: URLs for ADD, an ID, or for WEIGHT an ID and a number */
	char **names;
	size_t name_count;
	const char *models[KVW_WORKERS_MODELS_MAX];
	size_t model_count;
	const char *wait; /* for DRAIN; NULL: not given */
	int64_t wait_ms;
	bool now, remove;
};

/* argv[0] is the word `workers`. Returns false if the program is to exit with *status. Help is
 * written to out, errors to err. The order of argv may change. */
bool kvw_workers_options_parse(int argc, char **argv, FILE *out, FILE *err,
	struct kvw_workers_options *options, enum kvw_exit *status) KVW_MUST_CHECK;

#endif
