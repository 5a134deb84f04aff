/*
 * jwt_gate.h - checks tokens, with the keys that verify them and the cache of verified ones.
 *
 * Threads: start and stop once each; all else by any.
 */
#ifndef KVW_JWT_GATE_H
#define KVW_JWT_GATE_H

#include "auth/jwt.h"
#include "auth/jwt_keys.h"
#include "auth/keyring.h"

struct kvw_jwt_gate;

/* For metrics. */
struct kvw_jwt_gate_state {
	_Atomic uint64_t verified;   /* by their signature */
	_Atomic uint64_t remembered; /* found in the cache of verified tokens */
	_Atomic uint64_t refused[KVW_JWT_VERDICTS];
	const struct kvw_jwt_keys_state *keys;
};

/* Whether the configuration uses tokens. */
bool kvw_jwt_wanted(const struct kvw_config *config);

/* config is borrowed. As kvw_jwt_keys_start. */
enum kvw_err kvw_jwt_gate_start(
	const struct kvw_config *config, FILE *errors, struct kvw_jwt_gate **out) KVW_MUST_CHECK;
void kvw_jwt_gate_stop(struct kvw_jwt_gate *gate); /* NULL is allowed */
void kvw_jwt_gate_reload(struct kvw_jwt_gate *gate);

/* digest: of the token (kvw_key_digest). KVW_JWT_GOOD: *ring has the token's one key, found by the
 * digest; the caller's reference. Verifies the signature of a new token. */
enum kvw_jwt_verdict kvw_jwt_gate_check(struct kvw_jwt_gate *gate, struct kvw_slice token,
	const struct kvw_digest *digest, int64_t now_s, struct kvw_keyring **ring) KVW_MUST_CHECK;

const struct kvw_jwt_gate_state *kvw_jwt_gate_state(const struct kvw_jwt_gate *gate);

#endif
