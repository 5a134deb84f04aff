/*
 * options.h - parses the command line of `kvway trace`.
 *
 * To be called once, before any thread is started, because getopt_long keeps its state in global
 * variables.
 */
#ifndef KVW_STORY_OPTIONS_H
#define KVW_STORY_OPTIONS_H

#include <stdbool.h>
#include <stdio.h>

#include "admin_options.h"
#include "kvway/err.h"

/* Exit statuses of `kvway trace`. */
enum kvw_story_status {
	KVW_STORY_OK = 0,
	KVW_STORY_FAILED = 1,      /* the router refused the request, or traces nothing */
	KVW_STORY_USAGE = 2,       /* the command line is wrong */
	KVW_STORY_UNREACHABLE = 3, /* no router answers */
};

/* The texts are borrowed from argv; NULL: not given. */
struct kvw_story_options {
	struct kvw_admin_options router;
	const char *id, *model, *worker, *slow, *status, *last;
	bool follow;
};

/* argv[0] is the word `trace`. Returns false if the program is to exit with *status. Help is
 * written to out, errors to err. The order of argv may change. */
bool kvw_story_options_parse(int argc, char **argv, FILE *out, FILE *err,
	struct kvw_story_options *options, enum kvw_story_status *status) KVW_MUST_CHECK;

#endif
