/*
 * kvtierd_format.h - what this tier keeps in the daemon, byte by byte, and under which names.
 *
 * Names, in the bucket of the configuration; F is the first 16 bytes of the fingerprint in hex:
 *
 *	KEY-F               a chunk: payload, names, tags, footer, one value as in redis_value.h
 *	epoch-F             the epoch of all chunks
 *	epoch-F-TENANT      the epoch of a tenant's
 *
 * Epochs and erased chunks are marks of KVTIERD_MARK bytes (little-endian):
 *     0  "kvtmark1"           8  u32 kind, u32 zero      16 XXH3-128 with these 16 bytes zero
 *    32  u8[32] fingerprint  64  u8[32] key, or tenant and zeros
 *    96  u64 value           104 i64 written (wall clock, ns)
 *   112  u64 erase           120 i64 erased (wall clock, ns): the last erase that the writer knows of; 0: none
 *
 * Requests are those of the protocol, as stock clients write them. Pure functions.
 */
#ifndef KVT_TIERED_FORMAT_H
#define KVT_TIERED_FORMAT_H

#include <stdbool.h>

#include "tiers/kvtierd/kvtierd_http.h"

#define KVTIERD_MARK       128u
#define KVTIERD_NAME_ROOM  128u
#define KVTIERD_MAX_BUCKET 128u

enum kvtierd_mark_kind { KVTIERD_EPOCH_ALL = 1, KVTIERD_EPOCH_TENANT = 2, KVTIERD_ERASED = 3 };

struct kvtierd_mark {
	enum kvtierd_mark_kind kind;
	struct kvt_fingerprint fingerprint;
	struct kvt_key key;       /* KVTIERD_ERASED */
	struct kvt_tenant tenant; /* KVTIERD_EPOCH_TENANT */
	uint64_t value;           /* random; what it says of an epoch is: this one */
	int64_t written_wall_ns;
	uint64_t erase; /* random: which one */
	int64_t erased_wall_ns;
};

void kvtierd_mark_encode(const struct kvtierd_mark *m, uint8_t out[KVTIERD_MARK]);
/* KVT_ECORRUPT: not one. */
enum kvt_status kvtierd_mark_decode(
	const uint8_t in[KVTIERD_MARK], struct kvtierd_mark *out) KVT_MUST_CHECK;

void kvtierd_chunk_name(
	const struct kvt_fingerprint *f, const struct kvt_key *key, char out[KVTIERD_NAME_ROOM]);
/* tenant NULL: of all. */
void kvtierd_epoch_name(const struct kvt_fingerprint *f, const struct kvt_tenant *tenant,
	char out[KVTIERD_NAME_ROOM]);

/* Where requests go: both texts ready for a head. */
struct kvtierd_place {
	char bucket[3 * KVTIERD_MAX_BUCKET + 1]; /* percent-encoded */
	char host[300];                         /* host:port, IPv6 in brackets */
};

/* KVT_EINVAL: a bucket that is none. */
enum kvt_status kvtierd_place_init(
	struct kvtierd_place *p, const char *bucket, const char *host, uint16_t port) KVT_MUST_CHECK;

/* Each makes the head of an exchange. */
void kvtierd_ask_lease(const struct kvtierd_place *p, const char *name, uint64_t timeout_ns,
	uint64_t ttl_ns, struct kvtierd_exchange *x);
/* The same; the daemon is not to evict what it leases. */
void kvtierd_ask_mark_lease(const struct kvtierd_place *p, const char *name, uint64_t timeout_ns,
	uint64_t ttl_ns, struct kvtierd_exchange *x);
void kvtierd_ask_release(const struct kvtierd_place *p, const char *id, struct kvtierd_exchange *x);
/* segments and tail are set already. tenant: whose limits count, where the daemon keeps such; all zero or
 * NULL: none. */
void kvtierd_ask_put(const struct kvtierd_place *p, const char *name,
	const struct kvt_tenant *tenant, struct kvtierd_exchange *x);
void kvtierd_ask_delete(const struct kvtierd_place *p, const char *name, struct kvtierd_exchange *x);
/* kvtierd only: nothing can read these chunks any more. tenant NULL: all of the model's. after "": from the first name. */
void kvtierd_ask_forget(const struct kvtierd_place *p, const struct kvt_fingerprint *f,
	const struct kvt_tenant *tenant, const char *after, struct kvtierd_exchange *x);

#endif
