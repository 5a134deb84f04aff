/*
 * admin_options.h - reads the command lines of `kvway workers`, `groups`, `compare`, `trace`,
 * `usage`, `top`, `bundle` and `explain`: the flags that all of them have, which say which router
 * to ask, and each command's own. After a mistake a command prints one line that names it and one
 * that says where help is found.
 *
 * Called once, before any thread is started: getopt_long keeps its state in globals.
 */
#ifndef KVW_ADMIN_OPTIONS_H
#define KVW_ADMIN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "kvway/err.h"

/* Exit statuses of these commands. */
enum kvw_exit {
	KVW_EXIT_OK = 0,
	KVW_EXIT_FAILED = 1,      /* the router refuses, or the command did not do all it should */
	KVW_EXIT_USAGE = 2,       /* the command line is wrong */
	KVW_EXIT_UNREACHABLE = 3, /* no router answers */
	KVW_EXIT_PROBLEMS = 4,    /* `kvway top --once`: there is a problem of severity error */
};

/* Which router is asked, and how its answer is shown: the first member of each command's options.
 * Borrowed from argv; NULL: not given. */
struct kvw_admin_options {
	const char *admin, *config;
	const char *key_file;
	const char *ca, *cert, *cert_key, *server_name;
	bool https; /* the address has `https://` in front, or one of the four is given */
	bool json, help;
};

/* Lines of a command's help about these flags: the first one and the others. */
#define KVW_ADMIN_ADDRESS_HELP                                                                     \
	"      --admin ADDR         "                                                              \
	"admin address of the router, [https://]HOST:PORT (default 127.0.0.1:9090)\n"              \
	"  -c, --config FILE        configuration of the router: its admin.listen\n"
#define KVW_ADMIN_FLAGS_HELP                                                                       \
	"      --key-file FILE      the first line is a key of the router's admin.keys_file\n"     \
	"      --ca FILE            authorities that may sign the certificate of an admin\n"       \
	"                           address with TLS; default: the system's, with -c FILE its\n"   \
	"                           admin.tls.certificate itself\n"                                \
	"      --cert FILE, --key FILE\n"                                                          \
	"                           a certificate and its key to show there\n"                     \
	"      --server-name NAME   the name that its certificate bears, if not the host's\n"

struct kvw_admin_line;

/* A flag. */
struct kvw_admin_flag {
	const char *name; /* "slow": --slow; NULL: the table ends */
	char letter;      /* 'o': -o is the same; 0: there is none */
	bool bare;        /* takes no value, and its member is a bool; else it is a const char * */
	size_t offset;    /* of its member in the command's options */
	long most;        /* the value is a whole number up to this one; 0: it is a text */
	/* Returns the part of the value that the member gets, once; NULL: it was taken otherwise,
	 * or is wrong, which was reported. NULL: the member gets any value. */
	const char *(*take)(struct kvw_admin_line *line, const char *value);
};

/* A command line while it is read. */
struct kvw_admin_line {
	const char *command, *help;
	const struct kvw_admin_flag *flags; /* the command's own */
	/* How a mistake goes on behind "found `WORD`, "; NULL: words may follow the flags. */
	const char *stray;
	/* Checks the words, and which flags go together. NULL: all do. */
	void (*check)(struct kvw_admin_line *line);
	FILE *out, *err; /* out: for help; err: for mistakes */
	struct kvw_admin_options *options; /* with the command's own behind them; zeroed */
	/* --- while it is read --- */
	char **words; /* behind the flags; in argv */
	size_t word_count;
	bool bad; /* a mistake was reported */
};

/* Reads the line; argv may be reordered. False: the program ends with *status, since help was
 * printed or a mistake. */
bool kvw_admin_line_read(
	struct kvw_admin_line *line, int argc, char **argv, enum kvw_exit *status) KVW_MUST_CHECK;

/* Prints a mistake with the command in front, and where help is found, and marks the line as
 * bad. */
__attribute__((format(printf, 2, 3))) void kvw_admin_line_wrong(
	struct kvw_admin_line *line, const char *format, ...);

#endif
