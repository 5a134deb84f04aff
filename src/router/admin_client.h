/*
 * admin_client.h - how the commands of kvway ask a running router: HTTP to its admin address.
 *
 * Proxies named in the environment are not used: the admin address is private. Call it before other
 * threads start: libcurl initialises itself here.
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
	const char *ca;                /* file of authorities; NULL: the system's */
	/* Files, to show there; NULL: none, and the same file as the certificate. */
	const char *certificate, *key;
	/* That its certificate must bear; NULL: the host of `address`. */
	const char *name;
};

/* Borrowed. */
struct kvw_admin_question {
	const char *method; /* "GET" */
	const char *target; /* "/workers/10.0.0.1%3A8000", percent-encoded */
	struct kvw_slice body;
	const char *const *headers; /* "Name: value" */
	size_t header_count;
	const char *key; /* of kvw_admin_client_key; NULL: none is shown */
	long answer_ms; /* how long the answer may take; 0: a minute */
};

/* The server's answer. body is owned; free() it. */
struct kvw_admin_reply {
	long status; /* of HTTP */
	char *body;
	size_t len;
};

/* KVW_EIO: no answer from there, *why (of CURL_ERROR_SIZE) says why. KVW_ENOMEM. */
enum kvw_err kvw_admin_client_ask(const struct kvw_admin_where *where,
	const struct kvw_admin_question *question, char *why,
	struct kvw_admin_reply *out) KVW_MUST_CHECK;

/* Where the router that the command line names can be reached from here; config: of its -c FILE,
 * NULL: not given.
 * KVW_EINVAL: its admin.listen does not say on which port; `kvway COMMAND` says so on err. */
enum kvw_err kvw_admin_client_find(const struct kvw_admin_options *options,
	const struct kvw_config *config, const char *command, FILE *err,
	struct kvw_admin_where *out) KVW_MUST_CHECK;

/* Says on err that no router answers there, and why. */
void kvw_admin_client_missed(const struct kvw_admin_where *where, const char *command,
	const char *why, const char *more, FILE *err);

/* The key in a file, whose first line it is; free() it. NULL: it cannot be read or holds none;
 * `kvway COMMAND` says so on err. */
char *kvw_admin_client_key(const char *path, const char *command, FILE *err);

/* `text` for a part of a target, percent-encoded; free() it. NULL: out of memory. */
char *kvw_admin_client_encode(const char *text);

#endif
