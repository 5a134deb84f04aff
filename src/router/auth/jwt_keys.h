/*
 * jwt_keys.h - the key set in force, and the thread that fetches it again: from `auth.jwt.jwks_url`
 * by libcurl, or from `auth.jwt.jwks_file`.
 *
 * A set that cannot be read changes nothing, for `auth.jwt.keep`; after that no key is in force.
 * One without a usable key takes effect at once: the issuer has withdrawn all, and no key is in
 * force. A token whose key is unknown has the set fetched sooner, but not more often than
 * `auth.jwt.refresh_pause` allows.
 *
 * Threads: start and stop once each; all else by any.
 */
#ifndef KVW_JWT_KEYS_H
#define KVW_JWT_KEYS_H

#include <stdatomic.h>
#include <stdio.h>

#include "auth/jwks.h"
#include "config/config.h"

struct kvw_jwt_keys;

/* For metrics and /health. */
struct kvw_jwt_keys_state {
	_Atomic uint64_t keys;       /* in force */
	_Atomic uint64_t ok, failed; /* fetches */
	_Atomic int64_t last_ok_ns;  /* monotonic: when the set was last seen; 0: never */
};

/* config is borrowed. A file is read before this returns. KVW_EINVAL, KVW_EIO: it cannot be used,
 * which is in `errors`. A URL is fetched by the thread: the start does not wait for it. */
enum kvw_err kvw_jwt_keys_start(
	const struct kvw_config *config, FILE *errors, struct kvw_jwt_keys **out) KVW_MUST_CHECK;
void kvw_jwt_keys_stop(struct kvw_jwt_keys *keys); /* NULL is allowed */

/* Looks a file of keys over: how many are of use.
 * KVW_EINVAL, KVW_EIO: what is wrong is in `errors`. */
enum kvw_err kvw_jwt_keys_check(const char *path, FILE *errors, size_t *count) KVW_MUST_CHECK;

/* Another one each time that other keys are in force, or none any more. */
uint64_t kvw_jwt_keys_generation(const struct kvw_jwt_keys *keys);
/* The keys in force and their generation. The caller's reference; NULL: there are none. */
struct kvw_jwks *kvw_jwt_keys_take(struct kvw_jwt_keys *keys, uint64_t *generation);
/* A key is unknown. True: the set is being fetched, or is to be now;
 * false: it was, not long ago. */
bool kvw_jwt_keys_want(struct kvw_jwt_keys *keys);
/* Makes the thread fetch the keys soon, however long ago it did. */
void kvw_jwt_keys_reload(struct kvw_jwt_keys *keys);

/* How long ago the set was seen, in seconds; -1: never. */
int64_t kvw_jwt_keys_age_s(const struct kvw_jwt_keys_state *state, int64_t now_ns);
const struct kvw_jwt_keys_state *kvw_jwt_keys_state(const struct kvw_jwt_keys *keys);

#endif
