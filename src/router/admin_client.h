/*
 * admin_client.h - lets the commands of kvway ask a running router, by HTTP to its admin address.
 *
 * Proxies named in the environment are not used: the admin address is private. Call it before other
 * threads start: it initializes libcurl.
 */
#ifndef KVW_ADMIN_CLIENT_H
#define KVW_ADMIN_CLIENT_H

#include "admin_options.h"
#include "config/config.h"
#include "kvway/slice.h"

/* One run of a command, and the router that it asks. The command sets the first four. */
struct kvw_admin_client {
	const char *command; /* "workers" */
	const struct kvw_admin_options *options;
	FILE *out, *err;

	struct kvw_config *config; /* the file of -c; owned; NULL: not given */
	char address[280];         /* host:port */
	bool https;
	const char *ca; /* file with the trusted authorities; NULL: the system's */
	char *key;      /* owned; NULL: none is sent */
	char why[640];  /* why the last question had no answer */
};

/* A question: METHOD PATH/ITEM ACTION?NAME=VALUE&... Borrowed. */
struct kvw_admin_question {
	const char *method; /* NULL: GET */
	const char *path;
	const char *item;   /* is percent-encoded; NULL: none */
	const char *action; /* behind the item; NULL: none */
	struct {
		const char *name, *value; /* is percent-encoded; NULL: left out */
	} parameters[8];
	struct kvw_slice body;
	const char *const *headers; /* "Name: value" */
	size_t header_count;
	long answer_ms; /* how long the answer may take; 0: a minute */
	bool quiet;     /* nothing is printed if there is no answer */
};

/* An answer. body is owned; free() it. */
struct kvw_admin_reply {
	long status; /* of HTTP */
	char *body;
	size_t len;
};

/* Reads the files of -c and --key-file, and finds the router's address. */
enum kvw_exit kvw_admin_client_open(struct kvw_admin_client *client) KVW_MUST_CHECK;
void kvw_admin_client_close(struct kvw_admin_client *client);

/* Sends a request and waits for the answer, of at most 64 MiB; prints why there is none. */
enum kvw_exit kvw_admin_client_ask(struct kvw_admin_client *client,
	const struct kvw_admin_question *question, struct kvw_admin_reply *out) KVW_MUST_CHECK;

/* Prints an answer as it is, and a newline if it ends without one. */
void kvw_admin_client_pass(
	struct kvw_admin_client *client, const struct kvw_admin_reply *reply);

/* Prints the message of an answer that is an error, or else that it is none of kvway's for this
 * path. Returns KVW_EXIT_FAILED. */
enum kvw_exit kvw_admin_client_refused(struct kvw_admin_client *client, const char *path,
	const struct kvw_admin_reply *reply);

/* Prints why the command has failed, with its name in front. Returns KVW_EXIT_FAILED. */
__attribute__((format(printf, 2, 3))) enum kvw_exit kvw_admin_client_fail(
	struct kvw_admin_client *client, const char *format, ...);

#endif
