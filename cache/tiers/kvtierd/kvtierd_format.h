/*
 * tiered_format.h - what this tier keeps in tiered storage, byte by byte, and under which names.
 *
 * Names, in the bucket of the configuration; F is the first 16 bytes of the fingerprint in hex:
 *
 *	KEY-F               a chunk: payload, names, tags, footer, one value as in redis_value.h
 *	epoch-F             the epoch of all chunks
 *	epoch-F-TENANT      the epoch of a tenant's
 *
 * Epochs and erased chunks are marks of TIERED_MARK bytes (little-endian):
 *     0  "kvtmark1"           8  u32 kind, u32 zero      16 XXH3-128 with these 16 bytes zero
 *    32  u8[32] fingerprint  64  u8[32] key, or tenant and zeros
 *    96  u64 value           104 i64 written (wall clock, ns)      112 u8[16] zero
 *
 * Requests are those of the protocol, as stock clients write them. Pure functions.
 */
#ifndef KVT_TIERED_FORMAT_H
#define KVT_TIERED_FORMAT_H

#include <stdbool.h>

#include "tiers/kvtierd/kvtierd_http.h"

#define TIERED_MARK       128u
#define TIERED_NAME_ROOM  128u
#define TIERED_MAX_BUCKET 128u

enum tiered_mark_kind { TIERED_EPOCH_ALL = 1, TIERED_EPOCH_TENANT = 2, TIERED_ERASED = 3 };

struct tiered_mark {
	enum tiered_mark_kind kind;
	struct kvt_fingerprint fingerprint;
	struct kvt_key key;       /* TIERED_ERASED */
	struct kvt_tenant tenant; /* TIERED_EPOCH_TENANT */
	uint64_t value;           /* random; what it says of an epoch is: this one */
	int64_t written_wall_ns;
};

void tiered_mark_encode(const struct tiered_mark *m, uint8_t out[TIERED_MARK]);
/* KVT_ECORRUPT: not one. */
enum kvt_status tiered_mark_decode(
	const uint8_t in[TIERED_MARK], struct tiered_mark *out) KVT_MUST_CHECK;

void tiered_chunk_name(
	const struct kvt_fingerprint *f, const struct kvt_key *key, char out[TIERED_NAME_ROOM]);
/* tenant NULL: of all. */
void tiered_epoch_name(const struct kvt_fingerprint *f, const struct kvt_tenant *tenant,
	char out[TIERED_NAME_ROOM]);

/* Where requests go: both texts ready for a head. */
struct tiered_place {
	char bucket[3 * TIERED_MAX_BUCKET + 1]; /* percent-encoded */
	char host[300];                         /* host:port, IPv6 in brackets */
};

/* KVT_EINVAL: a bucket that is none. */
enum kvt_status tiered_place_init(
	struct tiered_place *p, const char *bucket, const char *host, uint16_t port) KVT_MUST_CHECK;

/* Each makes the head of an exchange. */
void tiered_ask_lease(const struct tiered_place *p, const char *name, uint64_t timeout_ns,
	uint64_t ttl_ns, struct tiered_exchange *x);
void tiered_ask_release(const struct tiered_place *p, const char *id, struct tiered_exchange *x);
/* segments and tail are set already. */
void tiered_ask_put(const struct tiered_place *p, const char *name, struct tiered_exchange *x);
void tiered_ask_delete(const struct tiered_place *p, const char *name, struct tiered_exchange *x);

#endif
