/*
 * command.h - `kvway usage`: shows what keys, tenants and models have used of a running router.
 */
#ifndef KVW_USAGE_COMMAND_H
#define KVW_USAGE_COMMAND_H

#include <stdio.h>

/* Exit statuses of `kvway usage`. */
enum kvw_usage_status {
	KVW_USAGE_OK = 0,
	KVW_USAGE_FAILED = 1,      /* the router refused the request, or counts no usage */
	KVW_USAGE_WRONG = 2,       /* the command line is wrong */
	KVW_USAGE_UNREACHABLE = 3, /* no router answers */
};

/* argv[0] is the word `usage`. Returns the program's exit status, an enum kvw_usage_status. */
int kvw_usage_command(int argc, char **argv, FILE *out, FILE *err);

#endif
