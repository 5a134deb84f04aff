/*
 * jwt_gate.h - checks tokens, with the keys that verify them and the cache of verified ones.
 *
 * Threads: start and stop are called once each; all other functions from any thread.
 */
#ifndef KVW_JWT_GATE_H
#define KVW_JWT_GATE_H

#include "auth/jwt.h"
#include "auth/jwt_keys.h"
#include "auth/keyring.h"

struct kvw_jwt_gate;

/* For metrics. */
struct kvw_jwt_gate_state {
	_Atomic uint64_t verified;   /* verified by their signature */
	_Atomic uint64_t remembered; /* tokens that were found in the cache of verified ones */
	_Atomic uint64_t refused[KVW_JWT_VERDICTS];
	const struct kvw_jwt_keys_state *keys;
};

/* Returns whether the configuration accepts tokens. */
bool kvw_jwt_wanted(const struct kvw_config *config);

/* config is borrowed. Results as of kvw_jwt_keys_start. */
enum kvw_err kvw_jwt_gate_start(
	const struct kvw_config *config, FILE *errors, struct kvw_jwt_gate **out) KVW_MUST_CHECK;
void kvw_jwt_gate_stop(struct kvw_jwt_gate *gate); /* NULL is allowed */
void kvw_jwt_gate_reload(struct kvw_jwt_gate *gate);

/* Checks a token, and verifies the signature of a new one. digest: the token's, from
 * kvw_key_digest. KVW_JWT_GOOD: *ring is a reference to a keyring with the token's only key, which
 * the digest finds. */
enum kvw_jwt_verdict kvw_jwt_gate_check(struct kvw_jwt_gate *gate, struct kvw_slice token,
	const struct kvw_digest *digest, int64_t now_s, struct kvw_keyring **ring) KVW_MUST_CHECK;

const struct kvw_jwt_gate_state *kvw_jwt_gate_state(const struct kvw_jwt_gate *gate);

#endif
