/*
 * options.h - parses the command line of `kvway explain`.
 *
 * To be called once, before any thread is started, because getopt_long keeps its state in global
 * variables.
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
	/* the router answered without an explanation, or the file has mistakes */
	KVW_EXPLAIN_FAILED = 1,
	KVW_EXPLAIN_USAGE = 2,       /* the command line is wrong, or there is no request */
	KVW_EXPLAIN_UNREACHABLE = 3, /* no router answers */
};

/* Borrowed from argv. */
struct kvw_explain_options {
	struct kvw_admin_options router;
	const char *path;   /* value of --path; NULL: the body decides */
	const char *key;    /* value of --key, the name of a key; NULL: none */
	const char *headers[KVW_EXPLAIN_HEADERS_MAX]; /* --header, "Name: value" */
	size_t header_count;
	bool cold;
};

/* argv[0] is the word `explain`. Returns false if the program is to exit with *status. Help is
 * written to out, errors to err. The order of argv may change. */
bool kvw_explain_options_parse(int argc, char **argv, FILE *out, FILE *err,
	struct kvw_explain_options *options, enum kvw_explain_status *status) KVW_MUST_CHECK;

#endif
