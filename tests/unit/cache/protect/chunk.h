/*
 * chunk.h - a chunk whose bytes are a function of a seed, sealed and opened in any cut.
 */
#ifndef KVT_TEST_PROTECT_CHUNK_H
#define KVT_TEST_PROTECT_CHUNK_H

#include "helpers.h"

#define MOST_PIECES 16

struct chunk {
	struct kvt_seal_place place;
	struct kvt_seal_header header;
	uint8_t *plain, *sealed, *opened;
	uint8_t *tags;
	size_t tag_bytes;
	struct kvt_segment segments[MOST_PIECES]; /* of plain or opened */
};

static inline uint8_t expected_byte(unsigned seed, uint64_t at)
{
	uint64_t x = (at + 1) * 0x9E3779B97F4A7C15u ^ seed;

	return (uint8_t)(x >> 32 ^ x >> 11);
}

static inline void chunk_start(struct chunk *c, unsigned seed, uint64_t bytes)
{
	*c = (struct chunk){.place = {.tier = KVT_TIER_NVME, .bytes = bytes}};
	for (size_t i = 0; i < sizeof(c->place.key.bytes); i++)
		c->place.key.bytes[i] = (uint8_t)(seed + i);
	memset(&c->place.fingerprint, 0x11, sizeof(c->place.fingerprint));
	memset(&c->place.tenant, (int)(seed % 3), sizeof(c->place.tenant));
	memset(c->place.store_id, 0x22, sizeof(c->place.store_id));
	c->tag_bytes = (size_t)kvt_seal_records(bytes) * KVT_SEAL_TAG_BYTES;
	c->plain = malloc(bytes);
	c->sealed = malloc(bytes);
	c->opened = malloc(bytes);
	c->tags = malloc(c->tag_bytes);
	ck_assert(c->plain != NULL && c->sealed != NULL && c->opened != NULL && c->tags != NULL);
	for (uint64_t i = 0; i < bytes; i++)
		c->plain[i] = expected_byte(seed, i);
}

static inline void chunk_end(struct chunk *c)
{
	free(c->plain);
	free(c->sealed);
	free(c->opened);
	free(c->tags);
}

/* Cuts `memory` into pieces of uneven length; returns how many. One piece may be empty. */
static inline size_t chunk_cut(struct chunk *c, uint8_t *memory, size_t pieces)
{
	uint64_t bytes = c->place.bytes, at = 0;

	for (size_t i = 0; i < pieces; i++) {
		uint64_t end = i + 1 == pieces
				       ? bytes
				       : bytes * (i + 1) * (i + 2) / (pieces * (pieces + 1));

		c->segments[i] = (struct kvt_segment){.base = memory + at, .bytes = end - at};
		at = end;
	}
	return pieces;
}

static inline void chunk_seal(struct chunk *c, struct kvt_sealer *sealer, size_t pieces)
{
	uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES];
	bool fresh;

	ck_assert_int_eq(kvt_seal_tenant_key(sealer, &c->place.tenant, wrapped, &fresh), KVT_OK);
	ck_assert_int_eq(kvt_seal(sealer, &c->place, c->segments, chunk_cut(c, c->plain, pieces),
				 c->sealed, &c->header, c->tags),
		KVT_OK);
}

static inline enum kvt_status chunk_open(struct chunk *c, struct kvt_sealer *sealer, size_t pieces)
{
	memset(c->opened, 0x77, c->place.bytes);
	return kvt_open_sealed(sealer, &c->place, &c->header, c->tags, c->sealed, c->segments,
		chunk_cut(c, c->opened, pieces));
}

static inline void chunk_must_open(struct chunk *c, struct kvt_sealer *sealer, size_t pieces)
{
	ck_assert_int_eq(chunk_open(c, sealer, pieces), KVT_OK);
	ck_assert_mem_eq(c->opened, c->plain, c->place.bytes);
}

/* Does not open, and leaves none of the plain text behind. */
static inline void chunk_must_fail(struct chunk *c, struct kvt_sealer *sealer)
{
	uint64_t left = 0;

	ck_assert_int_ne(chunk_open(c, sealer, 1), KVT_OK);
	for (uint64_t i = 0; i < c->place.bytes; i++)
		left += c->opened[i] != 0 && c->opened[i] != 0x77;
	ck_assert_uint_eq(left, 0);
}

#endif
