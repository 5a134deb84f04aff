/*
 * jwt_keys.h - the key set in force, and the thread that fetches it again: from `auth.jwt.jwks_url`
 * by libcurl, or from `auth.jwt.jwks_file`.
 *
 * A set that cannot be read changes nothing, for `auth.jwt.keep`; after that no key is in force. A
 * set without a usable key takes effect at once: the issuer has withdrawn all keys. A token with an
 * unknown key causes an earlier fetch, but not more often than `auth.jwt.refresh_pause` allows.
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
	_Atomic int64_t last_ok_ns;  /* monotonic: last read of the set; 0: never */
};

/* config is borrowed. A file is read before this returns. KVW_EINVAL, KVW_EIO: the file is
 * unusable; `errors` has the cause. The thread fetches a URL: the start does not wait for it. */
enum kvw_err kvw_jwt_keys_start(
	const struct kvw_config *config, FILE *errors, struct kvw_jwt_keys **out) KVW_MUST_CHECK;
void kvw_jwt_keys_stop(struct kvw_jwt_keys *keys); /* NULL is allowed */

/* Checks a file of keys; *count: usable ones. KVW_EINVAL, KVW_EIO: `errors` has the cause. */
enum kvw_err kvw_jwt_keys_check(const char *path, FILE *errors, size_t *count) KVW_MUST_CHECK;

/* A number that changes with the keys in force. */
uint64_t kvw_jwt_keys_generation(const struct kvw_jwt_keys *keys);
/* The keys in force and their generation. The caller's reference; NULL: none. */
struct kvw_jwks *kvw_jwt_keys_take(struct kvw_jwt_keys *keys, uint64_t *generation);
/* To be called for an unknown key. True: a fetch is running or due; false: the last one is too
 * recent. */
bool kvw_jwt_keys_want(struct kvw_jwt_keys *keys);
/* Makes the thread fetch the keys soon, however recent the last fetch. */
void kvw_jwt_keys_reload(struct kvw_jwt_keys *keys);

/* Seconds since the set was last read; -1: never. */
int64_t kvw_jwt_keys_age_s(const struct kvw_jwt_keys_state *state, int64_t now_ns);
const struct kvw_jwt_keys_state *kvw_jwt_keys_state(const struct kvw_jwt_keys *keys);

#endif
