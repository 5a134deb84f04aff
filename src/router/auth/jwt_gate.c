/*
 * jwt_gate.c - checks a token by cache, keys and signature.
 *
 * A token becomes a keyring of one key, so that a request holds its credential in the same way as a
 * key of the file.
 */
#include "auth/jwt_gate.h"

#include <stdlib.h>

#include "auth/jwt_cache.h"

struct kvw_jwt_gate {
	const struct kvw_config *config;
	struct kvw_jwt_keys *keys;
	struct kvw_jwt_cache *cache;
	struct kvw_jwt_gate_state state;
};

bool kvw_jwt_wanted(const struct kvw_config *config)
{
	return config->auth_jwt_jwks_file[0] != '\0' || config->auth_jwt_jwks_url[0] != '\0';
}

enum kvw_err kvw_jwt_gate_start(
	const struct kvw_config *config, FILE *errors, struct kvw_jwt_gate **out)
{
	struct kvw_jwt_gate *gate = calloc(1, sizeof(*gate));
	enum kvw_err err;

	if (gate == NULL)
		return KVW_ENOMEM;
	gate->config = config;
	err = kvw_jwt_cache_create((size_t)config->auth_jwt_remember, &gate->cache);
	if (err == KVW_OK)
		err = kvw_jwt_keys_start(config, errors, &gate->keys);
	if (err != KVW_OK) {
		kvw_jwt_gate_stop(gate);
		return err;
	}
	gate->state.keys = kvw_jwt_keys_state(gate->keys);
	*out = gate;
	return KVW_OK;
}

void kvw_jwt_gate_stop(struct kvw_jwt_gate *gate)
{
	if (gate == NULL)
		return;
	kvw_jwt_keys_stop(gate->keys);
	kvw_jwt_cache_destroy(gate->cache);
	free(gate);
}

void kvw_jwt_gate_reload(struct kvw_jwt_gate *gate)
{
	kvw_jwt_keys_reload(gate->keys);
}

static enum kvw_jwt_verdict verify(struct kvw_jwt_gate *gate, struct kvw_slice token,
	const struct kvw_digest *digest, int64_t now_s, struct kvw_keyring **ring)
{
	struct kvw_client_key *key;
	enum kvw_jwt_verdict verdict;
	uint64_t generation;
	struct kvw_jwks *jwks = kvw_jwt_keys_take(gate->keys, &generation);
	int64_t ends_s;
	size_t twice;

	if (jwks == NULL)
		return (void)kvw_jwt_keys_want(gate->keys), KVW_JWT_NO_KEYS;
	verdict = kvw_jwt_verify(gate->config, jwks, token, now_s, &key);
	kvw_jwks_unref(jwks);
	if (verdict == KVW_JWT_KEY && kvw_jwt_keys_want(gate->keys))
		verdict = KVW_JWT_NO_KEYS;
	if (verdict != KVW_JWT_GOOD)
		return verdict;
	ends_s = key->expires;
	key->sha256 = *digest;
	if (kvw_keyring_create(key, 1, ring, &twice) != KVW_OK)
		return KVW_JWT_NO_MEMORY;
	kvw_jwt_cache_put(gate->cache, digest, generation, ends_s, now_s, *ring);
	return KVW_JWT_GOOD;
}

enum kvw_jwt_verdict kvw_jwt_gate_check(struct kvw_jwt_gate *gate, struct kvw_slice token,
	const struct kvw_digest *digest, int64_t now_s, struct kvw_keyring **ring)
{
	uint64_t generation = kvw_jwt_keys_generation(gate->keys);
	enum kvw_jwt_verdict verdict;

	*ring = kvw_jwt_cache_find(gate->cache, digest, generation, now_s);
	if (*ring != NULL) {
		atomic_fetch_add_explicit(&gate->state.remembered, 1, memory_order_relaxed);
		return KVW_JWT_GOOD;
	}
	verdict = verify(gate, token, digest, now_s, ring);
	atomic_fetch_add_explicit(
		verdict == KVW_JWT_GOOD ? &gate->state.verified : &gate->state.refused[verdict], 1,
		memory_order_relaxed);
	return verdict;
}

const struct kvw_jwt_gate_state *kvw_jwt_gate_state(const struct kvw_jwt_gate *gate)
{
	return &gate->state;
}
