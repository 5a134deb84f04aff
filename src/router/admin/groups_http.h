/*
 * groups_http.h - /groups on the admin address: groups of models, and their weights.
 * Private to src/router/admin.
 */
#ifndef KVW_ADMIN_GROUPS_HTTP_H
#define KVW_ADMIN_GROUPS_HTTP_H

#include "fleet/fleet.h"

struct kvw_conn;

/* True: the request's path is /groups, and is answered. On the control thread. */
bool kvw_groups_http(const struct kvw_fleet *fleet, struct kvw_conn *conn);

#endif
