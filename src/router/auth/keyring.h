/*
 * keyring.h - the present keys of clients, which are found by the SHA-256 of the key in a request.
 *
 * A keyring is made from a keys file and is immutable; a new file makes a new keyring. The holder
 * of a reference may read it in any thread, so a request keeps its first key until its end.
 */
#ifndef KVW_KEYRING_H
#define KVW_KEYRING_H

#include <stddef.h>
#include <stdint.h>

#include "config/config.h"
#include "kvway/err.h"
#include "kvway/slice.h"

#define KVW_KEYRING_MOST 200000 /* keys */

struct kvw_keyring;

/* Makes a keyring, to which the caller has a reference. Takes over keys[count], an array on the
 * heap, and its contents, also on failure; NULL if count is 0. KVW_EINVAL: two have the same hash;
 * *twice is the index of the second. KVW_ENOMEM. */
enum kvw_err kvw_keyring_create(struct kvw_client_key *keys, size_t count, struct kvw_keyring **out,
	size_t *twice) KVW_MUST_CHECK;
void kvw_keyring_ref(struct kvw_keyring *ring);
void kvw_keyring_unref(struct kvw_keyring *ring); /* NULL is allowed */
/* Returns whether the caller's reference is the only one. No other thread can take another then,
 * since only holders can. */
bool kvw_keyring_alone(const struct kvw_keyring *ring);

/* Returns the key with this hash, borrowed from the keyring; NULL: there is none. */
const struct kvw_client_key *kvw_keyring_find(
	const struct kvw_keyring *ring, const struct kvw_digest *digest);
/* Finds a key by its name; searches all keys. */
const struct kvw_client_key *kvw_keyring_named(const struct kvw_keyring *ring, const char *name);
size_t kvw_keyring_count(const struct kvw_keyring *ring);
bool kvw_keyring_has_tenants(const struct kvw_keyring *ring);

/* Computes the SHA-256 of a client's text. Leaves no copy of the text in memory. */
void kvw_key_digest(struct kvw_slice shown, struct kvw_digest *out);

/* Returns whether the key has not expired at this time, in seconds since 1970. */
static inline bool kvw_client_key_lives(const struct kvw_client_key *key, int64_t now_s)
{
	return key->expires == 0 || now_s < key->expires;
}

/* Returns whether requests with the key may use this model. */
bool kvw_client_key_may_use(const struct kvw_client_key *key, struct kvw_slice model);

/* Frees an array of keys and its contents. */
void kvw_client_keys_free(struct kvw_client_key *keys, size_t count);

#endif
