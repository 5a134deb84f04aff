/*
 * cli.h - what the command line of kvway asks for.
 *
 * Called once, before any thread is started: getopt_long keeps its state in globals.
 */
#ifndef KVW_CLI_H
#define KVW_CLI_H

#include <stdio.h>

#include "config/config.h"

enum kvw_cli_action {
	KVW_CLI_RUN,  /* serve, with cli->config */
	KVW_CLI_EXIT, /* everything is said and done: leave with cli->status */
	KVW_CLI_EXPLAIN, /* `kvway explain`: argv[1] and what follows is for explain_command.h */
	KVW_CLI_GROUPS,  /* `kvway groups`, `kvway compare`: likewise, for groups/command.h */
	KVW_CLI_WORKERS, /* `kvway workers`: likewise, for workers/command.h */
	KVW_CLI_TRACE, /* `kvway trace`: likewise, for story/command.h */
	KVW_CLI_KEY, /* `kvway key`: likewise, for auth/command.h */
	KVW_CLI_STATE, /* `kvway state`: likewise, for state/command.h */
	KVW_CLI_MANIFEST, /* `kvway render -f`: likewise, for render/command.h */
};

/* Exit statuses of the program. */
enum kvw_cli_status {
	KVW_CLI_OK = 0,
	KVW_CLI_FAILED = 1, /* the configuration has mistakes or cannot be read */
	KVW_CLI_USAGE = 2,  /* the command line itself is wrong */
	KVW_CLI_RESTART = 3, /* `check --diff`: something that differs needs a restart */
};

/* Plain data. */
struct kvw_cli {
	enum kvw_cli_status status; /* for KVW_CLI_EXIT */
	struct kvw_config *config;  /* for KVW_CLI_RUN: the caller's to destroy; else NULL */
	const char *config_path;    /* the file, for a reload; NULL: flags only. From argv */
	const char *takeover_from;  /* the running kvway to take over from; NULL: none. From argv */
};

/* Help and good news go to out, complaints to err. argv may be reordered. */
enum kvw_cli_action kvw_cli_parse(
	int argc, char **argv, FILE *out, FILE *err, struct kvw_cli *cli) KVW_MUST_CHECK;

/* Reads a file as -c does. Writes mistakes, and that memory ran out, to errors. */
enum kvw_err kvw_cli_load_file(
	const char *path, FILE *errors, struct kvw_config **out) KVW_MUST_CHECK;

#endif
