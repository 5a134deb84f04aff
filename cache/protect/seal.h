/*
 * seal.h - encrypts chunks for storage with AES-256-GCM: keys, key ids, tenants' wrapped keys,
 * records.
 *
 * A chunk is sealed in records of at most KVT_SEAL_RECORD bytes, each with a tag; the additional
 * data of each record binds it to its place: format version, storage key, fingerprint, kind of
 * tier, id of the store, key id, length of the chunk, number of the record. So a record that is
 * moved to another key, store or place in the chunk does not open.
 *
 * Keys: a file of master keys by id; the newest seals, all open. Each tenant has a random key of
 * its own, wrapped by a master key: destroying the wrapped key destroys the tenant's chunks.
 * Nonces: a random 128-bit salt per process start makes a subkey (HKDF), then a counter; a pair of
 * subkey and counter is never used twice. Keys are wiped, and their memory is not dumped.
 * Thread-safe.
 */
#ifndef KVT_SEAL_H
#define KVT_SEAL_H

#include <stdbool.h>

#include "chunk/note.h"

#define KVT_SEAL_RECORD    (1u << 20)
#define KVT_SEAL_TAG_BYTES 16

/* Everything to which a sealed chunk is bound: it can only be opened at the same place. */
struct kvt_seal_place {
	struct kvt_key key;
	struct kvt_fingerprint fingerprint;
	struct kvt_tenant tenant;
	uint32_t tier;        /* enum kvt_tier_id */
	uint8_t store_id[16]; /* random id, made when the store is created */
	uint64_t bytes;
};

/* The header of a sealed chunk; all of it is authenticated. */
struct kvt_seal_header {
	uint32_t format;        /* 1 */
	uint32_t key_id;        /* id of the master key that wrapped the tenant's key */
	uint64_t tenant_key_id; /* id of the tenant's key */
	uint8_t salt[16];
	uint64_t first_nonce; /* record i has first_nonce + i */
};

struct kvt_sealer;

/* keys_path: see config. KVT_EINVAL with every mistake of the file in *report (free with
 * kvt_text_free). */
enum kvt_status kvt_sealer_create(const char *keys_path, const struct kvt_surroundings *s,
	struct kvt_sealer **out, char **report) KVT_MUST_CHECK;
void kvt_sealer_destroy(struct kvt_sealer *s); /* NULL is allowed */

static inline uint32_t kvt_seal_records(uint64_t bytes)
{
	return (uint32_t)((bytes + KVT_SEAL_RECORD - 1) / KVT_SEAL_RECORD);
}

/* Seals `bytes` of the segments into `out` (bytes long); tags: kvt_seal_records * 16. KVT_MISS: the
 * tenant has no key yet: kvt_seal_tenant_key makes it, so that no chunk is ever sealed by a key
 * that the store does not keep. KVT_EINVAL: the segments are shorter, or bytes is 0. */
enum kvt_status kvt_seal(struct kvt_sealer *s, const struct kvt_seal_place *place,
	const struct kvt_segment *from, size_t count, void *out, struct kvt_seal_header *header,
	uint8_t *tags) KVT_MUST_CHECK;

/* Opens in place (one segment over `from`) or into segments. KVT_ECORRUPT: the chunk was changed or
 * does not belong here; the first place->bytes of `to` are then wiped. KVT_MISS: its key is
 * gone. */
enum kvt_status kvt_open_sealed(struct kvt_sealer *s, const struct kvt_seal_place *place,
	const struct kvt_seal_header *header, const uint8_t *tags, const void *from,
	const struct kvt_segment *to, size_t count) KVT_MUST_CHECK;

/*
 * Wrapped tenant keys as the store keeps them, one per tenant in use; the store writes a key into
 * its log when `fresh` reports a new one, returns all of them at open, and destroys a key by
 * overwriting. KVT_SEAL_WRAPPED_BYTES each.
 *
 * Rotation: once the file has a master key with a higher id, the next kvt_seal_tenant_key wraps the
 * tenant's key by that master and reports `fresh` again; the key itself, and so every sealed chunk,
 * stays. When no wrapped key of an old master is left, its line may leave the file. A store that
 * could not write a fresh form forgets the tenant, or tries to write again.
 * kvt_seal_take_tenant_key replaces the tenant's key: the last one taken counts. Its KVT_MISS: the
 * master is not in the file; KVT_ECORRUPT: not a wrapped key. KVT_EFORK: the sealer was made before
 * a fork.
 */
#define KVT_SEAL_WRAPPED_BYTES 112
enum kvt_status kvt_seal_tenant_key(struct kvt_sealer *s, const struct kvt_tenant *tenant,
	uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES], bool *fresh) KVT_MUST_CHECK;
enum kvt_status kvt_seal_take_tenant_key(
	struct kvt_sealer *s, const uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES]) KVT_MUST_CHECK;
void kvt_seal_forget_tenant(struct kvt_sealer *s, const struct kvt_tenant *tenant);

#endif
