/*
 * kvtierd_format.h - the bytes and names of this tier's objects in the daemon.
 *
 * Names, in the bucket of the configuration; F is the first 16 bytes of the fingerprint in hex:
 *
 * 	KEY-F               a chunk: payload, names, tags, footer, one value as in redis_value.h
 *
 * KEY is the chunk's name, which includes the generation of its tenant. Where a daemon serves no DELETE an erased chunk
 * becomes a mark of KVTIERD_MARK bytes (little-endian):
 *     0  "kvtmark1"           8  u32 kind (3), u32 zero  16 XXH3-128 with these 16 bytes zero
 *    32  u8[32] fingerprint  64  u8[32] key
 *    96  u64 random          104 i64 written (wall clock, ns)
 *
 * Requests are those of the protocol, as stock clients write them. Pure functions.
 */
#ifndef KVT_TIERED_FORMAT_H
#define KVT_TIERED_FORMAT_H

#include <stdbool.h>

#include "chunk/slots.h"
#include "tiers/kvtierd/kvtierd_http.h"

#define KVTIERD_MARK       128u
#define KVTIERD_NAME_ROOM  128u
#define KVTIERD_MAX_BUCKET 128u

/* The mark of an erased chunk. */
struct kvtierd_mark {
	struct kvt_fingerprint fingerprint;
	struct kvt_key key;
	uint64_t value; /* random */
	int64_t written_wall_ns;
};

void kvtierd_mark_encode(const struct kvtierd_mark *m, uint8_t out[KVTIERD_MARK]);

void kvtierd_chunk_name(
	const struct kvt_fingerprint *f, const struct kvt_key *key, char out[KVTIERD_NAME_ROOM]);

/* The server and bucket that requests go to, as texts ready for a request's head. */
struct kvtierd_place {
	char bucket[3 * KVTIERD_MAX_BUCKET + 1]; /* percent-encoded */
	char host[300];                         /* host:port; an IPv6 address is in brackets */
};

/* KVT_EINVAL: the bucket's name is not allowed. */
enum kvt_status kvtierd_place_init(
	struct kvtierd_place *p, const char *bucket, const char *host, uint16_t port) KVT_MUST_CHECK;

/* Each of these functions makes the head of one kind of request. */
void kvtierd_ask_lease(const struct kvtierd_place *p, const char *name, uint64_t timeout_ns,
	uint64_t ttl_ns, struct kvtierd_exchange *x);
void kvtierd_ask_release(const struct kvtierd_place *p, const char *id, struct kvtierd_exchange *x);
/* x->segments and x->tail must be set already. tenant: the tenant whose limits count, if the daemon
 * has limits; all zero or NULL: none. */
void kvtierd_ask_put(const struct kvtierd_place *p, const char *name,
	const struct kvt_tenant *tenant, struct kvtierd_exchange *x);
void kvtierd_ask_delete(const struct kvtierd_place *p, const char *name, struct kvtierd_exchange *x);
/* Only for kvtierd: reads the table of generations, and optionally changes a generation. */
void kvtierd_ask_table(
	const struct kvtierd_place *p, const struct kvt_table_ask *ask, struct kvtierd_exchange *x);

#endif
