/*
 * jwt.h - a client's token (JSON Web Token, RFC 7519, signed in compact form): verified, and made
 * into what a key of the keys file is.
 *
 * The signature is checked before the claims are read at all. The algorithm that the token names
 * must be that of the key that it names; `none`, HMAC, `crit` and keys inside the token are
 * refused. Nothing here keeps or logs a token. Any thread; no state.
 */
#ifndef KVW_JWT_H
#define KVW_JWT_H

#include "auth/jwks.h"
#include "config/config.h"

#define KVW_JWT_MOST      ((size_t)16 << 10) /* bytes of a token */
#define KVW_JWT_NAME_MOST 64                 /* of its name, which `jwt:` goes before */

enum kvw_jwt_verdict {
	KVW_JWT_GOOD,
	KVW_JWT_MALFORMED, /* no token, too long, `crit`, another type of token */
	KVW_JWT_ALGORITHM, /* none of ours, or another one than its key's */
	KVW_JWT_KEY,       /* signed by a key that is not in the set */
	KVW_JWT_SIGNATURE,
	KVW_JWT_EXPIRED, /* or without an end */
	KVW_JWT_EARLY,   /* not valid yet */
	KVW_JWT_ISSUER,
	KVW_JWT_AUDIENCE,
	KVW_JWT_CLAIMS,  /* no name, or a claim that cannot be read */
	KVW_JWT_NO_KEYS, /* of kvw_jwt_gate_check: they are being fetched, or cannot be */
	KVW_JWT_NO_MEMORY,
	KVW_JWT_VERDICTS
};

/* Label `reason` of kvway_jwt_refused_total. */
const char *kvw_jwt_verdict_name(enum kvw_jwt_verdict verdict);
/* The same for a client: says nothing that the token itself does not. */
const char *kvw_jwt_verdict_text(enum kvw_jwt_verdict verdict);

/* Does the text have the form of a token, three parts? */
bool kvw_jwt_looks(struct kvw_slice text);

/* now_s: seconds since 1970. KVW_JWT_GOOD: *out is an array of one key, filled but for its sha256,
 * and owned by the caller (kvw_client_keys_free); its `expires` is the token's end with
 * auth.jwt.leeway. */
enum kvw_jwt_verdict kvw_jwt_verify(const struct kvw_config *config, const struct kvw_jwks *jwks,
	struct kvw_slice token, int64_t now_s, struct kvw_client_key **out) KVW_MUST_CHECK;

#endif
