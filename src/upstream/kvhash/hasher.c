/*
 * hasher.c - SHA-256 of libcrypto, XXH3-128 of libxxhash, behind a small buffer.
 *
 * Serialised ints come in pieces of one to nine bytes; the buffer collects them, so that a call
 * into a library happens once per 512 bytes. Failures stick until the next start.
 */
#include "hasher.h"

#include <openssl/evp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct kvw_hasher {
	enum kvw_digest_kind kind;
	EVP_MD_CTX *sha;   /* owned; of KVW_DIGEST_SHA256 */
	XXH3_state_t *xxh; /* owned; of KVW_DIGEST_XXH3_128 */
	size_t length;     /* put since the start */
	size_t filled;     /* bytes of buffer that are not hashed yet */
	bool counting;
	bool failed;
	uint8_t buffer[512];
};

enum kvw_err kvw_hasher_create(enum kvw_digest_kind kind, struct kvw_hasher **out)
{
	struct kvw_hasher *hasher = calloc(1, sizeof(*hasher));

	if (hasher == NULL)
		return KVW_ENOMEM;
	hasher->kind = kind;
	hasher->counting = true;
	if (kind == KVW_DIGEST_SHA256)
		hasher->sha = EVP_MD_CTX_new();
	else
		hasher->xxh = XXH3_createState();
	if ((hasher->sha == NULL && hasher->xxh == NULL) ||
		(hasher->sha != NULL && EVP_DigestInit_ex(hasher->sha, EVP_sha256(), NULL) != 1)) {
		kvw_hasher_destroy(hasher);
		return KVW_ENOMEM;
	}
	*out = hasher;
	return KVW_OK;
}

void kvw_hasher_destroy(struct kvw_hasher *hasher)
{
	if (hasher == NULL)
		return;
	EVP_MD_CTX_free(hasher->sha);
	(void)XXH3_freeState(hasher->xxh); /* has nothing to report */
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
	if (hasher->kind == KVW_DIGEST_SHA256) /* NULL: the same algorithm, nothing is fetched */
		hasher->failed = EVP_DigestInit_ex(hasher->sha, NULL, NULL) != 1;
	else
		hasher->failed = XXH3_128bits_reset(hasher->xxh) != XXH_OK;
}

static void hash_bytes(struct kvw_hasher *hasher, const void *data, size_t len)
{
	bool ok = hasher->kind == KVW_DIGEST_SHA256
			  ? EVP_DigestUpdate(hasher->sha, data, len) == 1
			  : XXH3_128bits_update(hasher->xxh, data, len) == XXH_OK;

	hasher->failed |= !ok;
}

static void flush(struct kvw_hasher *hasher)
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
		flush(hasher);
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

enum kvw_err kvw_hasher_finish(struct kvw_hasher *hasher, uint8_t digest[KVW_DIGEST_MAX])
{
	uint8_t sha[KVW_DIGEST_MAX];
	XXH128_canonical_t canonical;

	flush(hasher);
	if (hasher->kind == KVW_DIGEST_SHA256) {
		if (EVP_DigestFinal_ex(hasher->sha, sha, NULL) != 1 || hasher->failed)
			return KVW_ENOMEM;
		memcpy(digest, sha, sizeof(sha));
		return KVW_OK;
	}
	if (hasher->failed)
		return KVW_ENOMEM;
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(hasher->xxh));
	memcpy(digest, canonical.digest, sizeof(canonical.digest));
	return KVW_OK;
}
