/*
 * jwks.h - the public keys that verify clients' tokens (JSON Web Key Set, RFC 7517), by name.
 *
 * A key has one algorithm, by its own type and curve and never by a token: an RSA key verifies only
 * RS256. An unusable key (another type, use or algorithm, too small) is left out and counted.
 *
 * A set never changes; the holder of a reference may read it in any thread.
 */
#ifndef KVW_JWKS_H
#define KVW_JWKS_H

#include <openssl/types.h>
#include <stdbool.h>
#include <stddef.h>

#include "kvway/err.h"
#include "kvway/slice.h"

#define KVW_JWKS_MOST       64                 /* keys */
#define KVW_JWKS_MAX_BYTES  ((size_t)256 << 10) /* most bytes of the document */
#define KVW_JWKS_KID_MOST   256                /* bytes of a key's name */
#define KVW_JWKS_RSA_LEAST  2048               /* bits */
#define KVW_JWKS_RSA_MOST   8192

enum kvw_jwt_alg { KVW_JWT_RS256, KVW_JWT_ES256, KVW_JWT_EDDSA };

struct kvw_jwks;

/* Makes a set, to which the caller has a reference. KVW_EINVAL: the text is no set of keys;
 * KVW_ENOTFOUND: the set has no usable key; why[room] has the cause. KVW_ENOMEM. */
enum kvw_err kvw_jwks_parse(
	const char *text, size_t len, char *why, size_t room, struct kvw_jwks **out) KVW_MUST_CHECK;
void kvw_jwks_ref(struct kvw_jwks *jwks);
void kvw_jwks_unref(struct kvw_jwks *jwks); /* NULL is allowed */

size_t kvw_jwks_count(const struct kvw_jwks *jwks);
size_t kvw_jwks_skipped(const struct kvw_jwks *jwks);

/* Returns the key with this name for this algorithm, borrowed. If data is NULL, the token names no
 * key, so the set's only key is meant. NULL: there is no such key; *known: there is one with this
 * name for another algorithm. */
EVP_PKEY *kvw_jwks_find(
	const struct kvw_jwks *jwks, struct kvw_slice kid, enum kvw_jwt_alg alg, bool *known);


#endif
