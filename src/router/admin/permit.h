/*
 * permit.h - decides which requests the admin address serves, by keys and paths. Private to
 * src/router/admin.
 *
 * The decision is made at the head, before any of a body is kept:
 *
 *   - `/health`, `/ready` and the paths of `admin.open` are for all, with keys `/ui` too;
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

/* Ready when zeroed and the first two members are set. */
struct kvw_admin_permit {
	struct kvw_auth *auth; /* keys of the admin address; borrowed; NULL: there are none */
	bool off_host;         /* the address can be reached from other hosts */

	struct kvw_keyring *ring; /* a reference to the keyring; NULL: none yet */
	uint64_t version;         /* version of `ring` */
	/* the configuration that was checked last, only compared by address; NULL: none yet */
	const struct kvw_config *followed;
	int64_t logged_ns;        /* when a refusal was last logged; 0: never */
};

void kvw_admin_permit_finish(struct kvw_admin_permit *permit);

/* Returns whether the request in conn->clients->head may be served. False: it was answered. If
 * there are keys, the request's key is overwritten in the head. config: the one in force. */
bool kvw_admin_permit(struct kvw_admin_permit *permit, const struct kvw_config *config,
	struct kvw_conn *conn) KVW_MUST_CHECK;

/* Called often, with the configuration in force: warns once of paths in its `admin.open` that
 * change workers, or show where prompts go. */
void kvw_admin_permit_follow(struct kvw_admin_permit *permit, const struct kvw_config *config);

/* Returns whether only this host can reach the address to which the listening socket is bound. */
bool kvw_admin_bound_to_host(int listen_fd);

#endif
