/*
 * usage_http.h - GET /usage of the admin address. Private to src/router/admin.
 *
 * Threads: the control thread.
 */
#ifndef KVW_USAGE_HTTP_H
#define KVW_USAGE_HTTP_H

#include <stdbool.h>

#include "usage/ledger.h"

struct kvw_conn;

/* Returns whether the request was for /usage, and answered. ledger NULL: usage is not counted. */
bool kvw_usage_http(struct kvw_ledger *ledger, struct kvw_conn *conn);

#endif
