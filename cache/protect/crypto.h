/*
 * crypto.h - the two algorithms of this folder, by OpenSSL: AES-256-GCM and HKDF-SHA-256.
 *
 * Algorithms are fetched once. Functions may run in any thread at once. KVT_EIO: OpenSSL refused.
 */
#ifndef KVT_CRYPTO_H
#define KVT_CRYPTO_H

#include <openssl/evp.h>
#include <stdbool.h>

#include "kvtier/kvtier.h"

#define KVT_CRYPTO_KEY  32
#define KVT_CRYPTO_SALT 16
#define KVT_CRYPTO_IV   12
#define KVT_CRYPTO_TAG  16

struct kvt_crypto {
	EVP_KDF *hkdf;
	EVP_CIPHER *gcm;
};

enum kvt_status kvt_crypto_init(struct kvt_crypto *c) KVT_MUST_CHECK;
void kvt_crypto_finish(struct kvt_crypto *c);

enum kvt_status kvt_crypto_random(void *out, size_t bytes) KVT_MUST_CHECK;

/* Computes HKDF of a key with a salt; `info` says for which purpose the result is. */
enum kvt_status kvt_crypto_subkey(const struct kvt_crypto *c, const uint8_t key[KVT_CRYPTO_KEY],
	const uint8_t salt[KVT_CRYPTO_SALT], const char *info,
	uint8_t out[KVT_CRYPTO_KEY]) KVT_MUST_CHECK;

/* One short message. */
struct kvt_crypto_message {
	const uint8_t *key, *iv;
	const void *aad;
	size_t aad_bytes;
	const uint8_t *from;
	uint8_t *to;
	size_t bytes;
	uint8_t *tag; /* seal writes it, open checks it */
};
enum kvt_status kvt_crypto_seal(
	const struct kvt_crypto *c, const struct kvt_crypto_message *m) KVT_MUST_CHECK;
/* KVT_ECORRUPT: these are not the bytes that were sealed; `to` is overwritten with zeros. */
enum kvt_status kvt_crypto_open(
	const struct kvt_crypto *c, const struct kvt_crypto_message *m) KVT_MUST_CHECK;

#endif
