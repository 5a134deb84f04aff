/*
 * options.h - parses the command lines of `kvway groups` and `kvway compare`.
 *
 * To be called once, before any thread is started, because getopt_long keeps its state in global
 * variables.
 */
#ifndef KVW_GROUPS_OPTIONS_H
#define KVW_GROUPS_OPTIONS_H

#include <stdint.h>

#include "admin_options.h"

enum kvw_groups_verb {
	KVW_GROUPS_LIST,
	KVW_GROUPS_WEIGHT,  /* names are the model, then at least one GROUP=NUMBER */
	KVW_GROUPS_COMPARE, /* names: two groups */
};

/* Borrowed from argv. */
struct kvw_groups_options {
	struct kvw_admin_options router;
	enum kvw_groups_verb verb;
	char **names;
	size_t name_count;
	const char *model; /* for COMPARE; NULL: not given */
	const char *interval;
	int64_t interval_ms; /* for COMPARE; 0: since the start of the router */
};

/* argv[0] is the word `groups` or `compare`. Returns false if the program is to exit with *status.
 * Help is written to out, errors to err. The order of argv may change. */
bool kvw_groups_options_parse(int argc, char **argv, FILE *out, FILE *err,
	struct kvw_groups_options *options, enum kvw_exit *status) KVW_MUST_CHECK;

#endif
