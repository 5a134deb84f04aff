/*
 * auth.h - the keys in force, and the thread that reads their file again.
 *
 * A loop checks with each request for newer keys (kvw_auth_version, one atomic read) and then takes
 * a reference to them: a key removed from the file is invalid once the file is read. A file with
 * mistakes changes nothing.
 *
 * Threads: kvw_auth_start and kvw_auth_stop once each; all else by any.
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
	_Atomic uint64_t ok, refused; /* readings of a changed file since the start */
	_Atomic bool last_refused;
	_Atomic int64_t last_ok_s; /* wall clock; the start counts */
	_Atomic uint64_t retired;  /* former keyrings not freed yet */
};

/* Reads the file and starts the thread; an empty path: no file and no keys. KVW_EINVAL, KVW_EIO:
 * the file has mistakes or cannot be read; `errors` has the details; KVW_ENOMEM. */
enum kvw_err kvw_auth_start(const char *path, FILE *errors, struct kvw_auth **out) KVW_MUST_CHECK;
/* Ends the thread. Taken references stay valid. NULL is allowed. */
void kvw_auth_stop(struct kvw_auth *auth);
/* Makes the watcher read the file soon, whether it has changed or not. */
void kvw_auth_reload(struct kvw_auth *auth);

/* Takes the gate, once and before other calls: accepts tokens, too. */
void kvw_auth_take_jwt(struct kvw_auth *auth, struct kvw_jwt_gate *gate);
/* NULL: tokens are not used. Borrowed. */
struct kvw_jwt_gate *kvw_auth_jwt(const struct kvw_auth *auth);
/* Isolates tenants; secret_file as in kvw_tenants_create. Before any thread takes keys. */
enum kvw_err kvw_auth_isolate(
	struct kvw_auth *auth, const char *secret_file, FILE *errors) KVW_MUST_CHECK;
/* To be called when a tenant was seen, in a token or the file: warns once if the secret does not
 * last. */
void kvw_auth_saw_tenant(struct kvw_auth *auth);
/* NULL: tenants are not isolated. */
const struct kvw_tenants *kvw_auth_tenants(const struct kvw_auth *auth);

/* A number that changes with the keys in force. */
uint64_t kvw_auth_version(const struct kvw_auth *auth);
/* The keys in force and their version. The caller's reference. */
struct kvw_keyring *kvw_auth_take(struct kvw_auth *auth, uint64_t *version);

const struct kvw_auth_state *kvw_auth_state(const struct kvw_auth *auth);

#endif
