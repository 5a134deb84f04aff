/*
 * auth.h - the keys in force, and the thread that reads their file again.
 *
 * A loop looks with each request whether there are other keys than it has (kvw_auth_version, one
 * atomic read) and then takes a reference of the new ones: a key that is taken out of the file ends
 * with the reading. A file with mistakes changes nothing.
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
	_Atomic uint64_t retired;  /* former keys that are not freed yet */
};

/* Reads the file and starts the thread; an empty path: there is no file, and no key. KVW_EINVAL,
 * KVW_EIO: the file has mistakes or cannot be read, which is in `errors`; KVW_ENOMEM. */
enum kvw_err kvw_auth_start(const char *path, FILE *errors, struct kvw_auth **out) KVW_MUST_CHECK;
/* Ends the thread. References that were taken stay good. NULL is allowed. */
void kvw_auth_stop(struct kvw_auth *auth);
/* Makes the watcher read the file soon, whether it has changed or not. */
void kvw_auth_reload(struct kvw_auth *auth);

/* Takes the gate, once and before anything else asks: tokens get in, too. */
void kvw_auth_take_jwt(struct kvw_auth *auth, struct kvw_jwt_gate *gate);
/* NULL: tokens are not asked for. Borrowed. */
struct kvw_jwt_gate *kvw_auth_jwt(const struct kvw_auth *auth);
/* From now on tenants are kept apart; secret_file as kvw_tenants_create has it.
 * Before any thread asks for keys. */
enum kvw_err kvw_auth_isolate(
	struct kvw_auth *auth, const char *secret_file, FILE *errors) KVW_MUST_CHECK;
/* A client of a tenant was seen, by a token or in the file:
 * warns once if the secret does not last. */
void kvw_auth_saw_tenant(struct kvw_auth *auth);
/* NULL: tenants are not kept apart. */
const struct kvw_tenants *kvw_auth_tenants(const struct kvw_auth *auth);

/* Another one each time that other keys are in force. */
uint64_t kvw_auth_version(const struct kvw_auth *auth);
/* The keys in force and their version. The caller's reference. */
struct kvw_keyring *kvw_auth_take(struct kvw_auth *auth, uint64_t *version);

const struct kvw_auth_state *kvw_auth_state(const struct kvw_auth *auth);

#endif
