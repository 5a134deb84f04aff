/*
 * admin_client.h - lets the commands of kvway ask a running router, by HTTP to its admin address.
 *
 * Proxies named in the environment are not used: the admin address is private. Call it before other
 * threads start: it initializes libcurl.
 */
#ifndef KVW_ADMIN_CLIENT_H
#define KVW_ADMIN_CLIENT_H

#include <stdio.h>

#include "admin_options.h"
#include "config/config.h"
#include "kvway/err.h"
#include "kvway/slice.h"

#define KVW_ADMIN_CLIENT_DEFAULT "127.0.0.1:9090"
#define KVW_ADMIN_CLIENT_TEXT    280 /* room for an address */

/* Where a router is asked, and how its address is trusted.
 * Borrows from the command line and from the configuration. */
struct kvw_admin_where {
	char address[KVW_ADMIN_CLIENT_TEXT]; /* host:port */
	bool https;
	const char *ca;                /* file with the trusted authorities; NULL: the system's */
	/* Files with the client's certificate and key; certificate NULL: none; key NULL: in the
	 * same file. */
	const char *certificate, *key;
	/* Name that the server's certificate must have; NULL: the host of `address`. */
	const char *name;
};

/* Borrowed. */
struct kvw_admin_question {
	const char *method; /* "GET" */
	const char *target; /* "/workers/10.0.0.1%3A8000", percent-encoded */
	struct kvw_slice body;
	const char *const *headers; /* "Name: value" */
	size_t header_count;
	const char *key; /* from kvw_admin_client_key; NULL: no key is sent */
	long answer_ms; /* how long the answer may take; 0: a minute */
};

/* The server's answer. body is owned; free() it. */
struct kvw_admin_reply {
	long status; /* status of the HTTP answer */
	char *body;
	size_t len;
};

/* Sends a request and waits for the answer. KVW_EIO: no answer, and *why (of CURL_ERROR_SIZE) has
 * the cause. KVW_ENOMEM. */
enum kvw_err kvw_admin_client_ask(const struct kvw_admin_where *where,
	const struct kvw_admin_question *question, char *why,
	struct kvw_admin_reply *out) KVW_MUST_CHECK;

/* Finds the address of the router that the command line names. config: of its -c FILE; NULL: not
 * given. KVW_EINVAL: its admin.listen does not state a port; err then has a line that begins with
 * `kvway COMMAND`. */
enum kvw_err kvw_admin_client_find(const struct kvw_admin_options *options,
	const struct kvw_config *config, const char *command, FILE *err,
	struct kvw_admin_where *out) KVW_MUST_CHECK;

/* Prints on err that no router answers at the address, and why. */
void kvw_admin_client_missed(const struct kvw_admin_where *where, const char *command,
	const char *why, const char *more, FILE *err);

/* Reads a key, which is the first line of a file; the caller frees it. NULL: the file cannot be
 * read or has no key; err then has a line that begins with `kvway COMMAND`. */
char *kvw_admin_client_key(const char *path, const char *command, FILE *err);

/* Percent-encodes `text` as a part of a target; the caller frees the result. NULL: out of
 * memory. */
char *kvw_admin_client_encode(const char *text);

#endif
