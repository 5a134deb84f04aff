/*
 * groups_http.h - serves /groups on the admin address: groups of models, and their weights. Private
 * to src/router/admin.
 */
#ifndef KVW_ADMIN_GROUPS_HTTP_H
#define KVW_ADMIN_GROUPS_HTTP_H

#include "fleet/fleet.h"

struct kvw_conn;

/* Serves a request to /groups. False: another path. Called on the control thread. */
bool kvw_groups_http(const struct kvw_fleet *fleet, struct kvw_conn *conn);

#endif
