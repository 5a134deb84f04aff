/*
 * crypto.c - AES-256-GCM and HKDF-SHA-256 by OpenSSL.
 */
#include "protect/crypto.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <string.h>

enum kvt_status kvt_crypto_init(struct kvt_crypto *c)
{
	*c = (struct kvt_crypto){
		.hkdf = EVP_KDF_fetch(NULL, "HKDF", NULL),
		.gcm = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL),
	};
	if (c->hkdf != NULL && c->gcm != NULL)
		return KVT_OK;
	kvt_crypto_finish(c);
	ERR_clear_error();
	return KVT_ENOTSUP;
}

void kvt_crypto_finish(struct kvt_crypto *c)
{
	EVP_KDF_free(c->hkdf);
	EVP_CIPHER_free(c->gcm);
	*c = (struct kvt_crypto){0};
}

enum kvt_status kvt_crypto_random(void *out, size_t bytes)
{
	if (RAND_bytes(out, (int)bytes) == 1)
		return KVT_OK;
	ERR_clear_error();
	return KVT_EIO;
}

enum kvt_status kvt_crypto_subkey(const struct kvt_crypto *c, const uint8_t key[KVT_CRYPTO_KEY],
	const uint8_t salt[KVT_CRYPTO_SALT], const char *info, uint8_t out[KVT_CRYPTO_KEY])
{
	char digest[] = "SHA256";
	OSSL_PARAM params[] = {
		OSSL_PARAM_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, sizeof(digest) - 1),
		OSSL_PARAM_octet_string(OSSL_KDF_PARAM_KEY, (void *)key, KVT_CRYPTO_KEY),
		OSSL_PARAM_octet_string(OSSL_KDF_PARAM_SALT, (void *)salt, KVT_CRYPTO_SALT),
		OSSL_PARAM_octet_string(OSSL_KDF_PARAM_INFO, (void *)info, strlen(info)),
		OSSL_PARAM_END,
	};
	EVP_KDF_CTX *ctx = EVP_KDF_CTX_new(c->hkdf);
	bool made = ctx != NULL && EVP_KDF_derive(ctx, out, KVT_CRYPTO_KEY, params) == 1;

	EVP_KDF_CTX_free(ctx);
	if (made)
		return KVT_OK;
	ERR_clear_error();
	return KVT_EIO;
}

enum kvt_status kvt_crypto_seal(const struct kvt_crypto *c, const struct kvt_crypto_message *m)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	int n = 0;
	bool sealed = ctx != NULL && EVP_EncryptInit_ex2(ctx, c->gcm, m->key, m->iv, NULL) == 1 &&
		      EVP_EncryptUpdate(ctx, NULL, &n, m->aad, (int)m->aad_bytes) == 1 &&
		      EVP_EncryptUpdate(ctx, m->to, &n, m->from, (int)m->bytes) == 1 &&
		      EVP_EncryptFinal_ex(ctx, m->to + m->bytes, &n) == 1 &&
		      EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, KVT_CRYPTO_TAG, m->tag) == 1;

	EVP_CIPHER_CTX_free(ctx);
	if (sealed)
		return KVT_OK;
	ERR_clear_error();
	return KVT_EIO;
}

enum kvt_status kvt_crypto_open(const struct kvt_crypto *c, const struct kvt_crypto_message *m)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	int n = 0;
	bool ready = ctx != NULL && EVP_DecryptInit_ex2(ctx, c->gcm, m->key, m->iv, NULL) == 1 &&
		     EVP_DecryptUpdate(ctx, NULL, &n, m->aad, (int)m->aad_bytes) == 1 &&
		     EVP_DecryptUpdate(ctx, m->to, &n, m->from, (int)m->bytes) == 1 &&
		     EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, KVT_CRYPTO_TAG, m->tag) == 1;
	bool opened = ready && EVP_DecryptFinal_ex(ctx, m->to + m->bytes, &n) == 1;

	EVP_CIPHER_CTX_free(ctx);
	if (opened)
		return KVT_OK;
	OPENSSL_cleanse(m->to, m->bytes);
	ERR_clear_error();
	return ready ? KVT_ECORRUPT : KVT_EIO;
}
