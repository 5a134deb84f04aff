/*
 * options.h - the command line of `kvway explain`.
 *
 * Called once, before any thread is started: getopt_long keeps its state in globals.
 */
#ifndef KVW_EXPLAIN_OPTIONS_H
#define KVW_EXPLAIN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "admin_options.h"
#include "kvway/err.h"

#define KVW_EXPLAIN_HEADERS_MAX 16

/* Exit statuses of `kvway explain`. */
enum kvw_explain_status {
	KVW_EXPLAIN_OK = 0,
	KVW_EXPLAIN_FAILED = 1,      /* an answer, but no explanation; or a file with mistakes */
	KVW_EXPLAIN_USAGE = 2,       /* the command line is wrong, or there is no request */
	KVW_EXPLAIN_UNREACHABLE = 3, /* no router answers */
};

/* Borrowed from argv. */
struct kvw_explain_options {
	struct kvw_admin_options router;
	const char *path;   /* --path; NULL: decided by the body */
	const char *key;    /* --key, its name; NULL: no key */
	const char *headers[KVW_EXPLAIN_HEADERS_MAX]; /* --header, "Name: value" */
	size_t header_count;
	bool cold;
};

/* argv[0] is the word `explain`. False: the program exits with *status. Help goes to out,
 * complaints to err. argv may be reordered. */
bool kvw_explain_options_parse(int argc, char **argv, FILE *out, FILE *err,
	struct kvw_explain_options *options, enum kvw_explain_status *status) KVW_MUST_CHECK;

#endif
