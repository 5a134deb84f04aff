/*
 * redis_lmcache.h - chunks as stock LMCache keeps them in Redis, and the third key that we add.
 *
 *	NAMEkv_bytes    the bytes, nothing else
 *	NAMEmetadata    28 bytes: seven little-endian i32: length, format, dtype, shape[4]
 *	NAMEkvtier      ours: whose chunk this is, and its checksum
 *
 * NAME is LMCache's key string, such as "model@1@0@-13f5d085b2318dc0@bfloat16": 64 bits of hash, no
 * model weights, no checksum. So metadata is compared with the layout of the configuration to the
 * last number, and what has no third key counts as unverified.
 *
 * kvtier (REDIS_MARK bytes, little-endian)
 *     0  "kvtmark1"          8  u16 major, u16 minor    12 u32 bytes of the mark
 *    16  XXH3-128 of the mark with these 16 bytes zero
 *    32  u8[32] key         64  u8[32] fingerprint      96 u8[32] parent    128 u8[16] tenant
 *   144  u64 bytes         152  u64 epoch of all       160 u64 epoch of the tenant
 *   168  u64 ttl           176  XXH3-128 of the bytes  192 u32 tokens       196 u32 flags (1: parent)
 *
 * Source of the metadata: LMCache 0.5.6, recorded from redis-server. Pure functions.
 */
#ifndef KVT_REDIS_LMCACHE_H
#define KVT_REDIS_LMCACHE_H

#include <stdbool.h>

#include "kvtier/kvtier.h"

#define LMCACHE_METADATA 28u
#define REDIS_MARK       200u
#define LMCACHE_NAME_MAX 1024 /* bytes of NAME */

/* What the metadata must say: l2.layout. */
struct lmcache_layout {
	int32_t format;
	int32_t dtype;
	int32_t dtype_too; /* another number of the same dtype; else the same */
	uint32_t element_bytes;
	int32_t shape[4]; /* 0: the number of tokens */
	uint64_t bytes_per_token;
};

/* "dtype=bfloat16 format=KV_2LTD shape=2,32,*,1024", in any order. NULL: read. Else what was
 * expected, static text. */
const char *lmcache_layout_parse(const char *text, struct lmcache_layout *out);

/* Tokens of so many bytes; 0: the layout has no such length. */
uint32_t lmcache_tokens(const struct lmcache_layout *l, uint64_t bytes);

/* tokens: as lmcache_tokens gave it. */
void lmcache_metadata_encode(
	const struct lmcache_layout *l, uint32_t tokens, uint8_t out[LMCACHE_METADATA]);
/* KVT_EFORMAT: any number is not what the layout says. */
enum kvt_status lmcache_metadata_decode(const struct lmcache_layout *l, const uint8_t *in,
	size_t len, uint64_t *bytes, uint32_t *tokens) KVT_MUST_CHECK;

/* The third key, unpacked. */
struct redis_mark {
	struct kvt_key key, parent;
	struct kvt_fingerprint fingerprint;
	struct kvt_tenant tenant;
	uint64_t bytes;
	uint64_t epoch, tenant_epoch;
	uint64_t ttl_ns;
	struct kvt_checksum checksum;
	uint32_t tokens;
	bool has_parent;
};

void redis_mark_encode(const struct redis_mark *m, uint8_t out[REDIS_MARK]);
/* KVT_EFORMAT: of another major version. KVT_ECORRUPT. */
enum kvt_status redis_mark_decode(
	const uint8_t *in, size_t len, struct redis_mark *out) KVT_MUST_CHECK;

#endif
