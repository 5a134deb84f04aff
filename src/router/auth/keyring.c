/*
 * keyring.c - a hash table of keys.
 *
 * It is an open-addressing table of 32-bit entries, at most half full, so that one of 100,000 keys
 * is found with about two cache misses: the table's entry and the key's hash. A hash is as good as
 * random, so its first bytes are the first slot.
 *
 * Hashes are compared in constant time. The length of a search reveals at most something about
 * hashes in the table, not about a key: to approach one, a client would have to choose the hash of
 * its text.
 */
/* for SHA256_*, since EVP_DigestInit_ex() allocates memory and can fail */
#define OPENSSL_SUPPRESS_DEPRECATED

#include "auth/keyring.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "config/schema.h"

struct kvw_keyring {
	_Atomic size_t refs;
	struct kvw_client_key *keys; /* [count], owned */
	size_t count;
	size_t mask;     /* size of slots - 1 */
	uint32_t *slots; /* index into keys + 1; 0: free */
};

static uint64_t place_of(const struct kvw_digest *digest)
{
	uint64_t place;

	memcpy(&place, digest->bytes, sizeof(place));
	return place;
}

void kvw_client_keys_free(struct kvw_client_key *keys, size_t count)
{
	for (size_t i = 0; i < count; i++)
		kvw_keys_release(kvw_client_keys, KVW_CLIENT_KEY_COUNT, &keys[i]);
	free(keys);
}

/* Returns the slot with this hash, or the free one for it. */
static size_t find_slot(const struct kvw_keyring *ring, const struct kvw_digest *digest)
{
	size_t at = place_of(digest) & ring->mask;

	while (ring->slots[at] != 0 &&
		CRYPTO_memcmp(ring->keys[ring->slots[at] - 1].sha256.bytes, digest->bytes,
			sizeof(digest->bytes)) != 0)
		at = (at + 1) & ring->mask;
	return at;
}

enum kvw_err kvw_keyring_create(
	struct kvw_client_key *keys, size_t count, struct kvw_keyring **out, size_t *twice)
{
	struct kvw_keyring *ring = calloc(1, sizeof(*ring));
	size_t size = 8;

	assert(count <= KVW_KEYRING_MOST);
	while (size < 2 * count)
		size *= 2;
	if (ring != NULL)
		ring->slots = calloc(size, sizeof(ring->slots[0]));
	if (ring == NULL || ring->slots == NULL) {
		free(ring);
		kvw_client_keys_free(keys, count);
		return KVW_ENOMEM;
	}
	atomic_init(&ring->refs, 1);
	ring->keys = keys;
	ring->count = count;
	ring->mask = size - 1;
	for (size_t i = 0; i < count; i++) {
		size_t at = find_slot(ring, &keys[i].sha256);

		if (ring->slots[at] != 0) {
			*twice = i;
			kvw_keyring_unref(ring);
			return KVW_EINVAL;
		}
		ring->slots[at] = (uint32_t)i + 1;
	}
	*out = ring;
	return KVW_OK;
}

void kvw_keyring_ref(struct kvw_keyring *ring)
{
	atomic_fetch_add_explicit(&ring->refs, 1, memory_order_relaxed);
}

void kvw_keyring_unref(struct kvw_keyring *ring)
{
	if (ring == NULL || atomic_fetch_sub_explicit(&ring->refs, 1, memory_order_acq_rel) > 1)
		return;
	kvw_client_keys_free(ring->keys, ring->count);
	free(ring->slots);
	free(ring);
}

bool kvw_keyring_alone(const struct kvw_keyring *ring)
{
	return atomic_load_explicit(&ring->refs, memory_order_acquire) == 1;
}

const struct kvw_client_key *kvw_keyring_find(
	const struct kvw_keyring *ring, const struct kvw_digest *digest)
{
	uint32_t found = ring->slots[find_slot(ring, digest)];

	return found == 0 ? NULL : &ring->keys[found - 1];
}

const struct kvw_client_key *kvw_keyring_named(const struct kvw_keyring *ring, const char *name)
{
	for (size_t i = 0; i < ring->count; i++)
		if (strcmp(ring->keys[i].name, name) == 0)
			return &ring->keys[i];
	return NULL;
}

size_t kvw_keyring_count(const struct kvw_keyring *ring)
{
	return ring->count;
}

bool kvw_keyring_has_tenants(const struct kvw_keyring *ring)
{
	for (size_t i = 0; i < ring->count; i++)
		if (kvw_slice_of(ring->keys[i].tenant).len > 0)
			return true;
	return false;
}

void kvw_key_digest(struct kvw_slice shown, struct kvw_digest *out)
{
	SHA256_CTX sha;

	SHA256_Init(&sha);
	SHA256_Update(&sha, shown.data, shown.len);
	SHA256_Final(out->bytes, &sha);
	OPENSSL_cleanse(&sha, sizeof(sha));
}

bool kvw_client_key_may_use(const struct kvw_client_key *key, struct kvw_slice model)
{
	for (size_t i = 0; i < key->models.count; i++) {
		struct kvw_slice name = kvw_slice_of(key->models.items[i]);
		bool begins = name.len > 0 && name.data[name.len - 1] == '*';

		if (begins)
			name.len--;
		if (begins ? model.len >= name.len && memcmp(model.data, name.data, name.len) == 0
			   : kvw_slice_equal(model, name))
			return true;
	}
	return key->models.count == 0;
}
