/*
 * options.h - the command line of `kvway trace`.
 *
 * Called once, before any thread is started: getopt_long keeps its state in globals.
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
	KVW_STORY_FAILED = 1,      /* the router refuses it, or traces nothing */
	KVW_STORY_USAGE = 2,       /* the command line is wrong */
	KVW_STORY_UNREACHABLE = 3, /* no router answers */
};

/* Borrowed from argv; NULL: not given. */
struct kvw_story_options {
	struct kvw_admin_options router;
	const char *id, *model, *worker, *slow, *status, *last;
	bool follow;
};

/* argv[0] is the word `trace`. False: everything is said, leave with *status. Help goes to out,
 * complaints to err. argv may be reordered. */
bool kvw_story_options_parse(int argc, char **argv, FILE *out, FILE *err,
	struct kvw_story_options *options, enum kvw_story_status *status) KVW_MUST_CHECK;

#endif
