/*
 * worker_url.h - http://host:port[/prefix], the only form of a worker's address.
 */
#ifndef KVW_WORKER_URL_H
#define KVW_WORKER_URL_H

#include "kvway/err.h"

struct kvw_worker_url {
	char host[256];      /* without the brackets of an IPv6 literal */
	char authority[280]; /* host:port as written */
	char path[256];      /* "" or "/prefix" without a trailing slash */
	unsigned port;       /* 80 if none is given */
};

/* KVW_EINVAL: another scheme, no host, user info, a bad port, a query, or too long. */
enum kvw_err kvw_worker_url_parse(const char *text, struct kvw_worker_url *out) KVW_MUST_CHECK;

#endif
