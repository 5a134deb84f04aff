/*
 * hasher.c - computes SHA-256 (libcrypto) or XXH3-128 (libxxhash) of bytes that pass a small
 * buffer.
 *
 * Serialised ints come in pieces of one to nine bytes; the buffer collects them, so that a call
 * into a library happens once per 512 bytes.
 *
 * OpenSSL's older SHA256_*() is used on purpose: EVP_DigestInit_ex() of 3.0 allocates a context for
 * every digest, which would be once per chunk of a prompt, and can fail.
 */
#define OPENSSL_SUPPRESS_DEPRECATED

#include "wire/hasher.h"

#include <openssl/sha.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct kvw_hasher {
	enum kvw_digest_kind kind;
	SHA256_CTX sha;    /* used for KVW_DIGEST_SHA256 */
	XXH3_state_t *xxh; /* owned; set for KVW_DIGEST_XXH3_128, else NULL */
	size_t length;     /* number of bytes put since the start */
	size_t filled;     /* number of bytes in the buffer that are not hashed yet */
	bool counting;
	uint8_t buffer[512];
};

enum kvw_err kvw_hasher_create(enum kvw_digest_kind kind, struct kvw_hasher **out)
{
	struct kvw_hasher *hasher = calloc(1, sizeof(*hasher));

	if (hasher == NULL)
		return KVW_ENOMEM;
	hasher->kind = kind;
	if (kind == KVW_DIGEST_XXH3_128) {
		hasher->xxh = XXH3_createState();
		if (hasher->xxh == NULL) {
			kvw_hasher_destroy(hasher);
			return KVW_ENOMEM;
		}
	}
	kvw_hasher_start(hasher);
	*out = hasher;
	return KVW_OK;
}

void kvw_hasher_destroy(struct kvw_hasher *hasher)
{
	if (hasher == NULL)
		return;
	(void)XXH3_freeState(hasher->xxh); /* XXH3_freeState always returns success */
	free(hasher);
}

size_t kvw_hasher_size(const struct kvw_hasher *hasher)
{
	return hasher->kind == KVW_DIGEST_SHA256 ? 32 : 16;
}

void kvw_hasher_start_count(struct kvw_hasher *hasher)
{
	hasher->counting = true;
	hasher->length = 0;
}

void kvw_hasher_start(struct kvw_hasher *hasher)
{
	hasher->counting = false;
	hasher->length = 0;
	hasher->filled = 0;
	if (hasher->kind == KVW_DIGEST_SHA256)
		(void)SHA256_Init(&hasher->sha); /* none of these functions can fail */
	else
		(void)XXH3_128bits_reset(hasher->xxh);
}

static void hash_bytes(struct kvw_hasher *hasher, const void *data, size_t len)
{
	if (hasher->kind == KVW_DIGEST_SHA256)
		(void)SHA256_Update(&hasher->sha, data, len);
	else
		(void)XXH3_128bits_update(hasher->xxh, data, len);
}

static void flush_lanes(struct kvw_hasher *hasher)
{
	hash_bytes(hasher, hasher->buffer, hasher->filled);
	hasher->filled = 0;
}

void kvw_hasher_put(struct kvw_hasher *hasher, const void *data, size_t len)
{
	hasher->length += len;
	if (hasher->counting || len == 0)
		return;
	if (len > sizeof(hasher->buffer) - hasher->filled)
		flush_lanes(hasher);
	if (len > sizeof(hasher->buffer)) {
		hash_bytes(hasher, data, len);
		return;
	}
	memcpy(hasher->buffer + hasher->filled, data, len);
	hasher->filled += len;
}

size_t kvw_hasher_length(const struct kvw_hasher *hasher)
{
	return hasher->length;
}

void kvw_hasher_finish(struct kvw_hasher *hasher, uint8_t digest[KVW_DIGEST_MAX])
{
	XXH128_canonical_t canonical;

	flush_lanes(hasher);
	if (hasher->kind == KVW_DIGEST_SHA256) {
		(void)SHA256_Final(digest, &hasher->sha);
		return;
	}
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(hasher->xxh));
	memcpy(digest, canonical.digest, sizeof(canonical.digest));
}
