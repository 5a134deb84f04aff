/*
 * keys.c - storage keys, chain ids and tenants: SHA-256 over a domain and every part with its length.
 *
 * The hash covers a list of fields, the domain's name first. A field is its length as 8 bytes, little-endian, and its
 * bytes; an absent field has the length 2^64 - 1 and no bytes. So two different lists of fields never give the same
 * input, and a key is never a chain id or a tenant. Numbers are fields of little-endian bytes.
 *
 * 	key     "kvtier key 1" | chain id | recipe | seed | fingerprint (32) | rank (4) | tenant (16); then its slot
 * 	ends    "kvtier ends 1" | key (32); then the key's slot
 * 	chain   "kvtier chain 1" | parent (32, or absent) | tokens (4 each)
 * 	tenant  "kvtier tenant 1" | salt
 * 	chain of a fragment  "kvtier fragment chain 1" | parent (32, or absent) | LoRA (or absent) | tokens (4 each)
 * 	key of a fragment    "kvtier fragment key 1", else as key; then a mark in the last four bytes
 *
 * This file uses OpenSSL's older SHA256_*() on purpose: EVP_DigestInit_ex() of 3.0 allocates a context for every digest
 * and can fail, and a failed hash must not turn a tenant into another one.
 */
#define OPENSSL_SUPPRESS_DEPRECATED

#include <openssl/sha.h>
#include <stdbool.h>
#include <string.h>

#include "chunk/fragment_mark.h"
#include "chunk/slots.h"
#include "kvtier/kvtier_fragments.h"

#define LEAST_CHAIN_ID 16
#define MOST_CHAIN_ID  64
#define ABSENT         UINT64_MAX

static void put_length(SHA256_CTX *sha, uint64_t length)
{
	uint8_t bytes[8];

	for (int i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(length >> (8 * i));
	(void)SHA256_Update(sha, bytes, sizeof(bytes)); /* none of these can fail */
}

/* bytes NULL: absent. */
static void put_field(SHA256_CTX *sha, const void *bytes, size_t length)
{
	put_length(sha, bytes != NULL ? length : ABSENT);
	if (bytes != NULL && length > 0)
		(void)SHA256_Update(sha, bytes, length);
}

static void put_text(SHA256_CTX *sha, const char *text)
{
	put_field(sha, text, text != NULL ? strlen(text) : 0);
}

static void begin(SHA256_CTX *sha, const char *domain)
{
	(void)SHA256_Init(sha);
	put_text(sha, domain);
}

static void store32(uint8_t to[4], uint32_t value)
{
	for (int i = 0; i < 4; i++)
		to[i] = (uint8_t)(value >> (8 * i));
}

/* A caller compiled against a newer header may name parts that this version would leave out of the key: this check
 * refuses them unless they are zero. */
static bool size_fits(const struct kvt_key_parts *parts)
{
	const uint8_t *bytes = (const uint8_t *)parts;

	if (parts->size < sizeof(*parts))
		return false;
	for (size_t i = sizeof(*parts); i < parts->size; i++) {
		if (bytes[i] != 0)
			return false;
	}
	return true;
}

static enum kvt_status make_key(const char *domain, const struct kvt_key_parts *parts, struct kvt_key *out)
{
	uint8_t rank[4];
	SHA256_CTX sha;

	if (parts == NULL || out == NULL || !size_fits(parts))
		return KVT_EINVAL;
	if (parts->chain_id == NULL || parts->chain_id_bytes < LEAST_CHAIN_ID ||
		parts->chain_id_bytes > MOST_CHAIN_ID)
		return KVT_EINVAL;
	if (parts->hash_recipe == NULL || parts->hash_recipe[0] == '\0')
		return KVT_EINVAL;
	store32(rank, parts->rank);
	begin(&sha, domain);
	put_field(&sha, parts->chain_id, parts->chain_id_bytes);
	put_text(&sha, parts->hash_recipe);
	put_text(&sha, parts->hash_seed);
	put_field(&sha, parts->fingerprint.bytes, sizeof(parts->fingerprint.bytes));
	put_field(&sha, rank, sizeof(rank));
	put_field(&sha, parts->tenant.bytes, sizeof(parts->tenant.bytes));
	(void)SHA256_Final(out->bytes, &sha);
	kvt_key_take_slot(out, &parts->tenant);
	return KVT_OK;
}

enum kvt_status kvt_key_make(const struct kvt_key_parts *parts, struct kvt_key *out)
{
	return make_key("kvtier key 1", parts, out);
}

enum kvt_status kvt_fragment_key(const struct kvt_key_parts *parts, struct kvt_key *out)
{
	enum kvt_status status = make_key("kvtier fragment key 1", parts, out);

	if (status == KVT_OK)
		memcpy(out->bytes + sizeof(out->bytes) - KVT_MARK_BYTES, KVT_FRAGMENT_MARK, KVT_MARK_BYTES);
	return status;
}

void kvt_key_ends(const struct kvt_key *key, struct kvt_key *out)
{
	struct kvt_key made;
	SHA256_CTX sha;

	begin(&sha, "kvtier ends 1");
	put_field(&sha, key->bytes, sizeof(key->bytes));
	(void)SHA256_Final(made.bytes, &sha);
	memcpy(&made.bytes[KVT_SLOT_AT], &key->bytes[KVT_SLOT_AT], 2);
	*out = made;
}

static void put_tokens(SHA256_CTX *sha, const uint32_t *tokens, size_t count)
{
	uint8_t piece[256];

	put_length(sha, (uint64_t)count * 4);
	for (size_t at = 0; at < count;) {
		size_t filled = 0;

		for (; at < count && filled < sizeof(piece); at++, filled += 4)
			store32(piece + filled, tokens[at]);
		(void)SHA256_Update(sha, piece, filled);
	}
}

void kvt_chain_id(const uint8_t parent[32], const uint32_t *tokens, size_t count, uint8_t out[32])
{
	SHA256_CTX sha;

	begin(&sha, "kvtier chain 1");
	put_field(&sha, parent, 32);
	put_tokens(&sha, tokens, count);
	(void)SHA256_Final(out, &sha);
}

void kvt_fragment_chain_id(const uint8_t parent[32], const void *lora, size_t lora_bytes, const uint32_t *tokens,
	size_t count, uint8_t out[32])
{
	SHA256_CTX sha;

	begin(&sha, "kvtier fragment chain 1");
	put_field(&sha, parent, 32);
	put_field(&sha, lora, lora_bytes);
	put_tokens(&sha, tokens, count);
	(void)SHA256_Final(out, &sha);
}

void kvt_tenant_of(const void *salt, size_t len, struct kvt_tenant *out)
{
	uint8_t digest[SHA256_DIGEST_LENGTH];
	SHA256_CTX sha;

	memset(out, 0, sizeof(*out));
	if (len == 0)
		return;
	begin(&sha, "kvtier tenant 1");
	put_field(&sha, salt, len);
	(void)SHA256_Final(digest, &sha);
	memcpy(out->bytes, digest, sizeof(out->bytes));
}
