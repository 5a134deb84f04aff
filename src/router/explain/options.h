/*
 * options.h - parses the command line of `kvway explain`.
 *
 * To be called once, before any thread is started, because getopt_long keeps its state in global
 * variables.
 */
#ifndef KVW_EXPLAIN_OPTIONS_H
#define KVW_EXPLAIN_OPTIONS_H

#include "admin_options.h"

#define KVW_EXPLAIN_HEADERS_MAX 16

/* Borrowed from argv. */
struct kvw_explain_options {
	struct kvw_admin_options router;
	const char *path;   /* value of --path; NULL: the body decides */
	const char *key;    /* value of --key-name, the name of a key; NULL: none */
	const char *headers[KVW_EXPLAIN_HEADERS_MAX]; /* --header, "Name: value" */
	size_t header_count;
	bool cold;
};

/* argv[0] is the word `explain`. Returns false if the program is to exit with *status. Help is
 * written to out, errors to err. The order of argv may change. */
bool kvw_explain_options_parse(int argc, char **argv, FILE *out, FILE *err,
	struct kvw_explain_options *options, enum kvw_exit *status) KVW_MUST_CHECK;

#endif
