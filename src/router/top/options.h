/*
 * options.h - the command line of `kvway top`. Called once, before any thread is started:
 * getopt_long keeps its state in globals.
 */
#ifndef KVW_TOP_OPTIONS_H
#define KVW_TOP_OPTIONS_H

#include <stdbool.h>
#include <stdio.h>

#include "admin_options.h"

/* Exit statuses. */
enum kvw_top_status {
	KVW_TOP_OK = 0,
	KVW_TOP_FAILED = 1,      /* the router refuses */
	KVW_TOP_USAGE = 2,       /* the command line is wrong */
	KVW_TOP_UNREACHABLE = 3, /* no router answers */
	KVW_TOP_ERRORS = 4,      /* --once: there is a problem of severity error */
};

struct kvw_top_options {
	struct kvw_admin_options router;
	bool once;
};

/* Reads the command line. False: nothing is left to do, and *status is the exit status. */
bool kvw_top_options_parse(int argc, char **argv, FILE *out, FILE *err,
	struct kvw_top_options *options, enum kvw_top_status *status);

#endif
