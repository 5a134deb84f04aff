/*
 * checksum.h - XXH3-128 of chunks, computed while copying or in place.
 *
 * A chunk may lie in several segments; its checksum is that of its bytes in order, however they are divided. xxHash's
 * run-time dispatch is used, in pieces of 64 KiB or more. Pure functions; any thread.
 */
#ifndef KVT_CHECKSUM_H
#define KVT_CHECKSUM_H

#include <stdbool.h>

#include "kvtier/kvtier.h"

void kvt_checksum_segments(
	const struct kvt_segment *segments, size_t count, uint64_t bytes, struct kvt_checksum *out);

/* Returns whether these bytes have this checksum. */
bool kvt_checksum_holds(const struct kvt_segment *segments, size_t count, uint64_t bytes,
	const struct kvt_checksum *sum) KVT_MUST_CHECK;

/* Copies and computes the checksum at once; kvt_fill uses this function. */
void kvt_checksum_copy(const struct kvt_segment *to, size_t count, const void *from, uint64_t bytes,
	struct kvt_checksum *out);

/*
 * Copies from segments that others may be writing at the same time (memory shared with another process) into the
 * caller's own, both lists at least `bytes` long. Every byte of the source is read once, so that the checksum is that
 * of the copy, however the source changes. Returns the number of bytes that both lists had room for; the checksum
 * covers these.
 */
uint64_t kvt_checksum_take(const struct kvt_segment *to, size_t to_count,
	const struct kvt_segment *from, size_t from_count, uint64_t bytes,
	struct kvt_checksum *out);

/*
 * Computes the checksums of a chunk's pieces of `piece` bytes each, the last one shorter, and that of the whole, from
 * one reading of memory. `pieces` has room for kvt_checksum_count(). If another process writes there meanwhile, without
 * restoring the old bytes, a whole's checksum equal to the former one proves the pieces' too.
 */
void kvt_checksum_pieces(const struct kvt_segment *segments, size_t count, uint64_t bytes,
	uint64_t piece, struct kvt_checksum *pieces, struct kvt_checksum *whole);
static inline uint64_t kvt_checksum_count(uint64_t bytes, uint64_t piece)
{
	return bytes / piece + (bytes % piece != 0);
}

/* Copies, and computes the checksums of pieces and whole. piece 0: only the whole's, pieces may be NULL. */
void kvt_checksum_copy_pieces(const struct kvt_segment *to, size_t count, const void *from, uint64_t bytes,
	uint64_t piece, struct kvt_checksum *pieces, struct kvt_checksum *whole);

/* Checksum of bytes that arrive piece by piece. Pieces of 64 KiB or more cost as much as the functions above; smaller
 * pieces are slower. */
struct kvt_checksum_stream {
	_Alignas(64) unsigned char state[576]; /* xxHash's */
};
void kvt_checksum_begin(struct kvt_checksum_stream *stream);
void kvt_checksum_update(struct kvt_checksum_stream *stream, const void *bytes, uint64_t count);
void kvt_checksum_end(const struct kvt_checksum_stream *stream, struct kvt_checksum *out);

static inline bool kvt_checksum_equal(const struct kvt_checksum *a, const struct kvt_checksum *b)
{
	return a->low == b->low && a->high == b->high;
}

#endif
