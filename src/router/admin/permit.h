/*
 * permit.h - which requests the admin address serves: its own keys, and paths that need none.
 * Private to src/router/admin.
 *
 * Decided at the head, before any of a body is kept:
 *
 *   - `/health`, `/ready` and the paths of `admin.open` are for all;
 *   - with `admin.keys_file` everything else needs a key of it, from wherever it is asked;
 *   - without it everything else is for this host, and for clients with a certificate
 *     (`admin.tls.client_ca`);
 *   - where no key is asked for, it must not come from a web page (origin.h).
 *
 * Threads: the control thread's.
 */
#ifndef KVW_ADMIN_PERMIT_H
#define KVW_ADMIN_PERMIT_H

#include "auth/auth.h"
#include "server/connection.h"

/* Zeroed and with its first two members set it is ready. */
struct kvw_admin_permit {
	struct kvw_auth *auth; /* borrowed; NULL: there are no keys */
	bool off_host;         /* the address can be reached from other hosts */

	struct kvw_keyring *ring; /* a reference; NULL: none yet */
	uint64_t version;         /* of ring */
	const struct kvw_config *followed; /* never looked into; NULL: none yet */
	int64_t logged_ns;        /* when a refusal was logged last; 0: never */
};

void kvw_admin_permit_finish(struct kvw_admin_permit *permit);

/* May the request in conn->clients->head be served? False: it is answered. With keys, the request's
 * key is overwritten where it lies. config: in force. */
bool kvw_admin_permit(struct kvw_admin_permit *permit, const struct kvw_config *config,
	struct kvw_conn *conn) KVW_MUST_CHECK;

/* The configuration in force, again and again: warns once of paths in its `admin.open` that change
 * workers, or show where prompts go. */
void kvw_admin_permit_follow(struct kvw_admin_permit *permit, const struct kvw_config *config);

/* Can only this host reach the address at which the listening socket is bound? */
bool kvw_admin_bound_to_host(int listen_fd);

#endif
