/*
 * tenant_keys.c - each tenant's random key.
 *
 * A hash table by the tenant's first bytes, which are a hash themselves. Rotation changes the master that wraps a key,
 * not the key: sealed chunks stay readable without being written again, and an old master may leave the file as soon as
 * it wraps no key.
 *
 * Each wrapping has a key of its own (a random salt into HKDF), so that no number of tenants and rotations makes a
 * repeated random nonce likely.
 */
#include "protect/tenant_keys.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "protect/little_endian.h"

#define WRAP_FORMAT   1
#define FIRST_BUCKETS 64

enum {
	AT_FORMAT = 0,
	AT_MASTER = 4,
	AT_ID = 8,
	AT_TENANT = 16,
	AT_SALT = 32,
	AT_NONCE = 48,
	AT_KEY = 64,
	AT_TAG = 96,
};
_Static_assert(AT_TAG + KVT_CRYPTO_TAG == KVT_SEAL_WRAPPED_BYTES, "a wrapped key fills its room");

/* --- the table -------------------------------------------------------------------------------- */

enum kvt_status kvt_tenant_keys_init(struct kvt_tenant_keys *t)
{
	*t = (struct kvt_tenant_keys){.bucket_count = FIRST_BUCKETS};
	t->buckets = calloc(t->bucket_count, sizeof(struct kvt_tenant_key *));
	return t->buckets != NULL ? kvt_crypto_random(t->salt, sizeof(t->salt)) : KVT_ENOMEM;
}

static void destroy_key(struct kvt_tenant_key *k, struct kvt_secrets *secrets)
{
	kvt_secret_give(secrets, k->key);
	kvt_secret_give(secrets, k->subkey);
	free(k);
}

void kvt_tenant_keys_finish(struct kvt_tenant_keys *t, struct kvt_secrets *secrets)
{
	for (size_t i = 0; t->buckets != NULL && i < t->bucket_count; i++) {
		while (t->buckets[i] != NULL) {
			struct kvt_tenant_key *k = t->buckets[i];

			t->buckets[i] = k->next;
			destroy_key(k, secrets);
		}
	}
	free(t->buckets);
	*t = (struct kvt_tenant_keys){0};
}

static struct kvt_tenant_key **bucket_of(
	const struct kvt_tenant_keys *t, const struct kvt_tenant *tenant)
{
	return &t->buckets[kvt_get64(tenant->bytes) & (t->bucket_count - 1)];
}

struct kvt_tenant_key *kvt_tenant_keys_find(
	const struct kvt_tenant_keys *t, const struct kvt_tenant *tenant)
{
	struct kvt_tenant_key *k = *bucket_of(t, tenant);

	while (k != NULL && memcmp(&k->tenant, tenant, sizeof(*tenant)) != 0)
		k = k->next;
	return k;
}

/* Doubles the buckets; without memory the chains just stay longer. */
static void grow(struct kvt_tenant_keys *t)
{
	struct kvt_tenant_keys wider = *t;

	wider.bucket_count *= 2;
	wider.buckets = calloc(wider.bucket_count, sizeof(struct kvt_tenant_key *));
	if (wider.buckets == NULL)
		return;
	for (size_t i = 0; i < t->bucket_count; i++) {
		while (t->buckets[i] != NULL) {
			struct kvt_tenant_key *k = t->buckets[i];
			struct kvt_tenant_key **bucket = bucket_of(&wider, &k->tenant);

			t->buckets[i] = k->next;
			k->next = *bucket;
			*bucket = k;
		}
	}
	free(t->buckets);
	*t = wider;
}

static void insert(struct kvt_tenant_keys *t, struct kvt_tenant_key *k)
{
	struct kvt_tenant_key **bucket;

	if (t->count >= 2 * t->bucket_count)
		grow(t);
	bucket = bucket_of(t, &k->tenant);
	k->next = *bucket;
	*bucket = k;
	t->count++;
}

uint64_t kvt_tenant_keys_forget(
	struct kvt_tenant_keys *t, struct kvt_secrets *secrets, const struct kvt_tenant *tenant)
{
	struct kvt_tenant_key **at = bucket_of(t, tenant);
	struct kvt_tenant_key *k;
	uint64_t id;

	while (*at != NULL && memcmp(&(*at)->tenant, tenant, sizeof(*tenant)) != 0)
		at = &(*at)->next;
	k = *at;
	if (k == NULL)
		return 0;
	*at = k->next;
	t->count--;
	id = k->id;
	OPENSSL_cleanse(k->wrapped, sizeof(k->wrapped));
	destroy_key(k, secrets);
	return id;
}

/* --- wrapping --------------------------------------------------------------------------------- */

/* Makes an entry with room for its keys and the subkey of this process start. k->key is random or zero. */
static enum kvt_status make_entry(const struct kvt_tenant_key_means *means,
	const struct kvt_tenant *tenant, struct kvt_tenant_key **out)
{
	struct kvt_tenant_key *k = calloc(1, sizeof(*k));

	if (k == NULL)
		return KVT_ENOMEM;
	k->tenant = *tenant;
	k->key = kvt_secret_take(means->secrets);
	k->subkey = kvt_secret_take(means->secrets);
	if (k->key == NULL || k->subkey == NULL) {
		destroy_key(k, means->secrets);
		return KVT_ENOMEM;
	}
	*out = k;
	return KVT_OK;
}

/* Seals or opens the key; bytes 0 to 63 are written already. */
static enum kvt_status seal_or_open(const struct kvt_tenant_key_means *means, const uint8_t *master,
	struct kvt_tenant_key *k, bool seal)
{
	uint8_t key[KVT_CRYPTO_KEY];
	struct kvt_crypto_message m = {
		.key = key,
		.iv = k->wrapped + AT_NONCE,
		.aad = k->wrapped,
		.aad_bytes = AT_KEY,
		.from = seal ? k->key : k->wrapped + AT_KEY,
		.to = seal ? k->wrapped + AT_KEY : k->key,
		.bytes = KVT_CRYPTO_KEY,
		.tag = k->wrapped + AT_TAG,
	};
	enum kvt_status status =
		kvt_crypto_subkey(means->crypto, master, k->wrapped + AT_SALT, KVT_INFO_WRAP, key);

	if (status == KVT_OK)
		status = seal ? kvt_crypto_seal(means->crypto, &m)
			      : kvt_crypto_open(means->crypto, &m);
	OPENSSL_cleanse(key, sizeof(key));
	return status;
}

/* Wraps a key by the newest master, with a new salt and nonce. A failure leaves the old form. */
static enum kvt_status wrap(const struct kvt_tenant_key_means *means, struct kvt_tenant_key *k)
{
	const struct kvt_master *master = kvt_masters_newest(means->masters);
	struct kvt_tenant_key made = *k;
	enum kvt_status status;

	memset(made.wrapped, 0, sizeof(made.wrapped));
	kvt_put32(made.wrapped + AT_FORMAT, WRAP_FORMAT);
	kvt_put32(made.wrapped + AT_MASTER, master->id);
	kvt_put64(made.wrapped + AT_ID, k->id);
	memcpy(made.wrapped + AT_TENANT, &k->tenant, sizeof(k->tenant));
	status = kvt_crypto_random(made.wrapped + AT_SALT, KVT_CRYPTO_SALT + KVT_CRYPTO_IV);
	if (status == KVT_OK)
		status = seal_or_open(means, master->key, &made, true);
	if (status != KVT_OK)
		return status;
	memcpy(k->wrapped, made.wrapped, sizeof(k->wrapped));
	k->master_id = master->id;
	return KVT_OK;
}

static enum kvt_status make_key(struct kvt_tenant_keys *t, const struct kvt_tenant_key_means *means,
	const struct kvt_tenant *tenant, struct kvt_tenant_key **out)
{
	struct kvt_tenant_key *k = NULL;
	enum kvt_status status = make_entry(means, tenant, &k);

	if (status != KVT_OK)
		return status;
	status = kvt_crypto_random(k->key, KVT_CRYPTO_KEY);
	while (status == KVT_OK && k->id == 0)
		status = kvt_crypto_random(&k->id, sizeof(k->id));
	if (status == KVT_OK)
		status = kvt_crypto_subkey(
			means->crypto, k->key, t->salt, KVT_INFO_CHUNKS, k->subkey);
	if (status == KVT_OK)
		status = wrap(means, k);
	if (status != KVT_OK) {
		destroy_key(k, means->secrets);
		return status;
	}
	insert(t, k);
	*out = k;
	return KVT_OK;
}

enum kvt_status kvt_tenant_keys_get(struct kvt_tenant_keys *t,
	const struct kvt_tenant_key_means *means, const struct kvt_tenant *tenant,
	struct kvt_tenant_key **out, bool *fresh)
{
	struct kvt_tenant_key *k = kvt_tenant_keys_find(t, tenant);
	enum kvt_status status = KVT_OK;
	bool renew = k != NULL && k->master_id != kvt_masters_newest(means->masters)->id;

	*fresh = k == NULL || renew;
	if (k == NULL)
		status = make_key(t, means, tenant, &k);
	else if (renew)
		status = wrap(means, k);
	if (status == KVT_OK)
		*out = k;
	return status;
}

enum kvt_status kvt_tenant_keys_take(struct kvt_tenant_keys *t,
	const struct kvt_tenant_key_means *means, const uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES])
{
	uint32_t master_id = kvt_get32(wrapped + AT_MASTER);
	const uint8_t *master = kvt_masters_find(means->masters, master_id);
	struct kvt_tenant tenant;
	struct kvt_tenant_key *k = NULL;
	enum kvt_status status;

	if (kvt_get32(wrapped + AT_FORMAT) != WRAP_FORMAT || kvt_get64(wrapped + AT_ID) == 0)
		return KVT_ECORRUPT;
	if (master == NULL)
		return KVT_MISS;
	memcpy(&tenant, wrapped + AT_TENANT, sizeof(tenant));
	status = make_entry(means, &tenant, &k);
	if (status != KVT_OK)
		return status;
	k->id = kvt_get64(wrapped + AT_ID);
	k->master_id = master_id;
	memcpy(k->wrapped, wrapped, sizeof(k->wrapped));
	status = seal_or_open(means, master, k, false);
	if (status == KVT_OK)
		status = kvt_crypto_subkey(
			means->crypto, k->key, t->salt, KVT_INFO_CHUNKS, k->subkey);
	if (status != KVT_OK) {
		destroy_key(k, means->secrets);
		return status;
	}
	kvt_tenant_keys_forget(t, means->secrets, &tenant);
	insert(t, k);
	return KVT_OK;
}
