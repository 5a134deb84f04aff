/*
 * redis_value.h - the bytes of a chunk in Redis. Native format 1.0.
 *
 * Keys. A chunk's first (usually only) part and its further parts are
 *
 * 	kvt1:FINGERPRINT:{KEY}    kvt1:FINGERPRINT:{KEY}:1    kvt1:FINGERPRINT:{KEY}:2 ...
 *
 * FINGERPRINT: its first 16 bytes in hex (all 32 are in the value); KEY: all 32 in hex. The braces put all parts of a
 * chunk into one slot of a Cluster: they move, vanish and are unlinked together, by one command, while chunks spread
 * over all slots. All begins with "kvt1:", for ACL patterns.
 *
 * 	kvt1:generations    redis_table.c    kvt1:FINGERPRINT:tenantkey:TENANT    redis_keys.c
 * 	kvt1:FINGERPRINT:account:TENANT    with quotas: redis_quota.c
 *
 * KEY is the chunk's name, which includes the generation of its tenant.
 *
 * A value is payload, names, tags, footer. The payload comes first and the footer last because the reader of a chunk
 * knows its length: GET puts the payload into its place and the rest elsewhere, in one round trip and without a copy.
 * GETRANGE of the last bytes shows both that a chunk is there and that it is complete: a truncated value has no footer.
 *
 * footer (REDIS_FOOTER bytes, little-endian)
 *     0  "kvtvalue"          8  u16 major, u16 minor    12 u32 bytes of the footer
 *    16  XXH3-128 of the footer with these 16 bytes zero
 *    32  u8[32] key         64  u8[32] fingerprint      96 u8[32] parent    128 u8[16] tenant
 *   144  u64 bytes of the chunk                        152 u64 payload in this part
 *   160  u32 payload of each part but the last         164 u32 parts        168 u32 number of this
 *   172  u32 tokens        176  u64 writer: random, for each write of a chunk
 *   184  u64 epoch of all  192  u64 epoch of the tenant, both as they were when it was written (kvtierd; in Redis 0)
 *   200  u64 ttl           208  i64 written (wall clock, ns)
 *   216  XXH3-128 of the chunk's bytes (low, high; zero when sealed)
 *   232  seal of the chunk: u32 format, u32 key id, u64 tenant key, u8[16] salt, u64 nonce
 *   272  seal of the names, likewise
 *   312  u32 bytes of names (their tag included)       316 u32 tags          320 u32 flags
 *   324  u32 zero          328  XXH3-64 of names and tags
 *
 * Only the first part has names and tags (16 bytes each); names are in the NVMe tier's form (nvme_format.h), filled up
 * to a multiple of 4.
 *
 * A value of another major version is not read; of a newer minor version the reader ignores reserved bytes. Pure
 * functions.
 */
#ifndef KVT_REDIS_VALUE_H
#define KVT_REDIS_VALUE_H

#include <stdbool.h>

#include "protect/seal.h"
#include "tiers/tier.h"

#define REDIS_MAJOR      1
#define REDIS_MINOR      0
#define REDIS_FOOTER     336u
#define REDIS_MAX_EXTRA  (64u * 1024) /* most bytes of names and tags of one chunk */
#define REDIS_MAX_PARTS  4096u
#define REDIS_MAX_TOKENS (1u << 24)
#define REDIS_KEY_ROOM   128 /* room for any of the keys above, with its NUL */

enum { /* flags */
	REDIS_PARENT = 1,
	REDIS_SEALED = 2,
};

/* A footer, unpacked. */
struct redis_footer {
	struct kvt_key key, parent;
	struct kvt_fingerprint fingerprint;
	struct kvt_tenant tenant;
	uint64_t bytes, part_payload;
	uint32_t part_bytes, parts, part;
	uint32_t tokens, flags;
	uint64_t writer;
	uint64_t epoch, tenant_epoch;
	uint64_t ttl_ns;
	int64_t written_wall_ns;
	struct kvt_checksum checksum;
	struct kvt_seal_header seal, names_seal;
	uint32_t names_bytes, tag_count;
	uint64_t extra_sum; /* checksum over names and tags */
};

void redis_footer_encode(const struct redis_footer *f, uint8_t out[REDIS_FOOTER]);
/* KVT_EFORMAT: the value belongs to another program, or to another major version. KVT_ECORRUPT: it
 * has this format, but is wrong. With KVT_OK, lengths and counts are consistent. */
enum kvt_status redis_footer_decode(
	const uint8_t *in, size_t len, struct redis_footer *out) KVT_MUST_CHECK;

/* Returns the length of names and tags after the payload; 0 except in the first part. */
static inline uint64_t redis_footer_extra(const struct redis_footer *f)
{
	return f->part == 0 ? (uint64_t)f->names_bytes + (uint64_t)f->tag_count * KVT_SEAL_TAG_BYTES
			    : 0;
}

/* Returns the length of the value that this footer ends. */
static inline uint64_t redis_footer_value(const struct redis_footer *f)
{
	return f->part_payload + redis_footer_extra(f) + REDIS_FOOTER;
}

/* Returns whether the footer names this chunk. */
bool redis_footer_is(const struct redis_footer *f, const struct kvt_fingerprint *fingerprint,
	const struct kvt_key *key);
/* Returns the chunk's data for the presence table; `extra` is set to the size of its parts. */
struct kvt_tier_known redis_footer_known(const struct redis_footer *f);

uint64_t redis_extra_sum(const void *extra, uint64_t bytes);

/* Returns the number of parts of a chunk of this length; 0: no chunk can have this length. */
uint32_t redis_part_count(uint64_t bytes, uint32_t part_bytes);
uint64_t redis_part_length(uint64_t bytes, uint32_t part_bytes, uint32_t part);

/* These write names of keys in Redis, with a NUL; each returns the length of the text. */
size_t redis_chunk_name(const struct kvt_fingerprint *f, const struct kvt_key *key, uint32_t part,
	char out[REDIS_KEY_ROOM]);
size_t redis_tenant_key_name(
	const struct kvt_fingerprint *f, const struct kvt_tenant *tenant, char out[REDIS_KEY_ROOM]);
size_t redis_account_name(
	const struct kvt_fingerprint *f, const struct kvt_tenant *tenant, char out[REDIS_KEY_ROOM]);
#endif
