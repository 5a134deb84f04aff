/*
 * tenant_keys.h - the tenants' random keys, and their wrapped form in a store.
 *
 * Wrapped, KVT_SEAL_WRAPPED_BYTES, numbers little-endian:
 *
 * 	 0  u32  format, 1            32  16  random salt: the wrapping key is HKDF(master, salt)
 * 	 4  u32  id of the master     48  12  random nonce
 * 	 8  u64  id of this key       60   4  zero
 * 	16   16  tenant               64  32  the key, AES-256-GCM; bytes 0 to 63 are its AAD
 * 	                              96  16  tag
 *
 * Not thread-safe: the sealer has a lock.
 */
#ifndef KVT_TENANT_KEYS_H
#define KVT_TENANT_KEYS_H

#include "protect/crypto.h"
#include "protect/key_file.h"
#include "protect/seal.h"

/* A tenant's key. */
struct kvt_tenant_key {
	struct kvt_tenant_key *next; /* next in the same bucket */
	struct kvt_tenant tenant;
	uint64_t id;        /* random, never 0: id of this key of the tenant */
	uint32_t master_id; /* id of the master that wrapped it */
	uint8_t *key;       /* of the secrets */
	uint8_t *subkey;    /* the present process start's, for sealing */
	uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES];
};

struct kvt_tenant_keys {
	struct kvt_tenant_key **buckets; /* owned */
	size_t bucket_count;             /* a power of two */
	size_t count;
	uint8_t salt[KVT_CRYPTO_SALT]; /* of this process start */
};

enum kvt_status kvt_tenant_keys_init(struct kvt_tenant_keys *t) KVT_MUST_CHECK;
void kvt_tenant_keys_finish(struct kvt_tenant_keys *t, struct kvt_secrets *secrets);

/* The means to make and store keys. */
struct kvt_tenant_key_means {
	const struct kvt_crypto *crypto;
	const struct kvt_masters *masters;
	struct kvt_secrets *secrets;
};

/* NULL: none. Borrowed until the key is forgotten or replaced. */
struct kvt_tenant_key *kvt_tenant_keys_find(
	const struct kvt_tenant_keys *t, const struct kvt_tenant *tenant);

/* The tenant's key, made if there is none; wrapped by the newest master. *fresh: its wrapped form
 * is not the one that was given before. */
enum kvt_status kvt_tenant_keys_get(struct kvt_tenant_keys *t,
	const struct kvt_tenant_key_means *means, const struct kvt_tenant *tenant,
	struct kvt_tenant_key **out, bool *fresh) KVT_MUST_CHECK;

/* Takes a wrapped key in place of the tenant's. KVT_MISS: its master is not in the file.
 * KVT_ECORRUPT: not a wrapped key. */
enum kvt_status kvt_tenant_keys_take(struct kvt_tenant_keys *t,
	const struct kvt_tenant_key_means *means,
	const uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES]) KVT_MUST_CHECK;

/* Returns the id of the forgotten key, 0: there was none. */
uint64_t kvt_tenant_keys_forget(
	struct kvt_tenant_keys *t, struct kvt_secrets *secrets, const struct kvt_tenant *tenant);

/* Information for HKDF: the purpose of each kind of subkey. */
#define KVT_INFO_CHUNKS "kvtier chunks 1"
#define KVT_INFO_WRAP   "kvtier tenant key 1"

#endif
