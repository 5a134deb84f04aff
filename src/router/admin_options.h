/*
 * admin_options.h - reads what the command lines of `kvway workers`, `groups`, `compare`, `trace`,
 * `usage`, `top` and `explain` have in common: which router to ask, and other flags. After a
 * mistake a command prints one line that names it and one that says where help is found.
 *
 * Called once, before any thread is started: getopt_long keeps its state in globals.
 */
#ifndef KVW_ADMIN_OPTIONS_H
#define KVW_ADMIN_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>

/* Which router is asked, and how its answer is shown. Borrowed from argv; NULL: not given. */
struct kvw_admin_options {
	const char *admin, *config;
	const char *key_file; /* --key-file */
	bool https; /* the address has `https://` in front, or one of these flags is given: */
	const char *ca;       /* --ca */
	const char *cert, *cert_key; /* --cert, --key */
	const char *server_name;     /* --server-name */
	bool json;
};

/* Values of the shared flags in getopt_long's table; a command's own flags have others. */
enum kvw_admin_flag {
	KVW_FLAG_CONFIG = 'c',
	KVW_FLAG_HELP = 'h',
	KVW_FLAG_ADMIN = 1024,
	KVW_FLAG_JSON,
	KVW_FLAG_KEY_FILE,
	KVW_FLAG_CA,
	KVW_FLAG_CERT,
	KVW_FLAG_CERT_KEY,
	KVW_FLAG_SERVER_NAME
};
#define KVW_ADMIN_FLAGS                                                                            \
	{"config", required_argument, NULL, KVW_FLAG_CONFIG},                                      \
	{"help", no_argument, NULL, KVW_FLAG_HELP},                                                \
	{"admin", required_argument, NULL, KVW_FLAG_ADMIN},                                        \
	{"json", no_argument, NULL, KVW_FLAG_JSON},                                                \
	{"key-file", required_argument, NULL, KVW_FLAG_KEY_FILE},                                  \
	{"ca", required_argument, NULL, KVW_FLAG_CA},                                              \
	{"cert", required_argument, NULL, KVW_FLAG_CERT},                                          \
	{"key", required_argument, NULL, KVW_FLAG_CERT_KEY},                                       \
	{"server-name", required_argument, NULL, KVW_FLAG_SERVER_NAME}

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

/* A command line while it is read. */
struct kvw_admin_line {
	const char *command;        /* "workers" */
	/* KVW_ADMIN_FLAGS and the command's own; ends with a name of NULL. */
	const struct option *flags;
	const char *letters; /* short options as for getopt_long: ":c:h" and the command's own */
	FILE *out, *err;            /* out: for help; err: for mistakes */
	struct kvw_admin_options *router;
	void *options; /* the command's own */
	void (*help)(const struct kvw_admin_line *line);
	/* Takes one of the command's own options; false: it is another one. */
	bool (*take)(struct kvw_admin_line *line, int option);
	bool helped;                /* help was printed, and nothing is left to do */
	bool bad;                   /* a mistake was reported */
};

/* Reads the flags; the words after them are argv[optind] and so on. argv may be reordered. True:
 * the caller goes on with the words, and checks which flags go together. */
bool kvw_admin_line_read(struct kvw_admin_line *line, int argc, char **argv);

/* Prints where help is found, after a mistake was named. */
void kvw_admin_line_fail(struct kvw_admin_line *line);

/* Prints a mistake with the command in front, and marks the line as bad. */
__attribute__((format(printf, 2, 3))) void kvw_admin_line_wrong(
	struct kvw_admin_line *line, const char *format, ...);

/* Stores optarg in *field, which may be given only once. */
void kvw_admin_line_text(struct kvw_admin_line *line, const char **field, const char *flag);

/* Checks that --admin and -c are not both given, and that --key comes with --cert. */
void kvw_admin_line_check(struct kvw_admin_line *line, const struct kvw_admin_options *options);

#endif
