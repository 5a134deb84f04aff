/*
 * auth.h - the present keys of clients, and a thread that reads their file again when it has
 * changed.
 *
 * For each request, a loop checks whether there are newer keys (kvw_auth_version, one atomic read),
 * and if so takes a reference to them: so a key that was removed from the file is invalid once the
 * file is read. A file with mistakes changes nothing.
 *
 * Threads: kvw_auth_start and kvw_auth_stop are called once each; all other functions from any
 * thread.
 */
#ifndef KVW_AUTH_H
#define KVW_AUTH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "auth/keyring.h"
#include "auth/tenants.h"

struct kvw_auth;
struct kvw_jwt_gate;

/* For metrics. */
struct kvw_auth_state {
	_Atomic uint64_t keys;        /* in force */
	_Atomic uint64_t ok, refused; /* how often a changed file was read since the start */
	_Atomic bool last_refused;
	/* wall clock time of the last good reading, the one at the start included */
	_Atomic int64_t last_ok_s;
	_Atomic uint64_t retired;  /* number of former keyrings that are not freed yet */
};

/* Reads the file and starts the thread. An empty path: there is no file, and there are no keys.
 * KVW_EINVAL, KVW_EIO: the file has mistakes or cannot be read; `errors` has the details.
 * KVW_ENOMEM. */
enum kvw_err kvw_auth_start(const char *path, FILE *errors, struct kvw_auth **out) KVW_MUST_CHECK;
/* Ends the thread. References that were taken stay valid. NULL is allowed. */
void kvw_auth_stop(struct kvw_auth *auth);
/* Makes the thread read the file soon, even if it has not changed. */
void kvw_auth_reload(struct kvw_auth *auth);

/* Takes over the gate, so that tokens are accepted, too. To be called once, before other calls. */
void kvw_auth_take_jwt(struct kvw_auth *auth, struct kvw_jwt_gate *gate);
/* Returns the gate, borrowed; NULL: tokens are not accepted. */
struct kvw_jwt_gate *kvw_auth_jwt(const struct kvw_auth *auth);
/* Isolates tenants from each other; secret_file as in kvw_tenants_create. To be called before any
 * thread takes keys. */
enum kvw_err kvw_auth_isolate(
	struct kvw_auth *auth, const char *secret_file, FILE *errors) KVW_MUST_CHECK;
/* To be called when a token or the file names a tenant: logs once if the secret does not outlast
 * the process. */
void kvw_auth_saw_tenant(struct kvw_auth *auth);
/* Returns the tenants; NULL: they are not isolated. */
const struct kvw_tenants *kvw_auth_tenants(const struct kvw_auth *auth);

/* Returns a number that changes whenever the keys do. */
uint64_t kvw_auth_version(const struct kvw_auth *auth);
/* Returns a reference to the present keys, and their version. */
struct kvw_keyring *kvw_auth_take(struct kvw_auth *auth, uint64_t *version);

const struct kvw_auth_state *kvw_auth_state(const struct kvw_auth *auth);

#endif
