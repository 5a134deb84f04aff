/*
 * jwt.h - a client's token (JSON Web Token, RFC 7519, signed in compact form): verifies it and
 * converts it into an entry like those of the keys file.
 *
 * The signature is checked before any claim is read. The token's algorithm must be that of its key;
 * `none`, HMAC, `crit` and keys inside the token are refused. Tokens are neither kept nor logged.
 * Any thread; no state.
 */
#ifndef KVW_JWT_H
#define KVW_JWT_H

#include "auth/jwks.h"
#include "config/config.h"

#define KVW_JWT_MOST      ((size_t)16 << 10) /* bytes of a token */
#define KVW_JWT_NAME_MOST 64 /* most bytes of a token's name, without the prefix `jwt:` */

enum kvw_jwt_verdict {
	KVW_JWT_GOOD,
	KVW_JWT_MALFORMED, /* this is no token, it is too long, has `crit`, or is of another type */
	KVW_JWT_ALGORITHM, /* the algorithm is not supported, or not that of its key */
	KVW_JWT_KEY,       /* the key with which it was signed is not in the set */
	KVW_JWT_SIGNATURE,
	KVW_JWT_EXPIRED, /* or without an end */
	KVW_JWT_EARLY,   /* not valid yet */
	KVW_JWT_ISSUER,
	KVW_JWT_AUDIENCE,
	KVW_JWT_CLAIMS,  /* a name is missing, or a claim cannot be read */
	KVW_JWT_NO_KEYS, /* only from kvw_jwt_gate_check: there are no keys yet, or none any more */
	KVW_JWT_NO_MEMORY,
	KVW_JWT_VERDICTS
};

/* Returns the value of the label `reason` of kvway_jwt_refused_total. */
const char *kvw_jwt_verdict_name(enum kvw_jwt_verdict verdict);
/* Returns a text for the client, which reveals nothing that is not in the token itself. */
const char *kvw_jwt_verdict_text(enum kvw_jwt_verdict verdict);

/* Returns whether the text has the form of a token: three parts. */
bool kvw_jwt_looks(struct kvw_slice text);

/* Verifies a token; now_s is in seconds since 1970. KVW_JWT_GOOD: *out is an array of one key,
 * complete but for its sha256, and owned by the caller (kvw_client_keys_free); its `expires` is the
 * token's end with auth.jwt.leeway. */
enum kvw_jwt_verdict kvw_jwt_verify(const struct kvw_config *config, const struct kvw_jwks *jwks,
	struct kvw_slice token, int64_t now_s, struct kvw_client_key **out) KVW_MUST_CHECK;

#endif
