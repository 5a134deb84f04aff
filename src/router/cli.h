/*
 * cli.h - reads the command line of kvway.
 *
 * Called once, before any thread is started: getopt_long keeps its state in globals.
 */
#ifndef KVW_CLI_H
#define KVW_CLI_H

#include <stdio.h>

#include "config/config.h"

enum kvw_cli_action {
	KVW_CLI_RUN,  /* serve, with cli->config */
	KVW_CLI_EXIT, /* everything is done: the program ends with cli->status */
	/* `kvway explain`: explain_command.h reads argv[1] and the words after it */
	KVW_CLI_EXPLAIN,
	KVW_CLI_BUNDLE,  /* `kvway bundle`: bundle/command.h reads it */
	KVW_CLI_GROUPS,  /* `kvway groups`, `kvway compare`: groups/command.h reads them */
	KVW_CLI_WORKERS, /* `kvway workers`: workers/command.h reads them */
	KVW_CLI_TRACE, /* `kvway trace`: story/command.h reads them */
	KVW_CLI_USED, /* `kvway usage`: usage/command/command.h does */
	KVW_CLI_TOP, /* `kvway top`: top/command.h reads them */
	KVW_CLI_KEY, /* `kvway key`: auth/command.h reads them */
	KVW_CLI_STATE, /* `kvway state`: state/command.h reads them */
	KVW_CLI_MANIFEST, /* `kvway render -f`: render/command.h reads them */
};

/* Exit statuses of the program. */
enum kvw_cli_status {
	KVW_CLI_OK = 0,
	KVW_CLI_FAILED = 1, /* the configuration has mistakes or cannot be read */
	KVW_CLI_USAGE = 2,  /* the command line itself is wrong */
	KVW_CLI_RESTART = 3, /* `check --diff`: some of the differences need a restart */
};

/* Plain data. */
struct kvw_cli {
	enum kvw_cli_status status; /* exit status for KVW_CLI_EXIT */
	/* set for KVW_CLI_RUN, and then owned by the caller; otherwise NULL */
	struct kvw_config *config;
	/* the file, for reloads; NULL: only flags were given. Points into argv */
	const char *config_path;
	/* the running kvway to take over from; NULL: none. Points into argv */
	const char *takeover_from;
};

/* Reads the command line. Help and results go to out, mistakes to err. argv may be reordered. */
enum kvw_cli_action kvw_cli_parse(
	int argc, char **argv, FILE *out, FILE *err, struct kvw_cli *cli) KVW_MUST_CHECK;

/* Reads a file as -c does. Mistakes, and lack of memory, are printed on errors. */
enum kvw_err kvw_cli_load_file(
	const char *path, FILE *errors, struct kvw_config **out) KVW_MUST_CHECK;

#endif
