/*
 * tenants.c - computes the salts of tenants.
 *
 * Both HMAC states of the secret are computed once, so that a salt costs hashing two or three
 * blocks and no heap memory.
 */
/* for SHA256_*, since EVP_MAC_init() allocates memory and can fail */
#define OPENSSL_SUPPRESS_DEPRECATED

#include "auth/tenants.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

#include "base/read_file.h"

enum purpose { PURPOSE_SALT = 1, PURPOSE_NUMBER };

struct kvw_tenants {
	SHA256_CTX inner, outer; /* after their pads */
	bool from_file;
};

static void begin_pad(
	SHA256_CTX *sha, const unsigned char key[SHA256_DIGEST_LENGTH], unsigned char pad)
{
	unsigned char block[SHA256_CBLOCK];

	memset(block, pad, sizeof(block));
	for (size_t i = 0; i < SHA256_DIGEST_LENGTH; i++)
		block[i] ^= key[i];
	SHA256_Init(sha);
	SHA256_Update(sha, block, sizeof(block));
	OPENSSL_cleanse(block, sizeof(block));
}

static void set_secret(struct kvw_tenants *tenants, const void *secret, size_t len)
{
	unsigned char key[SHA256_DIGEST_LENGTH];

	SHA256(secret, len, key);
	begin_pad(&tenants->inner, key, 0x36);
	begin_pad(&tenants->outer, key, 0x5c);
	OPENSSL_cleanse(key, sizeof(key));
}

static enum kvw_err make_secret(struct kvw_tenants *tenants, FILE *errors)
{
	unsigned char secret[KVW_TENANT_SECRET_LEAST];

	if (RAND_bytes(secret, sizeof(secret)) != 1) {
		fprintf(errors, "auth.tenant_secret_file: there is no randomness for a secret\n");
		return KVW_EIO;
	}
	set_secret(tenants, secret, sizeof(secret));
	OPENSSL_cleanse(secret, sizeof(secret));
	return KVW_OK;
}

static enum kvw_err read_secret(struct kvw_tenants *tenants, const char *path, FILE *errors)
{
	char why[KVT_READ_FILE_WHY];
	size_t whole, len;
	char *secret = kvt_read_file(path, KVW_TENANT_SECRET_MOST, &whole, why);
	enum kvw_err err = KVW_OK;

	if (secret == NULL) {
		fprintf(errors, "%s: auth.tenant_secret_file cannot be read: %s\n", path, why);
		return KVW_EIO;
	}
	len = whole;
	while (len > 0 && strchr(" \t\r\n", secret[len - 1]) != NULL)
		len--;
	if (len < KVW_TENANT_SECRET_LEAST) {
		fprintf(errors,
			"%s: auth.tenant_secret_file: found %zu bytes, expected at least %d random "
			"ones\n",
			path, len, KVW_TENANT_SECRET_LEAST);
		err = KVW_EINVAL;
	} else {
		set_secret(tenants, secret, len);
		tenants->from_file = true;
	}
	OPENSSL_cleanse(secret, whole);
	free(secret);
	return err;
}

enum kvw_err kvw_tenants_create(const char *secret_file, FILE *errors, struct kvw_tenants **out)
{
	struct kvw_tenants *tenants = calloc(1, sizeof(*tenants));
	enum kvw_err err;

	if (tenants == NULL)
		return KVW_ENOMEM;
	err = secret_file[0] != '\0' ? read_secret(tenants, secret_file, errors)
				     : make_secret(tenants, errors);
	if (err == KVW_OK)
		*out = tenants;
	else
		kvw_tenants_destroy(tenants);
	return err;
}

void kvw_tenants_destroy(struct kvw_tenants *tenants)
{
	if (tenants == NULL)
		return;
	OPENSSL_cleanse(tenants, sizeof(*tenants));
	free(tenants);
}

bool kvw_tenants_last(const struct kvw_tenants *tenants)
{
	return tenants->from_file;
}

/* Hashes the name's length first, so that no other name and salt give the same bytes. */
static void digest_of(const struct kvw_tenants *tenants, enum purpose purpose,
	struct kvw_slice tenant, bool has_own, struct kvw_slice own,
	unsigned char out[SHA256_DIGEST_LENGTH])
{
	const unsigned char head[4] = {(unsigned char)purpose, has_own,
		(unsigned char)(tenant.len >> 8), (unsigned char)tenant.len};
	SHA256_CTX sha = tenants->inner;

	SHA256_Update(&sha, head, sizeof(head));
	SHA256_Update(&sha, tenant.data, tenant.len);
	if (own.len > 0)
		SHA256_Update(&sha, own.data, own.len);
	SHA256_Final(out, &sha);
	sha = tenants->outer;
	SHA256_Update(&sha, out, SHA256_DIGEST_LENGTH);
	SHA256_Final(out, &sha);
	OPENSSL_cleanse(&sha, sizeof(sha));
}

void kvw_tenants_salt(const struct kvw_tenants *tenants, struct kvw_slice tenant, bool has_own,
	struct kvw_slice own, char out[KVW_TENANT_SALT])
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	unsigned char digest[SHA256_DIGEST_LENGTH + 1] = {0};

	digest_of(tenants, PURPOSE_SALT, tenant, has_own, own, digest);
	for (size_t i = 0; i < KVW_TENANT_SALT; i++) {
		size_t bit = 6 * i;
		unsigned pair = (unsigned)digest[bit / 8] << 8 | digest[bit / 8 + 1];

		out[i] = letters[pair >> (10 - bit % 8) & 63];
	}
}

uint64_t kvw_tenants_number(const struct kvw_tenants *tenants, struct kvw_slice tenant)
{
	unsigned char digest[SHA256_DIGEST_LENGTH];
	uint64_t number;

	digest_of(tenants, PURPOSE_NUMBER, tenant, false, (struct kvw_slice){NULL, 0}, digest);
	memcpy(&number, digest, sizeof(number));
	return number | 1;
}
