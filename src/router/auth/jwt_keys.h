/*
 * jwt_keys.h - the present key set, and a thread that fetches it again: from `auth.jwt.jwks_url` by
 * libcurl, or from `auth.jwt.jwks_file`.
 *
 * If a set cannot be read, the former one is used for up to `auth.jwt.keep`; after that there are
 * no keys. A set without a usable key takes effect at once: the issuer has withdrawn all keys. A
 * token with an unknown key causes an earlier fetch, but not more often than
 * `auth.jwt.refresh_pause` allows.
 *
 * Threads: start and stop once each; all other functions by any thread.
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
	_Atomic int64_t last_ok_ns;  /* monotonic time when the set was last read; 0: never */
};

/* config is borrowed. A file is read during the call. KVW_EINVAL, KVW_EIO: the file cannot be used;
 * `errors` has the cause. A URL is fetched by the thread, and not waited for. */
enum kvw_err kvw_jwt_keys_start(
	const struct kvw_config *config, FILE *errors, struct kvw_jwt_keys **out) KVW_MUST_CHECK;
void kvw_jwt_keys_stop(struct kvw_jwt_keys *keys); /* NULL is allowed */

/* Checks a file of keys; *count: number of usable ones. KVW_EINVAL, KVW_EIO: `errors` has the
 * cause. */
enum kvw_err kvw_jwt_keys_check(const char *path, FILE *errors, size_t *count) KVW_MUST_CHECK;

/* Returns a number that changes whenever the keys do. */
uint64_t kvw_jwt_keys_generation(const struct kvw_jwt_keys *keys);
/* Returns a reference to the present keys, and their generation; NULL: there are none. */
struct kvw_jwks *kvw_jwt_keys_take(struct kvw_jwt_keys *keys, uint64_t *generation);
/* To be called for an unknown key. Returns true if a fetch is running or due; false if the last one
 * is too recent. */
bool kvw_jwt_keys_want(struct kvw_jwt_keys *keys);
/* Makes the thread fetch the keys soon, even if the last fetch was just before. */
void kvw_jwt_keys_reload(struct kvw_jwt_keys *keys);

/* Returns the seconds since the set was last read; -1: it never was. */
int64_t kvw_jwt_keys_age_s(const struct kvw_jwt_keys_state *state, int64_t now_ns);
const struct kvw_jwt_keys_state *kvw_jwt_keys_state(const struct kvw_jwt_keys *keys);

#endif
